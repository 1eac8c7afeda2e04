"""May this call happen? (call, rules, mode, cwd) -> allow, ask or deny, with the reason. Pure."""

from longrein.permissions.judge import hidden, judge
from longrein.permissions.port import Call, Mode, Rules, Touched, Verdict
from longrein.permissions.rules import check_rule
from longrein.permissions.shown import escaped, visible

__all__ = ["Call", "Mode", "Rules", "Touched", "Verdict", "check_rule", "escaped", "hidden", "judge", "visible"]

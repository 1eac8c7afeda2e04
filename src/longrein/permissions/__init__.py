"""May this call happen? (call, rules, mode, cwd) -> allow, ask or deny, with the reason. Pure."""

from longrein.permissions.judge import hidden, judge
from longrein.permissions.port import Call, Mode, Rules, Touched, Verdict
from longrein.permissions.rules import check_rule, rule_tool
from longrein.permissions.shown import escape, shown_call, visible
from longrein.permissions.sweeping import Sweep, sweep_rule, sweeps, takes

__all__ = [
    "Call",
    "Mode",
    "Rules",
    "Sweep",
    "Touched",
    "Verdict",
    "check_rule",
    "escape",
    "hidden",
    "judge",
    "rule_tool",
    "shown_call",
    "sweep_rule",
    "sweeps",
    "takes",
    "visible",
]

"""Permission of tool calls: (call, rules, mode, cwd) -> allow, ask or deny, with the reason. Pure."""

from longrein.permissions.display import escape, shown_call, visible
from longrein.permissions.recursive_reads import Sweep, sweep_rule, sweeps, takes
from longrein.permissions.rules import check_rule, rule_tool
from longrein.permissions.types import Call, Mode, Rules, Touched, Verdict
from longrein.permissions.verdict import hidden, judge

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

"""Permission of tool calls: (call, rules, mode, cwd) -> allow, ask or deny, with the reason. Pure."""

from longrein.permissions.escape import escape, shown_call, visible
from longrein.permissions.recursive_reads import RecursiveRead, find_recursive_reads, read_deny_rule, reads_file_name
from longrein.permissions.rules import check_rule, rule_tool
from longrein.permissions.shell_parser import word_set
from longrein.permissions.types import Call, Mode, Rules, Touched, Verdict
from longrein.permissions.verdict import is_read_denied, judge

__all__ = [
    "Call",
    "Mode",
    "RecursiveRead",
    "Rules",
    "Touched",
    "Verdict",
    "check_rule",
    "escape",
    "find_recursive_reads",
    "is_read_denied",
    "judge",
    "read_deny_rule",
    "reads_file_name",
    "rule_tool",
    "shown_call",
    "visible",
    "word_set",
]

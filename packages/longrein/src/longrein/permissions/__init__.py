"""Permission of tool calls: (call, rules, mode, cwd) -> allow, ask or deny, with the reason.
Pure.
"""

from typing import TYPE_CHECKING

from longrein.permissions.display import shown_call, unseen_note, visible
from longrein.permissions.hook_protocol import Hook, HookAnswer
from longrein.permissions.rules import (
    check_rule,
    denies_every_call,
    rule_tool,
    with_tool_names,
)
from longrein.permissions.types import Call, Mode, PartFacts, Rules, Touched, Verdict
from longrein_context.events.escape import escape
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.permissions.bash_parser import Word, WordPart, join_path, word_set
    from longrein.permissions.command_rules import (
        KnownCommand,
        glob_base,
        read_command,
        read_folders,
    )
    from longrein.permissions.program_table import Effect
    from longrein.permissions.rule_evaluation import (
        is_read_denied,
        judge,
        protected_name,
        read_deny_rule,
    )

__getattr__ = names_at_first_use(
    __name__,
    {
        "bash_parser": "WordPart Word join_path word_set",
        "command_rules": "KnownCommand glob_base read_command read_folders",
        "program_table": "Effect",
        "rule_evaluation": "is_read_denied judge protected_name read_deny_rule",
    },
)

__all__ = [
    "Call",
    "Effect",
    "Hook",
    "HookAnswer",
    "KnownCommand",
    "Mode",
    "PartFacts",
    "Rules",
    "Touched",
    "Verdict",
    "Word",
    "WordPart",
    "check_rule",
    "denies_every_call",
    "escape",
    "glob_base",
    "is_read_denied",
    "join_path",
    "judge",
    "protected_name",
    "read_command",
    "read_deny_rule",
    "read_folders",
    "rule_tool",
    "shown_call",
    "unseen_note",
    "visible",
    "with_tool_names",
    "word_set",
]

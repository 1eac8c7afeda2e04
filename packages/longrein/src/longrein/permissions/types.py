"""Input and output of `judge`: call, touched paths, rules, verdict."""

from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from longrein.permissions.command_rules import KnownCommand


Mode = Literal["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]


class Touched(msgspec.Struct, frozen=True):
    """Path that a call would touch, resolved by the workspace beforehand."""

    given: str
    """Path as the model wrote it."""
    path: str
    """Absolute, normalised path; symlinks are not followed."""
    real: str
    """Absolute path with all symlinks followed, as far as it exists."""
    inside: bool
    """True if `path` and `real` are both inside a root (compared by component)."""
    writes: bool
    """True if the call would change the path."""
    is_scratch: bool = False
    """True in the session's `/tmp` and in caches: a change there is no change of the project."""
    other_names: tuple[str, ...] = ()
    """Paths of the same file by other names (hard links), where a rule forbids one of them."""


class PartFacts(msgspec.Struct, frozen=True):
    """Findings of the workspace about one part of a command."""

    touched: tuple[Touched, ...] = ()
    """Files and folders of the part's effect, for each folder in which it may run."""
    foreign: str = ""
    """Reason why its program is not the system's, such as a file of the project in front on the
    PATH; '' if it is.
    """
    armed: str = ""
    """Repository setting that makes git run a program, such as `core.fsmonitor`; '' for none. No
    rule covers it.
    """
    clean_history: bool = False
    """True if git keeps no version of a file that a rule forbids to read."""


class Call(msgspec.Struct, frozen=True):
    """Tool call to be judged."""

    tool: str
    """Tool name, such as `Bash`."""
    arguments: dict[str, Any]
    """Checked arguments."""
    access: Literal["none", "read", "write", "command"]
    """Effect of the tool: nothing outside the session, reads files, changes files, runs a
    command.
    """
    touched: tuple[Touched, ...] = ()
    """Touched paths of reading and writing tools."""
    rule_name: str = ""
    """`Read` or `Edit`: rules of this name cover the call too; '' for none."""
    command: "KnownCommand | None" = None
    """The command line that it runs, read; None for tools that run none."""
    parts: tuple[PartFacts, ...] = ()
    """Facts about the parts of `command`, in their order."""
    confined: bool = False
    """True if the sandbox confines the command."""
    masked: bool = False
    """True if the sandbox also hides from it every file that a rule forbids to read."""
    gated: bool = False
    """True if a program or editor wants to be asked also about what the sandbox confines."""
    asks: str = ""
    """Reason why the user is asked in every mode; '' where rules and mode decide."""


class Rules(msgspec.Struct, frozen=True):
    """Permission rules, each `Tool` or `Tool(spec)`. Deny beats ask beats allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    base: str = ""
    """Absolute folder where `/relative` patterns start (the folder of the settings file, or the
    first root).
    """
    home: str = ""
    """Absolute home folder, for `~/…`."""


class Verdict(msgspec.Struct, frozen=True):
    """Decision on a call, with the reason."""

    kind: Literal["allow", "ask", "deny"]
    reason: str
    """Line for the user and, on a denial, for the model."""
    rule: str = ""
    """Rule that decided; empty when the mode decided."""
    suggestions: tuple[str, ...] = ()
    """For `ask`: the narrow rules that "always" would store; empty when no rule is safe."""
    shown: str = ""
    """For `ask`: the exact bytes to approve, with control characters escaped visibly."""
    exact: str = ""
    """For `ask`: the rule that covers this command and no other; '' when there is none, or
    `suggestions` holds it.
    """
    edits: bool = False
    """For `ask`: True if the mode `acceptEdits` would allow it, as every edit of the session."""

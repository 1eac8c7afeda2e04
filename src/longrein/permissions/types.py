"""The values a verdict is made from, and the verdict."""

from typing import Any, Literal

import msgspec

Mode = Literal["default", "acceptEdits", "plan", "bypassPermissions"]


class Touched(msgspec.Struct, frozen=True):
    """One path a call would touch, looked up by the workspace beforehand."""

    given: str
    """As the model wrote it."""
    path: str
    """Absolute, normalised, symlinks not followed."""
    real: str
    """Absolute with every symlink followed, as far as it exists."""
    inside: bool
    """Whether `path` and `real` both lie in a root (compared by component)."""
    writes: bool
    """Whether the call would change it."""


class Call(msgspec.Struct, frozen=True):
    """One tool call as the judge sees it."""

    tool: str
    """Tool name, such as `Bash`."""
    arguments: dict[str, Any]
    """Checked arguments."""
    access: Literal["none", "read", "write", "command"]
    """What the tool does to the world: nothing outside the session, reads files, changes files, runs a command."""
    touched: tuple[Touched, ...] = ()
    """Paths, for reading and writing tools."""


class Rules(msgspec.Struct, frozen=True):
    """Permission rules, each `Tool` or `Tool(spec)`. Deny beats ask beats allow."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    base: str = ""
    """Absolute folder that `/relative` patterns start from (where the settings file lies or the first root)."""
    home: str = ""
    """Absolute home folder, for `~/…`."""


class Verdict(msgspec.Struct, frozen=True):
    """What may happen to a call, and why."""

    kind: Literal["allow", "ask", "deny"]
    reason: str
    """One line for the user and, on a denial, for the model."""
    rule: str = ""
    """The rule that decided; empty for the mode."""
    suggestion: str = ""
    """For `ask`: the narrowest rule that "always" would store; empty when no rule could express it safely."""
    shown: str = ""
    """For `ask`: the exact bytes to approve, with control characters escaped visibly."""

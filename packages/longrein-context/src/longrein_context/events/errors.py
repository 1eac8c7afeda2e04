"""Errors that longrein raises, with their exit codes and what the user can do.

    LongreinError
    ├── UsageError           an argument, the command line or a prompt is wrong: correct it; exit 2
    ├── SettingsError        a settings file is wrong: file, line, key, nearest valid key; exit 2
    ├── ModelUnknown         no such provider or model, or no key: what was looked for; exit 1
    ├── SessionError         exit 1
    │   ├── SessionUnknown   no session of that id: `longrein sessions` lists them
    │   ├── SessionBusy      open in another process: close that one, or fork
    │   ├── SessionTakenOver another process goes on with it: what this one says is not written
    │   ├── SessionReadOnly  written by a newer longrein: upgrade, or export
    │   ├── SessionClosed    `close` was called: open it again with `Session.resume`
    │   ├── StoreDamaged     the database is damaged: it was set aside, nothing overwritten
    │   └── StoreFull        no room on the disk: free some, then go on with `longrein -c`
    ├── TurnFailed           `Session.ask` has no answer: a limit, the provider, an interrupt; 1
    ├── BudgetError          a money limit with a model of unknown price: name the price; exit 2
    └── ToolError            a call cannot be done: the model is told and goes on

Failures of the outside world (a provider times out, a file is gone) are events, not errors. Each
message is one line that says what happened, to what, and what to do now.
"""

from typing import Any


class LongreinError(Exception):
    """Base of all errors. `str(error)` is the line for the user."""

    exit_code = 1


class UsageError(LongreinError):
    """The command line or a prompt is wrong."""

    exit_code = 2


class SettingsError(LongreinError):
    """A settings file is wrong."""

    exit_code = 2


class ModelUnknown(LongreinError):
    """No such provider or model, or no key for it."""


class SessionError(LongreinError):
    """Something about a stored session."""


class SessionUnknown(SessionError):
    """No session of that id."""


class SessionBusy(SessionError):
    """Open in another process."""


class SessionTakenOver(SessionError):
    """Another process has taken it over, because this one was silent for too long."""


class SessionReadOnly(SessionError):
    """Written by a newer longrein."""


class StoreDamaged(SessionError):
    """The database is damaged and was set aside."""


class StoreFull(SessionError):
    """No room on the disk."""


class SessionClosed(SessionError):
    """The session object was closed."""


class TurnFailed(LongreinError):
    """A turn ended without an answer; `reason` is that of its `TurnEnded`."""

    def __init__(self, message: str, reason: str = "error") -> None:
        super().__init__(message)
        self.reason = reason


class BudgetError(LongreinError):
    """A money limit cannot be kept."""

    exit_code = 2


class ToolError(LongreinError):
    """A call cannot be done; the text goes to the model.

    `facts`: events about what the text shows of the world, for the log.
    """

    def __init__(self, text: str = "", *facts: Any) -> None:
        super().__init__(text)
        self.facts = facts

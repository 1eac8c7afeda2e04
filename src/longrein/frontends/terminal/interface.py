"""Data from the terminal to its caller: an `Outcome`."""

from typing import Literal

import msgspec

END_REASONS = {
    "exit": "prompt_input_exit",
    "switch": "resume",
    "new": "clear",
    "watch": "resume",
    "copy": "resume",
}
"""Kind of an outcome -> reason for hooks of the session's end."""


class Outcome(msgspec.Struct, frozen=True):
    """Reason for leaving the terminal. The session is closed by then."""

    kind: Literal["exit", "switch", "new", "watch", "copy"]
    """`switch`: open `session` next; `new`: open a new one; `watch`: show `session`, then come
    back; `copy`: open a copy of `session`.
    """
    session: str = ""
    folder: str = ""
    """Folder that the next session may work in, too."""
    code: int = 0
    tasks: Literal["", "stop", "keep"] = ""
    """The user's decision about running tasks; '' for each task's own policy."""

    @property
    def end_reason(self) -> str:
        """Reason for hooks of the session's end; a signal is `other`."""
        return "other" if self.code else END_REASONS[self.kind]

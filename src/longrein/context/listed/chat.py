"""What the engine needs to know of somebody else's list: how to read one message of it, and how to write it anew.

The list stays the caller's. The engine reads each message into neutral parts, and where a part is to be shown shorter
it asks for a copy of that message with the part replaced; what need not change is handed back as it came.
"""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import msgspec

from longrein.events import AnyPart, Usage


class Said(msgspec.Struct, frozen=True):
    """One message of a list, neutral. Equal messages read equal; what the model never sees is not read."""

    side: Literal["system", "user", "assistant"]
    """Whose it is. Results of tools are the user's side."""
    parts: tuple[AnyPart, ...] = ()
    """Content in order. `ToolCall.id` and `ToolResult.call` are the provider's ids."""
    system: str = ""
    """System text that stands in it beside the parts."""
    usage: Usage | None = None
    """What the provider counted for the request that it answers, where the message says so."""


class Shape(Protocol):
    """How messages of one kind of list are read and written."""

    def read(self, one: Any) -> Said:
        """The message `one`. Raises `UsageError` when it is none."""
        ...

    def rewrite(self, one: Any, changes: Mapping[int, AnyPart | None]) -> Any:
        """A copy of `one` with the parts at these indices of `Said.parts` replaced, or left out for None.

        None when nothing would be left of it.
        """
        ...

    def tell(self, text: str) -> Any:
        """A message of the user's side that holds `text`."""
        ...

"""The reply as far as it has come: slots that grow with the stream and become parts at its end."""

from collections.abc import Sequence

import msgspec

from longrein.events import AnyPart, ProviderBlock, Text, Thinking, ToolCall, Usage
from longrein.models.arguments import make_call
from longrein.models.port import Failure, Reply

REPLY_CHARS_MAX = 32 << 20
"""Text, thinking and arguments of one reply, each piece with `PIECE_CHARS` on top: about the memory that they take."""
PIECE_CHARS = 64
"""A piece is counted as this much longer than it is."""
PART_CHARS = 1_024
"""So is a part: text, thinking or a call."""


class Slot(msgspec.Struct):
    """One part that grows."""

    kind: str
    """`text`, `thinking` or `call`."""
    grown: list[str]
    """What has come of its text or arguments."""
    name: str = ""
    """Tool name."""
    raw: str = ""
    """The provider's own bytes for it; empty for none."""
    call: int = -1
    """Which call of the reply."""
    signs: list[str] = []
    """What has come of the signature of thinking."""

    @property
    def text(self) -> str:
        """All that has come."""
        return "".join(self.grown)


class Draft:
    """All slots of one reply in order."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.came = 0
        """How much content has come; it grows with each piece, and with nothing else."""
        self.calls = 0
        self.usage = Usage()
        self.stop = ""
        self.model = ""

    def open(self, kind: str, text: str = "", name: str = "") -> Slot:
        """A new slot at the end."""
        slot = Slot(kind, [text] if text else [], name)
        self.came += PART_CHARS + len(text) + len(name)
        if kind == "call":
            slot.call, self.calls = self.calls, self.calls + 1
        self.slots.append(slot)
        return slot

    def grow(self, slot: Slot, text: str) -> None:
        """More text, thinking or arguments."""
        slot.grown.append(text)
        self.came += PIECE_CHARS + len(text)

    def last(self, kind: str) -> Slot:
        """The slot that text of `kind` goes to: the last one if it is of that kind, else a new one."""
        if self.slots and self.slots[-1].kind == kind:
            return self.slots[-1]
        return self.open(kind)

    def parts(self) -> tuple[AnyPart, ...]:
        """Everything that has come, as parts. Text of nothing but blanks and empty thinking are none."""
        return tuple(part for _, part in self._filled())

    def _filled(self) -> list[tuple[Slot, AnyPart]]:
        made = ((slot, _part(slot)) for slot in self.slots)
        return [(slot, part) for slot, part in made if part is not None]

    def finish(self, wire: str, model: str) -> Reply | Failure:
        """The reply; a `Failure` when it holds neither text nor call, or announced calls and has none."""
        filled = self._filled()
        parts = tuple(part for _, part in filled)
        has_calls = any(isinstance(part, ToolCall) for part in parts)
        stop = self.stop or "end"
        if stop == "end" and has_calls:
            stop = "calls"
        if stop == "calls" and not has_calls:
            return self.failure("empty", "the model announced a tool call and sent none")
        if stop == "end" and not any(isinstance(part, Text) for part in parts):
            return self.failure("empty", "the model gave an answer with neither text nor a tool call")
        blocks = tuple(ProviderBlock(n, wire, model, slot.raw) for n, (slot, _) in enumerate(filled) if slot.raw)
        return Reply(parts, stop, self.usage, blocks, self.model or model)

    def failure(self, kind: str, message: str, status: int = 0) -> Failure:
        """A failure that holds what had come."""
        return Failure(kind, message, status, partial=self.parts(), usage=self.usage)


def _part(slot: Slot) -> AnyPart | None:
    text = slot.text
    if slot.kind == "call":
        return make_call(slot.name, text)
    if slot.kind == "thinking":
        return Thinking(text) if text or slot.raw else None
    return Text(text) if text.strip() else None


def texts(parts: Sequence[AnyPart]) -> str:
    """The visible text among `parts`."""
    return "".join(part.text for part in parts if isinstance(part, Text))

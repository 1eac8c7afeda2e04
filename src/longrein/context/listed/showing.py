"""Showing a list as the state says: messages that nothing happened to as they came, the others as rewritten copies.

The order is the caller's. A summary stands where the first message was that it stands for.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from longrein.context.listed.chat import Said, Shape
from longrein.context.listed.intake import Taken
from longrein.context.request import Item
from longrein.context.state import State
from longrein.events import AnyPart, Text, ToolCall, ToolResult, text_of


class Showing:
    """What was given out, so that the same message is the same object the next time."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._copies: dict[tuple[tuple[str, tuple[int, int, int]], ...], Any] = {}

    def show(self, state: State, chat: Sequence[Any], taken: Sequence[Taken], said: Sequence[Said]) -> "View":
        """The list as it is now to be sent, with what each of its messages stands for."""
        view = View()
        told: dict[str, bool] = {}
        spans = [item for item in state.items if item.kind == "summary"]
        for one, what, reading in zip(chat, taken, said, strict=True):
            for summary in (s for s in spans if s.handle not in told and _starts(s, what)):
                told[summary.handle] = True
                if summary.handle not in what.handles:
                    self._tell(view, summary)
            shown, changed = self._message(state, one, what, reading)
            if shown is not None:
                view.add(shown, what if not changed else _kept(state, what), reading if not changed else None)
        view.read(self._shape)
        return view

    def _tell(self, view: "View", summary: Item) -> None:
        text = text_of((summary.part,))
        key = ((summary.handle, summary.key),)
        message = self._copies.setdefault(key, self._shape.tell(text))
        view.add(message, Taken("", (summary.handle,), (summary.seqs[0],), summary.key[0], calm=True), None)

    def _message(self, state: State, one: Any, what: Taken, reading: Said) -> tuple[Any, bool]:
        """The message to be sent, and whether it differs from `one`; None when nothing of it is left."""
        if what.fixed or not what.handles:
            return one, False
        changes = changes_of(state, what, reading)
        if not changes:
            return one, False
        if len(changes) == len(what.handles) and not reading.system and all(to is None for to in changes.values()):
            return None, True
        items = (state.items[at] for handle in what.handles if (at := state.index.get(handle)) is not None)
        key = (("", (what.seq, len(changes), 0)), *((item.handle, item.key) for item in items))
        if key not in self._copies:
            self._copies[key] = self._shape.rewrite(one, changes)
        return self._copies[key], True


class View:
    """A list to be sent."""

    def __init__(self) -> None:
        self.chat: list[Any] = []
        """The messages."""
        self.taken: list[Taken] = []
        """What each stands for."""
        self.said: list[Any] = []
        """Their readings."""

    def add(self, one: Any, taken: Taken, said: Said | None) -> None:
        """One more message."""
        self.chat.append(one)
        self.taken.append(taken)
        self.said.append(said)

    def read(self, shape: Shape) -> None:
        """Read what was written anew, as it would be read if it came back."""
        self.said = [shape.read(one) if said is None else said for one, said in zip(self.chat, self.said, strict=True)]


def _starts(summary: Item, what: Taken) -> bool:
    """Whether `summary` has to stand before this message."""
    first, last = summary.seqs
    return summary.handle in what.handles or any(first <= seq <= last for seq in what.seqs)


def _kept(state: State, what: Taken) -> Taken:
    """What a rewritten message stands for: the parts that are still there."""
    pairs = [(h, s) for h, s in zip(what.handles, what.seqs, strict=True) if not h or h in state.index]
    return Taken("", tuple(h for h, _ in pairs), tuple(s for _, s in pairs), what.seq, what.calm)


def changes_of(state: State, what: Taken, said: Said) -> Mapping[int, AnyPart | None]:
    """Parts of a message that are to be shown otherwise than they stand in it; None for those not shown at all."""
    changes: dict[int, AnyPart | None] = {}
    for n, (handle, seq, part) in enumerate(zip(what.handles, what.seqs, said.parts, strict=True)):
        at = state.index.get(handle)
        if at is None:
            gone = handle or any(i.seqs[0] <= seq <= i.seqs[1] for i in state.items if i.kind == "summary")
            if gone:
                changes[n] = None
        elif (item := state.items[at]).kind != "summary" and not _same(item.part, part):
            changes[n] = item.part
    return changes


def _same(item: AnyPart, part: AnyPart) -> bool:
    """Whether the view shows what stands in the list; ids and names differ on purpose."""
    match item, part:
        case ToolResult(parts=shown), ToolResult(parts=stands):
            return shown is stands or shown == stands
        case ToolCall(arguments=shown), ToolCall(arguments=stands):
            return shown is stands or shown == stands
        case Text(shown), Text(stands):
            return shown == stands
        case _:
            return item is part or item == part

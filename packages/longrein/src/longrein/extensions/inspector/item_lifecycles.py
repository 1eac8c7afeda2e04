"""Lives of the items of the view: when each was born, in which forms requests showed it, and why
that changed.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from longrein.extensions.inspector.page_data import ItemData, Stage
from longrein.steps import BreakStep, CompactionStep, NoticeStep, Step
from longrein_context import Item, State, arguments_text, reading_place
from longrein_context.events import Form, Image, ToolCall, ToolResult, text_of
from longrein_context.state.request_types import ItemKind

BEGINS_CHARS_MAX = 60
SHORT_AT_BIRTH = "too large to be sent whole: both ends and a handle are shown"


class Life(msgspec.Struct):
    """An item while the log is read, without its content."""

    key: tuple[int, int, int]
    kind: ItemKind
    seqs: tuple[int, int]
    tool: str
    born_request: int
    tokens: int
    stages: list[Stage]
    begins: str
    """File and lines of a reading, else the first words."""
    is_shown: bool = True


class ItemTracker:
    """Follows the items from request to request."""

    def __init__(self) -> None:
        self.lives: dict[str, Life] = {}
        """By handle, in order of birth."""
        self._shown: set[str] = set()
        self._changes: list[BreakStep | CompactionStep] = []
        self._calls: dict[str, ToolCall] = {}

    def hear(self, step: Step, next_request: int) -> None:
        """Remember a step that may change the form of items before the next request."""
        match step:
            case BreakStep() | CompactionStep():
                self._changes.append(step)
            case NoticeStep(recalled=recalled) if recalled and recalled.handle in self.lives:
                asked = f"lines {recalled.lines}" if recalled.lines else recalled.query
                who = "the model" if recalled.call else "the user"
                why = f"{who} asked for it" + (f": {asked}" if asked else "")
                stage = Stage(next_request, step.seq, "recalled", why=why)
                self.lives[recalled.handle].stages.append(stage)

    def take_request(self, state: State, n: int, first: int, *, is_broken: bool) -> int:
        """Take in the view of request `n`. Return the uncalibrated tokens of the items that no
        request had before.

        `first`: number of items that are as in the request before; 0 if that `is_broken`.
        """
        new = 0
        for item in state.items[first:]:
            if isinstance(item.part, ToolCall):
                self._calls.setdefault(item.part.id, item.part)
            life = self.lives.get(item.handle) if item.handle else None
            if life is not None:
                self._take_known(state, life, item, n)
            elif item.handle:
                self.lives[item.handle] = self._born(state, item, n)
                self._shown.add(item.handle)
            if life is None and item.kind != "summary":
                new += item.tokens
        if is_broken:
            for handle in sorted(self._shown - state.index.keys()):
                self._gone(handle, n)
        self._changes.clear()
        return new

    def _born(self, state: State, item: Item, n: int) -> Life:
        tokens = state.gauge.scale(item.tokens)
        is_short = item.form in ("trimmed", "placeholder")
        why = SHORT_AT_BIRTH if is_short else ""
        stage = Stage(n, item.key[0], "full", tokens, "", why)
        if is_short:
            stage = Stage(n, item.key[0], _form_of(item), tokens, text_of_item(item), why)
        begins = reading_place(state, item, self._calls)
        tool = item.part.name if isinstance(item.part, ToolCall | ToolResult) else ""
        begins = begins or _first_words(item)
        return Life(item.key, item.kind, item.seqs, tool, n, tokens, [stage], begins)

    def _take_known(self, state: State, life: Life, item: Item, n: int) -> None:
        if life.key == item.key and life.is_shown:
            return
        tokens, seq = state.gauge.scale(item.tokens), item.key[0]
        is_full = item.form in ("full", "summary")
        form: Literal["restored", "trimmed", "placeholder"]
        form, text = ("restored", "") if is_full else (_form_of(item), text_of_item(item))
        restorer = next(
            (c for c in reversed(self._changes) if c.cause in ("restored", "rewound")), None
        )
        made_by = next((c for c in self._changes if c.seq == seq), None)
        if isinstance(made_by, CompactionStep) and made_by.cleared:
            why = made_by.why
        elif restorer is not None:
            seq = restorer.seq
            why = "a rewind" if restorer.cause == "rewound" else "a compaction was undone"
        else:
            why = SHORT_AT_BIRTH
        stage = Stage(n, seq, form, tokens, text, why)
        life.stages.append(stage)
        life.key, life.kind, life.seqs = item.key, item.kind, item.seqs
        life.is_shown = True
        self._shown.add(item.handle)

    def _gone(self, handle: str, n: int) -> None:
        life = self.lives[handle]
        life.is_shown = False
        self._shown.discard(handle)
        for change in self._changes:
            stage = _end_by(change, handle, life, n)
            if stage is not None:
                life.stages.append(stage)
                return
        life.stages.append(Stage(n, self._changes[-1].seq if self._changes else 0, "gone"))

    def items(self, shown: dict[str, tuple[float, bool]]) -> list[ItemData]:
        """Return all items. `shown`: handle -> (cost of carrying it, whether the next compaction
        takes it).
        """
        return [self._item(handle, life, shown.get(handle)) for handle, life in self.lives.items()]

    def _item(self, handle: str, life: Life, shown: tuple[float, bool] | None) -> ItemData:
        usd, goes = shown or (0.0, False)
        return ItemData(
            handle,
            life.kind,
            life.born_request,
            int(handle[1:].partition(".")[0]),
            life.tokens,
            list(life.stages),
            tool=life.tool,
            begins=life.begins,
            shown=shown is not None,
            usd=round(usd, 6),
            next_goes=goes,
        )


def _first_words(item: Item) -> str:
    return " ".join(text_of_item(item)[: 4 * BEGINS_CHARS_MAX].split())[:BEGINS_CHARS_MAX]


def _form_of(item: Item) -> Literal["trimmed", "placeholder"]:
    return "trimmed" if item.form == "trimmed" else "placeholder"


def _end_by(step: BreakStep | CompactionStep, handle: str, life: Life, n: int) -> Stage | None:
    """Return the stage in which `step` took an item out of the view; None if another step did."""
    seq, first = step.seq, life.seqs[0]
    match step:
        case CompactionStep(summarized=span) if span and span.first <= first <= span.last:
            return Stage(n, seq, "summarised", why=step.why)
        case CompactionStep(cleared=cleared) if cleared:
            form = next((f for f in _folded(cleared.forms) if f.handle == handle), None)
            why = step.why
            return Stage(n, seq, "folded", 0, form.text, why) if form else None
        case CompactionStep(restored=restored) if restored:
            return Stage(n, seq, "gone", why=f"the compaction r{restored.undone} was undone")
        case BreakStep(prefix=prefix) if prefix and life.kind == "context":
            return Stage(n, seq, "gone", why=f"a new prefix took its place ({step.reason})")
        case BreakStep(rewound=rewound) if rewound and first > rewound.to:
            return Stage(n, seq, "gone", why=f"the user went back to r{rewound.to}")
        case _:
            return None


def _folded(forms: Iterable[Form]) -> Iterable[Form]:
    return (form for form in forms if form.form == "folded")


def text_of_item(item: Item) -> str:
    """Return the exact text of an item as the model sees it; of pictures the media type."""
    if isinstance(item.part, ToolCall):
        return arguments_text(item.part)
    if isinstance(item.part, Image):
        return item.part.media
    return text_of((item.part,))

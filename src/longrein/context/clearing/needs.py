"""What the clearing policy remembers of a conversation, kept up as items arrive; work is proportional to the new item.

For every identifier, path and exact line: the newest item that has it, the request that last mentioned it, and in how
many items it is shown now. For every item: when it was last needed, what of it was needed, and whether something
newer has taken its place. Nothing here decides; `bodies` values lines from it and `rental` chooses the moment.
"""

from longrein.context.clearing.features import (
    CLEARED,
    EDIT_CALL,
    PART_READ,
    POINTER,
    RESULT_CLASSES,
    Held,
    Piece,
    Stand,
    arguments_of,
    class_of,
    features,
    header_of,
    is_part,
    line_key,
    tool_class,
    touched,
)
from longrein.context.clearing.text_index import Sheets

IDLE_STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 90, 150)
"""Requests without need after which an item is looked at again."""
REGRET_REQUESTS = 20
"""A re-read or re-run within so many requests of a clearing counts as a clearing regretted."""


class Worth:
    """The memory. `arrive` takes items in order; `begin` says that a request is about to be made."""

    def __init__(self) -> None:
        self.items: list[Held] = []
        self.by_handle: dict[str, int] = {}
        self.now = 0
        """The request that is about to be made."""
        self.sent = 0
        """Items that the previous request carried."""
        self.visible: dict[str, int] = {}
        """Feature -> number of items that show it."""
        self.newest: dict[str, int] = {}
        """Feature -> place of the newest item that has it."""
        self.mentioned: dict[str, int] = {}
        """Identifier -> last request in which the model or the user named it."""
        self.times: dict[str, int] = {}
        """Identifier -> number of items of the model or the user that name it."""
        self.spread: dict[str, int] = {}
        """Feature -> number of items that ever had it, where there were several."""
        self.touched_at: dict[str, int] = {}
        """Path -> last request in which a call touched it."""
        self.dropped: dict[str, int] = {}
        """Line that an edit took out of its file -> the request that did."""
        self.sheets = Sheets()
        self.results: list[int] = []
        self.dirty: dict[int, None] = {}
        """Items to be looked at again."""
        self.wake: dict[int, list[int]] = {}
        """Request -> items to be looked at again then."""
        self.regret: dict[int, float] = {}
        """Class -> clearings of it that were regretted: recalled, read again or run again soon after."""
        self.paying: dict[int, None] = {}
        """Items that would be shorter in their ideal form."""
        self.kept: frozenset[str] = frozenset()
        """Handles that stay whole whatever they cost."""
        self.last_user = 0
        """Place of the newest message of the user."""
        self.losses = 0.0
        """Clearings that turned out wrong: what was missed, counted once for each item and spell of use."""
        self._missed_at: dict[int, int] = {}
        self._calls: dict[str, int] = {}
        self._same: dict[tuple[str, str], int] = {}
        self._reads: dict[str, list[int]] = {}
        self._fresh: list[int] = []

    # --- items come ---

    def arrive(self, piece: Piece) -> Held:
        """Take in the next item. A resumed view may hand in items in the form in which they already stand."""
        n = len(self.items)
        if self._fresh and (not piece.output or self.items[self._fresh[0]].piece.request != piece.request):
            self._settle()
        arguments = arguments_of(piece.arguments) if piece.kind == "call" else None
        held = Held(n, piece, class_of(piece, arguments), piece.tokens, piece.request + piece.output)
        held.arguments = arguments
        if CLEARED in piece.content[:40] or CLEARED in piece.arguments:
            held.form, held.again, held.header = "trimmed", True, header_of(piece)
        held.shown = self.sheets.features(held)
        self.items.append(held)
        self.by_handle[piece.handle] = n
        visible = self.visible
        for feature in held.shown:
            visible[feature] = visible.get(feature, 0) + 1
        self._heard(held)
        if piece.output:
            self._fresh.append(n)
        else:
            self._had(held)
        if piece.kind == "call":
            self._called(held)
        elif piece.kind == "result":
            self._answered(held)
        elif piece.kind == "user":
            self.last_user = n
        self._sleep(held)
        return held

    def reborn(self, n: int, piece: Piece) -> None:
        """An item that was never sent has got another form."""
        held = self.items[n]
        held.piece, held.tokens, held.rows = piece, piece.tokens, None
        held.header = header_of(piece) if held.again else ""
        self.sheets.forget(n)
        self._seen(held, self.sheets.features(held))
        self.dirty[n] = None

    def _heard(self, held: Held) -> None:
        """What the model or the user names was needed and is on the mind."""
        kind = held.piece.kind
        if kind == "result":
            return
        now = held.piece.request
        for feature in held.shown:
            if feature[0] != "\n":
                self.mentioned[feature] = now
                self.times[feature] = self.times.get(feature, 0) + 1
            if kind in ("text", "call") and (source := self.newest.get(feature)) is not None:
                if self.visible[feature] == 1:  # it stands in what was just said and nowhere else
                    self._missed(source, now)
                self._refer(self.items[source], feature, now)

    def _refer(self, source: Held, feature: str, now: int) -> None:
        if source.last != now or not source.referred:
            source.refs += 1
            source.last = now
            self._sleep(source)
        source.referred[feature] = now
        self.dirty[source.n] = None
        if source.host >= 0:
            self.dirty[source.host] = None

    def _settle(self) -> None:
        """A reply is complete: from now on it is the newest source of what it says."""
        for n in self._fresh:
            self._had(self.items[n])
        self._fresh.clear()

    def _had(self, held: Held) -> None:
        newest, spread, n = self.newest, self.spread, held.n
        for feature in held.shown:
            if feature in newest:
                spread[feature] = spread.get(feature, 1) + 1
            newest[feature] = n

    def _sleep(self, held: Held) -> None:
        for step in IDLE_STEPS:
            self.wake.setdefault(held.last + step, []).append(held.n)

    def begin(self, request: int) -> None:
        """Request number `request` is about to be made with everything that has arrived."""
        self._settle()
        for due in range(self.now + 1, request + 1):
            for n in self.wake.pop(due, ()):
                if due - self.items[n].last in IDLE_STEPS:
                    self.dirty[n] = None
        self.now = request

    def was_sent(self) -> None:
        """The request was made: what has arrived has now been seen."""
        self.sent = len(self.items)

    # --- what calls do ---

    def _called(self, held: Held) -> None:
        piece = held.piece
        self._calls[piece.call] = held.n
        held.paths = touched(held.arguments)
        for path in held.paths:
            self.touched_at[path] = piece.request
        same = self._same.get((piece.tool, piece.arguments))
        if same is not None:
            self.items[same].superseded = True
            self.dirty[same] = None
            self._regretted(self.items[same])
        if held.cls == EDIT_CALL:
            self._edited_lines(held)

    def _edited_lines(self, held: Held) -> None:
        values = held.arguments or {}
        old, new = values.get("old_string"), values.get("new_string")
        if isinstance(old, str) and isinstance(new, str):
            after = {line_key(line) for line in new.split("\n")}
            for line in old.split("\n"):
                if (key := line_key(line)) and key not in after:
                    self.dropped[key] = held.piece.request
            for key in after:
                self.dropped.pop(key, None)

    def _answered(self, held: Held) -> None:
        self.results.append(held.n)
        call = self._calls.get(held.piece.call)
        if call is None:
            return
        asked = self.items[call]
        held.partner, asked.partner, held.paths = call, held.n, asked.paths
        kind = tool_class(asked.piece.tool, asked.arguments)
        part = is_part(asked.piece.arguments)
        held.cls = PART_READ if kind == "read" and part else RESULT_CLASSES.index(kind)
        if held.piece.content.startswith(POINTER):
            self._pointed_at(held.piece.content[len(POINTER) :].partition(":")[0], held.piece.request)
            return
        self._same[asked.piece.tool, asked.piece.arguments] = held.n
        for path in asked.paths:
            if kind == "read":
                self._read_again(path, held.n, part)
            elif kind == "edit":
                for n in self._reads.get(path, ()):
                    self.items[n].edited = True
                    self.dirty[n] = None

    def _pointed_at(self, handle: str, request: int) -> None:
        """A reading that a later one points at holds for both: nothing has taken its place, and it was needed now."""
        n = self.by_handle.get(handle, -1)
        if n >= 0:
            self.items[n].superseded, self.items[n].last = False, request
            self.dirty[n] = None

    def _read_again(self, path: str, n: int, part: bool) -> None:
        before = self._reads.setdefault(path, [])
        for earlier in before:
            self._regretted(self.items[earlier])
            if not part:
                self.items[earlier].superseded = True
                self.dirty[earlier] = None
        if not part:
            before.clear()
        before.append(n)

    # --- regret ---

    def _missed(self, source: int, now: int) -> None:
        """The model needed something that is no longer shown: it had to be brought back, or was made up anew."""
        if now - self._missed_at.get(source, -REGRET_REQUESTS) >= REGRET_REQUESTS:
            self.losses += 1.0
        self._missed_at[source] = now

    def _regretted(self, held: Held) -> None:
        if held.cleared_at >= 0 and self.now - held.cleared_at <= REGRET_REQUESTS:
            self.regret[held.cls] = self.regret.get(held.cls, 0.0) + 1.0
            held.cleared_at = -1

    def recalled(self, handle: str) -> None:
        """The model asked for something that was cleared: its class was valued too low."""
        n = self.by_handle.get(handle)
        if n is not None:
            held = self.items[n]
            self.regret[held.cls] = self.regret.get(held.cls, 0.0) + 1.0
            self._missed(n, self.now)
            held.last, held.refs = self.now, held.refs + 1
            self.dirty[n] = None

    # --- what is shown changes ---

    def show(self, held: Held, text: str, tokens: float, form: str) -> None:
        """From now on `text` stands for the item, in `tokens` tokens."""
        self._seen(held, tuple(features(text)))
        held.tokens, held.form, held.cleared_at = tokens, form, self.now

    def _seen(self, held: Held, shown: tuple[str, ...]) -> None:
        visible = self.visible
        for feature in held.shown:
            left = visible[feature] - 1
            if left:
                visible[feature] = left
            else:
                del visible[feature]
        held.shown = shown
        for feature in shown:
            visible[feature] = visible.get(feature, 0) + 1

    def put(self, n: int, stand: Stand) -> None:
        """Let item `n` stand as it stood, or will stand."""
        held = self.items[n]
        self._seen(held, stand.shown)
        for name in Stand.__struct_fields__:
            setattr(held, name, getattr(stand, name))

"""Memory of what a conversation needed, updated as items arrive. Work is proportional to the new
item.

For every identifier, path and exact line: the newest item that has it, the request that last
mentioned it, and the number of items that show it now. For every item: when it was last needed,
which features were needed, and whether a newer item replaces it. `line_value` reads this memory to
value lines, `timing` to choose the moment.
"""

import msgspec

from longrein_context.clearing.line_index import TextIndexCache
from longrein_context.clearing.text_features import (
    PART_READ,
    PLAN_TOOLS,
    RESULT_CLASSES,
    UNCHANGED_PREFIX,
    DisplayState,
    ItemRecord,
    SourceItem,
    class_of,
    features,
    is_partial_read,
    is_shortened,
    tool_class,
    touched_paths,
)
from longrein_context.events import decode_object

IDLE_STEPS = (1, 2, 3, 5, 8, 13, 21, 34, 55, 90, 150)
"""Numbers of idle requests after which an item is valued again."""


class NeedsMemory(msgspec.Struct, array_like=True):
    """Features, mentions and needs of one conversation.

    `add` takes items in order, `begin_request` starts a request, `mark_sent` ends it.
    """

    items: list[ItemRecord] = []
    by_handle: dict[str, int] = {}
    now: int = 0  # Number of the request that is about to be made
    sent: int = 0  # Number of items that the previous request carried
    visible: dict[str, int] = {}  # Feature -> number of items that show it
    newest: dict[str, int] = {}  # Feature -> position of the newest item that has it
    mentioned: dict[
        str, int
    ] = {}  # Identifier -> last request in which the model or the user mentioned it
    spread: dict[
        str, int
    ] = {}  # Feature -> number of items that ever had it, where there were several
    touched_at: dict[str, int] = {}  # Path -> last request in which a call touched it
    text_indexes: TextIndexCache = msgspec.field(default_factory=TextIndexCache)
    results: list[int] = []
    reused: int = 0  # Number of results that were needed after the request that first had them
    dirty: dict[int, None] = {}  # Items to value again
    wake: dict[int, list[int]] = {}  # Request -> items to value again then
    paying: dict[int, None] = {}  # Items that the ideal form would shorten
    kept: frozenset[str] = frozenset()  # Handles that are never shortened
    wanted: dict[str, tuple[str, ...]] = {}  # Handle -> lines that stay, whatever they cost
    users: list[int] = []  # Positions of the user's messages
    calls: dict[str, int] = {}  # Call id -> position of the call
    plans: dict[str, int] = {}  # Tool of a plan or todo list -> position of its newest call
    same: dict[tuple[str, str], int] = {}  # (tool, arguments) -> position of the last result
    reads: dict[str, list[int]] = {}  # Path -> results that show it as it is
    fresh: list[int] = []  # Items of the reply that is arriving

    @property
    def last_user(self) -> int:
        """Position of the newest user message."""
        return self.users[-1] if self.users else 0

    def must_stay(self, record: ItemRecord) -> bool:
        """Return whether an item may not be shortened: it is held, or the present plan."""
        if record.piece.handle in self.kept:
            return True
        return record.piece.kind == "call" and self.plans.get(record.piece.tool) == record.n

    def idle_requests(self, record: ItemRecord) -> int:
        """Return the number of requests that re-read an item since it was needed or shortened."""
        return self.now - max(record.born, record.last, record.cleared_at)

    # --- Arriving items ---------------------------------------------------------------------------

    def add(self, piece: SourceItem) -> ItemRecord:
        """Add the next item. A resumed view may hold items that are already shortened."""
        n = len(self.items)
        if self.fresh and (
            not piece.output or self.items[self.fresh[0]].piece.request != piece.request
        ):
            self._finish_reply()
        arguments = decode_object(piece.arguments) if piece.kind == "call" else None
        record = ItemRecord(
            n, piece, class_of(piece), piece.request + piece.output, tokens=piece.tokens
        )
        record.arguments = arguments
        if is_shortened(piece):
            record.form, record.again = "trimmed", True
        record.shown = self.text_indexes.features(record)
        self.items.append(record)
        self.by_handle[piece.handle] = n
        visible = self.visible
        for feature in record.shown:
            visible[feature] = visible.get(feature, 0) + 1
        self._record_mentions(record)
        if piece.output:
            self.fresh.append(n)
        else:
            self._record_source(record)
        if piece.kind == "call":
            self._add_call(record)
        elif piece.kind == "result":
            self._add_result(record)
        elif piece.kind == "user":
            self.users.append(n)
        self._schedule_checks(record)
        return record

    def replace(self, n: int, piece: SourceItem) -> None:
        """Replace the text of an item that was never sent."""
        record = self.items[n]
        record.piece = piece
        record.tokens = piece.tokens
        record.rows = None
        self.text_indexes.forget(n)
        self._replace_shown(record, self.text_indexes.features(record))
        self.dirty[n] = None

    def _record_mentions(self, record: ItemRecord) -> None:
        """Record the features that the model or the user names as needed and mentioned."""
        kind = record.piece.kind
        if kind == "result":
            return
        now = record.piece.request
        for feature in record.shown:
            if feature[0] != "\n":
                self.mentioned[feature] = now
            if kind in ("text", "call") and (source := self.newest.get(feature)) is not None:
                self._record_need(self.items[source], now)

    def _record_need(self, source: ItemRecord, now: int) -> None:
        if source.last != now:
            if source.last == source.piece.request < now and source.piece.kind == "result":
                self.reused += 1
            source.last = now
            self._schedule_checks(source)
        self.dirty[source.n] = None
        if source.host >= 0:
            self.dirty[source.host] = None

    def _finish_reply(self) -> None:
        """Make a complete reply the newest source of its features."""
        for n in self.fresh:
            self._record_source(self.items[n])
        self.fresh.clear()

    def _record_source(self, record: ItemRecord) -> None:
        newest = self.newest
        spread = self.spread
        n = record.n
        for feature in record.shown:
            if feature in newest:
                spread[feature] = spread.get(feature, 1) + 1
            newest[feature] = n

    def _schedule_checks(self, record: ItemRecord) -> None:
        for step in IDLE_STEPS:
            self.wake.setdefault(record.last + step, []).append(record.n)

    def begin_request(self, request: int) -> None:
        """Begin request number `request`, which carries everything added so far."""
        self._finish_reply()
        for due in range(self.now + 1, request + 1):
            for n in self.wake.pop(due, ()):
                if due - self.items[n].last in IDLE_STEPS:
                    self.dirty[n] = None
        self.now = request

    def mark_sent(self) -> None:
        """Record that the request was made with all items."""
        self.sent = len(self.items)

    # --- Calls and results ------------------------------------------------------------------------

    def _add_call(self, record: ItemRecord) -> None:
        piece = record.piece
        self.calls[piece.call] = record.n
        if piece.tool.lower() in PLAN_TOOLS:
            self.plans[piece.tool] = record.n
        record.paths = touched_paths(record.arguments)
        for path in record.paths:
            self.touched_at[path] = piece.request
        same = self.same.get((piece.tool, piece.arguments))
        if same is not None:
            self.items[same].superseded = True
            self.dirty[same] = None

    def _add_result(self, record: ItemRecord) -> None:
        self.results.append(record.n)
        call = self.calls.get(record.piece.call)
        if call is None:
            return
        asked = self.items[call]
        record.partner = call
        asked.partner = record.n
        record.paths = asked.paths
        kind = tool_class(asked.piece.tool_kind, asked.arguments)
        part = is_partial_read(asked.piece.arguments)
        record.cls = PART_READ if kind == "read" and part else RESULT_CLASSES.index(kind)
        if record.piece.content.startswith(UNCHANGED_PREFIX):
            earlier = record.piece.content[len(UNCHANGED_PREFIX) :].partition(":")[0]
            self._record_unchanged_read(earlier, record.piece.request)
            return
        self.same[asked.piece.tool, asked.piece.arguments] = record.n
        for path in asked.paths:
            if kind == "read":
                self._record_read(path, record.n, part)
            elif kind == "edit":
                for n in self.reads.get(path, ()):
                    if not self.items[n].edited:
                        self.items[n].edited = True
                        self.dirty[n] = None

    def _record_unchanged_read(self, handle: str, request: int) -> None:
        """Count a read that points to an earlier one as a need of the earlier one."""
        n = self.by_handle.get(handle, -1)
        if n >= 0:
            self.items[n].superseded = False
            self._need_again(self.items[n], request)

    def _record_read(self, path: str, n: int, part: bool) -> None:
        before = self.reads.setdefault(path, [])
        if not part:
            for earlier in before:
                self.items[earlier].superseded = True
                self.dirty[earlier] = None
            before.clear()
        before.append(n)

    def record_recall(self, handle: str) -> None:
        """Record that the model recalled a cleared item."""
        n = self.by_handle.get(handle)
        if n is not None:
            self._need_again(self.items[n], self.now)

    def _need_again(self, record: ItemRecord, request: int) -> None:
        record.last = request
        self.dirty[record.n] = None
        self._schedule_checks(record)

    # --- Shown texts ------------------------------------------------------------------------------

    def set_shown(self, record: ItemRecord, text: str, tokens: float, form: str) -> None:
        """Set the text, size in tokens and form that are shown of an item."""
        self._replace_shown(record, tuple(features(text)))
        record.tokens = tokens
        record.form = form
        record.cleared_at = self.now

    def _replace_shown(self, record: ItemRecord, shown: tuple[str, ...]) -> None:
        visible = self.visible
        for feature in record.shown:
            left = visible[feature] - 1
            if left:
                visible[feature] = left
            else:
                del visible[feature]
        record.shown = shown
        for feature in shown:
            visible[feature] = visible.get(feature, 0) + 1

    def restore(self, n: int, stand: DisplayState) -> None:
        """Restore a display state of item `n`."""
        record = self.items[n]
        self._replace_shown(record, stand.shown)
        for name in DisplayState.__struct_fields__:
            setattr(record, name, getattr(stand, name))

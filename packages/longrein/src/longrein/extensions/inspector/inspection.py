"""Build what the page shows of a session, from its log and the logs of its subagents.

`SessionInspector` reads the logs once and can read on later, when entries have been added.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import Protocol, TypeVar

import msgspec

from longrein.extensions.inspector.item_lifecycles import ItemTracker
from longrein.extensions.inspector.lanes import LaneBuilder
from longrein.extensions.inspector.model_requests import RequestTracker
from longrein.extensions.inspector.page_data import (
    VERSION,
    Inspection,
    ItemData,
    LeftOut,
    LineFate,
    MoneyRow,
    SessionData,
    TranscriptRow,
    Update,
)
from longrein.extensions.inspector.shorten import fit, fit_to
from longrein.extensions.inspector.subagents_and_files import Child, FileTracker
from longrein.extensions.inspector.transcript import TranscriptBuilder
from longrein.frontends.reports.cost import CostRow, CostTable
from longrein.steps import Projection, PromptStep, SettingStep, Step, SubagentStep
from longrein_context import (
    Budget,
    KeptStates,
    State,
    advance,
    line_reasons,
    next_compacted,
    report,
)
from longrein_context.events import Entry, PrefixSet, SubagentStarted, text_of
from longrein_context.events.escape import shortened

T = TypeVar("T", bound=msgspec.Struct)
TITLE_CHARS_MAX = 80
EXPLAINED_ITEMS_MAX = 12
"""Largest shown items whose lines are explained."""
EXPLAINED_LINES_MAX = 60
LINE_CHARS_MAX = 120
ROWS_MAX = 20_000
"""Newest rows of the transcript that are shown; a session of 10,000 entries has about 8,000."""
SUBAGENTS_MAX = 500
"""Subagents whose logs are read."""


class SessionLogs(Protocol):
    """The logs of a session and its subagents."""

    def entries(self, session: str, after: int) -> Iterable[Entry] | None:
        """Return the entries of a subagent, or with '' of the session, after seq `after`; None
        if there is no log.
        """

    def is_open(self) -> bool:
        """Return True if a process has the session open."""

    def title(self) -> str:
        """Return the title of the session; '' for none."""


class AgentLog:
    """Data read from the log of one agent."""

    def __init__(
        self, label: str, session: str, lane_label: str, parent: str, rows_max: int
    ) -> None:
        self.label, self.session = label, session
        self.rows = TranscriptBuilder(label, rows_max)
        self.lane = LaneBuilder(label, lane_label, parent)
        self._projection = Projection()
        self.seq = 0
        self.is_over = False
        """True if it has ended and all of its log was read."""

    def read(self, entry: Entry) -> list[Step]:
        """Take in an entry; return its steps."""
        self.seq = entry.seq
        steps = self._projection.read(entry)
        for step in steps:
            self.rows.hear(step)
            self.lane.hear(step)
        return steps


class SessionInspector:
    """Reads a session and makes its `Inspection`."""

    def __init__(
        self, logs: SessionLogs, budget_for: Callable[[str], Budget], rows_max: int = ROWS_MAX
    ) -> None:
        """`budget_for`: function from `provider/model` to the budget."""
        self._logs = logs
        self._rows_max = rows_max
        self._budget_for = budget_for
        self._budgets: dict[str, Budget] = {}
        self._state = State()
        self._log = KeptStates(self._history)
        self._begun_us = self._count = 0
        self._items = ItemTracker()
        self._requests = RequestTracker(self._items, self._budget)
        self._agents = {"": AgentLog("", "", "longrein", "", rows_max)}
        self._children: dict[str, Child] = {}
        self._files = FileTracker()
        self._cost = CostTable()
        self._missing: set[str] = set()
        """Subagents whose logs are not read."""
        self._branch = self._cwd = self._words = ""

    @property
    def entries(self) -> Iterable[Entry]:
        """Entries that were read, read again from the log."""
        return self._history(1, self._state.seq)

    @property
    def budget(self) -> Budget:
        return self._budget(self._state.prefix)

    def read(self) -> int:
        """Read what was added to the logs. Return the number of new entries. Raises what the
        logs raise.
        """
        waiting, count = [""], 0
        seen = {""}
        while waiting:
            session = waiting.pop(0)
            agent = self._agents[session]
            new = self._logs.entries(session, agent.seq)
            if new is None:
                self._missing.add(session)
                continue
            for entry in new:
                self._hear(agent, entry)
                count += 1
            agent.is_over = bool(session) and self._children[session].is_over
            for subagent in self._children:
                if (
                    subagent in self._agents
                    and subagent not in seen
                    and not self._agents[subagent].is_over
                ):
                    seen.add(subagent)
                    waiting.append(subagent)
        return count

    def inspection(self) -> Inspection:
        """Return all that the page shows, with whole texts."""
        budget = self.budget
        now_us = max([0, *(subagent.last_at for subagent in self._children.values())])
        now_us = max(now_us, self._state.at)
        is_open = self._logs.is_open()
        usable = budget.usable_tokens
        rows, items = self._transcript(), self._item_data()
        count = sum(agent.rows.count for agent in self._agents.values())
        left_out = LeftOut(subagents=len(self._missing), rows=max(0, count - self._rows_max))
        if left_out.rows:
            rows = rows[-self._rows_max :]
            first = next((row.seq for row in rows if not row.agent), 0)
            items = [item for item in items if item.shown or item.seq >= first]
        return Inspection(
            VERSION,
            self._session(now_us, is_open=is_open),
            budget.window_tokens,
            usable,
            [round(budget.prepare_share * usable), round(budget.compact_share * usable)],
            self._requests.requests(),
            [lane for agent in self._agents.values() for lane in agent.lane.lanes(now_us)],
            items,
            rows,
            [subagent.shown(is_open=is_open) for subagent in self._children.values()],
            self._files.files(),
            prices_note=budget.price.note if budget.price is not None else "",
            money=[_money_row(row) for row in self._cost.rows],
            left_out=left_out,
        )

    # --- Entries

    def _hear(self, agent: AgentLog, entry: Entry) -> None:
        steps = agent.read(entry)
        for step in steps:
            self._files.hear(step, agent.label)
            if isinstance(step, SubagentStep):
                self._subagent(agent, step)
            if agent.label:
                self._children[agent.session].hear(step)
        if agent.label:
            return
        kept = self._state.sent_items
        self._begun_us = self._begun_us or entry.at
        self._count += 1
        self._state = advance(self._state, entry, self._log)
        self._log.keep(self._state)
        for step in steps:
            self._cost.hear(step)
            self._requests.hear(step, self._state, kept)
            self._note(step)

    def _history(self, first: int, last: int) -> Iterable[Entry]:
        entries = self._logs.entries("", first - 1) or ()
        return takewhile(lambda entry: entry.seq <= last, entries)

    def _note(self, step: Step) -> None:
        """Take the folder, the branch and the first words of the user."""
        match step:
            case SettingStep(opened=opened) if opened:
                self._branch, self._cwd = opened.branch, opened.cwd
            case PromptStep(message=message) if not self._words:
                self._words = " ".join(text_of(message.typed)[: 4 * TITLE_CHARS_MAX].split())

    def _subagent(self, agent: AgentLog, step: SubagentStep) -> None:
        if step.ended is None and step.started is not None:
            self._subagent_started(agent, step, step.started)
        elif step.ended is not None and step.session in self._children:
            subagent = self._children[step.session]
            subagent.ends = [*subagent.ends, (step.at, step.ended)]
            if step.session in self._agents:
                self._agents[step.session].lane.status = step.ended.status

    def _subagent_started(
        self, agent: AgentLog, step: SubagentStep, event: SubagentStarted
    ) -> None:
        known = self._children.get(event.child)
        if known is not None:
            known.at, known.started = step.at, event
            if event.child in self._agents:
                self._agents[event.child].is_over = False
                self._agents[event.child].lane.status = ""
            return
        label = f"{agent.label}.{step.label}" if agent.label else step.label
        self._children[event.child] = Child(label, agent.label, step.seq, step.at, event)
        if len(self._agents) <= SUBAGENTS_MAX:
            lane = f"{event.kind}: {event.description}".rstrip(": ")
            self._agents[event.child] = AgentLog(
                label, event.child, lane, agent.label or "main", self._rows_max
            )
        else:
            self._missing.add(event.child)

    def _budget(self, prefix: PrefixSet | None) -> Budget:
        name = f"{prefix.provider}/{prefix.model}" if prefix is not None else "/"
        if name not in self._budgets:
            self._budgets[name] = self._budget_for(name)
        return self._budgets[name]

    # --- Parts of the inspection

    def _session(self, now_us: int, *, is_open: bool) -> SessionData:
        prefix = self._state.prefix
        return SessionData(
            self._state.session,
            shortened(self._logs.title() or self._words, TITLE_CHARS_MAX),
            f"{prefix.provider}/{prefix.model}" if prefix is not None else "",
            self._cwd,
            self._begun_us,
            now_us,
            self._branch,
            is_open,
            self._count,
        )

    def _transcript(self) -> list[TranscriptRow]:
        rows = [row for agent in self._agents.values() for row in agent.rows.rows]
        rows.sort(key=lambda row: row.at_us)
        return rows

    def _item_data(self) -> list[ItemData]:
        state, budget = self._state, self.budget
        goes = next_compacted(state, budget) if self._count else ()
        every = report(state, budget, goes).shown
        rows = [row for row in every if row.handle in state.index]
        shown: dict[str, tuple[float, bool]] = {}
        for row in rows:
            usd, _ = shown.get(row.handle, (0.0, False))
            shown[row.handle] = (usd + row.usd, row.goes)
        items = self._items.items(shown)
        places = {item.handle: at for at, item in enumerate(items)}
        for row in sorted(rows, key=lambda row: -row.tokens)[:EXPLAINED_ITEMS_MAX]:
            if row.handle in places:
                at = places[row.handle]
                items[at] = msgspec.structs.replace(items[at], lines=self._line_fates(row.handle))
        return items

    def _line_fates(self, handle: str) -> list[LineFate]:
        reasons = line_reasons(self._state, self.budget, handle)[:EXPLAINED_LINES_MAX]
        return [
            LineFate(r.line[:LINE_CHARS_MAX], r.stays, round(r.chance, 4), r.why) for r in reasons
        ]


def _money_row(row: CostRow) -> MoneyRow:
    used = row.usage
    return MoneyRow(
        row.model,
        row.purpose,
        row.requests,
        used.context_tokens,
        used.cache_read_tokens,
        used.output_tokens,
        round(row.usd, 8),
    )


def inspect_session(inspector: SessionInspector) -> Inspection:
    """Return the inspection of what was read, fit to the size of a page."""
    return fit(inspector.inspection())


def changes(before: Inspection, now: Inspection, limit: int) -> tuple[Update, Inspection]:
    """Return what `now` adds to `before`, which was shown, and `now` with its texts cut to `limit`.

    The rows of the transcript are appended in the order in which they came.
    """
    now = fit_to(now, limit)
    known = {(row.agent, row.seq, row.handle, row.kind) for row in before.transcript}
    update = Update(
        now.session,
        [row for row in now.transcript if (row.agent, row.seq, row.handle, row.kind) not in known],
        _changed(before.requests, now.requests, "n"),
        _changed(before.lanes, now.lanes, "id"),
        _changed_items(before.items, now.items),
        _changed(before.subagents, now.subagents, "id"),
        _changed(before.files, now.files, "path"),
        now.money if now.money != before.money else [],
    )
    return update, now


def _changed(before: Sequence[T], now: Sequence[T], key: str) -> list[T]:
    known = {getattr(value, key): value for value in before}
    return [value for value in now if known.get(getattr(value, key)) != value]


def _changed_items(before: Sequence[ItemData], now: Sequence[ItemData]) -> list[ItemData]:
    """Return items that look different. What they cost grows with each request and alone makes
    no difference.
    """
    known = {item.handle: (item.stages, item.shown, item.next_goes) for item in before}
    return [
        item for item in now if known.get(item.handle) != (item.stages, item.shown, item.next_goes)
    ]

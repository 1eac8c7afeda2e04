"""Fold of the log: `step(state, entry)` applies one entry. The work depends on the entry, not on
the history.

An item keeps its place. Results take the slots that their calls opened, so they are in call order
in whatever order the calls end; messages that come meanwhile follow them.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from operator import attrgetter
from typing import Protocol, assert_never

import msgspec

from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    CheckpointTaken,
    Cleared,
    CwdSet,
    Entry,
    FileChanged,
    FileSeen,
    GoalChanged,
    Grant,
    HookAnswered,
    Interrupted,
    ModeSet,
    Opened,
    PermissionAnswered,
    PermissionAsked,
    PinsSet,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
    Rewound,
    Schedule,
    SchedulesSet,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    TitleSet,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolResult,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
    counts_of,
    text_of,
    unwrapped,
)
from longrein_context.events.escape import whole_number
from longrein_context.fold_notices import (
    add_rewind_notices,
    add_to_context,
    change_form,
    fold_cleared,
    fold_file_changed,
    fold_prefix_set,
    fold_summarized,
    record_notices,
)
from longrein_context.seed_policy import record_text_turn, shown_call
from longrein_context.state.command_results import clip
from longrein_context.state.ledger import record_event, record_result
from longrein_context.state.quoting import closed_note, user_part
from longrein_context.state.repetition import StepHistory, add_result
from longrein_context.state.request_types import ItemKind
from longrein_context.state.state import (
    FRAMEWORK_PROFILE,
    UNKNOWN_FILE,
    CompactionMark,
    KnownFile,
    LoadedSkill,
    OpenCall,
    Reading,
    State,
    SubagentState,
    TaskState,
    UsageBaseline,
    copy_state,
    merge_rewound,
)
from longrein_context.state.view import append_item, count_prefix, make_item, replace_item

# --- Sessions, background tasks and subagents -----------------------------------------------------
#
# Tasks and subagents are world state, which a rewind leaves alone. A subagent's grant is reserved
# from its start to its end, so the sum of spent and reserved money never exceeds the session's own
# grant.


def _opened(state: State, seq: int, event: Opened) -> None:
    """Begin a session. From a parent's entries before it only the conversation stays."""
    state.session, state.nonce = event.session, event.nonce
    state.roots = event.roots
    state.cwd = event.cwd
    state.profile = event.profile
    state.pins = event.pins
    state.kind = event.kind
    state.label = event.label
    state.grant = event.grant
    if seq == 1:
        state.route = event.session
        return
    state.asked = state.summarising = state.summary = state.summary_of = state.failure = None
    state.calls = {}
    state.tasks = {}
    state.children = {}
    state.notices = []
    state.schedules, state.variables = (), {}
    state.spent_usd, state.usage, state.failures = 0.0, Usage(), 0
    state.turn_open = state.owes_reply = state.interrupted = False
    state.compact_wanted = None
    state.spawned = state.granted_tokens = 0
    state.step_history = StepHistory()


def _task_started(state: State, seq: int, event: TaskStarted) -> None:
    was = state.tasks.get(event.task)
    first = was.seq if was is not None else seq
    state.tasks[event.task] = TaskState(first, state.at, event)


def _task_ended(state: State, seq: int, event: TaskEnded) -> None:
    was = state.tasks.get(event.task)
    if was is not None and was.ended is None:
        state.tasks[event.task] = TaskState(was.seq, was.at, was.started, event, seq)


def _reserve(state: State, grant: Grant | None, sign: int) -> None:
    """Reserve the grant of a subagent that starts (`sign` 1), or release it (-1)."""
    if grant is not None:
        state.spent_usd += sign * grant.usd
        state.granted_tokens += sign * grant.tokens
        state.spawned += sign * grant.spawns


def _child_started(state: State, seq: int, event: SubagentStarted) -> None:
    """Record a subagent that starts or gets another task."""
    _reserve(state, event.grant, 1)
    state.children[event.child] = SubagentState(event.again or seq, state.at, event)
    state.spawned += not event.again


def _child_ended(state: State, event: SubagentEnded) -> None:
    was = state.children.get(event.child)
    if was is None or was.ended is not None:
        return
    _reserve(state, was.started.grant, -1)
    state.spent_usd += event.cost_usd
    state.usage += event.usage
    state.spawned += event.spawned
    state.children[event.child] = SubagentState(was.seq, was.at, was.started, event)


# --- Fold -----------------------------------------------------------------------------------------

READINGS_MAX = 8  # Limit of readings of one file
SKILLS_MAX = 50  # Limit of loaded skills that are remembered
SKILL_TOOL = "Skill"
SKILL_TAG = '<skill_content name="'  # Beginning of a result that holds the text of a skill
RECALLED_MAX = 100  # Limit of recalls that the clearing policy remembers

WROTE_CHARS_MAX = 300  # Characters of a text beside calls that are remembered
KEPT_EVERY = 64  # Entries from one state that `KeptStates` keeps to the next
KEPT_MAX = 16  # Limit of states that `KeptStates` keeps

EARLIER_MAX = 4  # Limit of states from before a pass, above which the whole log is folded

Kept = dict[int, State]  # Number of entries -> the state that they fold to


class StoredLog(Protocol):
    """A log with some of the states that it had, which spare folding all of it."""

    def history(self, first: int, last: int, /) -> Iterable[Entry]:
        """Return entries `first` to `last`."""

    def state_before(self, seq: int, /) -> State | None:
        """Return the nearest stored state that the log had at entry `seq` or before; the caller
        may change it.
        """


class KeptStates:
    """`StoredLog` of a log that is read with `history`; its newest states are kept in memory."""

    def __init__(self, history: Callable[[int, int], Iterable[Entry]]) -> None:
        """`history`: returns entries `first` to `last`."""
        self.history = history
        self._kept: dict[int, State] = {}

    def keep(self, state: State) -> None:
        """Keep a copy of the state after an entry, if the last one is old enough."""
        if state.seq % KEPT_EVERY == 0:
            self._kept[state.seq] = copy_state(state)
            if len(self._kept) > KEPT_MAX:
                del self._kept[next(iter(self._kept))]

    def state_before(self, seq: int, /) -> State | None:
        nearest = max((kept for kept in self._kept if kept <= seq), default=0)
        return copy_state(self._kept[nearest]) if nearest else None


class _TooEarly(Exception):
    """A pass needs states from before its first entry; the whole log must be folded."""


def fold(entries: Iterable[Entry]) -> State:
    """Return the state after `entries`, the whole log of a session."""
    return _Pass([*entries], State()).run()


def advance(state: State, entry: Entry, log: StoredLog) -> State:
    """Apply any entry, also `Rewound` and `Restored`, which need the entries before it again."""
    match entry.event:
        case Rewound(to=to):
            return rejoin(state_at(log, to), state, entry)
        case Restored(undone=undone):
            return _fold_from(
                log, undone - 1, lambda first: [*log.history(first, entry.seq - 1), entry]
            )
        case _:
            return step(state, entry)


def state_at(log: StoredLog, seq: int, without: int = 0) -> State:
    """Return the state at entry `seq`, folded from the nearest stored one.

    `without`: entry that is left out, 0 for none.
    """

    def entries(first: int) -> list[Entry]:
        return [entry for entry in log.history(first, seq) if entry.seq != without]

    return _fold_from(log, without - 1 if without else seq, entries)


def _fold_from(log: StoredLog, before: int, entries: Callable[[int], list[Entry]]) -> State:
    """Fold `entries(first)` from the nearest state that is stored at entry `before` or earlier."""
    start = log.state_before(before)
    if start is not None:
        try:
            return _Pass(entries(start.seq + 1), start, partial(state_at, log)).run()
        except _TooEarly:
            pass
    return fold(entries(1))


class _Pass:
    """Pass over `log` that keeps copies of the states which its rewinds return to.

    `start`: the state before the first entry. `earlier` returns states before that one, which
    count negative numbers of entries.
    """

    def __init__(
        self, log: Sequence[Entry], start: State, earlier: Callable[[int], State] | None = None
    ) -> None:
        self._log = log
        self._start, self._base = start, start.seq
        self._uses = self._last_uses()
        self._ends: dict[int, list[int]] = {}  # Entry -> states that no later one needs
        for count, at in self._uses.items():
            self._ends.setdefault(at, []).append(count)
        before = [count for count in self._uses if count < 0]
        if before and (earlier is None or len(before) > EARLIER_MAX):
            raise _TooEarly
        self._earlier = {count: earlier(self._base + count) for count in before} if earlier else {}

    def _last_uses(self) -> dict[int, int]:
        """Return the states to keep, each with the entry that needs it last.

        An undone compaction needs the state before it, and its pass those of all rewinds.
        """
        uses: dict[int, int] = {}
        last_undo = 0
        for at, entry in enumerate(self._log):
            match entry.event:
                case Rewound(to=to):
                    uses[self._count(to, at)] = at
                case Restored(undone=undone):
                    last_undo = at
                    if (count := self._count(undone - 1, at)) >= 0:
                        uses[count] = at
                case _:
                    pass
        return {count: max(at, last_undo) for count, at in uses.items()}

    def _count(self, seq: int, most: int) -> int:
        """Return how many of the first `most` entries are not after entry `seq`; for an entry
        before the pass, by how many it is before it, negative.
        """
        if seq < self._base:
            return seq - self._base
        return bisect_right(self._log, seq, hi=most, key=attrgetter("seq"))

    def run(self) -> State:
        """Apply all entries."""
        return self._run(self._start, 0, len(self._log), self._earlier)

    def _run(
        self, state: State, first: int, last: int, kept: Kept, skipped: Set[int] = frozenset()
    ) -> State:
        """Apply the entries from `first` to before `last`. `kept`: states before these.

        The compactions `skipped` never were, so what undid them only leaves its marks.
        """
        for at in range(first, last):
            entry = self._log[at]
            if at in self._uses:
                kept[at] = copy_state(state)
            match entry.event:
                case _ if entry.seq in skipped:
                    pass
                case Rewound(to=to):
                    state = rejoin(copy_state(kept[self._count(to, at)]), state, entry)
                case Restored(undone=undone) if skipped:
                    then = copy_state(state)
                    state = rejoin_restored(then, state, entry, self._event(undone, at))
                case Restored(undone=undone):
                    state = self._restore(state, at, undone, kept)
                case _:
                    state = step(state, entry)
            for done in self._ends.get(at, ()):
                kept.pop(done, None)
        return state

    def _restore(self, state: State, at: int, undone: int, kept: Kept) -> State:
        """Apply the `Restored` at position `at`: the conversation as if no compaction that was
        undone had been.
        """
        entry = self._log[at]
        gone = dict(state.undone)
        gone.pop(undone, None)
        gone[undone] = entry.seq
        first = at
        for seq, by in reversed(gone.items()):
            if self._count(by, at + 1) <= first:
                break
            first = self._count(seq - 1, first)
            if first < 0:
                raise _TooEarly
        # the run replaces the states behind `first` in its copy of `kept` before it needs them
        then = self._run(copy_state(kept[first]), first, at, dict(kept), gone.keys())
        joined = rejoin_restored(then, state, entry, self._event(undone, at))
        joined.undone = gone
        return joined

    def _event(self, seq: int, most: int) -> AnyEvent | None:
        at = self._count(seq, most) - 1
        return self._log[at].event if at >= 0 and self._log[at].seq == seq else None


def rejoin_restored(then: State, now: State, entry: Entry, gone: AnyEvent | None) -> State:
    """Join `then`, in which `gone` never was, with the world of `now`."""
    turn_open, owes_reply = now.turn_open, now.owes_reply
    joined = rejoin(then, now, entry)
    if isinstance(gone, Cleared):
        joined.held |= {form.handle for form in gone.forms}
    joined.settled = (CompactionMark(joined.gauge.raw, joined.asks),)
    joined.turn_open, joined.owes_reply = turn_open, owes_reply
    return joined


def rejoin(then: State, now: State, entry: Entry) -> State:
    """Apply an entry that goes back: the conversation of `then` with the world of `now`. Changes
    both.
    """
    known = then.files
    count_prefix(then, -1)  # the prefix is the present one, even if it was set later
    joined = merge_rewound(then, now)
    count_prefix(joined, 1)
    joined.seq, joined.at = entry.seq, entry.at
    if isinstance(entry.event, Rewound):
        add_rewind_notices(joined, known, entry.event.files, entry.seq)
    joined.breaks += 1
    joined.sent_items = 0
    joined.rewritten_seq = entry.seq
    joined.summary = joined.summary_of = None
    return joined


def step(state: State, entry: Entry) -> State:  # noqa: C901, PLR0912, PLR0915 - a line or two for each event
    """Apply one entry; changes and returns the same state."""
    record_notices(state, entry)
    state.seq = seq = entry.seq
    record_event(state.ledger, seq, entry.event)
    match entry.event:
        case Opened() as event:
            _opened(state, seq, event)
        case PrefixSet() as event:
            fold_prefix_set(state, seq, event)
        case UserSpoke() as event:
            _user_spoke(state, seq, event)
        case Reminded() as event:
            _reminded(state, seq, event)
        case Asked() as event:
            _asked(state, entry.at, seq, event)
        case Replied() as event:
            _replied(state, seq, event)
        case AskFailed() as event:
            _ask_failed(state, event)
        case PermissionAsked() as event:
            if event.call in state.calls:
                state.calls[event.call].asked, state.calls[event.call].answer = event, None
        case PermissionAnswered() as event:
            _answered(state, event)
        case ToolStarted() as event:
            if event.call in state.calls:
                state.calls[event.call].started = True
                state.calls[event.call].started_at = entry.at
        case ToolEnded() as event:
            _tool_ended(state, seq, event)
        case FileSeen() as event:
            _file_seen(state, seq, event)
        case FileChanged() as event:
            fold_file_changed(state, seq, event)
        case TodoSet(todos):
            state.todos = todos
        case ModeSet(mode):
            state.mode = mode
        case CwdSet(cwd):
            state.cwd = cwd
        case TitleSet(title):
            state.title = title
        case PinsSet(pins):
            state.pins = pins
        case SchedulesSet(schedules):
            _schedules_set(state, schedules)
        case Cleared() as event:
            fold_cleared(state, seq, event)
        case Summarized() as event:
            fold_summarized(state, seq, event)
        case Interrupted(text=text):
            state.interrupted = True
            state.compact_wanted = None
            append_item(state, make_item(seq, 0, "reminder", Text(text), handle=f"r{seq}"))
        case TurnEnded():
            state.unanswered = state.owes_reply
            state.turn_open = state.owes_reply = state.interrupted = False
            state.hook_stop = ""
        case Recalled(handle=handle):
            if handle:
                state.recalled = [*state.recalled[1 - RECALLED_MAX :], (handle, state.asks)]
        case TaskStarted() as event:
            _task_started(state, seq, event)
        case TaskEnded() as event:
            _task_ended(state, seq, event)
        case SubagentStarted() as event:
            _child_started(state, seq, event)
        case SubagentEnded() as event:
            _child_ended(state, event)
        case HookAnswered() as event:
            _hook_answered(state, event)
        case GoalChanged() | CheckpointTaken():
            pass
        case Rewound() | Restored():
            raise AssertionError("Rewound and Restored are folded by advance()")
        case never:
            assert_never(never)
    if state.profile == FRAMEWORK_PROFILE:
        record_text_turn(state, entry.event)
    return state


# --- Messages and reminders -----------------------------------------------------------------------


def _user_spoke(state: State, seq: int, event: UserSpoke) -> None:
    for n, part in enumerate(event.parts):
        handle = f"r{seq}" if len(event.parts) == 1 else f"r{seq}.{n + 1}"
        said = user_part(part, state.nonce)
        append_item(state, make_item(seq, n, "user", said, handle=handle))
    _turn(state, task=event.origin == "prompt")
    state.step_history = StepHistory()
    if event.skill and len(event.parts) > 1:
        _skill_loaded(state, seq, event.skill, text_of(event.parts[1:2]))


def _skill_loaded(state: State, seq: int, name: str, text: str) -> None:
    """Keep the text of a skill, so that a compaction can put it back."""
    state.skills.pop(name, None)
    state.skills[name] = LoadedSkill(seq, text, state.began_at)
    while len(state.skills) > SKILLS_MAX:
        del state.skills[next(iter(state.skills))]


def _turn(state: State, *, task: bool) -> None:
    """Begin a turn, or continue it with something new."""
    if not state.turn_open:
        state.steps = state.continuations = state.barren_steps = state.stop_blocks = 0
        state.hook_stop = ""
        state.denied_last = state.call_hint_given = False
        state.step_history = StepHistory()
    if task if state.label else not state.turn_open:  # a subagent that is woken continues its task
        state.began_at = state.at
        state.began = UsageBaseline(state.spent_usd, state.usage, state.asks, state.spawned)
    state.failures, state.failure, state.empty_hint_given = 0, None, False
    state.turn_open = state.owes_reply = True
    state.interrupted = state.unanswered = False


def _reminded(state: State, seq: int, event: Reminded) -> None:
    if event.kind == "compact":
        state.compact_wanted, state.compact_by = event.state, event.source
    if event.kind == "compact_refused":
        state.compact_wanted = None
    if event.kind == "wake":
        _turn(state, task=False)
    if event.kind in ("stuck", "failed_again"):
        state.step_history = msgspec.structs.replace(
            state.step_history, told=state.step_history.told + 1, told_seq=seq
        )
    if event.kind == "cron_fired" and not event.text:
        state.fired[event.source.partition(" ")[0]] = state.at
    if event.kind == "nested_memory":
        state.told = (*state.told, event.state)
    if event.kind == "continue":
        state.continuations += 1
        state.owes_reply = True
    if event.kind == "empty_answer":
        state.failure, state.empty_hint_given = None, True
    if event.kind == "call_in_text":
        state.call_hint_given = state.owes_reply = True
    if event.kind == "project":
        add_to_context(state, make_item(seq, 0, "context", Text(event.text), handle=f"r{seq}"))
    elif event.text:
        note = Text(closed_note(event.text, state.nonce))
        append_item(state, make_item(seq, 0, "reminder", note, handle=f"r{seq}"))


def _schedules_set(state: State, schedules: tuple[Schedule, ...]) -> None:
    names = {one.id for one in schedules}
    state.schedules = schedules
    state.fired = {name: at for name, at in state.fired.items() if name in names}
    numbers = (whole_number(name[1:]) for name in names)
    state.last_schedule = max(state.last_schedule, *numbers, 0)


# --- Requests and replies -------------------------------------------------------------------------


def _asked(state: State, at: int, seq: int, event: Asked) -> None:
    for form in event.births:
        change_form(state, seq, form)
    state.spent_usd += event.reserved_usd
    if event.purpose == "summary":
        state.summarising, state.summarising_seq = event, seq
        if event.reason != "ahead":  # a background summary repeats the last request
            state.sent_reach = event.reach
        return
    state.asked = event
    state.asked_seq = seq
    state.asked_at = at
    state.asked_raw = state.gauge.raw
    state.asks += 1
    state.asked_seqs.append(seq)
    state.steps += 1
    state.sent_items = len(state.items)
    state.sent_reach = event.reach


def _settle(state: State, asked: int, cost_usd: float) -> Asked | None:
    """Release the reserved money of request `asked`; return the request if it was for a summary."""
    summary = state.summarising if asked == state.summarising_seq else None
    request = summary or state.asked
    if request is not None:
        state.spent_usd += max(0.0, cost_usd) - request.reserved_usd
    if summary is not None:
        state.summarising = None
    else:
        state.asked = None
    return summary


def _replied(state: State, seq: int, event: Replied) -> None:
    summary = _settle(state, event.asked, event.cost_usd)
    usage = counts_of(event.usage)
    state.usage += usage
    if summary is not None:
        if event.asked > state.rewritten_seq:
            state.summary, state.summary_of = event, summary
        return
    state.failure, state.failures, state.empty_hint_given = None, 0, False
    state.last_usage, state.stop = usage, event.stop
    if (
        "input" not in event.estimated and not usage.web_searches
    ):  # each search reads the view again
        state.gauge.calibrate(usage.context_tokens, state.asked_raw)
    if state.asked_raw >= state.refused_raw:  # a refused size was accepted after all
        state.refused_raw = 0
    state.seen_reach = state.sent_reach
    state.owes_reply = state.stop_asked = False
    _add_parts(state, seq, event)
    _remember_words(state, seq, event)
    if event.stop != "interrupted":
        _open_slots(state, event)


def _add_parts(state: State, seq: int, event: Replied) -> None:
    """Append the parts of a reply; of an interrupted one only the text."""
    blocks = {block.part: block for block in event.blocks}
    owner = event.model or (state.prefix.model if state.prefix else "")
    kinds: dict[type, ItemKind] = {Text: "text", Thinking: "thinking", ToolCall: "call"}
    for n, part in enumerate(event.parts):
        kind, handle = kinds.get(type(part)), f"r{seq}.{n + 1}"
        shown = shown_call(state, part) if isinstance(part, ToolCall) else part
        if kind is not None and (kind == "text" or event.stop != "interrupted"):
            append_item(
                state,
                make_item(seq, n, kind, shown, block=blocks.get(n), owner=owner, handle=handle),
            )


def _remember_words(state: State, seq: int, event: Replied) -> None:
    """Remember an answer, or what was written beside calls: a digest has no other words."""
    text = text_of(tuple(part for part in event.parts if isinstance(part, Text))).strip()
    if not text:
        return
    if any(isinstance(part, ToolCall) for part in event.parts):
        state.wrote = (*state.wrote[-1:], (seq, clip(text, WROTE_CHARS_MAX)))
    elif event.stop != "interrupted":
        state.answers, state.wrote = (*state.answers[-1:], (seq, text)), ()


def _open_slots(state: State, event: Replied) -> None:
    calls = [part for part in event.parts if isinstance(part, ToolCall)]
    state.barren_steps += bool(calls)
    if calls:
        state.call_hint_given = False
    if calls and event.stop != "calls_in_text" and state.prefix is not None:
        state.native_callers |= {state.prefix.model}
    blocks = {id(event.parts[block.part]): block for block in event.blocks}
    for n, call in enumerate(calls):
        cut = event.stop == "length" and event.parts[-1] is call
        state.calls[call.id] = OpenCall(unwrapped(call), len(state.items), cut)
        result = ToolResult(call.id, shown_call(state, call).name, "not_run", ())
        append_item(state, make_item(0, n, "result", result, block=blocks.get(id(call))))


_INPUT_LIMIT = re.compile(
    r"input (?:tokens?|length)\b(?:(?!max_).){0,40}?(?:exceed|limit|maximum)", re.IGNORECASE
)
"""Wording of an error that limits the input alone: the room for the answer is not part of its
figure.
"""


def _ask_failed(state: State, event: AskFailed) -> None:
    summary = _settle(state, event.asked, event.assumed_usd)
    if summary is not None:
        state.summary_attempts += 1
        return
    if event.limit_tokens and _INPUT_LIMIT.search(event.message):
        state.input_learned = event.limit_tokens
    elif event.limit_tokens:
        state.window_learned, state.refused_raw = event.limit_tokens, 0
    elif event.kind == "overflow":
        state.refused_raw = min(state.refused_raw or state.asked_raw, state.asked_raw)
    state.failure = event
    if event.kind not in ("lost", "cancelled"):
        state.failures += 1


# --- Tool calls -----------------------------------------------------------------------------------


def _answered(state: State, event: PermissionAnswered) -> None:
    if event.call in state.calls:
        state.calls[event.call].answer = event


def _hook_answered(state: State, event: HookAnswered) -> None:
    """Record what a hook decided about the turn. Decisions on calls hold for one run only and
    are not folded.
    """
    state.spent_usd += max(0.0, event.cost_usd)
    state.usage += counts_of(event.usage)
    if event.variables:
        state.variables = state.variables | {
            name: (value, event.hook) for name, value in event.variables.items()
        }
    if event.event in ("Stop", "SubagentStop"):
        state.stop_asked = True
        if event.decision == "block" or (event.context and event.decision != "stop"):
            state.stop_blocks += not state.owes_reply  # several hooks of one end count once
            state.owes_reply = True
    elif event.event == "PostToolBatch":
        state.batch_asked = True
    elif event.event == "PreCompact" and event.decision == "block":
        if state.compact_wanted is None:  # a request of the user is asked about each time
            state.compact_refused_asks = state.asks
        state.compact_wanted = None
    if event.decision == "stop" and state.turn_open and event.event not in ("Stop", "SubagentStop"):
        state.hook_stop = event.text or "a hook stopped the turn"


def _tool_ended(state: State, seq: int, event: ToolEnded) -> None:
    open_call = state.calls.pop(event.call, None)
    if open_call is None:  # its call is in a damaged entry, or it has ended before
        state.files_just_seen = ()
        return
    slot = state.items[open_call.slot]  # some wires compare the name that the model called
    name = slot.part.name if isinstance(slot.part, ToolResult) else event.name
    result = ToolResult(event.call, name, event.status, event.parts)
    item = make_item(seq, 0, "result", result, handle=f"r{seq}", block=slot.block)
    replace_item(state, open_call.slot, item)
    state.index[item.handle] = open_call.slot
    state.owes_reply = True
    state.batch_asked = bool(state.calls)
    if event.status == "denied":
        state.denied_last = True
    elif event.status == "ok":
        state.denied_last = False
        state.barren_steps = 0
    if (
        event.name == SKILL_TOOL
        and event.status == "ok"
        and (text := text_of(event.parts)).startswith(SKILL_TAG)
    ):
        _skill_loaded(state, seq, text[len(SKILL_TAG) :].partition('"')[0], text)
    traits = state.traits_of(event.name)
    again = any(seen.again for seen in state.files_just_seen)  # a pointer to an earlier reading
    reads = (traits.kind or event.name.lower()) == "read" and not again
    record_result(state.ledger, seq, open_call.call, event, quiet=traits.quiet, reads=reads)
    state.step_history = add_result(
        state.step_history,
        open_call.call,
        event,
        state.files_just_seen,
        polls=traits.polls,
        over=not state.calls,
    )
    for seen in state.files_just_seen:
        _read(state, item.handle, seen)
    state.files_just_seen = ()


def _read(state: State, handle: str, seen: FileSeen) -> None:
    """Remember a reading, or that a later one was answered with a pointer to it."""
    earlier = state.readings.get(seen.path, ())
    if seen.again:
        told = tuple(
            msgspec.structs.replace(r, told=True) if r.handle == seen.again else r for r in earlier
        )
        state.readings[seen.path] = told
    elif seen.first:
        kept = [r for r in earlier if r.hash == seen.hash][1 - READINGS_MAX :]
        state.readings[seen.path] = (*kept, Reading(handle, seen.hash, seen.first, seen.last))


def _file_seen(state: State, seq: int, event: FileSeen) -> None:
    state.files_just_seen = (*state.files_just_seen, event)
    if event.again:
        return
    known = state.files.get(event.path)
    changed = known is not None and known.changed and known.hash == event.hash
    whole = event.whole or (known is not None and known.whole and known.hash == event.hash)
    told = (known or UNKNOWN_FILE).told_by(state.asks)
    state.files[event.path] = KnownFile(
        event.hash, whole, event.blob, changed, seq, told=told, asks=state.asks
    )

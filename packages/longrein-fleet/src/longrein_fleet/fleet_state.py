"""Events of a fleet, and its state as a fold of them. No clock, disk or processes.

The fold changes the state in place: an event costs the same with ten tasks and with a million.

A task is `waiting`, `running` or `ended`. A task that is `running` in the log of a fleet that no
process runs was cut: it goes on in its session.
"""

from heapq import heappop, heappush
from typing import Literal, assert_never

import msgspec

from longrein.agent.shared_rate_limit import Rates
from longrein_fleet.budget import FleetBudget
from longrein_fleet.fleet_tasks import Task

Cause = Literal[
    "done",  # and the check passed
    "check failed",
    "setup failed",
    "agent failed",
    "limit",  # turns, usd or seconds of the task
    "budget",  # the money limit of the fleet leaves no room for it
    "outage",  # the provider failed: goes on in its session, not counted
    "node",  # the machine failed: goes on in its session, not counted
    "quota",  # no money at the provider: the fleet pauses, the task goes on later
    "key",  # the provider refuses the key: the same
]
FAILURES: tuple[Cause, ...] = ("check failed", "setup failed", "agent failed")
"""Causes after which another attempt may help."""
OUTAGES: tuple[Cause, ...] = ("outage", "node")
"""Causes that may be over when the task goes on after a pause."""
UNCOUNTED: tuple[Cause, ...] = (*OUTAGES, "quota", "key")
"""Causes that end no attempt: the task goes on in its session."""
OUTAGES_MAX = 5
"""Outages in a row of one task after which the fleet pauses."""


class Engine(msgspec.Struct, frozen=True):
    """Choice of the executor of the attempts."""

    name: Literal["local", "ray"] = "local"
    address: str = ""
    """Address of a Ray cluster; '' for one that is started on this machine."""
    cpus: int = 1
    """CPUs that Ray reserves for an attempt."""
    gpus: int = 0
    """GPUs that Ray reserves for it."""
    labels: dict[str, str] = {}
    """Labels of the nodes that may run it, as Ray's `label_selector`."""


LOCAL = Engine()
UNLIMITED = Rates()


class Event(msgspec.Struct, frozen=True, tag_field="type", tag=True, omit_defaults=True):
    """Base of the events."""


class FleetOpened(Event, frozen=True):
    """The first event: everything that was asked for."""

    name: str
    at: int
    """Microseconds UTC."""
    tasks: tuple[Task, ...]
    concurrency: int = 2
    attempts: int = 1
    cap_usd: float | None = None
    store: str = ""
    """Name of the store of the sessions, without a password; '' for files."""
    engine: Engine = LOCAL
    rates: Rates = UNLIMITED


class TaskStarted(Event, frozen=True):
    """A task starts or goes on in its session."""

    id: str
    number: int
    """Number of the attempt, from 1; the name of its folder."""
    session: str
    reserved_usd: float = 0.0


class AttemptEnded(Event, frozen=True, tag="TaskEnded"):
    """A process of an attempt has ended."""

    id: str
    cause: Cause
    message: str = ""
    session: str = ""
    cost_usd: float = 0.0
    """Cost of the session so far, earlier processes included."""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0
    """Time of the session, from its prompt to its end."""
    cached_tokens: int = 0
    """Part of the input that was read from the provider's cache."""
    check_code: int | None = None
    reward: float | None = None
    """Reward that the tests of a Harbor task have written."""
    patch: str = ""
    """File below the fleet's folder; '' where nothing was changed."""
    is_incomplete: bool = False
    """True if the patch lacks changes; `message` says why."""


class FleetPaused(Event, frozen=True):
    """The fleet starts nothing new until `FleetResumed`."""

    message: str


class FleetResumed(Event, frozen=True):
    """A process took the fleet up again. `cap_usd`, `engine`: new ones."""

    cap_usd: float | None = None
    engine: Engine | None = None


class TaskRetried(Event, frozen=True):
    """A task that ended is to be run anew."""

    id: str


AnyEvent = FleetOpened | TaskStarted | AttemptEnded | FleetPaused | FleetResumed | TaskRetried


class TaskState(msgspec.Struct, frozen=True):
    """A task and what happened to it."""

    task: Task
    status: Literal["waiting", "running", "ended"] = "waiting"
    number: int = 0
    """Attempts that were started."""
    failures: int = 0
    outages: int = 0
    """Outages in a row."""
    session: str = ""
    """Session in which it goes on; '' if the next attempt is a new one."""
    session_usd: float = 0.0
    """Known cost of that session."""
    cost_usd: float = 0.0
    """Cost of all attempts."""
    end: AttemptEnded | None = None
    """The last end."""

    @property
    def may_spend_usd(self) -> float:
        """Money that the attempt may still spend."""
        return max(0.0, (self.task.limits.usd or 0.0) - self.session_usd)


class TaskResult(msgspec.Struct, frozen=True):
    """Result of a task, as `longrein fleet results` prints it."""

    id: str
    outcome: Literal["done", "failed", "running", "waiting"]
    cause: str
    message: str
    cost_usd: float
    input_tokens: int
    output_tokens: int
    patch: str
    check_code: int | None
    session: str
    attempts: int
    reward: float | None
    seconds: float
    cached_tokens: int


class FleetState:
    """State of a fleet. `fold` changes it."""

    def __init__(self, opened: FleetOpened) -> None:
        """Start with the first event."""
        self.opened = opened
        self.engine = opened.engine
        self.tasks = {task.id: TaskState(task) for task in opened.tasks}
        self.budget = FleetBudget(opened.cap_usd)
        self.paused = ""
        """Reason why nothing new starts."""
        self._places = {name: place for place, name in enumerate(self.tasks)}
        self._running = dict[str, None]()  # a set that keeps the order
        self._queue = [(place, name) for name, place in self._places.items()]
        """Heap of the waiting tasks; those that have started since may still be in it."""

    @property
    def all_done(self) -> bool:
        """True if every task is done."""
        return all(one.end and one.end.cause == "done" for one in self.tasks.values())

    @property
    def running(self) -> list[TaskState]:
        """Tasks that run or were cut, in the order of their starts."""
        return [self.tasks[name] for name in self._running]

    @property
    def running_count(self) -> int:
        """Number of tasks that run or were cut."""
        return len(self._running)

    @property
    def first_waiting(self) -> TaskState | None:
        """The first waiting task of the file."""
        while self._queue:
            task = self.tasks[self._queue[0][1]]
            if task.status == "waiting":
                return task
            heappop(self._queue)
        return None

    def put(self, task: TaskState) -> None:
        """Replace a task."""
        name = task.task.id
        self.tasks[name] = task
        if task.status == "running":
            self._running[name] = None
        else:
            self._running.pop(name, None)
        if task.status == "waiting":
            heappush(self._queue, (self._places[name], name))


def fold(state: FleetState, event: AnyEvent) -> None:
    """Change `state` by an event. Raises `KeyError` for a task that the fleet does not have."""
    match event:
        case FleetOpened():
            raise KeyError(event.name)
        case TaskStarted():
            task = state.tasks[event.id]
            is_new = event.session != task.session
            task = msgspec.structs.replace(
                task,
                status="running",
                number=event.number,
                session=event.session,
                session_usd=0.0 if is_new else task.session_usd,
            )
            state.budget.reserve(event.id, event.reserved_usd)
            state.put(task)
        case AttemptEnded():
            _ended(state, event)
        case TaskRetried():
            state.put(
                msgspec.structs.replace(
                    state.tasks[event.id],
                    status="waiting",
                    failures=0,
                    outages=0,
                    session="",
                    end=None,
                )
            )
        case FleetPaused(message=message):
            state.paused = message
        case FleetResumed(cap_usd=cap_usd, engine=engine):
            state.paused = ""
            state.engine = engine or state.engine
            if cap_usd is not None:
                state.budget.cap_usd = cap_usd
            for task in list(state.tasks.values()):
                if task.outages:
                    state.put(msgspec.structs.replace(task, outages=0))
        case _:
            assert_never(event)


def _ended(state: FleetState, event: AttemptEnded) -> None:
    before = state.tasks[event.id]
    spent_usd = max(0.0, event.cost_usd - before.session_usd)
    failures = before.failures + (event.cause in FAILURES)
    goes_on = event.cause in UNCOUNTED
    again = event.cause in FAILURES and failures < state.opened.attempts
    task = msgspec.structs.replace(
        before,
        status="waiting" if goes_on or again else "ended",
        failures=failures,
        outages=before.outages + 1 if event.cause in OUTAGES else 0,
        session=before.session if goes_on else "",
        session_usd=event.cost_usd if goes_on else 0.0,
        cost_usd=before.cost_usd + spent_usd,
        end=event,
    )
    state.budget.settle(event.id, spent_usd)
    state.put(task)


class FleetChoice(msgspec.Struct, frozen=True):
    """The next step: start `task`, or end it as `budget`."""

    task: TaskState
    fits: bool


def next_choice(state: FleetState) -> FleetChoice | None:
    """Return what to do with the first waiting task; None if it has to wait, or none does.

    Those behind a task that waits for money wait too: else small tasks could keep it from ever
    starting.
    """
    if state.paused or state.running_count >= state.opened.concurrency:
        return None
    task = state.first_waiting
    if task is None:
        return None
    answer = state.budget.ask(task.may_spend_usd)
    return None if answer == "wait" else FleetChoice(task, answer == "fits")


def result_of(state: TaskState, patch: str) -> TaskResult:
    """Return the result of a task; `patch` is the text of its patch."""
    end = state.end or AttemptEnded(state.task.id, "done")
    outcome: Literal["done", "failed", "running", "waiting"] = "failed"
    if state.status != "ended":
        outcome = state.status
    elif end.cause == "done":
        outcome = "done"
    return TaskResult(
        state.task.id,
        outcome,
        end.cause if state.end else "",
        end.message,
        state.cost_usd,
        end.input_tokens,
        end.output_tokens,
        patch,
        end.check_code,
        state.session or end.session,
        state.number,
        end.reward,
        end.seconds,
        end.cached_tokens,
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(AnyEvent)


def encode_event(event: AnyEvent) -> bytes:
    """Return the line of an event."""
    return _encoder.encode(event) + b"\n"


def decode_events(data: bytes) -> tuple[list[AnyEvent], int]:
    """Return the events of a log, and the bytes that they take; a torn last line is left out.

    Raises `ValueError` with the number of a line that cannot be read.
    """
    size = data.rfind(b"\n") + 1
    events = list[AnyEvent]()
    for number, line in enumerate(data[:size].splitlines(), 1):
        try:
            events.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"line {number}: {error}") from None
    return events, size


def state_of(events: list[AnyEvent]) -> FleetState | None:
    """Return the state after `events`; None before the first. Raises `ValueError`."""
    if not events:
        return None
    if not isinstance(events[0], FleetOpened):
        raise ValueError("line 1: no FleetOpened")
    state = FleetState(events[0])
    for number, event in enumerate(events[1:], 2):
        try:
            fold(state, event)
        except KeyError as error:
            raise ValueError(f"line {number}: there is no task {error}") from None
    return state

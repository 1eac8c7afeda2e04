"""What works beside the conversation: background tasks and subagents, as the log tells of them.

They are world: a rewind leaves them as they are. What a subagent may spend is held back from its start to its end, so
the sum of what is spent and held back never passes what the session itself was granted.
"""

from longrein.context.state import ChildNow, State, TaskNow
from longrein.context.trail import Trail
from longrein.events import ChildEnded, ChildStarted, Opened, TaskEnded, TaskStarted, Usage


def opened(state: State, seq: int, event: Opened) -> None:
    """A session begins. Of entries before it, a parent's, the conversation stays; spend, tasks and children do not."""
    state.session, state.nonce = event.session, event.nonce
    state.roots, state.cwd, state.profile = event.roots, event.cwd, event.profile
    state.pins, state.kind, state.label, state.grant = event.pins, event.kind, event.label, event.grant
    if seq == 1:
        state.route = event.session
        return
    state.asked = state.summarising = state.summary = state.summary_of = state.failure = None
    state.calls, state.tasks, state.children, state.notices = {}, {}, {}, []
    state.spent_usd, state.usage, state.failures, state.rules = 0.0, Usage(), 0, ()
    state.turn_open = state.owes_reply = state.interrupted = False
    state.compact_wanted = None
    state.spawned = state.granted_tokens = 0
    state.trail = Trail()


def task_started(state: State, seq: int, event: TaskStarted) -> None:
    """It runs, or waits for its turn."""
    was = state.tasks.get(event.task)
    first = was.seq if was is not None else seq
    state.tasks[event.task] = TaskNow(first, state.at, event)


def task_ended(state: State, seq: int, event: TaskEnded) -> None:
    """It is over; of one that this log does not know, nothing."""
    was = state.tasks.get(event.task)
    if was is not None and was.ended is None:
        state.tasks[event.task] = TaskNow(was.seq, was.at, was.started, event, seq)


def child_started(state: State, seq: int, event: ChildStarted) -> None:
    """It began, or was asked again."""
    if event.grant is not None:
        state.spent_usd += event.grant.usd
        state.granted_tokens += event.grant.tokens
        state.spawned += event.grant.spawns
    state.children[event.child] = ChildNow(event.again or seq, state.at, event)
    state.spawned += not event.again


def child_ended(state: State, event: ChildEnded) -> None:
    """It is over: what it did not use comes back."""
    was = state.children.get(event.child)
    if was is None or was.ended is not None:
        return
    if was.started.grant is not None:
        state.spent_usd -= was.started.grant.usd
        state.granted_tokens -= was.started.grant.tokens
        state.spawned -= was.started.grant.spawns
    state.spent_usd += event.cost_usd
    state.usage += event.usage
    state.spawned += event.spawned
    state.children[event.child] = ChildNow(was.seq, was.at, was.started, event)

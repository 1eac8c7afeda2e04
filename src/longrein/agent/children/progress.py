"""The watchdog of no progress: an agent that goes round in a circle, or in which nothing happens any more.

Pure: the state goes in, a verdict comes out. What it must remember is folded (`context.trail`), so it costs the same
however long the session is. The agent is told first; when that does not help its turn is ended, with the cause.
"""

import msgspec

from longrein.context import PERIODS, State
from longrein.events import Reminded, marker


class Patience(msgspec.Struct, frozen=True):
    """How much sameness is borne."""

    same_max: int = 5
    """Steps in a row with the same calls and the same results."""
    circles_max: int = 10
    """Times that a circle of two to four steps is gone round."""
    waits_factor: int = 10
    """So many times as often where the steps only look how something stands."""
    grace: int = 2
    """Repetitions after the agent was told."""
    idle_s: float = 600.0
    """Time without a new entry while nothing runs."""
    act_s: float = 3_600.0
    """Time without a new entry while a call runs or a request waits; each has a limit of its own, mostly shorter."""


class Tell(msgspec.Struct, frozen=True):
    """Append this: the agent is told."""

    reminded: Reminded


class End(msgspec.Struct, frozen=True):
    """End its turn: of a subagent, the task, with what it has so far."""

    message: str
    """The cause; one line."""


Verdict = Tell | End | None
"""None: all is well."""

DEFAULT = Patience()


def circling(state: State, patience: Patience = DEFAULT) -> Verdict:
    """Whether the last steps go round in a circle. To be asked before each request."""
    trail = state.trail
    for period in PERIODS:
        most = patience.same_max if period == 1 else patience.circles_max
        most *= patience.waits_factor if trail.patient else 1
        times = trail.times(period)
        if times < most or (trail.told and times < most + patience.grace):
            continue
        what = _circle(period, times)
        if trail.told:
            return End(f"no progress: {what}")
        return _tell(state, f"{what}: nothing moves. {_advice(state)}", what)
    return None


def idle(state: State, silent_s: float, patience: Patience = DEFAULT) -> Verdict:
    """Whether nothing has happened for too long; `silent_s` since the last entry. To be asked by a timer, of subagents.

    What waits for the user, for a subagent of its own (which is watched itself) or is not in a turn is never idle.
    """
    if not state.turn_open or _waits(state):
        return None
    acts = state.asked is not None or any(call.started for call in state.calls.values())
    told = state.trail.told_seq == state.seq
    most = patience.act_s if acts and not told else patience.idle_s
    if silent_s < most:
        return None
    what = f"nothing has happened for {silent_s / 60:.0f} minutes"
    if told:
        return End(f"no progress: {what}")
    return _tell(state, f"{what}. {_advice(state)}", what)


def _waits(state: State) -> bool:
    """Whether it is others who must act."""
    return state.asking or any(child.ended is None for child in state.children.values())


def _circle(period: int, times: int) -> str:
    if period == 1:
        return f"the last {times} steps were the same calls with the same results"
    return f"the same {period} steps came round {times} times, with the same results"


def _advice(state: State) -> str:
    if state.trail.patient and any(task.ended is None for task in state.tasks.values()):
        return "You are told when a task ends: end your turn, or do something else meanwhile"
    return "Do something else, or say plainly what is in the way; if it goes on like this your turn is ended"


def _tell(state: State, text: str, what: str) -> Tell:
    return Tell(Reminded("stuck", marker(state.nonce, "stuck", text), "watchdog", what))

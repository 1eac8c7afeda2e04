"""What happens next, as a pure function of the log's fold, the verdicts on open calls, and the outlook.

`next_move` is asked only when nothing is running. So a call that has started and has no result was cut by a crash, and
so was a request without an answer: resuming is this same walk.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from longrein.agent.ports import Limits, Outlook
from longrein.context import (
    OUTPUT_TOKENS_MIN,
    PERIODS,
    Clear,
    Digest,
    Full,
    Nothing,
    OpenCall,
    State,
    Summarise,
    Swap,
    decide,
    decide_seed,
    decide_without_money,
    due_reminders,
    named_window,
    output_limit,
    reserve_usd,
    seed_reminders,
    window_of,
)
from longrein.events import (
    RETRYABLE,
    AnyEvent,
    AskFailed,
    PermissionAnswered,
    PermissionAsked,
    Reminded,
    Text,
    ToolCall,
    ToolEnded,
    marker,
)
from longrein.models import pause_s

# ---------------------------------------------------------------------------------------------------------------------
#
# The watchdog of no progress: an agent that goes round in a circle, or in which nothing happens any more.
#
# Pure: the state goes in, a verdict comes out. What it must remember is folded (`context.trail`), so it costs the
# same however long the session is. The agent is told first; when that does not help its turn is ended, with the
# cause.


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
    step_history = state.step_history
    for period in PERIODS:
        most = patience.same_max if period == 1 else patience.circles_max
        most *= patience.waits_factor if step_history.patient else 1
        times = step_history.times(period)
        if times < most or (step_history.told and times < most + patience.grace):
            continue
        what = _circle(period, times)
        if step_history.told:
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
    told = state.step_history.told_seq == state.seq
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
    if state.step_history.patient and any(task.ended is None for task in state.tasks.values()):
        return "You are told when a task ends: end your turn, or do something else meanwhile"
    return "Do something else, or say plainly what is in the way; if it goes on like this your turn is ended"


def _tell(state: State, text: str, what: str) -> Tell:
    return Tell(Reminded("stuck", marker(state.nonce, "stuck", text), "watchdog", what))


# --- moves -----------------------------------------------------------------------------------------------------------


OVERLOADS_MAX = 3
"""Overload answers in a row before the fallback model is tried (E24)."""


class Judgement(msgspec.Struct, frozen=True):
    """What is to become of one call."""

    kind: Literal["run", "ask", "deny", "refuse", "not_run"]
    """`refuse`: it cannot be run as it was written; `not_run`: the reply was cut inside it."""
    text: str = ""
    """What the model is told when it does not run."""
    together: bool = False
    """Whether it may run beside its neighbours."""
    moves: bool = False
    """Whether the folder that it leaves the shell in is where later commands begin."""
    placed: bool = True
    """Whether it does not matter to it where the shell is."""
    question: PermissionAsked | None = None
    """For `ask`."""


class Record(msgspec.Struct, frozen=True):
    """Append these facts."""

    events: tuple[AnyEvent, ...]


class AskModel(msgspec.Struct, frozen=True):
    """Make the next request."""

    usd_left: float | None = None
    """What a money limit leaves for it."""
    tokens_left: int | None = None
    """What a token limit leaves for it, input and output together."""


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls side by side."""

    calls: tuple[ToolCall, ...]


class AskUser(msgspec.Struct, frozen=True):
    """Wait for the user's word on this call."""

    call: str


class Pause(msgspec.Struct, frozen=True):
    """Wait before asking again."""

    delay_s: float
    failure: AskFailed


class Switch(msgspec.Struct, frozen=True):
    """Change the model."""

    model: str


class Stop(msgspec.Struct, frozen=True):
    """End the turn."""

    reason: str
    message: str = ""


class Wait(msgspec.Struct, frozen=True):
    """Nothing to do until someone says something."""


Move = Record | AskModel | RunTools | Summarise | Swap | AskUser | Pause | Switch | Stop | Wait


def next_move(state: State, judged: Mapping[str, Judgement], outlook: Outlook) -> Move:
    """The next move. `judged` holds a judgement for each open call."""
    if state.calls:
        lost = tuple(_ended(call, "interrupted", "interrupted; it may have run") for call in _cut(state))
        if lost:
            return Record(lost)
        return Wait() if outlook.paused else _of_calls(state, judged)
    unanswered = _lost(state, outlook)
    if unanswered:
        return Record(unanswered)
    if state.interrupted:
        return Stop("interrupted")
    if state.compact_wanted is not None and not (state.turn_open and outlook.paused):
        return _compact(state, outlook) or Wait()
    if not state.turn_open or outlook.paused:
        return Wait()
    if not state.owes_reply:
        return _after_reply(state, outlook.limits)
    return _before_request(state, outlook)


def _cut(state: State) -> list[OpenCall]:
    """Calls that a crash cut. One that has started subagents goes on with them."""
    joined = {child.started.call for child in state.children.values()} if state.children else ()
    return [call for call in state.calls.values() if call.started and call.call.id not in joined]


def after_loss(state: State) -> tuple[AnyEvent, ...]:
    """What a session that has lost its last entries writes down first, so that nothing is done twice unasked (law 8).

    A call that seems not to have begun may have run: its start may be among what was lost.
    """
    unsure = [call for call in state.calls.values() if not call.started]
    ended = [_ended(call, "interrupted", "interrupted; it may have run") for call in _cut(state)]
    ended += [_ended(call, "interrupted", "the record of this call was lost; it may have run") for call in unsure]
    head = (
        f"the record of this session was damaged: what came after r{state.seq} is lost. Calls, changes of files and "
        "words of the user may be missing here that did happen; look how things stand before you do anything again"
    )
    return (*ended, Reminded("lost_entries", marker(state.nonce, "lost_entries", head), "damage"))


def _lost(state: State, outlook: Outlook) -> tuple[AskFailed, ...]:
    """Requests that a crash has left without an answer."""
    waiting = [(state.asked_seq, state.asked)]
    if not outlook.summarising:
        waiting.append((state.summarising_seq, state.summarising))
    why = "longrein ended while it waited"
    return tuple(AskFailed(seq, "lost", why, assumed_usd=asked.reserved_usd) for seq, asked in waiting if asked)


# --- calls -------------------------------------------------------------------------------------------------------


def _of_calls(state: State, judged: Mapping[str, Judgement]) -> Move:
    calls = list(state.calls.values())
    if state.interrupted:
        return Record(tuple(_unrun(calls)))
    batch: list[ToolCall] = []
    moved = False
    for call in calls:
        judgement = judged[call.call.id]
        if batch and (not judgement.together or (moved and not judgement.placed)):
            break
        move = _judged(call, judgement)
        if move is not None:
            return RunTools(tuple(batch)) if batch and isinstance(move, Record) else move
        batch.append(call.call)
        moved = moved or judgement.moves
        if not judgement.together:
            break
    return RunTools(tuple(batch))


def _judged(call: OpenCall, judgement: Judgement) -> Move | None:
    """What must happen to a call before it may run; None when it may."""
    match judgement.kind:
        case "refuse":
            return Record((_ended(call, "failed", judgement.text),))
        case "not_run":
            return Record((_ended(call, "not_run", judgement.text),))
        case "deny":
            return Record((_ended(call, "denied", judgement.text),))
        case "ask" if call.answer is not None and call.answer.verdict == "deny":
            return Record((_ended(call, "denied", _denial(call.answer, judgement.text)),))
        case "ask" if call.answer is None and call.asked is not None:
            return AskUser(call.call.id)
        case "ask" if call.answer is None and judgement.question is not None:
            return Record((judgement.question,))
        case _:
            return None


def _denial(answer: PermissionAnswered, reason: str) -> str:
    """What the model is told of a no: whose it is and what was said with it."""
    by_user = answer.by == "user"
    who = "the user denied this call" if by_user else reason
    said = f"{' They said:' * by_user} {answer.message}" if answer.message else ""
    return f"Denied: {who}.{said}"


def _unrun(calls: list[OpenCall]) -> list[ToolEnded]:
    ended: list[ToolEnded] = []
    denied = False
    for call in calls:
        if call.started:
            ended.append(_ended(call, "interrupted", "interrupted by the user; it may have had effects"))
            continue
        denied = denied or call.asked is not None
        text = "Denied: the user interrupted." if denied else "not run: the user interrupted"
        ended.append(_ended(call, "denied" if denied else "not_run", text))
    return ended


def _ended(call: OpenCall, status: str, text: str) -> ToolEnded:
    return ToolEnded(call.call.id, call.call.name, status, (Text(text),))


# --- the end of a turn -------------------------------------------------------------------------------------------


def _after_reply(state: State, limits: Limits) -> Move:
    if state.stop == "length" and state.continuations < limits.continuations_max:
        text = marker(state.nonce, "note", "your answer was cut by the output limit; go on exactly where it stopped")
        return Record((Reminded("continue", text, "output limit"),))
    if state.stop == "refusal":
        return Stop("error", "the model declined to answer; say it in another way or use another model")
    return Stop("blocked" if state.denied_last else "done")


# --- before a request --------------------------------------------------------------------------------------------


def _before_request(state: State, outlook: Outlook) -> Move:
    limits = outlook.limits
    if state.failure is not None:
        move = _after_failure(state, state.failure, outlook)
        if move is not None:
            return move
    if limits.turns_max and state.steps >= limits.turns_max:
        return Stop(
            "limit", f"the limit of {limits.turns_max} turns is reached; go on with -c and a higher --max-turns"
        )
    if limits.seconds_max and outlook.task_s > limits.seconds_max:
        return Stop("limit", f"the time limit of {limits.seconds_max:g} s has passed")
    if state.barren_steps >= limits.barren_steps_max:
        return Stop("error", f"{state.barren_steps} steps in a row without one successful call; say how to go on")
    stuck = None if outlook.seed else circling(state)
    if stuck is not None:
        return Record((stuck.reminded,)) if isinstance(stuck, Tell) else Stop("limit", stuck.message)
    told = (
        seed_reminders(state)
        if outlook.seed
        else due_reminders(state, window_of(state, outlook.budget), state.at, limits.usd_max)
    )
    if told:
        return Record(told)
    if not outlook.seed and state.items and state.items[-1].mine:
        return Stop("done")  # woken for something that the model has been told of meanwhile
    return _compact(state, outlook) or _ask(state, outlook)


def _after_failure(state: State, failure: AskFailed, outlook: Outlook) -> Move | None:
    """What a failed request leads to; None when it is simply made (again)."""
    if failure.kind in ("lost", "cancelled") or (failure.kind == "overflow" and state.failures <= 3):
        return None
    if failure.kind == "overload" and state.failures >= OVERLOADS_MAX and outlook.fallback:
        return Switch(outlook.fallback)
    if failure.kind == "empty" and state.failures > outlook.limits.empty_max:
        return Stop("error", "the model gave empty answers; say it in another way or use another model")
    if failure.kind not in RETRYABLE or outlook.rested == state.failures:
        return None if failure.kind in RETRYABLE else Stop("error", failure.message)
    delay = pause_s(state.failures, failure.kind, failure.retry_after_s, outlook.jitter)
    return Stop("error", failure.message) if delay is None else Pause(delay, failure)


def _compact(state: State, outlook: Outlook) -> Move | None:
    if outlook.seed:
        decision = decide_seed(state, named_window(state, outlook.budget))
    else:
        decision = decide(state, outlook.budget, outlook.now_us, pressed=outlook.pressed)
    if isinstance(decision, Summarise) and not _pays_summary(state, outlook):
        decision = (
            Nothing("no money is left for a summary")
            if outlook.seed
            else decide_without_money(state, outlook.budget, decision)
        )
    match decision:
        case Clear(event):
            return Record((event,))
        case Digest(event):
            return Record((event,))
        case Summarise() | Swap():
            return decision
        case Full(message) if not state.turn_open:
            return Record((Reminded("compact_refused", "", state=message),))
        case Full(message):
            return Stop("error", message)
        case Nothing(why):
            return Record((Reminded("compact_refused", "", state=why),)) if state.compact_wanted is not None else None


def _pays_summary(state: State, outlook: Outlook) -> bool:
    """Whether what limits leave pays for a summary, at most."""
    limits, budget = outlook.limits, window_of(state, outlook.budget)
    if not _fits(state, _tokens_left(state, limits)):
        return False
    return (
        not limits.usd_max or state.spent_usd + reserve_usd(state, budget, budget.max_output_tokens) <= limits.usd_max
    )


def _tokens_left(state: State, limits: Limits) -> int | None:
    """What the token limit leaves; None without one."""
    return limits.tokens_max - state.spent_tokens if limits.tokens_max else None


def _fits(state: State, tokens_left: int | None) -> bool:
    """Whether the next request and the least of an answer fit into what is left."""
    return tokens_left is None or state.view_tokens + OUTPUT_TOKENS_MIN <= tokens_left


def _unpriced(state: State) -> str:
    name = f"{state.prefix.provider}/{state.prefix.model}" if state.prefix is not None else "the model"
    return (
        f"the money limit stands, but no price of {name} is known: give it as "
        f'[models."{name}"] price_input and price_output in config.toml, or use another model'
    )


def _ask(state: State, outlook: Outlook) -> Move:
    tokens_left = _tokens_left(state, outlook.limits)
    if not _fits(state, tokens_left):
        used = f"{state.spent_tokens} of {outlook.limits.tokens_max} tokens are used"
        return Stop("budget", f"the token limit stands: {used} and the next request needs {state.view_tokens}")
    limit = outlook.limits.usd_max
    if not limit:
        return AskModel(tokens_left=tokens_left)
    budget = window_of(state, outlook.budget)
    if budget.price is None:
        return Stop("budget", _unpriced(state))
    left = limit - state.spent_usd
    reserve = reserve_usd(state, budget, output_limit(state, budget, left))
    if reserve > left:
        told = f"${state.spent_usd:.4f} of ${limit:.4f} are spent and the next request may cost ${reserve:.4f}"
        return Stop("budget", f"the money limit stands: {told}; go on with -c and a higher --max-budget-usd")
    return AskModel(left, tokens_left)

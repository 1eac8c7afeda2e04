"""The next move of a session, as a pure function of its state, the judgements and the
`MoveContext`.

`next_move` is called only when nothing runs. A call that has started and has no result was
therefore cut by a crash, as was a request without an answer; resuming is the same loop.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from longrein.agent.call_conflicts import Footprint, in_conflict
from longrein.agent.dependencies import MoveContext
from longrein.models import pause_s
from longrein.settings_schema import Limits
from longrein_context import (
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
    decide_seed,
    decide_without_money,
    due_reminders,
    duration_words,
    named_window,
    output_limit,
    reserve_usd,
    seed_reminders,
    window_of,
)
from longrein_context.events import (
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
    without_sign,
)

# --- Moves ----------------------------------------------------------------------------------------


OVERLOADS_MAX = 3
"""Overload answers in a row before the fallback model is used."""


class Judgement(msgspec.Struct, frozen=True):
    """Decision about one call."""

    kind: Literal["run", "ask", "deny", "refuse", "not_run", "hooks"]
    """`refuse`: the call is malformed. `not_run`: the reply was cut inside the call. `hooks`:
    its hooks have not answered.
    """
    text: str = ""
    """Text for the model when the call does not run."""
    facts: tuple[AnyEvent, ...] = ()
    """Events about what that text shows."""
    together: bool = False
    """True if it may run in parallel with calls that it does not conflict with."""
    touches: Footprint = Footprint()
    """Paths and locks that the call uses."""
    question: PermissionAsked | None = None
    """The question, for `ask`."""
    hooks_first: bool = False
    """True if hooks are told of the question before the user is asked."""


class Record(msgspec.Struct, frozen=True):
    """Append these events."""

    events: tuple[AnyEvent, ...]


class AskModel(msgspec.Struct, frozen=True):
    """Make the next request."""

    usd_left: float | None = None
    """Money left for it under a money limit."""
    tokens_left: int | None = None
    """Tokens left for it under a token limit, input and output together."""


class RunTools(msgspec.Struct, frozen=True):
    """Run these calls in parallel."""

    calls: tuple[ToolCall, ...]


class RunHooks(msgspec.Struct, frozen=True):
    """Run the hooks of an event: of these calls, of the end of the turn (`Stop`), or of a batch
    of calls.
    """

    event: str
    calls: tuple[str, ...] = ()


class AskUser(msgspec.Struct, frozen=True):
    """Wait for the user's answer about this call."""

    call: str


class Pause(msgspec.Struct, frozen=True):
    """Wait, then ask again."""

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
    """Wait for a message."""


Move = (
    Record
    | AskModel
    | RunTools
    | RunHooks
    | Summarise
    | Swap
    | Digest
    | AskUser
    | Pause
    | Switch
    | Stop
    | Wait
)


# --- Progress check -------------------------------------------------------------------------------
#
# Detects an agent that repeats itself or in which nothing happens. A pure function of the state
# (`context.trail`), so its cost does not grow with the session. The agent is warned first; then its
# turn is ended with the cause.


SAME_MAX, CIRCLES_MAX = 5, 10
"""Repetitions of one step, and of a circle of two to four steps, with the same calls and the
same results.
"""
WAITS_FACTOR = 10
"""Factor for steps that only check on something."""
GRACE_MAX = 2
"""Repetitions after the warning."""
FAILED_AGAIN = (2, 3)
"""Repetitions of a failed step after which the model is told that nothing has changed."""
REQUEST_CHARS_MAX = 300
"""Characters of the user's request that a note repeats."""
IDLE_S, ACT_S = 600.0, 3_600.0
"""Seconds without a new entry while nothing runs, and while a call or request runs."""


def check_circling(state: State) -> Record | Stop | None:
    """Check whether the last steps repeat themselves; None for progress. Called before each
    request.
    """
    history = state.step_history
    for period in PERIODS:
        most = (SAME_MAX if period == 1 else CIRCLES_MAX) * (WAITS_FACTOR if history.patient else 1)
        times = history.times(period)
        fails = period == 1 and state.barren_steps >= times and not history.patient
        steps = (*FAILED_AGAIN * fails, most, most + GRACE_MAX)
        if times < steps[min(history.told, len(steps) - 1)]:
            continue
        if times < most:
            return Record((_failed_again(state, times),))
        what = f"the same {period} steps came round {times} times, with the same results"
        if period == 1:
            what = f"the last {times} steps were the same calls with the same results"
        return _no_progress(state, what, "nothing moves", give_up=history.told >= len(steps) - 1)
    return None


def _failed_again(state: State, times: int) -> Reminded:
    """Tell the model that the same call has failed in the same way; the second time this is told,
    what the user wants.
    """
    text = (
        f"the same call failed {times} times in a row with the same answer: nothing has changed "
        "in between. Make another call: the one that the answer names as next, or one that looks "
        "what is there"
    )
    if times > FAILED_AGAIN[0]:
        text += f". {_open_request(state)}"
    return Reminded("failed_again", marker(state.nonce, "stuck", text), "watchdog")


def _open_request(state: State) -> str:
    """Repeat the beginning of the message that the turn is about."""
    said = [word.text for word in state.words if word.origin != "steer"]
    request = " ".join(said[-1].split()) if said else ""
    if len(request) > REQUEST_CHARS_MAX:
        request = f"{request[:REQUEST_CHARS_MAX]}…"
    return f'What you were asked: "{without_sign(request, state.nonce)}"' if request else ""


def check_idle(state: State, silent_s: float) -> Record | Stop | None:
    """Check whether a subagent has been silent for too long; None when it has not. Called by a
    timer.

    `silent_s`: seconds since the last entry. A subagent is never idle outside a turn, nor while it
    waits for the user or for a subagent of its own, which is watched itself.
    """
    if (
        not state.turn_open
        or state.asking
        or any(child.ended is None for child in state.children.values())
    ):
        return None
    acts = state.asked is not None or any(call.started for call in state.calls.values())
    told = state.step_history.told_seq == state.seq
    if silent_s < (ACT_S if acts and not told else IDLE_S):
        return None
    return _no_progress(
        state, f"nothing has happened for {silent_s / 60:.0f} minutes", "", give_up=told
    )


def _no_progress(state: State, what: str, follows: str, *, give_up: bool) -> Record | Stop:
    """Warn the agent, or end its turn; of a subagent, its task with what it has so far."""
    if give_up:
        return Stop("limit", f"no progress: {what}")
    advice = (
        "Do something else, or say plainly what is in the way; if it goes on like this your "
        "turn is ended"
    )
    if state.step_history.patient and any(task.ended is None for task in state.tasks.values()):
        advice = "You are told when a task ends: end your turn, or do something else meanwhile"
    text = f"{what}{follows and ': '}{follows}. {advice}"
    return Record((Reminded("stuck", marker(state.nonce, "stuck", text), "watchdog", what),))


# --- The next move --------------------------------------------------------------------------------


def next_move(state: State, judged: Mapping[str, Judgement], move_context: MoveContext) -> Move:
    """Return the next move. `judged` holds a judgement for each open call."""
    if state.calls:
        lost = tuple(
            call_ended(call, "interrupted", _cut_text(call, move_context)) for call in _cut(state)
        )
        if lost:
            return Record(lost)
        return Wait() if move_context.paused else _of_calls(state, judged)
    unanswered = _lost(state, move_context)
    if unanswered:
        return Record(unanswered)
    if state.interrupted or state.hook_stop:
        return Stop("interrupted") if state.interrupted else Stop("blocked", state.hook_stop)
    if state.compact_wanted is not None and not (state.turn_open and move_context.paused):
        return _compact(state, move_context) or Wait()
    if not state.turn_open or move_context.paused:
        return Wait()
    if not state.owes_reply:
        return _after_reply(state, move_context)
    return _before_request(state, move_context)


def _cut(state: State) -> list[OpenCall]:
    """Return the calls that a crash cut. A call that has started subagents continues with them."""
    joined = {child.started.call for child in state.children.values()} if state.children else ()
    return [call for call in state.calls.values() if call.started and call.call.id not in joined]


def _cut_text(call: OpenCall, move_context: MoveContext) -> str:
    """Tell the model of a call that a crash cut: when and why, as far as the log knows."""
    how = _how_the_run_ended(call.started_at, move_context)
    return f"interrupted; it may have run{how}"


def _how_the_run_ended(begun_us: int, move_context: MoveContext) -> str:
    """Return when and why the run ended in which something began; '' for the present run.

    `begun_us`: microseconds UTC. A run that is killed writes no last word, so its last entry tells
    the time.
    """
    last_us = move_context.last_run_us
    if not 0 < begun_us <= last_us:
        return ""
    begun, last = (datetime.fromtimestamp(at / 1e6, UTC) for at in (begun_us, last_us))
    gap_s = (move_context.now_us - last_us) / 1e6
    gap = f", {duration_words(gap_s)} before the session went on" if gap_s >= 1 else ""
    return (
        ": longrein was killed, crashed or closed, or the machine went down, after "
        f"{last:%Y-%m-%d %H:%M:%S} UTC{gap}; this began at {begun:%H:%M:%S}"
    )


def events_after_loss(state: State) -> tuple[AnyEvent, ...]:
    """Return the first events of a session that lost its last entries, so that nothing is repeated
    unasked.

    A call that seems not to have started may have run: its start may be among the lost entries.
    """
    unsure = [call for call in state.calls.values() if not call.started]
    ended = [
        call_ended(call, "interrupted", "interrupted; it may have run") for call in _cut(state)
    ]
    ended += [
        call_ended(call, "interrupted", "the record of this call was lost; it may have run")
        for call in unsure
    ]
    head = (
        f"the record of this session was damaged: what came after r{state.seq} is lost. Calls, "
        "changes of files and "
        "words of the user may be missing here that did happen; look how things stand before you "
        "do anything again"
    )
    return (*ended, Reminded("lost_entries", marker(state.nonce, "lost_entries", head), "damage"))


def _lost(state: State, move_context: MoveContext) -> tuple[AskFailed, ...]:
    """Return failures for requests that a crash left without an answer."""
    waiting = [(state.asked_seq, state.asked, state.asked_at)]
    if not move_context.summarising:
        waiting.append((state.summarising_seq, state.summarising, 0))
    why = "longrein ended while it waited"
    return tuple(
        AskFailed(
            seq,
            "lost",
            why + _how_the_run_ended(begun_us, move_context),
            assumed_usd=asked.reserved_usd,
        )
        for seq, asked, begun_us in waiting
        if asked
    )


# --- calls ----------------------------------------------------------------------------------------


def _of_calls(state: State, judged: Mapping[str, Judgement]) -> Move:
    calls = list(state.calls.values())
    if state.interrupted:
        return Record(tuple(_unrun(calls)))
    if state.hook_stop:
        return Record(
            tuple(call_ended(call, "not_run", f"not run: {state.hook_stop}") for call in calls)
        )
    batch: list[ToolCall] = []
    running: list[Footprint] = []
    for call in calls:
        judgement = judged[call.call.id]
        if batch and (
            not judgement.together or any(in_conflict(one, judgement.touches) for one in running)
        ):
            break
        move = _judged(call, judgement)
        if move is not None:
            return _start(batch, judged) if batch and isinstance(move, Record | RunHooks) else move
        batch.append(call.call)
        running.append(judgement.touches)
        if not judgement.together:
            break
    return _start(batch, judged)


def _start(batch: list[ToolCall], judged: Mapping[str, Judgement]) -> Move:
    """Run a batch of calls; first the hooks of those that no hook has seen."""
    unseen = tuple(call.id for call in batch if judged[call.id].kind == "hooks")
    return RunHooks("PreToolUse", unseen) if unseen else RunTools(tuple(batch))


def _judged(call: OpenCall, judgement: Judgement) -> Move | None:
    """Return the move that must come before a call may run; None when it may run."""
    match judgement.kind:
        case "refuse" | "not_run" | "deny" as kind:
            status = {"refuse": "failed", "deny": "denied"}.get(kind, kind)
            return Record((*judgement.facts, call_ended(call, status, judgement.text)))
        case "ask" | "run" if call.answer is not None and call.answer.verdict == "deny":
            return Record((call_ended(call, "denied", _denial(call.answer, judgement.text)),))
        case "ask" if call.answer is None and call.asked is not None:
            return AskUser(call.call.id)
        case "ask" if judgement.hooks_first:
            return RunHooks("PermissionRequest", (call.call.id,))
        case "ask" if (
            judgement.question is not None
        ):  # also after an answer that allowed something else
            return Record((judgement.question,))
        case _:
            return None


def _denial(answer: PermissionAnswered, reason: str) -> str:
    """Build the text for the model about a denied call."""
    by_user = answer.by == "user"
    who = {"user": "the user denied this call", "hook": "a hook refused this call"}.get(
        answer.by, reason
    )
    said = f"{' They said:' * by_user} {answer.message}" if answer.message else ""
    return f"Denied: {who}.{said}"


def _unrun(calls: list[OpenCall]) -> list[ToolEnded]:
    ended: list[ToolEnded] = []
    denied = False
    for call in calls:
        if call.started:
            ended.append(call_ended(call, "interrupted", "interrupted; it may have had effects"))
            continue
        denied = denied or call.asked is not None
        text = (
            "Denied: the turn was interrupted." if denied else "not run: the turn was interrupted"
        )
        ended.append(call_ended(call, "denied" if denied else "not_run", text))
    return ended


def call_ended(call: OpenCall, status: str, text: str) -> ToolEnded:
    """Build the result of a call that did not end by itself."""
    return ToolEnded(call.call.id, call.call.name, status, (Text(text),))


# --- the end of a turn ----------------------------------------------------------------------------


STOP_BLOCKS_MAX = 8
"""Times in a row that hooks may refuse to let a turn end."""


def _after_reply(state: State, move_context: MoveContext) -> Move:
    limits = move_context.limits
    if state.stop == "length" and state.continuations < limits.continuations_max:
        text = marker(
            state.nonce,
            "note",
            "your answer was cut by the output limit; go on exactly where it stopped",
        )
        return Record((Reminded("continue", text, "output limit"),))
    if state.stop == "calls_in_text":
        return _after_call_in_text(state)
    if state.stop == "refusal":
        return Stop(
            "error", "the model declined to answer; say it in another way or use another model"
        )
    if move_context.stop_hooks and not state.stop_asked and state.stop_blocks < STOP_BLOCKS_MAX:
        return RunHooks("Stop")
    return Stop("blocked" if state.denied_last else "done")


def _after_call_in_text(state: State) -> Move:
    """Tell the model once that the call which it wrote as text was not done; then end the turn."""
    if state.call_hint_given:
        return Stop(
            "error",
            "the model wrote a call as text, which was not done; `longrein -p -c` goes on, and "
            "`longrein doctor` tells how this model calls tools",
        )
    tools = ", ".join(tool.name for tool in state.prefix.tools) if state.prefix else "none"
    text = marker(
        state.nonce,
        "call-in-text",
        f"nothing was done: a call must name one of the tools ({tools}), "
        "with arguments of its schema, and nothing may stand after it. Make it again, or answer "
        "in words if the work is done",
    )
    return Record((Reminded("call_in_text", text, "call in text"),))


# --- before a request -----------------------------------------------------------------------------


def _before_request(state: State, move_context: MoveContext) -> Move:  # noqa: PLR0911 - a return for each reason
    limits = move_context.limits
    if move_context.batch_hooks and not state.batch_asked:
        return RunHooks("PostToolBatch")
    if state.failure is not None:
        move = _after_failure(state, state.failure, move_context)
        if move is not None:
            return move
    if limits.turns_max and state.steps >= limits.turns_max:
        return Stop(
            "limit",
            f"the limit of {limits.turns_max} turns is reached; go on with -c and a higher "
            "--max-turns",
        )
    if limits.seconds_max and move_context.task_s > limits.seconds_max:
        return Stop("limit", f"the time limit of {limits.seconds_max:g} s has passed")
    if state.barren_steps >= limits.barren_steps_max:
        return Stop(
            "error",
            f"{state.barren_steps} steps in a row without one successful call; say how to go on",
        )
    stuck = None if move_context.seed else check_circling(state)
    if stuck is not None:
        return stuck
    told = (
        seed_reminders(state)
        if move_context.seed
        else due_reminders(state, window_of(state, move_context.budget), state.at, limits.usd_max)
    )
    if told:
        return Record(told)
    if not move_context.seed and state.items and state.items[-1].mine:
        return Stop("done")  # the model has already been told what woke it
    return _compact(state, move_context) or _ask(state, move_context)


def _after_failure(state: State, failure: AskFailed, move_context: MoveContext) -> Move | None:
    """Return the move after a failed request; None to make the request (again)."""
    if failure.kind in ("lost", "cancelled") or (
        failure.kind == "overflow" and state.failures <= 3
    ):
        return None
    if failure.kind == "overload" and state.failures >= OVERLOADS_MAX and move_context.fallback:
        return Switch(move_context.fallback)
    if failure.kind == "empty" and state.empty_hint_given:
        return Stop(
            "error", "the model gave empty answers; say it in another way or use another model"
        )
    if failure.kind == "empty" and state.failures > move_context.limits.empty_max:
        text = (
            "your answer was empty: neither text nor a call. Make the next call, or say in words "
            f"what you found and what is in the way. {_open_request(state)}"
        )
        return Record((Reminded("empty_answer", marker(state.nonce, "empty-answer", text)),))
    if failure.kind not in RETRYABLE or move_context.paused_failures == state.failures:
        return None if failure.kind in RETRYABLE else Stop("error", failure.message)
    delay = pause_s(
        state.failures,
        failure.kind,
        failure.retry_after_s,
        move_context.jitter,
        failure.attempts_max,
    )
    return Stop("error", failure.message) if delay is None else Pause(delay, failure)


def _compact(state: State, move_context: MoveContext) -> Move | None:
    if move_context.seed:
        decision = decide_seed(state, named_window(state, move_context.budget))
    else:
        decision = move_context.policy(
            state, move_context.budget, move_context.now_us, pressed=move_context.pressed
        )
    if isinstance(decision, Summarise) and state.compact_refused_asks == state.asks:
        decision = Nothing("a PreCompact hook refused it")
    if isinstance(decision, Summarise) and not _pays_summary(state, move_context):
        decision = (
            Nothing("no money is left for a summary")
            if move_context.seed
            else decide_without_money(state, move_context.budget, decision)
        )
    match decision:
        case Clear(event):
            return Record((event,))
        case Digest(event) if move_context.seed or not move_context.digest_hooks:
            return Record((event,))
        case Summarise() | Swap() | Digest():
            return decision
        case Full(message) if not state.turn_open:
            return Record((Reminded("compact_refused", "", state=message),))
        case Full(message):
            return Stop("error", message)
        case Nothing(why):
            return (
                Record((Reminded("compact_refused", "", state=why),))
                if state.compact_wanted is not None
                else None
            )


def _pays_summary(state: State, move_context: MoveContext) -> bool:
    """Return True if the limits leave enough for a summary at its highest cost."""
    limits, budget = move_context.limits, window_of(state, move_context.budget)
    return _fits(state, limits) and (
        not limits.usd_max
        or state.spent_usd + reserve_usd(state, budget, budget.max_output_tokens) <= limits.usd_max
    )


def _fits(state: State, limits: Limits) -> bool:
    """Return True if the next request and a minimal answer fit into the tokens left."""
    needed = state.spent_tokens + state.view_tokens + OUTPUT_TOKENS_MIN
    return not limits.tokens_max or needed <= limits.tokens_max


def _ask(state: State, move_context: MoveContext) -> Move:
    limits = move_context.limits
    if not _fits(state, limits):
        used = f"{state.spent_tokens} of {limits.tokens_max} tokens are used"
        return Stop(
            "budget",
            f"the token limit stands: {used} and the next request needs {state.view_tokens}",
        )
    tokens_left = limits.tokens_max - state.spent_tokens if limits.tokens_max else None
    limit = limits.usd_max
    if not limit:
        return AskModel(tokens_left=tokens_left)
    budget = window_of(state, move_context.budget)
    if budget.price is None:
        name = (
            f"{state.prefix.provider}/{state.prefix.model}"
            if state.prefix is not None
            else "the model"
        )
        return Stop(
            "budget",
            f"the money limit stands, but no price of {name} is known: give it as "
            f'[models."{name}"] price_input and price_output in config.toml, or use another model',
        )
    left = limit - state.spent_usd
    output_tokens = output_limit(state, budget, left)
    reserve = reserve_usd(state, budget, output_tokens)
    if reserve > left:
        told = (
            f"${state.spent_usd:.4f} of ${limit:.4f} are spent and the next request may cost "
            f"${reserve:.4f}, of which ${reserve_usd(state, budget, 0):.4f} for its input and the "
            f"rest for an answer of {output_tokens:,} tokens"
        )
        return Stop(
            "budget", f"the money limit stands: {told}; go on with -c and a higher --max-budget-usd"
        )
    return AskModel(left, tokens_left)

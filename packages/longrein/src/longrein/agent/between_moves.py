"""Steps of the main loop between moves: drain the inbox, wait, pause after a failure, switch
models.
"""

from typing import TYPE_CHECKING

import msgspec

from longrein.agent.dependencies import MoveContext
from longrein.agent.hook_points import refuse_prompt
from longrein.agent.hooks import SessionHooks
from longrein.agent.inbox import can_take, events_of
from longrein.agent.memory_pressure import MemoryPressure
from longrein.agent.messages import (
    Answer,
    CommandRun,
    Continue,
    InboxMessage,
    Rewind,
    SetMode,
    SetModel,
    Uncompact,
    UserMessage,
    approval_digest,
    for_subagent,
)
from longrein.agent.model_request import SummaryRequest, retry_pause
from longrein.agent.session import Session
from longrein.agent.session_part import SessionPart
from longrein.agent.wakes import WakeSchedule
from longrein_context.events import AnyEvent, AskFailed, LongreinError, ModeSet

if TYPE_CHECKING:
    from longrein.agent.rewind import RestoredTrees


async def drain_inbox(session: Session) -> None:
    """Take every message that may be taken now into the log.

    Each leaves the inbox in the same transaction.
    """
    await session.inbox.look()
    session.settle_interrupt()
    for part in session.parts_with(SessionPart.collect):
        await part.collect()
    if (
        session.deps.parent_policy is not None and session.mode != session.state.mode
    ):  # follow the parent
        session.append(ModeSet(session.mode))
    while session.inbox.waiting and not session.closed and not session.ignores_inbox:
        taken = session.inbox.take(
            lambda one: can_take(session.state, one, paused=session.paused, quiet=session.quiet)
        )
        if taken is None:
            return
        number, message = taken
        after: list[AnyEvent] = []
        reference = message.reference if isinstance(message, UserMessage) else ""
        if (
            isinstance(message, UserMessage)
            and session.deps.parent_policy is None
            and session.part(SessionHooks).concern("UserPromptSubmit")
        ):
            instead, after = await refuse_prompt(session, message)
            if instead:
                session.take(number)
                session.inbox.note_first_entry(reference, session.state.seq + 1)
                session.append(*instead)
                continue
        trees = None
        if isinstance(message, Rewind) and message.files:
            from longrein.agent.rewind_trees import restore_trees

            trees = await restore_trees(session, message)
        session.take(number)
        if for_subagent(message) not in ("", session.id):  # left by another process
            session.tell(message)
            continue
        if session.inbox.is_foreign(number) and isinstance(message, Answer | CommandRun | SetMode):
            continue
        session.inbox.note_first_entry(reference, session.state.seq + 1)
        _take(session, message, trees)
        session.append(*after)


def _take(session: Session, message: InboxMessage, trees: "RestoredTrees | None") -> None:
    match message:
        case SetModel(model):
            switch_model(session, model)
        case Rewind(to, files, whole):
            from longrein.agent.rewind import restore_files, rewind

            if whole:
                rewind(session, to, files=files, trees=trees)
            else:
                puts = restore_files(session, to, trees)
                for put in puts:
                    if not put.done:
                        session.notice(f"{put.path} was not restored: {put.why}")
                session.tell_restored(message, puts)
        case Uncompact(seq):
            from longrein.agent.rewind import uncompact

            uncompact(session, seq)
        case Continue() | UserMessage():
            session.paused = False
        case Answer():
            session.paused = False
            message = _approve(session, message)
        case _:
            pass
    for part in session.parts:
        part.take(message)
    session.append(*events_of(message, session.state))


def _approve(session: Session, answer: Answer) -> Answer:
    """Bind an answer to what was shown, and grant its rules; return it without rules that were
    not proposed.
    """
    from longrein.agent.permission_check import approve_changed_call

    open_call = session.state.calls.get(answer.call)
    if (
        open_call is None
        or open_call.asked is None
        or open_call.answer is not None
        or answer.verdict != "allow"
    ):
        return answer
    if answer.arguments is not None:
        approve_changed_call(session, open_call, answer.arguments)
        return msgspec.structs.replace(answer, scope="once", rule="")
    shown = approval_digest(open_call.asked)
    session.approvals.digests[answer.call] = answer.digest or shown
    return session.grant(answer, open_call.asked)


async def wait_idle(session: Session, *, once: bool) -> bool:
    """Flush, then wait for messages. Return True when the loop is to end (`once`)."""
    wakes = session.part(WakeSchedule)
    if not once:
        for part in session.parts:
            part.rest()
    await session.commit(flush=True)
    if session.inbox.waiting and not session.ignores_inbox:
        return False
    wake = wakes.due()
    if wake is not None:
        session.append(wake)
        return False
    if once and all(part.idle for part in session.parts):
        return True
    wakes.rouse()
    session.keep_snapshot()
    await session.wait_for_message()
    return False


async def pause_before_retry(session: Session, delay_s: float, failure: AskFailed) -> None:
    """Publish the pause after the failure that led to it, and wait."""
    await session.commit(flush=False)
    session.subscribers.publish(retry_pause(failure, session.state.failures, delay_s))
    session.paused_failures = session.state.failures
    await session.deps.clock.sleep(delay_s)


def switch_model(session: Session, model: str) -> None:
    """Change the model from the next request on. A break; switching back gives the old bytes
    again.
    """
    try:
        opened = session.deps.open_model(model)
    except LongreinError as error:
        session.notice(str(error))
        return
    session.deps.model = opened
    session.append(session.deps.prefix(opened, "model"))


def move_context(session: Session) -> MoveContext:
    """Return the facts for `next_move` that are not in the log."""
    deps, hooks = session.deps, session.part(SessionHooks)
    limits = deps.limits
    for part in session.parts_with(SessionPart.within):
        limits = part.within(limits)
    return MoveContext(
        budget=deps.model.budget,
        limits=limits,
        jitter=deps.jitter(),
        paused=session.paused,
        fallback="" if deps.fallback == deps.model.name else deps.fallback,
        paused_failures=session.paused_failures,
        seed=session.state.profile.startswith("seed"),
        stop_hooks=hooks.end_concerns,
        batch_hooks=hooks.concern("PostToolBatch"),
        digest_hooks=hooks.compaction_concerns,
        policy=deps.policy,
        now_us=deps.clock.wall_us(),
        last_run_us=session.last_run_us,
        task_s=session.elapsed.task_s,
        summarising=session.part(SummaryRequest).running,
        pressed=session.part(MemoryPressure).pressed,
    )

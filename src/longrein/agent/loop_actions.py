"""Steps of the main loop between moves: drain the inbox, wait, pause after a failure, switch
models.
"""

from typing import TYPE_CHECKING

import msgspec

from longrein.agent.hook_events import refuse_prompt
from longrein.agent.inbox import can_take, events_of
from longrein.agent.messages import (
    AddSchedule,
    Answer,
    CommandRun,
    Continue,
    InboxMessage,
    RemoveSchedule,
    Rewind,
    SetMode,
    SetModel,
    StopTask,
    Uncompact,
    UserMessage,
    approval_digest,
    for_child,
)
from longrein.agent.model_request import retry_pause
from longrein.agent.session import Session
from longrein.events import AnyEvent, AskFailed, LongreinError, ModeSet

if TYPE_CHECKING:
    from longrein.agent.rewind import RestoredTrees


async def drain_inbox(session: Session) -> None:
    """Take every message that may be taken now into the log.

    Each leaves the inbox in the same transaction.
    """
    await session.inbox.look()
    session.memory.look()
    session.summary_request.collect()
    session.settle_interrupt()
    if session.subagents is not None:
        session.subagents.collect()
    if session.own_background_tasks is not None and await session.own_background_tasks.collect():
        session.wake_schedule.since = session.state.seq
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
        after: list[AnyEvent] = []
        reference = taken[1].reference if isinstance(taken[1], UserMessage) else ""
        if (
            isinstance(taken[1], UserMessage)
            and session.deps.parent_policy is None
            and session.hooks.concern("UserPromptSubmit")
        ):
            instead, after = await refuse_prompt(session, taken[1])
            if instead:
                session.take(taken[0])
                _note_first_entry(session, reference)
                session.append(*instead)
                continue
        trees = (
            await _restore_trees(session, taken[1])
            if isinstance(taken[1], Rewind) and taken[1].files
            else None
        )
        session.take(taken[0])
        if for_child(taken[1]) not in ("", session.id):  # left by another process
            session.tell(taken[1])
            continue
        if session.inbox.is_foreign(taken[0]) and isinstance(
            taken[1], Answer | CommandRun | SetMode
        ):
            continue
        _note_first_entry(session, reference)
        _take(session, taken[1], trees)
        session.append(*after)


def _note_first_entry(session: Session, reference: str) -> None:
    if reference:
        session.inbox.first_entries[reference] = session.state.seq + 1


async def _restore_trees(session: Session, message: Rewind) -> "RestoredTrees | None":
    from longrein.agent.rewind_trees import restore_trees

    return await restore_trees(session, message)


def _take(session: Session, message: InboxMessage, trees: "RestoredTrees | None") -> None:
    from longrein.agent.rewind import restore_files, rewind, uncompact

    match message:
        case SetModel(model):
            switch_model(session, model)
        case Rewind(to, files, conversation=False):
            restore_files(session, to, trees)
        case Rewind(to, files):
            rewind(session, to, files=files, trees=trees)
            if session.subagents is not None:
                session.subagents.collect()
            session.wake_schedule.since = session.state.seq
        case Uncompact(seq):
            uncompact(session, seq)
        case Continue() | UserMessage():
            session.paused = False
            session.wake_schedule.in_a_row = 0
            if session.skills is not None:
                session.skills.tell_new()
        case StopTask(task) if session.background_tasks is not None:
            session.background_tasks.stop(task)
        case AddSchedule(when, prompt):
            session.wake_schedule.schedules.add(when, prompt)
        case RemoveSchedule(name):
            session.wake_schedule.schedules.remove(name)
        case Answer():
            session.paused = False
            message = _approve(session, message)
        case _:
            pass
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
    if not once:
        session.wake_schedule.schedules.fire()
    await session.commit(flush=True)
    if session.inbox.waiting and not session.ignores_inbox:
        return False
    wake = session.wake_schedule.due()
    if wake is not None:
        session.append(wake)
        return False
    telling = session.skills is not None and session.skills.telling
    if once and not (telling or session.wake_schedule.pausing or session.wake_schedule.stays):
        return True
    session.wake_schedule.rouse()
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

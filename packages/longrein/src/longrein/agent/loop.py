"""The main loop of longrein: choose the next move, make it, record its outcome, repeat.

All branching is in `moves.next_move`, a pure function, and all facts go through `Session.append`.
After a crash, a kill or an interrupt the loop continues from the log alone.
"""

from collections.abc import Mapping
from typing import assert_never

from longrein.agent.between_moves import (
    drain_inbox,
    move_context,
    pause_before_retry,
    switch_model,
    wait_idle,
)
from longrein.agent.change_detection import record_file_changes
from longrein.agent.hook_points import begin_hooks, run_hooks
from longrein.agent.hooks import SessionHooks
from longrein.agent.model_request import request_turn
from longrein.agent.moves import (
    AskModel,
    AskUser,
    Judgement,
    Pause,
    Record,
    RunHooks,
    RunTools,
    Stop,
    Switch,
    Wait,
    next_move,
)
from longrein.agent.session import Session
from longrein.agent.session_part import SessionPart
from longrein_context import Digest, Summarise, Swap
from longrein_context.events import TurnEnded


async def run(session: Session, *, once: bool) -> None:  # noqa: C901, PLR0912 - a case for each move
    """Run until the session is closed or, with `once`, until a turn has ended and nothing waits.

    Cancelling it cuts the present move, which the next open records. Raises `StoreFull` and related
    errors only.
    """
    hooks = session.part(SessionHooks)
    await session.perform(begin_hooks(session))
    while not session.closed:
        await drain_inbox(session)
        await record_file_changes(session)
        for part in session.parts_with(SessionPart.before_move):
            await part.before_move()
        judged: Mapping[str, Judgement] = {}
        if session.state.calls or session.judged_paths:
            from longrein.agent.tool_runner import judge_open_calls

            judged = await judge_open_calls(session)
        move = next_move(session.state, judged, move_context(session))
        match move:
            case Record(events):
                session.append(*events)
            case AskModel(usd_left, tokens_left):
                await session.perform(request_turn(session, usd_left, tokens_left))
            case RunTools(calls):
                from longrein.agent.tool_runner import run_tools

                await session.perform(run_tools(session, calls))
            case RunHooks(event, calls):
                await session.perform(run_hooks(hooks, event, calls))
            case Summarise() | Swap() | Digest():
                from longrein.agent.compaction import compact

                await session.perform(compact(session, move))
            case Pause(delay_s, failure):
                await session.perform(pause_before_retry(session, delay_s, failure))
            case Switch(model):
                switch_model(session, model)
            case AskUser(call):
                await session.commit(flush=True)
                hooks.tell_question(call)
                await session.wait_for_message()
            case Stop(reason, message):
                session.append(TurnEnded(reason, message))
                hooks.tell_end(reason, message)
            case Wait():
                if await wait_idle(session, once=once):
                    return
            case never:
                assert_never(never)

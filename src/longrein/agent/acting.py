"""Running tools: `ToolStarted` on disk, then the act, then `ToolEnded` as each call ends.

One that is cancelled is recorded with what it had; a tool that raises is our bug and the model is told so, the session
goes on.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longrein.agent.memory import spilled
from longrein.agent.nested import tell_nested
from longrein.agent.port import Output
from longrein.agent.session import Session
from longrein.context import Seen, standing, window_of
from longrein.events import Text, ToolCall, ToolEnded, ToolError, ToolStarted
from longrein.tools import FileVersion, Hands, Outcome, Tool, fit_arguments

PAGE_BYTES_MIN, PAGE_BYTES_MAX = 1_000, 30_000
"""Text of one page of a recall."""


class _Versions(Mapping[str, FileVersion]):
    """Known files, as tools see them."""

    def __init__(self, files: Mapping[str, Seen]) -> None:
        self._files = files

    def __getitem__(self, path: str) -> FileVersion:
        seen = self._files[path]
        return FileVersion(seen.hash, seen.whole, seen.blob)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


async def run_tools(session: Session, calls: Sequence[ToolCall]) -> None:
    """Run `calls` side by side, at most `limits.parallel_max` at once."""
    fitted = {call.id: _fitted(session, call) for call in calls}
    fresh = [call for call in calls if not session.state.calls[call.id].started]
    session.append(*(_started(call, fitted[call.id]) for call in fresh))
    await session.commit(flush=True)
    if len(calls) == 1:
        await _run(session, calls[0], fitted[calls[0].id])
        tell_nested(session, calls)
        return
    gate = asyncio.Semaphore(session.crew.limits.parallel_max)

    async def run(call: ToolCall) -> None:
        async with gate:
            await _run(session, call, fitted[call.id])
        if session.state.calls:
            session.commit(flush=False)

    tasks = [asyncio.ensure_future(run(call)) for call in calls]
    try:
        await asyncio.gather(*tasks)
    except asyncio.CancelledError:
        await asyncio.wait(tasks)  # gather has cancelled them; each records its own end
        raise
    tell_nested(session, calls)


def _fitted(session: Session, call: ToolCall) -> dict[str, Any]:
    """The arguments as the tool gets them; a call that runs has been judged, so they fit."""
    return fit_arguments(session.crew.tools[call.name], call.arguments or {})[0]


def _started(call: ToolCall, arguments: dict[str, Any]) -> ToolStarted:
    return ToolStarted(call.id, call.name, None if arguments == call.arguments else arguments)


async def _run(session: Session, call: ToolCall, arguments: dict[str, Any]) -> None:
    tool = session.crew.tools[call.name]
    begun = session.crew.clock.mono_s()
    try:
        outcome = await tool.run(_hands(session, call.id, tool), **arguments)
    except asyncio.CancelledError:
        if not session.interrupting:
            raise
        outcome = Outcome((Text("interrupted by the user; it may have had effects"),), (), "interrupted")
    except ToolError as error:
        outcome = Outcome.fail(str(error))
    except Exception as error:
        outcome = Outcome.fail(f"the tool {call.name} failed inside: {type(error).__name__}: {error}")
    elapsed = round((session.crew.clock.mono_s() - begun) * 1000)
    parts = spilled(outcome.parts, call.name, session.blobs)
    ended = ToolEnded(call.id, call.name, outcome.status, parts, elapsed)
    told = session.commands.told_by(call.id) if session.commands is not None else ()
    if outcome.status == "ok":
        session.append(*told, *outcome.facts, ended)
    else:  # the ends of tasks that it was to tell are told by notices
        session.append(*outcome.facts, ended, *told)


def _hands(session: Session, call: str, tool: Tool) -> Hands:
    state, crew = session.state, session.crew
    desk = session.open_commands() if tool.access == "command" else session.commands
    return Hands(
        call=call,
        session=session.id if crew.above is None else crew.above.process_session,
        nonce=state.nonce,
        cwd=state.cwd,
        workspace=crew.workspace,
        blobs=session.blobs,
        versions=_Versions(state.files),
        todos=state.todos,
        options=crew.options,
        entry=lambda seq: next(iter(crew.history(seq, seq)), None),
        standing=lambda *asked: standing(session.state, *asked),
        note=lambda data: session.readers.stream(Output(call, data)),
        archive=crew.archive,
        now_us=crew.clock.wall_us,
        tasks=desk.of(call) if desk is not None else None,
        agents=session.agent_port,
        author=state.label,
        page_bytes=_page_bytes(window_of(state, crew.model.budget).usable_tokens),
    )


def _page_bytes(usable_tokens: int) -> int:
    """Some 22 % of the window at 3 bytes a token: results together are whole up to 30 %."""
    return max(PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, usable_tokens * 2 // 3))

"""Running tools: `ToolStarted` on disk, then the call, then `ToolEnded` as each call ends.

A cancelled call is recorded with what it had. A tool that raises is a bug of longrein: the model is told so and the
session continues.
"""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent.file_changes import (
    after_command,
    before_command,
    describe_writer,
    may_change,
    note_written,
    tell_nested_instructions,
    writer_of,
)
from longrein.agent.memory_pressure import spill_long_texts
from longrein.agent.messages import Output
from longrein.agent.permission_check import hidden_files
from longrein.agent.session import Session, retrieve_error
from longrein.agent.shared_files import HeldPaths
from longrein.context import KnownFile, find_visible_reading, window_of
from longrein.events import AnyEvent, CwdSet, FileChanged, Text, ToolCall, ToolEnded, ToolError, ToolStarted
from longrein.settings_schema import ToolOptions
from longrein.store import owner_of
from longrein.tools import FileVersion, GoalPort, Outcome, Tool, ToolContext, clean, fit_arguments

SEED_OUTPUT_BYTES = 50_000
"""Output of a command that the `seed` profiles keep."""
PAGE_BYTES_MIN, PAGE_BYTES_MAX = 1_000, 30_000
"""Text of one page of `Recall`."""


class _Versions(Mapping[str, FileVersion]):
    """Known files as `Mapping` of path to `FileVersion`, for tools."""

    def __init__(self, files: Mapping[str, KnownFile], asks: int) -> None:
        self._files, self._asks = files, asks

    def __getitem__(self, path: str) -> FileVersion:
        seen = self._files[path]
        return FileVersion(seen.hash, seen.whole, seen.blob, seen.told_by(self._asks))

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)


async def run_tools(session: Session, calls: Sequence[ToolCall]) -> None:
    """Run `calls` in parallel, at most `limits.parallel_max` at once."""
    calls = [session.original_call(call) for call in calls]
    fitted = {call.id: _fitted(session, call) for call in calls}
    fresh = [call for call in calls if not session.state.calls[call.id].started]
    changing = [call.id for call in fresh if may_change(session.deps.tools[call.name], fitted[call.id])]
    if changing:
        session.append(*await before_command(session))
    session.append(*(_started(call, fitted[call.id]) for call in fresh))
    await session.commit(flush=True)
    beside = _ParallelCalls(session.deps.limits.parallel_max, [call.id for call in calls])
    if len(calls) == 1:
        await _run(session, calls[0], fitted[calls[0].id], _CallSlot(beside, changing=bool(changing)))
        tell_nested_instructions(session, calls)
        return

    async def run(call: ToolCall) -> None:
        await _run(session, call, fitted[call.id], _CallSlot(beside, changing=call.id in changing))
        if session.state.calls:
            session.commit(flush=False)

    tasks = [asyncio.ensure_future(run(call)) for call in calls]
    together = asyncio.gather(*tasks)
    together.add_done_callback(retrieve_error)  # not awaited when cancelled after a failure
    try:
        await together
    except asyncio.CancelledError:
        await asyncio.wait(tasks)  # gather has cancelled them; each records its own end
        raise
    tell_nested_instructions(session, calls)


def _fitted(session: Session, call: ToolCall) -> dict[str, Any]:
    """Return the arguments as the tool gets them; the call has been judged, so they fit."""
    return fit_arguments(session.deps.tools[call.name], call.arguments or {})[0]


def _started(call: ToolCall, arguments: dict[str, Any]) -> ToolStarted:
    return ToolStarted(call.id, call.name, None if arguments == call.arguments else arguments)


class _ParallelCalls:
    """State shared by the calls that run in parallel."""

    def __init__(self, most: int, calls: Sequence[str]) -> None:
        """Let at most `most` of `calls` run at once."""
        self.gate = asyncio.Semaphore(most)
        self.looking = asyncio.Lock()
        """Held while one call looks for changed files, so that no change is reported twice."""
        self._order = {call: at for at, call in enumerate(calls)}
        self._moved = -1

    def in_order(self, call: str, facts: Sequence[AnyEvent]) -> list[AnyEvent]:
        """Drop a folder change that a later call of the reply has already replaced."""
        at, moves = self._order[call], any(isinstance(fact, CwdSet) for fact in facts)
        kept = [fact for fact in facts if at > self._moved or not isinstance(fact, CwdSet)]
        self._moved = max(self._moved, at) if moves else self._moved
        return kept


class _CallSlot:
    """A call's slot among the parallel calls, and its file locks."""

    def __init__(self, beside: _ParallelCalls, *, changing: bool) -> None:
        self.changing = changing
        """True if it runs a command that may change any file."""
        self.beside = beside
        self._gate = beside.gate
        self._entered = False
        self._files: HeldPaths | None = None

    async def take(self, session: Session, tool: Tool, arguments: dict[str, Any]) -> None:
        """Wait for the slot and the locks."""
        await self._gate.acquire()
        self._entered = True
        self._files = await session.deps.locks.take(_touched(session, tool, arguments))

    @property
    def whole(self) -> bool:
        """True once slot and locks are held."""
        return self._files is not None

    def leave(self) -> None:
        """Release slot and locks."""
        if self._files is not None:
            self._files.release()
        if self._entered:
            self._gate.release()


def _touched(session: Session, tool: Tool, arguments: dict[str, Any]) -> list[tuple[str, bool]]:
    """Return (real path, writes) of the files that a call touches; unknown for a command."""
    if tool.access == "command":
        return []
    look, cwd = session.deps.workspace.resolve, session.state.cwd
    return [(look(path, cwd).real, writes) for path, writes in tool.paths(arguments)]


async def _run(session: Session, call: ToolCall, arguments: dict[str, Any], place: _CallSlot) -> None:
    task = asyncio.current_task()
    assert task is not None
    begun_s = session.deps.clock.mono_s()
    session.running[call.id] = task
    try:
        outcome = await _outcome(session, call, arguments, place)
        del session.running[call.id]
        elapsed = round((session.deps.clock.mono_s() - begun_s) * 1000)
        await _record(session, call, arguments, place, outcome, elapsed)
    finally:
        place.leave()
        session.deps.writers.end(call.id, session.state.label)
        session.running.pop(call.id, None)
        if call.id in session.cancelled:
            del session.cancelled[call.id]
            task.uncancel()  # the call has ended; its caller continues


async def _outcome(session: Session, call: ToolCall, arguments: dict[str, Any], place: _CallSlot) -> Outcome:
    tool = session.deps.tools[call.name]
    try:
        await place.take(session, tool, arguments)
        if tool.access == "write" or place.changing:
            session.deps.writers.begin(call.id, writer_of(session, arguments))
        return await tool.run(_hands(session, call.id, tool), **arguments)
    except asyncio.CancelledError:
        if not session.stops(call.id):
            raise
        return Outcome((Text("interrupted by the user; it may have had effects"),), (), "interrupted")
    except ToolError as error:
        return Outcome.fail(str(error))
    except Exception as error:
        return Outcome.fail(f"the tool {call.name} failed inside: {type(error).__name__}: {error}")


async def _record(
    session: Session, call: ToolCall, arguments: dict[str, Any], place: _CallSlot, outcome: Outcome, elapsed_ms: int
) -> None:
    """Append the end of a call, with its facts."""
    if not place.whole and outcome.status == "interrupted":
        not_run = (Text("not run: the user interrupted"),)
        session.append(ToolEnded(call.id, call.name, "not_run", not_run, elapsed_ms))
        return
    changes: list[FileChanged] = []
    if place.changing:
        changes = await _changed(session, arguments, place.beside.looking)
    facts = place.beside.in_order(call.id, outcome.facts)
    note_written(session, facts)
    parts = spill_long_texts(outcome.parts, call.name, session.blobs)
    raw = _raw_blob(session, outcome.raw) if outcome.raw else ""
    ended = ToolEnded(call.id, call.name, outcome.status, parts, elapsed_ms, raw)
    told = session.own_background_tasks.told_by(call.id) if session.own_background_tasks is not None else ()
    if outcome.status == "ok":
        session.append(*changes, *told, *facts, ended)
    else:  # notices tell the ends that it did not report
        session.append(*changes, *facts, ended, *told)


def _raw_blob(session: Session, raw: bytes) -> str:
    """Store a command's raw output without secrets; '' when escapes inside a secret hide it."""
    redact = session.deps.redact
    kept = redact(raw.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")
    return session.blobs.put_blob(kept) if clean(kept) == redact(clean(raw)) else ""


async def _changed(session: Session, arguments: dict[str, Any], looking: asyncio.Lock) -> list[FileChanged]:
    """Return the changes a command made.

    The command is over, so an interrupt leaves its result intact; the next look then finds the changes.
    """
    try:
        async with looking:
            return await after_command(session, arguments)
    except asyncio.CancelledError:
        if not session.interrupting:
            raise
        return []


def _hands(session: Session, call: str, tool: Tool) -> ToolContext:
    state, deps = session.state, session.deps
    tasks = session.open_background_tasks() if tool.access == "command" else session.own_background_tasks
    return ToolContext(
        call=call,
        session=session.process_session,
        nonce=state.nonce,
        cwd=state.cwd,
        workspace=deps.workspace,
        blobs=session.blobs,
        versions=_Versions(state.files, state.asks),
        todos=state.todos,
        options=_options(session),
        entry=lambda seq: next(iter(deps.history(seq, seq)), None),
        standing=lambda *asked: find_visible_reading(session.state, *asked),
        note=lambda data: session.subscribers.stream(Output(call, data)),
        archive=deps.archive,
        now_us=deps.clock.wall_us,
        tasks=tasks.of(call) if tasks is not None else None,
        agents=session.agent_port,
        goals=_goals(session),
        wrote=lambda path, digest: describe_writer(session, path, digest),
        hidden=hidden_files(session),
        page_bytes=_page_bytes(window_of(state, deps.model.budget).usable_tokens),
    )


def _goals(session: Session) -> GoalPort | None:
    """Return the project's goals for this agent, renewing its claims."""
    if session.deps.goals is None:
        return None
    goals = session.deps.goals.by(owner_of(session.process_session, session.state.label))
    goals.beat()
    return goals


def _options(session: Session) -> ToolOptions:
    """Return the limits of the tools; the `seed` profiles keep only the beginning of a command's output."""
    options = session.deps.options
    if not session.state.profile.startswith("seed"):
        return options
    most = SEED_OUTPUT_BYTES
    return msgspec.structs.replace(options, output_inline_bytes=most, head_bytes=most, tail_bytes=0)


def _page_bytes(usable_tokens: int) -> int:
    """Some 22 % of the window at 3 bytes a token: results together are whole up to 30 %."""
    return max(PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, usable_tokens * 2 // 3))

"""Running tools: `ToolStarted` on disk, then the call, then `ToolEnded` as each call ends.

A cancelled call is recorded with what it had. A tool that raises is a bug of longrein: the model is
told so and the session continues.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from longrein.agent.change_detection import (
    changed_files,
    describe_writer,
    may_change,
    note_written,
    presumed_author,
    tell_nested_instructions,
    touched_places,
    writer_of,
)
from longrein.agent.checkpoints import needs_checkpoint
from longrein.agent.confinement import SessionConfinement
from longrein.agent.current_rules import confines, current_rules
from longrein.agent.dependencies import Dependencies
from longrein.agent.hook_points import after_call
from longrein.agent.hooks import SessionHooks
from longrein.agent.memory_pressure import spill_long_texts
from longrein.agent.messages import Output
from longrein.agent.moves import Judgement
from longrein.agent.permission_check import is_read_allowed, judge_calls, look_at_history
from longrein.agent.session import Session, retrieve_error
from longrein.agent.session_part import BackgroundTasks, Checkpoints, Skills, Subagents
from longrein.agent.shared_files import HeldPaths
from longrein.agent.subscribers import Subscribers
from longrein.store import owner_of
from longrein.tools import (
    CommandSurroundings,
    FileVersion,
    Outcome,
    SessionFiles,
    SessionServices,
    Tool,
    ToolContext,
    clean,
    fit_arguments,
)
from longrein.tools.tool_search import is_foreign
from longrein_context import KnownFile, find_visible_reading, window_of
from longrein_context.events import (
    AnyEvent,
    CwdSet,
    FileChanged,
    Reminded,
    Text,
    ToolCall,
    ToolEnded,
    ToolError,
    ToolStarted,
)
from longrein_context.events.escape import describe_unseen
from longrein_context.events.redact_stream import StreamRedactor

SEED_OUTPUT_BYTES = 50_000
"""Output of a command that the `seed` profiles keep."""
AGENT_KINDS = ("", "agent", "other")
"""Kinds of tools that may start subagents: opening those takes 7 ms of CPU."""
PAGE_BYTES_MIN = 1_000
PAGE_BYTES_MAX = 30_000
PAGE_BYTES_PER_TOKEN = 0.3
"""Text of one page of `Recall`: about a tenth of the usable window, at three bytes a token."""


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


async def judge_open_calls(session: Session) -> dict[str, Judgement]:
    """Judge the open calls. The call about which the user would be asked next is refused if it
    cannot succeed.
    """
    await look_at_history(session)
    judged = judge_calls(session)
    calls = session.state.calls
    asked = next(
        (name for name, one in judged.items() if one.kind == "ask" and calls[name].asked is None),
        "",
    )
    call = session.original_call(calls[asked].call) if asked else None
    tool = session.deps.tools[call.name] if call is not None else None
    if call is None or tool is None or tool.check is None:
        return judged
    try:
        await tool.check(
            tool_context(session, asked, tool), **fit_arguments(tool, call.arguments or {})[0]
        )
    except ToolError as error:
        return {**judged, asked: Judgement("refuse", str(error), facts=error.facts)}
    return judged


async def run_tools(session: Session, calls: Sequence[ToolCall]) -> None:
    """Run `calls` in parallel, at most `limits.parallel_max` at once."""
    calls = [session.original_call(call) for call in calls]
    changed = session.approvals.arguments
    fitted = {
        call.id: fit_arguments(
            session.deps.tools[call.name], call.arguments or {}, from_answer=call.id in changed
        )[0]
        for call in calls
    }
    fresh = [call for call in calls if not session.state.calls[call.id].started]
    now = current_rules(session)
    changing = [
        call.id for call in fresh if may_change(now, session.deps.tools[call.name], fitted[call.id])
    ]
    if changing:
        author = presumed_author(session.state, session.deps.writers)
        session.append(*await changed_files(session, author))
    kept = [
        call.id
        for call in fresh
        if Checkpoints in session.deps.parts
        and needs_checkpoint(
            now, session.deps.tools[call.name], fitted[call.id], is_shared=session.log.is_shared
        )
    ]
    checkpoints = session.open(Checkpoints) if kept else None
    if checkpoints is not None:
        await checkpoints.keep("before", kept)
    for call in fresh:
        arguments = fitted[call.id]
        same = arguments == call.arguments and call.id not in session.approvals.hook_inputs
        session.append(ToolStarted(call.id, call.name, None if same else arguments))
    await session.commit(flush=True)
    beside = _ParallelCalls(session.deps.limits.parallel_max, [call.id for call in calls])

    async def run(call: ToolCall) -> None:
        place = _CallSlot(beside, changing=call.id in changing, kept=call.id in kept)
        await _run(session, call, fitted[call.id], place)
        if len(calls) > 1 and session.state.calls:
            session.commit(flush=False)

    if len(calls) == 1:
        await run(calls[0])
    else:
        await _wait_for_all([asyncio.ensure_future(run(call)) for call in calls])
    _tell_found(session, calls)


async def _wait_for_all(tasks: Sequence[asyncio.Future[None]]) -> None:
    """Wait until all tasks have ended. A cancelled wait cancels them, and waits for their ends."""
    together = asyncio.gather(*tasks)
    together.add_done_callback(retrieve_error)  # not awaited when cancelled after a failure
    try:
        await together
    except asyncio.CancelledError:
        await asyncio.wait(tasks)  # gather has cancelled them; each records its own end
        raise


def _tell_found(session: Session, calls: Sequence[ToolCall]) -> None:
    """Tell instruction files and skills of the folders that `calls` touched."""
    tell_nested_instructions(session, calls)
    skills = session.find(Skills)
    if skills is not None:
        places = touched_places(session.deps, session.state.cwd, calls)
        skills.tell_new([place.real for place in places])


class _ParallelCalls:
    """State shared by the calls that run in parallel, at most `most` at once."""

    def __init__(self, most: int, calls: Sequence[str]) -> None:
        self.slots = asyncio.Semaphore(most)
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

    def __init__(self, beside: _ParallelCalls, *, changing: bool, kept: bool) -> None:
        self.changing, self.kept = changing, kept
        """True if it runs a command that may change any file; and if checkpoints are taken
        around it.
        """
        self.beside = beside
        self.written: Sequence[str] = ()
        """Real paths that it names to write, once the locks are held; none for a command."""
        self._entered = False
        self._files: HeldPaths | None = None

    async def take(
        self, deps: Dependencies, cwd: str, tool: Tool, arguments: dict[str, Any]
    ) -> None:
        """Wait for the slot and the locks."""
        await self.beside.slots.acquire()
        self._entered = True
        touched: list[tuple[str, bool]] = []  # not known for a command
        if tool.access != "command":
            look = deps.workspace.resolve
            touched = [(look(path, cwd).real, writes) for path, writes in tool.paths(arguments)]
        self._files = await deps.locks.take(touched)
        self.written = [real for real, writes in touched if writes]

    @property
    def whole(self) -> bool:
        """True once slot and locks are held."""
        return self._files is not None

    def leave(self) -> None:
        """Release slot and locks."""
        if self._files is not None:
            self._files.release()
        if self._entered:
            self.beside.slots.release()


async def _run(
    session: Session, call: ToolCall, arguments: dict[str, Any], place: _CallSlot
) -> None:
    tool, task = session.deps.tools[call.name], asyncio.current_task()
    assert task is not None
    begun_s = session.deps.clock.mono_s()
    session.running[call.id] = task
    try:
        outcome = await _outcome(session, call, arguments, place)
        del session.running[call.id]
        is_outside = arguments.get("outside_sandbox") and not is_foreign(tool)
        sandbox = session.deps.sandbox if tool.access == "write" or is_outside else None
        if sandbox is not None and place.whole:
            sandbox.accept(place.written or ("/",))  # only what it names: others may run meanwhile
        elapsed = round((session.deps.clock.mono_s() - begun_s) * 1000)
        await _record(session, call, arguments, place, outcome, elapsed)
    finally:
        place.leave()
        session.deps.writers.end(call.id, session.state.label)
        session.running.pop(call.id, None)
        if call.id in session.cancelled:
            del session.cancelled[call.id]
            task.uncancel()  # the call has ended; its caller continues


async def _outcome(
    session: Session, call: ToolCall, arguments: dict[str, Any], place: _CallSlot
) -> Outcome:
    tool = session.deps.tools[call.name]
    try:
        await place.take(session.deps, session.state.cwd, tool, arguments)
        if tool.access == "write" or place.changing:
            traced = tool.access == "write" or tool.traced
            writer = writer_of(session.state.label, arguments)
            session.deps.writers.begin(call.id, writer, traced=traced)
        return await tool.run(tool_context(session, call.id, tool), **arguments)
    except asyncio.CancelledError:
        if not session.stops(call.id):
            raise
        text = f"{session.stop_reason}; it may have had effects"
        return Outcome((Text(text),), (), "interrupted")
    except ToolError as error:
        return Outcome.fail(str(error), *error.facts)
    except Exception as error:
        return Outcome.fail(f"the tool {call.name} failed inside: {type(error).__name__}: {error}")


SEARCHED_CHARS_MAX = 1 << 20
"""Characters of a result in which invisible ones are looked for."""


def _unseen_text(call: ToolCall, outcome: Outcome) -> list[Reminded]:
    """Return what tells the model of invisible characters in a result, which stays as it is."""
    text = "".join(
        part.text[:SEARCHED_CHARS_MAX] for part in outcome.parts if isinstance(part, Text)
    )
    found = "" if text.isascii() else describe_unseen(text)
    return [Reminded("unseen_text", "", f"{call.name}: {found}")] if found else []


async def _record(
    session: Session,
    call: ToolCall,
    arguments: dict[str, Any],
    place: _CallSlot,
    outcome: Outcome,
    elapsed_ms: int,
) -> None:
    """Append the end of a call, with its facts."""
    if not place.whole and outcome.status == "interrupted":
        not_run = (Text("not run: the turn was interrupted"),)
        session.append(ToolEnded(call.id, call.name, "not_run", not_run, elapsed_ms))
        return
    changes: list[FileChanged] = []
    note_written(session.deps.writers, session.state.label, outcome.facts)
    checkpoints = session.find(Checkpoints) if place.kept else None
    if checkpoints is not None:
        await checkpoints.keep_after(call.id)
    if place.changing:
        changes = await _changed(session, arguments, place.beside.looking)
        session.append(*session.file_watcher.branch.change(session.state))
    facts = place.beside.in_order(call.id, outcome.facts)
    outcome, answered = await after_call(session, call, arguments, outcome, elapsed_ms)
    session.append(*_unseen_text(call, outcome))
    parts = spill_long_texts(outcome.parts, call.name, session.blobs)
    raw = ""
    if outcome.raw:
        redact = session.deps.redact
        kept = redact(outcome.raw.decode("utf-8", "surrogateescape")).encode(
            "utf-8", "surrogateescape"
        )
        if clean(kept) == redact(clean(outcome.raw)):  # else escapes inside a secret hide it
            raw = session.blobs.put_blob(kept)
    ended = ToolEnded(call.id, call.name, outcome.status, parts, elapsed_ms, raw)
    tasks = session.find(BackgroundTasks)
    told = tasks.told_by(call.id) if tasks is not None else ()
    folder = session.state.cwd
    if outcome.status == "ok":
        session.append(*changes, *told, *facts, ended, *answered)
    else:  # notices tell the ends that it did not report
        session.append(*changes, *facts, ended, *answered, *told)
    if session.state.cwd != folder:
        session.part(SessionHooks).inform("CwdChanged", old_cwd=folder, new_cwd=session.state.cwd)


async def _changed(
    session: Session, arguments: dict[str, Any], looking: asyncio.Lock
) -> list[FileChanged]:
    """Return the changes a command made, and note its writer for the other agents.

    The command is over, so an interrupt leaves its result intact; the next look then finds the
    changes.
    """
    writers, writer = session.deps.writers, writer_of(session.state.label, arguments)
    try:
        async with looking:
            changes = await changed_files(session, ("command", writer.command))
    except asyncio.CancelledError:
        if not session.interrupting:
            raise
        return []
    for change in changes:
        if change.by == "command":
            writers.note(change.path, change.hash, writer)
    return changes


def tool_context(
    session: Session, call: str, tool: Tool, *, in_foreground: bool = False
) -> ToolContext:
    """Return the context of a call. `in_foreground`: of a command that never becomes a task, as
    in the text of a skill.
    """
    state, deps = session.state, session.deps
    options = deps.options
    if state.profile.startswith("seed"):  # keeps only the beginning of a command's output
        most = SEED_OUTPUT_BYTES
        options = msgspec.structs.replace(
            options, output_inline_bytes=most, head_bytes=most, tail_bytes=0
        )
    goals = (
        deps.goals.by(owner_of(session.process_session, state.label))
        if deps.goals is not None
        else None
    )
    if goals is not None:
        goals.beat()
    usable_tokens = window_of(state, deps.model.budget).usable_tokens
    opens = tool.access == "command" or is_foreign(tool)  # a call of a server may become a task
    tasks = session.open(BackgroundTasks) if opens else session.find(BackgroundTasks)
    now = current_rules(session)
    watched = session.part(SessionHooks).concern("PreToolUse", ("Read",))
    may_start_agents = bool(deps.kinds) and tool.traits.kind in AGENT_KINDS
    return ToolContext(
        call=call,
        nonce=state.nonce,
        cwd=state.cwd,
        workspace=deps.workspace,
        blobs=session.blobs,
        todos=state.todos,
        options=options,
        note=_live_output(deps, session.subscribers, call),
        files=SessionFiles(
            _Versions(state.files, state.asks),
            standing=lambda *asked: find_visible_reading(session.state, *asked),
            wrote=partial(describe_writer, deps.writers, session.state.label),
            hidden=now.hidden_files(),
            may_read=lambda path: not watched and is_read_allowed(now, path),
            judged=session.judged_paths.get(call, {}),
        ),
        commands=CommandSurroundings(
            session.process_session,
            session.call_id(call),
            session.part(SessionHooks).all_variables,
            sandbox=SessionConfinement(session)
            if tool.access == "command" and confines(session.deps.sandbox)
            else None,
            tasks=tasks.of(call) if tasks is not None and not in_foreground else None,
            stop_reason=lambda: session.stop_reason,
        ),
        services=SessionServices(
            deps.archive,
            deps.clock.wall_us,
            agents=session.open(Subagents) if may_start_agents else None,
            goals=goals,
            skills=session.find(Skills),
        ),
        page_bytes=max(
            PAGE_BYTES_MIN, min(PAGE_BYTES_MAX, round(usable_tokens * PAGE_BYTES_PER_TOKEN))
        ),
        offered=deps.tools,
    )


def _live_output(
    deps: Dependencies, subscribers: Subscribers, call: str
) -> Callable[[bytes], None]:
    """Return a function that publishes more output of a running tool, without secrets."""
    stream: list[StreamRedactor] = []

    def note(data: bytes) -> None:
        if not subscribers.streaming:
            return
        if not stream:
            stream.append(StreamRedactor(deps.redact, deps.secrets, deps.own_patterns))
        if clean := stream[0].take(data):
            subscribers.publish(Output(call, clean))

    return note

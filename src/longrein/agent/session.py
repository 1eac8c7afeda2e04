"""One open session: the only writer of its log.

`append` folds an entry into the state and holds it; `commit` hands all that is held to the store in one transaction. An
act on the world comes after a commit that flushes, so what an act relies on is on disk first (law 7).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from longrein.agent.file_watcher import Watch
from longrein.agent.inbox import Inbox, Wakes
from longrein.agent.memory_pressure import Pressure
from longrein.agent.messages import AgentView, Heard, Noticed, Pending, StopTask, Word, for_child
from longrein.agent.ports import Company, Crew, Lasting, Limits, Outlook, TaskDesk, narrower
from longrein.agent.redaction import CleanBlobs, changed_calls, redacted
from longrein.agent.subscribers import Readers
from longrein.context import State, advance, encode_state
from longrein.events import (
    AnyEvent,
    AskFailed,
    Entry,
    Interrupted,
    Replied,
    SourceFile,
    ToolCall,
    ToolEnded,
    text_of,
    unwrapped,
)
from longrein.permissions import Rules
from longrein.store import Log, Snapshot, owner_of
from longrein.tools import SubagentPort, TaskView

# ---------------------------------------------------------------------------------------------------------------------
#
# One summary request beside the work. What comes of it waits here until the loop drains it into the log.


class _Host(Protocol):
    """What it needs of the session."""

    def append(self, *events: AnyEvent) -> int: ...
    def poke(self) -> None: ...


class Beside:
    """At most one request runs beside the conversation."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Replied | AskFailed] | None = None
        self._seq, self._reserved_usd = 0, 0.0

    @property
    def running(self) -> bool:
        """Whether a request was made whose outcome is not in the log yet."""
        return self._task is not None

    def start(
        self, host: _Host, attempt: Coroutine[Any, Any, Replied | AskFailed], seq: int, reserved_usd: float
    ) -> None:
        """Let `attempt`, the answer to `Asked` `seq`, go on by itself; the loop is woken when it has come."""
        self._task, self._seq, self._reserved_usd = asyncio.ensure_future(attempt), seq, reserved_usd
        self._task.add_done_callback(lambda _task: host.poke())

    def collect(self, host: _Host) -> None:
        """Append what has come."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            host.append(task.result())

    async def stop(self, host: _Host) -> None:
        """Give up the request that runs; what it may have cost is written down."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        task, self._task = self._task, None
        gone = AskFailed(self._seq, "cancelled", "no longer needed", assumed_usd=self._reserved_usd)
        host.append(gone if task.cancelled() else task.result())


# --- session ---------------------------------------------------------------------------------------------------------


CLOSE_WAIT_S = 5.0
"""How long `close` waits for the loop to come to rest; only a stuck disk takes longer than a moment."""
SNAPSHOT_FROM = 500
"""Entries of a log that is worth a snapshot though the clearing policy remembers nothing."""
SNAPSHOT_EVERY = 1_000
"""Entries within a turn after which one is kept."""
INTERRUPTED = "[interrupted by the user]"
"""The line the model is told."""


def retrieve_error(done: "asyncio.Future[Any]") -> None:
    """Count the error of a future as seen, so that asyncio prints no traceback of it.

    For work that fails when the log cannot be written: each later commit of the session raises the same.
    """
    if not done.cancelled():
        done.exception()


class Session:
    """See `SessionPort` for what a frontend may do with it."""

    def __init__(self, log: Log, crew: Crew, state: State) -> None:
        self.log = log
        self.crew = crew
        self.id = log.session
        self.state = state
        self.blobs = CleanBlobs(log, crew.redact, crew.secrets)
        self.inbox = Inbox(log, crew.redact)
        self.readers = Readers(crew.history, self.state.seq, crew.above)
        self.memory = Pressure(crew.memory, crew.ease, self.notice, crew.clock.mono_s)
        self.beside = Beside()
        self.paused = self.state.turn_open
        """Whether a turn that a crash cut waits for the user to say go on."""
        self.lasting = Lasting(crew.clock.mono_s, state)
        self.watch = Watch(state.at)
        """What is remembered of the files on disk; only spares reading them again."""
        self.rested = 0
        """Failures in a row after which a pause was made."""
        self.folders_seen: dict[tuple[str, int], None] = {}
        """Folders whose instruction files were looked for; only spares looking again."""
        self.company: Company | None = None
        """Its subagents; None until one is started, or was before."""
        self.commands: TaskDesk | None = None
        """Its commands and background tasks; None until one is started, or was before."""
        self.walk: asyncio.Task[None] | None = None
        """The task that runs the loop."""
        self.running: dict[str, asyncio.Task[Any]] = {}
        """The task that runs each call."""
        self.cancelled: dict[str, None] = {}
        """Running calls that were cancelled, one by one."""
        self._lent = None if crew.above is None else crew.model
        """Model that others use too; one that it has changed to is its own."""
        self.closed = False
        self.deaf = False
        """Whether words are left where they are: it was told to end, and they would be a new turn."""
        self._said: dict[str, ToolCall] = {}
        """Open calls whose arguments hold a secret, as the model made them."""
        self._held: list[Entry] = []
        self._flying: list[Entry] = []
        """Handed to the store and not committed yet."""
        self._taken: list[int] = []
        self._act: asyncio.Task[None] | None = None
        self.interrupting = False
        """Whether the user has interrupted and it is not written down yet."""
        self.wakes = Wakes(self)
        self._loop = asyncio.get_running_loop()
        self._broken: BaseException | None = None
        self._in_flight = 0
        self._snapshot_seq = log.snapshot.seq if log.snapshot is not None else 0

    # --- writing ---------------------------------------------------------------------------------------------

    def append(self, *events: AnyEvent) -> int:
        """Fold `events` in and hold them for the next commit; gives the last seq."""
        for event in events:
            clean = redacted(event, self.crew.redact)
            if isinstance(event, Replied) and isinstance(clean, Replied) and clean is not event:
                self._said.update(changed_calls(event, clean))
            elif isinstance(event, ToolEnded):
                self._said.pop(event.call, None)
            entry = Entry(self.state.seq + 1, self.crew.clock.wall_us(), clean)
            self.state = advance(self.state, entry, self._entries_to)
            self._held.append(entry)
        self.lasting.note(self.state)
        return self.state.seq

    def as_said(self, call: ToolCall) -> ToolCall:
        """An open call with the arguments that the model gave, also where the log holds a marker for a secret in them.

        After a crash they are those of the log, and what must not be done with a marker is refused.
        """
        return unwrapped(self._said[call.id]) if call.id in self._said else call

    def _entries_to(self, seq: int) -> list[Entry]:
        held = [entry for entry in self._held if entry.seq <= seq]
        last = self._held[0].seq - 1 if self._held else seq
        return [*self.crew.history(1, min(seq, last)), *held]

    def entries_from(self, first: int) -> list[Entry]:
        """All entries from `first` on, also those that are not committed yet."""
        young = [*self._flying, *self._held]
        last = young[0].seq - 1 if young else self.state.seq
        return [*self.log.history(first, last), *(entry for entry in young if entry.seq >= first)]

    def commit(self, *, flush: bool, beside: "Sequence[Session]" = ()) -> "asyncio.Future[None]":
        """Hand what is held to the store. The future is done when it is committed, with `flush` when it is on disk.

        `beside`: subagents whose entries are written in the same transaction.
        """
        done: asyncio.Future[None] = self._loop.create_future()
        if self._broken is not None:
            done.set_exception(self._broken)
            retrieve_error(done)
            return done
        entries, taken = self._held, self._taken
        if not entries and not taken and not flush:
            done.set_result(None)
            return done
        those = [(one, *one._hand_over()) for one in (self, *beside)]
        more = [(one.log, held, gone) for one, held, gone in those[1:]]
        written = self.log.append(entries, flush=flush, take=taken, beside=more)
        written.add_done_callback(lambda w: self._loop.call_soon_threadsafe(self._committed, w, those, done))
        return done

    def keep_snapshot(self, *, due: int = 1) -> None:
        """Keep the folded state for the next open, in a quiet moment: when all is committed and at least `due` entries
        are new. A short log is folded as fast as a snapshot is read."""
        state = self.state
        if not self.quiet or state.seq - self._snapshot_seq < due:
            return
        if state.worth is None and state.seq < SNAPSHOT_FROM:
            return
        data = encode_state(state)
        if data and self.log.keep_snapshot(Snapshot(state.seq, data)) is not None:
            self._snapshot_seq = state.seq

    def _hand_over(self) -> tuple[list[Entry], list[int]]:
        entries, taken = self._held, self._taken
        self._held, self._taken = [], []
        self._flying += entries
        self._in_flight += 1
        return entries, taken

    def _committed(
        self,
        written: "Future[None]",
        those: "Sequence[tuple[Session, list[Entry], list[int]]]",
        done: "asyncio.Future[None]",
    ) -> None:
        error = written.exception()
        for one, entries, _ in those:
            one._in_flight -= 1
            del one._flying[: len(entries)]
            one._broken = one._broken or error  # the first one says what is wrong, later ones only follow from it
            if entries and error is None:
                one.readers.commit(entries)
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(self._broken or error)
            done.exception()  # it is raised by the next commit too, so nobody need have waited for this one

    @property
    def quiet(self) -> bool:
        """Whether all that was appended is committed."""
        return not self._held and not self._in_flight

    def take(self, number: int) -> None:
        """Delete an inbox message in the next commit."""
        self._taken.append(number)

    # --- frontends -------------------------------------------------------------------------------------------

    @property
    def pending(self) -> Sequence[Pending]:
        """The user's words not yet taken, also those for subagents."""
        below = self.company.pending if self.company is not None else ()
        return [*self.inbox.pending, *below]

    @property
    def busy(self) -> bool:
        """Whether a turn is going on."""
        return self._act is not None or (self.state.turn_open and not self.paused)

    def tell(self, word: Word) -> Awaitable[None]:
        """Put a word into the inbox at once, or into that of the subagent it is for; done when it is on disk."""
        if isinstance(word, StopTask) and self.desk is not None:
            self.desk.stop(word.task)  # at once, whatever runs; the inbox has it for a crash before it obeys
        child = for_child(word)
        if not child or child == self.id:
            return self.inbox.put(word)
        told = self.company.tell(word, child) if self.company is not None else None
        if told is None:
            self.notice("that subagent does not work any more, so that it cannot be told anything")
            told = self._loop.create_future()
            told.set_result(None)
        return told

    def unqueue(self, number: int = 0) -> str:
        """Take waiting words (the newest when 0), also those for a subagent, back for editing; '' when there are
        none."""
        taken = self.inbox.take_back(number)
        if taken is None:
            return self.company.unqueue(number) if self.company is not None else ""
        self.take(taken[0])
        self.commit(flush=False)
        return text_of(taken[1].parts)

    def cancel(self, call: str) -> None:
        """Stop one running call; the others go on. No effect on one that does not run."""
        if call in self.running and call not in self.cancelled:
            self.cancelled[call] = None
            self.running[call].cancel()

    def stops(self, call: str) -> bool:
        """Whether somebody wants this call to stop: all that runs, or just this one."""
        return self.interrupting or call in self.cancelled

    def interrupt(self) -> None:
        """Stop what is running, now."""
        if not self.busy or self.interrupting:
            return
        self.interrupting = True
        if self._act is not None:
            self._act.cancel()
        self.inbox.poke()

    def agents(self) -> Sequence[AgentView]:
        """See `SessionPort.agents`."""
        return self.company.views() if self.company is not None else ()

    def tasks(self) -> Sequence[TaskView]:
        """See `SessionPort.tasks`."""
        return self.desk.views() if self.desk is not None else ()

    def background(self) -> bool:
        """See `SessionPort.background`."""
        return self.desk is not None and self.desk.background()

    def stay(self, how: str, limit_s: float = 0.0) -> None:
        """See `SessionPort.stay`."""
        self.wakes.stay(how, limit_s)

    async def leave(self, policy: str) -> Sequence[TaskView]:
        """Before `close`, between two turns: `stop` ends every task, `keep` those that may not outlive longrein. Gives
        those that go on."""
        return await self.commands.leave(policy) if self.commands is not None else ()

    def follow(self, seq: int = 0, *, streaming: bool = True) -> AsyncIterator[Heard]:
        """Entries after `seq`, then live news; without `streaming` neither replies nor output while they grow."""
        return self.readers.follow(seq, streaming=streaming)

    def notice(self, text: str) -> None:
        """One line for the user."""
        self.readers.publish(Noticed(self.crew.redact(text)))

    # --- the loop's needs ------------------------------------------------------------------------------------

    @property
    def agent_port(self) -> SubagentPort | None:
        """Subagents, for tools; None where none may be started."""
        return None

    def expect(self, name: str) -> None:
        """A call of tool `name` begins to stream in: what is slow to start for it is started meanwhile."""
        tool = self.crew.tools.get(name)
        if self.crew.pool is not None and tool is not None and tool.access == "command":
            self.crew.pool.supervision.warm()

    @property
    def desk(self) -> TaskDesk | None:
        """Its commands and those of subagents below it; None while nobody in the tree has run one."""
        pool = self.crew.pool
        return self.open_commands() if pool is not None and pool.members else self.commands

    def open_commands(self) -> TaskDesk | None:
        """Its commands; None where there is no supervisor."""
        if self.commands is None and self.crew.pool is not None and self.crew.desk is not None:
            self.commands = self.crew.desk(self, self.crew.pool)
        return self.commands

    @property
    def rules(self) -> Rules:
        """What holds now: the settings, what the user allowed for this session, and the same of all above it."""
        rules = self.crew.rules if self.crew.above is None else self.crew.above.rules
        allowed = self.state.rules
        return msgspec.structs.replace(rules, allow=(*rules.allow, *allowed)) if allowed else rules

    @property
    def mode(self) -> str:
        """The permission mode that holds now; below another session it is no wider than there.

        A narrower one holds for those below as soon as the user has set it, while a call still runs here.
        """
        if self.crew.above is not None:
            return self.crew.above.mode
        wanted = self.inbox.mode_wanted
        return narrower(self.state.mode, wanted) if wanted else self.state.mode

    @property
    def process_session(self) -> str:
        """Session that processes belong to: the root of the tree."""
        return self.id if self.crew.above is None else self.crew.above.process_session

    @property
    def prefix_sources(self) -> tuple[SourceFile, ...]:
        """Files that stand in the static context."""
        return self.state.prefix.sources if self.state.prefix else ()

    @property
    def _limits(self) -> Limits:
        """What the next request may use, with what is left to the whole tree."""
        limits = self.wakes.limits
        return limits if self.company is None else self.company.within(limits)

    @property
    def outlook(self) -> Outlook:
        """What `next_move` may know beside the log."""
        crew = self.crew
        return Outlook(
            budget=crew.model.budget,
            limits=self._limits,
            jitter=crew.jitter(),
            paused=self.paused,
            fallback="" if crew.fallback == crew.model.name else crew.fallback,
            rested=self.rested,
            seed=self.state.profile.startswith("seed"),
            now_us=crew.clock.wall_us(),
            task_s=self.lasting.task_s,
            summarising=self.beside.running,
            pressed=self.memory.pressed,
        )

    async def perform(self, act: Coroutine[Any, Any, None]) -> None:
        """Do one act so that an interrupt can cut it; the act itself records how it was cut.

        It runs in the walk's own task: one of its own would cost a round of the event loop for each act.
        """
        walk = asyncio.current_task()
        assert walk is not None
        if self.closed:
            act.close()
            return
        self._act = walk
        if self.interrupting:
            walk.cancel()
        try:
            await act
        except asyncio.CancelledError:
            if not self.interrupting and not self.closed:
                raise
        finally:
            self._act = None
        if self.interrupting:
            walk.uncancel()
        elif walk.cancelling() and not self.closed:
            raise asyncio.CancelledError  # the walk itself was cancelled, and the act made a result of it

    def settle_interrupt(self) -> None:
        """Write down that the user interrupted, when they did."""
        if self.interrupting:
            self.interrupting = False
            if self.state.turn_open or self.state.calls or self.state.compact_wanted is not None:
                self.append(Interrupted(INTERRUPTED, tuple(self.state.calls)))

    def poke(self) -> None:
        """Let the loop look again."""
        self.inbox.poke()

    async def wait_word(self) -> None:
        """Until somebody says something, interrupts or closes; other processes' messages are looked for meanwhile."""
        if not self.interrupting and not self.closed:
            await self.inbox.wait(self.crew.clock)

    async def close(self) -> None:
        """End what runs, flush the log, release the lock. Idempotent."""
        if self.closed:
            return
        self.closed = True
        try:
            await self._end_all()
        finally:  # also when the disk is full: nobody is kept out, or waits for more
            await self.log.close()
            self.readers.close()

    async def _end_all(self) -> None:
        self.inbox.poke()
        if self._act is not None:
            self._act.cancel()
        if self.walk is not None and self.walk is not asyncio.current_task():
            await asyncio.wait([self.walk], timeout=CLOSE_WAIT_S)
        if self.company is not None:
            await self.company.close()
        self.wakes.stop()
        if self.commands is not None:
            await self.commands.close()
        await self.beside.stop(self)
        if self.crew.goals is not None:
            await self.crew.goals.by(owner_of(self.process_session, self.state.label)).leave()
        if self._held:
            await self.commit(flush=True)
        self.keep_snapshot()
        if self.crew.above is None:  # what all agents of a tree share goes with its root
            await self.crew.workspace.spawner.drain()
        if self.crew.model is not self._lent:
            await self.crew.model.aclose()

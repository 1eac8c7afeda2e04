"""An open session: the only writer of its log.

`append` folds an entry into the state and holds it; `commit` hands all held entries to the store in
one transaction. A side effect comes after a commit with `flush`, so the entries it relies on are on
disk first.
"""

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Mapping,
    Sequence,
)
from concurrent.futures import Future
from functools import cached_property
from typing import Any, TypeVar

import msgspec

from longrein.agent.dependencies import Dependencies, narrower
from longrein.agent.inbox import Inbox
from longrein.agent.messages import (
    Answer,
    InboxMessage,
    Rewind,
    SessionUpdate,
    UserNotice,
    approval_digest,
    for_subagent,
)
from longrein.agent.redaction import DeltaRedactor, RedactingBlobs, changed_calls, redacted
from longrein.agent.session_part import BackgroundTasks, Checkpoints, SessionPart
from longrein.agent.shared_files import FileWatcher
from longrein.agent.subscribers import Subscribers
from longrein.permissions import Rules, with_tool_names
from longrein.store import Log, Snapshot, owner_of
from longrein.tools import alias_names
from longrein.workspace.sandbox import MaskIndex
from longrein_context import State, advance
from longrein_context.events import (
    AnyEvent,
    Entry,
    FilePut,
    Interrupted,
    LongreinError,
    PermissionAsked,
    Replied,
    ToolCall,
    ToolEnded,
    kind_of,
    redactor,
    unwrapped,
)
from longrein_context.snapshot_codec import decode_state, encode_state

P = TypeVar("P", bound=SessionPart)

CLOSE_WAIT_S = 5.0
"""Wait of `close` for the loop to end; only a stuck disk takes longer than a moment."""
SNAPSHOT_FROM = 500
"""Log length in entries from which a snapshot is worthwhile even without data of the clearing
policy.
"""
SNAPSHOT_EVERY = 1_000
"""Entries within a turn after which a snapshot is kept."""
BY_USER = "interrupted by the user"
"""Text that the model is told."""


def retrieve_error(done: "asyncio.Future[Any]") -> None:
    """Mark the error of a future as seen, so that asyncio logs no traceback.

    For work that fails when the log cannot be written: each later commit raises the same error.
    """
    if not done.cancelled():
        done.exception()


def resolved_future() -> "asyncio.Future[None]":
    """Return a future that is done."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    done.set_result(None)
    return done


def state_of(session: str, kept: Snapshot | None) -> State | None:
    """Return the state in a snapshot of `session`; None where it holds none that can be used."""
    state = decode_state(kept.state) if kept is not None else None
    if kept is None or state is None:
        return None
    if (state.seq, state.session) != (kept.seq, kept.original or session):
        return None
    if kept.original:  # a fork's first entry differs from its original's in the id alone
        state.session = state.route = session
    return state


class Approvals:
    """Approvals of this run. Answers that only the log holds count for nothing: it could be
    edited.
    """

    def __init__(self) -> None:
        self.digests: dict[str, str] = {}
        """Open call -> digest of the bytes that were shown."""
        self.arguments: dict[str, dict[str, Any]] = {}
        """Open call -> arguments that an answer put in place of the model's."""
        self.rules: tuple[str, ...] = ()
        self.changed_tools: tuple[str, ...] = ()
        """Tools of other programs that have changed: asked about, whatever rules allowed before."""
        self.mode_restored = False
        """True if the mode comes from the log."""
        self.earlier_calls: frozenset[str] = frozenset()
        """Calls of an earlier run, where the mode is restored: a mode wider than `default` does
        not hold for them.
        """
        self.hook_inputs: dict[str, dict[str, Any]] = {}
        """Open call -> arguments that a hook has put in place of the model's."""

    def ask_again(self, tools: Iterable[str]) -> None:
        """Ask about tools whose definition has changed: what allowed them allowed other tools."""
        self.changed_tools = tuple(dict.fromkeys((*self.changed_tools, *tools)))

    def forget(self, call: str) -> None:
        """Forget a call that has ended."""
        for known in (self.digests, self.arguments, self.hook_inputs):
            known.pop(call, None)


# --- Elapsed times --------------------------------------------------------------------------------
#
# Measured on the monotonic clock, so that setting the wall clock or waking a laptop cannot trigger
# a limit or make an agent look hung. The time of an entry is wall time and only for display.


class ElapsedTimes:
    """Elapsed times of one session; notified of each appended entry."""

    def __init__(self, mono_s: Callable[[], float], state: State) -> None:
        """Count the time an earlier run spent on the present task, but not the time in between."""
        self._mono_s = mono_s
        self._entry_s = mono_s()
        self._began_at = state.began_at
        self._over_s: float | None = None
        self._began_s = self._entry_s - (
            max(0, state.at - state.began_at) / 1e6 if state.began_at else 0.0
        )

    def note(self, state: State) -> None:
        """Register an appended entry, which may start a new task."""
        self._entry_s = self._mono_s()
        if state.began_at != self._began_at:
            self._began_at = state.began_at
            self._began_s = self._entry_s
            self._over_s = None

    @property
    def quiet_s(self) -> float:
        """Seconds since the last entry."""
        return self._mono_s() - self._entry_s

    @property
    def task_s(self) -> float:
        """Seconds from the start of the present task until now, or until its end."""
        return (self._mono_s() if self._over_s is None else self._over_s) - self._began_s

    def stop(self) -> None:
        """Stop the clock of the task; its end is recorded later."""
        self._over_s = self._mono_s()


# --- Session --------------------------------------------------------------------------------------


class Session:
    """State and log of one session. All methods belong to the loop's thread."""

    stop_reason = BY_USER
    """Words about an interrupt; a frontend that a signal ends sets its own."""

    def __init__(self, log: Log, deps: Dependencies, state: State) -> None:
        self.log = log
        self.deps = deps
        self.state = state
        # `last_run_us`: time of the last entry of the run before this one, microseconds UTC
        self.id, self.last_run_us = log.session, state.at
        self.blobs = RedactingBlobs(log, deps.redact, deps.secrets)
        self.inbox = Inbox(log, deps.redact)
        self.subscribers = Subscribers(log.history, self.state.seq, deps.parent_policy)
        self.parts: list[SessionPart] = []
        """In the order in which they are told what happens."""
        self.paused = self.state.turn_open
        """True while a turn that a crash cut waits for the user to continue it."""
        self.elapsed = ElapsedTimes(deps.clock.mono_s, state)
        keep_bytes_max = deps.options.keep_bytes_max
        self.file_watcher = FileWatcher(
            deps.workspace, self.blobs, deps.redact, keep_bytes_max, state.at
        )
        """Cache of file stamps; saves reading unchanged files again."""
        self.masks = MaskIndex()  # files that rules forbid to read and to change
        self.paused_failures = 0
        """Failures in a row for which a pause was made."""
        self.has_told_cut = False
        """True once the user knows that the server drops part of the prompt."""
        self.folders_seen: dict[tuple[str, int], None] = {}
        """Folders already searched for instruction files; a cache."""
        self.loop_task: asyncio.Task[None] | None = None
        """The asyncio task that runs the main loop."""
        self.running: dict[str, asyncio.Task[Any]] = {}
        """The asyncio task of each running call."""
        self.cancelled: dict[str, None] = {}  # running calls that were cancelled one by one
        self._shared_model = None if deps.parent_policy is None else deps.model
        """Model that is shared with other sessions; a model opened later belongs to this
        session.
        """
        self.closed = False
        self.end_reason = "other"
        """Reason for closing: `prompt_input_exit`, `clear`, `resume` or `other`."""
        self.ignores_inbox = False
        """True when messages stay in the inbox: the session was told to end, and a message would
        start a turn.
        """
        self.judged_paths: dict[str, dict[str, str]] = {}
        """Call id -> path as given -> real path that was judged, or shown to the user."""
        self._original_calls: dict[str, ToolCall] = {}
        """Open calls whose arguments hold a secret, as the model made them."""
        self._held: list[Entry] = []
        self._committing: list[Entry] = []  # handed to the store and not committed yet
        self._taken: list[int] = []
        self._act: asyncio.Task[None] | None = None
        self.approvals = Approvals()
        self.interrupting = False
        """True when the user has interrupted and the log does not say so yet."""
        self._restoring: dict[Rewind, asyncio.Future[Sequence[FilePut]]] = {}
        self._loop = asyncio.get_running_loop()
        self.failure: BaseException | None = None
        self._in_flight = 0
        self._snapshot_seq = log.snapshot.seq if log.snapshot is not None else 0

    # --- writing ----------------------------------------------------------------------------------

    def append(self, *events: AnyEvent) -> int:
        """Fold events into the state and hold them for the next commit; return the last seq."""
        for event in events:
            clean = redacted(event, self.deps.redact)
            if isinstance(event, Replied) and isinstance(clean, Replied) and clean is not event:
                self._original_calls.update(changed_calls(event, clean))
            elif isinstance(event, ToolEnded):
                self._original_calls.pop(event.call, None)
                self.approvals.forget(event.call)
            entry = Entry(self.state.seq + 1, self.deps.clock.wall_us(), clean)
            self.state = advance(self.state, entry, self)
            self._held.append(entry)
        self.elapsed.note(self.state)
        return self.state.seq

    def delta_redactor(self) -> DeltaRedactor:
        """Return a redactor of one answer while it streams."""
        return DeltaRedactor(self.deps.redact, self.deps.secrets, words=self.deps.own_patterns)

    def original_call(self, call: ToolCall) -> ToolCall:
        """Return an open call with the arguments that the model gave, secrets included, or those of
        an answer or hook.

        After a crash the arguments are those of the log, with markers in place of secrets; tools
        refuse to act on a marker.
        """
        original = (
            unwrapped(self._original_calls[call.id]) if call.id in self._original_calls else call
        )
        approvals = self.approvals
        changed = approvals.arguments.get(call.id, approvals.hook_inputs.get(call.id))
        return (
            original
            if changed is None
            else msgspec.structs.replace(original, arguments=changed, received="")
        )

    def history(self, first: int, last: int, /) -> list[Entry]:
        """Return entries `first` to `last`, uncommitted ones included."""
        young = [*self._committing, *self._held]
        stored = min(last, young[0].seq - 1) if young else last
        wanted = (entry for entry in young if first <= entry.seq <= last)
        return [*self.log.history(first, stored), *wanted]

    def entries_from(self, first: int) -> list[Entry]:
        """Return all entries from `first` on, uncommitted ones included."""
        return self.history(first, self.state.seq)

    def entries_of(self, *kinds: str, after: int = 0) -> list[Entry]:
        """Return the entries behind seq `after` whose events have these stored types, in order,
        uncommitted ones included.
        """
        young = [*self._committing, *self._held]
        end = young[0].seq if young else self.state.seq + 1
        stored = [entry for entry in self.log.of_kind(*kinds, after=after) if entry.seq < end]
        wanted = [one for one in young if one.seq > after and kind_of(one.event) in kinds]
        return [*reversed(stored), *wanted]

    def state_before(self, seq: int, /) -> State | None:
        """Return the nearest stored state that the log had at entry `seq` or before."""
        return state_of(self.log.session, self.log.snapshot_before(seq))

    def commit(self, *, flush: bool, beside: "Sequence[Session]" = ()) -> "asyncio.Future[None]":
        """Hand the held entries to the store.

        The returned future is done when they are committed, with `flush` when they are on disk.
        `beside`: subagents whose entries go into the same transaction.
        """
        if self.failure is None and not self._held and not self._taken and not flush:
            return resolved_future()
        done: asyncio.Future[None] = self._loop.create_future()
        if self.failure is not None:
            done.set_exception(self.failure)
            retrieve_error(done)
            return done
        those = [(one, *one._hand_over()) for one in (self, *beside)]
        (_, entries, taken), *others = those
        more = [(one.log, held, gone) for one, held, gone in others]
        written = self.log.append(entries, flush=flush, take=taken, beside=more)
        written.add_done_callback(
            lambda w: self._loop.call_soon_threadsafe(self._committed, w, those, done)
        )
        return done

    def keep_snapshot(self, *, due: int = 1) -> None:
        """Store a snapshot when everything is committed and at least `due` entries are new.

        A short log gets none: it is folded as fast as a snapshot is read.
        """
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
        self._committing += entries
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
            del one._committing[: len(entries)]
            one.failure = one.failure or error  # later errors only follow from the first
            if entries and error is None:
                one.subscribers.commit(entries)
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(self.failure or error)
            done.exception()  # the next commit raises it too

    @property
    def quiet(self) -> bool:
        """True when everything appended is committed."""
        return not self._held and not self._in_flight

    def take(self, number: int) -> None:
        """Delete an inbox message in the next commit."""
        self._taken.append(number)

    # --- frontends --------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """True while a turn is in progress."""
        return self._act is not None or (self.state.turn_open and not self.paused)

    def tell(self, message: InboxMessage) -> Awaitable[None]:
        """Put a message into the inbox of this session or of the subagent it is for. `/name` of a
        skill or command is replaced by its text.

        The awaitable is done when the message is on disk; it need not be awaited. It raises
        `UsageError` for a command that cannot be used, such as one whose file runs what is not
        allowed.
        """
        for part in self.parts:
            told = part.tell(message)
            if told is not None:
                return told
        if for_subagent(message) in ("", self.id):
            return self.inbox.put(message)
        self.notice("that subagent does not work any more, so that it cannot be told anything")
        return resolved_future()

    def grant(self, answer: Answer, question: PermissionAsked) -> Answer:
        """Grant the rules of an answer to `question`; return it with the rules as they are stored,
        as a single answer where they were not proposed.
        """
        rules, proposed = (
            answer.rule.splitlines(),
            [*question.suggestion.splitlines(), question.exact],
        )
        wrong_digest = answer.digest not in ("", approval_digest(question))
        if (
            answer.scope == "once"
            or answer.verdict != "allow"
            or not rules
            or wrong_digest
            or not {*rules} <= {*proposed}
        ):
            return msgspec.structs.replace(answer, scope="once", rule="")
        from longrein.permissions.rule_evaluation import granted_rule

        rules = [granted_rule(rule, self.rules.base) for rule in rules]
        if answer.scope == "always":
            try:
                self.deps.remember_rule("\n".join(rules))
            except LongreinError as error:
                self.notice(str(error))
                return msgspec.structs.replace(answer, scope="once", rule="")
        self.approvals.rules = tuple(dict.fromkeys((*self.approvals.rules, *rules)))
        self.approvals.changed_tools = tuple(
            tool for tool in self.approvals.changed_tools if tool not in rules
        )
        return msgspec.structs.replace(answer, rule="\n".join(rules))

    def cancel(self, call: str) -> None:
        """Cancel one running call; the others continue. No effect on a call that is not running."""
        if call in self.running and call not in self.cancelled:
            self.cancelled[call] = None
            self.running[call].cancel()

    def restored(self, message: Rewind) -> "asyncio.Future[Sequence[FilePut]]":
        """Return the outcome of each file once the session has carried out this rewind of the
        files alone.
        """
        return self._restoring.setdefault(message, asyncio.get_running_loop().create_future())

    def tell_restored(self, message: Rewind, puts: Sequence[FilePut]) -> None:
        """Tell who waits for it what a rewind of the files has done."""
        waiting = self._restoring.pop(message, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(puts)

    def stops(self, call: str) -> bool:
        """Return True if this call, or everything that runs, is to stop."""
        return self.interrupting or call in self.cancelled

    def interrupt(self) -> None:
        """Stop what is running. Queued messages stay. No effect when idle."""
        if not self.busy or self.interrupting:
            return
        self.interrupting = True
        if self._act is not None:
            self._act.cancel()
        self.inbox.poke()

    def follow(self, seq: int = 0, *, streaming: bool = True) -> AsyncIterator[SessionUpdate]:
        """Yield entries after `seq`, then live ones as they are committed, with provisional
        updates.

        Ends at `close`. Without `streaming`, no `ReplyDelta` and no `Output` is produced.
        """
        return self.subscribers.follow(seq, streaming=streaming)

    def notice(self, text: str) -> None:
        """Show the user one line."""
        self.subscribers.publish(UserNotice(self.deps.redact(text)))

    def hide(self, secrets: Sequence[str]) -> None:
        """Mask further secrets in this session from now on."""
        if not secrets:
            return
        before, more = self.deps.redact, redactor(tuple(secrets), self.state.nonce, ())
        self.deps.redact = lambda text: more(before(text))
        self.deps.secrets = (*self.deps.secrets, *secrets)

    # --- parts ------------------------------------------------------------------------------------

    def add(self, part: P) -> P:
        """Add a part in its place; return it."""
        self.parts.append(part)
        self.parts.sort(key=lambda one: one.rank)
        part.session = self
        part.opened()
        return part

    def parts_with(self, method: Callable[..., Any]) -> list[SessionPart]:
        """Return the parts that override a method of `SessionPart`, in their order."""
        name = method.__name__
        return [part for part in self.parts if getattr(type(part), name) is not method]

    def find(self, kind: type[P]) -> P | None:
        """Return the part of a type; None where there is none or it was not opened yet."""
        return next((one for one in self.parts if isinstance(one, kind)), None)

    def part(self, kind: type[P]) -> P:
        """Return the part of a type that every open session has."""
        found = self.find(kind)
        assert found is not None, f"an open session has its {kind.__name__}"
        return found

    def open(self, kind: type[P]) -> P | None:
        """Return the part of a type, opened with the first use; None where there is none."""
        found = self.find(kind)
        make = self.deps.parts.get(kind) if found is None else None
        if make is None:
            return found
        self.add(make())
        return self.find(kind)

    def ensure(self, kind: type[P]) -> P:
        """Return the part of a type, made with its defaults where the session has none."""
        return self.open(kind) or self.add(kind())

    # --- the loop's needs -------------------------------------------------------------------------

    def expect(self, name: str) -> None:
        """Prepare for a call of tool `name`, which begins to stream in: for a command, start the
        supervisor and look at the work tree.
        """
        tool = self.deps.tools.get(name)
        if tool is None or tool.access != "command":
            return
        self.deps.workspace.spawner.warm()  # it starts while this process imports the parts
        for part in (self.open(BackgroundTasks), self.open(Checkpoints)):
            if part is not None:
                part.warm()

    @property
    def rules(self) -> Rules:
        """Permission rules now, by the own names of tools: settings, those granted in this run,
        and those of its parents.
        """
        rules = (
            self.deps.rules if self.deps.parent_policy is None else self.deps.parent_policy.rules
        )
        allowed = self.approvals.rules
        rules = msgspec.structs.replace(rules, allow=(*rules.allow, *allowed)) if allowed else rules
        if self.approvals.changed_tools:
            rules = msgspec.structs.replace(rules, ask=(*rules.ask, *self.approvals.changed_tools))
        for part in self.parts:
            rules = part.rules(rules)
        return with_tool_names(rules, self.alias_names)

    @cached_property
    def alias_names(self) -> Mapping[str, str]:
        """Tools by their names in other agents, which rules may use."""
        return alias_names(self.deps.tools.values())

    @property
    def mode(self) -> str:
        """Permission mode now, never wider than the parent's.

        A narrower mode applies to subagents as soon as the user has set it, even while a call runs
        here.
        """
        if self.deps.parent_policy is not None:
            return self.deps.parent_policy.mode
        wanted = self.inbox.mode_wanted
        return narrower(self.state.mode, wanted) if wanted else self.state.mode

    @property
    def process_session(self) -> str:
        """Session that owns the processes: the root of the tree."""
        return self.id if self.deps.parent_policy is None else self.deps.parent_policy.root_id

    def call_id(self, call: str) -> str:
        """Name of a call that no other session has; '' for none."""
        return f"{self.id}/{call}" if call else ""

    async def perform(self, act: Coroutine[Any, Any, None]) -> None:
        """Run one move so that an interrupt can cancel it; the move records its own end.

        It runs in the loop's task: a task of its own would cost a round of the event loop for each
        move.
        """
        loop_task = asyncio.current_task()
        assert loop_task is not None
        if self.closed:
            act.close()
            return
        self._act = loop_task
        if self.interrupting:
            loop_task.cancel()
        try:
            await act
        except asyncio.CancelledError:
            if not self.interrupting and not self.closed:
                raise
        finally:
            self._act = None
        if self.interrupting:
            loop_task.uncancel()
        elif loop_task.cancelling() and not self.closed:
            raise asyncio.CancelledError  # the loop was cancelled, and the move recorded that

    def settle_interrupt(self) -> None:
        """Record an interrupt by the user, if there was one."""
        if self.interrupting:
            self.interrupting = False
            if self.state.turn_open or self.state.calls or self.state.compact_wanted is not None:
                self.append(Interrupted(f"[{self.stop_reason}]", tuple(self.state.calls)))

    def poke(self) -> None:
        """Wake the loop."""
        self.inbox.poke()

    async def wait_for_message(self) -> None:
        """Wait for a message, an interrupt or `close`."""
        if not self.interrupting and not self.closed:
            await self.inbox.wait(self.deps.clock)

    async def close(self, reason: str = "other") -> None:
        """Stop what runs, flush the log, release the lock. Idempotent. `reason`: for hooks of
        `SessionEnd`.
        """
        if self.closed:
            return
        self.end_reason = reason
        self.closed = True
        try:
            await self._end_all()
        finally:  # also on a full disk: release the lock and end the subscribers
            await self.log.close()
            self.subscribers.close()

    async def _end_all(self) -> None:
        self.inbox.poke()
        if self._act is not None:
            self._act.cancel()
        if self.loop_task is not None and self.loop_task is not asyncio.current_task():
            await asyncio.wait([self.loop_task], timeout=CLOSE_WAIT_S)
        for part in [*self.parts]:
            await part.close()
        if self.deps.goals is not None:
            await self.deps.goals.by(owner_of(self.process_session, self.state.label)).leave()
        if self._held:
            await self.commit(flush=True)
        self.keep_snapshot()
        for part in self.parts:
            await part.release()
        if self.deps.parent_policy is None:  # shared by the tree, so closed by its root
            await self.deps.workspace.spawner.drain()
            if self.deps.sandbox is not None:
                await self.deps.sandbox.close()
        if self.deps.model is not self._shared_model:
            await self.deps.model.aclose()

"""longrein as a library: one class around the session that terminal and headless run use."""

import asyncio
import re
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from types import TracebackType
from typing import Any, Literal, NoReturn, TypedDict, TypeVar, Unpack, overload

from longrein.agent import (
    Answer,
    Compact,
    Continue,
    FromSubagent,
    InboxMessage,
    OpenSession,
    Rewind,
    RewindPreview,
    SessionUpdate,
    SubagentView,
    UserMessage,
    program_event,
    retrieve_error,
    session_usd,
)
from longrein.app import Additions, App, AppSession, ProgramServers
from longrein.app.run_context import read_run_context
from longrein.app.user_requests import without_blanks
from longrein.choices import MODES, PermissionMode
from longrein.frontends.stdio import say
from longrein.frontends.subcommands import MAIN
from longrein.models import Model
from longrein.options import Options
from longrein.tools import TaskView, Tool
from longrein_context.events import (
    AnyPart,
    Entry,
    LongreinError,
    PermissionAsked,
    Replied,
    SessionClosed,
    Text,
    TurnEnded,
    TurnFailed,
    UsageError,
    text_of,
)

T = TypeVar("T")
Approve = Callable[[PermissionAsked], bool | Awaitable[bool]]
"""Decide a call that asks for permission; `shown` has its exact bytes."""
NOBODY = (
    "nobody is there to approve it; `allow` has rules for calls that may run, `approve` "
    "decides each"
)
CLOSED = "the session was closed before the turn had ended"

# --- Words of the library -------------------------------------------------------------------------
#
# Settings, models and the main loop write their messages for the command line. What reaches a
# program passes `library_words`.


_ARGUMENTS = {
    "--add-dir": "the command line",
    "--allowed-tools": "allow",
    "--append-system-prompt": "instructions",
    "--disallowed-tools": "deny",
    "--tools": "builtin_tools",
    "--trust": "trust=True",
}
"""Flag -> the argument of `Session.open` in its place, where it is not called like the flag."""
_NAMES = "|".join(sorted((name[2:] for flag in MAIN.flags for name in flag.names), reverse=True))
_VALUE = rf"PROVIDER/MODEL|{'|'.join(MODES)}"
_FLAG = re.compile(rf"(?<![\w-])--({_NAMES})(?![\w-])(?: ({_VALUE})\b)?")
_RESUMED = re.compile(r"`longrein -c`|(?<=with )-c\b")


def library_words(text: str) -> str:
    """Return a message with arguments of `Session.open` in place of flags of the command line."""

    def argument(flag: "re.Match[str]") -> str:
        name = _ARGUMENTS.get(f"--{flag[1]}", flag[1].replace("-", "_"))
        return f"{name}={flag[2]!r}" if flag[2] else name

    return _FLAG.sub(argument, _RESUMED.sub("`Session.resume`", text))


@contextmanager
def _in_library_words() -> Iterator[None]:
    try:
        yield
    except LongreinError as error:
        error.args = (library_words(str(error)), *error.args[1:])
        raise


# --- Opening --------------------------------------------------------------------------------------


class SessionOptions(TypedDict, total=False):
    """Options of a session, all by name. What is not given comes from the settings."""

    state_dir: str
    """Folder of the session; '' for that of all others."""
    instructions: str
    """Text after longrein's system prompt."""
    system_prompt: str
    """Text in place of longrein's system prompt."""
    tools: Sequence[Tool]
    """Tools after the built-in ones."""
    mcp_servers: Mapping[str, Mapping[str, Any]] | None
    """Entries as in `mcpServers` of an `.mcp.json`, by name."""
    builtin_tools: Sequence[str] | None
    """Names of the built-in tools to offer; () for none, None for the usual ones."""
    permission_mode: PermissionMode | Literal[""]
    allow: Sequence[str]
    """Permission rules such as `Bash(make test)`."""
    deny: Sequence[str]
    trust: bool
    """Use the settings, subagent types and instruction files of the folder, which otherwise are
    read only where the user trusts it.
    """
    max_turns: int
    """Limit of the requests for one message; 0 for none."""
    max_budget_usd: float
    """Limit of the money of the session; 0 for none."""
    window: int
    """Tokens, in place of what is known of the model."""
    max_output: int
    """Tokens of the longest answer, likewise."""


class Opening:
    """A session being opened: `await` it, or open and close it by `async with`."""

    def __init__(self, opening: Coroutine[Any, Any, "Session"]) -> None:
        self._opening = opening
        self._session: Session | None = None

    def __await__(self) -> Generator[Any, None, "Session"]:
        return self._opening.__await__()

    async def __aenter__(self) -> "Session":
        self._session = await self._opening
        return self._session

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    def __enter__(self) -> NoReturn:
        self._refuse("`with` is not enough for a session: write")

    def __exit__(self, *_: object) -> None: ...

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") or not hasattr(Session, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        self._refuse(f"the session is not open yet, so it has no {name}: write")

    def _refuse(self, problem: str) -> NoReturn:
        self._opening.close()
        raise UsageError(
            f"{problem} `session = await Session.open(…)` or `async with Session.open(…) as "
            "session`"
        )


class Session:
    """An agent: it has a conversation, tools and a log on disk. Make one with `open` or `resume`.

        model = "anthropic/claude-sonnet-4-5"
        async with longrein.Session.open(model, allow=["Bash(make test)"]) as session:
            print(await session.ask("Why does the build fail?"))

    All of it belongs to the event loop it was opened in. Cancelling a method, as
    `asyncio.wait_for` does, ends the wait and never the turn: `interrupt` stops that. After
    `close` every method that acts raises `SessionClosed`.
    """

    def __init__(self, opened: AppSession) -> None:
        """Use `open` or `resume`."""
        self._session: OpenSession = opened.session
        self._opened_session = opened
        self._loop: asyncio.Task[None] | None = None
        self._work: set[asyncio.Future[Any]] = set()
        """What methods have begun. It goes on when they are cancelled."""
        self._approvals: set[asyncio.Future[bool]] = set()
        self._decided: set[tuple[str, str]] = set()
        """Questions that an `ask` has taken: session of the subagent, call."""
        self._closing: asyncio.Future[None] | None = None
        self._asks = 0

    @classmethod
    def open(
        cls, model: str | Model = "", *, folder: str = "", **options: Unpack[SessionOptions]
    ) -> Opening:
        """Open a new session in `folder` (default: the current one).

        `model` is `provider/model` or anything that keeps the contract of `longrein.models.Model`;
        '' for what settings and environment offer. `options` are those of `SessionOptions`:
        `state_dir`, `instructions`, `system_prompt`, `tools`, `mcp_servers`, `builtin_tools`,
        `permission_mode`, `allow`, `deny`, `trust`, `max_turns`, `max_budget_usd`, `window`,
        `max_output`. Raises `ModelUnknown`, `SettingsError`, `SessionError`, `BudgetError`, and
        `UsageError` for an argument that cannot be.
        """
        return Opening(cls._opened("", model, folder, options))

    @classmethod
    def resume(
        cls, session: str, model: str | Model = "", **options: Unpack[SessionOptions]
    ) -> Opening:
        """Open the stored session of that id, with the model and the permission mode it had unless
        others are named.

        `bypassPermissions` is never taken from what is stored: it must be named. `options` are
        those of `open`; tools and instructions are not stored, so name them again. Raises
        `SessionUnknown`, `SessionBusy`, `SessionReadOnly`, `StoreDamaged` and what `open` raises.
        """
        return Opening(cls._opened(session, model, "", options))

    @classmethod
    async def _opened(
        cls, session: str, model: str | Model, folder: str, given: SessionOptions
    ) -> "Session":
        _check(model, given)
        offered = given.get("builtin_tools")
        options = Options(
            model=model if isinstance(model, str) else "",
            state_dir=given.get("state_dir", ""),
            append_system_prompt=given.get("instructions", ""),
            system_prompt=given.get("system_prompt") or None,
            permission_mode=given.get("permission_mode", ""),
            allowed_tools=tuple(given.get("allow", ())),
            disallowed_tools=tuple(given.get("deny", ())),
            trust=given.get("trust", False),
            max_turns=given.get("max_turns", 0),
            max_budget_usd=given.get("max_budget_usd", 0.0),
        )
        additions = Additions(
            None if isinstance(model, str) else model,
            tuple(given.get("tools", ())),
            None if offered is None else tuple(offered),
            given.get("window", 0),
            given.get("max_output", 0),
            servers=ProgramServers(
                {n: dict(one) for n, one in (given.get("mcp_servers") or {}).items()},
                "mcp_servers",
                refuses_wrong=True,
            ),
        )
        with _in_library_words():
            app = App(read_run_context(options, folder=folder), say)
            opened = await app.open(session, fresh=not session, additions=additions)
        return cls(opened)

    async def __aenter__(self) -> "Session":
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _where: TracebackType | None,
    ) -> None:
        await self.close()

    async def ask(self, words: str | Sequence[AnyPart], *, approve: Approve | None = None) -> str:
        """Send a message, wait until its own turn ends, return the text of the answer.

        Several asks at once are answered one after the other, each with its own answer. A call of
        that turn that needs permission is decided by `approve`, a subagent's too; without it, it is
        denied and the model told so. A cancelled `ask` leaves the turn running, and `approve` goes
        on deciding. Raises `TurnFailed` when the turn ended without an answer: a limit, a budget,
        an interrupt, `close`, or a provider that failed; what `approve` raises, after an interrupt
        of the turn; `SessionClosed`.
        """
        answer = self._begin(self._answer_to(_parts(words), approve))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            if answer.cancelled():
                told = CLOSED if self._closing is not None else "`approve` was cancelled"
                raise TurnFailed(told, "interrupted") from None
            raise

    async def _answer_to(self, parts: tuple[AnyPart, ...], approve: Approve | None) -> str:
        start = self._session.subscribers.committed
        self._asks += 1
        reference = f"ask {self._asks}"
        await self._deliver(UserMessage(parts, reference=reference))
        first_entries = self._session.inbox.first_entries
        begun = False
        answer = ""
        questions: list[tuple[PermissionAsked, str]] = []
        async with aclosing(self.follow(start, children=True)) as news:
            async for one in news:
                if isinstance(one, FromSubagent):
                    if isinstance(one.heard, Entry) and isinstance(
                        one.heard.event, PermissionAsked
                    ):
                        questions.append((one.heard.event, one.child))
                    event = None
                else:
                    begun = begun or one.seq >= first_entries.get(reference, one.seq + 1)
                    event = one.event
                if not begun:
                    continue
                match event:
                    case PermissionAsked() as asked:
                        questions.append((asked, ""))
                    case Replied(parts=replied):
                        answer = text_of(replied)
                    case TurnEnded(reason="done") | TurnEnded(reason="blocked", message=""):
                        return answer
                    case TurnEnded(reason="blocked") if answer:
                        return answer
                    case TurnEnded(reason=reason, message=message):
                        told = message or f"the turn ended without an answer: {reason}"
                        raise TurnFailed(library_words(told), reason)
                while questions:
                    await self._decide(*questions.pop(0), approve)
        await self.wait()
        raise TurnFailed(CLOSED, "interrupted")

    async def _decide(self, asked: PermissionAsked, child: str, approve: Approve | None) -> None:
        if (child, asked.call) in self._decided:
            return
        self._decided.add((child, asked.call))
        if approve is None:
            await self.answer(asked.call, "deny", NOBODY, child=child)
            return
        try:
            allowed = await self._verdict(asked, approve)
        except (Exception, asyncio.CancelledError):
            if self._closing is None:
                self.interrupt()
            raise
        told = "" if allowed else "the program that runs this session denied it"
        await self.answer(asked.call, "allow" if allowed else "deny", told, child=child)

    async def _verdict(self, asked: PermissionAsked, approve: Approve) -> bool:
        verdict: object = approve(asked)
        if isinstance(verdict, Awaitable):
            waiting = asyncio.ensure_future(verdict)
            self._approvals.add(waiting)
            try:
                verdict = await waiting
            finally:
                self._approvals.discard(waiting)
        if isinstance(verdict, bool):
            return verdict
        raise UsageError(
            f"`approve` returned {verdict!r} for {asked.name}: return True to allow the call, "
            "False to deny it"
        )

    @property
    def notes(self) -> list[str]:
        """Lines for the user so far: rules that were ignored, servers that did not start, repairs.

        The same lines as the terminal shows at the start and beside the conversation.
        """
        lines = (*self._opened_session.notes, *self._session.subscribers.notices)
        return [library_words(line) for line in dict.fromkeys(lines)]

    @property
    def id(self) -> str:
        """The session's UUID."""
        return self._session.id

    @property
    def spent_usd(self) -> float:
        """US dollars spent so far, with subagents; lost requests count as spent."""
        return session_usd(self._session.state, self._session.agents())

    async def send(
        self,
        words: str | Sequence[AnyPart],
        *,
        how: Literal["prompt", "steer", "queued"] = "prompt",
        to: str = "",
    ) -> None:
        """Send a message; return when it is on disk.

        `steer` goes with the next request, `queued` waits for the end of the turn. `to` is the
        session of an active subagent (`SubagentView.child`), which gets it with its next request.
        """
        await self._tell(UserMessage(_parts(words), "steer" if to else how, to))

    async def happened(self, kind: str, text: str, *, source: str = "") -> None:
        """Report an event to the model; return when it is on disk.

        It goes with the next request, quoted as data, and starts no turn. `kind` is one of the
        kinds of docs/events.md, such as `diagnostics` or `program_message`; `source` is its
        subject, such as a file or a program. The same report is told once. Raises `UsageError` for
        another kind.
        """
        await self._tell(program_event(kind, text, source), starts_turn=False)

    async def go_on(self) -> None:
        """Continue a turn that a crash has cut."""
        await self._tell(Continue())

    async def compact(self, focus: str = "") -> None:
        """Compact before the next request; `focus` is what a summary should keep above all."""
        await self._tell(Compact(focus))

    async def rewind(
        self, to: int, *, files: bool = False, conversation: bool = True, overwrite: bool = False
    ) -> None:
        """Go back to entry `to`; with `files`, restore files too. What came after stays in the log.

        Returns when the wish is on disk, as `send` does; `wait` waits until all is restored.
        Without `conversation` only the files go back. `overwrite`: also files that somebody else
        has changed since.
        """
        await self._tell(Rewind(to, files, conversation, overwrite))

    async def preview_rewind(
        self, to: int, *, conversation: bool = True, overwrite: bool = False
    ) -> RewindPreview:
        """Return what `rewind(to, files=True)` would do to the files. Changes nothing."""
        self._check_open()
        return await self._shielded(
            self._session.preview_rewind(to, overwrite=overwrite, conversation=conversation)
        )

    async def answer(
        self, call: str, verdict: Literal["allow", "deny"], message: str = "", *, child: str = ""
    ) -> None:
        """Answer a `PermissionAsked`; `child` is the session of the subagent that asks
        (`FromSubagent.child`).
        """
        answer = Answer(call, verdict, message=message, by="user", session=child)
        await self._tell(answer, starts_turn=False)

    def agents(self) -> Sequence[SubagentView]:
        """Return the subagents as they are now, each followed by its own, finished ones
        included.
        """
        return self._session.agents()

    def tasks(self) -> Sequence[TaskView]:
        """Return the background tasks as they are now: running ones first."""
        return self._session.tasks()

    def interrupt(self) -> None:
        """Stop what is running: the turn ends, and messages that wait begin the next one."""
        self._check_open()
        self._session.interrupt()

    @overload
    def follow(self, seq: int = 0, *, forever: bool = False) -> AsyncGenerator[Entry, None]: ...
    @overload
    def follow(
        self, seq: int = 0, *, forever: bool = False, children: Literal[True]
    ) -> AsyncGenerator[Entry | FromSubagent, None]: ...
    async def follow(
        self, seq: int = 0, *, forever: bool = False, children: bool = False
    ) -> AsyncGenerator[Entry | FromSubagent, None]:
        """Yield entries after `seq` as they are committed, until the session rests.

        With `forever`, until it closes. With `children` also live entries of subagents, as
        `FromSubagent` with the entry in `heard`, such as their questions (`PermissionAsked`). They
        have no place in the order of `seq` and do not come again.
        """
        self._check_open()
        heard = self._session.follow(seq)
        coming = asyncio.ensure_future(anext(heard))
        try:
            while forever or not self._is_idle(seq):
                await self._wait_for_update(coming)
                if not coming.done():
                    continue
                news = coming.result()
                coming = asyncio.ensure_future(anext(heard))
                if isinstance(news, Entry):
                    seq = news.seq
                    yield news
                elif children and isinstance(news, FromSubagent) and isinstance(news.heard, Entry):
                    yield news
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()

    async def wait(self) -> None:
        """Wait until the session rests. Raises `StoreFull` and related errors when it could not
        continue.
        """
        if self._loop is not None:
            await self._shielded(self._loop)

    async def leave(self, tasks: Literal["stop", "keep"]) -> Sequence[TaskView]:
        """Stop background tasks before `close`, when the session rests; return those that continue.

        `stop` ends every task, `keep` only those that cannot outlive longrein. Without this call
        each task's own policy holds.
        """
        self._check_open()
        return await self._shielded(self._session.leave(tasks))

    async def close(self) -> None:
        """Stop what runs and release the session. Everything said and done is on disk. Idempotent.

        An `ask` that waits raises `TurnFailed`.
        """
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        for approval in self._approvals:
            approval.cancel()
        try:
            await self._session.close()
        finally:
            if self._loop is not None:
                await asyncio.wait([self._loop])
            await self._opened_session.finish()

    def _check_open(self) -> None:
        if self._closing is not None or self._session.closed:
            raise SessionClosed(
                f"this session is closed: open it again with `longrein.Session.resume({self.id!r})`"
            )

    async def _tell(self, inbox_message: InboxMessage, *, starts_turn: bool = True) -> None:
        await self._shielded(self._deliver(inbox_message, starts_turn=starts_turn))

    async def _deliver(self, inbox_message: InboxMessage, *, starts_turn: bool = True) -> None:
        self._check_open()
        with _in_library_words():
            await self._session.tell(inbox_message)
        if starts_turn and self._closing is None:
            self._start_loop()

    def _begin(self, work: Coroutine[Any, Any, T]) -> "asyncio.Future[T]":
        """Start work that the cancellation of its waiter does not end."""
        begun = asyncio.ensure_future(work)
        self._work.add(begun)
        begun.add_done_callback(self._end_work)
        return begun

    def _end_work(self, work: "asyncio.Future[Any]") -> None:
        self._work.discard(work)
        retrieve_error(work)  # its waiter gets the error, where it was not cancelled

    async def _shielded(self, work: "Coroutine[Any, Any, T] | asyncio.Future[T]") -> T:
        begun = work if isinstance(work, asyncio.Future) else self._begin(work)
        return await asyncio.shield(begun)

    def _start_loop(self) -> None:
        if self._loop is None or self._loop.done():
            self._loop = asyncio.ensure_future(self._session.run(once=True))

    async def _wait_for_update(self, coming: "asyncio.Future[SessionUpdate]") -> None:
        """Wait for an update, or for the main loop to end."""
        is_running = self._loop is not None and not self._loop.done()
        waited: list[asyncio.Future[Any]] = (
            [coming, self._loop] if is_running and self._loop else [coming]
        )
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    def _is_idle(self, seq: int) -> bool:
        idle = self._loop is None or self._loop.done()
        return idle and seq >= self._session.subscribers.committed


def _parts(words: str | Sequence[AnyPart]) -> tuple[AnyPart, ...]:
    given: object = [Text(words)] if isinstance(words, str) else words
    if isinstance(given, Sequence) and all(isinstance(part, AnyPart) for part in given):
        if parts := without_blanks(given):
            return parts
        raise UsageError("the message is empty")
    if isinstance(given, Coroutine):
        given.close()
        raise UsageError("a message is a text, not a coroutine: `await` is missing before it")
    raise UsageError(
        f"a message is a text or a list of parts of longrein_context.events, "
        f"not {type(given).__name__}"
    )


def _check(model: object, given: SessionOptions) -> None:
    """Raise `UsageError` for the first argument that cannot be."""
    if unknown := sorted(given.keys() - SessionOptions.__annotations__.keys()):
        known = ", ".join(SessionOptions.__annotations__)
        raise UsageError(f"a session has no option {unknown[0]}; it has {known}")
    for name in ("allow", "deny", "builtin_tools"):
        value = given.get(name)
        if isinstance(value, str):  # would be taken letter by letter
            raise UsageError(f"{name} is a list of texts, not a text: write {name}=[{value!r}]")
    if not isinstance(model, str) and not hasattr(model, "stream"):
        raise UsageError(f"model is 'PROVIDER/MODEL' or a longrein.models.Model, not {model!r:.60}")
    if not isinstance(model, str) and (given.get("window") or given.get("max_output")):
        raise UsageError(
            "window and max_output go with the name of a model: a model object has its own `budget`"
        )
    tools: object = given.get("tools", ())
    if not isinstance(tools, Sequence):
        raise UsageError(f"tools is a list of tools, not {type(tools).__name__}")
    for tool in tools:
        if isinstance(tool, Tool):
            continue
        if isinstance(tool, Coroutine):
            tool.close()
        name = getattr(tool, "__name__", repr(tool))
        raise UsageError(
            f"tools: {name} is a {type(tool).__name__}, not a tool: write @longrein.tool above an "
            "async function and give the function itself"
        )

"""longrein as a library: one class around the session that terminal and headless run use."""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from types import TracebackType
from typing import Any, Literal, overload

from longrein.agent import (
    Answer,
    Compact,
    Continue,
    FromSubagent,
    OpenSession,
    Rewind,
    RewindPreview,
    SessionUpdate,
    SubagentView,
    UserMessage,
    program_event,
    session_usd,
)
from longrein.composition import Additions, Composition, build
from longrein.config.environment import environment
from longrein.config.mcp_servers import read_server
from longrein.events import (
    AnyPart,
    Entry,
    PermissionAsked,
    Replied,
    Text,
    TurnEnded,
    TurnFailed,
    UsageError,
    text_of,
)
from longrein.frontends.argv import Options
from longrein.models import Model
from longrein.run_context import read_run_context
from longrein.tools import TaskView, Tool
from longrein.tools.mcp import McpServer

Approve = Callable[[PermissionAsked], bool | Awaitable[bool]]
"""Decide a call that asks for permission; `shown` has its exact bytes."""
NOBODY = (
    "nobody is there to approve it; `allow` has rules for calls that may run, `approve` "
    "decides each"
)


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


class Session:
    """An agent: it has a conversation, tools and a log on disk. Make one with `open` or `resume`.

        async with longrein.Session.open("anthropic/claude-sonnet-4-5", allow=["Bash(make test)"])
        as session:
            print(await session.ask("Why does the build fail?"))

    All of it belongs to the event loop it was opened in.
    """

    def __init__(self, built: Composition) -> None:
        """Use `open` or `resume`."""
        self._session: OpenSession = built.session
        self._built = built
        self._walk: asyncio.Task[None] | None = None

    @classmethod
    def open(  # noqa: PLR0913 - all that an agent can differ in
        cls,
        model: str | Model = "",
        *,
        folder: str = "",
        state_dir: str = "",
        instructions: str = "",
        system_prompt: str = "",
        tools: Sequence[Tool] = (),
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        builtin_tools: Sequence[str] | None = None,
        permission_mode: str = "",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        trust: bool = False,
        max_turns: int = 0,
        max_budget_usd: float = 0.0,
        window: int = 0,
        max_output: int = 0,
    ) -> Opening:
        """Open a new session in `folder` (default: the current one), kept in `state_dir` (default:
        with all others).

        `model` is `provider/model` or anything that keeps the contract of `longrein.models.Model`;
        '' for what settings and environment offer. `instructions` come after longrein's system
        prompt, `system_prompt` in its place. `tools` come after the built-in ones; `mcp_servers`
        has entries as in `mcpServers` of an `.mcp.json`, by name; `builtin_tools` names the
        built-in ones to offer, () for none. `permission_mode` is one of `settings_schema.MODES`;
        `allow` and `deny` are permission rules such as `Bash(make test)`. `trust` uses the
        settings, subagent types and instruction files of the folder, which otherwise are read only
        where the user trusts it. `max_turns` limits the requests for one message, `max_budget_usd`
        the money of the session; 0 for no limit. `window` and `max_output` are tokens, in place of
        what is known of the model. What is not given comes from the settings. Raises
        `ModelUnknown`, `SettingsError`, `SessionError`, `BudgetError`, and `UsageError` for an
        argument that cannot be.
        """
        return Opening(cls._opened("", **{k: v for k, v in locals().items() if k != "cls"}))

    @classmethod
    def resume(  # noqa: PLR0913
        cls,
        session: str,
        model: str | Model = "",
        *,
        state_dir: str = "",
        instructions: str = "",
        system_prompt: str = "",
        tools: Sequence[Tool] = (),
        mcp_servers: Mapping[str, Mapping[str, Any]] | None = None,
        builtin_tools: Sequence[str] | None = None,
        permission_mode: str = "",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
        trust: bool = False,
        max_turns: int = 0,
        max_budget_usd: float = 0.0,
        window: int = 0,
        max_output: int = 0,
    ) -> Opening:
        """Open the stored session of that id, with the model and the permission mode it had unless
        others are named.

        `bypassPermissions` is never taken from what is stored: it must be named.

        The other arguments are those of `open`; tools and instructions are not stored, so name them
        again. Raises `SessionUnknown`, `SessionBusy`, `SessionReadOnly`, `StoreDamaged` and what
        `open` raises.
        """
        return Opening(cls._opened(**{k: v for k, v in locals().items() if k != "cls"}))

    @classmethod
    async def _opened(  # noqa: PLR0913
        cls,
        session: str,
        *,
        model: str | Model,
        instructions: str,
        system_prompt: str,
        tools: Sequence[Tool],
        mcp_servers: Mapping[str, Mapping[str, Any]] | None,
        builtin_tools: Sequence[str] | None,
        allow: Sequence[str],
        deny: Sequence[str],
        window: int,
        max_output: int,
        folder: str = "",
        **flags: Any,
    ) -> "Session":
        _check(allow=allow, deny=deny, builtin_tools=builtin_tools)
        named = isinstance(model, str)
        if not named and (window or max_output):
            raise UsageError(
                "window and max_output go with the name of a model: a model object has its own "
                "`budget`"
            )
        options = Options(
            model=str(model) if named else "",
            append_system_prompt=instructions,
            allowed_tools=tuple(allow),
            disallowed_tools=tuple(deny),
            system_prompt=system_prompt or None,
            **flags,
        )
        additions = Additions(
            None if isinstance(model, str) else model,
            tuple(tools),
            None if builtin_tools is None else tuple(builtin_tools),
            window,
            max_output,
            mcp_servers=_servers(mcp_servers or {}),
        )
        return cls(
            await build(
                read_run_context(options, folder=folder),
                session,
                fresh=not session,
                additions=additions,
            )
        )

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
        """Send a message, wait until the turn ends, return the text of the answer.

        A call that needs permission is decided by `approve`, a subagent's too; without it, it is
        denied and the model told so. Raises `TurnFailed` when the turn ended without an answer: a
        limit, a budget, an interrupt, or a provider that failed.
        """
        start = self._session.subscribers.committed
        await self.send(words)
        answer = ""
        async with aclosing(self.follow(start, children=True)) as news:
            async for one in news:
                event = (
                    one.heard.event
                    if isinstance(one, FromSubagent) and isinstance(one.heard, Entry)
                    else None
                )
                child = one.child if isinstance(one, FromSubagent) else ""
                match one.event if isinstance(one, Entry) else event:
                    case PermissionAsked() as asked:
                        await self._decide(asked, child, approve)
                    case Replied(parts=parts) if not child:
                        answer = text_of(parts)
                    case TurnEnded(reason="done" | "blocked") if not child:
                        return answer
                    case TurnEnded(reason=reason, message=message) if not child:
                        raise TurnFailed(
                            message or f"the turn ended without an answer: {reason}", reason
                        )
        await self.wait()
        raise TurnFailed("the session was closed before the turn had ended", "interrupted")

    async def _decide(self, asked: PermissionAsked, child: str, approve: Approve | None) -> None:
        verdict = approve(asked) if approve is not None else False
        allowed = await verdict if inspect.isawaitable(verdict) else verdict
        told = (
            ""
            if allowed
            else NOBODY
            if approve is None
            else "the program that runs this session denied it"
        )
        await self.answer(asked.call, "allow" if allowed else "deny", told, child=child)

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
        parts = (Text(words),) if isinstance(words, str) else tuple(words)
        await self._session.tell(UserMessage(parts, "steer" if to else how, to))
        self._go()

    async def happened(self, kind: str, text: str, *, source: str = "") -> None:
        """Report an event to the model; return when it is on disk.

        It goes with the next request, quoted as data, and starts no turn. `kind` is one of the
        kinds of docs/events.md, such as `diagnostics` or `program_message`; `source` is its
        subject, such as a file or a program. The same report is told once. Raises `UsageError` for
        another kind.
        """
        await self._session.tell(program_event(kind, text, source))

    async def go_on(self) -> None:
        """Continue a turn that a crash has cut."""
        await self._session.tell(Continue())
        self._go()

    async def compact(self, focus: str = "") -> None:
        """Compact before the next request; `focus` is what a summary should keep above all."""
        await self._session.tell(Compact(focus))
        self._go()

    async def rewind(
        self, to: int, *, files: bool = False, conversation: bool = True, overwrite: bool = False
    ) -> None:
        """Go back to entry `to`; with `files`, restore files too. What came after stays in the log.

        Without `conversation` only the files go back. `overwrite`: also files that somebody else
        has changed since.
        """
        await self._session.tell(Rewind(to, files, conversation, overwrite))
        self._go()

    async def preview_rewind(
        self, to: int, *, conversation: bool = True, overwrite: bool = False
    ) -> RewindPreview:
        """Return what `rewind(to, files=True)` would do to the files. Changes nothing."""
        return await self._session.preview_rewind(
            to, overwrite=overwrite, conversation=conversation
        )

    async def answer(
        self, call: str, verdict: Literal["allow", "deny"], message: str = "", *, child: str = ""
    ) -> None:
        """Answer a `PermissionAsked`; `child` is the session of the subagent that asks
        (`FromSubagent.child`).
        """
        await self._session.tell(Answer(call, verdict, message=message, by="user", session=child))

    def agents(self) -> Sequence[SubagentView]:
        """Return the subagents as they are now, each followed by its own, finished ones
        included.
        """
        return self._session.agents()

    def tasks(self) -> Sequence[TaskView]:
        """Return the background tasks as they are now: running ones first."""
        return self._session.tasks()

    def interrupt(self) -> None:
        """Stop what is running."""
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
        heard = self._session.follow(seq)
        coming = asyncio.ensure_future(anext(heard))
        try:
            while forever or not self._resting(seq):
                await self._news(coming)
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
        if self._walk is not None:
            await self._walk

    async def leave(self, tasks: Literal["stop", "keep"]) -> Sequence[TaskView]:
        """Stop background tasks before `close`, when the session rests; return those that continue.

        `stop` ends every task, `keep` only those that cannot outlive longrein. Without this call
        each task's own policy holds.
        """
        return await self._session.leave(tasks)

    async def close(self) -> None:
        """Stop what runs and release the session. Everything said and done is on disk."""
        await self._session.close()
        if self._walk is not None:
            await asyncio.wait([self._walk])
        await self._built.finish()

    def _go(self) -> None:
        if self._walk is None or self._walk.done():
            self._walk = asyncio.ensure_future(self._session.run(once=True))

    async def _news(self, coming: "asyncio.Future[SessionUpdate]") -> None:
        """Wait for an update, or for the main loop to end."""
        walking = self._walk is not None and not self._walk.done()
        waited: list[asyncio.Future[Any]] = (
            [coming, self._walk] if walking and self._walk else [coming]
        )
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    def _resting(self, seq: int) -> bool:
        idle = self._walk is None or self._walk.done()
        return idle and seq >= self._session.subscribers.committed


def _servers(entries: Mapping[str, Mapping[str, Any]]) -> tuple[McpServer, ...]:
    """Read the entries of MCP servers. Raises `UsageError` for a wrong one."""
    found = tuple(
        read_server(name, dict(entry), environment(), "program", "mcp_servers")
        for name, entry in entries.items()
    )
    if wrong := next((server for server in found if server.problem), None):
        raise UsageError(f"mcp_servers: {wrong.name}: {wrong.problem}")
    return found


def _check(**lists: Sequence[str] | None) -> None:
    """A text in place of a list of texts would be taken letter by letter."""
    for name, given in lists.items():
        if isinstance(given, str):
            raise UsageError(f"{name} is a list of texts, not a text: write {name}=[{given!r}]")

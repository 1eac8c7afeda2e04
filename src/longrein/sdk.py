"""longrein as a library: one class, the same session that the terminal and the headless run use."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal, overload

from longrein.agent import AgentView, Answer, Compact, GoOn, Heard, OfChild, OpenSession, Rewind, Said
from longrein.build import Built, build
from longrein.events import AnyPart, Entry, Text
from longrein.frontends.options import Options
from longrein.models import Model
from longrein.place import survey
from longrein.tools import TaskView, Tool


class Session:
    """A session that works while your code does something else. Make one with `open` or `resume`.

    All of it belongs to the event loop it was opened in.
    """

    def __init__(self, built: Built) -> None:
        """Use `open` or `resume`."""
        self._session: OpenSession = built.session
        self._walk: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        model: str | Model = "",
        *,
        folder: str = "",
        state_dir: str = "",
        tools: Sequence[Tool] = (),
        permission_mode: str = "",
        allow: Sequence[str] = (),
        deny: Sequence[str] = (),
    ) -> "Session":
        """A new session in `folder` (by default the present one), kept in `state_dir` (by default with all others).

        `model` is `provider/model` or anything that keeps the contract of `longrein.models.Model`; '' for what settings
        and environment offer. `tools` come after the built-in ones. `permission_mode` is `plan`, `default`,
        `acceptEdits` or `bypassPermissions`; `allow` and `deny` are permission rules such as `Bash(make test)`; what
        they do not say comes from the settings. Raises `ModelUnknown`, `SettingsError`, `SessionError`,
        `UsageError` where there is no such folder.
        """
        options = Options(
            model=model if isinstance(model, str) else "",
            state_dir=state_dir,
            permission_mode=permission_mode,
            allowed_tools=tuple(allow),
            disallowed_tools=tuple(deny),
        )
        given = None if isinstance(model, str) else model
        return cls(await build(survey(options, folder=folder), fresh=True, model=given, tools=tools))

    @classmethod
    async def resume(
        cls,
        session: str,
        model: str | Model = "",
        *,
        state_dir: str = "",
        permission_mode: str = "",
        tools: Sequence[Tool] = (),
    ) -> "Session":
        """The stored session of that id, with the model and the permission mode it had unless others are named.

        `bypassPermissions` is never taken from what is stored: it must be named.

        Raises `SessionUnknown`, `SessionBusy`, `SessionReadOnly`, `StoreDamaged`, `ModelUnknown`, `SettingsError`.
        """
        name = model if isinstance(model, str) else ""
        options = Options(model=name, state_dir=state_dir, permission_mode=permission_mode)
        given = None if isinstance(model, str) else model
        return cls(await build(survey(options), session, model=given, tools=tools))

    @property
    def id(self) -> str:
        """The session's UUID."""
        return self._session.id

    @property
    def spent_usd(self) -> float:
        """All that was spent so far; lost requests count as spent."""
        return self._session.state.spent_usd

    async def send(
        self,
        words: str | Sequence[AnyPart],
        *,
        how: Literal["prompt", "steer", "queued"] = "prompt",
        to: str = "",
    ) -> None:
        """Say something; returns when it is on disk. `steer` goes with the next request, `queued` after the turn.

        `to` is the session of a subagent that works (`AgentView.child`); it hears it with its next request.
        """
        parts = (Text(words),) if isinstance(words, str) else tuple(words)
        await self._session.tell(Said(parts, "steer" if to else how, to))
        self._go()

    async def go_on(self) -> None:
        """Go on with a turn that a crash had cut."""
        await self._session.tell(GoOn())
        self._go()

    async def compact(self, focus: str = "") -> None:
        """Make room before the next request; `focus` is what a summary should keep above all."""
        await self._session.tell(Compact(focus))
        self._go()

    async def rewind(self, to: int, *, files: bool = False) -> None:
        """Go back to entry `to`; with `files`, put files back too. What came after stays in the log."""
        await self._session.tell(Rewind(to, files))
        self._go()

    async def answer(self, call: str, verdict: Literal["allow", "deny"], message: str = "", *, child: str = "") -> None:
        """Answer a `PermissionAsked`; `child` is the session of the subagent that asks (`OfChild.child`)."""
        await self._session.tell(Answer(call, verdict, message=message, by="user", session=child))

    def agents(self) -> Sequence[AgentView]:
        """Subagents below this session as they are now, each followed by its own; those that are over too."""
        return self._session.agents()

    def tasks(self) -> Sequence[TaskView]:
        """Background tasks as they are now: those that run first, then those that are over."""
        return self._session.tasks()

    def interrupt(self) -> None:
        """Stop what is running, now."""
        self._session.interrupt()

    @overload
    def follow(self, seq: int = 0, *, forever: bool = False) -> AsyncIterator[Entry]: ...
    @overload
    def follow(
        self, seq: int = 0, *, forever: bool = False, children: Literal[True]
    ) -> AsyncIterator[Entry | OfChild]: ...
    async def follow(
        self, seq: int = 0, *, forever: bool = False, children: bool = False
    ) -> AsyncIterator[Entry | OfChild]:
        """Entries after `seq` as they are committed, until the session rests (or, with `forever`, until it closes).

        With `children` also what subagents do now, as `OfChild`, its `heard` an entry of its own log: their questions
        (`PermissionAsked`) come so. They have no place in the order of `seq` and do not come again.
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
                elif children and isinstance(news, OfChild) and isinstance(news.heard, Entry):
                    yield news
        except StopAsyncIteration:
            return
        finally:
            coming.cancel()

    async def wait(self) -> None:
        """Until the session rests. Raises `StoreFull` and its kin when it could not go on."""
        if self._walk is not None:
            await self._walk

    async def leave(self, tasks: Literal["stop", "keep"]) -> Sequence[TaskView]:
        """Before `close`, when the session rests: `stop` ends every background task, `keep` those that may not outlive
        longrein. Gives those that go on. Without it each task's own policy holds."""
        return await self._session.leave(tasks)

    async def close(self) -> None:
        """End what runs and release the session. What was said and done is on disk."""
        await self._session.close()
        if self._walk is not None:
            await asyncio.wait([self._walk])

    def _go(self) -> None:
        if self._walk is None or self._walk.done():
            self._walk = asyncio.ensure_future(self._session.run(once=True))

    async def _news(self, coming: "asyncio.Future[Heard]") -> None:
        """Wait for something to hear, or for the walk to come to rest."""
        walking = self._walk is not None and not self._walk.done()
        waited: list[asyncio.Future[Any]] = [coming, self._walk] if walking and self._walk else [coming]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)

    def _resting(self, seq: int) -> bool:
        idle = self._walk is None or self._walk.done()
        return idle and seq >= self._session.readers.committed

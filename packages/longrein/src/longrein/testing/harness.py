"""Sessions in memory for tests: `open_test_session` builds one from the doubles in one call.

    disk = MemoryDisk()
    model = ScriptedModel(says(call("Read", file_path="a.py")), says("done"))
    session = open_test_session(model, disk=disk)
    await session.tell(UserMessage((Text("look at a.py"),)))
    await session.run(once=True)
    await session.close()
    print(story(disk.entries()))

To resume, pass the same disk again. A session on an empty disk is new.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager

from longrein.agent import Answer, Clock, Dependencies, OpenSession, open_session
from longrein.agent.session_part import Subagents
from longrein.agent.subagents.runner import SubagentRunner
from longrein.models import Model
from longrein.permissions import Rules
from longrein.testing.clock import VirtualClock
from longrein.testing.store import MemoryArchive, MemoryDisk
from longrein.testing.workspace import MemoryWorkspace
from longrein.tools import Tool, builtin_tools, named_tools, offer_tools, tools_by_name
from longrein.workspace import Workspace
from longrein_context import Request
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    ModelUnknown,
    Opened,
    PermissionAsked,
    PrefixSet,
    Text,
    ToolResult,
    text_of,
)

NONCE = "n0nce"
"""Nonce of the markers in a test session."""


def memory_dependencies(
    model: Model,
    disk: MemoryDisk,
    *,
    workspace: Workspace | None = None,
    clock: Clock | None = None,
    tools: Iterable[Tool] | None = None,
    models: Sequence[Model] = (),
    rules: Rules | None = None,
) -> Dependencies:
    """Build the parts of a session on `disk`; limits and options may be set on the result.

    `models` are further models that the session may switch to. `tools` are by default the built-in
    tools without `Grep` and `Glob`, which search a real tree.
    """
    space = MemoryWorkspace() if workspace is None else workspace
    every = memory_tools() if tools is None else tuple(tools)
    known = {other.name: other for other in (model, *models)}

    def open_model(name: str) -> Model:
        if name not in known:
            raise ModelUnknown(f"there is no model {name} here; there are {', '.join(known)}")
        return known[name]

    return Dependencies(
        clock=clock or VirtualClock(),
        jitter=lambda: 0.5,
        workspace=space,
        tools=tools_by_name(every),
        model=model,
        open_model=open_model,
        prefix=_prefix_of(every, space),
        archive=MemoryArchive(disk.entries, lambda blob: disk.blobs()[blob]),
        rules=Rules(base=space.roots[0]) if rules is None else rules,
        parts={Subagents: SubagentRunner},
    )


def memory_tools() -> tuple[Tool, ...]:
    """Return the built-in tools that work on a memory workspace, all listed in each request."""
    return named_tools(tool for tool in builtin_tools() if tool.traits.kind != "search")


def _prefix_of(tools: Sequence[Tool], workspace: Workspace) -> Callable[[Model, str], PrefixSet]:
    system = "You are a coding agent in a test."

    def prefix(model: Model, reason: str) -> PrefixSet:
        told, root = offer_tools(tools, model.budget.usable_tokens), f"# {workspace.roots[0]}"
        names = model.provider, model.model, model.wire
        return PrefixSet(reason, *names, system, told.listed, (root,), (), told.deferred)

    return prefix


def open_test_session(
    model: Model,
    *,
    disk: MemoryDisk | None = None,
    deps: Dependencies | None = None,
    workspace: Workspace | None = None,
    clock: Clock | None = None,
    mode: str = "",
    profile: str = "default",
) -> OpenSession:
    """Open the session on `disk`: a new one if the disk is empty, else a resumed one. Needs a
    running loop.

    `deps` (from `memory_dependencies`) replaces `model`, `workspace` and `clock`. A new session
    without it allows every call, unless `mode` says otherwise.
    """
    disk = disk or MemoryDisk()
    parts = deps or memory_dependencies(model, disk, workspace=workspace, clock=clock)
    log = disk.open()
    root = parts.workspace.roots[0]
    opened = Opened(SCHEMA_VERSION, disk.session, NONCE, parts.workspace.roots, root, profile)
    default_mode = "bypassPermissions" if deps is None and not log.entries else ""
    return open_session(log, parts, opened=opened, mode=mode or default_mode)


async def kill(session: OpenSession, disk: MemoryDisk, *tasks: "asyncio.Future[None]") -> None:
    """End a session as `kill -9` does, and cancel `tasks` (its run, its readers).

    The disk stays as it is, with its queued transactions; `disk.reopen` says how many of them were
    committed.
    """
    disk.kill()
    session.closed = True
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def story(entries: Iterable[Entry]) -> str:
    """Return the names of a log's events on one line, for comparison."""
    return " ".join(type(entry.event).__name__ for entry in entries)


def results(request: Request) -> list[str]:
    """Return the results in a request, such as `Read ok: …`."""
    return [
        f"{item.part.name} {item.part.status}: {text_of(item.part.parts)}"
        for item in request.items
        if isinstance(item.part, ToolResult)
    ]


def said(request: Request) -> list[str]:
    """Return every text in a request outside results."""
    return [item.part.text for item in request.items if isinstance(item.part, Text)]


# --- Approver -------------------------------------------------------------------------------------
#
# A frontend that only answers permission requests, from a table or a function.


AnswerSpec = str | Answer | None
"""`allow`, `deny`, `session` or `always` (allow, with the suggested rule), an `Answer`, or None:
no answer.
"""
Answers = Mapping[str, AnswerSpec] | Callable[[PermissionAsked], AnswerSpec]
"""Answers by the exact text shown, else by the tool's name; or a function of the question."""


class Approver:
    """Answers permission requests from a table, and denies requests that the table lacks."""

    def __init__(self, answers: Answers | None = None) -> None:
        self.asked: list[PermissionAsked] = []
        """All questions, in order."""
        self._answers: Answers = {} if answers is None else answers

    @asynccontextmanager
    async def answering(self, session: OpenSession) -> AsyncIterator["Approver"]:
        """Answer the questions of `session` while the block runs."""
        task = asyncio.ensure_future(self.watch(session))
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def watch(self, session: OpenSession) -> None:
        """Answer the questions of `session` until it closes, including open ones."""
        async for heard in session.follow(0, streaming=False):
            if isinstance(heard, Entry) and isinstance(heard.event, PermissionAsked):
                await self._meet(session, heard.event)

    async def _meet(self, session: OpenSession, question: PermissionAsked) -> None:
        waiting = session.state.calls.get(question.call)
        if waiting is None or waiting.answer is not None:
            return
        self.asked.append(question)
        answer = answer_for(question, self._word(question))
        if answer is not None:
            await session.tell(answer)

    def _word(self, question: PermissionAsked) -> AnswerSpec:
        if callable(self._answers):
            return self._answers(question)
        by_tool = self._answers.get(question.name, "deny")
        return self._answers.get(question.shown, by_tool)


def answer_for(question: PermissionAsked, word: AnswerSpec) -> Answer | None:
    """Convert `word` to an answer. Raises AssertionError for an unknown word."""
    match word:
        case None | Answer():
            return word
        case "allow" | "deny":
            return Answer(question.call, word)
        case "session" | "always":
            return Answer(question.call, "allow", word, question.suggestion)
        case _:
            raise AssertionError(f"{word!r} is no answer: allow, deny, session, always")

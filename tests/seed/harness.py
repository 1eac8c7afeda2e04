"""Harness for the seed profiles: run a session in memory and look at the requests that the
provider got.
"""

from collections.abc import Callable, Mapping, Sequence

from longrein.agent import Compact, InboxMessage, UserMessage
from longrein.models import Failure, Reply
from longrein.testing.harness import (
    memory_dependencies,
    memory_tools,
    open_test_session,
    results,
    said,
    story,
)
from longrein.testing.scripted_model import ScriptedModel, Step, call, says
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace, Ran
from longrein.tools import Tool, make_tool
from longrein_context import Budget, Price, Request
from longrein_context.events import AnyEvent, Text, ToolResult, text_of

# Budget with a window that no test here fills by accident
ROOMY = Budget(400_000, 8_000, Price(3, 15, 0.3, 3.75))


async def Print(chars: int, mark: str = "x") -> str:
    """Print so many characters.

    chars: How many.
    mark: The character.
    """
    return (mark * chars)[:chars]


PRINT: Tool = make_tool(Print, access="none", together=True)


PROSE = """1. Request and intent: Go through all of it.
8. Current work: The last print is done.
9. Next step: none"""
"""Reply of a summariser that follows the instruction."""


class AnsweringModel(ScriptedModel):
    """Model whose n-th reply (from 0) is `answer(n, request)`; summary requests get `summary`."""

    def __init__(
        self,
        answer: Callable[[int, Request], Reply | Failure],
        budget: Budget,
        summary: Reply | Failure | None = None,
    ) -> None:
        super().__init__(budget=budget)
        self.answer, self.summary = answer, summary or says(PROSE)

    def _next(self, request: Request) -> Reply | Failure:
        if request.purpose == "summary":
            return self.summary
        return self.answer(sum(one.purpose == "turn" for one in self.requests) - 1, request)


class SessionResult:
    """The requests and the log of a finished session."""

    def __init__(self, model: ScriptedModel, disk: MemoryDisk, files: dict[str, bytes]) -> None:
        self.model, self.disk, self.files = model, disk, files

    @property
    def requests(self) -> list[Request]:
        """The requests of purpose turn."""
        return [request for request in self.model.requests if request.purpose == "turn"]

    @property
    def summaries(self) -> list[Request]:
        return [request for request in self.model.requests if request.purpose == "summary"]

    @property
    def last(self) -> Request:
        return self.requests[-1]

    def events(self, kind: type) -> list[AnyEvent]:
        return [entry.event for entry in self.disk.entries() if isinstance(entry.event, kind)]

    @property
    def story(self) -> str:
        return story(self.disk.entries())


async def play(
    *steps: Step,
    model: ScriptedModel | None = None,
    words: Sequence[str | InboxMessage] = ("go",),
    profile: str = "seed",
    budget: Budget = ROOMY,
    files: Mapping[str, str] | None = None,
    commands: Mapping[str, Ran | str] | None = None,
    disk: MemoryDisk | None = None,
) -> SessionResult:
    """Run `steps`; each message of `words` is sent when the turn before it has ended."""
    disk = disk or MemoryDisk()
    model = model or ScriptedModel(*steps, budget=budget)
    space = MemoryWorkspace(dict(files or {}), spawner=MemorySpawner(dict(commands or {})))
    deps = memory_dependencies(model, disk, workspace=space, tools=(*memory_tools(), PRINT))
    session = open_test_session(
        model, disk=disk, deps=deps, mode="bypassPermissions", profile=profile
    )
    try:
        for word in words:
            session.tell(UserMessage((Text(word),)) if isinstance(word, str) else word)
            await session.run(once=True)
    finally:
        await session.close()
    model.check_done()
    return SessionResult(model, disk, space.files)


def prints(*sizes: int) -> Step:
    """Make one reply with a `Print` call for each of `sizes`."""
    return says(*(call("Print", chars=size) for size in sizes))


def shown(request: Request) -> list[str]:
    """Return the content of each result."""
    return [text_of(item.part.parts) for item in request.items if isinstance(item.part, ToolResult)]


def sizes(request: Request) -> list[int | str]:
    """Return the length of each result; results under 60 characters as text."""
    return [text if len(text) < 60 else len(text) for text in shown(request)]


def gone(name: str = "Print") -> str:
    """Return the placeholder that the founding documents leave of a result."""
    return f"[Previous: used {name}]"


__all__ = [
    "PRINT",
    "Compact",
    "SessionResult",
    "call",
    "gone",
    "play",
    "prints",
    "results",
    "said",
    "says",
    "shown",
    "sizes",
]

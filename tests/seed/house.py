"""One session in memory, played to its end; what the provider was sent is what the tests look at."""

from collections.abc import Callable, Mapping, Sequence

from longrein.agent import Compact, Said, Word
from longrein.context import Budget, Price, Request
from longrein.events import AnyEvent, Text, ToolResult, text_of
from longrein.models import Failure, Reply
from longrein.testing.harness import memory_dependencies, memory_tools, open_test_session, results, said, story
from longrein.testing.scripted_model import ScriptedModel, Step, call, says
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace, Ran
from longrein.tools import Tool, make_tool

ROOMY = Budget(400_000, 8_000, Price(3, 15, 0.3, 3.75))
"""A window that no test here fills by accident."""


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
"""What a summariser answers that does what it is asked."""


class Answers(ScriptedModel):
    """A model without a script: `answer(n, request)` gives its n-th reply, from 0; a summary is answered by itself."""

    def __init__(
        self, answer: Callable[[int, Request], Reply | Failure], budget: Budget, summary: Reply | Failure | None = None
    ) -> None:
        super().__init__(budget=budget)
        self.answer, self.summary = answer, summary or says(PROSE)

    def _next(self, request: Request) -> Reply | Failure:
        if request.purpose == "summary":
            return self.summary
        return self.answer(sum(one.purpose == "turn" for one in self.requests) - 1, request)


class Played:
    """A session that has been played."""

    def __init__(self, model: ScriptedModel, disk: MemoryDisk) -> None:
        self.model, self.disk = model, disk

    @property
    def requests(self) -> list[Request]:
        """Those of purpose turn."""
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
    words: Sequence[str | Word] = ("go",),
    profile: str = "seed",
    budget: Budget = ROOMY,
    files: Mapping[str, str] | None = None,
    commands: Mapping[str, Ran | str] | None = None,
    disk: MemoryDisk | None = None,
) -> Played:
    """Play `steps`; each of `words` begins when what came before has ended."""
    disk = disk or MemoryDisk()
    model = model or ScriptedModel(*steps, budget=budget)
    space = MemoryWorkspace(dict(files or {}), spawner=MemorySpawner(dict(commands or {})))
    crew = memory_dependencies(model, disk, workspace=space, tools=(*memory_tools(), PRINT))
    session = open_test_session(model, disk=disk, crew=crew, mode="bypassPermissions", profile=profile)
    try:
        for word in words:
            session.tell(Said((Text(word),)) if isinstance(word, str) else word)
            await session.run(once=True)
    finally:
        await session.close()
    model.check_done()
    return Played(model, disk)


def prints(*sizes: int) -> Step:
    """One reply that calls `Print` for each of `sizes`, side by side."""
    return says(*(call("Print", chars=size) for size in sizes))


def shown(request: Request) -> list[str]:
    """The content of each result."""
    return [text_of(item.part.parts) for item in request.items if isinstance(item.part, ToolResult)]


def sizes(request: Request) -> list[int | str]:
    """The length of each result; a short one as it is."""
    return [text if len(text) < 60 else len(text) for text in shown(request)]


def gone(name: str = "Print") -> str:
    """What the documents leave of a result."""
    return f"[Previous: used {name}]"


__all__ = ["PRINT", "Compact", "Played", "call", "gone", "play", "prints", "results", "said", "says", "shown", "sizes"]

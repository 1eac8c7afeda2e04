"""`ScriptedModel`: a model that plays given replies, and `check_rules`: rules that every provider
enforces.

The model keeps each request, checks it with `check_rules` and streams in pieces, so that tests can
interrupt a reply. It counts tokens as the engine does and reports how much of a request a prompt
cache would hold.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from longrein.models import Delta, Failure, Reply
from longrein.models.scripted import delta_pieces
from longrein_context import Budget, Item, Price, Request, arguments_text, estimate_text
from longrein_context.events import (
    AnyPart,
    Document,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    text_of,
)

# --- Rules of all providers -----------------------------------------------------------------------
#
# Checked on the neutral request, before a wire encodes it.


ITEM_TOKENS = 4
"""Tokens of the JSON around a block, about."""
IMAGE_TOKENS = 1_600
"""Most tokens of an image at known providers."""


class RuleBroken(AssertionError):
    """A request that a provider would refuse: a bug in longrein, so it is raised and is no
    `Failure`.
    """


def check_rules(request: Request, budget: Budget | None = None) -> None:
    """Raise `RuleBroken` unless `request` follows the rules of all providers.

    Each call has exactly one result, placed right after the calls of its reply and in their order;
    call ids are unique; the first block and, unless `budget` accepts a prefill, the last one are on
    the user's side; no block is empty; marks rise and point at blocks. With `budget`, the request
    also fits its window.
    """
    problem = (
        _pairing_problem(request.items)
        or _ends_problem(request.items, prefill=budget is not None and budget.accepts_prefill)
        or _empty_problem(request.items)
        or _marks_problem(request)
    )
    if not problem and budget is not None and count_tokens(request) > budget.window_tokens:
        problem = f"{count_tokens(request)} tokens do not fit a window of {budget.window_tokens}"
    if problem:
        raise RuleBroken(f"{problem}\n{outline(request)}")


def _pairing_problem(items: tuple[Item, ...]) -> str:
    waiting: list[str] = []
    known: set[str] = set()
    answering = False
    for at, item in enumerate(items):
        part = item.part
        if isinstance(part, ToolResult):
            if not waiting or waiting[0] != part.call:
                return f"block {at}: a result of {part.call} where {waiting[:1] or 'none'} is due"
            waiting.pop(0)
            answering = bool(waiting)
        elif waiting and (answering or not isinstance(part, ToolCall)):
            return f"block {at}: a {item.kind} stands where the result of {waiting[0]} is due"
        elif isinstance(part, ToolCall):
            if part.id in known or not part.id:
                return f"block {at}: call id {part.id!r} is empty or stands twice"
            known.add(part.id)
            waiting.append(part.id)
    return f"calls without a result: {waiting}" if waiting else ""


def _ends_problem(items: tuple[Item, ...], *, prefill: bool) -> str:
    if not items:
        return "the request holds no block"
    if items[0].mine:
        return "the first block is the assistant's"
    if items[-1].mine and not prefill:
        return "the last block is the assistant's, and this model takes no prefill"
    return ""


def _empty_problem(items: tuple[Item, ...]) -> str:
    for at, item in enumerate(items):
        match item.part:
            case Text("") | ToolCall(name=""):
                return f"block {at}: an empty {item.kind}"
            case Thinking("") if item.block is None:
                return f"block {at}: thinking without text or the provider's bytes"
            case ToolResult() if item.seqs[0] == 0:
                return f"block {at}: the empty slot of {item.part.call} was sent"
            case _:
                pass
    return ""


def _marks_problem(request: Request) -> str:
    marks = request.marks
    if len(marks) > 3 or list(marks) != sorted(frozenset(marks)):
        return f"marks {marks} are more than three or do not rise"
    if marks and not 0 <= marks[0] <= marks[-1] < len(request.items):
        return f"marks {marks} point outside the {len(request.items)} blocks"
    return "" if request.max_output_tokens > 0 else "no room for an answer"


def count_tokens(request: Request) -> int:
    """Input tokens of a request by the engine's measure, counted anew from the parts."""
    prefix = request.prefix
    tools = "".join(f"{t.name}{t.description}{t.schema}" for t in prefix.tools)
    return estimate_text(prefix.system) + estimate_text(tools) + sum(map(count_item, request.items))


def count_item(item: Item) -> int:
    """Count the tokens of one block."""
    return _count_part(item.part) + ITEM_TOKENS


def _count_part(part: object) -> int:
    match part:
        case ToolResult(parts=parts):
            return sum(map(_count_part, parts))
        case ToolCall():
            return estimate_text(part.name) + estimate_text(part.received or str(part.arguments))
        case Image():
            return IMAGE_TOKENS
        case Document():
            return estimate_text(text_of((part,)))
        case Text(text) | Thinking(text):
            return estimate_text(text)
        case _:
            return 0


def outline(request: Request) -> str:
    """List the blocks of a request, one per line, for a failed assertion."""
    lines = [
        f"{request.purpose} request of session {request.session}, {len(request.items)} blocks:"
    ]
    for at, item in enumerate(request.items):
        call = f" {item.part.id}" if isinstance(item.part, ToolCall) else ""
        call = (
            f" {item.part.call} {item.part.status}" if isinstance(item.part, ToolResult) else call
        )
        lines.append(
            f"  {at} {item.handle or '-'} {item.kind}{call} {item.form} "
            f"{text_of((item.part,))[:60]!r}"
        )
    return "\n".join(lines)


# --- The model ------------------------------------------------------------------------------------


BUDGET = Budget(50_000, 4_000, Price(3, 15, 0.3, 3.75))
"""Small window, so that a short test reaches compaction."""
PIECES_MAX = 16
"""Pieces of one part, so that long text stays fast."""

Step = Reply | Failure | Callable[[Request], Reply | Failure]
"""Answer to one request: a reply, a failure, or a function of the request."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """Make a call of tool `name` for `says`. The session gives the call its id."""
    return ToolCall("", name, arguments)


def says(*parts: str | AnyPart, stop: str = "", usage: Usage | None = None) -> Reply:
    """Make a reply of texts and calls. By default `stop` follows from the parts, and the model
    counts the usage.
    """
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    calls = any(isinstance(part, ToolCall) for part in made)
    return Reply(made, stop or ("calls" if calls else "end"), usage or Usage())


class ScriptedModel:
    """A `models.Model` that plays `steps` in order.

    A request after the last step, or one that breaks a rule, raises AssertionError in the session's
    loop. So does `check_done` while steps are left. The end of each answer waits for `wait` (an
    event, or `clock.sleep`).
    """

    def __init__(
        self,
        *steps: Step,
        budget: Budget = BUDGET,
        name: str = "test/script",
        wire: str = "scripted",
        wait: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self.name = name
        self.provider, self.model = name.split("/", 1)
        self.wire = wire
        self.budget = budget
        self.steps = list(steps)
        """Steps that are left."""
        self.requests: list[Request] = []
        """All requests, in order."""
        self.closed = False
        """True if the session closed the model."""
        self._wait = wait

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        check_rules(request, self.budget)
        before = self.requests[-1] if self.requests else None
        self.requests.append(request)
        final = self._next(request)
        if isinstance(final, Reply) and final.usage == Usage():
            final = msgspec.structs.replace(final, usage=cached_usage(request, before, final.parts))
        parts = final.parts if isinstance(final, Reply) else final.partial
        for piece in delta_pieces(parts, pieces_max=PIECES_MAX):
            yield [piece]
            await asyncio.sleep(0)
        if self._wait is not None:
            await self._wait()
        yield [final]

    def _next(self, request: Request) -> Reply | Failure:
        if not self.steps:
            raise AssertionError(
                f"the script is over after {len(self.requests) - 1} requests and the session asks "
                "again"
            )
        step = self.steps.pop(0)
        return step(request) if callable(step) else step

    def check_done(self) -> None:
        """Raise AssertionError if steps are left."""
        if self.steps:
            raise AssertionError(
                f"{len(self.steps)} steps of the script were not used; the next is "
                f"{self.steps[0]!r}"
            )

    async def aclose(self) -> None:
        self.closed = True


def cached_usage(request: Request, before: Request | None, parts: Sequence[AnyPart]) -> Usage:
    """Usage of `request` if a cache holds the request `before`."""
    known = 0
    if before is not None and before.prefix == request.prefix:
        same = list(
            takewhile(
                lambda pair: pair[0] == pair[1], zip(before.items, request.items, strict=False)
            )
        )
        known = count_tokens(msgspec.structs.replace(request, items=tuple(new for _, new in same)))
    output = sum(
        estimate_text(arguments_text(p)) if isinstance(p, ToolCall) else _output(p) for p in parts
    )
    return Usage(0, known, count_tokens(request) - known, output + 1)


def _output(part: AnyPart) -> int:
    return estimate_text(part.text) if isinstance(part, Text | Thinking) else 0


__all__ = [
    "BUDGET",
    "ScriptedModel",
    "Step",
    "cached_usage",
    "call",
    "check_rules",
    "count_item",
    "says",
]

"""`ScriptedModel`: a model in this process that plays steps in order, keeps each request and holds it to the rules.

Its streams come in pieces, so that an interrupt meets them half way; it counts tokens as the engine does and says how
much of a request a cache would have known.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import takewhile
from typing import Any

import msgspec

from longrein.context import Budget, Price, Request, estimate_text
from longrein.events import AnyPart, Text, Thinking, ToolCall, Usage
from longrein.models import CallDelta, Delta, Failure, Reply, TextDelta, ThinkingDelta
from longrein.testing.rules import check_rules, count_item, count_tokens

BUDGET = Budget(50_000, 4_000, Price(3, 15, 0.3, 3.75))
"""A small window, so that compaction is reached in a test's time."""
PIECE_CHARS = 24
"""Text streams in pieces of this length."""

Step = Reply | Failure | Callable[[Request], Reply | Failure]
"""What a model does with one request: say so, or decide it from the request."""


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A call of tool `name`, to be given to `says`. The session gives it its id."""
    return ToolCall("", name, arguments)


def says(*parts: str | AnyPart, stop: str = "", usage: Usage | None = None) -> Reply:
    """A reply of texts and calls. `stop` is `calls` or `end` as the parts have it; without `usage` the model counts."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    calls = any(isinstance(part, ToolCall) for part in made)
    return Reply(made, stop or ("calls" if calls else "end"), usage or Usage())


class ScriptedModel:
    """A `models.Model` that plays `steps`.

    Asking beyond the script and a request that breaks a rule raise AssertionError in the session's loop, as does
    `check_done` while steps are left: neither happens in a session that works. With `wait` each answer's end is held
    back until it returns (a gate, or `clock.sleep`).
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
        """What is left of the script."""
        self.requests: list[Request] = []
        """Every request, as it came."""
        self.closed = False
        """Whether the session let go of it."""
        self._wait = wait

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        check_rules(request, self.budget)
        before = self.requests[-1] if self.requests else None
        self.requests.append(request)
        final = self._next(request)
        if isinstance(final, Reply) and final.usage == Usage():
            final = msgspec.structs.replace(final, usage=counted(request, before, final.parts))
        for batch in batches(final.parts if isinstance(final, Reply) else final.partial):
            yield batch
            await asyncio.sleep(0)
        if self._wait is not None:
            await self._wait()
        yield [final]

    def _next(self, request: Request) -> Reply | Failure:
        if not self.steps:
            raise AssertionError(
                f"the script is over after {len(self.requests) - 1} requests and the session asks again"
            )
        step = self.steps.pop(0)
        return step(request) if callable(step) else step

    def check_done(self) -> None:
        """Raise AssertionError when steps were not used."""
        if self.steps:
            raise AssertionError(f"{len(self.steps)} steps of the script were not used; the next is {self.steps[0]!r}")

    async def aclose(self) -> None:
        """See `models.Model.aclose`."""
        self.closed = True


def batches(parts: Sequence[AnyPart], chars: int = PIECE_CHARS) -> list[list[Delta]]:
    """`parts` as a provider streams them: one batch for each network read."""
    found: list[list[Delta]] = []
    calls = 0
    for part in parts:
        match part:
            case Text(text):
                found += [[TextDelta(piece)] for piece in _pieces(text, chars)]
            case Thinking(text):
                found += [[ThinkingDelta(piece)] for piece in _pieces(text, chars)]
            case ToolCall():
                found.append([CallDelta(calls, part.name)])
                found += [[CallDelta(calls, "", piece)] for piece in _pieces(received(part), 4 * chars)]
                calls += 1
            case _:
                pass
    return found


def received(part: ToolCall) -> str:
    """The arguments of a call as they came."""
    return part.received or msgspec.json.encode(part.arguments or {}).decode()


def _pieces(text: str, chars: int) -> list[str]:
    # long text in at most 16 pieces: a test is about the cut, not about the number
    size = max(chars, len(text) // 16 + 1)
    return [text[at : at + size] for at in range(0, len(text), size)]


def counted(request: Request, before: Request | None, parts: Sequence[AnyPart]) -> Usage:
    """Usage of `request` when `before` was the last one that a cache knows."""
    known = 0
    if before is not None and before.prefix == request.prefix:
        same = list(takewhile(lambda pair: pair[0] == pair[1], zip(before.items, request.items, strict=False)))
        known = count_tokens(msgspec.structs.replace(request, items=tuple(new for _, new in same)))
    output = sum(estimate_text(received(p)) if isinstance(p, ToolCall) else _output(p) for p in parts)
    return Usage(0, known, count_tokens(request) - known, output + 1)


def _output(part: AnyPart) -> int:
    return estimate_text(part.text) if isinstance(part, Text | Thinking) else 0


__all__ = ["BUDGET", "ScriptedModel", "Step", "batches", "call", "check_rules", "count_item", "counted", "says"]

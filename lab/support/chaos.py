"""Random model behaviour drawn from a seed.

`ChaosModel` calls tools with good and bad arguments, thinks, writes long and wide text, stops by
length, refuses, writes garbage summaries, counts tokens differently and fails in every way a
provider can. It checks each request with `check_rules`. Its turns end: calls get rarer as a turn
grows, and with `quiet` set it only answers.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import Any, get_args

import msgspec

from longrein.models import Delta, Failure, Reply
from longrein.models.scripted import delta_pieces
from longrein.testing.scripted_model import PIECES_MAX, cached_usage, check_rules, count_tokens
from longrein_context import Budget, Item, Price, Request
from longrein_context.events import (
    AnyPart,
    FailureKind,
    ProviderBlock,
    Text,
    Thinking,
    ToolCall,
    Usage,
    text_of,
)

BUDGET = Budget(16_000, 2_000, Price(3, 15, 0.3, 3.75))
"""Small budget, so that a random session is compacted several times."""
CALLS_MAX = 8
"""Most calls in one reply."""
STEPS_MAX = 9
"""Steps of a turn after which the model stops calling tools."""
FAILURES_MAX = 6
"""Most failures in a row."""
FAILURE_KINDS: tuple[str, ...] = tuple(
    kind for kind in get_args(FailureKind) if kind not in ("lost", "cancelled", "auth", "billing")
)
"""Failure kinds to draw from; `lost` and `cancelled` come from the session, `auth` and `billing`
end every turn.
"""
LASTING_KINDS = ("auth", "billing", "refused", "invalid")
"""Failures that a retry does not repair."""
STATUS = {
    "rate": 429,
    "overload": 529,
    "server": 500,
    "overflow": 400,
    "auth": 401,
    "billing": 402,
    "invalid": 400,
}

_TABLE = (
    "the|of|a|file|test|error:|line|def|return|None|import|src/app.py|0x3f|==|{}|[]|\n|\n\n\t|中文字符|测试|日本語|naïve|😀|αβγ|"
    "supercalifragilistic|https://example.org/x?y=z|```|#|**|\\|\"|'|$|<b>|&amp;"
)
WORDS = tuple(_TABLE.split("|"))
"""Words of random texts."""
GARBAGE = (
    "",
    "{",
    '{"file_path": ',
    "[1, 2",
    "null",
    '"text"',
    "{'a': 1}",
    "<tool>x</tool>",
    '{"a": 1}}',
)
"""Arguments that are not a JSON object."""

MakeArguments = Callable[["ChaosModel", Request], dict[str, Any]]


class ChaosModel:
    """A `models.Model` with random behaviour drawn from `seed`.

    `tools` maps a tool to a function that makes valid arguments; other tools of the request get
    random arguments. `rest` is awaited between the pieces of a stream, to slow the provider down on
    a virtual clock. A tool with weight n is called n times as often as others. One model may serve
    many sessions.
    """

    def __init__(
        self,
        seed: int,
        tools: Mapping[str, MakeArguments] | None = None,
        *,
        budget: Budget = BUDGET,
        name: str = "test/chaos",
        faults: float = 0.12,
        rest: Callable[[], Awaitable[object]] | None = None,
        weights: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.provider, self.model = name.split("/", 1)
        self.wire = "scripted"
        self.budget = budget
        self.random = Random(seed)
        """Source of all random choices."""
        self.requests: list[Request] = []
        """All requests, in order."""
        self.quiet = False
        """If set, every answer is a short text, so that the session comes to rest."""
        self.watch: Callable[[Request], None] = lambda _request: None
        """Called with each request before the answer."""
        self.nothing_fits = 0
        """Number of requests larger than the window."""
        self.faults = faults
        """Share of requests that fail."""
        self._tools = dict(tools or {})
        self._weights = dict(weights or {})
        self._before: dict[str, Request] = {}
        self._rest = rest
        self._factor = self.random.choice((0.7, 0.9, 1.0, 1.1, 1.4))
        self._failures = 0
        self._serial = 0

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        check_rules(request)
        before = self._before.get(request.session)
        self._before[request.session] = request
        self.requests.append(request)
        self.watch(request)
        final = self._answer(request, before)
        parts = final.parts if isinstance(final, Reply) else final.partial
        for piece in delta_pieces(parts, pieces_max=PIECES_MAX):
            yield [piece]
            await self._pause()
        await self._pause()
        yield [final]

    async def _pause(self) -> None:
        await (asyncio.sleep(0) if self._rest is None else self._rest())

    async def aclose(self) -> None:
        """See `models.Model.aclose`."""

    def tokens(self, request: Request) -> int:
        """Input tokens as this provider counts them; the engine's estimate is up to 40 % off."""
        return round(count_tokens(request) * self._factor)

    # --- answers ----------------------------------------------------------------------------------

    def _answer(self, request: Request, before: Request | None) -> Reply | Failure:
        if self.tokens(request) > self.budget.window_tokens:
            self.nothing_fits += 1
            told = self.budget.window_tokens if self.chance(0.7) else 0
            return Failure(
                "overflow", f"{self.tokens(request)} tokens are too many", 400, limit_tokens=told
            )
        if not self.quiet and self._failures < FAILURES_MAX and self.chance(self.faults):
            self._failures += 1
            return self._failure()
        self._failures = 0
        reply = self._summary() if request.purpose == "summary" else self._reply(request)
        usage = cached_usage(request, before, reply.parts)
        if self.chance(0.05):  # some servers send no usage
            return msgspec.structs.replace(reply, model=self.model)
        known, fresh = (
            round(usage.cache_read_tokens * self._factor),
            round(usage.cache_write_tokens * self._factor),
        )
        return msgspec.structs.replace(
            reply, usage=Usage(0, known, fresh, usage.output_tokens), model=self.model
        )

    def _failure(self) -> Failure:
        kind = self.random.choice(FAILURE_KINDS)
        if kind in LASTING_KINDS and self.chance(0.7):
            kind = "server"
        partial: tuple[AnyPart, ...] = ()
        if kind in ("truncated", "stalled", "network"):
            partial = tuple(self._parts(self.random.randrange(3)))
        wait_s = (
            self.random.choice((-1.0, 0.0, 2.0, 40.0)) if kind in ("rate", "overload") else -1.0
        )
        return Failure(kind, f"{kind} by chance", STATUS.get(kind, 0), wait_s, partial=partial)

    def _summary(self) -> Reply:
        luck = self.random.random()
        if luck < 0.6:
            return Reply((Text(f"1. Request and intent\n{self.text(60)} x"),), "end", Usage())
        if luck < 0.7:
            return Reply((Text("I call one"), self._call("Read", None)), "calls", Usage())
        if luck < 0.8:
            return Reply((Text(self.text(400) + " x"),), "length", Usage())
        if luck < 0.9:
            return Reply((Text(" ".join("x" * 900 for _ in range(60))),), "end", Usage())
        return Reply((Thinking("what was it about?"),), "end", Usage())

    def _reply(self, request: Request) -> Reply:
        if self.quiet:
            return Reply((Text(f"done {self.serial()}"),), "end", Usage())
        steps = self._steps(request.items)
        calls = self.random.randrange(CALLS_MAX + 1) if self.chance(1 - steps / STEPS_MAX) else 0
        parts: list[AnyPart] = self._parts(0) if calls else [Text(self.text(40) + "!")]
        parts += [self._call(self._name(request), request) for _ in range(calls)]
        luck = self.random.random()
        stop = (
            "length"
            if luck < 0.06
            else "refusal"
            if luck < 0.08 and not calls
            else "calls"
            if calls
            else "end"
        )
        return Reply(tuple(parts), stop, Usage(), self._blocks(parts))

    def _steps(self, items: Sequence[Item]) -> int:
        """Number of replies with calls since the user's last message."""
        replies: dict[int, None] = {}
        for item in reversed(items):
            if item.kind == "user":
                break
            if item.kind == "call":
                replies[item.seqs[0]] = None
        return len(replies)

    def _parts(self, calls: int) -> list[AnyPart]:
        parts: list[AnyPart] = [Thinking(f"hm {self.text(20)}")] if self.chance(0.3) else []
        parts += [Text(f"I go on: {self.text(120)}.")] if self.chance(0.6) else []
        return parts + [self._call("Read", None) for _ in range(calls)]

    def _blocks(self, parts: Sequence[AnyPart]) -> tuple[ProviderBlock, ...]:
        return tuple(
            ProviderBlock(n, self.wire, self.model, f'{{"signature":"s{self.serial()}"}}')
            for n, part in enumerate(parts)
            if isinstance(part, Thinking)
        )

    # --- calls ------------------------------------------------------------------------------------

    def _name(self, request: Request) -> str:
        known = [tool.name for tool in request.prefix.tools]
        if not known or self.chance(0.03):
            return "NoSuchTool"
        return self.random.choices(known, [self._weights.get(name, 1) for name in known])[0]

    def _call(self, name: str, request: Request | None) -> ToolCall:
        luck = self.random.random()
        if luck < 0.04:
            return ToolCall("", name, None, self.random.choice(GARBAGE))
        make = self._tools.get(name)
        if request is None or make is None or luck < 0.08:
            return ToolCall("", name, self._wild())
        arguments = make(self, request)
        if luck < 0.12 and arguments:
            arguments.pop(self.random.choice(list(arguments)))
        elif luck < 0.16:
            arguments["surprise"] = self.random.choice((None, 1, "x", [], {}))
        return ToolCall("", name, arguments)

    def _wild(self) -> dict[str, Any]:
        values: tuple[Any, ...] = (
            None,
            True,
            -1,
            2.5,
            "",
            "\0",
            [],
            {},
            [[{}]],
            self.text(5),
            10**30,
        )
        names = ("file_path", "command", "handle", "content", "old_string", "x", "")
        return {
            name: self.random.choice(values)
            for name in self.random.sample(names, self.random.randrange(4))
        }

    # --- helpers for argument makers --------------------------------------------------------------

    def chance(self, share: float) -> bool:
        """Return True with probability `share`."""
        return self.random.random() < share

    def text(self, words_max: int) -> str:
        """Return up to `words_max` random words, mostly few; may be blank."""
        most = self.random.choice((1, 4, words_max))
        return " ".join(self.random.choice(WORDS) for _ in range(self.random.randrange(most + 1)))

    def serial(self) -> int:
        """Return the next number, from 1."""
        self._serial += 1
        return self._serial

    def quoted(self, request: Request) -> str:
        """Return a block of the request or a line of one, as models copy what they see.

        Markers of longrein are preferred, because copied markers must have no effect (law 4).
        """
        texts = [text_of((item.part,)) for item in request.items]
        marked = [text for text in texts if "[longrein:" in text]
        shown = self.random.choice(marked if marked and self.chance(0.5) else texts)
        if marked and self.chance(0.5):
            return shown[:2_000]
        return self.random.choice([shown[:2_000], *shown.splitlines()[:40]])

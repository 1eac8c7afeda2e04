"""Six cheap requests that show whether a model and its gateway do what longrein needs, the verdicts
on their answers, and the rows of `longrein doctor --live`. Pure.
"""

import re
import struct
import textwrap
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from longrein.models import Failure, Model, Reply, cost_usd
from longrein.steps.human_text import counted, escape_line
from longrein_context import Budget, Item, Price, Request, estimate_text
from longrein_context.events import (
    AnyPart,
    Image,
    PrefixSet,
    Text,
    Thinking,
    ToolCall,
    ToolSpec,
    Usage,
    text_of,
)
from longrein_context.events.escape import shortened

CheckName = Literal["text", "tool call", "parallel calls", "thinking", "cache", "image"]
State = Literal["ok", "failed", "not offered", "not asked"]

OUTPUT_TOKENS_MAX = 2_048
"""Output limit of a check: models that always think need more than their answer."""
THINKING_OUTPUT_TOKENS_MAX = 4_096
"""Output limit where thinking is asked for: the smallest thinking budget and an answer."""
THINKING_EFFORT = "low"
"""Effort that is asked for where the settings name none."""
CHARS_A_CACHED_TOKEN = 5.5
"""Characters of the long text for each token of the shortest prefix that is cached. English has
about 4.3 a token.
"""
HOPELESS = ("auth", "billing", "network", "timeout")
"""Kinds of failures after which the other checks would fail as well."""
NOTE_CHARS_MAX = 300
ROW_CHARS = 80
NAME_CHARS = 16

_SYSTEM = "You are asked by a program that checks a connection. Do exactly what is asked."
_REPORT = ToolSpec(
    "report",
    "Report a word.",
    {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
)
_UNSUPPORTED = re.compile(
    r"(not|n't|no)\b.{0,20}\b(support|allow|accept|enabled|available|capab)|unsupported|"
    r"unrecogni[sz]ed|unknown (name|parameter|field|argument)|extra inputs",
    re.IGNORECASE | re.DOTALL,
)
"""Wording of a provider that does not offer something."""


# --- Requests -------------------------------------------------------------------------------------


class Check(msgspec.Struct, frozen=True):
    """Check by one request, with what its answer must show."""

    name: CheckName
    request: Request
    output_tokens: int
    """Usual length of the answer, for the estimate of the cost."""
    thinks: bool = False
    """True if the model is opened with an effort."""

    @property
    def input_tokens(self) -> int:
        """Estimate of the input."""
        return estimate_text(self.request.prefix.system) + 150


def red_square() -> bytes:
    """Return the picture of the check as PNG."""
    side = 64
    rows = (b"\0" + b"\xdc\x14\x14" * side) * side

    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def make_checks(model: Model) -> tuple[Check, ...]:
    """Return the six checks in their order. The cache is checked by the bytes of the first one."""
    budget = model.budget
    long_text = _long_text(int(budget.cache_min_tokens * CHARS_A_CACHED_TOKEN))
    picture = Image("red-square", "image/png", len(red_square()), 64, 64)

    def check(
        name: CheckName,
        words: str,
        output_tokens: int,
        *parts: Image,
        system: str = _SYSTEM,
        tools: tuple[ToolSpec, ...] = (),
    ) -> Check:
        prefix = PrefixSet("start", model.provider, model.model, model.wire, system, tools)
        thinks = name == "thinking"
        limit = THINKING_OUTPUT_TOKENS_MAX if thinks else OUTPUT_TOKENS_MAX
        contents: tuple[AnyPart, ...] = (*parts, Text(words))
        items = tuple(
            Item((n, 0, -2), "user", (n, n), "", part) for n, part in enumerate(contents, 1)
        )
        output = min(limit, budget.max_output_tokens)
        request = Request("longrein-doctor", prefix, 1, items, (len(items) - 1,), output)
        return Check(name, request, output_tokens, thinks)

    return (
        check("text", "Answer with the word: ready", 10, system=long_text),
        check("tool call", "Call `report` once, with the word reins.", 40, tools=(_REPORT,)),
        check(
            "parallel calls",
            "Call `report` twice in this same reply, once with the word left and once with the "
            "word right.",
            80,
            tools=(_REPORT,),
        ),
        check("thinking", "Which is larger, 17 * 23 or 19 * 21? Answer with the product.", 400),
        check("cache", "Answer with the word: ready", 10, system=long_text),
        check("image", "Which colour has this picture? Answer with one word.", 10, picture),
    )


def _long_text(chars: int) -> str:
    """Return a system text of at least `chars` characters, the same at every call."""
    lines = [_SYSTEM, "The lines below only make this text long enough for a prompt cache."]
    while sum(map(len, lines)) < chars:
        lines.append(f"Line {len(lines)} says nothing that matters for the answer.")
    return "\n".join(lines)


def estimate_usd(checks: Sequence[Check], price: Price) -> tuple[float, float]:
    """Return what the checks cost as a rule, and at most: when each answer takes its limit."""
    input_tokens = sum(one.input_tokens for one in checks)
    usual = Usage(input_tokens, output_tokens=sum(one.output_tokens for one in checks))
    limit = sum(one.request.max_output_tokens for one in checks)
    dearest = msgspec.structs.replace(price, input=max(price.input, price.write_usd))
    return cost_usd(price, usual), cost_usd(dearest, Usage(input_tokens, output_tokens=limit))


# --- Verdicts -------------------------------------------------------------------------------------


class Claims(msgspec.Struct, frozen=True):
    """Abilities that the settings or the catalog promise of a model; the rest it may lack."""

    caches: bool
    thinks: bool


def claims_of(budget: Budget, effort: str) -> Claims:
    """Return the claims: a known lower price of cached input, and an effort of the settings."""
    price = budget.price
    has_price = price is not None and not price.assumed and 0 <= price.cache_read < price.input
    return Claims(has_price, effort not in ("", "none"))


class Verdict(msgspec.Struct, frozen=True):
    """The outcome of a check."""

    name: CheckName
    state: State
    ms: int = 0
    usage: Usage = Usage()
    note: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "state": self.state,
            "ms": self.ms,
            "input_tokens": self.usage.context_tokens,
            "cached_tokens": self.usage.cache_read_tokens,
            "output_tokens": self.usage.output_tokens,
            "note": self.note,
        }


def judge(check: Check, answer: Reply | Failure, claims: Claims, ms: int) -> Verdict:
    """Return the verdict on the answer to a check, which took `ms` milliseconds."""
    if isinstance(answer, Failure):
        state, note = _failed(check, answer, claims)
    else:
        state, note = _answered(check, answer, claims)
    return Verdict(check.name, state, ms, answer.usage, shortened(note, NOTE_CHARS_MAX))


def _failed(check: Check, failure: Failure, claims: Claims) -> tuple[State, str]:
    message = escape_line(failure.message.partition("; asked again without")[0] or failure.kind)
    may_lack = check.name == "image" or (check.name == "thinking" and not claims.thinks)
    if may_lack and _UNSUPPORTED.search(message):
        return "not offered", message
    return "failed", message


def _answered(check: Check, reply: Reply, claims: Claims) -> tuple[State, str]:
    text = text_of(tuple(part for part in reply.parts if isinstance(part, Text))).strip()
    shown = escape_line(shortened(text, 60))
    match check.name:
        case "tool call":
            return _called(reply, 1, shown)
        case "parallel calls":
            return _called(reply, 2, shown)
        case "thinking" if not _has_thought(reply):
            return ("failed" if claims.thinks else "not offered"), "no thinking came back"
        case "cache" if not reply.usage.cache_read_tokens:
            note = "the same request again read nothing from the cache"
            return ("failed" if claims.caches else "not offered"), note
        case "image" if not re.search(r"\bred\b|crimson|scarlet|红", text, re.IGNORECASE):
            return "failed", f"the picture is red, the answer was: {shown or '(nothing)'}"
        case _ if not text:
            return "failed", f"the answer has no text (it ended with {reply.stop})"
        case _:
            return "ok", ""


def _has_thought(reply: Reply) -> bool:
    is_shown = any(isinstance(part, Thinking) for part in reply.parts)
    return is_shown or reply.usage.reasoning_tokens > 0


def _called(reply: Reply, wanted: int, shown: str) -> tuple[State, str]:
    calls = [part for part in reply.parts if isinstance(part, ToolCall)]
    fitting = [one for one in calls if one.name == "report" and "word" in (one.arguments or {})]
    if len(fitting) >= wanted:
        return "ok", ""
    if len(fitting) < len(calls):
        wrong = next(one for one in calls if one not in fitting)
        given = wrong.received or str(wrong.arguments)
        return "failed", escape_line(f"the call cannot be used: {wrong.name} {given}")
    if not calls:
        advice = "`text_tools = true` under its provider in config.toml calls tools by text"
        return "failed", f"no call came; the answer was: {shown or '(nothing)'}. {advice}"
    return "failed", f"{len(calls)} of {wanted} calls came in one reply"


# --- Rows -----------------------------------------------------------------------------------------


def cost_line(name: str, checks: Sequence[Check], price: Price | None) -> str:
    """Return the line before the checks: how many requests, and what they cost."""
    asked = f"{counted(len(checks), 'request')} to {escape_line(name)}"
    if price is None:
        return f"{asked}; its price is not known. Nothing is stored."
    usual, most = estimate_usd(checks, price)
    if not most:
        return f"{asked}, which cost nothing. Nothing is stored."
    return f"{asked}: about ${usual:.4f}, at most ${most:.4f}. Nothing is stored."


def verdict_rows(verdict: Verdict) -> list[str]:
    """Return the row of a check, and its note below it."""
    head = f"{verdict.name:<{NAME_CHARS}}{verdict.state:<12}"
    if verdict.state != "not asked":
        usage = verdict.usage
        head += (
            f"{verdict.ms:>7,} ms {usage.context_tokens:>7,} in "
            f"{usage.cache_read_tokens:>7,} cached {usage.output_tokens:>6,} out"
        )
    margin = " " * NAME_CHARS
    note = textwrap.wrap(verdict.note, ROW_CHARS, initial_indent=margin, subsequent_indent=margin)
    return [head.rstrip(), *note]

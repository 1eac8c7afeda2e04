"""Parts of an answer that every wire writes: usage, call ids and pieces of arguments."""

import msgspec

from longrein.models.scripted import split_text
from longrein.testing.loopback.script import Call, Fault, Turn

SEARCHES = "web_search"
"""Flag of a request that offers the provider's search."""
ARGUMENT_CHARS = 96
"""Length of a piece of streamed arguments, in characters."""

encode = msgspec.json.Encoder().encode


class CacheUsage(msgspec.Struct, frozen=True):
    """Input tokens by price."""

    input: int
    read: int
    written: int
    written_hour: int = 0
    """Part of `written` that is kept for an hour."""

    @property
    def total(self) -> int:
        """Tokens of the whole input."""
        return self.input + self.read + self.written


class ReplyContext(msgspec.Struct):
    """Data of one answer beside its turn."""

    model: str
    serial: int
    """Number of the request, used in ids."""
    cached: CacheUsage
    output: int
    """Output tokens, reasoning included."""
    reasoning: int
    flags: frozenset[str] = frozenset()
    """Options of the request, in the wire's words."""
    fault: Fault | None = None

    def hit_by(self, kind: str) -> bool:
        """Return whether the fault is of `kind`."""
        return self.fault is not None and self.fault.kind == kind


def count_usage(turn: Turn, cached: CacheUsage) -> tuple[CacheUsage, int, int]:
    """Return (input, output tokens, reasoning tokens) of `turn`; figures of the script override
    counted ones.
    """
    text = (
        len(turn.text.encode()) * turn.repeat
        if isinstance(turn.deltas, int)
        else sum(map(len, turn.deltas))
    )
    thought = -(-len(turn.thinking.encode()) // 4)
    output = thought + max(
        1, -(-text // 4) + sum(8 + len(call.received) // 4 for call in turn.calls)
    )
    said = turn.usage
    if said is None:
        return cached, output, thought
    counted = (cached.input, cached.read, cached.written, output, thought)
    given = (said.input, said.cache_read, said.cache_write, said.output, said.reasoning)
    fresh, read, written, output, thought = (
        b if a < 0 else a for a, b in zip(given, counted, strict=True)
    )
    return CacheUsage(fresh, read, written, cached.written_hour), output, thought


def call_id(call: Call, index: int, answer: ReplyContext, form: str) -> str:
    """Make the provider's id of a call; `form` holds `{}` for a number of 24 digits."""
    if answer.hit_by("missing_ids"):
        return ""
    index = 0 if answer.hit_by("duplicate_ids") else index
    return call.id or form.format(f"{answer.serial:012d}{index:012d}")


def searches_of(turn: Turn, answer: ReplyContext) -> list[tuple[str, str, str]]:
    """Return (query, address, number of 24 digits) of each search of `turn`."""
    made = turn.searches if SEARCHES in answer.flags else ()
    return [
        (query, f"https://found.test/{n}", f"{answer.serial:012d}{n:012d}")
        for n, query in enumerate(made)
    ]


def argument_pieces(turn: Turn, index: int, answer: ReplyContext) -> list[str]:
    """Return the streamed pieces of a call's arguments."""
    text = turn.calls[index].received
    if answer.hit_by("bad_json") and index == len(turn.calls) - 1:
        text = text[: max(1, len(text) * 2 // 3)]
    return split_text(text, ARGUMENT_CHARS)

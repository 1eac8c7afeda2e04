"""Parts of an answer that every wire writes: usage, call ids and pieces of arguments."""

import msgspec

from longrein.testing.loopback.prompt_cache import CacheUsage
from longrein.testing.loopback.script import Call, Fault, Turn, arguments_of, split_text

ARGUMENT_CHARS = 96
"""Length of a piece of streamed arguments, in characters."""

encode = msgspec.json.Encoder().encode


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
    """Return (input, output tokens, reasoning tokens) of `turn`; figures of the script override counted ones."""
    said = turn.usage
    text = len(turn.text.encode()) * turn.repeat if isinstance(turn.deltas, int) else sum(map(len, turn.deltas))
    thought = -(-len(turn.thinking.encode()) // 4)
    spoken = -(-text // 4) + sum(8 + len(arguments_of(call)) // 4 for call in turn.calls)
    output = thought + max(1, spoken)
    if said is None:
        return cached, output, thought
    counted = CacheUsage(
        cached.input if said.input < 0 else said.input,
        cached.read if said.cache_read < 0 else said.cache_read,
        cached.written if said.cache_write < 0 else said.cache_write,
        cached.written_hour,
    )
    return counted, output if said.output < 0 else said.output, thought if said.reasoning < 0 else said.reasoning


def call_id(call: Call, index: int, answer: ReplyContext, form: str) -> str:
    """Make the provider's id of a call; `form` holds `{}` for a number of 24 digits."""
    if answer.hit_by("missing_ids"):
        return ""
    if answer.hit_by("duplicate_ids"):
        index = 0
    return call.id or form.format(f"{answer.serial:012d}{index:012d}")


def argument_pieces(turn: Turn, index: int, answer: ReplyContext) -> list[str]:
    """Return the streamed pieces of a call's arguments."""
    text = arguments_of(turn.calls[index])
    if answer.hit_by("bad_json") and index == len(turn.calls) - 1:
        text = text[: max(1, len(text) * 2 // 3)]
    return split_text(text, ARGUMENT_CHARS)

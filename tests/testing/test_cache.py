"""Simulated prompt cache: marks, lookback, minimum and lifetime on one wire, steps of 128 on the others."""

import json
from typing import Any

import pytest

from longrein.testing.loopback import Count, Limits, LoopbackProvider, Rules, Turn, common_blocks
from tests.testing.http_client import PATHS, post

pytestmark = pytest.mark.anyio
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(name: str, tokens: int, mark: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a text block of exactly so many tokens, without its mark."""
    empty = len(json.dumps({"type": "text", "text": name}))
    return {"type": "text", "text": name + "x" * (4 * tokens - empty), **(mark or {})}


def body(*blocks: Any, model: str = "claude-sonnet-4-5") -> dict[str, Any]:
    return {"model": model, "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": list(blocks)}]}


async def counts(*bodies: Any, **given: Any) -> list[tuple[int, int, int]]:
    """Return (input, read, written) of each request; a number between requests advances the clock in seconds."""
    found = []
    async with LoopbackProvider(lambda _: Turn(text="ok"), **given) as server:
        for one in bodies:
            if isinstance(one, int):
                server.advance(one)
                continue
            answer = await post(server, PATHS["anthropic"], one)
            usage = answer.events[0]["message"]["usage"]
            found.append(
                (
                    usage["input_tokens"],
                    usage["cache_read_input_tokens"],
                    usage["cache_creation_input_tokens"],
                )
            )
            assert answer.events[-2]["usage"]["cache_read_input_tokens"] == usage["cache_read_input_tokens"]
    return found


async def test_a_marked_prefix_is_written_once_and_then_read() -> None:
    first = body(block("a", 2_000, MARK), block("b", 30))
    second = body(block("a", 2_000, MARK), block("b", 30), block("c", 500, MARK), block("d", 9))
    assert await counts(first, first, second) == [(30, 0, 2_000), (30, 2_000, 0), (9, 2_000, 530)]


async def test_marks_may_move_since_they_are_no_part_of_a_block() -> None:
    first = body(block("a", 2_000), block("b", 30, MARK))
    second = body(block("a", 2_000), block("b", 30), block("c", 100, MARK))
    assert await counts(first, second) == [(0, 0, 2_030), (0, 2_030, 100)]


async def test_one_byte_earlier_breaks_it() -> None:
    assert await counts(body(block("a", 2_000, MARK)), body(block("b", 2_000, MARK))) == [(0, 0, 2_000), (0, 0, 2_000)]


async def test_without_marks_nothing_is_cached() -> None:
    assert await counts(body(block("a", 2_000)), body(block("a", 2_000))) == [(2_000, 0, 0)] * 2


async def test_a_short_prefix_is_not_cached() -> None:
    short = body(block("a", 1_000, MARK))
    assert await counts(short, short) == [(1_000, 0, 0)] * 2
    assert await counts(short, short, limits=Limits(cache_min_tokens=500)) == [(0, 0, 1_000), (0, 1_000, 0)]


async def test_an_entry_is_found_twenty_blocks_back_and_no_further() -> None:
    start = block("a", 2_000, MARK)
    near = [block(f"n{n}", 10) for n in range(18)]
    assert (await counts(body(start), body(block("a", 2_000), *near, block("z", 10, MARK))))[1] == (0, 2_000, 190)
    far = [*near, block("n18", 10)]
    assert (await counts(body(start), body(block("a", 2_000), *far, block("z", 10, MARK))))[1] == (0, 0, 2_200)


async def test_an_entry_dies_of_old_age_and_every_use_makes_it_young() -> None:
    marked = body(block("a", 2_000, MARK))
    wrote, read = (0, 0, 2_000), (0, 2_000, 0)
    assert await counts(marked, 299, marked, 299, marked, 301, marked) == [wrote, read, read, wrote]
    assert await counts(marked, 300, marked) == [wrote, wrote], "it lives less than its time to live"
    longer = body(block("a", 2_000), block("b", 30, MARK))
    longest = body(block("a", 2_000), block("c", 30, MARK))
    back = [wrote, (0, 2_000, 30), (0, 2_000, 30)]
    assert await counts(marked, 200, longer, 200, longest) == back, "found from further on, and young again"
    hour = body(block("a", 2_000, HOUR))
    assert await counts(hour, 3_599, hour, 3_601, hour) == [wrote, read, wrote]


async def test_each_model_has_its_own() -> None:
    marked = block("a", 2_000, MARK)
    assert await counts(body(marked), body(marked, model="claude-opus-4-5")) == [(0, 0, 2_000)] * 2


async def test_tools_and_system_stand_before_the_conversation() -> None:
    schema = {"type": "object", "properties": {"p": {"type": "string", "description": "x" * 5_000}}}
    more = {
        "system": [{"type": "text", "text": "y" * 4_000, **MARK}],
        "tools": [{"name": "Read", "description": "d", "input_schema": schema}],
    }
    one, two = body(block("a", 40)) | more, body(block("b", 40)) | more
    (first, second) = await counts(one, two)
    assert first[0] == second[0] == 40
    assert first[2] == second[1] > 2_200


AUTOMATIC = {
    "openai-chat": (
        lambda text: {
            "model": "m",
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": text}],
        },
        lambda events: (
            events[-2]["usage"]["prompt_tokens"],
            events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"],
        ),
    ),
    "openai-responses": (
        lambda text: {"model": "m", "input": text},
        lambda events: (
            events[-1]["response"]["usage"]["input_tokens"],
            events[-1]["response"]["usage"]["input_tokens_details"]["cached_tokens"],
        ),
    ),
    "gemini": (
        lambda text: {"contents": [{"role": "user", "parts": [{"text": text}]}]},
        lambda events: (
            events[-1]["usageMetadata"]["promptTokenCount"],
            events[-1]["usageMetadata"].get("cachedContentTokenCount", 0),
        ),
    ),
}


@pytest.mark.parametrize("wire", AUTOMATIC)
async def test_the_others_cache_by_themselves_in_steps_of_128_from_1024_on(wire: str) -> None:
    make, usage = AUTOMATIC[wire]
    async with LoopbackProvider(lambda _: Turn(text="ok")) as server:

        async def cached(text: str) -> int:
            total, read = usage((await post(server, PATHS[wire], make(text))).events)
            assert read <= total
            return read

        assert await cached("x" * 3_000) == 0
        assert await cached("x" * 3_000) == 0, "shorter than 1,024 tokens"
        assert await cached("x" * 8_000) == 0
        assert await cached("x" * 8_000 + "and more") == 1_920, "2,000 tokens and some, rounded down"
        assert await cached("y" * 8_000) == 0
        server.advance(301)
        assert await cached("x" * 8_000) == 0


async def test_a_script_may_say_what_was_used() -> None:
    said = Count(input=5, cache_read=1_000, cache_write=7, output=11, reasoning=3)
    async with LoopbackProvider([Turn(text="ok", usage=said)] * 3) as server:
        first = (await post(server, PATHS["anthropic"], body(block("a", 30)))).events
        assert first[0]["message"]["usage"]["cache_read_input_tokens"] == 1_000
        assert first[-2]["usage"] == {
            "input_tokens": 5,
            "cache_creation_input_tokens": 7,
            "cache_read_input_tokens": 1_000,
            "output_tokens": 11,
        }
        chat = (await post(server, PATHS["openai-chat"], AUTOMATIC["openai-chat"][0]("hi"))).events
        assert chat[-2]["usage"]["prompt_tokens"] == 1_012
        assert chat[-2]["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3
        google = (await post(server, PATHS["gemini"], AUTOMATIC["gemini"][0]("hi"))).events
        assert google[-1]["usageMetadata"]["candidatesTokenCount"] == 8
        assert google[-1]["usageMetadata"]["thoughtsTokenCount"] == 3


async def test_chat_tells_usage_only_to_who_asks_for_it() -> None:
    async with LoopbackProvider([Turn(text="ok")]) as server:
        quiet = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
        assert not any(e.get("usage") for e in (await post(server, PATHS["openai-chat"], quiet)).events[:-1])


async def test_what_two_requests_have_in_common_is_counted_in_blocks() -> None:
    async with LoopbackProvider(lambda _: Turn(text="ok")) as server:
        await post(server, PATHS["anthropic"], body(block("a", 9, MARK), block("b", 9)))
        await post(server, PATHS["anthropic"], body(block("a", 9), block("b", 9, MARK), block("c", 9)))
        await post(server, PATHS["anthropic"], body(block("a", 9), block("B", 9)))
        one, two, three = server.requests
        assert (common_blocks(one, two), common_blocks(two, three)) == (2, 1)
        assert one.blocks == two.blocks[:2]


async def test_a_mark_is_taken_off_wherever_it_stands_and_nothing_else_is() -> None:
    def compact(*blocks: dict[str, Any]) -> bytes:
        return json.dumps(body(*blocks), separators=(",", ":")).encode()

    plain = {"type": "text", "text": "a"}
    use = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"x": 1, **MARK}}
    async with LoopbackProvider(lambda _: Turn(text="ok"), rules=Rules(lenient=True)) as server:
        for blocks in ((plain, use), ({**plain, **MARK}, {**use, **MARK}), ({**MARK, **plain}, use)):
            await post(server, PATHS["anthropic"], compact(*blocks))
        first, *others = server.requests
        assert b"cache_control" in first.blocks[1], "an argument of that name is no mark"
        assert [request.blocks for request in others] == [first.blocks] * 2

"""Simulated prompt cache: marks, lookback, minimum and lifetime on one wire, steps of 128 on the
others.
"""

import json
from typing import Any

import pytest

from longrein.models import Reply
from longrein.testing.loopback import Count, Limits, LoopbackProvider, Rules, Turn, common_blocks
from longrein_context.events import Text, Usage
from tests.models.http_server import answer_of, item, open_wire_model, request
from tests.tables import record
from tests.testing.http_client import PATHS, post

pytestmark = pytest.mark.anyio
MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


def block(name: str, tokens: int, mark: dict[str, Any] | None = None) -> dict[str, Any]:
    """Make a text block of exactly so many tokens, without its mark."""
    empty = len(json.dumps({"type": "text", "text": name}))
    return {"type": "text", "text": name + "x" * (4 * tokens - empty), **(mark or {})}


def body(*blocks: Any, model: str = "claude-sonnet-4-5") -> dict[str, Any]:
    return record(
        model=model, max_tokens=9, stream=True, messages=[{"role": "user", "content": list(blocks)}]
    )


async def counts(*bodies: Any, **given: Any) -> list[tuple[int, int, int]]:
    """Return (input, read, written) of each request; a number between requests advances the
    clock in seconds.
    """
    async with LoopbackProvider(lambda _: Turn(text="ok"), **given) as server:
        for one in bodies:
            if isinstance(one, int):
                server.advance(one)
            else:
                await post(server, PATHS["anthropic"], one)
        return [
            (r.usage["input"], r.usage["cache_read"], r.usage["cache_write"])
            for r in server.requests
        ]


A, B = block("a", 2_000, MARK), block("b", 30)
WROTE, READ = (0, 0, 2_000), (0, 2_000, 0)
NEAR = [block(f"n{n}", 10) for n in range(18)]
END = block("z", 10, MARK)
HOUR_A = body(block("a", 2_000, HOUR))
LONGER, LONGEST = (body(block("a", 2_000), block(name, 30, MARK)) for name in "bc")
COUNTS: list[tuple[str, list[Any], list[tuple[int, int, int]]]] = [
    ("written once and then read", [body(A, B), body(A, B)], [(30, 0, 2_000), (30, 2_000, 0)]),
    (
        "only what is new is written",
        [body(A, B), body(A, B, block("c", 500, MARK), B)],
        [(30, 0, 2_000), (30, 2_000, 530)],
    ),
    (
        "marks may move",
        [LONGER, body(block("a", 2_000), B, block("c", 100, MARK))],
        [(0, 0, 2_030), (0, 2_030, 100)],
    ),
    ("one byte earlier breaks it", [body(A), body(block("b", 2_000, MARK))], [WROTE, WROTE]),
    ("nothing without marks", [body(block("a", 2_000))] * 2, [(2_000, 0, 0)] * 2),
    ("nothing short", [body(block("a", 1_000, MARK))] * 2, [(1_000, 0, 0)] * 2),
    (
        "twenty blocks back",
        [body(A), body(block("a", 2_000), *NEAR, END)],
        [WROTE, (0, 2_000, 190)],
    ),
    (
        "no further",
        [body(A), body(block("a", 2_000), *NEAR, block("n18", 10), END)],
        [WROTE, (0, 0, 2_200)],
    ),
    (
        "each use renews it",
        [body(A), 299, body(A), 299, body(A), 301, body(A)],
        [WROTE, READ, READ, WROTE],
    ),
    ("it lives less than its time", [body(A), 300, body(A)], [WROTE, WROTE]),
    (
        "found from further on, it is renewed",
        [body(A), 200, LONGER, 200, LONGEST],
        [WROTE, *[(0, 2_000, 30)] * 2],
    ),
    ("an hour", [HOUR_A, 3_599, HOUR_A, 3_601, HOUR_A], [WROTE, READ, WROTE]),
    ("each model has its own", [body(A), body(A, model="claude-opus-4-5")], [WROTE, WROTE]),
]


@pytest.mark.parametrize(
    ("bodies", "expected"), [row[1:] for row in COUNTS], ids=[row[0] for row in COUNTS]
)
async def test_what_a_marked_prefix_costs(
    bodies: list[Any], expected: list[tuple[int, int, int]]
) -> None:
    assert await counts(*bodies) == expected


async def test_the_smallest_prefix_is_a_limit() -> None:
    short = body(block("a", 1_000, MARK))
    assert await counts(short, short, limits=Limits(cache_min_tokens=500)) == [
        (0, 0, 1_000),
        (0, 1_000, 0),
    ]


async def test_tools_and_system_stand_before_the_conversation() -> None:
    tools = [{"name": "Read", "description": "x" * 5_000, "input_schema": {"type": "object"}}]
    more = {"system": [{"type": "text", "text": "y" * 4_000, **MARK}], "tools": tools}
    first, second = await counts(body(block("a", 40)) | more, body(block("b", 40)) | more)
    assert first[0] == second[0] == 40
    assert first[2] == second[1] > 2_200


def of_text(wire: str, text: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": text}]
    return {
        "openai-chat": record(model="m", stream_options={"include_usage": True}, messages=messages),
        "openai-responses": {"model": "m", "input": text},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    }[wire]


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "gemini"])
async def test_the_others_cache_by_themselves_in_steps_of_128_from_1024_on(wire: str) -> None:
    async with LoopbackProvider(lambda _: Turn(text="ok")) as server:
        for text in ("x" * 3_000, "x" * 3_000, "x" * 8_000, "x" * 8_000 + "and more", "y" * 8_000):
            await post(server, PATHS[wire], of_text(wire, text))
        server.advance(301)
        await post(server, PATHS[wire], of_text(wire, "x" * 8_000))
        assert [received.usage["cache_read"] for received in server.requests] == [
            0,
            0,
            0,
            1_920,
            0,
            0,
        ]


async def test_a_script_may_say_what_was_used() -> None:
    said = Count(input=5, cache_read=1_000, cache_write=7, output=11, reasoning=3)
    async with LoopbackProvider([Turn(text="ok", usage=said)] * 4) as server:
        for wire, told in (
            ("anthropic", Usage(5, 1_000, 7, 11)),
            ("openai-chat", Usage(12, 1_000, 0, 11, 3)),
            ("openai-responses", Usage(12, 1_000, 0, 11, 3)),
            ("gemini", Usage(12, 1_000, 0, 11, 3)),
        ):
            model = open_wire_model(wire, server.url)
            reply = (await answer_of(model, request(item(1, Text("go"), "user"), wire=wire)))[-1]
            assert isinstance(reply, Reply)
            assert reply.usage == told
            await model.aclose()


async def test_what_two_requests_have_in_common_is_counted_in_blocks() -> None:
    async with LoopbackProvider(lambda _: Turn(text="ok")) as server:
        await post(server, PATHS["anthropic"], body(block("a", 9, MARK), block("b", 9)))
        await post(
            server, PATHS["anthropic"], body(block("a", 9), block("b", 9, MARK), block("c", 9))
        )
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
        for blocks in (
            (plain, use),
            ({**plain, **MARK}, {**use, **MARK}),
            ({**MARK, **plain}, use),
        ):
            await post(server, PATHS["anthropic"], compact(*blocks))
        first, *others = server.requests
        assert b"cache_control" in first.blocks[1], "an argument of that name is no mark"
        assert [request.blocks for request in others] == [first.blocks] * 2

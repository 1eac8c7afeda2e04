"""What the four wires of the loopback provider check alike: text, depth, size, window, tokens,
paths.
"""

import json
from typing import Any

import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, check, png, post
from tests.testing.test_rules_anthropic import good, picture
from tests.testing.test_rules_chat import DATA, chat, shown
from tests.testing.test_rules_chat import user as chat_user
from tests.testing.test_rules_gemini import gemini
from tests.testing.test_rules_gemini import picture as inline
from tests.testing.test_rules_responses import image, responses

pytestmark = pytest.mark.anyio
BODIES = {"anthropic": good, "openai-chat": chat, "openai-responses": responses, "gemini": gemini}
INVALID = "The request body is not valid JSON: "
DEEP = b'{"a":' * 5_000 + b"1" + b"}" * 5_000


def with_words(wire: str, raw: bytes) -> bytes:
    """A good body with `raw` in place of the user's words."""
    return json.dumps(BODIES[wire]()).encode().replace(b"fix it", raw)


@pytest.mark.parametrize("wire", BODIES)
async def test_what_is_no_request_is_refused_by_all(wire: str) -> None:
    for body, said in (
        (
            with_words(wire, b"a\xffb"),
            INVALID + "'utf-8' codec can't decode byte 0xff in position …",
        ),
        (with_words(wire, b"a\\ud83dz"), INVALID + "JSON is malformed: …"),
        (with_words(wire, b"a\\udc00"), INVALID + "JSON is malformed: …"),
        (
            with_words(wire, b"a\\u0000b"),
            "The request body is not valid: \\u0000 cannot be converted to text",
        ),
        (with_words(wire, b"a\\\\u0000b \\ud83d\\ude00"), ""),
        (b"", INVALID + "Input data was truncated"),
        (b"[]", INVALID + "Expected `object`, got `array`"),
        (DEEP, INVALID + "nested deeper than 100 levels"),
    ):
        await check(wire, body, said)


def depth_of(value: Any) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return isinstance(value, dict | list) + max(map(depth_of, inner), default=0)


async def used(wire: str, body: dict[str, Any]) -> int:
    """Return the input tokens that the provider counts."""
    async with LoopbackProvider(lambda _: Turn(text="fine")) as server:
        await post(server, PATHS[wire], body)
        return sum(
            server.requests[0].usage[kind] for kind in ("input", "cache_read", "cache_write")
        )


@pytest.mark.parametrize("wire", BODIES)
async def test_limits_are_exact(wire: str) -> None:
    body = BODIES[wire]()
    size, depth, both = await used(wire, body), depth_of(body), Rules(counts_output=True)
    for fits, rules, refused in (
        (Limits(window_tokens=size), None, Limits(window_tokens=size - 1)),
        (Limits(window_tokens=size + 1_000), both, Limits(window_tokens=size + 999)),
        (Limits(output_tokens_max=1_000), None, Limits(output_tokens_max=999)),
        (Limits(depth_max=depth), None, Limits(depth_max=depth - 1)),
    ):
        await check(wire, body, "", limits=fits, rules=rules)
        await check(wire, body, "…", limits=refused, rules=rules)
    await check(
        wire,
        body,
        "Request exceeds the maximum size",
        limits=Limits(request_bytes_max=100),
        status=413,
    )


@pytest.mark.parametrize("wire", BODIES)
async def test_a_picture_counts_the_same_whatever_its_bytes(wire: str) -> None:
    add: dict[str, Any] = {
        "anthropic": lambda b, data: b["messages"][0]["content"].append(picture(data)),
        "openai-chat": lambda b, data: b["messages"].append(chat_user([shown(DATA + data)])),
        "openai-responses": lambda b, data: b["input"].append(
            {"role": "user", "content": [image(data)]}
        ),
        "gemini": lambda b, data: b["contents"][0]["parts"].append(inline(data)),
    }
    small, large = BODIES[wire](), BODIES[wire]()
    add[wire](small, png(9, 9))
    add[wire](large, png(1_000, 1_000, 300_000))
    assert await used(wire, small) == await used(wire, large)
    assert 1_600 <= await used(wire, small) - await used(wire, BODIES[wire]()) < 1_660


@pytest.mark.parametrize("wire", BODIES)
async def test_what_an_answer_counts(wire: str) -> None:
    """Four bytes a token; a call costs 8 beside its arguments; thinking is a part of the output."""
    call = Call("Read", {"path": "abcdefghi"})
    turns = [
        Turn(text="x" * 41),
        Turn(text="你好"),
        Turn(thinking="y" * 40, text="x" * 40),
        Turn(calls=(call,)),
    ]
    async with LoopbackProvider(turns) as server:
        for _ in turns:
            await post(server, PATHS[wire], BODIES[wire]())
        counted = [(r.usage["output"], r.usage["reasoning"]) for r in server.requests]
    assert counted == [(11, 0), (2, 0), (20, 10), (13, 0)]


async def test_paths_that_no_wire_has() -> None:
    async with LoopbackProvider([]) as server:
        answer = await post(server, "/v1/embeddings", {})
        assert (answer.status, answer.said) == (404, "Not Found: no wire is spoken at this path")
        assert server.requests == []

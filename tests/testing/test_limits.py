"""Exact limits of the loopback provider, and its token counts."""

from typing import Any

import pytest

from longrein.testing.loopback import Call, Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, post
from tests.testing.loopback_requests import WIRES
from tests.testing.test_rules_anthropic import good as anthropic
from tests.testing.test_rules_anthropic import picture as anthropic_picture
from tests.testing.test_rules_chat import DATA, chat, png
from tests.testing.test_rules_gemini import gemini, picture
from tests.testing.test_rules_responses import responses

pytestmark = pytest.mark.anyio
BODIES = {"anthropic": anthropic, "openai-chat": chat, "openai-responses": responses, "gemini": gemini}


async def status(wire: str, body: dict[str, Any], limits: Limits, rules: Rules | None = None) -> int:
    async with LoopbackProvider(lambda _: Turn(text="fine"), limits=limits, rules=rules) as server:
        return (await post(server, PATHS[wire], body)).status


async def tokens(wire: str, body: dict[str, Any]) -> int:
    """Return the input tokens that the provider counts."""
    async with LoopbackProvider(lambda _: Turn(text="fine")) as server:
        await post(server, PATHS[wire], body)
        return sum(server.requests[0].usage[kind] for kind in ("input", "cache_read", "cache_write"))


@pytest.mark.parametrize("wire", WIRES)
async def test_a_full_window_fits_and_one_token_more_does_not(wire: str) -> None:
    body = BODIES[wire]()
    used = await tokens(wire, body)
    assert await status(wire, body, Limits(window_tokens=used)) == 200
    assert await status(wire, body, Limits(window_tokens=used - 1)) == 400
    both = Rules(counts_output=True)
    assert await status(wire, body, Limits(window_tokens=used + 1_000), both) == 200
    assert await status(wire, body, Limits(window_tokens=used + 999), both) == 400


@pytest.mark.parametrize("wire", WIRES)
async def test_the_largest_answer_may_be_asked_for(wire: str) -> None:
    assert await status(wire, BODIES[wire](), Limits(output_tokens_max=1_000)) == 200
    assert await status(wire, BODIES[wire](), Limits(output_tokens_max=999)) == 400


@pytest.mark.parametrize("wire", WIRES)
async def test_a_picture_counts_the_same_whatever_its_bytes(wire: str) -> None:
    add: dict[str, Any] = {
        "anthropic": lambda b, data: b["messages"][0]["content"].append(anthropic_picture(data)),
        "openai-chat": lambda b, data: b["messages"].append(
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": DATA + data}}]}
        ),
        "openai-responses": lambda b, data: b["input"].append(
            {"role": "user", "content": [{"type": "input_image", "image_url": DATA + data}]}
        ),
        "gemini": lambda b, data: b["contents"][0]["parts"].append(picture(data)),
    }
    small, large = BODIES[wire](), BODIES[wire]()
    add[wire](small, png(9, 9))
    add[wire](large, png(1_000, 1_000, 300_000))
    plain = await tokens(wire, BODIES[wire]())
    assert await tokens(wire, small) == await tokens(wire, large)
    assert 1_600 <= await tokens(wire, small) - plain < 1_660


@pytest.mark.parametrize("wire", WIRES)
async def test_what_an_answer_counts(wire: str) -> None:
    """Four bytes a token; a call costs 8 beside its arguments; thinking is a part of the output."""
    call = Call("Read", {"path": "abcdefghi"})
    turns = [Turn(text="x" * 41), Turn(text="你好"), Turn(thinking="y" * 40, text="x" * 40), Turn(calls=(call,))]
    async with LoopbackProvider(turns) as server:
        for _ in turns:
            await post(server, PATHS[wire], BODIES[wire]())
        counted = [(r.usage["output"], r.usage["reasoning"]) for r in server.requests]
    assert counted == [(11, 0), (2, 0), (20, 10), (13, 0)]

"""Rules of the Anthropic wire: requests that break one, and the refusal; … stands for more
words.
"""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post

pytestmark = pytest.mark.anyio


def text(words: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(id_: str = "c3_0", name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": {"file_path": "a.py"}}


def result(id_: str = "c3_0", content: Any = "print(1)") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content}


def picture(data: str, media: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def user(*blocks: Any, role: str = "user") -> dict[str, Any]:
    return {
        "role": role,
        "content": [text(block) if isinstance(block, str) else block for block in blocks],
    }


def assistant(*blocks: Any) -> dict[str, Any]:
    return user(*blocks, role="assistant")


def good() -> dict[str, Any]:
    """A conversation of two calls in one reply, one of a tool that no longer exists: allowed."""
    schema = {"type": "object", "properties": {"file_path": {"type": "string"}}}
    return {
        "model": "claude-sonnet-4-5",
        "max_tokens": 1000,
        "stream": True,
        "system": [text("You are careful.", cache_control={"type": "ephemeral"})],
        "tools": [{"name": "Read", "description": "Read a file.", "input_schema": schema}],
        "messages": [
            user("fix it"),
            assistant("I look.", use("c3_0"), use("c3_1", "Gone")),
            user(result("c3_0"), result("c3_1"), "and hurry"),
        ],
    }


def blocks(at: int, *made: Any) -> Change:
    return lambda body: body["messages"][at].update(content=list(made))


def talk(*made: Any) -> Change:
    return lambda body: body.update(messages=list(made))


def field(name: str, value: Any) -> Change:
    return lambda body: body.update({name: value})


def without(name: str) -> Change:
    return lambda body: body.pop(name)


MARKED = {"cache_control": {"type": "ephemeral"}}
RULES: list[tuple[Change, str]] = [
    (lambda body: None, ""),
    (lambda b: b["messages"][0].update(content="fix it"), ""),
    (without("max_tokens"), "max_tokens: Field required"),
    (without("model"), "model: Field required"),
    (field("max_tokens", "9"), "max_tokens: Expected `int`, got `str`"),
    (field("max_tokens", 0), "max_tokens: Input should be greater than or equal to 1"),
    (field("prompt_cache_key", "s"), "prompt_cache_key: Extra inputs are not permitted"),
    (talk(), "messages: at least one message is required"),
    (talk({"role": "system", "content": "x"}), 'messages: Unexpected role "system". The …as an…'),
    (talk(assistant("hello"), user("hi")), 'messages: first message must use the "user" role'),
    (talk(user("a"), user("b")), 'messages: roles must alternate between "user" and …multiple…'),
    (talk(user()), "messages.0: all messages must have non-empty content …the optional final…"),
    (blocks(0, text("")), "messages: text content blocks must be non-empty"),
    (blocks(0, text(" \n")), "messages: text content blocks must contain non-whitespace text"),
    (blocks(0, text("", **MARKED)), "messages.0.content.0.text: cache_control cannot be set for…"),
    (field("system", [text("")]), "system: text content blocks must be non-empty"),
    (talk(user("a"), assistant("b")), "This model does not support assistant message …must end…"),
    (blocks(2, result("c3_0")), "messages.1: `tool_use` ids were found without …: c3_1."),
    (blocks(2, text("and"), result("c3_0"), result("c3_1")), "messages.1: `tool_use` ids were…"),
    (
        talk(user("a"), assistant(use()), user("b"), assistant("c"), user(result())),
        "messages.1: …: c3_0.",
    ),
    (talk(user("a"), assistant(use())), "messages.1: `tool_use` ids were found without …: c3_0."),
    (blocks(2, result("c3_0"), result("c3_1"), result("c9_0")), "messages.2.content.2:…"),
    (blocks(2, result("c3_0"), result("c3_1"), result("c3_0")), "messages.2.content.2: each…"),
    (blocks(1, use("c3_0"), use("c3_0")), "messages.1.content.1: `tool_use` ids must be unique"),
    (
        talk(user("a"), assistant(use()), user(result()), assistant(use()), user(result())),
        "messages.3.content.…be unique",
    ),
    (blocks(1, use("c3.0")), "messages.1.content.0.tool_use.id: String should match pattern…"),
    (blocks(1, use("c3_0", "a b")), "messages.1.content.0.tool_use.name: String should…"),
    (
        lambda b: b["messages"][1]["content"][1].update(input="{}"),
        "messages.1.content.1.tool_use.…a valid dictionary",
    ),
    (
        blocks(1, {"type": "thinking", "thinking": "hm"}, use("c3_0"), use("c3_1")),
        "messages.1.content.0.…required",
    ),
    (
        blocks(
            1, {"type": "thinking", "thinking": "hm", "signature": "Er=="}, use("c3_0"), use("c3_1")
        ),
        "messages.1.content.0: …block",
    ),
    (
        blocks(1, {"type": "thinking", "thinking": "hm", "signature": "x", **MARKED}),
        "messages.1.content.0.…permitted",
    ),
    (blocks(0, use()), "messages.0.content.0: `tool_use` blocks can only be in `assistant`…"),
    (blocks(0, *(text(f"t{n}", **MARKED) for n in range(4))), "A maximum of 4 blocks with…"),
    (lambda b: b["tools"].append(b["tools"][0]), "tools: Tool names must be unique."),
    (lambda b: b["tools"][0].update(input_schema={}), "tools.0.custom.input_schema.type: Input…"),
    (field("thinking", {"type": "enabled", "budget_tokens": 1024}), "`max_tokens` must be…"),
    (field("thinking", {"type": "enabled", "budget_tokens": 1000}), "thinking.enabled.…or equal…"),
    (
        lambda b: b.update(max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 1024}),
        "messages.1.…`thinking`.",
    ),
    (
        lambda b: (
            b.update(max_tokens=1025, thinking={"type": "enabled", "budget_tokens": 1024}),
            talk(user("a"), assistant("b"), user("c"))(b),
        ),
        "",
    ),
    (field("max_tokens", 1), ""),
    (field("thinking", {"type": "adaptive"}), ""),
    (blocks(0, "fix it"), "messages.0.content.0: Input should be a valid dictionary or object to…"),
    (blocks(0, {"type": "input_text", "text": "x"}), "messages.0.content.0: Input tag…"),
    (blocks(0, text(7)), "messages.0.content.0.text.text: Input should be a valid string"),
    (blocks(2, result("c3.0")), "messages.2.content.0.tool_result.tool_use_id: …match pattern…"),
    (blocks(2, result("c3_0", [use()])), "messages.2.content.0.tool_result.content.0: …any of…"),
    (blocks(2, result("c3_0", ""), result("c3_1", [])), ""),
    # R025: pictures
    (blocks(0, {"type": "image"}), "messages.0.content.0.image.source: Field required"),
    (blocks(0, {"type": "image", "source": {"type": "url", "url": "https://x"}}), ""),
    (blocks(0, picture(png(9, 9), "image/tiff")), "messages.0.content.0.image.source.base64.…or…"),
    (blocks(0, picture(png(100, 100))), ""),
    (blocks(0, picture("aGVsbG8=")), "Could not process image"),
    (blocks(0, picture(png(10, 10), "image/jpeg")), "messages.0.content.0.image.source.…to be a…"),
    (blocks(0, picture(png(10, 10, 4_500_000))), "messages.0.content.0.image.source.base64:…"),
    (blocks(0, picture(png(9_000, 10))), "messages.0.content.0.image.source.base64.data:…"),
    (blocks(0, *(picture(png(2_162, 5)) for _ in range(20))), ""),
    (blocks(0, *(picture(png(2_000, 5)) for _ in range(21))), ""),
    (
        lambda b: (
            blocks(0, *(picture(png(2_162, 5)) for _ in range(20)))(b),
            blocks(2, result("c3_0", [picture(png(2_162, n)) for n in range(5)]), result("c3_1"))(
                b
            ),
        ),
        "messages.0.…2000 pixels",
    ),
    (blocks(0, *(picture(png(5, 5)) for _ in range(101))), "messages: too many images and…"),
]


@pytest.mark.parametrize(("change", "said"), RULES)
async def test_a_rule_of_the_wire(change: Change, said: str) -> None:
    await check("anthropic", changed(good, change), said)


ENDS = changed(good, talk(user("a"), assistant("Sure:")))
TRAILING = changed(good, talk(user("a"), assistant("Sure: ")))
LONG = changed(good, blocks(0, text("x" * 40_000)))
NO_VERSION, KEYS = {"anthropic-version": ""}, Rules(keys=("k-1",))
SWITCHES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (ENDS, "", {"rules": Rules(accepts_prefill=True)}),
    (TRAILING, "messages: final …cannot end with…", {"rules": Rules(accepts_prefill=True)}),
    (changed(good, talk(user("a"), user("b"))), "", {"rules": Rules(alternation=False)}),
    (changed(good, talk(assistant(""))), "", {"rules": Rules(lenient=True)}),
    (LONG, "prompt is too long: 10148 tokens > 10000…", {"limits": Limits(window_tokens=10_000)}),
    (good(), "max_tokens: 1000 > 900, which is the…", {"limits": Limits(output_tokens_max=900)}),
    (good(), "anthropic-version: header is required", {"headers": NO_VERSION}),
    (good(), "invalid x-api-key", {"rules": KEYS, "headers": {"x-api-key": "k-2"}, "status": 401}),
    (good(), "", {"rules": KEYS, "headers": {"x-api-key": "k-1"}}),
]


@pytest.mark.parametrize(("body", "said", "given"), SWITCHES)
async def test_a_switch_or_a_limit(body: dict[str, Any], said: str, given: dict[str, Any]) -> None:
    await check("anthropic", body, said, **given)


async def test_R027_thinking_goes_back_unchanged_to_the_model_that_thought() -> None:
    async with LoopbackProvider([Turn(thinking="Let me see.", text="Right.")]) as server:
        streamed = (await post(server, PATHS["anthropic"], good())).events
    signature = next(
        e["delta"]["signature"]
        for e in streamed
        if e.get("delta", {}).get("type") == "signature_delta"
    )
    signed = {"type": "thinking", "thinking": "Let me see.", "signature": signature}
    mine = changed(good, blocks(1, signed, use("c3_0"), use("c3_1")))
    await check("anthropic", mine | {"model": "claude-sonnet-4-5-20250929"}, "")
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    await check("anthropic", mine | {"model": "claude-opus-4-5"}, words)
    other = changed(good, blocks(1, signed | {"thinking": "Let me see!"}, use("c3_0"), use("c3_1")))
    await check("anthropic", other, words)

"""Rules of the Anthropic wire: for each a request that breaks it, and the exact error."""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, LoopbackProvider, Rules, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post, table

pytestmark = pytest.mark.anyio


def text(words: Any, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **more}


def use(id_: str = "c3_0", name: str = "Read") -> dict[str, Any]:
    return {"type": "tool_use", "id": id_, "name": name, "input": {"file_path": "a.py"}}


def result(id_: str = "c3_0", content: Any = "print(1)") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": id_, "content": content}


def picture(data: str, media: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media, "data": data}}


def user(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


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
            user(text("fix it")),
            assistant(text("I look."), use("c3_0"), use("c3_1", "Gone")),
            user(result("c3_0"), result("c3_1"), text("and hurry")),
        ],
    }


def blocks(at: int, *made: Any) -> Change:
    """Message `at` holds these blocks."""
    return lambda body: body["messages"][at].update(content=list(made))


def talk(*made: Any) -> Change:
    """The whole conversation."""
    return lambda body: body.update(messages=list(made))


def field(name: str, value: Any) -> Change:
    return lambda body: body.update({name: value})


def without(name: str) -> Change:
    return lambda body: body.pop(name)


MISSING = "`tool_use` ids were found without `tool_result` blocks immediately after: "
EACH_USE = "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
EACH_RESULT = "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
MARKED = {"cache_control": {"type": "ephemeral"}}
SIDE = "At least one of the image dimensions exceed max allowed size"

RULES = table(
    ("as it should be", lambda body: None, 200, ""),
    ("a string is one text block", lambda b: b["messages"][0].update(content="fix it"), 200, ""),
    ("max_tokens is required", without("max_tokens"), 400, "max_tokens: Field required"),
    ("model is required", without("model"), 400, "model: Field required"),
    ("max_tokens is a number", field("max_tokens", "9"), 400, "max_tokens: Expected `int`, got `str`"),
    (
        "max_tokens is positive",
        field("max_tokens", 0),
        400,
        "max_tokens: Input should be greater than or equal to 1",
    ),
    ("no unknown field", field("prompt_cache_key", "s"), 400, "prompt_cache_key: Extra inputs are not permitted"),
    ("at least one message", talk(), 400, "messages: at least one message is required"),
    (
        "no system role",
        talk({"role": "system", "content": "x"}),
        400,
        (
            'messages: Unexpected role "system". The Messages API accepts a top-level `system` '
            'parameter, not "system" as '
            "an input message role."
        ),
    ),
    (
        "no other role",
        talk({"role": "tool", "content": "x"}),
        400,
        "messages.0.role: Input should be 'user' or 'assistant'",
    ),
    (
        "first the user",
        talk(assistant(text("hello")), user(text("hi"))),
        400,
        'messages: first message must use the "user" role',
    ),
    (
        "roles alternate",
        talk(user(text("a")), user(text("b"))),
        400,
        'messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row',
    ),
    (
        "no empty message",
        talk(user()),
        400,
        "messages.0: all messages must have non-empty content except for the optional final assistant message",
    ),
    ("no empty text", blocks(0, text("")), 400, "messages: text content blocks must be non-empty"),
    ("no blank text", blocks(0, text(" \n")), 400, "messages: text content blocks must contain non-whitespace text"),
    (
        "no mark on empty text",
        blocks(0, text("", **MARKED)),
        400,
        "messages.0.content.0.text: cache_control cannot be set for empty text blocks",
    ),
    ("no empty system", field("system", [text("")]), 400, "system: text content blocks must be non-empty"),
    (
        "no prefill",
        talk(user(text("a")), assistant(text("b"))),
        400,
        "This model does not support assistant message prefill. The conversation must end with a user message.",
    ),
    ("a result is missing", blocks(2, result("c3_0")), 400, f"messages.1: {MISSING}c3_1. {EACH_USE}"),
    (
        "results come first",
        blocks(2, text("and"), result("c3_0"), result("c3_1")),
        400,
        f"messages.1: {MISSING}c3_0, c3_1. {EACH_USE}",
    ),
    (
        "results come at once",
        talk(user(text("a")), assistant(use()), user(text("b")), assistant(text("c")), user(result())),
        400,
        f"messages.1: {MISSING}c3_0. {EACH_USE}",
    ),
    (
        "calls at the end",
        talk(user(text("a")), assistant(use())),
        400,
        f"messages.1: {MISSING}c3_0. {EACH_USE}",
    ),
    (
        "a result without a call",
        blocks(2, result("c3_0"), result("c3_1"), result("c9_0")),
        400,
        f"messages.2.content.2: unexpected `tool_use_id` found in `tool_result` blocks: c9_0. {EACH_RESULT}",
    ),
    (
        "two results for one call",
        blocks(2, result("c3_0"), result("c3_1"), result("c3_0")),
        400,
        (
            "messages.2.content.2: each tool_use must have a single result. Found multiple "
            "`tool_result` blocks with id: "
            "c3_0"
        ),
    ),
    (
        "ids are unique",
        blocks(1, use("c3_0"), use("c3_0")),
        400,
        "messages.1.content.1: `tool_use` ids must be unique",
    ),
    (
        "ids are unique in the whole",
        talk(user(text("a")), assistant(use()), user(result()), assistant(use()), user(result())),
        400,
        "messages.3.content.0: `tool_use` ids must be unique",
    ),
    (
        "alphabet of ids",
        blocks(1, use("c3.0")),
        400,
        "messages.1.content.0.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        "alphabet of names",
        blocks(1, use("c3_0", "a b")),
        400,
        "messages.1.content.0.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    (
        "input is an object",
        lambda b: b["messages"][1]["content"][1].update(input="{}"),
        400,
        "messages.1.content.1.tool_use.input: Input should be a valid dictionary",
    ),
    (
        "thinking is signed",
        blocks(1, {"type": "thinking", "thinking": "hm"}, use("c3_0"), use("c3_1")),
        400,
        "messages.1.content.0.thinking.signature: Field required",
    ),
    (
        "no foreign thinking",
        blocks(1, {"type": "thinking", "thinking": "hm", "signature": "Er=="}, use("c3_0"), use("c3_1")),
        400,
        "messages.1.content.0: Invalid `signature` in `thinking` block",
    ),
    (
        "no mark on thinking",
        blocks(1, {"type": "thinking", "thinking": "hm", "signature": "x", **MARKED}),
        400,
        "messages.1.content.0.thinking.cache_control: Extra inputs are not permitted",
    ),
    (
        "a call is the assistant's",
        blocks(0, use()),
        400,
        "messages.0.content.0: `tool_use` blocks can only be in `assistant` messages",
    ),
    (
        "four marks",
        blocks(0, *(text(f"t{n}", **MARKED) for n in range(4))),
        400,
        "A maximum of 4 blocks with cache_control may be provided. Found 5.",
    ),
    (
        "tool names are unique",
        lambda b: b["tools"].append(b["tools"][0]),
        400,
        "tools: Tool names must be unique.",
    ),
    (
        "a tool's schema is an object's",
        lambda b: b["tools"][0].update(input_schema={}),
        400,
        "tools.0.custom.input_schema.type: Input should be 'object'",
    ),
    (
        "a thinking budget leaves room",
        field("thinking", {"type": "enabled", "budget_tokens": 1024}),
        400,
        "`max_tokens` must be greater than `thinking.budget_tokens`",
    ),
    (
        "a thinking budget has a floor",
        field("thinking", {"type": "enabled", "budget_tokens": 1000}),
        400,
        "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024",
    ),
    (
        "a thinking budget wants thinking before calls",
        lambda b: b.update(max_tokens=3000, thinking={"type": "enabled", "budget_tokens": 1024}),
        400,
        (
            "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`. "
            "When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block (preceeding the lastmost set of "
            "`tool_use` and `tool_result` blocks). We recommend you include thinking blocks from "
            "previous turns. To avoid "
            "this requirement, disable `thinking`."
        ),
    ),
    (
        "a thinking budget wants nothing of turns that are over",
        lambda b: (
            b.update(max_tokens=1025, thinking={"type": "enabled", "budget_tokens": 1024}),
            talk(user(text("a")), assistant(text("b")), user(text("c")))(b),
        ),
        200,
        "",
    ),
    ("the smallest answer", field("max_tokens", 1), 200, ""),
    ("adaptive thinking wants none", field("thinking", {"type": "adaptive"}), 200, ""),
    (
        "a block is an object",
        blocks(0, "fix it"),
        400,
        "messages.0.content.0: Input should be a valid dictionary or object to extract fields from",
    ),
    (
        "known blocks",
        blocks(0, {"type": "input_text", "text": "x"}),
        400,
        (
            "messages.0.content.0: Input tag 'input_text' found using 'type' does not match any of the "
            "expected tags: 'text', "
            "'image', 'document', 'thinking', 'redacted_thinking', 'tool_use', 'tool_result'"
        ),
    ),
    ("text is text", blocks(0, text(7)), 400, "messages.0.content.0.text.text: Input should be a valid string"),
    (
        "alphabet of a result's id",
        blocks(2, result("c3.0")),
        400,
        "messages.2.content.0.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'",
    ),
    (
        "known blocks in a result",
        blocks(2, result("c3_0", [use()])),
        400,
        (
            "messages.2.content.0.tool_result.content.0: Input tag 'tool_use' found using 'type' does "
            "not match any of the "
            "expected tags"
        ),
    ),
    (
        "no empty text in a result",
        blocks(2, result("c3_0", [text("")])),
        400,
        "messages: text content blocks must be non-empty",
    ),
    ("an empty result", blocks(2, result("c3_0", ""), result("c3_1", [])), 200, ""),
    (
        "alphabet of a tool's name",
        lambda b: b["tools"][0].update(name="a.b"),
        400,
        "tools.0.custom.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'",
    ),
    # R025: pictures
    ("a picture has a source", blocks(0, {"type": "image"}), 400, "messages.0.content.0.image.source: Field required"),
    ("a picture elsewhere", blocks(0, {"type": "image", "source": {"type": "url", "url": "https://x"}}), 200, ""),
    (
        "known kinds of pictures",
        blocks(0, picture(png(9, 9), "image/tiff")),
        400,
        (
            "messages.0.content.0.image.source.base64.media_type: Input should be 'image/jpeg', "
            "'image/png', 'image/gif' or "
            "'image/webp'"
        ),
    ),
    ("a picture that is no base64", blocks(0, picture("äöü")), 400, "Could not process image"),
    ("a good picture", blocks(0, picture(png(100, 100))), 200, ""),
    ("a picture that is none", blocks(0, picture("aGVsbG8=")), 400, "Could not process image"),
    (
        "a picture of another kind",
        blocks(0, picture(png(10, 10), "image/jpeg")),
        400,
        (
            "messages.0.content.0.image.source.base64.data: The image was specified using the "
            "image/jpeg media type, but the "
            "image appears to be a image/png image"
        ),
    ),
    (
        "a picture of 6 MB",
        blocks(0, picture(png(10, 10, 4_500_000))),
        400,
        "messages.0.content.0.image.source.base64: image exceeds 5 MB maximum: 6000044 bytes > 5242880 bytes",
    ),
    (
        "a picture 9,000 pixels wide",
        blocks(0, picture(png(9_000, 10))),
        400,
        f"messages.0.content.0.image.source.base64.data: {SIDE}: 8000 pixels",
    ),
    (
        "a picture in a result that is none",
        blocks(2, result("c3_0", [picture("aGVsbG8=")]), result("c3_1")),
        400,
        "Could not process image",
    ),
    ("20 pictures of 2,162 pixels", blocks(0, *(picture(png(2_162, 5)) for _ in range(20))), 200, ""),
    ("21 pictures of 2,000 pixels", blocks(0, *(picture(png(2_000, 5)) for _ in range(21))), 200, ""),
    ("100 pictures", blocks(0, *(picture(png(5, 5)) for _ in range(100))), 200, ""),
    (
        "25 pictures of 2,162 pixels, some in a result",
        lambda b: (
            blocks(0, *(picture(png(2_162, 5)) for _ in range(20)))(b),
            blocks(2, result("c3_0", [picture(png(2_162, n)) for n in range(5)]), result("c3_1"))(b),
        ),
        400,
        f"messages.0.content.0.image.source.base64.data: {SIDE} for many-image requests: 2000 pixels",
    ),
    (
        "101 pictures",
        blocks(0, *(picture(png(5, 5)) for _ in range(101))),
        400,
        "messages: too many images and documents: 101 + 0 > 100",
    ),
)


@pytest.mark.parametrize(**RULES)
async def test_a_rule_is_enforced_in_the_providers_words(change: Change, status: int, said: str) -> None:
    answer = await check("anthropic", changed(good, change), status, said)
    if status != 200:
        assert b'"type":"error","error":{"type":"invalid_request_error"' in answer.body


async def test_switches_let_other_servers_be_played() -> None:
    ends = changed(good, talk(user(text("a")), assistant(text("Sure:"))))
    await check("anthropic", ends, 200, "", rules=Rules(accepts_prefill=True))
    trailing = changed(good, talk(user(text("a")), assistant(text("Sure: "))))
    words = "messages: final assistant content cannot end with trailing whitespace"
    await check("anthropic", trailing, 400, words, rules=Rules(accepts_prefill=True))
    await check(
        "anthropic", changed(good, talk(user(text("a")), user(text("b")))), 200, "", rules=Rules(alternation=False)
    )
    await check("anthropic", changed(good, talk(assistant(text("")))), 200, "", rules=Rules(lenient=True))


async def test_the_window_is_held_and_the_error_names_it() -> None:
    long = changed(good, blocks(0, text("x" * 40_000)))
    limits = Limits(window_tokens=10_000)
    words = "prompt is too long: 10148 tokens > 10000 maximum"
    await check("anthropic", long, 400, words, limits=limits)
    await check("anthropic", long, 200, "", limits=Limits(window_tokens=10_200))
    words = "prompt is too long: 11148 tokens > 11000 maximum"
    await check("anthropic", long, 400, words, limits=Limits(window_tokens=11_000), rules=Rules(counts_output=True))
    words = "max_tokens: 1000 > 900, which is the maximum allowed number of output tokens"
    await check("anthropic", good(), 400, words, limits=Limits(output_tokens_max=900))


async def test_R027_thinking_goes_back_unchanged_to_the_model_that_thought() -> None:
    async with LoopbackProvider([Turn(thinking="Let me see.", text="Right.")]) as server:
        streamed = (await post(server, PATHS["anthropic"], good())).events
    signature = next(e["delta"]["signature"] for e in streamed if e.get("delta", {}).get("type") == "signature_delta")
    signed = {"type": "thinking", "thinking": "Let me see.", "signature": signature}
    mine = changed(good, blocks(1, signed, use("c3_0"), use("c3_1")))
    await check("anthropic", mine, 200, "")
    await check("anthropic", mine | {"model": "claude-sonnet-4-5-20250929"}, 200, "")
    words = "messages.1.content.0: Invalid `signature` in `thinking` block"
    await check("anthropic", mine | {"model": "claude-opus-4-5"}, 400, words)
    changed_text = changed(good, blocks(1, signed | {"thinking": "Let me see!"}, use("c3_0"), use("c3_1")))
    await check("anthropic", changed_text, 400, words)


async def test_the_version_and_the_key_are_asked_for() -> None:
    await check("anthropic", good(), 400, "anthropic-version: header is required", headers={"anthropic-version": ""})
    rules = Rules(keys=("k-1",))
    await check("anthropic", good(), 401, "invalid x-api-key", rules=rules, headers={"x-api-key": "k-2"})
    await check("anthropic", good(), 200, "", rules=rules, headers={"x-api-key": "k-1"})

"""Rules of the Chat Completions wire: for each a request that breaks it, and the exact error."""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, Rules
from tests.testing.http_client import Change, changed, check, png, table

pytestmark = pytest.mark.anyio

NAME = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
EMPTY = "empty array. Expected an array with minimum length 1, but got an empty array instead."
UNSUPPORTED = (
    "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
    "['png', 'jpeg', 'gif', 'webp']."
)
DATA = "data:image/png;base64,"


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def call(id_: str = "c3_0", name: str = "Read", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


def calls(*made: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(made)}


def tool(id_: str = "c3_0", content: Any = "print(1)") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


def shown(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def chat() -> dict[str, Any]:
    function = {"name": "Read", "description": "Read a file.", "parameters": {"type": "object"}}
    return {
        "model": "gpt-5",
        "stream": True,
        "max_tokens": 1000,
        "tools": [{"type": "function", "function": function}],
        "messages": [
            {"role": "system", "content": "You are careful."},
            user("fix it"),
            calls(call("c3_0"), call("c3_1", "Gone")),
            tool("c3_0"),
            tool("c3_1"),
            user("and hurry"),
        ],
    }


def talk(*made: Any) -> Change:
    return lambda body: body.update(messages=list(made))


def arguments(text: str) -> Change:
    return talk(user("a"), calls(call(arguments=text)), tool())


MUST = "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
FOLLOWED = (
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. "
    "The following tool_call_ids did not have response messages: "
)

CHAT = table(
    ("as it should be", lambda body: None, 200, ""),
    ("model is required", lambda b: b.pop("model"), 400, "you must provide a model parameter"),
    ("messages are required", lambda b: b.pop("messages"), 400, "Missing required parameter: 'messages'."),
    ("at least one message", talk(), 400, f"Invalid 'messages': {EMPTY}"),
    (
        "an output limit is positive",
        lambda b: b.update(max_tokens=0),
        400,
        "Invalid 'max_tokens': integer below minimum value. Expected a value >= 1, but got 0 instead.",
    ),
    ("the smallest answer", lambda b: b.update(max_tokens=1), 200, ""),
    (
        "known roles",
        talk({"role": "human", "content": "x"}),
        400,
        (
            "Invalid value: 'human'. Supported values are: 'system', 'assistant', 'user', 'function', 'tool', and "
            "'developer'."
        ),
    ),
    ("content is needed", talk(user(None)), 400, "Invalid value for 'content': expected a string, got null."),
    (
        "content of a kind",
        talk(user(7)),
        400,
        "Invalid type for 'messages[0].content': expected one of a string or array of objects.",
    ),
    (
        "a message is an object",
        talk("fix it"),
        400,
        "Invalid type for 'messages[0]': expected an object.",
    ),
    (
        "a text part has text",
        talk(user([{"type": "text"}])),
        400,
        "Missing required parameter: 'messages[0].content[0].text'.",
    ),
    (
        "a call is a function's",
        talk(user("a"), calls({"id": "c1", "type": "custom"}), tool("c1")),
        400,
        "Missing required parameter: 'messages[1].tool_calls[0].function'.",
    ),
    (
        "a tool is a function",
        lambda b: b["tools"].append({"type": "function"}),
        400,
        "Missing required parameter: 'tools[1].function'.",
    ),
    ("a picture elsewhere", talk(user([shown("https://x/y.png")])), 200, ""),
    (
        "a picture nowhere",
        talk(user([shown("/tmp/y.png")])),
        400,
        "Invalid 'messages[0].content[0].image_url.image_url': expected a base64-encoded data URL or an address.",
    ),
    (
        "a picture without an address",
        talk(user([{"type": "image_url"}])),
        400,
        "Missing required parameter: 'messages[0].content[0].image_url.image_url'.",
    ),
    (
        "501 pictures",
        talk(user([shown(DATA + png(9, 9))] * 501)),
        400,
        "Invalid 'messages': too many images. At most 500 are allowed.",
    ),
    ("content parts", talk(user([])), 400, f"Invalid 'messages[0].content': {EMPTY}"),
    (
        "known parts",
        talk(user([{"type": "input_text", "text": "x"}])),
        400,
        "Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'input_audio', 'refusal', and 'file'.",
    ),
    (
        "first the user",
        talk({"role": "assistant", "content": "hello"}, user("hi")),
        400,
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/...",
    ),
    (
        "no prefill",
        talk(user("a"), {"role": "assistant", "content": "b"}),
        400,
        "Cannot set `add_generation_prompt` to True when the last message is from the assistant.",
    ),
    ("a result is missing", talk(user("a"), calls(call("c1"), call("c2")), tool("c1")), 400, FOLLOWED + "c2"),
    ("results come at once", talk(user("a"), calls(call("c1")), user("b"), tool("c1")), 400, FOLLOWED + "c1"),
    ("a result without a call", talk(user("a"), tool("c1"), user("b")), 400, MUST),
    ("a result of another call", talk(user("a"), calls(call("c1")), tool("c2")), 400, MUST),
    (
        "two results for one call",
        talk(user("a"), calls(call("c1")), tool("c1"), tool("c1")),
        400,
        "Duplicate value for 'tool_call_id' of 'c1'",
    ),
    (
        "ids are unique",
        talk(user("a"), calls(call("c1"), call("c1")), tool("c1")),
        400,
        "Duplicate value for 'tool_calls[].id' of 'c1'",
    ),
    (
        "ids are unique in the whole",
        talk(user("a"), calls(call("c1")), tool("c1"), calls(call("c1")), tool("c1")),
        400,
        "Duplicate value for 'tool_calls[].id' of 'c1'",
    ),
    (
        "a result names its call",
        talk(user("a"), tool("")),
        400,
        "Missing required parameter: 'messages[1].tool_call_id'.",
    ),
    (
        "calls are not empty",
        talk(user("a"), calls()),
        400,
        "Invalid value for 'content': expected a string, got null.",
    ),
    (
        "calls are not empty beside text",
        talk(user("a"), {"role": "assistant", "content": "x", "tool_calls": []}),
        400,
        f"Invalid 'messages[1].tool_calls': {EMPTY}",
    ),
    (
        "a call has an id",
        talk(user("a"), calls(call("")), tool("")),
        400,
        "Missing required parameter: 'messages[1].tool_calls[0].id'.",
    ),
    (
        "an id has at most 40 characters",
        talk(user("a"), calls(call("c" * 41)), tool("c" * 41)),
        400,
        (
            "Invalid 'messages[1].tool_calls[0].id': string too long. Expected a string with maximum "
            "length 40, but got a "
            "string with length 41 instead."
        ),
    ),
    (
        "alphabet of names",
        talk(user("a"), calls(call("c1", "a b")), tool("c1")),
        400,
        f"Invalid 'messages[1].tool_calls[0].function.name': {NAME}",
    ),
    *(
        (
            f"R014 arguments that are {what}",
            arguments(text),
            400,
            "Invalid 'messages[1].tool_calls[0].function.arguments': expected a string that holds a JSON object.",
        )
        for what, text in (("cut", '{"a": 1'), ("a list", "[1]"), ("nothing", ""))
    ),
    (
        "calls are the assistant's",
        talk(user("a") | {"tool_calls": [call()]}),
        400,
        "'tool_calls' is only allowed in messages with role 'assistant'",
    ),
    (
        "tools have names",
        lambda b: b["tools"][0]["function"].update(name="a b"),
        400,
        f"Invalid 'tools[0].function.name': {NAME}",
    ),
    (
        "tool names are unique",
        lambda b: b["tools"].append(b["tools"][0]),
        400,
        "Invalid 'tools': function names must be unique, but 'Read' occurs twice.",
    ),
    ("a good picture", talk(user([shown(DATA + png(9, 9))])), 200, ""),
    ("a picture that is none", talk(user([shown(DATA + "aGk=")])), 400, UNSUPPORTED),
    ("a picture of another kind", talk(user([shown("data:image/gif;base64," + png(9, 9))])), 400, UNSUPPORTED),
    (
        "a picture in a result",
        talk(user("a"), calls(call()), tool(content=[shown(DATA + png(9, 9))])),
        400,
        (
            "Invalid 'messages[2]'. Image URLs are only allowed for messages with role 'user', but "
            "this message with role "
            "'tool' contains an image URL."
        ),
    ),
)


@pytest.mark.parametrize(**CHAT)
async def test_a_chat_rule_is_enforced_in_the_providers_words(change: Change, status: int, said: str) -> None:
    answer = await check("openai-chat", changed(chat, change), status, said)
    if status != 200:
        assert b'"type":"invalid_request_error"' in answer.body


async def test_switches_let_other_chat_servers_be_played() -> None:
    ends = changed(chat, talk(user("a"), {"role": "assistant", "content": "Sure:"}))
    await check("openai-chat", ends, 200, "", rules=Rules(accepts_prefill=True))
    first = changed(chat, talk({"role": "assistant", "content": "hello"}, user("hi")))
    await check("openai-chat", first, 200, "", rules=Rules(user_first=False))
    words = "Tool call id was c3_0 but must be a-z, A-Z, 0-9, with a length of 9."
    await check("openai-chat", chat(), 400, words, rules=Rules(short_ids=True))
    words = (
        "Incorrect API key provided: k-2***. You can find your API key at https://platform.openai.com/account/api-keys."
    )
    await check("openai-chat", chat(), 401, words, rules=Rules(keys=("k-1",)), headers={"authorization": "Bearer k-2"})
    await check("openai-chat", chat(), 200, "", rules=Rules(keys=("k-1",)), headers={"authorization": "Bearer k-1"})


async def test_the_chat_window_is_held() -> None:
    words = (
        "This model's maximum context length is 100 tokens. However, your messages resulted in 150 tokens. "
        "Please reduce the length of the messages."
    )
    answer = await check("openai-chat", chat(), 400, words, limits=Limits(window_tokens=100))
    assert b'"code":"context_length_exceeded"' in answer.body
    words = (
        "max_tokens is too large: 1000. This model supports at most 900 completion tokens, whereas you provided 1000."
    )
    await check("openai-chat", chat(), 400, words, limits=Limits(output_tokens_max=900))

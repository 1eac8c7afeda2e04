"""Rules of the Chat Completions wire: requests that break one, and the refusal; … stands for
more words.
"""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, Rules
from tests.testing.http_client import Change, changed, check, png

pytestmark = pytest.mark.anyio
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


NOT_AN_OBJECT = (
    "Invalid 'messages[1].tool_calls[0].function.arguments': expected a string that "
    "holds a JSON object."
)
CHAT: list[tuple[Change, str]] = [
    (lambda body: None, ""),
    (lambda b: b.pop("model"), "you must provide a model parameter"),
    (lambda b: b.pop("messages"), "Missing required parameter: 'messages'."),
    (talk(), "Invalid 'messages': empty array. Expected an array with minimum …1, but got an…"),
    (lambda b: b.update(max_tokens=0), "Invalid 'max_tokens': integer below minimum value. …>=…"),
    (lambda b: b.update(max_tokens=1), ""),
    (talk({"role": "human", "content": "x"}), "Invalid value: 'human'. Supported values …'tool',…"),
    (talk(user(None)), "Invalid value for 'content': expected a string, got null."),
    (talk(user(7)), "Invalid type for 'messages[0].content': expected one of a string or array…"),
    (talk("fix it"), "Invalid type for 'messages[0]': expected an object."),
    (talk(user([{"type": "text"}])), "Missing required parameter: 'messages[0].content[0].text'."),
    (talk(user("a"), calls({"id": "c1", "type": "custom"}), tool("c1")), "Missing required…"),
    (lambda b: b["tools"].append({"type": "function"}), "Missing required parameter:…"),
    (talk(user([shown("https://x/y.png")])), ""),
    (talk(user([shown("/tmp/y.png")])), "Invalid 'messages[0].content[0].image_url.…data URL or…"),
    (talk(user([shown(DATA + png(9, 9))] * 501)), "Invalid 'messages': too many images. At most…"),
    (talk(user([])), "Invalid 'messages[0].content': empty array. Expected an …1, but got an…"),
    (talk(user([{"type": "input_text", "text": "x"}])), "Invalid value: 'input_text'.…"),
    (talk({"role": "assistant", "content": "hello"}, user("hi")), "After the optional system…"),
    (talk(user("a"), {"role": "assistant", "content": "b"}), "Cannot set …from the assistant."),
    (talk(user("a"), calls(call("c1"), call("c2")), tool("c1")), "An assistant message with…"),
    (talk(user("a"), calls(call("c1")), user("b"), tool("c1")), "An assistant message with…"),
    (talk(user("a"), tool("c1"), user("b")), "Invalid parameter: messages with role …message…"),
    (talk(user("a"), calls(call("c1")), tool("c1"), tool("c1")), "Duplicate value for…"),
    (talk(user("a"), calls(call("c1"), call("c1")), tool("c1")), "Duplicate value for…"),
    (
        talk(user("a"), calls(call("c1")), tool("c1"), calls(call("c1")), tool("c1")),
        "Duplicate value for …of 'c1'",
    ),
    (talk(user("a"), tool("")), "Missing required parameter: 'messages[1].tool_call_id'."),
    (
        talk(user("a"), {"role": "assistant", "content": "x", "tool_calls": []}),
        "Invalid 'messages[1].…instead.",
    ),
    (talk(user("a"), calls(call("")), tool("")), "Missing required parameter:…"),
    (
        talk(user("a"), calls(call("c" * 41)), tool("c" * 41)),
        "Invalid 'messages[1].tool_calls[0].…length 41 instead.",
    ),
    (
        talk(user("a"), calls(call("c1", "a b")), tool("c1")),
        "Invalid 'messages[1].tool_calls[0].…'^[a-zA-Z0-9_-]+$'.",
    ),
    (talk(user("a") | {"tool_calls": [call()]}), "'tool_calls' is only allowed in messages with…"),
    (lambda b: b["tools"][0]["function"].update(name="a b"), "Invalid 'tools[0].function.name':…"),
    (lambda b: b["tools"].append(b["tools"][0]), "Invalid 'tools': function names must be …but…"),
    (talk(user([shown(DATA + png(9, 9))])), ""),
    (talk(user([shown(DATA + "aGk=")])), "You uploaded an unsupported image. Please make…"),
    (talk(user([shown("data:image/gif;base64," + png(9, 9))])), "You uploaded an unsupported…"),
    (
        talk(user("a"), calls(call()), tool(content=[shown(DATA + png(9, 9))])),
        "Invalid 'messages[2]'. …an image URL.",
    ),
    *((arguments(text), NOT_AN_OBJECT) for text in ('{"a": 1', "[1]", "")),  # R014
]


@pytest.mark.parametrize(("change", "said"), CHAT)
async def test_a_rule_of_the_wire(change: Change, said: str) -> None:
    await check("openai-chat", changed(chat, change), said)


ENDS = changed(chat, talk(user("a"), {"role": "assistant", "content": "Sure:"}))
BEGINS = changed(chat, talk({"role": "assistant", "content": "hello"}, user("hi")))
SHORT = "Tool call id was c3_0 but must be a-z, A-Z, 0-9, with a length of 9."
WINDOW = (
    "This model's maximum context length is 100 tokens. However, your messages resulted in "
    "150 tokens. …"
)
OUTPUT = "max_tokens is too large: 1000. This model supports at most 900 completion tokens, …"
KEYS, KEY = Rules(keys=("k-1",)), "Incorrect API key provided: k-2***. …"
SWITCHES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (ENDS, "", {"rules": Rules(accepts_prefill=True)}),
    (BEGINS, "", {"rules": Rules(user_first=False)}),
    (chat(), SHORT, {"rules": Rules(short_ids=True)}),
    (chat(), KEY, {"rules": KEYS, "headers": {"authorization": "Bearer k-2"}, "status": 401}),
    (chat(), "", {"rules": KEYS, "headers": {"authorization": "Bearer k-1"}}),
    (chat(), WINDOW, {"limits": Limits(window_tokens=100)}),
    (chat(), OUTPUT, {"limits": Limits(output_tokens_max=900)}),
]


@pytest.mark.parametrize(("body", "said", "given"), SWITCHES)
async def test_a_switch_or_a_limit(body: dict[str, Any], said: str, given: dict[str, Any]) -> None:
    await check("openai-chat", body, said, **given)

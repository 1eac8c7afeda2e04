"""Every rule of the two OpenAI wires: one request that breaks it, and the provider's exact words."""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, LoopbackProvider, Rules, Turn

from .kit import PATHS, Change, changed, check, png, post, table

pytestmark = pytest.mark.anyio

NAME = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
EMPTY = "empty array. Expected an array with minimum length 1, but got an empty array instead."
UNSUPPORTED = (
    "You uploaded an unsupported image. Please make sure your image has of one the following formats: "
    "['png', 'jpeg', 'gif', 'webp']."
)
DATA = "data:image/png;base64,"


# --- Chat Completions --------------------------------------------------------------------------------------------


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


# --- Responses ---------------------------------------------------------------------------------------------------


def words_of(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def made(id_: str = "c3_0", name: str = "Read", given: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id_, "name": name, "arguments": given}


def output(id_: str = "c3_0", text: Any = "print(1)") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id_, "output": text}


def responses() -> dict[str, Any]:
    return {
        "model": "gpt-5",
        "stream": True,
        "store": False,
        "instructions": "You are careful.",
        "include": ["reasoning.encrypted_content"],
        "max_output_tokens": 1000,
        "tools": [{"type": "function", "name": "Read", "parameters": {"type": "object"}}],
        "input": [
            words_of("user", "fix it"),
            words_of("assistant", "I look.", "output_text"),
            made("c3_0"),
            made("c3_1", "Gone"),
            output("c3_0"),
            output("c3_1"),
            words_of("user", "and hurry"),
        ],
    }


def items(*new: Any) -> Change:
    return lambda body: body.update(input=[words_of("user", "a"), *new])


RESPONSES = table(
    ("as it should be", lambda body: None, 200, ""),
    ("a string is one message", lambda b: b.update(input="fix it"), 200, ""),
    ("model is required", lambda b: b.pop("model"), 400, "Missing required parameter: 'model'."),
    ("input is required", lambda b: b.pop("input"), 400, "Missing required parameter: 'input'."),
    ("input is not empty", lambda b: b.update(input=[]), 400, f"Invalid 'input': {EMPTY}"),
    (
        "an output limit has a floor",
        lambda b: b.update(max_output_tokens=15),
        400,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
    ),
    (
        "known items",
        items({"type": "tool_call"}),
        400,
        (
            "Invalid value: 'tool_call'. Supported values are: 'message', 'reasoning', 'function_call', "
            "'function_call_output'."
        ),
    ),
    (
        "known roles",
        items(words_of("tool", "x")),
        400,
        "Invalid value: 'tool'. Supported values are: 'assistant, system, developer, user'.",
    ),
    (
        "each side has its own text",
        items(words_of("user", "x", "output_text")),
        400,
        "Invalid value: 'output_text'. Supported values are: ('input_text', 'input_image', 'input_file').",
    ),
    (
        "first the user",
        lambda b: b.update(input=[words_of("assistant", "x", "output_text"), words_of("user", "y")]),
        400,
        "Invalid 'input': the first item must be a message of the user.",
    ),
    (
        "no prefill",
        items(words_of("assistant", "x", "output_text")),
        400,
        "Invalid 'input': the last item must not be the assistant's.",
    ),
    (
        "an output is missing",
        items(made("c1"), words_of("user", "b")),
        400,
        "No tool output found for function call c1.",
    ),
    (
        "an output without a call",
        items(output("c1")),
        400,
        "No tool call found for function call output with call_id c1.",
    ),
    (
        "an output before its call",
        items(output("c1"), made("c1")),
        400,
        "No tool call found for function call output with call_id c1.",
    ),
    (
        "two outputs for one call",
        items(made("c1"), output("c1"), output("c1")),
        400,
        "Duplicate tool output found for function call c1.",
    ),
    (
        "ids are unique",
        items(made("c1"), made("c1"), output("c1")),
        400,
        "Duplicate function call with call_id c1 found in input.",
    ),
    ("a call has an id", items(made("")), 400, "Missing required parameter: 'input[1].call_id'."),
    (
        "an id has at most 64 characters",
        items(made("c" * 65)),
        400,
        (
            "Invalid 'input[1].call_id': string too long. Expected a string with maximum length 64, "
            "but got a string with "
            "length 65 instead."
        ),
    ),
    ("alphabet of names", items(made("c1", "a b")), 400, f"Invalid 'input[1].name': {NAME}"),
    (
        "R014 arguments are an object",
        items(made("c1", given='{"a":')),
        400,
        "Invalid 'input[1].arguments': expected a string that holds a JSON object.",
    ),
    ("an output is text", items(made("c1"), output("c1", None)), 400, "Missing required parameter: 'input[2].output'."),
    (
        "tool names are unique",
        lambda b: b["tools"].append(b["tools"][0]),
        400,
        "Invalid 'tools': function names must be unique, but 'Read' occurs twice.",
    ),
    (
        "R027 no foreign reasoning",
        items({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAB"}, made(), output()),
        400,
        (
            "The encrypted content gAAA... could not be verified. Reason: Encrypted content could not be decrypted or "
            "parsed."
        ),
    ),
    (
        "reasoning that is not stored",
        items({"type": "reasoning", "id": "rs_1", "summary": []}, made(), output()),
        404,
        (
            "Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try "
            "again with `store` "
            "set to true, or remove this item from your input."
        ),
    ),
    (
        "a picture in an output",
        items(made(), output(text=[{"type": "input_image", "image_url": DATA + png(9, 9)}])),
        200,
        "",
    ),
    (
        "a picture that is none",
        items({"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": DATA + "aGk="}]}),
        400,
        UNSUPPORTED,
    ),
)


@pytest.mark.parametrize(**RESPONSES)
async def test_a_responses_rule_is_enforced_in_the_providers_words(change: Change, status: int, said: str) -> None:
    await check("openai-responses", changed(responses, change), status, said)


async def test_R027_reasoning_goes_back_unchanged_and_with_what_it_led_to() -> None:
    async with LoopbackProvider([Turn(thinking="Let me see.", text="Right.")]) as server:
        streamed = (await post(server, PATHS["openai-responses"], responses())).events
    reasoning = next(
        event["item"]
        for event in streamed
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning"
    )
    good = changed(responses, items(reasoning, made(), output()))
    await check("openai-responses", good, 200, "")
    start = reasoning["encrypted_content"][:4]
    words = (
        f"The encrypted content {start}... could not be verified. Reason: Encrypted content could not be decrypted "
        "or parsed."
    )
    await check("openai-responses", good | {"model": "gpt-6"}, 400, words)
    alone = changed(responses, items(reasoning, words_of("user", "b")))
    words = f"Item '{reasoning['id']}' of type 'reasoning' was provided without its required following item."
    await check("openai-responses", alone, 400, words)


async def test_the_responses_window_is_held() -> None:
    words = "Your input exceeds the context window of this model. Please adjust your input and try again."
    await check("openai-responses", responses(), 400, words, limits=Limits(window_tokens=100))

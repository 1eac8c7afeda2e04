"""Rules of the Responses wire: for each a request that breaks it, and the exact error."""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, LoopbackProvider, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post, table
from tests.testing.test_rules_chat import DATA, EMPTY, NAME, UNSUPPORTED

pytestmark = pytest.mark.anyio


def words_of(role: str, text: str, kind: str = "input_text") -> dict[str, Any]:
    message = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
    if role == "assistant":
        message |= {"id": "msg_1", "status": "completed"}
        message["content"][0]["annotations"] = []
    return message


def without(name: str) -> dict[str, Any]:
    message = words_of("assistant", "I look.", "output_text")
    (message if name in message else message["content"][0]).pop(name)
    return message


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
    ("an item is an object", items("x"), 400, "Invalid type for 'input[1]': expected an object."),
    (
        "a message has content",
        items({"type": "message", "role": "user"}),
        400,
        "Missing required parameter: 'input[1].content'.",
    ),
    ("content is not empty", items({"role": "user", "content": []}), 400, f"Invalid 'input[1].content': {EMPTY}"),
    (
        "a text part has text",
        items({"role": "user", "content": [{"type": "input_text"}]}),
        400,
        "Missing required parameter: 'input[1].content[0].text'.",
    ),
    ("a string is content", items({"role": "user", "content": "and hurry"}), 200, ""),
    ("an output has an id", items(output("")), 400, "Missing required parameter: 'input[1].call_id'."),
    ("a tool has a name", lambda b: b["tools"][0].pop("name"), 400, "Missing required parameter: 'tools[0].name'."),
    ("alphabet of a tool's name", lambda b: b["tools"][0].update(name="a b"), 400, f"Invalid 'tools[0].name': {NAME}"),
    (
        "501 pictures",
        items({"role": "user", "content": [{"type": "input_image", "image_url": DATA + png(9, 9)}] * 501}),
        400,
        "Invalid 'input': too many images. At most 500 are allowed.",
    ),
    ("model is required", lambda b: b.pop("model"), 400, "Missing required parameter: 'model'."),
    ("input is required", lambda b: b.pop("input"), 400, "Missing required parameter: 'input'."),
    ("input is not empty", lambda b: b.update(input=[]), 400, f"Invalid 'input': {EMPTY}"),
    (
        "an output limit has a floor",
        lambda b: b.update(max_output_tokens=15),
        400,
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
    ),
    ("the smallest answer", lambda b: b.update(max_output_tokens=16), 200, ""),
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
    ("a message of the model has an id", items(without("id")), 400, "Missing required parameter: 'input[1].id'."),
    ("and a status", items(without("status")), 400, "Missing required parameter: 'input[1].status'."),
    (
        "and its text annotations",
        items(without("annotations")),
        400,
        "Missing required parameter: 'input[1].content[0].annotations'.",
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
    words = "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 900, but got 1000 instead."
    await check("openai-responses", responses(), 400, words, limits=Limits(output_tokens_max=900))

"""Rules of the Responses wire: requests that break one, and the refusal; … stands for more
words.
"""

from typing import Any

import pytest

from longrein.testing.loopback import Limits, LoopbackProvider, Turn
from tests.testing.http_client import PATHS, Change, changed, check, png, post

pytestmark = pytest.mark.anyio


def image(data: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": f"data:image/png;base64,{data}"}


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


RESPONSES: list[tuple[Change, str]] = [
    (lambda body: None, ""),
    (lambda b: b.update(input="fix it"), ""),
    (items("x"), "Invalid type for 'input[1]': expected an object."),
    (items({"type": "message", "role": "user"}), "Missing required parameter: 'input[1].content'."),
    (items({"role": "user", "content": [{"type": "input_text"}]}), "Missing required parameter:…"),
    (items(output("")), "Missing required parameter: 'input[1].call_id'."),
    (lambda b: b["tools"][0].pop("name"), "Missing required parameter: 'tools[0].name'."),
    (lambda b: b["tools"][0].update(name="a b"), "Invalid 'tools[0].name': string does not…"),
    (items({"role": "user", "content": [image(png(9, 9))] * 501}), "Invalid 'input': too many…"),
    (lambda b: b.pop("model"), "Missing required parameter: 'model'."),
    (lambda b: b.update(input=[]), "Invalid 'input': empty array. Expected an array …but got an…"),
    (lambda b: b.update(max_output_tokens=15), "Invalid 'max_output_tokens': integer …>= 16, but…"),
    (lambda b: b.update(max_output_tokens=16), ""),
    (items({"type": "tool_call"}), "Invalid value: 'tool_call'. Supported values are:…"),
    (items(words_of("tool", "x")), "Invalid value: 'tool'. Supported values are: …system,…"),
    (items(words_of("user", "x", "output_text")), "Invalid value: 'output_text'. Supported…"),
    (items(without("id")), "Missing required parameter: 'input[1].id'."),
    (items(without("status")), "Missing required parameter: 'input[1].status'."),
    (items(without("annotations")), "Missing required parameter:…"),
    (
        lambda b: b.update(
            input=[words_of("assistant", "x", "output_text"), words_of("user", "y")]
        ),
        "Invalid 'input': …the user.",
    ),
    (items(words_of("assistant", "x", "output_text")), "Invalid 'input': the last item must not…"),
    (items(made("c1"), words_of("user", "b")), "No tool output found for function call c1."),
    (items(output("c1")), "No tool call found for function call output with call_id c1."),
    (items(made("c1"), output("c1"), output("c1")), "Duplicate tool output found for function…"),
    (items(made("c1"), made("c1"), output("c1")), "Duplicate function call with call_id c1 found…"),
    (items(made("")), "Missing required parameter: 'input[1].call_id'."),
    (items(made("c" * 65)), "Invalid 'input[1].call_id': string too long. Expected …a string…"),
    (items(made("c1", "a b")), "Invalid 'input[1].name': string does not match …the pattern…"),
    # R014, R027
    (items(made("c1", given='{"a":')), "Invalid 'input[1].arguments': expected a string that…"),
    (items(made("c1"), output("c1", None)), "Missing required parameter: 'input[2].output'."),
    (lambda b: b["tools"].append(b["tools"][0]), "Invalid 'tools': function names must be …but…"),
    (
        items(
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAAB"},
            made(),
            output(),
        ),
        "The encrypted …or parsed.",
    ),
    (items(made(), output(text=[image(png(9, 9))])), ""),
    (items({"role": "user", "content": [image("aGk=")]}), "You uploaded an unsupported image.…"),
]


@pytest.mark.parametrize(("change", "said"), RESPONSES)
async def test_a_rule_of_the_wire(change: Change, said: str) -> None:
    await check("openai-responses", changed(responses, change), said)


async def test_R027_reasoning_goes_back_unchanged_and_with_what_it_led_to() -> None:
    async with LoopbackProvider([Turn(thinking="Let me see.", text="Right.")]) as server:
        streamed = (await post(server, PATHS["openai-responses"], responses())).events
    reasoning = next(
        event["item"]
        for event in streamed
        if event["type"] == "response.output_item.done" and event["item"]["type"] == "reasoning"
    )
    good = changed(responses, items(reasoning, made(), output()))
    await check("openai-responses", good, "")
    start = reasoning["encrypted_content"][:4]
    words = (
        f"The encrypted content {start}... could not be verified. Reason: Encrypted content could "
        "not be decrypted or parsed."
    )
    await check("openai-responses", good | {"model": "gpt-6"}, words)
    alone = changed(responses, items(reasoning, words_of("user", "b")))
    words = (
        f"Item '{reasoning['id']}' of type 'reasoning' was provided without its required "
        "following item."
    )
    await check("openai-responses", alone, words)

    unstored = changed(
        responses, items({"type": "reasoning", "id": "rs_1", "summary": []}, made(), output())
    )
    await check("openai-responses", unstored, "Item with id 'rs_1' not found. …", status=404)


async def test_the_window_and_the_output_limit() -> None:
    words = (
        "Your input exceeds the context window of this model. Please adjust your input and "
        "try again."
    )
    await check("openai-responses", responses(), words, limits=Limits(window_tokens=100))
    words = (
        "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= 900, "
        "but got 1000 instead."
    )
    await check("openai-responses", responses(), words, limits=Limits(output_tokens_max=900))

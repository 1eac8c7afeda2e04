"""The two wires of the race's provider: messages read into blocks, answers and errors written as
OpenAI does.
"""

import base64
import json
from collections.abc import Sequence
from typing import Any

from lab.race.model import Answer, Block

Usage = tuple[int, int, int]
"""Tokens of the prompt, of its cached part, and of the answer."""
MODEL = "gpt-5"


def read_chat_message(one: dict[str, Any]) -> Block:
    """Read a message of Chat Completions."""
    text = _text(one.get("content"))
    calls = tuple(
        (call["id"], call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in one.get("tool_calls") or ()
    )
    role = {"developer": "system"}.get(one["role"], one["role"])
    return Block(role, _with_calls(text, calls), calls, one.get("tool_call_id") or "")


def read_responses_item(one: dict[str, Any]) -> Block:
    """Read an input item of Responses."""
    match one.get("type", "message"):
        case "function_call":
            call = (one["call_id"], one["name"], _arguments(one["arguments"]))
            return Block("assistant", _with_calls("", (call,)), (call,))
        case "function_call_output":
            return Block("tool", _text(one["output"]), (), one["call_id"])
        case "compaction":
            return Block("assistant", base64.b64decode(one["encrypted_content"]).decode())
        case "message":
            role = {"developer": "system"}.get(one["role"], one["role"])
            return Block(role, _text(one.get("content")))
    return Block("assistant", "")


def chat_reply(answer: Answer, number: int, usage: Usage) -> dict[str, Any]:
    """Write an answer of Chat Completions."""
    calls = [
        {
            "id": f"call_{number}_{n}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for n, (name, arguments) in enumerate(answer.calls)
    ]
    message = {
        "role": "assistant",
        "content": answer.text,
        **({"tool_calls": calls} if calls else {}),
    }
    prompt, cached, output = usage
    return {
        "id": f"chatcmpl-{number}",
        "object": "chat.completion",
        "created": 1_700_000_000 + number,
        "model": MODEL,
        "choices": [
            {"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": output,
            "total_tokens": prompt + output,
            "prompt_tokens_details": {"cached_tokens": cached},
        },
    }


def responses_reply(answer: Answer, number: int, usage: Usage) -> dict[str, Any]:
    """Write an answer of Responses."""
    said = {
        "type": "message",
        "id": f"msg_{number}",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": answer.text, "annotations": []}],
    }
    calls = [
        {
            "type": "function_call",
            "id": f"fc_{number}_{n}",
            "call_id": f"call_{number}_{n}",
            "name": name,
            "arguments": json.dumps(arguments),
            "status": "completed",
        }
        for n, (name, arguments) in enumerate(answer.calls)
    ]
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 1_700_000_000 + number,
        "model": MODEL,
        "status": "completed",
        "output": [said, *calls],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": _responses_usage(usage),
    }


def compacted(messages: Sequence[bytes], summary: str, number: int, usage: Usage) -> dict[str, Any]:
    """Write the answer of `responses.compact`: the user's messages as they were, and one opaque
    item.
    """
    items = [json.loads(raw) for raw in messages]
    users = [
        {
            "type": "message",
            "id": f"msg_{number}_{n}",
            "role": "user",
            "status": "completed",
            "content": [{"type": "input_text", "text": _text(one.get("content"))}],
        }
        for n, one in enumerate(items)
        if one.get("role") == "user"
    ]
    opaque = {
        "type": "compaction",
        "id": f"cmp_{number}",
        "encrypted_content": base64.b64encode(summary.encode()).decode(),
    }
    return {
        "id": f"resp_{number}",
        "object": "response.compaction",
        "created_at": 1_700_000_000 + number,
        "output": [*users, opaque],
        "usage": _responses_usage(usage),
    }


def too_long(limit: int, prompt: int) -> dict[str, Any]:
    """Write the error that OpenAI sends for a prompt beyond the window."""
    text = (
        f"Input tokens exceed the configured limit of {limit} tokens. Your messages resulted in "
        f"{prompt} tokens. "
        "Please reduce the length of the messages."
    )
    error = {
        "message": text,
        "type": "invalid_request_error",
        "param": "messages",
        "code": "context_length_exceeded",
    }
    return {"error": error}


def _responses_usage(usage: Usage) -> dict[str, Any]:
    prompt, cached, output = usage
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + output,
    }


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(str(part.get("text") or "") for part in content)


def _arguments(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _with_calls(text: str, calls: Sequence[tuple[str, str, dict[str, Any]]]) -> str:
    """Return the text with the calls as a model reads them: name, and each argument as text."""
    shown = [
        f"{name}\n" + "\n".join(f"{key}: {value}" for key, value in given.items())
        for _, name, given in calls
    ]
    return "\n".join([text, *shown])

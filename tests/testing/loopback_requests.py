"""First requests on each wire, and parsing of the streamed replies."""

import json
from typing import Any

from longrein.testing.loopback import LoopbackProvider
from tests.testing.http_client import PATHS, Answer, post
from tests.testing.test_rules_anthropic import text, user

WIRES = tuple(PATHS)
STOPS = {
    "anthropic": ("end_turn", "tool_use", "max_tokens", "refusal"),
    "openai-chat": ("stop", "tool_calls", "length", "content_filter"),
    "openai-responses": ("response.completed", "response.completed", "response.incomplete", "response.incomplete"),
    "gemini": ("STOP", "STOP", "MAX_TOKENS", "SAFETY"),
}


async def ask(server: LoopbackProvider, wire: str = "anthropic", said: str = "fix it", **more: Any) -> Answer:
    """Send the first request of a conversation."""
    body = {
        "anthropic": {"model": "m", "max_tokens": 99, "messages": [user(text(said))]},
        "openai-chat": {"model": "m", "messages": [{"role": "user", "content": said}]},
        "openai-responses": {"model": "m", "input": said},
        "gemini": {"contents": [{"role": "user", "parts": [{"text": said}]}]},
    }
    return await post(server, PATHS[wire], body[wire], **more)


def reply_of(wire: str, answer: Answer) -> tuple[str, list[tuple[str, str]], str]:
    """Parse a stream into (text, [(tool, arguments)], stop reason)."""
    events = [event for event in answer.events if event != "[DONE]"]
    match wire:
        case "anthropic":
            deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
            begun = [e["content_block"] for e in events if e["type"] == "content_block_start"]
            names = [b["name"] for b in begun if b["type"] == "tool_use"]
            at = {
                e["index"]: "".join(
                    d["delta"].get("partial_json", "")
                    for d in events
                    if d["type"] == "content_block_delta" and d["index"] == e["index"]
                )
                for e in events
                if e["type"] == "content_block_start" and e["content_block"]["type"] == "tool_use"
            }
            words = "".join(d.get("text", "") for d in deltas)
            return words, list(zip(names, at.values(), strict=True)), events[-2]["delta"]["stop_reason"]
        case "openai-chat":
            made = [e["choices"][0] for e in events if e["choices"]]
            calls: dict[int, list[str]] = {}
            for choice in made:
                for piece in choice["delta"].get("tool_calls", ()):
                    call = calls.setdefault(piece["index"], [piece["function"].get("name", ""), ""])
                    call[1] += piece["function"]["arguments"]
            words = "".join(c["delta"].get("content") or "" for c in made)
            return words, [(n, a) for n, a in calls.values()], made[-1]["finish_reason"]
        case "openai-responses":
            output = events[-1]["response"]["output"]
            words = "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta")
            found = [(i["name"], i["arguments"]) for i in output if i["type"] == "function_call"]
            return words, found, events[-1]["type"]
        case _:
            parts = [p for e in events for p in e["candidates"][0]["content"]["parts"]]
            words = "".join(p.get("text", "") for p in parts if not p.get("thought"))
            found = [
                (p["functionCall"]["name"], json.dumps(p["functionCall"]["args"])) for p in parts if "functionCall" in p
            ]
            return words, found, events[-1]["candidates"][0]["finishReason"]

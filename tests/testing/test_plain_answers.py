"""Answers without streaming, read by the vendors' own clients."""

import json
from typing import Any

import pytest

from longrein.testing.loopback import Call, Fault, LoopbackProvider, Turn
from longrein.testing.loopback.validation import Refused

pytestmark = pytest.mark.anyio
READ = Call("Read", {"path": "a", "lines": [1, 2]})
TURN = Turn(text="I look. " * 40, thinking="Hm. " * 40, calls=(READ, Call("List", {})))
TOOLS = ("Read", "List")
Heard = tuple[str, list[tuple[str, Any]], int]
"""Text, calls, output tokens."""


def _schema() -> dict[str, Any]:
    return {"type": "object", "properties": {"path": {"type": "string"}}}


async def _anthropic(url: str) -> Heard:
    library = pytest.importorskip("anthropic", reason="needs anthropic: make library")
    async with library.AsyncAnthropic(base_url=url, api_key="k", max_retries=0) as client:
        reply = await client.messages.create(
            model="claude-sonnet-5-5",
            max_tokens=9_000,
            messages=[{"role": "user", "content": "Look."}],
            tools=[{"name": name, "input_schema": _schema()} for name in TOOLS],
        )
    text = "".join(block.text for block in reply.content if block.type == "text")
    calls = [(block.name, block.input) for block in reply.content if block.type == "tool_use"]
    assert reply.stop_reason == "tool_use"
    return text, calls, reply.usage.output_tokens


async def _openai_chat(url: str) -> Heard:
    library = pytest.importorskip("openai", reason="needs openai: make library")
    tools = [{"type": "function", "function": {"name": n, "parameters": _schema()}} for n in TOOLS]
    async with library.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        reply = await client.chat.completions.create(
            model="gpt-5.2", messages=[{"role": "user", "content": "Look."}], tools=tools
        )
    [choice] = reply.choices
    assert choice.finish_reason == "tool_calls"
    return choice.message.content, _read(choice.message), reply.usage.completion_tokens


def _read(message: Any) -> list[tuple[str, Any]]:
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls]


async def _openai_responses(url: str) -> Heard:
    library = pytest.importorskip("openai", reason="needs openai: make library")
    tools = [{"type": "function", "name": name, "parameters": _schema()} for name in TOOLS]
    async with library.AsyncOpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0) as client:
        reply = await client.responses.create(model="gpt-6.1-sol", input="Look.", tools=tools)
    calls = [
        (one.name, json.loads(one.arguments)) for one in reply.output if one.type == "function_call"
    ]
    return reply.output_text, calls, reply.usage.output_tokens


async def _gemini(url: str) -> Heard:
    genai = pytest.importorskip("google.genai", reason="needs google-genai: make library")
    declared = [{"name": name, "parameters": {"type": "OBJECT"}} for name in TOOLS]
    async with genai.Client(api_key="k", http_options={"base_url": url}).aio as client:
        reply = await client.models.generate_content(
            model="gemini-3.8-flash",
            contents="Look.",
            config={"tools": [{"function_declarations": declared}]},
        )
    calls = [(call.name, call.args) for call in reply.function_calls]
    text = "".join(part.text for part in reply.parts if part.text and not part.thought)
    used = reply.usage_metadata
    return text, calls, used.candidates_token_count + (used.thoughts_token_count or 0)


CLIENTS = (_anthropic, _openai_chat, _openai_responses, _gemini)


@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__[1:])
async def test_a_client_that_does_not_stream_gets_one_body(ask: Any) -> None:
    async with LoopbackProvider([TURN]) as server:
        text, calls, output = await ask(server.url)
        assert server.refused == []
        assert text == TURN.text
        assert calls == [("Read", {"path": "a", "lines": [1, 2]}), ("List", {})]
        assert output == server.requests[0].usage["output"]


@pytest.mark.parametrize("ask", CLIENTS, ids=lambda ask: ask.__name__[1:])
@pytest.mark.parametrize("kind", ["garbage", "cut", "error"])
async def test_faults_reach_a_client_that_does_not_stream(ask: Any, kind: Any) -> None:
    async with LoopbackProvider([Turn(text="no", fault=Fault(kind=kind, at=0))]) as server:
        with pytest.raises(Exception) as failed:
            await ask(server.url)
        assert not isinstance(failed.value, AssertionError | Refused)

"""Exact JSON of the same answers as streamed by each of the four providers."""

from tests.models.http_server import sse

WIRES = ("anthropic", "openai-chat", "openai-responses", "gemini")


def _anthropic(*events: object, stop: str, usage: dict[str, int] | None = None) -> bytes:
    start = {
        "type": "message_start",
        "message": {
            "id": "m1",
            "model": "claude-x-1",
            "usage": usage or {"input_tokens": 10, "output_tokens": 1},
        },
    }
    end = {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 20}}
    return sse(start, {"type": "ping"}, *events, end, {"type": "message_stop"}, named=True)


def _block(index: int, start: dict[str, object], *deltas: dict[str, object]) -> list[object]:
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _chat(*deltas: dict[str, object], stop: str, usage: dict[str, object] | None = None) -> bytes:
    chunks = [
        {"model": "gpt-x-1", "choices": [{"index": 0, "delta": d, "finish_reason": None}]}
        for d in deltas
    ]
    end = {"choices": [{"index": 0, "delta": {}, "finish_reason": stop}]}
    counted = {"choices": [], "usage": usage or {"prompt_tokens": 10, "completion_tokens": 20}}
    return sse(*chunks, end, counted, done=True)


def _responses(
    *events: object, incomplete: str = "", usage: dict[str, object] | None = None
) -> bytes:
    kind = "response.incomplete" if incomplete else "response.completed"
    response: dict[str, object] = {
        "model": "gpt-x-1",
        "usage": usage or {"input_tokens": 10, "output_tokens": 20},
    }
    if incomplete:
        response["incomplete_details"] = {"reason": incomplete}
    start = {
        "type": "response.created",
        "response": {"id": "r1", "status": "in_progress", "usage": None},
    }
    return sse(start, *events, {"type": kind, "response": response}, named=True)


def _out(
    index: int,
    item: dict[str, object],
    *deltas: tuple[str, str],
    done: dict[str, object] | None = None,
) -> list[object]:
    return [
        _added(index, item),
        *(_delta(kind, index, text) for kind, text in deltas),
        _done(index, {**item, **(done or {})}),
    ]


def _added(index: int, item: dict[str, object]) -> dict[str, object]:
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def _delta(kind: str, index: int, text: str) -> dict[str, object]:
    return {"type": f"response.{kind}.delta", "output_index": index, "delta": text}


def _done(index: int, item: dict[str, object]) -> dict[str, object]:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def _function(name: str, **ids: str) -> dict[str, object]:
    return {"type": "function_call", **ids, "name": name, "arguments": ""}


def _gemini(*parts: dict[str, object], stop: str, usage: dict[str, int] | None = None) -> bytes:
    counted = usage or {"promptTokenCount": 10, "candidatesTokenCount": 20}
    chunks: list[object] = [
        {"candidates": [{"content": {"role": "model", "parts": [p]}}], "modelVersion": "gemini-x-1"}
        for p in parts
    ]
    end = {
        "candidates": [{"content": {"role": "model", "parts": []}, "finishReason": stop}],
        "usageMetadata": counted,
    }
    return sse(*chunks, end)


def _call(index: int, id_: str, name: str = "", text: str = "") -> dict[str, object]:
    function = {"arguments": text} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "function": function} | ({"id": id_} if id_ else {})]}


def _text(index: int, *pieces: str) -> list[object]:
    """A block of text of Anthropic."""
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return _block(index, {"type": "text", "text": ""}, *deltas)


def _use(index: int, id_: str, name: str, *pieces: str) -> list[object]:
    """A call of Anthropic, its arguments in pieces."""
    deltas = ({"type": "input_json_delta", "partial_json": piece} for piece in pieces)
    return _block(index, {"type": "tool_use", "id": id_, "name": name, "input": {}}, *deltas)


def _thinking(text: str) -> dict[str, object]:
    return {"type": "thinking_delta", "thinking": text}


MESSAGE: dict[str, object] = {"type": "message", "id": "m1"}
SUMMARY = "reasoning_summary_text"
REASONED: dict[str, object] = {
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "E1",
}
ARGUMENTS = "function_call_arguments"
STREAMS: dict[str, dict[str, bytes]] = {
    "text": {
        "anthropic": _anthropic(*_text(0, "Hel", "lo 你好"), stop="end_turn"),
        "openai-chat": _chat(
            {"role": "assistant", "content": ""},
            {"content": "Hel"},
            {"content": "lo 你好"},
            stop="stop",
        ),
        "openai-responses": _responses(
            *_out(0, MESSAGE, ("output_text", "Hel"), ("output_text", "lo 你好"))
        ),
        "gemini": _gemini({"text": "Hel"}, {"text": "lo 你好"}, stop="STOP"),
    },
    "thinking, then text": {
        "anthropic": _anthropic(
            *_block(
                0,
                {"type": "thinking", "thinking": "", "signature": ""},
                _thinking("h"),
                _thinking("m"),
                {"type": "signature_delta", "signature": "S1"},
            ),
            *_block(1, {"type": "redacted_thinking", "data": "R1"}),
            *_text(2, "so"),
            stop="end_turn",
        ),
        "openai-chat": _chat(
            {"reasoning_content": "h"}, {"reasoning_content": "m"}, {"content": "so"}, stop="stop"
        ),
        "openai-responses": _responses(
            *_out(
                0,
                {"type": "reasoning", "id": "rs_1"},
                (SUMMARY, "h"),
                (SUMMARY, "m"),
                done=REASONED,
            ),
            *_out(1, {**MESSAGE, "phase": "final_answer"}, ("output_text", "so")),
        ),
        "gemini": _gemini(
            {"text": "h", "thought": True},
            {"text": "m", "thought": True},
            {"text": "so"},
            {"text": "", "thoughtSignature": "G1"},
            stop="STOP",
        ),
    },
    "text and parallel calls, one without arguments": {
        "anthropic": _anthropic(
            *_text(0, "I look."),
            *_use(1, "toolu_1", "Read", "", '{"path":', '"a"}'),
            *_use(2, "toolu_1", "List", ""),
            stop="tool_use",
        ),
        "openai-chat": _chat(
            {"content": "I look."},
            _call(0, "call_1", "Read"),
            _call(1, "call_1", "List"),
            _call(0, "", text='{"path":'),
            _call(1, "", text=""),
            _call(0, "", text='"a"}'),
            stop="tool_calls",
        ),
        "openai-responses": _responses(
            *_out(0, MESSAGE, ("output_text", "I look.")),
            _added(1, _function("Read", id="fc_1", call_id="call_1")),
            _added(2, _function("List", id="fc_2", call_id="call_1")),
            _delta(ARGUMENTS, 1, '{"path":'),
            _delta(ARGUMENTS, 2, "{}"),
            _delta(ARGUMENTS, 1, '"a"}'),
            _done(1, {"type": "function_call", "arguments": '{"path":"a"}'}),
            _done(2, {"type": "function_call", "arguments": "{}"}),
        ),
        "gemini": _gemini(
            {"text": "I look."},
            {"functionCall": {"name": "Read", "args": {"path": "a"}}, "thoughtSignature": "G1"},
            {"functionCall": {"name": "List"}},
            stop="STOP",
        ),
    },
    "usage with cache": {
        "anthropic": _anthropic(
            *_text(0, "ok"),
            stop="end_turn",
            usage={
                "input_tokens": 3,
                "cache_read_input_tokens": 90,
                "cache_creation_input_tokens": 7,
                "cache_creation": {"ephemeral_5m_input_tokens": 5, "ephemeral_1h_input_tokens": 2},
                "output_tokens": 1,
            },
        ),
        "openai-chat": _chat(
            {"content": "ok"},
            stop="stop",
            usage={
                "prompt_tokens": 100,
                "completion_tokens": 20,
                "prompt_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 7},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        ),
        "openai-responses": _responses(
            *_out(0, MESSAGE, ("output_text", "ok")),
            usage={
                "input_tokens": 100,
                "output_tokens": 20,
                "input_tokens_details": {"cached_tokens": 90, "cache_write_tokens": 7},
                "output_tokens_details": {"reasoning_tokens": 5},
            },
        ),
        "gemini": _gemini(
            {"text": "ok"},
            stop="STOP",
            usage={
                "promptTokenCount": 100,
                "cachedContentTokenCount": 90,
                "candidatesTokenCount": 15,
                "thoughtsTokenCount": 5,
            },
        ),
    },
    "refusal": {
        "anthropic": _anthropic(*_text(0, "I can't"), stop="refusal"),
        "openai-chat": _chat({"content": "I can't"}, stop="content_filter"),
        "openai-responses": _responses(*_out(0, MESSAGE, ("refusal", "I can't"))),
        "gemini": _gemini({"text": "I can't"}, stop="SAFETY"),
    },
    "length inside a call": {
        "anthropic": _anthropic(*_use(0, "t", "Write", '{"path": "a", "con'), stop="max_tokens"),
        "openai-chat": _chat(_call(0, "c", "Write", '{"path": "a", "con'), stop="length"),
        "openai-responses": _responses(
            _added(0, {"type": "function_call", "name": "Write"}),
            _delta(ARGUMENTS, 0, '{"path": "a", "con'),
            incomplete="max_output_tokens",
        ),
    },
    "nothing": {
        "anthropic": _anthropic(stop="end_turn"),
        "openai-chat": _chat({"role": "assistant", "content": ""}, stop="stop"),
        "openai-responses": _responses(),
        "gemini": _gemini({"text": ""}, stop="STOP"),
    },
    "thinking and nothing else": {
        "anthropic": _anthropic(
            *_block(0, {"type": "thinking", "thinking": ""}, _thinking("hm")), stop="end_turn"
        ),
        "openai-chat": _chat({"reasoning": "hm"}, stop="stop"),
        "openai-responses": _responses(
            *_out(0, {"type": "reasoning", "id": "r"}, ("reasoning_text", "hm"))
        ),
        "gemini": _gemini({"text": "hm", "thought": True}, stop="STOP"),
    },
    "a call announced and not made": {
        "anthropic": _anthropic(*_text(0, "I read"), stop="tool_use"),
        "openai-chat": _chat({"content": "I read"}, stop="tool_calls"),
    },
}

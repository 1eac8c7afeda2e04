"""Answers on the Anthropic wire: named events, blocks that open, grow and close."""

from longrein.testing.loopback.answering import Answering, argument_pieces, call_id, encode
from longrein.testing.loopback.anthropic import KINDS
from longrein.testing.loopback.anthropic_blocks import WIRE
from longrein.testing.loopback.cache import Cached
from longrein.testing.loopback.script import Turn, cut, pieces, stop_of
from longrein.testing.loopback.seal import seal

_STOPS = {"end": "end_turn", "calls": "tool_use", "length": "max_tokens", "refusal": "refusal"}
_PING = b'event: ping\ndata: {"type":"ping"}\n\n'


def event(name: str, data: bytes) -> bytes:
    """One server-sent event."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), data)


def events(turn: Turn, answer: Answering) -> list[bytes]:
    """The whole stream."""
    out = [_start(answer), _PING]
    index = 0
    if turn.thinking:
        out += _thinking(turn.thinking, index, answer.model)
        index += 1
    texts = pieces(turn)
    if texts:
        out += _text(texts, index)
        index += 1
    for n in range(len(turn.calls)):
        out += _call(turn, n, index, answer)
        index += 1
    delta = {"stop_reason": _STOPS[stop_of(turn)], "stop_sequence": None}
    usage = {**_input(answer.cached), "output_tokens": answer.output}
    out.append(event("message_delta", encode({"type": "message_delta", "delta": delta, "usage": usage})))
    out.append(event("message_stop", b'{"type":"message_stop"}'))
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """An error in mid-stream."""
    error = {"type": word or KINDS.get(status, "overloaded_error"), "message": message}
    return event("error", encode({"type": "error", "error": error}))


def _input(cached: Cached) -> dict[str, object]:
    return {
        "input_tokens": cached.input,
        "cache_creation_input_tokens": cached.written,
        "cache_read_input_tokens": cached.read,
    }


def _start(answer: Answering) -> bytes:
    cached = answer.cached
    created = {
        "ephemeral_5m_input_tokens": cached.written - cached.written_hour,
        "ephemeral_1h_input_tokens": cached.written_hour,
    }
    usage = {**_input(cached), "cache_creation": created, "output_tokens": 1, "service_tier": "standard"}
    body: dict[str, object] = {
        "id": f"msg_{answer.serial:024d}",
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    return event("message_start", encode({"type": "message_start", "message": body}))


def _open(index: int, block: dict[str, object]) -> bytes:
    start = {"type": "content_block_start", "index": index, "content_block": block}
    return event("content_block_start", encode(start))


def _grow(index: int, kind: str, key: str, texts: list[str]) -> list[bytes]:
    head = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":%d,"delta":{"type":"%b","%b":'
    lead = head % (index, kind.encode(), key.encode())
    return [b"%b%b}}\n\n" % (lead, encode(text)) for text in texts]


def _shut(index: int) -> bytes:
    return event("content_block_stop", b'{"type":"content_block_stop","index":%d}' % index)


def _thinking(text: str, index: int, model: str) -> list[bytes]:
    signed = _grow(index, "signature_delta", "signature", [seal(WIRE, model, text)])
    grown = _grow(index, "thinking_delta", "thinking", cut(text))
    return [_open(index, {"type": "thinking", "thinking": "", "signature": ""}), *grown, *signed, _shut(index)]


def _text(texts: list[str], index: int) -> list[bytes]:
    return [_open(index, {"type": "text", "text": ""}), *_grow(index, "text_delta", "text", texts), _shut(index)]


def _call(turn: Turn, n: int, index: int, answer: Answering) -> list[bytes]:
    call = turn.calls[n]
    block: dict[str, object] = {"type": "tool_use", "name": call.name, "input": {}}
    if id_ := call_id(call, n, answer, "toolu_{}"):
        block["id"] = id_
    grown = _grow(index, "input_json_delta", "partial_json", ["", *argument_pieces(turn, n, answer)])
    return [_open(index, block), *grown, _shut(index)]

"""Answers on the Chat Completions wire: chunks of one choice, the usage in a chunk of its own, then `[DONE]`."""

from typing import Any

from longrein.testing.loopback.answering import Answering, argument_pieces, call_id, encode
from longrein.testing.loopback.chat import KINDS
from longrein.testing.loopback.script import Turn, cut, pieces, stop_of

_STOPS = {"end": "stop", "calls": "tool_calls", "length": "length", "refusal": "content_filter"}
_CREATED = 1_760_000_000


def events(turn: Turn, answer: Answering) -> list[bytes]:
    """The whole stream."""
    lead = encode(
        {
            "id": f"chatcmpl-{answer.serial:024d}",
            "object": "chat.completion.chunk",
            "created": _CREATED,
            "model": answer.model,
            "system_fingerprint": "fp_loopback",
        }
    )[:-1]

    def chunk(delta: bytes, reason: bytes = b"null") -> bytes:
        return b'data: %b,"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b}]}\n\n' % (
            lead,
            delta,
            reason,
        )

    out = [chunk(b'{"role":"assistant","content":"","refusal":null}')]
    out += [chunk(b'{"reasoning_content":%b}' % encode(text)) for text in cut(turn.thinking)]
    out += [chunk(b'{"content":%b}' % encode(text)) for text in pieces(turn)]
    for index in range(len(turn.calls)):
        out += [chunk(encode({"tool_calls": [piece]})) for piece in _call(turn, index, answer)]
    out.append(chunk(b"{}", encode(_STOPS[stop_of(turn)])))
    if "usage" in answer.flags:
        out.append(b'data: %b,"choices":[],"usage":%b}\n\n' % (lead, encode(usage(answer))))
    out.append(b"data: [DONE]\n\n")
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """An error in mid-stream."""
    error = {"message": message, "type": word or KINDS.get(status, "server_error"), "param": None, "code": status}
    return b"data: %b\n\n" % encode({"error": error})


def usage(answer: Answering) -> dict[str, Any]:
    """Tokens in this wire's own form: what was cached is a part of the prompt."""
    cached = answer.cached
    prompt = cached.input + cached.read + cached.written
    return {
        "prompt_tokens": prompt,
        "completion_tokens": answer.output,
        "total_tokens": prompt + answer.output,
        "prompt_tokens_details": {"cached_tokens": cached.read, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": answer.reasoning, "audio_tokens": 0},
    }


def _call(turn: Turn, index: int, answer: Answering) -> list[dict[str, Any]]:
    call = turn.calls[index]
    head: dict[str, Any] = {"index": index, "type": "function", "function": {"name": call.name, "arguments": ""}}
    if id_ := call_id(call, index, answer, "call_{}"):
        head["id"] = id_
    return [head, *({"index": index, "function": {"arguments": t}} for t in argument_pieces(turn, index, answer))]

"""Answers on the Gemini wire: chunks of one candidate; there is no terminal event but the reason in the last chunk."""

from typing import Any

import msgspec

from longrein.testing.loopback.answering import Answering, argument_pieces, encode
from longrein.testing.loopback.gemini import KINDS, WIRE
from longrein.testing.loopback.script import Turn, cut, pieces, stop_of
from longrein.testing.loopback.seal import seal

_STOPS = {"end": "STOP", "calls": "STOP", "length": "MAX_TOKENS", "refusal": "SAFETY"}


def events(turn: Turn, answer: Answering) -> list[bytes]:
    """The whole stream."""
    tail = encode({"modelVersion": answer.model, "responseId": f"resp{answer.serial:024d}"})[1:]

    def chunk(part: bytes, more: bytes = b"") -> bytes:
        body = b'{"candidates":[{"content":{"parts":[%b],"role":"model"}%b,"index":0}],%b' % (part, more, tail)
        return b"data: %b\r\n\r\n" % body

    out = [chunk(b'{"text":%b,"thought":true}' % encode(text)) for text in cut(turn.thinking)]
    out += [chunk(b'{"text":%b}' % encode(text)) for text in pieces(turn)]
    reason = _STOPS[stop_of(turn)]
    for index in range(len(turn.calls)):
        part = _call(turn, index, answer)
        if part is None:
            reason = "MALFORMED_FUNCTION_CALL"
            break
        out.append(chunk(encode(part)))
    tail = encode({"usageMetadata": usage(answer)})[1:-1] + b"," + tail
    out.append(chunk(b'{"text":""}', b',"finishReason":%b' % encode(reason)))
    return out


def error_event(status: int, word: str, message: str) -> bytes:
    """An error in mid-stream."""
    error = {"code": status, "message": message, "status": word or KINDS.get(status, "INTERNAL")}
    return b"data: %b\r\n\r\n" % encode({"error": error})


def usage(answer: Answering) -> dict[str, Any]:
    """Tokens in this wire's own form: thoughts are counted beside the answer."""
    cached = answer.cached
    given = cached.input + cached.read + cached.written
    counted: dict[str, Any] = {
        "promptTokenCount": given,
        "candidatesTokenCount": answer.output - answer.reasoning,
        "totalTokenCount": given + answer.output,
    }
    if cached.read:
        counted["cachedContentTokenCount"] = cached.read
    if answer.reasoning:
        counted["thoughtsTokenCount"] = answer.reasoning
    return counted


def _call(turn: Turn, index: int, answer: Answering) -> dict[str, Any] | None:
    """One call, whole; None when what the model wrote is no JSON object: this provider does not pass that on."""
    call = turn.calls[index]
    try:
        arguments = msgspec.json.decode("".join(argument_pieces(turn, index, answer)), type=dict[str, Any])
    except msgspec.DecodeError:
        return None
    made: dict[str, Any] = {"name": call.name, "args": arguments}
    if answer.hit_by("duplicate_ids"):
        made["id"] = "call0"
    elif call.id:
        made["id"] = call.id
    part: dict[str, Any] = {"functionCall": made}
    if "signed" in answer.flags and index == 0:
        text = f"{call.name} {msgspec.json.encode(arguments, order='deterministic').decode()}"
        part["thoughtSignature"] = seal(WIRE, answer.model, text)
    return part

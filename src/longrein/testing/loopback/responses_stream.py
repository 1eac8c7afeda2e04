"""Answers on the Responses wire: numbered events, each item added, grown and done."""

from typing import Any

from longrein.testing.loopback.answering import Answering, argument_pieces, call_id, encode
from longrein.testing.loopback.chat import KINDS
from longrein.testing.loopback.responses import WIRE
from longrein.testing.loopback.script import Turn, cut, pieces, stop_of
from longrein.testing.loopback.seal import seal

_INCOMPLETE = {"length": "max_output_tokens", "refusal": "content_filter"}


class _Stream:
    """Events with their numbers, and the items that are done."""

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.output: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        """One event."""
        data = encode({"type": kind, "sequence_number": len(self.events), **fields})
        self.events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def grow(self, kind: str, item_id: str, texts: list[str], **where: int) -> None:
        """Deltas of one item: the fast way, since there may be many."""
        fields = {"type": f"{kind}.delta", "item_id": item_id, "output_index": len(self.output), **where}
        lead = b"event: %b.delta\ndata: %b" % (kind.encode(), encode(fields)[:-1])
        first = len(self.events)
        self.events += [
            b'%b,"sequence_number":%d,"delta":%b}\n\n' % (lead, n, encode(text)) for n, text in enumerate(texts, first)
        ]

    def done(self, item: dict[str, Any]) -> None:
        """The item is whole."""
        self.say("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)


def events(turn: Turn, answer: Answering) -> list[bytes]:
    """The whole stream."""
    stream = _Stream()
    response = {"id": f"resp_{answer.serial:024d}", "object": "response", "model": answer.model, "store": False}
    begun = {**response, "status": "in_progress", "output": [], "usage": None}
    stream.say("response.created", response=begun)
    stream.say("response.in_progress", response=begun)
    if turn.thinking:
        _reasoning(stream, turn.thinking, answer)
    if texts := pieces(turn):
        _text(stream, texts, answer)
    for index in range(len(turn.calls)):
        _call(stream, turn, index, answer)
    reason = _INCOMPLETE.get(stop_of(turn))
    status = "incomplete" if reason else "completed"
    whole = {
        **response,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": reason} if reason else None,
        "output": stream.output,
        "usage": usage(answer),
    }
    stream.say(f"response.{status}", response=whole)
    return stream.events


def error_event(status: int, word: str, message: str) -> bytes:
    """An error in mid-stream."""
    error = {"code": word or KINDS.get(status, "server_error"), "message": message}
    response = {"id": "resp_failed", "object": "response", "status": "failed", "error": error}
    return b"event: response.failed\ndata: %b\n\n" % encode({"type": "response.failed", "response": response})


def usage(answer: Answering) -> dict[str, Any]:
    """Tokens in this wire's own form."""
    cached = answer.cached
    given = cached.input + cached.read + cached.written
    return {
        "input_tokens": given,
        "input_tokens_details": {"cached_tokens": cached.read},
        "output_tokens": answer.output,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning},
        "total_tokens": given + answer.output,
    }


def _reasoning(stream: _Stream, text: str, answer: Answering) -> None:
    id_, at = f"rs_{answer.serial:024d}", len(stream.output)
    item: dict[str, Any] = {"id": id_, "type": "reasoning", "summary": []}
    stream.say("response.output_item.added", output_index=at, item=item)
    part = {"type": "summary_text", "text": ""}
    where = {"item_id": id_, "output_index": at, "summary_index": 0}
    stream.say("response.reasoning_summary_part.added", **where, part=part)
    stream.grow("response.reasoning_summary_text", id_, cut(text), summary_index=0)
    stream.say("response.reasoning_summary_text.done", **where, text=text)
    part = {"type": "summary_text", "text": text}
    stream.say("response.reasoning_summary_part.done", **where, part=part)
    sealed = {"encrypted_content": seal(WIRE, answer.model, text)} if "sealed" in answer.flags else {}
    stream.done({**item, "summary": [part], **sealed})


def _text(stream: _Stream, texts: list[str], answer: Answering) -> None:
    id_, at = f"msg_{answer.serial:024d}", len(stream.output)
    item: dict[str, Any] = {"id": id_, "type": "message", "role": "assistant", "status": "in_progress", "content": []}
    stream.say("response.output_item.added", output_index=at, item=item)
    part = {"type": "output_text", "annotations": [], "text": ""}
    where = {"item_id": id_, "output_index": at, "content_index": 0}
    stream.say("response.content_part.added", **where, part=part)
    stream.grow("response.output_text", id_, texts, content_index=0)
    text = "".join(texts)
    stream.say("response.output_text.done", **where, text=text)
    stream.say("response.content_part.done", **where, part={**part, "text": text})
    stream.done({**item, "status": "completed", "content": [{**part, "text": text}]})


def _call(stream: _Stream, turn: Turn, index: int, answer: Answering) -> None:
    call, at = turn.calls[index], len(stream.output)
    id_ = f"fc_{answer.serial:012d}{index:012d}"
    item: dict[str, Any] = {"id": id_, "type": "function_call", "status": "in_progress", "name": call.name}
    if call_ := call_id(call, index, answer, "call_{}"):
        item["call_id"] = call_
    stream.say("response.output_item.added", output_index=at, item={**item, "arguments": ""})
    texts = argument_pieces(turn, index, answer)
    stream.grow("response.function_call_arguments", id_, texts)
    whole = "".join(texts)
    stream.say("response.function_call_arguments.done", item_id=id_, output_index=at, arguments=whole)
    stream.done({**item, "status": "completed", "arguments": whole})

"""Reading a Responses stream. Terminal events are `response.completed`, `response.incomplete` and `response.failed`."""

import msgspec

from longrein.events import Usage
from longrein.models.content import encode_json
from longrein.models.draft import Draft, Slot
from longrein.models.failures import kind_of_error_event, limit_tokens
from longrein.models.port import CallDelta, Delta, Failure, Reply, TextDelta, ThinkingDelta


class _Piece(msgspec.Struct):
    type: str = ""
    text: str | None = None
    refusal: str | None = None


class _Item(msgspec.Struct):
    type: str = ""
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    content: list[_Piece] | None = None
    encrypted_content: str | None = None
    phase: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _InputDetails | None = None
    output_tokens_details: _OutputDetails | None = None


class _Error(msgspec.Struct):
    code: str | int | None = None
    type: str | None = None
    message: str | None = None


class _Incomplete(msgspec.Struct):
    reason: str | None = None


class _Response(msgspec.Struct):
    model: str | None = None
    usage: _Usage | None = None
    error: _Error | None = None
    incomplete_details: _Incomplete | None = None


class _Event(msgspec.Struct):
    type: str = ""
    output_index: int = 0
    summary_index: int = 0
    delta: str | None = None
    item: msgspec.Raw = msgspec.Raw(b"")
    response: _Response | None = None
    error: _Error | None = None
    code: str | int | None = None
    message: str | None = None


_decode = msgspec.json.Decoder(_Event).decode
_decode_item = msgspec.json.Decoder(_Item).decode
_KINDS = {"message": "text", "reasoning": "thinking", "function_call": "call"}
_READ = frozenset(
    {
        *("response.output_item.added", "response.output_item.done", "error"),
        *("response.output_text.delta", "response.refusal.delta", "response.function_call_arguments.delta"),
        *("response.reasoning_summary_text.delta", "response.reasoning_text.delta"),
        *("response.completed", "response.incomplete", "response.done", "response.failed"),
    }
)
"""Types of the events below that are read."""


def usage_of(usage: _Usage) -> Usage:
    """The four kinds apart."""
    details = usage.input_tokens_details or _InputDetails()
    read, written = details.cached_tokens or 0, details.cache_write_tokens or 0
    thought = (usage.output_tokens_details or _OutputDetails()).reasoning_tokens or 0
    return Usage(max(0, (usage.input_tokens or 0) - read - written), read, written, usage.output_tokens or 0, thought)


class ResponsesReading:
    """Reads one streamed response."""

    settled = False
    kinds = _READ

    def __init__(self, model: str) -> None:
        self.draft = Draft()
        self.done = False
        self.failed: Failure | None = None
        self._model = model
        self._slots: dict[int, Slot] = {}
        self._summary = 0

    def take(self, payload: bytes, out: list[Delta]) -> None:
        """One event."""
        if payload == b"[DONE]":
            return
        event = _decode(payload)
        match event.type:
            case "response.output_text.delta" | "response.refusal.delta":
                self._grow(event, "text", out)
            case "response.function_call_arguments.delta":
                self._grow(event, "call", out)
            case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
                self._think(event, out)
            case "response.output_item.added":
                self._open(event.output_index, _decode_item(event.item), out)
            case "response.output_item.done":
                self._shut(event.output_index, _decode_item(event.item), bytes(event.item), out)
            case "response.completed" | "response.incomplete" | "response.done":
                self._end(event.response or _Response())
            case "response.failed":
                self._fail((event.response or _Response()).error or _Error())
            case _ if event.type == "error" or event.error is not None:
                self._fail(event.error or _Error(event.code, None, event.message))
        if event.type == "response.refusal.delta":
            self.draft.stop = "refusal"

    def finish(self) -> Reply | Failure:
        """The reply."""
        return self.draft.finish("openai-responses", self._model)

    def _open(self, index: int, item: _Item, out: list[Delta]) -> Slot | None:
        kind = _KINDS.get(item.type)
        if kind is None:
            return None
        self._slots[index] = slot = self.draft.open(kind, name=item.name or "")
        if kind == "call":
            slot.raw = encode_json({"id": item.id or "", "call_id": item.call_id or ""}).decode()
            out.append(CallDelta(slot.call, slot.name))
        return slot

    def _grow(self, event: _Event, kind: str, out: list[Delta]) -> None:
        text = event.delta
        if not text:
            return
        slot = self._slots.get(event.output_index)
        if slot is None or slot.kind != kind:
            self._slots[event.output_index] = slot = self.draft.open(kind)
        slot.grown.append(text)
        out.append(TextDelta(text) if kind == "text" else CallDelta(slot.call, json=text))

    def _think(self, event: _Event, out: list[Delta]) -> None:
        slot = self._slots.get(event.output_index)
        if slot is None or slot.kind != "thinking":
            self._slots[event.output_index] = slot = self.draft.open("thinking")
        text = event.delta or ""
        if event.summary_index != self._summary:
            self._summary, text = event.summary_index, ("\n\n" if slot.grown else "") + text
        slot.grown.append(text)
        out.append(ThinkingDelta(text))

    def _shut(self, index: int, item: _Item, raw: bytes, out: list[Delta]) -> None:
        """An item is whole: its raw bytes are kept where they must go back; what came without deltas is taken now."""
        slot = self._slots.pop(index, None)  # a server that numbers nothing ends one item before it begins the next
        if slot is None or slot.kind != _KINDS.get(item.type):
            slot = self._open(index, item, out)
            self._slots.pop(index, None)
        if slot is None:
            return
        if slot.kind == "thinking" and item.encrypted_content:
            slot.raw = raw.decode("utf-8", "replace")
        elif slot.kind == "text":
            if item.phase:
                slot.raw = encode_json({"phase": item.phase}).decode()
            self._whole(slot, "".join(p.text or p.refusal or "" for p in item.content or ()), out)
        elif slot.kind == "call":
            self._whole(slot, item.arguments or "", out)

    def _whole(self, slot: Slot, text: str, out: list[Delta]) -> None:
        if text and not slot.grown:
            slot.grown.append(text)
            out.append(TextDelta(text) if slot.kind == "text" else CallDelta(slot.call, json=text))

    def _end(self, response: _Response) -> None:
        self.done = True
        self.draft.model = response.model or ""
        if response.usage is not None:
            self.draft.usage = usage_of(response.usage)
        reason = response.incomplete_details.reason if response.incomplete_details else None
        if reason:
            self.draft.stop = "refusal" if reason == "content_filter" else "length"

    def _fail(self, error: _Error) -> None:
        code, text = str(error.code or error.type or ""), error.message or ""
        kind = kind_of_error_event(code, text)
        failure = self.draft.failure(kind, text or code or "the provider broke off")
        self.failed = msgspec.structs.replace(failure, limit_tokens=limit_tokens(text) if kind == "overflow" else 0)

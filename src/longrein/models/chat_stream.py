"""Reading a Chat Completions stream, as OpenAI and those who imitate it write it.

Terminal event is `data: [DONE]`. `finish_reason` alone is not enough: the stream may be cut before the usage.
"""

from typing import Any

import msgspec

from longrein.events import Usage, decode_json
from longrein.models.arguments import given_json, read_arguments
from longrein.models.content import encode_json
from longrein.models.draft import PIECE_CHARS, Draft, Slot
from longrein.models.failures import error_text, kind_of_error_event, limit_tokens
from longrein.models.port import CallDelta, Delta, Failure, Reply, TextDelta, ThinkingDelta

_STOPS = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "refusal": "refusal",
}
_BROKEN = {"error": "server", "network_error": "server", "insufficient_system_resource": "overload"}


_GROWING = ("text", "summary", "data")
"""Fields of a block of reasoning that come in pieces."""


class _Pieces(list[str]):
    """What has come of one of them."""


class _Function(msgspec.Struct, gc=False):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    id: str | None = None
    function: _Function | None = None
    extra_content: dict[str, Any] | None = None


class _Chunk(msgspec.Struct):
    type: str = ""
    text: str | None = None
    thinking: "list[_Chunk] | str | None" = None


class _Delta(msgspec.Struct):
    content: str | list[_Chunk] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    reasoning_details: list[dict[str, Any]] | None = None
    tool_calls: list[_Call] | None = None
    refusal: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    message: _Delta | None = None
    finish_reason: str | None = None


class _InputDetails(msgspec.Struct):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    total_tokens: int | None = None
    prompt_tokens_details: _InputDetails | None = None
    completion_tokens_details: _OutputDetails | None = None
    prompt_cache_hit_tokens: int | None = None
    cached_tokens: int | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None
    model: str | None = None
    error: msgspec.Raw = msgspec.Raw(b"")


_decode = msgspec.json.Decoder(_Event).decode


def usage_of(usage: _Usage) -> Usage:
    """The four kinds apart. Some count reasoning beside the completion: their total gives them away."""
    given, written = usage.prompt_tokens or 0, usage.completion_tokens or 0
    details = usage.prompt_tokens_details or _InputDetails()
    read = details.cached_tokens or usage.prompt_cache_hit_tokens or usage.cached_tokens or 0
    cached = details.cache_write_tokens or 0
    thought = (usage.completion_tokens_details or _OutputDetails()).reasoning_tokens or 0
    if thought and usage.total_tokens == given + written + thought:
        written += thought
    return Usage(max(0, given - read - cached), read, cached, written, thought)


class ChatReading:
    """Reads one streamed completion."""

    kinds: frozenset[str] = frozenset()

    def __init__(self, model: str, says_done: bool = True) -> None:
        self.draft = Draft()
        self.done = False
        self.failed: Failure | None = None
        self._model = model
        self._says_done = says_done
        self._text: Slot | None = None
        self._thinking: Slot | None = None
        self._calls: list[tuple[int | None, str, Slot]] = []
        self._details: list[dict[str, Any]] = []
        """Blocks of reasoning; a text that comes in pieces is a list of them here."""
        self._again: tuple[str, str] | None = None
        """(id, name) said once more after a whole call: its echo, or the next one if arguments follow."""

    @property
    def settled(self) -> bool:
        """Whether the stream may end now: only where the server is known not to send `[DONE]`."""
        return bool(self.draft.stop) and not self._says_done

    def take(self, payload: bytes, out: list[Delta]) -> None:
        """One chunk."""
        if payload == b"[DONE]":
            self.done = True
            return
        event = _decode(payload)
        if event.choices:
            choice = event.choices[0]
            delta = choice.delta or choice.message
            if delta is not None:
                self._grow(delta, out)
            if choice.finish_reason:
                self._stop(choice.finish_reason)
            if event.model and not self.draft.model:
                self.draft.model = event.model
        if event.usage is not None and event.usage.prompt_tokens is not None:
            self.draft.usage = usage_of(event.usage)
        if event.error and bytes(event.error) != b"null":
            self._fail(bytes(event.error))

    def finish(self) -> Reply | Failure:
        """The reply. A stream that ended with `[DONE]` but never said why was cut on the way to the server."""
        if not self.draft.stop and not self.draft.slots:
            return self.draft.failure("empty", "the model gave an empty answer")
        if self._thinking is not None and (self._details or self._thinking.name):
            fields: dict[str, Any] = {self._thinking.name: self._thinking.text} if self._thinking.name else {}
            if self._details:
                fields = {"reasoning_details": [_joined(detail) for detail in self._details]}
            self._thinking.raw = encode_json(fields).decode()
        return self.draft.finish("openai-chat", self._model)

    def _grow(self, delta: _Delta, out: list[Delta]) -> None:
        if delta.reasoning_content:
            self._think("reasoning_content", delta.reasoning_content, out)
        elif delta.reasoning:
            self._think("reasoning", delta.reasoning, out)
        if delta.reasoning_details:
            self._detail(delta.reasoning_details)
        content = delta.content
        if content:
            if isinstance(content, str):
                self._say(content, out)
            else:
                self._chunks(content, out)
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._call(call, out)
        if delta.refusal:
            self._say(delta.refusal, out)
            self.draft.stop = "refusal"

    def _say(self, text: str, out: list[Delta]) -> None:
        if self._text is None:
            self._text = self.draft.open("text")
        self.draft.grow(self._text, text)
        out.append(TextDelta(text))

    def _think(self, field: str, text: str, out: list[Delta]) -> None:
        if self._thinking is None:
            self._thinking = self.draft.open("thinking", name=field)
        self.draft.grow(self._thinking, text)
        out.append(ThinkingDelta(text))

    def _chunks(self, chunks: list[_Chunk], out: list[Delta]) -> None:
        """Mistral's reasoning models write content as a list."""
        for chunk in chunks:
            if chunk.text:
                self._say(chunk.text, out)
            inner = chunk.thinking
            for text in [inner] if isinstance(inner, str) else [c.text for c in inner or ()]:
                if text:
                    self._think("", text, out)

    def _detail(self, details: list[dict[str, Any]]) -> None:
        """Blocks of reasoning in pieces: those of one kind and index are one."""
        if self._thinking is None:
            self._thinking = self.draft.open("thinking", name="reasoning")
        for new in details:
            old = self._details[-1] if self._details else None
            if old is None or (old.get("type"), old.get("index")) != (new.get("type"), new.get("index")):
                old = {}
                self._details.append(old)
            for key, value in new.items():
                if key in _GROWING and isinstance(value, str):
                    pieces = old[key] = old[key] if isinstance(old.get(key), _Pieces) else _Pieces()
                    pieces.append(value)
                elif value is not None or key not in old:
                    old[key] = value
                self.draft.came += PIECE_CHARS + (len(value) if isinstance(value, str) else 0)

    def _call(self, call: _Call, out: list[Delta]) -> None:
        function = call.function or _Function()
        given = function.arguments
        text = given if isinstance(given, str) else given_json(given) if given else ""
        name = self._named(call, function.name or "", text)
        slot = self._slot(call, name, text)
        fresh = not slot.name and bool(name)
        if fresh:
            slot.name = name
        if call.id or call.extra_content:
            self._keep(slot, call)
        if text:
            self.draft.grow(slot, text)
        if fresh or text:
            out.append(CallDelta(slot.call, slot.name if fresh else "", text))

    def _named(self, call: _Call, name: str, text: str) -> str:
        """The name of a piece. One that stood alone, after a call that was whole, belongs to the arguments after it."""
        if call.index is not None or not self._calls:
            return name
        id_, slot = self._calls[-1][1:]
        if text and not name and self._again == (call.id or id_, slot.name):
            name = slot.name
        alone = name and not text and (call.id or id_, name) == (id_, slot.name) and slot.grown
        self._again = (id_, name) if alone and _whole(slot) else None
        return name

    def _slot(self, call: _Call, name: str, text: str) -> Slot:
        """The call that a piece belongs to. Servers leave out the index, the id or both, or number all calls 0."""
        known = [(id_, slot) for index, id_, slot in self._calls if call.index is None or index == call.index]
        if known:
            id_, slot = known[-1]
            other = bool((call.id and id_ and call.id != id_) or (slot.name and name != slot.name))
            bare = call.index is None and not call.id
            again = bool(name and slot.grown and (text or bare)) and _whole(slot)
            if not (name and (other or again)):
                return slot
        slot = self.draft.open("call")
        self._calls.append((call.index, call.id or "", slot))
        return slot

    def _keep(self, slot: Slot, call: _Call) -> None:
        fields: dict[str, Any] = {"id": call.id} if call.id else {}
        if call.extra_content:
            fields["extra_content"] = call.extra_content
        if not slot.raw or call.extra_content:
            slot.raw = encode_json(fields).decode()

    def _stop(self, reason: str) -> None:
        if reason in _BROKEN:
            self.failed = self.draft.failure(_BROKEN[reason], f"the provider broke off: {reason}")
        elif self.draft.stop != "refusal":
            self.draft.stop = _STOPS.get(reason, "end")

    def _fail(self, raw: bytes) -> None:
        text = raw.decode("utf-8", "replace")
        code = _code_of(raw)
        kind = kind_of_error_event(code, text)
        status = int(code) if code.isdecimal() and len(code) == 3 else 0
        failure = self.draft.failure(kind, error_text(f'{{"error":{text}}}') or "the provider broke off", status)
        self.failed = msgspec.structs.replace(failure, limit_tokens=limit_tokens(text) if kind == "overflow" else 0)


def _whole(slot: Slot) -> bool:
    """Whether the arguments of a call are complete. Its last pieces are looked at first, which is cheap."""
    return "".join(slot.grown[-8:]).rstrip().endswith(("}", '"', "]")) and read_arguments(slot.text) is not None


def _joined(detail: dict[str, Any]) -> dict[str, Any]:
    """A block of reasoning with its pieces put together."""
    return {key: "".join(value) if isinstance(value, _Pieces) else value for key, value in detail.items()}


def _code_of(raw: bytes) -> str:
    try:
        value = decode_json(raw)
    except msgspec.DecodeError:
        return ""
    if not isinstance(value, dict):
        return ""
    return str(value.get("code") or value.get("status") or value.get("type") or "")

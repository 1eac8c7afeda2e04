"""Reading a Gemini stream. It has no terminal event: it is whole when it said why it stopped and then ended."""

from typing import Any

import msgspec

from longrein.events import Usage
from longrein.models.arguments import given_json
from longrein.models.content import encode_json
from longrein.models.draft import Draft
from longrein.models.failures import kind_of_error_event, limit_tokens
from longrein.models.port import CallDelta, Delta, Failure, Reply, TextDelta, ThinkingDelta

_STOPS = {"STOP": "end", "MAX_TOKENS": "length"}
_REFUSALS = frozenset(
    {"SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY", "LANGUAGE", "MODEL_ARMOR"}
)
_BROKEN = frozenset({"MALFORMED_FUNCTION_CALL", "UNEXPECTED_TOOL_CALL", "MALFORMED_RESPONSE", "TOO_MANY_TOOL_CALLS"})


class _Call(msgspec.Struct, rename="camel"):
    name: str | None = None
    args: dict[str, Any] | None = None
    id: str | None = None
    will_continue: bool | None = None


class _Part(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _Call | None = None
    thought_signature: str | None = None


class _Content(msgspec.Struct, rename="camel"):
    parts: list[_Part] | None = None


class _Candidate(msgspec.Struct, rename="camel"):
    content: _Content | None = None
    finish_reason: str | None = None
    finish_message: str | None = None


class _Usage(msgspec.Struct, rename="camel"):
    prompt_token_count: int | None = None
    cached_content_token_count: int | None = None
    candidates_token_count: int | None = None
    thoughts_token_count: int | None = None
    tool_use_prompt_token_count: int | None = None


class _Feedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None


class _Error(msgspec.Struct, rename="camel"):
    code: int | None = None
    status: str | None = None
    message: str | None = None


class _Event(msgspec.Struct, rename="camel"):
    candidates: list[_Candidate] | None = None
    usage_metadata: _Usage | None = None
    model_version: str | None = None
    prompt_feedback: _Feedback | None = None
    error: _Error | None = None


_decode = msgspec.json.Decoder(_Event).decode


def usage_of(usage: _Usage) -> Usage:
    """The kinds apart; thoughts are output."""
    given = (usage.prompt_token_count or 0) + (usage.tool_use_prompt_token_count or 0)
    read, thought = usage.cached_content_token_count or 0, usage.thoughts_token_count or 0
    return Usage(max(0, given - read), read, 0, (usage.candidates_token_count or 0) + thought, thought)


class GeminiReading:
    """Reads one streamed answer."""

    done = False
    kinds: frozenset[str] = frozenset()

    def __init__(self, model: str) -> None:
        self.draft = Draft()
        self.failed: Failure | None = None
        self._model = model

    @property
    def settled(self) -> bool:
        """Whether the stream may end now."""
        return bool(self.draft.stop)

    def take(self, payload: bytes, out: list[Delta]) -> None:
        """One chunk."""
        event = _decode(payload)
        if event.usage_metadata is not None:
            self.draft.usage = usage_of(event.usage_metadata)
        if event.model_version:
            self.draft.model = event.model_version
        if event.candidates:
            candidate = event.candidates[0]
            if candidate.content is not None:
                for part in candidate.content.parts or ():
                    self._part(part, out)
            if candidate.finish_reason:
                self._stop(candidate)
        elif event.prompt_feedback is not None and event.prompt_feedback.block_reason:
            self.draft.stop = "refusal"
        if event.error is not None:
            self._fail(event.error)

    def finish(self) -> Reply | Failure:
        """The reply."""
        return self.draft.finish("gemini", self._model)

    def _part(self, part: _Part, out: list[Delta]) -> None:
        if part.function_call is not None:
            self._call(part.function_call, part.thought_signature, out)
        elif part.thought and part.text:
            self.draft.grow(self.draft.last("thinking"), part.text)
            out.append(ThinkingDelta(part.text))
        elif part.text and not part.thought:
            self.draft.grow(self.draft.last("text"), part.text)
            out.append(TextDelta(part.text))
        if part.thought_signature and part.function_call is None and not part.thought:
            self.draft.last("text").raw = encode_json({"thoughtSignature": part.thought_signature}).decode()

    def _call(self, call: _Call, signature: str | None, out: list[Delta]) -> None:
        if call.will_continue:
            self.failed = self.draft.failure(
                "invalid", "the provider sends arguments in pieces, which nobody asked for"
            )
            return
        received = given_json(call.args or {})
        slot = self.draft.open("call", received, call.name or "")
        fields = {"id": call.id} if call.id else {}
        if signature:
            fields["thoughtSignature"] = signature
        slot.raw = encode_json(fields).decode()
        out.append(CallDelta(slot.call, slot.name, received))

    def _stop(self, candidate: _Candidate) -> None:
        reason = candidate.finish_reason or ""
        if reason in _BROKEN and not self.draft.calls:  # a call of a tool that does not exist is a call
            said = f"the model wrote a call that the provider could not read ({candidate.finish_message or reason})"
            self.failed = self.draft.failure("server", said)
        else:
            self.draft.stop = "refusal" if reason in _REFUSALS else _STOPS.get(reason, "end")

    def _fail(self, error: _Error) -> None:
        text = error.message or error.status or "the provider broke off"
        kind = kind_of_error_event(str(error.code or error.status or ""), text)
        failure = self.draft.failure(kind, text, error.code or 0)
        self.failed = msgspec.structs.replace(failure, limit_tokens=limit_tokens(text) if kind == "overflow" else 0)

"""The Responses wire: validation of `POST /v1/responses`, and answers."""

from collections.abc import Callable
from typing import Any

import msgspec

from longrein.models.scripted import split_text
from longrein.testing.loopback.openai_chat_endpoint import (
    EMPTY_ARRAY,
    ERROR_TYPES,
    OpenAI,
    call_problem,
    image_problem,
    images_of,
    missing,
)
from longrein.testing.loopback.response_parts import (
    SEARCHES,
    ReplyContext,
    argument_pieces,
    call_id,
    encode,
    searches_of,
)
from longrein.testing.loopback.script import Limits, Rules, Turn, stop_of, text_pieces
from longrein.testing.loopback.validation import (
    ParsedRequest,
    Refused,
    SentBlock,
    SentMessage,
    convert,
    listed,
    raw_blocks,
    sign,
)

_ROLES = ("assistant", "system", "developer", "user")
_USER_PARTS = ("input_text", "input_image", "input_file")


class OpenAIResponsesEndpoint(OpenAI):
    """The wire `openai-responses`. An item is a message of one block."""

    name = overflow = "openai-responses"
    path = r"(?:/\w+)*/responses"
    items = "input"
    at = "input[{at}]"
    function = ""
    no_items = f"Invalid 'input': {EMPTY_ARRAY}"
    user_first = "Invalid 'input': the first item must be a message of the user."
    no_prefill = "Invalid 'input': the last item must not be the assistant's."
    too_many_images = "Invalid 'input': too many images. At most 500 are allowed."

    def _output_limit(self, fields: dict[str, msgspec.Raw]) -> int:
        return convert(fields, "max_output_tokens", int, 0)

    def _flags(self, fields: dict[str, msgspec.Raw], model: str) -> frozenset[str]:  # noqa: ARG002
        include = convert(fields, "include", list[str], [])
        sealed = {"sealed"} if "reasoning.encrypted_content" in include else set()
        return frozenset(
            sealed | ({SEARCHES} if b'"web_search"' in bytes(fields.get("tools", b"")) else set())
        )

    def _prefix(
        self,
        fields: dict[str, msgspec.Raw],
        read: Callable[[bytes], SentBlock],  # noqa: ARG002
    ) -> list[tuple[str, SentBlock]]:
        return raw_blocks(fields, "instructions")

    def _messages(
        self, fields: dict[str, msgspec.Raw], read: Callable[[bytes], SentBlock]
    ) -> list[SentMessage]:
        raws = listed(fields.get("input"), b'{"type":"message","role":"user","content":%b}')
        return [SentMessage(_role(block), (block,)) for block in map(read, raws)]

    def _read_fields(self, raw: bytes, fields: dict[str, Any]) -> SentBlock:
        # The name of a message is its role
        block = SentBlock(fields.get("type") or ("message" if "role" in fields else ""), raw)
        content = fields.get("output" if block.kind == "function_call_output" else "content")
        parts = (
            [part for part in content if isinstance(part, dict)]
            if isinstance(content, list)
            else []
        )
        block.pictures = images_of([part.get("image_url") for part in parts])
        block.id = str(fields.get("id" if block.kind == "reasoning" else "call_id") or "")
        block.name = str(fields.get("role") or "")
        summary = fields.get("summary")
        texts = (
            [part for part in summary if isinstance(part, dict)]
            if isinstance(summary, list)
            else []
        )
        block.text = "\n\n".join(str(part.get("text")) for part in texts)
        block.signature = fields.get("encrypted_content")
        block.problem = _problem(block, fields)
        return block

    def _check_head(self, fields: dict[str, msgspec.Raw], limits: Limits) -> None:
        for name in ("model", "input"):
            if name not in fields:
                raise missing(name)
        convert(fields, "model", str)
        least, most = 16, limits.output_tokens_max
        limit = convert(fields, "max_output_tokens", int, least)
        if limit < least or (most and limit > most):
            side, bound = (
                ("below minimum", f">= {least}")
                if limit < least
                else ("above maximum", f"<= {most}")
            )
            raise Refused(
                f"Invalid 'max_output_tokens': integer {side} value. "
                f"Expected a value {bound}, but got {limit} instead.",
                param="max_output_tokens",
                code=f"integer_{side.replace('imum', '').replace(' ', '_')}_value",
            )
        self.check_tools(fields)

    def _check_messages(
        self, messages: list[SentMessage], parsed: ParsedRequest, rules: Rules
    ) -> None:
        super()._check_messages(messages, parsed, rules)
        for message, after in zip(messages, [*messages[1:], None], strict=True):
            block = message.blocks[0]
            if block.kind == "reasoning" and (after is None or after.role != "assistant"):
                said = (
                    f"Item '{block.id}' of type 'reasoning' was provided without its required "
                    "following item."
                )
                raise Refused(said, param="input")

    def _check_block(
        self,
        path: str,  # noqa: ARG002
        role: str,  # noqa: ARG002
        block: SentBlock,
        model: str,
        rules: Rules,  # noqa: ARG002
    ) -> None:
        """Check that reasoning is signed by this provider and model."""
        if block.kind != "reasoning":
            return
        if block.signature is None:
            raise Refused(
                f"Item with id '{block.id}' not found. Items are not persisted when `store` is "
                "set to false. "
                "Try again with `store` set to true, or remove this item from your input.",
                status=404,
                param="input",
            )
        if block.signature != sign(self.name, model, block.text):
            raise Refused(
                f"The encrypted content {block.signature[:4]}... could not be verified. "
                "Reason: Encrypted content could not be decrypted or parsed.",
                code="invalid_encrypted_content",
            )

    def _check_pairs(self, messages: list[SentMessage]) -> None:
        """Check that each call has one later output, and each output an earlier call."""
        answered: dict[str, bool] = {}
        for block in (message.blocks[0] for message in messages):
            if block.kind == "function_call":
                if block.id in answered:
                    raise Refused(
                        f"Duplicate function call with call_id {block.id} found in input.",
                        param="input",
                    )
                answered[block.id] = False
            elif block.kind == "function_call_output":
                if block.id not in answered:
                    raise Refused(
                        f"No tool call found for function call output with call_id {block.id}.",
                        param="input",
                    )
                if answered[block.id]:
                    raise Refused(
                        f"Duplicate tool output found for function call {block.id}.", param="input"
                    )
                answered[block.id] = True
        for id_, has_output in answered.items():
            if not has_output:
                raise Refused(f"No tool output found for function call {id_}.", param="input")

    def error_event(self, status: int, word: str, message: str) -> bytes:
        error = {"code": word or ERROR_TYPES.get(status, "server_error"), "message": message}
        response = {"id": "resp_failed", "object": "response", "status": "failed", "error": error}
        return b"event: response.failed\ndata: %b\n\n" % encode(
            {"type": "response.failed", "response": response}
        )

    def stream_events(self, turn: Turn, answer: ReplyContext) -> list[bytes]:
        stream = _EventWriter()
        response = {
            "id": f"resp_{answer.serial:024d}",
            "object": "response",
            "model": answer.model,
            "store": False,
        }
        begun = {**response, "status": "in_progress", "output": [], "usage": None}
        stream.say("response.created", response=begun)
        stream.say("response.in_progress", response=begun)
        if turn.thinking:
            signature = {"encrypted_content": sign(self.name, answer.model, turn.thinking)}
            stream.reasoning(
                turn.thinking,
                f"rs_{answer.serial:024d}",
                signature if "sealed" in answer.flags else {},
            )
        for query, url, number in searches_of(turn, answer):
            stream.search(query, url, f"ws_{number}")
        if texts := text_pieces(turn):
            stream.text(texts, f"msg_{answer.serial:024d}")
        for index, call in enumerate(turn.calls):
            id_ = call_id(call, index, answer, "call_{}")
            head = {
                "id": f"fc_{answer.serial:012d}{index:012d}",
                "type": "function_call",
                "status": "in_progress",
            }
            stream.call(
                head | {"name": call.name} | ({"call_id": id_} if id_ else {}),
                argument_pieces(turn, index, answer),
            )
        reason = {"length": "max_output_tokens", "refusal": "content_filter"}.get(stop_of(turn))
        status = "incomplete" if reason else "completed"
        end = {
            "status": status,
            "error": None,
            "incomplete_details": {"reason": reason} if reason else None,
        }
        stream.say(
            f"response.{status}",
            response={**response, **end, "output": stream.output, "usage": _usage(answer)},
        )
        return stream.events

    def plain_body(self, events: list[dict[str, Any]]) -> dict[str, Any]:
        response: dict[str, Any] = events[-1]["response"]
        return response


# --- Items ----------------------------------------------------------------------------------------


def _role(block: SentBlock) -> str:
    mine = ("reasoning", "function_call", "web_search_call")
    return "assistant" if block.kind in mine else block.name or "result"


def _problem(block: SentBlock, fields: dict[str, Any]) -> str:
    match block.kind:
        case "message":
            return _message_problem(block, fields)
        case "function_call":
            return call_problem("{at}", "{at}.call_id", block.id, 64, fields)
        case "function_call_output":
            output = fields.get("output")
            if not block.id:
                return "Missing required parameter: '{at}.call_id'."
            if isinstance(output, list):
                return _parts_problem(output, _USER_PARTS, "output")
            return "" if isinstance(output, str) else "Missing required parameter: '{at}.output'."
        case "reasoning":
            return (
                ""
                if isinstance(fields.get("summary"), list)
                else "Missing required parameter: '{at}.summary'."
            )
        case "web_search_call":
            lacking = [name for name in ("id", "status", "action") if not fields.get(name)]
            return f"Missing required parameter: '{{at}}.{lacking[0]}'." if lacking else ""
    kinds = "'message', 'reasoning', 'web_search_call', 'function_call', 'function_call_output'"
    return f"Invalid value: '{block.kind}'. Supported values are: {kinds}."


def _message_problem(block: SentBlock, fields: dict[str, Any]) -> str:
    if block.name not in _ROLES:
        return f"Invalid value: '{block.name}'. Supported values are: '{', '.join(_ROLES)}'."
    content = fields.get("content")
    if isinstance(content, str):
        return ""
    if not isinstance(content, list):
        return "Missing required parameter: '{at}.content'."
    if not content:
        return f"Invalid '{{at}}.content': {EMPTY_ARRAY}"
    if block.name != "assistant":
        return _parts_problem(content, _USER_PARTS, "content")
    # vLLM and others require these fields, OpenAI does not.
    texts = [
        n
        for n, part in enumerate(content)
        if isinstance(part, dict) and part.get("type") == "output_text"
    ]
    lacking = [name for name in ("id", "status") if not isinstance(fields.get(name), str)]
    lacking += [
        f"content[{n}].annotations"
        for n in texts
        if not isinstance(content[n].get("annotations"), list)
    ]
    if lacking:
        return f"Missing required parameter: '{{at}}.{lacking[0]}'."
    return _parts_problem(content, ("output_text", "refusal"), "content")


def _parts_problem(parts: list[Any], allowed: tuple[str, ...], where: str) -> str:
    for n, part in enumerate(parts):
        at, kind = f"{{at}}.{where}[{n}]", part.get("type") if isinstance(part, dict) else None
        if kind not in allowed:
            return f"Invalid value: '{kind}'. Supported values are: {allowed}."
        if kind in ("input_text", "output_text") and not isinstance(part.get("text"), str):
            return f"Missing required parameter: '{at}.text'."
        if kind == "input_image" and (problem := image_problem(part.get("image_url"), at)):
            return problem
    return ""


# --- Answers --------------------------------------------------------------------------------------


class _EventWriter:
    """Writes numbered events, and collects the finished items. Each item is added, grows and is
    done.
    """

    def __init__(self) -> None:
        self.events: list[bytes] = []
        self.output: list[dict[str, Any]] = []

    def say(self, kind: str, **fields: Any) -> None:
        """Add one event."""
        data = encode({"type": kind, "sequence_number": len(self.events), **fields})
        self.events.append(b"event: %b\ndata: %b\n\n" % (kind.encode(), data))

    def reasoning(self, text: str, id_: str, signature: dict[str, str]) -> None:
        """Add a reasoning item."""
        item: dict[str, Any] = {"id": id_, "type": "reasoning", "summary": []}
        kind, where = "response.reasoning_summary", self._begin(item, "summary_index")
        self.say(f"{kind}_part.added", **where, part={"type": "summary_text", "text": ""})
        self._grow(f"{kind}_text", id_, split_text(text), summary_index=0)
        self.say(f"{kind}_text.done", **where, text=text)
        part = {"type": "summary_text", "text": text}
        self.say(f"{kind}_part.done", **where, part=part)
        self._done({**item, "summary": [part], **signature})

    def text(self, texts: list[str], id_: str) -> None:
        """Add a message item."""
        item: dict[str, Any] = {
            "id": id_,
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
        }
        item["content"] = []
        where = self._begin(item, "content_index")
        part, text = {"type": "output_text", "annotations": [], "text": ""}, "".join(texts)
        self.say("response.content_part.added", **where, part=part)
        self._grow("response.output_text", id_, texts, content_index=0)
        self.say("response.output_text.done", **where, text=text)
        self.say("response.content_part.done", **where, part={**part, "text": text})
        self._done({**item, "status": "completed", "content": [{**part, "text": text}]})

    def search(self, query: str, url: str, id_: str) -> None:
        """Add a search of the web."""
        item: dict[str, Any] = {"id": id_, "type": "web_search_call", "status": "in_progress"}
        where = {"output_index": len(self.output), "item_id": id_}
        self.say("response.output_item.added", output_index=len(self.output), item=item)
        for step in ("in_progress", "searching", "completed"):
            self.say(f"response.web_search_call.{step}", **where)
        sources = [{"type": "url", "url": url}]
        action = {"type": "search", "query": query, "queries": [query], "sources": sources}
        self._done({**item, "status": "completed", "action": action})

    def call(self, item: dict[str, Any], texts: list[str]) -> None:
        """Add a function call."""
        at = len(self.output)
        kind = "response.function_call_arguments"
        whole = "".join(texts)
        self.say("response.output_item.added", output_index=at, item={**item, "arguments": ""})
        self._grow(kind, item["id"], texts)
        self.say(f"{kind}.done", item_id=item["id"], output_index=at, arguments=whole)
        self._done({**item, "status": "completed", "arguments": whole})

    def _begin(self, item: dict[str, Any], index: str) -> dict[str, Any]:
        self.say("response.output_item.added", output_index=len(self.output), item=item)
        return {"item_id": item["id"], "output_index": len(self.output), index: 0}

    def _grow(self, kind: str, item_id: str, texts: list[str], **where: int) -> None:
        """Add the deltas of one item, encoded fast since there may be many."""
        fields = {
            "type": f"{kind}.delta",
            "item_id": item_id,
            "output_index": len(self.output),
            **where,
        }
        lead = b"event: %b.delta\ndata: %b" % (kind.encode(), encode(fields)[:-1])
        first = len(self.events)
        self.events += [
            b'%b,"sequence_number":%d,"delta":%b}\n\n' % (lead, n, encode(text))
            for n, text in enumerate(texts, first)
        ]

    def _done(self, item: dict[str, Any]) -> None:
        self.say("response.output_item.done", output_index=len(self.output), item=item)
        self.output.append(item)


def _usage(answer: ReplyContext) -> dict[str, Any]:
    return {
        "input_tokens": answer.cached.total,
        "input_tokens_details": {"cached_tokens": answer.cached.read},
        "output_tokens": answer.output,
        "output_tokens_details": {"reasoning_tokens": answer.reasoning},
        "total_tokens": answer.cached.total + answer.output,
    }

"""The judge of `POST /v1/messages`. Each refusal has the status and the words of the real provider, as far as known."""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.testing.loopback.anthropic_blocks import WIRE, block_of, read_block
from longrein.testing.loopback.images import Picture
from longrein.testing.loopback.judging import (
    Asking,
    Block,
    Case,
    Overflow,
    Refused,
    check_window,
    convert,
    duplicates,
)
from longrein.testing.loopback.limits import Limits, Rules
from longrein.testing.loopback.overflows import overflow
from longrein.testing.loopback.seal import sealed

MARKS_MAX = 4
MANY_IMAGES = 20
"""With more pictures than this the side limit is `MANY_SIDE_MAX`."""
MANY_SIDE_MAX = 2_000
IMAGES_MAX = 100
_FIELDS = frozenset(
    (
        *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "stop_sequences", "thinking"),
        *("temperature", "top_p", "top_k", "metadata", "service_tier", "output_config", "container", "mcp_servers"),
        *("cache_control", "context_management", "speed", "inference_geo"),
    )
)
_SIDES = {
    "user": ("text", "image", "document", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
}


class _Message(msgspec.Struct):
    role: str
    content: msgspec.Raw = msgspec.Raw(b"null")


def ask(case: Case) -> Asking:
    """The request of `case`. Raises `Refused`."""
    fields, limits, rules, memo = case.fields, case.limits, case.rules, case.memo
    asking = Asking(WIRE)
    if not rules.lenient:
        _check_head(fields, limits)
    asking.model = msgspec.json.decode(fields.get("model", b'""'))
    asking.output_max = msgspec.json.decode(fields.get("max_tokens", b"0"))
    for side in ("tools", "system"):
        for raw in _listed(fields.get(side)):
            _add(asking, side, block_of(raw, memo))
    talk = convert(fields.get("messages", msgspec.Raw(b"[]")), list[_Message], "messages")
    turns = [(message.role, [block_of(raw, memo) for raw in _listed(message.content)]) for message in talk]
    for role, blocks in turns:
        for block in blocks:
            _add(asking, role, block)
    asking.replies = sum(role == "assistant" for role, _ in turns)
    last = max((n for n, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    asking.tail = [block.raw for _, blocks in turns[last + 1 :] for block in blocks]
    asking.first = b"[%b]" % b",".join(block.raw for block in turns[0][1]) if turns else b""
    if not rules.lenient:
        _check_talk(talk, turns, asking, rules)
        if b'"enabled"' in bytes(fields.get("thinking", b"")):
            _check_thought(turns)
        check_window(asking, limits, rules)
    return asking


def refusal(refused: Refused) -> tuple[int, bytes]:
    """Status and body."""
    if isinstance(refused, Overflow):
        return overflow(WIRE, refused.used, refused.limit)
    error = {"type": refused.kind or KINDS.get(refused.status, "invalid_request_error"), "message": refused.message}
    return refused.status, msgspec.json.encode({"type": "error", "error": error, "request_id": "req_loopback"})


KINDS = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
"""Status -> error word."""


def _listed(raw: msgspec.Raw | None) -> Sequence[bytes]:
    """The blocks of a `system`, `tools` or `content`; a bare string is one text block."""
    if raw is None or raw == b"null":
        return ()
    data = bytes(raw)
    if data.startswith(b"["):
        return [bytes(inner) for inner in msgspec.json.decode(data, type=list[msgspec.Raw])]
    return [b'{"type":"text","text":%b}' % data]


def _add(asking: Asking, side: str, block: Block) -> None:
    if block.mark_s:
        asking.marks.append((len(asking.blocks), block.mark_s))
    asking.add(side, block.raw, block.tokens)


# --- the whole ---------------------------------------------------------------------------------------------------


def _check_head(fields: dict[str, msgspec.Raw], limits: Limits) -> None:
    for name in ("model", "max_tokens", "messages"):
        if name not in fields:
            raise Refused(f"{name}: Field required")
    for name in fields:
        if name not in _FIELDS:
            raise Refused(f"{name}: Extra inputs are not permitted")
    convert(fields["model"], str, "model")
    limit = convert(fields["max_tokens"], int, "max_tokens")
    most = limits.output_tokens_max
    if limit < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    if most and limit > most:
        raise Refused(f"max_tokens: {limit} > {most}, which is the maximum allowed number of output tokens")
    _check_thinking(fields, limit)
    for n, raw in enumerate(_listed(fields.get("system"))):
        if problem := read_block(raw).problem:
            raise Refused(problem.replace("messages: ", "system: ").replace("{at}", f"system.{n}"))
    _check_tools([read_block(raw) for raw in _listed(fields.get("tools"))])


def _check_thinking(fields: dict[str, msgspec.Raw], limit: int) -> None:
    thinking = convert(fields.get("thinking", msgspec.Raw(b"{}")), dict[str, Any], "thinking")
    if thinking.get("type") == "enabled":
        budget = thinking.get("budget_tokens") or 0
        if budget < 1_024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= limit:
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`")


def _check_tools(tools: list[Block]) -> None:
    for n, tool in enumerate(tools):
        if tool.problem:
            raise Refused(tool.problem.replace("{at}", f"tools.{n}"))
    if duplicates([tool.name for tool in tools]):
        raise Refused("tools: Tool names must be unique.")


Turns = list[tuple[str, list[Block]]]


def _check_talk(talk: list[_Message], turns: Turns, asking: Asking, rules: Rules) -> None:
    if not turns:
        raise Refused("messages: at least one message is required")
    for at, (role, blocks) in enumerate(turns):
        _check_role(at, role, turns, rules)
        if not blocks:
            raise Refused(
                f"messages.{at}: all messages must have non-empty content "
                "except for the optional final assistant message"
            )
        for n, block in enumerate(blocks):
            _check_block(f"messages.{at}.content.{n}", role, block, asking.model)
    _check_pairs(turns)
    _check_end(talk[-1], turns, rules)
    if len(asking.marks) > MARKS_MAX:
        raise Refused(f"A maximum of {MARKS_MAX} blocks with cache_control may be provided. Found {len(asking.marks)}.")
    _check_pictures(turns)


def _check_role(at: int, role: str, turns: Turns, rules: Rules) -> None:
    if role not in _SIDES:
        raise Refused(
            f'messages: Unexpected role "{role}". The Messages API accepts a top-level `system` parameter, '
            'not "system" as an input message role.'
            if role == "system"
            else f"messages.{at}.role: Input should be 'user' or 'assistant'"
        )
    if at == 0 and role != "user" and rules.user_first:
        raise Refused('messages: first message must use the "user" role')
    if at and rules.alternation and role == turns[at - 1][0]:
        raise Refused(
            f'messages: roles must alternate between "user" and "assistant", but found multiple "{role}" roles in a row'
        )


def _check_block(at: str, role: str, block: Block, model: str) -> None:
    if block.problem:
        raise Refused(block.problem.replace("{at}", at))
    if block.kind not in _SIDES[role]:
        raise Refused(
            f"{at}: `{block.kind}` blocks can only be in `{'assistant' if role == 'user' else 'user'}` messages"
        )
    if block.kind in ("thinking", "redacted_thinking") and not sealed(block.signature or "", WIRE, model, block.text):
        raise Refused(f"{at}: Invalid `{'signature' if block.text else 'data'}` in `{block.kind}` block")


def _check_pairs(turns: Turns) -> None:
    """Each call has its result in the next message, before anything else; no other results; ids are unique."""
    seen: dict[str, None] = {}
    waiting: list[str] = []
    for at, (_, blocks) in enumerate(turns):
        heads = 0
        while heads < len(blocks) and blocks[heads].kind == "tool_result":
            heads += 1
        answered = [block.id for block in blocks if block.kind == "tool_result"]
        for n, block in enumerate(blocks):
            if block.kind == "tool_result" and block.id not in waiting:
                raise Refused(
                    f"messages.{at}.content.{n}: unexpected `tool_use_id` found in `tool_result` blocks: {block.id}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        if again := duplicates(answered):
            raise Refused(
                f"messages.{at}.content.{_last(blocks, again[0])}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {again[0]}"
            )
        _check_missing(at - 1, waiting, [block.id for block in blocks[:heads]])
        waiting = [block.id for block in blocks if block.kind == "tool_use"]
        for n, block in enumerate(blocks):
            if block.kind == "tool_use" and block.id in seen:
                raise Refused(f"messages.{at}.content.{n}: `tool_use` ids must be unique")
            if block.kind == "tool_use":
                seen[block.id] = None
    _check_missing(len(turns) - 1, waiting, [])


def _last(blocks: list[Block], id_: str) -> int:
    return max(n for n, block in enumerate(blocks) if block.id == id_)


def _check_missing(at: int, waiting: list[str], answered: list[str]) -> None:
    missing = [id_ for id_ in waiting if id_ not in answered]
    if missing:
        raise Refused(
            f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
            f"{', '.join(missing)}. "
            "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
        )


def _check_end(last: _Message, turns: Turns, rules: Rules) -> None:
    if last.role != "assistant":
        return
    if not rules.accepts_prefill:
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user message."
        )
    final = turns[-1][1][-1]
    if (
        final.kind == "text"
        and str(msgspec.json.decode(final.raw)["text"]).rstrip() != msgspec.json.decode(final.raw)["text"]
    ):
        raise Refused("messages: final assistant content cannot end with trailing whitespace")


def _check_thought(turns: Turns) -> None:
    """With a thinking budget, the step that waits for results begins with what was thought."""
    last = max((n for n, (role, _) in enumerate(turns) if role == "assistant"), default=-1)
    if last < 0 or turns[-1][1][0].kind != "tool_result":
        return
    found = turns[last][1][0].kind
    if found not in ("thinking", "redacted_thinking"):
        raise Refused(
            f"messages.{last}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{found}`. When "
            "`thinking` is enabled, a final `assistant` message must start with a thinking block "
            "(preceeding the lastmost "
            "set of `tool_use` and `tool_result` blocks). We recommend you include thinking blocks "
            "from previous turns. "
            "To avoid this requirement, disable `thinking`."
        )


def _check_pictures(turns: Turns) -> None:
    pictures: list[Picture] = [picture for _, blocks in turns for block in blocks for picture in block.pictures]
    if len(pictures) > IMAGES_MAX:
        raise Refused(f"messages: too many images and documents: {len(pictures)} + 0 > {IMAGES_MAX}")
    if len(pictures) <= MANY_IMAGES:
        return
    for at, (_, blocks) in enumerate(turns):
        for n, block in enumerate(blocks):
            if any(max(picture.width, picture.height) > MANY_SIDE_MAX for picture in block.pictures):
                raise Refused(
                    f"messages.{at}.content.{n}.image.source.base64.data: At least one of the image dimensions exceed "
                    f"max allowed size for many-image requests: {MANY_SIDE_MAX} pixels"
                )

"""Transcripts of Claude Code: `~/.claude/projects/<folder>/<session>.jsonl`.

Each line has a `uuid` and the `parentUuid` of the line before it, so a file is a tree: a rewind
begins a new branch. The branch of the last line is the conversation. A reply is spread over several
lines with one `message.id`, and results of parallel calls hang beside the branch, so both are
collected by id.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from longrein.extensions.transcripts.log_builder import (
    ForeignCall,
    LogBuilder,
    ReplyPart,
    Transcript,
    clean,
)
from longrein_context.events import AnyPart, Text, Thinking

AGENT = "Claude Code"
Line = Mapping[str, Any]

_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_COMMAND = re.compile(r"<command-name>(?P<name>[^<]*)</command-name>")
_COMMAND_ARGUMENTS = re.compile(r"<command-args>(?P<arguments>.*?)</command-args>", re.DOTALL)
_LOCAL = (
    "<local-command-stdout>",
    "<local-command-stderr>",
    "<local-command-caveat>",
    "Caveat: The messages below",
)
_INTERRUPTED = "[Request interrupted by user"


def is_transcript(lines: Sequence[Line]) -> bool:
    """Return True if the lines are those of a Claude Code transcript."""
    return any(
        line.get("type") in ("user", "assistant") and isinstance(line.get("message"), dict)
        for line in lines
    )


def describe(lines: Sequence[Line]) -> tuple[str, str]:
    """Return the session id and the folder that a transcript names; '' where it names none."""
    session = next(
        (line["sessionId"] for line in lines if isinstance(line.get("sessionId"), str)), ""
    )
    cwd = next((line["cwd"] for line in lines if isinstance(line.get("cwd"), str)), "")
    return session, cwd


def read(lines: Sequence[Line], builder: LogBuilder, found: Transcript) -> None:
    """Add the conversation in `lines` to the log."""
    reply: list[ReplyPart] = []
    message, model = "", ""
    for line in _conversation(lines, found):
        builder_at = line.get("timestamp")
        body = line.get("message")
        if line.get("type") == "assistant" and isinstance(body, dict):
            if reply and (body.get("id") or "") != message:
                builder.reply(reply, model)
                reply = []
            message, model = str(body.get("id") or ""), str(body.get("model") or "")
            builder.at(builder_at)
            reply += _reply_parts(body.get("content"), found)
            continue
        builder.reply(reply, model)
        reply = []
        builder.at(builder_at)
        _read_other(line, body, builder, found)
    builder.reply(reply, model)


def _read_other(line: Line, body: Any, builder: LogBuilder, found: Transcript) -> None:
    """Add a line that is no reply: a message, results, a summary, a message that the user had
    queued.
    """
    attachment = line.get("attachment")
    if isinstance(attachment, dict):
        prompt = attachment.get("prompt") if attachment.get("type") == "queued_command" else None
        if isinstance(prompt, str) and attachment.get("commandMode") != "task-notification":
            builder.user((builder.text(prompt),))
        else:
            found.left_out["harness note"] += 1
    elif line.get("isCompactSummary") and isinstance(body, dict):
        builder.summary("\n".join(_texts(body.get("content"))))
    elif isinstance(body, dict):
        _read_user(body.get("content"), builder, found)


# --- The branch -----------------------------------------------------------------------------------


def _conversation(lines: Sequence[Line], found: Transcript) -> Iterator[Line]:
    """Iterate the lines of the conversation in the order of the file."""
    main = [line for line in lines if not line.get("isSidechain")]
    if not any(_is_spoken(line) for line in main):
        main = list(lines)  # the file of one subagent
    elif agents := {str(line.get("agentId") or "") for line in lines if line.get("isSidechain")}:
        found.left_out["subagent conversation"] += len(agents)
    main = [line for line in main if _is_spoken(line)]
    branch = _branch(lines, main)
    replies = {_message_id(line) for line in main if id(line) in branch} - {""}
    spoken = (line for line in main if _message_id(line) in replies or id(line) in branch)
    calls = {str(block.get("id")) for line in spoken for block in _blocks(line, "tool_use")}
    for line in main:
        results = (str(block.get("tool_use_id")) for block in _blocks(line, "tool_result"))
        beside = _message_id(line) in replies or not calls.isdisjoint(results)
        if id(line) not in branch and not beside:
            found.left_out["abandoned line"] += 1
        elif line.get("isApiErrorMessage"):
            found.left_out["provider error"] += 1
        else:
            yield line


def _is_spoken(line: Line) -> bool:
    return line.get("type") in ("user", "assistant", "attachment")


def _branch(lines: Sequence[Line], main: Sequence[Line]) -> set[int]:
    """Return the `id()` of the lines from the last one of `main` back to the first.

    Where the line before is missing, such as that before a compaction, the one above it in the file
    counts.
    """
    by_uuid = {str(line["uuid"]): line for line in lines if isinstance(line.get("uuid"), str)}
    spoken = {id(line) for line in main}
    above = dict[int, Line | None]()
    last = None
    for line in lines:
        above[id(line)] = last
        last = line if id(line) in spoken else last
    found: set[int] = set()
    step: Line | None = next(
        (one for one in reversed(main) if one.get("type") != "attachment"), None
    )
    while step is not None and id(step) not in found:
        found.add(id(step))
        parent = step.get("parentUuid") or step.get("logicalParentUuid")
        if isinstance(parent, str):
            step = by_uuid.get(parent) or above[id(step)]
        else:
            step = (
                None
                if "parentUuid" in step and isinstance(step.get("uuid"), str)
                else above[id(step)]
            )
    return found


def _message_id(line: Line) -> str:
    body = line.get("message")
    return (
        str(body.get("id") or "")
        if line.get("type") == "assistant" and isinstance(body, dict)
        else ""
    )


def _blocks(line: Line, kind: str) -> Iterator[Line]:
    body = line.get("message")
    content = body.get("content") if isinstance(body, dict) else None
    if isinstance(content, list):
        yield from (
            block for block in content if isinstance(block, dict) and block.get("type") == kind
        )


# --- Content --------------------------------------------------------------------------------------


def _content_blocks(content: Any) -> list[Any]:
    """Return the blocks of a message, whose content may be one text."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _reply_parts(content: Any, found: Transcript) -> Iterator[ReplyPart]:
    for block in _content_blocks(content):
        match block:
            case {"type": "text", "text": str(text)}:
                yield Text(clean(text))
            case {"type": "thinking", "thinking": str(text)}:
                yield Thinking(clean(text))
            case {"type": "tool_use", "name": str(name)}:
                yield ForeignCall(str(block.get("id") or ""), name, block.get("input"))
            case {"type": str(kind)}:
                found.left_out[f"{clean(kind)[:40]} block"] += 1
            case _:
                found.left_out["unreadable block"] += 1


def _read_user(content: Any, builder: LogBuilder, found: Transcript) -> None:
    """Add the results in a message first, then its words."""
    parts: list[AnyPart] = []
    interrupted = False
    for block in _content_blocks(content):
        match block:
            case {"type": "tool_result", "tool_use_id": str(call)}:
                status = "failed" if block.get("is_error") else "ok"
                if not builder.result(call, _result_parts(block.get("content"), builder), status):
                    found.left_out["stray result"] += 1
            case {"type": "text", "text": str(text)} if text.startswith(_INTERRUPTED):
                interrupted = True
            case {"type": "text", "text": str(text)}:
                parts += [builder.text(told) for told in _spoken(text, found)]
            case {"type": "image", "source": {"data": data, "media_type": media}}:
                parts.append(builder.image(media, data))
            case {"type": str(kind)}:
                found.left_out[f"{clean(kind)[:40]} block"] += 1
            case _:
                found.left_out["unreadable block"] += 1
    builder.user(parts)
    if interrupted:
        builder.end_turn("interrupted")


def _spoken(text: str, found: Transcript) -> Iterator[str]:
    """Return the user's words in a text, without what the harness has added."""
    if text.startswith(_LOCAL):
        found.left_out["harness note"] += 1
        return
    if command := _COMMAND.search(text):
        arguments = _COMMAND_ARGUMENTS.search(text)
        yield f"{command['name']} {arguments['arguments'] if arguments else ''}".strip()
        return
    words, removed = _REMINDER.subn("", text)
    if removed:
        found.left_out["harness note"] += removed
    if words.strip():
        yield words


def _result_parts(content: Any, builder: LogBuilder) -> list[AnyPart]:
    if isinstance(content, str):
        return [builder.text(content)] if content else []
    parts: list[AnyPart] = []
    for block in content if isinstance(content, list) else ():
        match block:
            case {"type": "text", "text": str(text)} if text:
                parts.append(builder.text(text))
            case {"type": "image", "source": {"data": data, "media_type": media}}:
                parts.append(builder.image(media, data))
    return parts


def _texts(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    blocks = content if isinstance(content, list) else ()
    return [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]

"""Rollouts of Codex: `~/.codex/sessions/YYYY/MM/DD/rollout-<time>-<id>.jsonl`.

Each line is `{timestamp, type, payload}`. `response_item` lines are the conversation as the model
saw it, `event_msg` lines what the screen showed; of these only interrupts and rewinds count. Older
files hold items without an envelope.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.extensions.transcripts.log_builder import (
    ForeignCall,
    LogBuilder,
    ReplyPart,
    Transcript,
    clean,
)
from longrein_context.events import AnyPart, Text, Thinking, decode_json

AGENT = "Codex"
Line = Mapping[str, Any]

ITEMS = frozenset(
    {
        *("message", "reasoning", "function_call", "function_call_output", "custom_tool_call"),
        *("custom_tool_call_output", "local_shell_call", "web_search_call"),
    }
)
ENVELOPES = frozenset({"session_meta", "response_item", "event_msg", "turn_context", "compacted"})
INJECTED = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions instructions>",
    "<collaboration_mode>",
    "<turn_aborted>",
    "<skills_instructions>",
    "# AGENTS.md instructions",
)
"""First words of messages that Codex itself writes under the name of the user."""
_FAILED = re.compile(r"(?:\A|\n)(?:Exit code: |Process exited with code )(?!0\b)-?\d")
_DATA_URL = re.compile(r"data:(?P<media>[\w/+.-]+);base64,(?P<data>.*)", re.DOTALL)


def is_transcript(lines: Sequence[Line]) -> bool:
    """Return True if the lines are those of a Codex rollout."""
    return any(_is_envelope(line) or _kind(line) in ITEMS for line in lines)


def describe(lines: Sequence[Line]) -> tuple[str, str]:
    """Return the session id and the folder that a rollout names; '' where it names none."""
    for line in lines:
        meta = line["payload"] if _is_envelope(line) and line["type"] == "session_meta" else line
        if isinstance(meta.get("id"), str) and _kind(meta) not in ITEMS:
            cwd = meta.get("cwd")
            return meta["id"], cwd if isinstance(cwd, str) else ""
    return "", ""


def read(lines: Sequence[Line], builder: LogBuilder, found: Transcript) -> None:
    """Add the conversation in `lines` to the log."""
    reply: list[ReplyPart] = []
    model = ""
    for line in lines:
        kind, payload = (
            (line["type"], line["payload"]) if _is_envelope(line) else ("response_item", line)
        )
        if kind == "turn_context" and isinstance(payload.get("model"), str):
            model = payload["model"]
        elif kind == "response_item" and (parts := list(_reply_parts(payload, found))):
            builder.at(line.get("timestamp"))
            reply += parts
        elif kind in ("response_item", "compacted", "event_msg") and not _is_screen_only(
            kind, payload
        ):
            builder.reply(reply, model)
            reply = []
            builder.at(line.get("timestamp"))
            _read_other(kind, payload, builder, found)
    builder.reply(reply, model)


def _is_envelope(line: Line) -> bool:
    return _kind(line) in ENVELOPES and isinstance(line.get("payload"), dict)


def _kind(line: Line) -> str:
    kind = line.get("type")
    return kind if isinstance(kind, str) else ""


def _is_screen_only(kind: str, payload: Line) -> bool:
    return kind == "event_msg" and payload.get("type") not in ("turn_aborted", "thread_rolled_back")


def _reply_parts(item: Line, found: Transcript) -> Iterator[ReplyPart]:
    """Return the parts that an item adds to the model's reply; nothing for other items."""
    match item:
        case {"type": "message", "role": "assistant", "content": list(content)}:
            yield from (Text(clean(text)) for text in _texts(content))
        case {"type": "reasoning"}:
            texts = [*_texts(item.get("summary")), *_texts(item.get("content"))]
            if texts:
                yield Thinking(clean("\n\n".join(texts)))
            else:
                found.left_out["encrypted thought"] += 1
        case {"type": "function_call", "name": str(name)}:
            yield _known_call(str(item.get("call_id") or ""), name, item.get("arguments"))
        case {"type": "custom_tool_call", "name": str(name)}:
            yield ForeignCall(str(item.get("call_id") or ""), name, {"input": item.get("input")})
        case {"type": "local_shell_call", "action": dict(action)}:
            call = str(item.get("call_id") or item.get("id") or "")
            yield ForeignCall(call, "Bash", {"command": _command(action.get("command"))})


def _known_call(call: str, name: str, given: Any) -> ForeignCall:
    """Return the call under the name and with the arguments that longrein's own tool has, where
    there is one.
    """
    try:
        arguments = decode_json(given) if isinstance(given, str) else given
    except msgspec.DecodeError:
        return ForeignCall(call, name, given)
    match arguments:
        case {"command": command} if name in ("shell", "shell_command", "container.exec"):
            return ForeignCall(call, "Bash", {"command": _command(command)})
        case {"cmd": command} if name == "exec_command":
            return ForeignCall(call, "Bash", {"command": _command(command)})
        case {"plan": list(plan)} if name == "update_plan":
            todos = [
                {"content": str(step.get("step")), "status": str(step.get("status"))}
                for step in plan
                if isinstance(step, dict)
            ]
            return ForeignCall(call, "TodoWrite", {"todos": todos})
        case _:
            return ForeignCall(call, name, given)


def _command(command: Any) -> str:
    """Return a command as one line of shell; of `bash -lc LINE` the line."""
    match command:
        case [str(shell), "-lc" | "-c", str(line)] if shell.rpartition("/")[2] in (
            "bash",
            "sh",
            "zsh",
        ):
            return line
        case list():
            import shlex

            return shlex.join(str(word) for word in command)
        case _:
            return str(command)


def _read_other(kind: str, payload: Line, builder: LogBuilder, found: Transcript) -> None:
    """Add an item that is no part of a reply."""
    match payload:
        case {"message": message} if kind == "compacted":
            history = payload.get("replacement_history")
            builder.summary(
                message if isinstance(message, str) and message.strip() else _last_text(history)
            )
        case {"type": "turn_aborted"}:
            builder.end_turn("interrupted")
        case {"type": "thread_rolled_back", "num_turns": int(turns)}:
            builder.rewind(turns)
        case {"type": "message", "role": "user", "content": list(content)}:
            builder.user(_user_parts(content, builder, found))
        case {"type": "message", "role": "developer" | "system"}:
            found.left_out["harness note"] += 1
        case {"type": "function_call_output" | "custom_tool_call_output", "call_id": str(call)}:
            parts, status = _output(payload.get("output"), builder)
            if not builder.result(call, parts, status):
                found.left_out["stray result"] += 1
        case {"type": str(other)}:
            found.left_out[f"{clean(other)[:40]} item"] += 1


def _user_parts(content: list[Any], builder: LogBuilder, found: Transcript) -> list[AnyPart]:
    parts: list[AnyPart] = []
    for block in content:
        match block:
            case {"text": str(text)} if text.lstrip().startswith(INJECTED):
                found.left_out["harness note"] += 1
            case {"text": str(text)}:
                parts.append(builder.text(text))
            case {"image_url": str(url)}:
                parts.append(_image(url, builder))
    return parts


def _image(url: str, builder: LogBuilder) -> AnyPart:
    match = _DATA_URL.match(url)
    return (
        builder.image(match["media"], match["data"])
        if match
        else Text("[an image that is not in the transcript]")
    )


def _output(output: Any, builder: LogBuilder) -> tuple[list[AnyPart], str]:
    """Return the parts of a result, and its status."""
    if isinstance(output, dict):  # {content, success}
        parts, status = _output(output.get("content"), builder)
        return parts, "failed" if output.get("success") is False else status
    if isinstance(output, list):
        parts = [
            builder.text(block["text"])
            if isinstance(block.get("text"), str)
            else _image(str(block["image_url"]), builder)
            for block in output
            if isinstance(block, dict)
            and (isinstance(block.get("text"), str) or "image_url" in block)
        ]
        return parts, "ok"
    text = output if isinstance(output, str) else ""
    try:
        wrapped = decode_json(text) if text.startswith("{") else None
    except msgspec.DecodeError:
        wrapped = None
    match wrapped:
        case {"output": str(inner), "metadata": dict(metadata)}:
            failed = metadata.get("exit_code") not in (0, None)
            return ([builder.text(inner)] if inner else []), "failed" if failed else "ok"
    return ([builder.text(text)] if text else []), "failed" if _FAILED.search(text[:400]) else "ok"


def _texts(content: Any) -> list[str]:
    blocks = content if isinstance(content, list) else ()
    return [
        block["text"]
        for block in blocks
        if isinstance(block, dict) and isinstance(block.get("text"), str)
    ]


def _last_text(history: Any) -> str:
    """Return the text of the last message of a replacement history."""
    items = history if isinstance(history, list) else ()
    texts = [
        text for item in items if isinstance(item, dict) for text in _texts(item.get("content"))
    ]
    return texts[-1] if texts else ""

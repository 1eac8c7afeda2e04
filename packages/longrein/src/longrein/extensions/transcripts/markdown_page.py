"""Markdown: a session as a page to read, for issues, notes and reviews.

Foreign text stands in fences that are longer than any fence inside it, so that a result cannot end
its own fence. Words of the user and of the model are Markdown already; they stand in a quotation,
which ends what they leave open, or in a fence when a viewer would find HTML or images in them.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec

from longrein.extensions.transcripts.export_steps import (
    ExportedConversation,
    ExportedMessage,
    ExportedReply,
    Note,
    shown_text,
)
from longrein_context.events import Text, Thinking, ToolCall, unwrapped
from longrein_context.events.escape import escape

_FENCES = re.compile(r"`{3,}")
_INLINE = re.compile(r"([\\`*_{}\[\]<>#|!~&])")


def as_markdown(conversation: ExportedConversation) -> bytes:
    """Return the page as UTF-8."""
    return ("\n\n".join(_page(conversation, 1)) + "\n").encode("utf-8", "replace")


def _page(told: ExportedConversation, level: int) -> Iterator[str]:
    name = f"Subagent {told.label or told.session}" if level > 1 else told.title or "Session"
    yield f"{'#' * min(level, 6)} {plain(name)}"
    model = f"{told.prefix.provider}/{told.prefix.model}" if told.prefix else "unknown model"
    usage = told.usage
    yield "\n".join(
        (
            f"- Session: `{told.session}`",
            f"- Folder: {plain(told.cwd)}",
            f"- Model: {plain(model)}",
            (
                f"- Tokens: {usage.context_tokens:,} in, {usage.output_tokens:,} out; cost "
                f"{told.cost_usd:.4f} USD"
            ),
        )
    )
    mark = "#" * min(level + 1, 6)
    for step in told.steps:
        if step.seq <= told.copied:
            continue
        match step:
            case ExportedMessage():
                yield f"{mark} User · {_time(step.at)}"
                yield quoted(shown_text(step.parts))
            case ExportedReply():
                yield f"{mark} Assistant · {_time(step.at)}"
                yield from _reply(step)
            case Note():
                yield f"{mark} {step.kind.capitalize()} · {_time(step.at)}"
                yield fenced(step.text)
    for subagent in told.subagents:
        yield from _page(subagent, level + 1)


def _reply(reply: ExportedReply) -> Iterator[str]:
    for part in reply.event.parts:
        match part:
            case Text(text):
                yield quoted(text)
            case Thinking(text) if text:
                yield f"Thinking:\n\n{fenced(text)}"
            case ToolCall():
                call = unwrapped(part)
                yield (
                    f"**Call of {plain(call.name)}** "
                    f"`{call.id}`\n\n{fenced(arguments_text(call), 'json')}"
                )
                result = reply.results.get(part.id)
                if result is not None:
                    yield f"Result ({plain(result.status)}):\n\n{fenced(shown_text(result.parts))}"


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as indented JSON, or as received when they are no object."""
    if call.arguments is None:
        return call.received
    return msgspec.json.format(msgspec.json.encode(call.arguments), indent=2).decode(
        "utf-8", "replace"
    )


def fenced(text: str, language: str = "") -> str:
    """Put text into a fence that no line of it can end."""
    text = escape(text)
    longest = max((len(found[0]) for found in _FENCES.finditer(text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip(chr(10))}\n{fence}"


def quoted(text: str) -> str:
    """Quote Markdown, so that its headings and open fences end with it. Text with HTML or images
    is fenced instead.
    """
    text = escape(text)
    if _has_html(text):
        return fenced(text, "markdown")
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _has_html(text: str) -> bool:
    """Return True if a viewer of Markdown would find elements or images in the text."""
    if "<" not in text and "![" not in text:
        return False
    from markdown_it import MarkdownIt

    tokens = MarkdownIt("commonmark").parse(text)
    kinds = {one.type for token in tokens for one in (token, *(token.children or ()))}
    return not kinds.isdisjoint(("html_block", "html_inline", "image"))


def plain(text: str) -> str:
    """Escape a name, so that it stays one line without a meaning in Markdown."""
    return _INLINE.sub(r"\\\1", escape(" ".join(text.split())))


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")

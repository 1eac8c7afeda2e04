"""HTML: a session as one self-contained file, without scripts and without anything that is fetched.

All text is escaped. Links and Markdown of the model stay text, so nothing that a result, a file
name or a reply holds can become an element. The page forbids scripts and the network by a policy of
its own, should that ever fail.
"""

import base64
import html
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from longrein.extensions.transcripts.export_steps import (
    ExportedConversation,
    ExportedMessage,
    ExportedReply,
    Note,
    StoredConversation,
    shown_text,
)
from longrein.extensions.transcripts.markdown_page import arguments_text
from longrein_context.events import (
    AnyPart,
    Image,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    text_of,
    unwrapped,
)
from longrein_context.events.escape import escape

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""Media types that are embedded; others, such as SVG, could hold scripts and are only named."""
ReadBlob = Callable[[str], bytes]
"""Returns the bytes of a blob. Raises KeyError."""
OPEN_LINES_MAX = 12
"""A longer result is folded."""
POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"

_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.4 ui-monospace, monospace; margin: .3rem 0 }
section { border-left: 3px solid #8884; margin: 1rem 0; padding: .1rem 0 .1rem .8rem }
.user { border-color: #36c } .assistant { border-color: #393 } .note { border-color: #a80; opacity: .85 }
.failed { border-color: #c33 } .subagent { margin-left: 1rem }
h1 { font-size: 1.4rem } h2 { font-size: .85rem; margin: 0; opacity: .7; font-weight: 600 }
summary { cursor: pointer } details { margin: .4rem 0 } img { max-width: 100% } dt { font-weight: 600 }
.copied { opacity: .55 }
"""  # noqa: E501


def html_pieces(conversation: ExportedConversation | StoredConversation) -> Iterator[bytes]:
    """Iterate the page as UTF-8, a step at a time."""
    for piece in _page(conversation):
        yield f"{piece}\n".encode("utf-8", "replace")


def _page(told: ExportedConversation | StoredConversation) -> Iterator[str]:
    title = _plain(told.title or "Session")
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_plain(POLICY)}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{title}</title><style>{_STYLE}</style></head><body>"
    yield from _session(told)
    yield "</body></html>"


def _session(told: ExportedConversation | StoredConversation) -> Iterator[str]:
    model = f"{told.prefix.provider}/{told.prefix.model}" if told.prefix else "unknown"
    usage = told.usage
    name = f"Subagent {told.label or told.session}" if told.label else told.title or "Session"
    facts = {
        "Session": told.session,
        "Folder": told.cwd,
        "Model": model,
        "Tokens": f"{usage.context_tokens:,} in, {usage.output_tokens:,} out",
        "Cost": f"{told.cost_usd:.4f} USD",
    }
    yield f"<h1>{_plain(name)}</h1>"
    yield (
        "<dl>"
        + "".join(f"<dt>{key}</dt><dd>{_plain(value)}</dd>" for key, value in facts.items())
        + "</dl>"
    )
    if told.prefix is not None:
        yield _folded("System prompt", "\n\n".join((told.prefix.system, *told.prefix.context)))
    for step in told.steps:
        shared = " copied" if step.seq <= told.copied else ""
        match step:
            case ExportedMessage():
                yield _section(
                    f"user{shared}",
                    "User",
                    step.seq,
                    step.at,
                    [_part(part, told.read_blob) for part in step.parts],
                )
            case ExportedReply():
                kind = "Assistant" if step.purpose == "turn" else "Summary request"
                yield _section(
                    f"assistant{shared}",
                    kind,
                    step.seq,
                    step.at,
                    list(_reply(step, told.read_blob)),
                )
            case Note():
                yield _section(
                    f"note{shared}", step.kind.capitalize(), step.seq, step.at, [_pre(step.text)]
                )
    for subagent in told.subagents:
        yield '<section class="subagent">'
        yield from _session(subagent)
        yield "</section>"


def _section(style: str, who: str, seq: int, at: int, inner: list[str]) -> str:
    when = datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return (
        f'<section class="{style}"><h2>{_plain(who)} · {when} · '
        f"r{seq}</h2>{''.join(inner)}</section>"
    )


def _reply(reply: ExportedReply, read_blob: ReadBlob) -> Iterator[str]:
    for part in reply.event.parts:
        match part:
            case Thinking(text):
                yield _folded("Thinking", text) if text else ""
            case ToolCall():
                yield _call(part, reply.results.get(part.id), read_blob)
            case _:
                yield _part(part, read_blob)


def _call(call: ToolCall, result: ToolEnded | None, read_blob: ReadBlob) -> str:
    made = unwrapped(call)
    shown = f"<h2>{_plain(made.name)} {_plain(made.id)}</h2>{_pre(arguments_text(made))}"
    if result is None:
        return f'<section class="note">{shown}</section>'
    style = "note" if result.status == "ok" else "note failed"
    text = shown_text(part for part in result.parts if not isinstance(part, Image))
    images = "".join(_part(part, read_blob) for part in result.parts if isinstance(part, Image))
    title = f"Result: {result.status}, {result.elapsed_ms} ms"
    body = (
        _folded(title, text)
        if text.count("\n") > OPEN_LINES_MAX
        else f"<h2>{_plain(title)}</h2>{_pre(text)}"
    )
    return f'<section class="{style}">{shown}{body}{images}</section>'


def _part(part: AnyPart, read_blob: ReadBlob) -> str:
    match part:
        case Text(text):
            return _pre(text)
        case Image() if part.media in IMAGES:
            try:
                data = base64.b64encode(read_blob(part.blob)).decode()
            except KeyError:
                return _pre(shown_text((part,)))
            return f'<img alt="image" src="data:{part.media};base64,{data}">'
        case _:
            return _pre(shown_text((part,)) or text_of((part,)))


def _folded(title: str, text: str) -> str:
    return f"<details><summary>{_plain(title)}</summary>{_pre(text)}</details>"


def _pre(text: str) -> str:
    return f"<pre>{_plain(text)}</pre>"


def _plain(text: str) -> str:
    """Escape text for an element or a quoted attribute; characters that cannot be seen are
    written out.
    """
    return html.escape(escape(text), quote=True)

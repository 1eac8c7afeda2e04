"""What a handle names: in this session's log, or in the log of a subagent that it started."""

import re

import msgspec

from longrein.events import AnyPart, ChildStarted, Document, Entry, Handle, Image, ToolError, parse_handle
from longrein.store import Content, contents_of, title_of
from longrein.tools.media import is_pdf, picture
from longrein.tools.port import Past
from longrein.tools.text import counted

LOOKS = "handles look like r412, r412.2 (its second part) or a398/r412 (in the log of the subagent of r398)"


class Named(msgspec.Struct, frozen=True):
    """What was found under a handle."""

    handle: str
    """As it is written."""
    title: str
    """What it is, in words."""
    at: int
    """When it was written, microseconds UTC."""
    texts: list[Content]
    """What can be paged."""
    media: list[tuple[AnyPart, bytes | None]]
    """What is no text, and its bytes where they do not lie in this session's folder."""
    past: Past
    """Where its blobs are read from."""


def named(past: Past, text: str) -> Named:
    """What the handle `text` names. Raises `ToolError`, with what a handle looks like or the nearest one there is."""
    handle = parse_handle(text)
    if handle is None:
        raise ToolError(f"[bad-handle] {text[:40]!r} is no handle; {LOOKS}.{_meant(past, text)}")
    home = _child(past, handle) if handle.child else past
    entry = home.entry(handle.seq)
    if entry is None:
        raise ToolError(f"[unknown-handle] There is no entry {handle}; {_range(home, handle)}")
    contents = contents_of(entry)
    chosen = _chosen(handle, contents)
    title = title_of(entry) if not handle.part else _part_title(entry, chosen[0])
    parts = [(content, content.part or _picture(home, content)) for content in chosen]
    texts = [content for content, part in parts if part is None]
    media = [(part, _bytes(home, past, part)) for _, part in parts if part is not None]
    return Named(str(handle), title, entry.at, texts, media, home)


def _chosen(handle: Handle, contents: list[Content]) -> list[Content]:
    if not handle.part:
        return [content for content in contents if not content.aside]
    if handle.part > len(contents):
        here = msgspec.structs.replace(handle, part=0)
        raise ToolError(
            f"[unknown-handle] There is no {handle}: {here} has {counted(len(contents), 'part')}, the last all of it "
            f"as stored; Recall {here} for what it holds."
        )
    return [contents[handle.part - 1]]


def _part_title(entry: Entry, content: Content) -> str:
    title = title_of(entry)
    return title if content.title in ("content", title) else f"{title}, {content.title}"


def _child(past: Past, handle: Handle) -> Past:
    """The log of a subagent; in a subagent also of one that its parent has started, such as those that a synthesis
    reads."""
    started = past.entry(handle.child)
    above = None if started is not None and isinstance(started.event, ChildStarted) else past.parent()
    if above is not None:
        past, started = above, above.entry(handle.child)
    if started is None or not isinstance(started.event, ChildStarted):
        known = [f"a{entry.seq}" for _, entry in zip(range(5), past.of_kind("ChildStarted"), strict=False)]
        there = f"subagents were started at {', '.join(known)}" if known else "this session has started none"
        raise ToolError(f"[unknown-handle] a{handle.child} is no subagent; {there}.")
    found = past.child(started.event.child)
    if found is None:
        raise ToolError(
            f"[lost] The log of subagent a{handle.child} is not here any more; what it reported stands in this session "
            f'(Recall(query="{started.event.kind}")).'
        )
    return found


def _range(past: Past, handle: Handle) -> str:
    last = past.tail()[0]
    start = f"a{handle.child}/" if handle.child else ""
    return f"the newest is {start}r{last}. Take handles from markers or from Recall(query=…), do not guess them."


def _meant(past: Past, text: str) -> str:
    """The nearest handle to what was written, else how to look for words."""
    number = re.search(r"\d+(?:\.[1-9]\d*)?", text)
    if number and int(float(number[0])) and past.entry(int(number[0].partition(".")[0])) is not None:
        return f" Did you mean r{number[0]}?"
    return "" if number else f' To look for words: Recall(query="{text[:40].strip()}").'


def _picture(past: Past, content: Content) -> AnyPart | None:
    """A file's content as what can be looked at, when it is an image or a PDF."""
    if content.title != "content" or not content.blob:
        return None
    try:
        pieces = past.pieces(content.blob)
        head = next(pieces, b"")
        image = picture(head)
        if image is None and not is_pdf(head):
            return None
        size = len(head) + sum(map(len, pieces))
    except KeyError:
        return None  # whoever reads it says so
    if image is None:
        return Document(content.blob, "application/pdf", size)
    return Image(content.blob, image.media, size, image.width, image.height)


def _bytes(home: Past, past: Past, part: AnyPart) -> bytes | None:
    if home is past or not isinstance(part, Image | Document):
        return None
    try:
        return b"".join(home.pieces(part.blob))
    except KeyError:
        raise ToolError(f"[lost] The blob {part.blob[:12]} is not in that session's folder any more.") from None

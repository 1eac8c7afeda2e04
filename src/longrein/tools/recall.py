"""`Recall`: any byte that was cleared, cut or summarised, by its handle and page by page (law 4)."""

import re

import msgspec

from longrein.events import AnyPart, Recalled, Text, ToolError, parse_handle
from longrein.tools.contents import Content, contents_of, title_of
from longrein.tools.port import Hands, Outcome
from longrein.tools.registry import make_tool
from longrein.tools.text import counted, cut_head, size_words

PAGE_BYTES_MAX = 16_000
"""Text of one page: four pages are about the largest `Read`."""


class Range(msgspec.Struct, frozen=True):
    """What is asked for: lines, or with `char` set characters of one line. All 1-based and inclusive; 0 is open."""

    first: int = 1
    last: int = 0
    char: int = 0
    char_last: int = 0


async def Recall(hands: Hands, handle: str, lines: str = "") -> Outcome:
    """Bring back the original of something that was shortened, cleared or summarised: results, arguments of your
    calls, the user's words, images. Markers name handles: r412, or r412.2 for its second part. You get a page of
    about 16 kB and how to get the next. Use it rather than repeating a call or guessing; but a file as it is now
    comes from Read.

    handle: Such as r412 or r412.2.
    lines: Such as "100-200", "100-" or "7:4001-8000" (characters of line 7); default from the start.
    """
    wanted = read_range(lines)
    title, contents = found(hands, handle)
    shown: tuple[AnyPart, ...] = tuple(content.part for content in contents if content.part is not None)
    body = joined(contents)
    if not body and shown:
        size = sum(getattr(part, "size_bytes", 0) for part in shown)
        return Outcome((Text(f"[{handle}: {title}]"), *shown), (Recalled(hands.call, handle, size_bytes=size),))
    text, span, rest = page(body, wanted, handle)
    fact = Recalled(hands.call, handle, lines=span, size_bytes=len(text.encode("utf-8", "replace")))
    return Outcome((Text(f"[{handle}: {title}, {rest}]"), Text(text or "(empty)"), *shown), (fact,))


def found(hands: Hands, text: str) -> tuple[str, list[Content]]:
    """What a handle names, with a title. Refuses handles that name nothing, and says why."""
    handle = parse_handle(text)
    if handle is None:
        raise ToolError(f"[bad-handle] {text[:40]!r} is no handle; handles look like r412 or r412.2.")
    if handle.child:
        raise ToolError(
            f"[unknown-handle] {handle} is of another session; only handles without a/ can be recalled here."
        )
    entry = hands.entry(handle.seq)
    if entry is None:
        raise ToolError(
            f"[unknown-handle] There is no entry {handle}; take the handle from a marker, do not guess one."
        )
    contents = contents_of(entry, hands.blobs)
    if handle.part > len(contents):
        raise ToolError(f"[unknown-handle] r{handle.seq} has {counted(len(contents), 'part')}; there is no {handle}.")
    title = title_of(entry)
    if not handle.part:
        return title, contents
    one = contents[handle.part - 1]
    return f"{title}, {one.title}", [one]


def joined(contents: list[Content]) -> str:
    """The text of several parts, each under its title; one part is itself."""
    texts = [content for content in contents if content.part is None]
    if len(texts) == 1:
        return texts[0].text
    return "\n".join(f"--- {content.title} ---\n{content.text}" for content in texts)


def read_range(text: str) -> Range:
    """`100-200`, `100-`, `100`, `7:4001-8000`; '' is everything from the start."""
    match = re.fullmatch(r"(?:(\d+):)?(\d+)?(?:-(\d+)?)?", text.strip().replace(" ", ""))
    if match is None or (match[1] and not match[2]):
        raise ToolError(f'[bad-range] lines must look like "100-200", "100-" or "7:4001-8000", not {text[:40]!r}.')
    line, first, last = (int(group or 0) for group in match.groups())
    if not text.strip():
        return Range()
    if "-" not in text:
        last = first
    if (last and last < first) or (match[2] and not first):
        raise ToolError("[bad-range] lines count from 1 and a range goes upwards.")
    return Range(line, line, first, last) if line else Range(max(first, 1), last)


def page(text: str, wanted: Range, handle: str) -> tuple[str, str, str]:
    """One page of `text`: itself, its range, and what it is of what, with the way to the next."""
    lines = text.split("\n")
    if lines[-1] == "" and len(lines) > 1:
        lines.pop()
    total = len(lines)
    if wanted.first > total:
        raise ToolError(f"[past-end] {handle} has only {counted(total, 'line')}.")
    if wanted.char:
        return page_of_line(lines[wanted.first - 1], wanted, handle)
    last = min(wanted.last or total, total)
    chosen = fitting(lines[wanted.first - 1 : last])
    if not chosen:
        return page_of_line(lines[wanted.first - 1], Range(wanted.first, wanted.first, 1, 0), handle)
    end = wanted.first + len(chosen) - 1
    span = f"{wanted.first}-{end}"
    if (wanted.first, end) == (1, total):
        return "\n".join(chosen), span, f"all of it: {counted(total, 'line')}"
    rest = f"lines {span} of {total}"
    return "\n".join(chosen), span, rest + (f'; next: lines="{end + 1}-"' if end < total else "; this is the end")


def fitting(lines: list[str]) -> list[str]:
    """As many lines as a page holds; none when the first one alone is too long."""
    size = 0
    for i, line in enumerate(lines):
        size += len(line.encode("utf-8", "replace")) + 1
        if size > PAGE_BYTES_MAX + 1:
            return lines[:i]
    return lines


def page_of_line(line: str, wanted: Range, handle: str) -> tuple[str, str, str]:
    """One page of a line that is longer than a page."""
    if wanted.char > len(line):
        raise ToolError(f"[past-end] line {wanted.first} of {handle} has only {counted(len(line), 'character')}.")
    last = min(wanted.char_last or len(line), len(line))
    piece = line[wanted.char - 1 : min(last, wanted.char - 1 + PAGE_BYTES_MAX)]
    piece = cut_head(piece.encode("utf-8", "surrogatepass"), PAGE_BYTES_MAX).decode("utf-8", "surrogatepass")
    end = wanted.char + len(piece) - 1
    span = f"{wanted.first}:{wanted.char}-{end}"
    whole = f"characters {wanted.char}-{end} of {len(line)} of line {wanted.first} ({size_words(len(piece.encode()))})"
    following = f"{wanted.first}:{end + 1}-" if end < len(line) else f"{wanted.first + 1}-"
    return piece, span, f'{whole}; next: lines="{following}"'


RECALL = make_tool(Recall, access="none", together=True)

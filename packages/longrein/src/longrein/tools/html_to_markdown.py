"""Convert HTML to Markdown in one pass. Standard library only; also a program.

The work is proportional to the length of the page, whatever the page holds: each construct is
consumed to its end, and one without an end to the end of the page, as browsers do. Nothing recurses
and what is nested deeper than `DEPTH_MAX` has no indentation.

`python html_to_markdown.py` converts standard input, UTF-8, within `CPU_S` and `MEMORY_BYTES`.
"""

import re
import resource
import sys
from collections.abc import Iterator
from typing import NamedTuple

DEPTH_MAX = 12
"""Most lists and quotations inside each other that are indented."""
ATTRIBUTES_MAX = 100
"""Attributes of one tag that are looked at."""
HREF_CHARS_MAX = 2_000
CPU_S = 20
MEMORY_BYTES = 1 << 30
OUTPUT_CHARS_MAX = 16 << 20

RAW = frozenset(("script", "style", "iframe", "noembed", "noframes", "xmp"))
"""Elements whose content is no markup and is left out."""
DROPPED = frozenset(("noscript", "template", "svg"))
"""Elements that are left out with the elements inside."""
PARAGRAPHS = re.compile(r"p|title|h[1-6r]|blockquote|pre|[uod]l|table|figure|address")
"""Elements with an empty line around them."""
LINES = re.compile(
    r"div|li|tr|d[td]|section|article|header|footer|main|nav|aside|form|body|head|html|caption"
    r"|t(?:head|body|foot)|option|fieldset|details|summary|figcaption"
)
"""Elements that begin a line of their own."""
MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "code": "`", "kbd": "`", "del": "~~"}
HEADINGS = {f"h{level}": "#" * level + " " for level in range(1, 7)}

_MARKUP = re.compile(r"<(?=[A-Za-z/!?])")
_NAME = re.compile(r"/?[A-Za-z][^\s/>]*")
_ATTRIBUTE = re.compile(r"[\s/]*(?:([^\s/>=]+|=)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s>]*)))?)?")
_BLANKS = re.compile(r"\s+")
_LONG_NUMBER = re.compile(r"&#[xX]?[0-9a-fA-F]{8,};?")


# --- Tokens ---------------------------------------------------------------------------------------


class Token(NamedTuple):
    """A piece of text, with `name` '', or a tag."""

    name: str
    """Name of the element in lower case, with `/` in front for an end tag."""
    text: str = ""
    attributes: dict[str, str] = {}  # noqa: RUF012 - never changed


def tokens(page: str) -> Iterator[Token]:
    """Yield texts and tags; comments and the content of `RAW` elements are left out."""
    at = 0
    while at < len(page):
        found = _MARKUP.search(page, at)
        start = len(page) if found is None else found.start()
        if start > at:
            yield Token("", plain_text(page[at:start]))
        named = _NAME.match(page, start + 1)
        if named is not None:
            tag, at = _read_tag(page, named[0].lower(), named.end())
            yield tag
            if tag.name in RAW:
                at = _end_of_raw(page, tag.name, at)
        else:
            at = _end_of_comment(page, start)


def _end_of_comment(page: str, start: int) -> int:
    is_comment = page.startswith("<!--", start)
    ending = "-->" if is_comment else ">"
    found = page.find(ending, start + 2)
    return len(page) if found < 0 else found + len(ending)


def _end_of_raw(page: str, name: str, at: int) -> int:
    found = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(page, at)
    return len(page) if found is None else found.start()


def _read_tag(page: str, name: str, at: int) -> tuple[Token, int]:
    """Return the tag and the place behind it."""
    attributes: dict[str, str] = {}
    while at < len(page) and page[at] != ">":
        found = _ATTRIBUTE.match(page, at)
        assert found is not None
        at = found.end()
        if found[1] and len(attributes) < ATTRIBUTES_MAX:
            value = found[2] or found[3] or found[4] or ""
            attributes.setdefault(found[1].lower(), value)
    return Token(name, "", attributes), at + 1


def plain_text(text: str) -> str:
    """Replace character references."""
    if "&" not in text:
        return text
    import html

    return html.unescape(_LONG_NUMBER.sub("\ufffd", text))


# --- Markdown -------------------------------------------------------------------------------------


class _Open(NamedTuple):
    """An inline element that is open."""

    name: str
    end: str
    """Text at its end."""
    start: str
    is_shown: list[bool]
    """Whether its beginning is written: it is when text follows."""


class _Container(NamedTuple):
    """A list, an item of one, or a quotation."""

    kind: str
    prefix: str = ""
    """Text before each line in it."""
    number: int = -1
    """Number of the last item of a list; -1 for a list without numbers."""


class MarkdownWriter:
    """Write the tokens of a page as Markdown."""

    def __init__(self) -> None:
        self._out: list[str] = []
        self._lines = 0
        """Line ends to write before the next text."""
        self._space = False
        """Whether a blank comes before the next text."""
        self._containers: list[_Container] = []
        self._bullet = ""
        """Mark of an item, for its first line."""
        self._prefix = ""
        """Prefix of the last line."""
        self._open: list[_Open] = []
        self._counts: dict[str, int] = {}
        """Name -> number of inline elements and containers that are open."""
        self._heading = ""
        self._is_pre = self._is_cell = False
        self._tables = self._columns = self._rows = 0
        """Tables inside each other; cells of the row, and rows, of the outermost."""
        self._dropped = ("", 0)
        """Element that is left out, and how many of its name are open."""

    def feed(self, token: Token) -> None:
        """Take the next token."""
        name = token.name
        if self._dropped[1]:
            self._drop(name)
        elif not name:
            self._text(token.text)
        elif name in DROPPED:
            self._dropped = (name, 1)
        elif name[0] == "/":
            self._end(name[1:])
        else:
            self._start(name, token.attributes)

    def markdown(self) -> str:
        """Return the text."""
        return "".join(self._out).strip()

    def _drop(self, name: str) -> None:
        dropped, count = self._dropped
        self._dropped = (dropped, count + (name == dropped) - (name == f"/{dropped}"))

    # --- Elements ---

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._break(name)
        if name in HEADINGS:
            self._heading = HEADINGS[name]
        elif name == "br":
            self._line(self._lines + 1)
        elif name == "hr":
            self._write("---")
            self._line(2)
        elif name == "img":
            self._image(attributes)
        elif name == "a" or name in MARKS:
            self._start_inline(name, attributes)
        elif name == "pre":
            self._start_pre()
        elif name == "table":
            self._tables += 1
            self._rows = self._rows if self._tables > 1 else 0
        elif name in ("tr", "td", "th"):
            self._start_in_table(name)
        elif name in ("ul", "ol"):
            self._push(_Container("list", "", 0 if name == "ol" else -1))
        elif name == "li":
            self._start_item()
        elif name == "blockquote":
            self._push(_Container(name, "> "))

    def _end(self, name: str) -> None:
        if name in ("ul", "ol"):
            self._pop("list")
        elif name == "blockquote":
            self._pop(name)
        elif name == "li":
            self._end_item()
        elif name == "tr" and self._tables == 1:
            self._end_row()
        elif name == "table" and self._tables:
            self._end_table()
        elif name == "pre" and self._is_pre:
            self._verbatim("```" if self._out[-1].endswith("\n") else "\n```")
            self._is_pre = False
        elif self._counts.get(name):
            self._end_inline(name)
        self._break(name)

    def _break(self, name: str) -> None:
        """Ask for the line ends around an element."""
        if PARAGRAPHS.fullmatch(name):
            is_inner = name in ("ul", "ol") and self._counts.get("list", 0) > 0
            self._line(1 if is_inner else 2)
            self._heading = ""
        elif LINES.fullmatch(name):
            self._line(1)

    # --- Lists, quotations and tables ---

    def _push(self, container: _Container) -> None:
        self._containers.append(container)
        self._counts[container.kind] = self._counts.get(container.kind, 0) + 1

    def _pop(self, kind: str) -> None:
        """End the innermost container of a kind, and those inside."""
        closed = ""
        while self._counts.get(kind) and closed != kind:
            closed = self._containers.pop().kind
            self._counts[closed] -= 1

    def _start_item(self) -> None:
        self._end_item()
        self._bullet = "- "
        if self._containers and self._containers[-1].number >= 0:
            number = self._containers[-1].number + 1
            self._containers[-1] = _Container("list", "", number)
            self._bullet = f"{number}. "
        self._push(_Container("item", " " * len(self._bullet)))

    def _end_item(self) -> None:
        if self._containers and self._containers[-1].kind == "item":
            self._pop("item")

    def _start_in_table(self, name: str) -> None:
        """Begin a row or a cell. A table inside a cell is text of the cell."""
        if self._tables != 1:
            return
        if name == "tr":
            self._end_row()
            return
        self._is_cell = True
        self._space = False
        self._columns += 1
        self._write("| " if self._columns == 1 else " | ")

    def _end_row(self) -> None:
        if not self._columns:
            return
        self._space = self._is_cell = False
        self._write(" |")
        self._rows += 1
        if self._rows == 1:
            self._line(1)
            self._write("|" + " --- |" * self._columns)
        self._columns = 0
        self._line(1)

    def _end_table(self) -> None:
        if self._tables == 1:
            self._end_row()
        self._tables -= 1

    def _start_pre(self) -> None:
        if not self._is_cell:
            self._write("```\n")
            self._is_pre = True

    def _image(self, attributes: dict[str, str]) -> None:
        label = _BLANKS.sub(" ", plain_text(attributes.get("alt", ""))).strip()
        source = attributes.get("src", "")
        if label or source:
            shown = "" if source.startswith("data:") else plain_text(source[:HREF_CHARS_MAX])
            self._text(f"![{label}]({shown})")

    # --- Inline elements ---

    def _start_inline(self, name: str, attributes: dict[str, str]) -> None:
        start = end = MARKS.get(name, "")
        href = plain_text(attributes.get("href", "")[:HREF_CHARS_MAX]).strip()
        if self._is_pre:
            start = end = ""
        elif href and not href.startswith(("javascript:", "data:")):
            start, end = "[", f"]({href})"
        self._open.append(_Open(name, end, start, [False]))
        self._counts[name] = self._counts.get(name, 0) + 1

    def _end_inline(self, name: str) -> None:
        """End the inline element, and those inside that have no end of their own."""
        closed = ""
        while closed != name:
            last = self._open.pop()
            closed = last.name
            self._counts[closed] -= 1
            if last.is_shown[0] and last.end:
                self._out.append(last.end)

    # --- Text ---

    def _text(self, text: str) -> None:
        if self._is_pre:
            self._verbatim(text)
            return
        words = _BLANKS.sub(" ", text)
        self._space = self._space or words[:1] == " "
        inner = words.strip(" ")
        if inner:
            self._write(inner)
            self._space = words[-1] == " "

    def _verbatim(self, text: str) -> None:
        self._out.append(text.replace("\n", f"\n{self._prefix}") if self._prefix else text)

    def _line(self, count: int) -> None:
        """Ask for line ends before the next text; inside a table's cell for a blank."""
        if self._is_cell:
            self._space = True
        elif not self._is_pre and self._out:
            self._lines = max(self._lines, min(count, 2))

    def _write(self, text: str) -> None:
        if self._lines or not self._out:
            self._begin_line()
        elif self._space:
            self._out.append(" ")
        self._lines, self._space = 0, False
        self._out.append(self._heading)
        self._heading = ""
        self._show_inline()
        self._out.append(text)

    def _show_inline(self) -> None:
        """Write the beginnings of inline elements whose first text comes now."""
        first = len(self._open)
        while first and not self._open[first - 1].is_shown[0]:
            first -= 1
        for one in self._open[first:]:
            self._out.append(one.start)
            one.is_shown[0] = True

    def _begin_line(self) -> None:
        prefixes = [one.prefix for one in self._containers[: 2 * DEPTH_MAX]]
        before, self._prefix = self._prefix, "".join(prefixes)
        if self._lines > 1:
            self._out.append("\n" + _common(before, self._prefix).rstrip(" "))
        bullet, self._bullet = self._bullet, ""
        first = self._prefix[: -len(bullet)] + bullet if bullet else self._prefix
        self._out.append("\n" + first if self._out else first)


def _common(one: str, other: str) -> str:
    """Return the common beginning of two texts."""
    length = 0
    while one[length : length + 1] == other[length : length + 1] != "":
        length += 1
    return one[:length]


def markdown_of(page: str) -> str:
    """Return an HTML page as Markdown."""
    writer = MarkdownWriter()
    for token in tokens(page):
        writer.feed(token)
    return writer.markdown()


# --- As a program ---------------------------------------------------------------------------------


def main() -> None:
    """Convert standard input within limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    page = sys.stdin.buffer.read().decode("utf-8", "replace")
    sys.stdout.buffer.write(markdown_of(page)[:OUTPUT_CHARS_MAX].encode("utf-8", "replace"))


if __name__ == "__main__":
    main()

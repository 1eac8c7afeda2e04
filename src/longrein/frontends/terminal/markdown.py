"""Markdown of replies: a splitter of streamed text into finished blocks, and their drawing with rich.

Text is escaped before and after the markdown parser.
"""

import io
import re
from functools import lru_cache
from typing import Any, Literal

import msgspec
from rich import box
from rich.color import ColorSystem
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, TableElement
from rich.padding import Padding
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax
from rich.table import Table
from rich.theme import Theme

from longrein.frontends.terminal.event_lines import plain, wrap_text
from longrein.frontends.terminal.themes import theme_in_use
from longrein.frontends.text_format import escape

# --- Splitter of streamed markdown -----------------------------------------------------------------------------------
#
# A block is finished when no later text can change it: a paragraph, a list item with all below it, a fence, a table.
# The blocks do not depend on the chunks. Each line is read once; finished blocks are not kept.


Kind = Literal["paragraph", "heading", "item", "fence", "code", "table", "quote", "rule"]

LINE_CHARS_MAX = 8_000
"""A longer line is cut, so that an endless line is shown too."""
BLOCK_CHARS_MAX = 16_000
"""A longer block is cut at the end of a line."""
FENCE_LINES_MAX = 200
"""Lines after which a fence is cut."""

_FENCE = re.compile(r" {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$")
_HEADING = re.compile(r" {0,3}#{1,6}([ \t]|$)")
_RULE = re.compile(r" {0,3}([-*_])([ \t]*\1){2,}[ \t]*$")
_ITEM = re.compile(r"( {0,3}(?:[-*+]|\d{1,9}[.)]))([ \t]+|$)")
_ONE = re.compile(r" {0,3}([-*+]|1[.)])[ \t]+\S")
_QUOTE = re.compile(r" {0,3}>")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")
_DELIMITER = re.compile(r" {0,3}\|?[ \t]*:?-+:?[ \t]*(\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


class Block(msgspec.Struct, frozen=True):
    """A finished piece of markdown."""

    kind: Kind
    text: str
    """Source, without a final newline."""
    gap: bool = True
    """True if an empty line precedes the block."""


class Splitter:
    """Splits one reply into blocks. Not reusable after `finish`."""

    def __init__(self) -> None:
        self._partial = ""
        self._lines: list[str] = []
        self._chars = 0
        self._kind: Kind | None = None
        self._blanks = 0
        """Empty lines after the block's last line; part of the block only if it continues."""
        self._indent = 0
        """Columns by which lines of the open item are indented."""
        self._opening = ("", "")
        self._joined = False
        """True if the next block continues one that was cut."""
        self._last: Kind | None = None
        self._gap = True
        self._done: list[Block] = []

    def feed(self, text: str) -> list[Block]:
        *lines, rest = text.split("\n")
        for line in lines:
            self._add(line)
            self._end_line()
        self._add(rest)
        return self._take()

    def finish(self) -> list[Block]:
        if self._partial:
            self._end_line()
        self._close()
        return self._take()

    def tail(self, lines: int) -> str:
        """The last `lines` lines of the open block."""
        kept = self._lines[-lines:]
        return "\n".join([*kept, self._partial] if self._partial else kept)

    @property
    def gap(self) -> bool:
        """Return True if an empty line precedes the open block."""
        close = self._kind == "item" and self._last in ("item", "paragraph")
        return not self._joined and (self._gap or not close or self._last is None)

    def _take(self) -> list[Block]:
        done, self._done = self._done, []
        return done

    def _add(self, text: str) -> None:
        self._partial += text
        while len(self._partial) > LINE_CHARS_MAX:
            self._line(self._partial[:LINE_CHARS_MAX])
            self._partial = self._partial[LINE_CHARS_MAX:]

    def _end_line(self) -> None:
        line, self._partial = self._partial, ""
        self._line(line.removesuffix("\r"))

    def _line(self, line: str) -> None:
        if self._kind is None or not self._grows(line):
            self._begin(line)
        elif self._chars > BLOCK_CHARS_MAX or (self._kind == "fence" and len(self._lines) >= FENCE_LINES_MAX):
            self._cut()

    def _keep(self, line: str) -> None:
        self._lines += [""] * self._blanks
        self._blanks = 0
        self._lines.append(line)
        self._chars += len(line) + 1

    def _begin(self, line: str) -> None:
        self._close()
        if not line.strip():
            self._gap, self._joined = True, False
            return
        if fence := _FENCE.match(line):
            self._kind, self._opening = "fence", (fence[1], line)
        elif _HEADING.match(line):
            self._kind = "heading"
        elif _RULE.match(line):
            self._kind = "rule"
        elif item := _ITEM.match(line):
            self._kind = "item"
            self._indent = len(item[1]) + (len(item[2]) if 0 < len(item[2]) <= 4 else 1)
        else:
            self._kind = "quote" if _QUOTE.match(line) else "code" if _columns(line) >= 4 else "paragraph"
        self._keep(line)
        if self._kind in ("heading", "rule"):
            self._close()

    def _grows(self, line: str) -> bool:
        """Add `line` to the open block if it belongs there."""
        is_blank = not line.strip()
        match self._kind:
            case "item" | "code" if is_blank:
                self._blanks += 1
                return True
            case "item":
                fits = _columns(line) >= self._indent or not (self._blanks or _interrupts(line) or _ITEM.match(line))
            case "code":
                fits = _columns(line) >= 4
            case "quote":
                fits = not is_blank and (bool(_QUOTE.match(line)) or not _interrupts(line))
            case "paragraph" if (
                "|" in line and _DELIMITER.match(line) and len(self._lines) == 1 and "|" in self._lines[0]
            ):
                self._kind, fits = "table", True
            case "paragraph" if _SETEXT.match(line):
                self._kind, fits = "heading", True
            case "fence":
                fits = True
            case _:
                fits = not is_blank and not _interrupts(line)
        if fits:
            self._keep(line)
            if self._kind == "heading" or (self._kind == "fence" and self._closes(line)):
                self._close()
        return fits

    def _close(self) -> None:
        if self._kind is None:
            return
        if self._kind == "fence" and (len(self._lines) == 1 or not self._closes(self._lines[-1])):
            self._lines.append(self._opening[0])
        if self._joined and self._kind == "fence" and len(self._lines) == 2:
            self._lines, self._chars = [], 0
        else:
            self._emit(self._kind)
        self._gap = self._blanks > 0
        self._kind, self._blanks, self._joined = None, 0, False

    def _emit(self, kind: Kind) -> None:
        self._done.append(Block(kind, "\n".join(self._lines), self.gap))
        self._last, self._lines, self._chars = kind, [], 0

    def _cut(self) -> None:
        """Finish the open block early; the rest follows as a joined block."""
        if self._kind == "fence":
            self._lines.append(self._opening[0])
            self._emit("fence")
            self._lines = [self._opening[1]]
        else:
            self._close()
        self._joined = True

    def _closes(self, line: str) -> bool:
        mark, bare = self._opening[0], line.strip()
        return len(bare) >= len(mark) and set(bare) == {mark[0]} and _columns(line) < 4


def _interrupts(line: str) -> bool:
    """Return True if `line` begins a block directly below a paragraph."""
    return any(pattern.match(line) for pattern in (_FENCE, _HEADING, _RULE, _ONE, _QUOTE))


def _columns(line: str) -> int:
    expanded = line.expandtabs(4)
    return len(expanded) - len(expanded.lstrip(" "))


# --- Drawing ---------------------------------------------------------------------------------------------------------


WIDTH_MAX = 120
"""Columns of prose; wider lines are hard to read."""
HIGHLIGHT_CHARS_MAX = 20_000
"""Characters above which a fence is shown without colours."""

_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        **dict.fromkeys(("markdown.h2", "markdown.h3"), "bold"),
        **dict.fromkeys((f"markdown.h{level}" for level in range(4, 8)), "bold dim"),
        "markdown.block_quote": "italic",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.hr": "dim",
        **dict.fromkeys(("markdown.item.bullet", "markdown.item.number"), "cyan"),
        "markdown.list": "none",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)


class _Heading(Heading):
    """Heading at the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Indented code in the terminal's colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        lexer = _lexer(self.lexer_name if len(code) <= HIGHLIGHT_CHARS_MAX else "text")
        theme = "ansi_light" if theme_in_use() == "light" else "ansi_dark"
        syntax = Syntax(code, lexer, theme=theme, background_color="default", word_wrap=True, tab_size=4)
        yield Padding(syntax, (0, 0, 0, 2))


@lru_cache(maxsize=32)
def _lexer(name: str) -> Any:
    """Return the lexer of a language, which is slow to look up; `name` where there is none."""
    return Syntax("", name, tab_size=4).lexer or name


class _Table(TableElement):
    """Table with a light frame that fits forty columns."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(box=box.ROUNDED, border_style="dim", header_style="bold", show_lines=False)
        if self.header is not None and self.header.row is not None:
            for cell in self.header.row.cells:
                table.add_column(cell.content.copy(), justify=cell.justify, overflow="fold")
        if self.body is not None:
            for row in self.body.rows:
                table.add_row(*[cell.content for cell in row.cells])
        yield table


class _Prose(Markdown):
    """Markdown in which HTML is plain text, so that nothing is hidden. One object draws one block after the other."""

    elements = Markdown.elements | {"heading_open": _Heading, "fence": _Code, "code_block": _Code, "table_open": _Table}

    def __init__(self, parser: Any) -> None:
        super().__init__("", hyperlinks=False)  # it makes and runs a parser of its own, which costs a third of a block
        self._parser = parser

    def of(self, text: str) -> "_Prose":
        """Hold `text` from now on."""
        self.markup, self.parsed = text, self._parser.parse(text)
        return self


class MarkdownPainter:
    """Draws blocks for one terminal."""

    def __init__(self, *, colour: bool) -> None:
        from markdown_it import MarkdownIt

        parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
        self._prose = _Prose(parser)
        self._colours = ColorSystem.STANDARD if colour else None
        self._console = Console(
            file=io.StringIO(),
            width=80,
            color_system="standard" if colour else None,
            force_terminal=True,
            theme=_THEME,
            legacy_windows=False,
            emoji=False,
            highlight=False,
            _environ={},
        )

    def paint(self, block: Block, width: int) -> list[str]:
        """ANSI lines of `block`, each at most `width` columns, without the gap above."""
        options = self._console.options.update(width=max(min(width, WIDTH_MAX), 8), height=None)
        prose = self._prose.of(escape(block.text))
        rows = [self._row(row) for row in self._console.render_lines(prose, options, pad=False)]
        while rows and not rows[0]:
            del rows[0]
        while rows and not rows[-1]:
            del rows[-1]
        return rows or [plain(row) for row in wrap_text(escape(block.text), width)]  # such as a link definition

    def _row(self, segments: list[Segment]) -> str:
        while segments and not segments[-1].text.strip() and not _drawn(segments[-1].style):
            segments = segments[:-1]
        if segments and not _drawn(segments[-1].style):
            segments[-1] = Segment(segments[-1].text.rstrip(), segments[-1].style)
        texts = [(escape(segment.text), segment.style) for segment in segments]
        if self._colours is None:
            return "".join(text for text, _ in texts)
        return "".join(style.render(text, color_system=self._colours) if style else text for text, style in texts)


def _drawn(style: Style | None) -> bool:
    """Return True if blanks of this style are visible."""
    return bool(style and (style.reverse or style.underline))

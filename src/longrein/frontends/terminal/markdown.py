"""One finished block as ANSI lines, by rich. What it shows is escaped before and after the parser."""

import io
from typing import Any

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

from longrein.frontends.safe import escape
from longrein.frontends.terminal.blocks import Block
from longrein.frontends.terminal.lines import plain, wrap_text

WIDTH_MAX = 120
"""Prose wider than this is hard to read."""
HIGHLIGHT_CHARS_MAX = 20_000
"""A longer fence is shown without colours."""

_THEME = Theme(
    {
        "markdown.code": "cyan",
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.h5": "bold dim",
        "markdown.h6": "bold dim",
        "markdown.h7": "bold dim",
        "markdown.block_quote": "italic",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.hr": "dim",
        "markdown.item.bullet": "cyan",
        "markdown.item.number": "cyan",
        "markdown.list": "none",
        "markdown.table.header": "bold",
        "markdown.table.border": "dim",
    }
)


class _Heading(Heading):
    """At the left, without a frame."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.justify = "left"
        yield self.text


class _Code(CodeBlock):
    """Indented, in the terminal's own colours."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip("\n")
        lexer = self.lexer_name if len(code) <= HIGHLIGHT_CHARS_MAX else "text"
        syntax = Syntax(code, lexer, theme="ansi_dark", background_color="default", word_wrap=True, tab_size=4)
        yield Padding(syntax, (0, 0, 0, 2))


class _Table(TableElement):
    """With a frame light enough for forty columns."""

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
    """HTML is text like any other: nothing that was written stays hidden."""

    elements = Markdown.elements | {
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, parser: Any, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.markup = text
        self.parsed = parser.parse(text)


class MarkdownPainter:
    """Draws blocks for one terminal."""

    def __init__(self, *, colour: bool) -> None:
        from markdown_it import MarkdownIt

        self._parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"]).disable("image")
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
        """ANSI lines of `block`, each at most `width` columns, without the gap above it."""
        options = self._console.options.update(width=max(min(width, WIDTH_MAX), 8), height=None)
        prose = _Prose(self._parser, escape(block.text))
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
        return "".join(self._styled(segment.text, segment.style) for segment in segments)

    def _styled(self, text: str, style: Style | None) -> str:
        text = escape(text)
        return style.render(text, color_system=self._colours) if style and self._colours is not None else text


def _drawn(style: Style | None) -> bool:
    """Whether blanks of this style can be seen."""
    return bool(style and (style.reverse or style.underline))

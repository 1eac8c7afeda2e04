"""Drawing of the markdown of replies with rich, which takes long to import: so this module is
imported at first use.

Text is escaped before and after the markdown parser.
"""

import io
from functools import lru_cache
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

from longrein.frontends.terminal.event_lines import plain, wrap_text
from longrein.frontends.terminal.markdown_blocks import Block
from longrein.frontends.terminal.themes import theme_in_use
from longrein.steps.human_text import escape

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
        syntax = Syntax(
            code, lexer, theme=theme, background_color="default", word_wrap=True, tab_size=4
        )
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
    """Markdown in which HTML is plain text, so that nothing is hidden. One object draws one
    block after the other.
    """

    elements = Markdown.elements | {
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }

    def __init__(self, parser: Any) -> None:
        super().__init__(
            "", hyperlinks=False
        )  # it makes and runs a parser of its own, which costs a third of a block
        self._parser = parser

    def of(self, text: str) -> "_Prose":
        """Hold `text` from now on."""
        self.markup, self.parsed = text, self._parser.parse(text)
        return self


class MarkdownPainter:
    """Draws blocks for one terminal."""

    def __init__(self, *, colour: bool) -> None:
        from markdown_it import MarkdownIt

        parser = (
            MarkdownIt("commonmark", {"html": False})
            .enable(["strikethrough", "table"])
            .disable("image")
        )
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
        return rows or [
            plain(row) for row in wrap_text(escape(block.text), width)
        ]  # such as a link definition

    def _row(self, segments: list[Segment]) -> str:
        while segments and not segments[-1].text.strip() and not _drawn(segments[-1].style):
            segments = segments[:-1]
        if segments and not _drawn(segments[-1].style):
            segments[-1] = Segment(segments[-1].text.rstrip(), segments[-1].style)
        texts = [(escape(segment.text), segment.style) for segment in segments]
        if self._colours is None:
            return "".join(text for text, _ in texts)
        return "".join(
            style.render(text, color_system=self._colours) if style else text
            for text, style in texts
        )


def _drawn(style: Style | None) -> bool:
    """Return True if blanks of this style are visible."""
    return bool(style and (style.reverse or style.underline))

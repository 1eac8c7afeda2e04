"""Splitter of streamed markdown into finished blocks. Apart from `markdown`, which imports rich
to draw them.
"""

import re
from typing import Literal

import msgspec

# A block is finished when no later text can change it: a paragraph, a list item with all below it,
# a fence, a table. The blocks do not depend on the chunks. Each line is read once; finished blocks
# are not kept.


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
        """The last `lines` lines of the open block, without the marks of fences; what stands in a
        fence is indented.
        """
        kept = [*self._lines[-lines:], self._partial] if self._partial else self._lines[-lines:]
        if self._kind == "fence":
            inner = [line for line in kept if not self._closes(line) and line != self._opening[1]]
            return "\n".join(f"  {line}" for line in inner)
        return "\n".join(line for line in kept if not _FENCE.match(line.lstrip()))

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
        elif self._chars > BLOCK_CHARS_MAX or (
            self._kind == "fence" and len(self._lines) >= FENCE_LINES_MAX
        ):
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
        elif _QUOTE.match(line):
            self._kind = "quote"
        elif _columns(line) >= 4:
            self._kind = "code"
        else:
            self._kind = "paragraph"
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
                fits = _columns(line) >= self._indent or not (
                    self._blanks or _interrupts(line) or _ITEM.match(line)
                )
            case "code":
                fits = _columns(line) >= 4
            case "quote":
                fits = not is_blank and (bool(_QUOTE.match(line)) or not _interrupts(line))
            case "paragraph" if (
                "|" in line
                and _DELIMITER.match(line)
                and len(self._lines) == 1
                and "|" in self._lines[0]
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
        self._kind = None
        self._blanks = 0
        self._joined = False

    def _emit(self, kind: Kind) -> None:
        self._done.append(Block(kind, "\n".join(self._lines), self.gap))
        self._last = kind
        self._lines = []
        self._chars = 0

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

"""Reader of the YAML head of a markdown file, between two lines of `---`.

Supports keys with texts, numbers, booleans, lists in both spellings, maps below a key, and blocks
of text. More lenient than YAML where people write what it forbids (a colon or a quote inside plain
text, ` #12`); strict where the meaning would be a guess (anchors, tags, several documents). A YAML
package costs more to import than this module, and reads names like `no` as something else.
"""

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

FENCE = "---"
CONSTANTS = {"true": True, "false": False, "null": None, "~": None}
NUMBER = r"-?(?:\d+|\d+\.\d*|\.\d+)"
KEY = r"""(?P<key>"[^"]*"|'[^']*'|[^\s:#\[\]{},"'&*!|>%@`-][^:\n]*?|-\w[^:\n]*?)\s*:(?:\s+(?P<value>.*))?$"""  # noqa: E501
DEPTH_MAX = 8
"""Maximum nesting of a head."""


class FrontmatterError(ValueError):
    """Error in a head, such as `line 3: …`. It becomes a note for the user."""


class Line(NamedTuple):
    """A line of a head."""

    number: int
    """Line number in the file, from 1."""
    indent: int
    text: str
    """Text without indentation and trailing blanks."""


def split_frontmatter(text: str) -> tuple[dict[str, Any], str]:
    """Split a file into (fields, body). Without a head the fields are empty. Raises
    `FrontmatterError`.
    """
    text = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    lines = text.split("\n")
    if lines[0].rstrip() != FENCE:
        return {}, text
    end = next((n for n, line in enumerate(lines[1:], 1) if line.rstrip() in (FENCE, "...")), None)
    if end is None:
        raise FrontmatterError("line 1: the head that begins here is not closed by a line of ---")
    return parse_frontmatter(lines[1:end], first=2), "\n".join(lines[end + 1 :]).strip("\n")


def parse_frontmatter(lines: list[str], first: int = 1) -> dict[str, Any]:
    """Parse the lines of a head. `first`: number of the first line. Raises `FrontmatterError`."""
    reader = _Reader([_line(number, raw) for number, raw in enumerate(lines, first)])
    fields = reader.block(0, 0)
    if reader.left():
        raise FrontmatterError(
            f"line {reader.now.number}: {_shown(reader.now.text)} is indented otherwise than what "
            "it belongs to"
        )
    if fields is None:
        return {}
    if not isinstance(fields, dict):
        raise FrontmatterError(f"line {first}: the head is a list, not fields with names")
    return fields


def _line(number: int, raw: str) -> Line:
    wide = raw.expandtabs(8)
    return Line(number, len(wide) - len(wide.lstrip()), wide.strip())


class _Reader:
    """Parser that reads the lines once, from first to last."""

    def __init__(self, lines: list[Line]) -> None:
        self._lines = lines
        self._at = 0

    @property
    def now(self) -> Line:
        return self._lines[self._at]

    def left(self) -> bool:
        """Skip blank lines and comments; return whether a line is left."""
        while self._at < len(self._lines) and (not self.now.text or self.now.text.startswith("#")):
            self._at += 1
        return self._at < len(self._lines)

    def block(self, least: int, depth: int) -> Any:
        """Return the map or list indented by `least` or more; None when there is none."""
        if not self.left() or self.now.indent < least:
            return None
        if depth > DEPTH_MAX:
            raise FrontmatterError(f"line {self.now.number}: more than {DEPTH_MAX} levels")
        indent = self.now.indent
        if _is_item(self.now.text):
            return self._items(indent, depth)
        return self._fields(indent, depth)

    def _items(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self.left() and self.now.indent == indent and _is_item(self.now.text):
            line = self.now
            rest = line.text[1:].strip()
            self._at += 1
            if not rest:
                found.append(self.block(indent + 1, depth + 1))
            elif re.compile(KEY).match(rest) and rest[0] not in "\"'[{":
                inner = indent + len(line.text) - len(line.text[1:].lstrip())
                self._at -= 1
                self._lines[self._at] = Line(line.number, inner, rest)
                found.append(self._fields(inner, depth + 1))
            else:
                found.append(self._value(rest, line, indent))
        return found

    def _fields(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.left() and self.now.indent == indent:
            line = self.now
            match = re.compile(KEY).match(line.text)
            if match is None:
                raise FrontmatterError(
                    f"line {line.number}: {_shown(line.text)} is not `name: value`"
                )
            self._at += 1
            value = match["value"] or ""
            if not value or value.startswith("#"):
                found[_plain_key(match["key"])] = self._below(indent, depth)
            else:
                found[_plain_key(match["key"])] = self._value(value, line, indent)
        return found

    def _below(self, indent: int, depth: int) -> Any:
        """Return the value below a key without one; a list may have the indentation of the key."""
        if self.left() and self.now.indent == indent and _is_item(self.now.text):
            return self._items(indent, depth + 1)
        if self.left() and self.now.indent > indent and not self._is_structure():
            return _folded(self._continued(indent))
        return self.block(indent + 1, depth + 1)

    def _is_structure(self) -> bool:
        return _is_item(self.now.text) or re.compile(KEY).match(self.now.text) is not None

    def _value(self, text: str, line: Line, indent: int) -> Any:
        """Return the value after a colon or a dash, with its continuation lines."""
        block = re.fullmatch(r"([|>])([+-]?\d?|\d[+-])(?:\s+#.*)?", text)
        if block:
            return self._text_block(block[1], block[2], indent)
        if text[0] in "\"'":
            return self._quoted(text, line, indent)
        if text[0] in "[{":
            return self._flow(text, line, indent)
        if text[0] in "&*!%@`" and not text.startswith(("*", "@", "`")):
            raise FrontmatterError(
                f"line {line.number}: {_shown(text)} is YAML that is not read here: put the value "
                "in quotes"
            )
        return _scalar(_folded([_without_comment(text), *self._continued(indent)]))

    def _continuation(self, indent: int) -> list[Line]:
        """Take the lines that are indented further than `indent`, and the blank ones between and
        after them.
        """
        first = self._at
        while self._at < len(self._lines) and (not self.now.text or self.now.indent > indent):
            self._at += 1
        return self._lines[first : self._at]

    def _continued(self, indent: int) -> list[str]:
        """Return the continuation lines of a plain text."""
        found = [line.text for line in self._continuation(indent)]
        while found and not found[-1]:
            found.pop()
        return found

    def _text_block(self, style: str, how: str, indent: int) -> str:
        """Return a block of text: `|` keeps lines, `>` joins them, `-` removes the last line
        end.
        """
        raw = self._continuation(indent)
        margin = min((line.indent for line in raw if line.text), default=0)
        lines = [" " * (line.indent - margin) + line.text if line.text else "" for line in raw]
        text = ("\n".join(lines) if style == "|" else _folded(lines)).rstrip("\n")
        return text if "-" in how or not text else f"{text}\n"

    def _quoted(self, text: str, line: Line, indent: int) -> str:
        """Return a quoted text, which may span lines. A text that only begins with a quoted word
        is plain.
        """
        whole, quote = text, text[0]
        end = _end_of_quote(whole)
        while (
            end < 0
            and self._at < len(self._lines)
            and (not self.now.text or self.now.indent > indent)
        ):
            if quote == '"' and re.search(
                r"(?<!\\)(?:\\\\)*\\$", whole
            ):  # the line break is escaped
                whole = whole[:-1] + self.now.text
            else:
                whole += f" {self.now.text}" if self.now.text else "\n"
            self._at += 1
            end = _end_of_quote(whole)
        if end < 0:
            raise FrontmatterError(
                f"line {line.number}: the quote that begins with {_shown(text)} is not closed"
            )
        rest = whole[end + 1 :].strip()
        if rest and not rest.startswith("#"):
            return whole
        inner = whole[1:end]
        return inner.replace("''", "'") if quote == "'" else _unescaped(inner)

    def _flow(self, text: str, line: Line, indent: int) -> Any:
        """Return `[a, b]` or `{a: true}`, which may span lines."""
        whole = text
        while (
            not _is_closed(whole)
            and self._at < len(self._lines)
            and self.now.indent >= indent
            and self.now.text
        ):
            whole += f" {_without_comment(self.now.text)}"
            self._at += 1
        if not _is_closed(whole):
            raise FrontmatterError(f"line {line.number}: {_shown(text)} is not closed")
        whole = whole[: _closing(whole) + 1]
        pieces = list(split_outside(whole[1:-1]))
        if whole[0] == "[":
            return [_flow_value(piece) for piece in pieces]
        pairs = (piece.partition(":") for piece in pieces)
        return {_plain_key(key.strip()): _flow_value(value.strip()) for key, _, value in pairs}


# --- Values and quotes ----------------------------------------------------------------------------


def split_outside(text: str) -> Iterator[str]:
    """Yield the non-empty pieces between commas outside of brackets and quotes."""
    depth, quote, start = 0, "", 0
    for at, c in enumerate(f"{text},"):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'" and not text[start:at].strip():
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and (depth <= 0 or at == len(text)):
            if text[start:at].strip():
                yield text[start:at].strip()
            start = at + 1
    if quote and text[start:].strip():
        yield text[start:].strip()


def _flow_value(text: str) -> Any:
    if text[:1] in ("[", "{") and _is_closed(text):
        return _Reader([])._flow(text, Line(0, 0, text), 0)
    if text[:1] in ('"', "'") and _end_of_quote(text) == len(text) - 1:
        return text[1:-1].replace("''", "'") if text[0] == "'" else _unescaped(text[1:-1])
    return _scalar(text)


def _scalar(text: str) -> Any:
    """Return a plain text as a constant or number where it is one."""
    if text.lower() in CONSTANTS:
        return CONSTANTS[text.lower()]
    if re.fullmatch(NUMBER, text) and len(text) < 18:
        return float(text) if "." in text else int(text)
    return text


def _is_item(text: str) -> bool:
    return text == "-" or text.startswith("- ")


def _plain_key(text: str) -> str:
    return text[1:-1] if text[:1] in ('"', "'") else text.strip()


def _without_comment(text: str) -> str:
    at = text.find(" # ")
    return text[:at].rstrip() if at >= 0 else text


def _folded(lines: list[str]) -> str:
    """Join lines with blanks; an empty line is a line break."""
    text = ""
    for line in lines:
        text += "\n" if not line else line if not text or text.endswith("\n") else f" {line}"
    return text


QUOTED = r"""(?s)"(?:\\.|[^"\\])*+"|'(?:''|[^'])*+'"""


def _end_of_quote(text: str) -> int:
    """Return the index of the closing quote of the quote that begins `text`; -1 without one."""
    quoted = re.compile(QUOTED).match(text)
    return quoted.end() - 1 if quoted else -1


ESCAPES = {"n": "\n", "t": "\t", "r": "\n", '"': '"', "\\": "\\", "/": "/", "0": "", " ": " "}


def _unescaped(text: str) -> str:
    def one(match: "re.Match[str]") -> str:
        if len(match[1]) == 1:
            return ESCAPES.get(match[1], match[0])
        code = int(match[1][1:], 16)
        return match[0] if 0xD800 <= code < 0xE000 else chr(code)  # half a character is none

    return re.sub(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|.)", one, text)


def _closing(text: str) -> int:
    """Return the index of the closing bracket of the bracket that begins `text`; -1 without one."""
    depth, quote = 0, ""
    for at, c in enumerate(text):
        if quote:
            quote = "" if c == quote else quote
        elif c in "\"'" and text[at - 1] in " ,[{:":
            quote = c
        elif c in "[{":
            depth += 1
        elif c in "]}":
            depth -= 1
            if depth == 0:
                return at
    return -1


def _is_closed(text: str) -> bool:
    return _closing(text) >= 0


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")

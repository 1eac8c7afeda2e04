"""Finding the calls in what a model wrote as text: `tool: NAME({JSON})` at the start of a line. Pure.

What is quoted is never a call: not in a code fence of any kind but `tool`, not in inline code, not indented by four
blanks, not after a `>`. A call that cannot be read is kept as one without arguments, so that the model is told; nothing
is ever closed or completed on its behalf, for a truncated call must not run. All that comes after an invented
`tool_result(` is dropped.
"""

import re
from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec

from longrein.models.arguments import read_arguments

CALL_FENCES = frozenset({"tool", "tool_call", "tool_calls", "tool_code", "tool_use"})
"""Info strings of fences that hold calls."""
_LINE = r"[^\n]*\n?"
_FENCE = r" {0,3}(`{3,}|~{3,})[ \t]*([^\s`]*)"
_CALL = r" {0,3}tool:[ \t]*([A-Za-z_][\w.-]*)[ \t]*(?=[({])"
_TAG = r" {0,3}<tool_call>\s*(?=\{)"
_TAG_OPEN = r" {0,3}<tool_call>"
_RESULT = r" {0,3}tool_result[ \t]*\("
_MARKS = r'["\\{}\[\]]'
_AFTER = r"[ \t]*\)?[ \t]*[.;]?[ \t]*(?:\s*</tool_call>)?[ \t]*"
_STARTS = ("tool:", "tool_result(", "<tool_call>", "```", "~~~")


@cache
def _re(pattern: str) -> re.Pattern[str]:
    """Compiled on first use: most sessions never speak the text protocol."""
    return re.compile(pattern)


class TextCall(msgspec.Struct, frozen=True):
    """A call as it was written."""

    name: str
    """Tool name."""
    received: str
    """What stands for its arguments."""
    arguments: dict[str, Any] | None
    """The same as an object; None when it is none."""


def split_calls(text: str) -> list[str | TextCall]:
    """Text and calls in their order. Blanks around text are dropped."""
    found = [part.strip() if isinstance(part, str) else part for part in _joined(_parts(text))]
    return [part for part in found if part]


START_CHARS = 64
"""What is kept of the start of a line: longer than any that may be a call's."""


class LiveText:
    """Text as it streams: hands on what is surely no call, holds back from the first line that is one."""

    def __init__(self) -> None:
        self._shown: list[str] = []
        self._line: list[str] = []
        """Pieces of the line that has not ended."""
        self._line_shown = 0
        """How many of them were handed on."""
        self._start = ""
        """How that line begins, blanks aside."""
        self._fence = ""
        self._held = False

    @property
    def shown(self) -> str:
        """All that was handed on."""
        return "".join(self._shown)

    def feed(self, text: str) -> str:
        """More text; what may be shown of it and of what was held back. Each piece is looked at once."""
        first = len(self._shown)
        for piece in text.splitlines(keepends=True):
            if self._held:
                break
            self._line.append(piece)
            if len(self._start) < START_CHARS:
                self._start = (self._start + (piece if self._start else piece.lstrip(" ")))[: 2 * START_CHARS]
            whole = piece.endswith("\n")
            if not self._may_show(whole=whole):
                continue
            self._shown += self._line[self._line_shown :]
            self._line_shown = len(self._line)
            if whole:
                self._line, self._line_shown, self._start = [], 0, ""
        return "".join(self._shown[first:])

    def _may_show(self, *, whole: bool) -> bool:
        start = self._start
        if not whole:
            return bool(self._fence) or not any(start.startswith(w) or w.startswith(start) for w in _STARTS)
        line = "".join(self._line)
        mark = _re(_FENCE).match(line)
        if self._fence:
            closes = mark is not None and mark[1].startswith(self._fence) and not mark[2]
            self._fence = "" if closes else self._fence
        elif mark is not None and mark[2].lower() not in CALL_FENCES:
            self._fence = mark[1]
        else:
            self._held = mark is not None or any(_re(p).match(line) for p in (_CALL, _TAG_OPEN, _RESULT))
        return not self._held


def _joined(parts: Iterator[str | TextCall]) -> Iterator[str | TextCall]:
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
            continue
        yield text
        yield part
        text = ""
    yield text


def _parts(text: str) -> Iterator[str | TextCall]:
    at, fence, holds_calls = 0, "", False
    while at < len(text):
        line = _re(_LINE).match(text, at)
        assert line is not None
        end = line.end()
        mark = _re(_FENCE).match(line[0])
        if mark is not None and (not fence or (mark[1].startswith(fence) and not mark[2])):
            was_calls, holds_calls = holds_calls, not fence and mark[2].lower() in CALL_FENCES
            fence = "" if fence else mark[1]
            yield "" if holds_calls or was_calls else line[0]
        elif fence and not holds_calls:
            yield line[0]
        elif _re(_RESULT).match(line[0]):
            return
        elif (found := _call_at(text, at, bare=holds_calls)) is not None:
            call, end = found
            yield call
        else:
            yield line[0]
        at = end


def _call_at(text: str, at: int, *, bare: bool) -> tuple[TextCall, int] | None:
    """The call that begins at `at`, and where it ends."""
    if (match := _re(_CALL).match(text, at)) is not None:
        start = match.end() + (text[match.end()] == "(")
        return _named(match[1], text, start)
    tag = _re(_TAG).match(text, at)
    start = tag.end() if tag is not None else at
    if tag is None and not (bare and text[at:].lstrip().startswith("{")):
        return None
    start += len(text[start:]) - len(text[start:].lstrip())
    received, end = _object(text, start)
    whole = repaired(received) or {}
    name = whole.get("name") or whole.get("tool")
    arguments: object = next((whole[key] for key in ("arguments", "args", "parameters", "input") if key in whole), {})
    if not isinstance(name, str):
        return TextCall("unreadable", received, None), end
    return TextCall(name, received, arguments if isinstance(arguments, dict) else read_arguments(str(arguments))), end


def _named(name: str, text: str, start: int) -> tuple[TextCall, int]:
    brace = start + len(text[start:]) - len(text[start:].lstrip())
    if text[brace : brace + 1] == ")" and text[start - 1] == "(":
        return TextCall(name, "", {}), _skip(text, brace)
    if text[brace : brace + 1] != "{":
        line = _re(_LINE).match(text, start)
        received = line[0].strip() if line else ""
        return TextCall(name, received.removesuffix(")"), None), start + len(line[0] if line else "")
    received, end = _object(text, brace)
    return TextCall(name, received, repaired(received)), end


def _object(text: str, start: int) -> tuple[str, int]:
    """The balanced object at `start` and where what belongs to it ends; all the rest when it is never closed."""
    depth, quoted, at = 0, False, start
    while (mark := _re(_MARKS).search(text, at)) is not None:
        at = mark.end()
        if mark[0] == "\\":
            at += quoted
        elif mark[0] == '"':
            quoted = not quoted
        elif not quoted:
            depth += 1 if mark[0] in "{[" else -1
            if depth <= 0:
                return text[start:at], _skip(text, at)
    return text[start:], len(text)


def _skip(text: str, at: int) -> int:
    after = _re(_AFTER).match(text, at)
    return after.end() if after else at


# --- repair ------------------------------------------------------------------------------------------------------

_STRING = r'(?s)"(?:[^"\\]|\\.)*"'
_COMMA = r",(\s*[}\]])"
_ANY_STRING = r"""(?s)\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"""
_WORD = r"\b(?:True|False|None)\b"
_ESCAPED = r"(?s)\\."
_BARE_QUOTE = r'((?:^|[^\\])(?:\\\\)*)"'
_RAW = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def repaired(received: str) -> dict[str, Any] | None:
    """The object in `received`, with raw line breaks in strings, commas too many and Python spelling forgiven."""
    value = read_arguments(received) if received.strip() else None
    if value is not None or not received.strip():
        return value
    escaped = _re(_STRING).sub(lambda match: re.sub(r"[\n\r\t]", lambda raw: _RAW[raw[0]], match[0]), received)
    value = read_arguments(_without_commas(escaped))
    return value if value is not None else _python(received)


def _without_commas(text: str) -> str:
    """`text` without commas before a closing bracket; strings are left alone."""
    parts, at = [], 0
    for string in _re(_STRING).finditer(text):
        parts += [_re(_COMMA).sub(r"\1", text[at : string.start()]), string[0]]
        at = string.end()
    return "".join((*parts, _re(_COMMA).sub(r"\1", text[at:])))


def _python(text: str) -> dict[str, Any] | None:
    """`text` as a Python literal: single quotes, `True`, `None`."""
    parts, at = [], 0
    for string in _re(_ANY_STRING).finditer(text):
        parts += [_words(text[at : string.start()]), _double_quoted(string[0])]
        at = string.end()
    return read_arguments(_without_commas("".join((*parts, _words(text[at:])))))


def _words(code: str) -> str:
    return _re(_WORD).sub(lambda match: {"True": "true", "False": "false", "None": "null"}[match[0]], code)


def _double_quoted(string: str) -> str:
    if string.startswith('"'):
        return string
    inner = _re(_ESCAPED).sub(lambda match: "'" if match[0] == "\\'" else match[0], string[1:-1])
    return '"' + _re(_BARE_QUOTE).sub(lambda match: match[1] + '\\"', inner) + '"'

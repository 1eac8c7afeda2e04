"""Decoding of files and command output, and text that is safe to show.

`decode` is lossless: for every text file, `style.encode(decode(data).text)` is `data`. So `Edit`
can change one line of a CRLF file in UTF-16 with two broken characters, and only that line differs.
`clean` removes terminal escapes and control characters from command output.
"""

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

import msgspec

from longrein.workspace.text_decoding import (
    HARMLESS,
    LINE_BYTES,
    PRINTABLE,
    decode_text,
    encode_text,
    wide_encoding,
)
from longrein_context.events.escape import valid_text

T = TypeVar("T")

# --- Safe text for wires and terminals ------------------------------------------------------------
#
# Removed: NUL, control characters, terminal escapes, text that a carriage return overwrote, invalid
# encoding. Kept: newline, tab, everything printable. Clean text takes one scan, since output can be
# 30 MB.


CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))
"""Characters that are removed after escapes and carriage returns."""
PICTURES = {code: 0x2400 + code for code in (*range(9), *range(11, 32))} | {127: 0x2421}
"""Control characters of a file and their visible replacements."""


ESCAPES = (
    r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?"
)
"""Terminal escapes as a regular expression: OSC and other strings, CSI, short ones."""


def clean(data: bytes) -> str:
    """Decode a program's output to safe text: no escapes or controls; of a progress line the
    last state.
    """
    if not data.translate(None, PRINTABLE):
        return data.decode("ascii")
    text = data.decode(wide_encoding(data) or "utf-8", "replace").removeprefix("\ufeff")
    if not data.translate(None, HARMLESS) and b"\xc2" not in data:
        return text
    return clean_text(text)


def clean_text(text: str) -> str:
    """Clean text as `clean` does."""
    if "\x1b" in text or any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        text = re.sub(ESCAPES, "", text)
    if "\r" in text:
        lines = text.replace("\r\n", "\n").split("\n")
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in lines)
    text = text.translate(CONTROLS)
    return valid_text(text)


def visible(text: str) -> str:
    """Replace control characters by pictures (␀ ␛ …), and C1 controls and lone surrogates by
    U+FFFD.
    """
    text = text.translate(PICTURES)
    return text if text.isascii() else re.sub("[\x80-\x9f\ud800-\udfff]", "\ufffd", text)


def cut_head(data: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes from the start, cut after a line if possible, else between
    characters.
    """
    if len(data) <= limit:
        return data
    end = data.rfind(b"\n", 0, limit) + 1
    return data[: end or char_boundary(data, range(limit, max(limit - 4, 0), -1))]


def cut_tail(data: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes from the end, cut before a line if possible, else between
    characters.
    """
    if len(data) <= limit:
        return data
    start = len(data) - limit
    line = data.find(b"\n", start - 1, len(data) - 1) + 1
    return data[line or char_boundary(data, range(start, min(start + 4, len(data)))) :]


def char_boundary(data: bytes, places: range) -> int:
    """Return the first of `places` that does not split a UTF-8 character, else the first of all."""
    return next((at for at in places if data[at] & 0xC0 != 0x80), places.start)


def size_words(count: int) -> str:
    """Return a size such as `812 bytes`, `4.2 kB` or `31.0 MB`."""
    if count < 1000:
        return "1 byte" if count == 1 else f"{count} bytes"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def counted(count: int, word: str) -> str:
    """Return a count such as `1 line`, `3 lines` or `12,000 lines`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


# --- Lossless decoding of text files --------------------------------------------------------------


ENCODING_NAMES = {
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "gbk": "GBK",
    "gb18030": "GB18030",
    "cp950": "Big5",
    "big5hkscs": "Big5 with Hong Kong characters",
    "cp932": "Shift-JIS",
    "cp949": "EUC-KR",
    "euc_jp": "EUC-JP",
    "cp1252": "Windows-1252",
    "latin-1": "Latin-1 or unknown 8-bit encoding",
}
"""Encodings other than UTF-8 by their usual names."""


class Style(msgspec.Struct, frozen=True):
    """Encoding of a text file: character set, byte order mark and line ends."""

    encoding: str = "utf-8"
    """`utf-8` or one of `ENCODING_NAMES`."""
    bom: bytes = b""
    """Byte order mark at the start."""
    eol: str = "\n"
    """Most frequent line end: LF, CRLF or CR; LF when there is none."""
    mixed: bool = False
    """True if other line ends occur too."""

    def encode(self, text: str) -> bytes:
        """Encode `text` with unchanged line ends. Raises UnicodeEncodeError for characters the
        encoding lacks.
        """
        return self.bom + encode_text(text, self.encoding)

    def words(self) -> str:
        """Describe an unusual style, such as `UTF-16, CRLF line ends`; '' for UTF-8 with LF."""
        said = []
        if self.encoding != "utf-8":
            said.append(ENCODING_NAMES[self.encoding])
        elif self.bom:
            said.append("byte order mark")
        if self.mixed:
            said.append("mixed line ends")
        elif self.eol != "\n":
            said.append("CRLF line ends" if self.eol == "\r\n" else "CR line ends")
        return ", ".join(said)


PLAIN_STYLE = Style()


class Decoded(msgspec.Struct, frozen=True):
    """Decoded text file."""

    text: str
    """Whole text without the byte order mark, with its line ends. Bytes that are not UTF-8 are
    lone surrogates.
    """
    style: Style
    odd: bool = False
    """True if `text` may hold control characters or invalid bytes, which `visible` must replace."""


def decode(data: bytes) -> Decoded | None:
    """Decode a text file; None for a binary one."""
    if not data.translate(None, PRINTABLE):
        return Decoded(data.decode("ascii"), PLAIN_STYLE)
    found = decode_text(data)
    if found is None:
        return None
    is_plain = found.encoding == "utf-8" and not found.broken
    is_odd = not is_plain or bool(data.translate(None, LINE_BYTES)) or b"\xc2" in data
    return Decoded(found.text, style_of(found.text, found.encoding, found.bom), is_odd)


def style_of(text: str, encoding: str, bom: bytes) -> Style:
    """Return the style of `text`, with its most frequent line end."""
    if "\r" not in text:
        return Style(encoding, bom)
    both = text.count("\r\n")
    alone, cr = text.count("\n") - both, text.count("\r") - both
    if both >= max(alone, cr):
        eol = "\r\n"
    elif alone >= cr:
        eol = "\n"
    else:
        eol = "\r"
    return Style(encoding, bom, eol, mixed=[both, alone, cr].count(0) < 2)


def lines_of(text: str) -> list[str]:
    """Split into lines without their ends. A last line end does not begin another line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        text = text if "\n" in text else text.replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines


def rows_within(
    things: Sequence[T], row: Callable[[T, int], str], room: tuple[int, int], chars_max: int
) -> list[str]:
    """Return a row for each of `things` in `chars_max` characters together: all cut alike, the last
    ones left out where that is not enough.

    `row(thing, chars)` describes one of them in about `chars` characters, between the two of
    `room`.
    """
    least, chars = room
    rows = [row(thing, chars) for thing in things]
    while (size := sum(map(len, rows))) > chars_max and chars > least:
        chars = max(least, min(chars - 1, chars * chars_max // size))
        rows = [row(thing, chars) for thing in things]
    while sum(map(len, rows)) > chars_max:
        rows.pop()
    return rows

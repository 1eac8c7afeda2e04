"""Bytes from the outside become text that any wire and any terminal can carry.

Gone: NUL, control characters, terminal escapes, what a carriage return overwrote, broken encodings. Kept: newline and
tab, everything readable. Clean text passes in one scan: 30 MB of output and hundreds of small results come this way.
"""

import re
from functools import cache

PRINTABLE = bytes([9, 10, *range(32, 127)])
"""Bytes of ASCII text that need no cleaning."""
HARMLESS = PRINTABLE + bytes(range(128, 256))
"""The same when bytes of other scripts are there."""
CONTROLS = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160)))
"""What is removed after escapes and carriage returns have been dealt with."""
PICTURES = {code: 0x2400 + code for code in (*range(9), *range(11, 32))} | {127: 0x2421}
"""Control characters of a file, each shown as one visible character."""


@cache
def escapes() -> re.Pattern[str]:
    """Terminal escapes: OSC and other strings up to their end or the line's, CSI, short ones. Compiled at first use."""
    strings = r"(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\n\x07\x1b\x9c]*(?:\x07|\x1b\\|\x9c)?"
    return re.compile(strings + r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]?|\x1b[ -/]*[0-~]?")


def clean(data: bytes) -> str:
    """Output of a program as safe text: decoded, without escapes and controls, progress lines as they last stood."""
    if not data.translate(None, PRINTABLE):
        return data.decode("ascii")
    text = decode_output(data)
    if not data.translate(None, HARMLESS) and b"\xc2" not in data:
        return text
    return clean_text(text)


def clean_text(text: str) -> str:
    """The same for text."""
    if "\x1b" in text or any(mark in text for mark in "\x90\x98\x9b\x9d\x9e\x9f"):
        text = escapes().sub("", text)
    if "\r" in text:
        text = overwrite(text.replace("\r\n", "\n"))
    text = text.translate(CONTROLS)
    return text if text.isascii() else re.sub("[\ud800-\udfff]", "\ufffd", text)


def overwrite(text: str) -> str:
    """Each line as a terminal would show it after its carriage returns (the last non-empty state)."""
    if "\r" not in text:
        return text
    lines = text.split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2] if "\r" in line else line for line in lines)


def decode_output(data: bytes) -> str:
    """Text in UTF-8, or UTF-16 when it plainly is that; bytes that are neither become U+FFFD."""
    wide = wide_encoding(data)
    return data.decode(wide or "utf-8", "replace").removeprefix("\ufeff")


def wide_encoding(data: bytes) -> str:
    """`utf-16-le` or `utf-16-be` when a BOM or the place of its NULs says so, else ''."""
    if data.startswith(b"\xff\xfe") and not data.startswith(b"\xff\xfe\0\0"):
        return "utf-16-le"
    if data.startswith(b"\xfe\xff"):
        return "utf-16-be"
    sample = data[:512]
    if len(sample) < 8 or b"\0" not in sample:
        return ""
    half = len(sample) // 2
    low, high = sample[0::2].count(0), sample[1::2].count(0)
    if high > half * 0.7 and low < half * 0.1:
        return "utf-16-le"
    return "utf-16-be" if low > half * 0.7 and high < half * 0.1 else ""


def visible(text: str) -> str:
    """A file's text with control characters as pictures (␀ ␛ …), C1 controls and lone surrogates as U+FFFD."""
    text = text.translate(PICTURES)
    return text if text.isascii() else re.sub("[\x80-\x9f\ud800-\udfff]", "\ufffd", text)


def cut_head(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes from the start, ending with a line if one ends there, else between characters."""
    if len(data) <= limit:
        return data
    end = data.rfind(b"\n", 0, limit) + 1
    return data[: end or between(data, limit)]


def cut_tail(data: bytes, limit: int) -> bytes:
    """At most `limit` bytes from the end, beginning with a line if one begins there, else between characters."""
    if len(data) <= limit:
        return data
    start = len(data) - limit
    line = data.find(b"\n", start - 1, len(data) - 1) + 1
    return data[line:] if line else data[after(data, start) :]


def between(data: bytes, at: int) -> int:
    """The last place up to `at` that does not split a UTF-8 character."""
    for place in range(at, max(at - 4, 0), -1):
        if data[place] & 0xC0 != 0x80:
            return place
    return at


def after(data: bytes, at: int) -> int:
    """The first place from `at` on that does not split a UTF-8 character."""
    for place in range(at, min(at + 4, len(data))):
        if data[place] & 0xC0 != 0x80:
            return place
    return at


def size_words(count: int) -> str:
    """`812 bytes`, `4.2 kB`, `31.0 MB`."""
    if count < 1000:
        return "1 byte" if count == 1 else f"{count} bytes"
    return f"{count / 1000:.1f} kB" if count < 1_000_000 else f"{count / 1_000_000:.1f} MB"


def counted(count: int, word: str) -> str:
    """`1 line`, `3 lines`, `12,000 lines`."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"

"""A text file's encoding, byte order mark and line ends: read so that writing back gives the same bytes.

`decode` is lossless: for every text file, `style.encode(decode(data).text)` is `data`. So `Edit` can change one line
of a CRLF file in UTF-16 with two broken characters, and only that line differs.
"""

import codecs

import msgspec

from longrein.tools.text import HARMLESS, PRINTABLE, wide_encoding

BOMS = {"utf-8": codecs.BOM_UTF8, "utf-16-le": codecs.BOM_UTF16_LE, "utf-16-be": codecs.BOM_UTF16_BE}
LINE_BYTES = HARMLESS + b"\r"
"""Bytes of a text file whose characters need no second look."""


class Style(msgspec.Struct, frozen=True):
    """How a file's text is turned into bytes."""

    encoding: str = "utf-8"
    """`utf-8`, `utf-16-le`, `utf-16-be` or `latin-1`."""
    bom: bytes = b""
    """Byte order mark it begins with."""
    eol: str = "\n"
    """The commonest line end: LF, CRLF or CR; LF when there is none."""
    mixed: bool = False
    """Whether other line ends occur too."""

    def encode(self, text: str) -> bytes:
        """Bytes of `text` (its line ends as they are). Raises UnicodeEncodeError for what the encoding lacks."""
        errors = {"utf-8": "surrogateescape", "latin-1": "strict"}.get(self.encoding, "surrogatepass")
        return self.bom + text.encode(self.encoding, errors)

    def words(self) -> str:
        """What is unusual about it, such as `UTF-16, CRLF line ends`; '' for UTF-8 with LF."""
        said = []
        if self.encoding != "utf-8":
            said.append("Latin-1 or unknown 8-bit encoding" if self.encoding == "latin-1" else "UTF-16")
        elif self.bom:
            said.append("byte order mark")
        if self.eol != "\n" or self.mixed:
            said.append("mixed line ends" if self.mixed else "CRLF line ends" if self.eol == "\r\n" else "CR line ends")
        return ", ".join(said)


PLAIN_STYLE = Style()


class Decoded(msgspec.Struct, frozen=True):
    """A text file."""

    text: str
    """All of it without the byte order mark, line ends untouched. Bytes that are no UTF-8 are lone surrogates."""
    style: Style
    odd: bool = False
    """Whether it may hold control characters or broken bytes, which must be shown as something else."""


def decode(data: bytes) -> Decoded | None:
    """The text of a file, or None when it is binary."""
    if not data.translate(None, PRINTABLE):
        return Decoded(data.decode("ascii"), PLAIN_STYLE)
    wide = wide_encoding(data)
    if wide:
        return decode_wide(data, wide)
    if b"\0" in data:
        return None
    bom = codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b""
    body = data[len(bom) :]
    odd = bool(body.translate(None, LINE_BYTES)) or b"\xc2" in body
    try:
        text, encoding = body.decode("utf-8"), "utf-8"
    except UnicodeDecodeError:
        text, encoding = decode_broken(body)
        odd = True
        if looks_binary(body):
            return None
    return Decoded(text, style_of(text, encoding, bom), odd)


def decode_wide(data: bytes, encoding: str) -> Decoded | None:
    """UTF-16 with or without its mark."""
    bom = BOMS[encoding] if data.startswith(BOMS[encoding]) else b""
    if len(data) % 2:
        return None
    text = data[len(bom) :].decode(encoding, "surrogatepass")
    return Decoded(text, style_of(text, encoding, bom), True)


def decode_broken(data: bytes) -> tuple[str, str]:
    """UTF-8 with some bad bytes, or an 8-bit encoding when bad bytes outnumber the good characters."""
    text = data.decode("utf-8", "surrogateescape")
    bad = sum(1 for char in text if "\udc80" <= char <= "\udcff")
    good = sum(1 for char in text if char > "\x7f") - bad
    return (text, "utf-8") if good >= bad else (data.decode("latin-1"), "latin-1")


def looks_binary(data: bytes) -> bool:
    """Many control characters: no text, whatever its encoding."""
    sample = data[:8192]
    return len(sample.translate(None, LINE_BYTES + b"\x0c\x1b")) * 20 > len(sample)


def style_of(text: str, encoding: str, bom: bytes) -> Style:
    """The style with the line ends counted."""
    if "\r" not in text:
        return Style(encoding, bom)
    both = text.count("\r\n")
    alone, cr = text.count("\n") - both, text.count("\r") - both
    eol = "\r\n" if both >= max(alone, cr) else "\n" if alone >= cr else "\r"
    return Style(encoding, bom, eol, mixed=sum(1 for count in (both, alone, cr) if count) > 1)


def lines_of(text: str) -> list[str]:
    """Lines without their ends, for showing. A last line end does not begin another line."""
    if "\r" in text:
        text = text.replace("\r\n", "\n")
        text = text if "\n" in text else text.replace("\r", "\n")
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return lines

"""Finding and replacing text in a file, pure. Lines that end otherwise than the model wrote still match."""

import re

import msgspec

LINE_END = "(?>\r\n|\n|\r)"
"""Any line end; atomic, so that CRLF never counts as two."""


class Site(msgspec.Struct, frozen=True):
    """One place to change."""

    start: int
    """Index of the first character."""
    end: int
    """Index after the last."""
    new: str
    """What is put there, with the line ends of the place."""


def sites_of(text: str, old: str, new: str, eol: str) -> list[Site]:
    """Every place where `old` stands, left to right, overlapping ones not counted. `old` must not be empty.

    Line ends of `old` match any of the file's; `new` gets those that stand at the place, else `eol`.
    """
    if "\r" not in text:
        found = plain_finds(text, old)
        if not found and "\r" in old:
            old, new = unix(old), unix(new)
            found = plain_finds(text, old)
        return [Site(at, at + len(old), new) for at in found]
    flat = unix(new)
    return [
        Site(match.start(), match.end(), flat.replace("\n", eol_from(text, match.start(), eol)))
        for match in pattern_of(old).finditer(text)
    ]


def pattern_of(old: str) -> re.Pattern[str]:
    """`old` with each of its line ends standing for any."""
    return re.compile(LINE_END.join(map(re.escape, unix(old).split("\n"))))


def unix(text: str) -> str:
    """`text` with LF for every line end."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def plain_finds(text: str, old: str) -> list[int]:
    """Starts of `old` in `text`, as `str.replace` would find them."""
    found, at = [], text.find(old)
    while at >= 0:
        found.append(at)
        at = text.find(old, at + len(old))
    return found


def eol_from(text: str, start: int, usual: str) -> str:
    """The first line end at or after a place, `usual` when there is none."""
    match = re.compile(LINE_END).search(text, start)
    return match.group() if match else usual


def ambiguous(text: str, old: str, site: Site) -> bool:
    """Whether `old` also stands one or more characters into the only place where it was found (`aa` in `aaa`)."""
    if "\r" not in text:
        return text.find(text[site.start : site.end], site.start + 1) >= 0
    again = pattern_of(old).search(text, site.start + 1)
    return again is not None and not (text[again.start() - 1] == "\r" and text[again.start()] == "\n")


def replaced(text: str, sites: list[Site]) -> str:
    """`text` with every site changed and nothing else."""
    pieces: list[str] = []
    at = 0
    for site in sites:
        pieces += (text[at : site.start], site.new)
        at = site.end
    return "".join(pieces) + text[at:]


def line_at(text: str, at: int) -> int:
    """1-based line of an index, as `Read` counts."""
    return text.count("\n" if "\n" in text else "\r", 0, at) + 1

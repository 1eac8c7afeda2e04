"""Search program in Python, for machines without `rg`: prints what `rg` would print.

Run as `python -I -m longrein.workspace.python_search <query as JSON> <path>`. Exit code 0, or 2
with the reason.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator

import msgspec

from longrein.workspace.file_search import Query, glob_test
from longrein.workspace.files import read, stat_real
from longrein.workspace.walk import entries
from longrein_context.events.escape import regular_expression

FILE_BYTES_MAX = 64 << 20
"""Larger files are skipped."""

CLASSES = {
    "alpha": "A-Za-z",
    "digit": "0-9",
    "alnum": "A-Za-z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9A-Fa-f",
    "word": r"\w",
    "blank": r" \t",
}


def compile_pattern(query: Query) -> re.Pattern[str]:
    """Compile the pattern in Python's dialect. Raises `re.error`."""
    text = re.sub(
        r"\[:(\w+):\]", lambda found: CLASSES.get(found[1], found[0]), query.pattern
    ).replace(r"\z", r"\Z")
    flags = (
        re.MULTILINE
        | (re.IGNORECASE if query.ignore_case else 0)
        | (re.DOTALL if query.multiline else 0)
    )
    return regular_expression(text, flags)


def files_of(query: Query) -> Iterator[str]:
    """Yield the files to search, in name order."""
    if not os.path.isdir(query.path):
        yield query.path
        return
    wanted = glob_test(query)
    for path, is_folder in entries(query.path, lambda _: True):
        if not is_folder and wanted(path):
            yield path


def text_of(path: str) -> str | None:
    """Read a file as text; None for binary, too large or missing files and for links."""
    try:
        if not stat.S_ISREG(stat_real(path).st_mode):
            return None
        data = read(path, FILE_BYTES_MAX + 1)
    except OSError:
        return None
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    if len(data) > FILE_BYTES_MAX or b"\0" in data:
        return None
    return data.decode("utf-8", "surrogateescape")


def matching(pattern: re.Pattern[str], text: str, multiline: bool) -> dict[int, bool]:
    """Return the 0-based numbers of the lines that a match touches, in order."""
    if not multiline:
        return {at: True for at, line in enumerate(_lines(text)) if pattern.search(line)}
    found: dict[int, bool] = {}
    for match in pattern.finditer(text):
        first = text.count("\n", 0, match.start())
        last = first + text.count("\n", match.start(), max(match.start(), match.end() - 1))
        found.update(dict.fromkeys(range(first, last + 1), True))
    return found


def _lines(text: str) -> list[str]:
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []


def with_context(matches: dict[int, bool], lines: int, query: Query) -> dict[int, bool]:
    """Return the line numbers to print; True for matches."""
    wanted: dict[int, bool] = {}
    for at in matches:
        for near in range(max(0, at - query.before), min(lines, at + query.after + 1)):
            wanted[near] = near in matches
    return dict(sorted(wanted.items()))


def show(path: str, query: Query, matches: dict[int, bool], lines: list[str]) -> Iterator[bytes]:
    """Yield the output for one file with matches."""
    wanted = with_context(matches, len(lines), query)
    pattern = compile_pattern(query)
    for at in list(matches)[:1] if query.mode == "files" else wanted:
        found = pattern.finditer(lines[at]) if query.only_matching else ()
        data = {
            "path": _text(os.fsencode(path)),
            "lines": _text(os.fsencode(lines[at] + "\n")),
            "line_number": at + 1,
            "submatches": [{"match": _text(os.fsencode(one[0]))} for one in found],
        }
        kind = "match" if wanted[at] else "context"
        yield msgspec.json.encode({"type": kind, "data": data}) + b"\n"


def _text(data: bytes) -> dict[str, object]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"bytes": data}


def search(query: Query) -> Iterator[bytes]:
    """Yield all output. Raises `re.error` before the first piece."""
    if query.mode == "names":
        for path in files_of(query):
            if not os.path.islink(path):
                yield os.fsencode(path) + b"\0"
        return
    pattern = compile_pattern(query)
    for path in files_of(query):
        text = text_of(path)
        matches = {} if text is None else matching(pattern, text, query.multiline)
        if text is not None and matches:
            yield from show(path, query, matches, _lines(text))


def main(asked: str, path: str) -> int:
    """Search and print. `path` is not part of the query because JSON cannot hold every path."""
    query = msgspec.structs.replace(msgspec.json.decode(asked, type=Query), path=path)
    try:
        for piece in search(query):
            sys.stdout.buffer.write(piece)
    except re.error as error:
        sys.stdout.write(f"the pattern is no regular expression: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))

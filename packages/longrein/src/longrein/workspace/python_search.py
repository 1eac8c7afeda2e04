"""Search program in Python, for machines without `rg`: prints what `rg` would print.

Run as `python -I -m longrein.workspace.python_search <query as JSON> <path>`. Exit code 0, or 2
with the reason. With a third argument `listed` it searches the files that its input names, with a
NUL between them.
"""

import os
import re
import stat
import sys
from collections.abc import Iterator
from itertools import islice

import msgspec

from longrein.workspace.file_search import (
    EVENT_BYTES_MAX,
    LISTED,
    MATCHES_MAX,
    Query,
    glob_test,
    json_text,
    shortened_event,
)
from longrein.workspace.files import read, stat_real
from longrein.workspace.text_decoding import decode_text, is_binary, wide_encoding
from longrein.workspace.walk import entries
from longrein_context.events.escape import regular_expression, valid_text

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


def files_of(query: Query, skipped: dict[str, str]) -> Iterator[str]:
    """Yield the files to search, in name order. Unreadable folders are added to `skipped`."""
    if not os.path.isdir(query.path):
        yield query.path
        return

    def enter(path: str) -> bool:
        if os.access(path, os.R_OK | os.X_OK):
            return True
        skipped[path] = "permission denied"
        return False

    wanted = glob_test(query)
    if enter(query.path):
        for path, is_folder in entries(query.path, enter):
            if not is_folder and wanted(path):
                yield path


def text_of(path: str) -> str | None:
    """Read a file as text; None for a binary or missing file and for a link. Raises OSError for one
    that is too large or cannot be read.
    """
    try:
        status = stat_real(path)
        if not stat.S_ISREG(status.st_mode):
            return None
        if status.st_size > FILE_BYTES_MAX:
            raise OSError(f"larger than {FILE_BYTES_MAX >> 20} MB")
        data = read(path, FILE_BYTES_MAX)
    except FileNotFoundError:
        return None
    if is_binary(data):
        return None
    found = decode_text(data if wide_encoding(data) else data.replace(b"\0", b"?"))
    if found is None:
        return None
    return valid_text(found.text) if found.encoding.startswith("utf-16") else found.text


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
        found = islice(pattern.finditer(lines[at]), MATCHES_MAX if query.only_matching else 1)
        data = {
            "path": json_text(os.fsencode(path)),
            "lines": json_text(os.fsencode(lines[at] + "\n")),
            "line_number": at + 1,
            "submatches": [_submatch(one) for one in found] if wanted[at] else [],
        }
        kind = "match" if wanted[at] else "context"
        event = msgspec.json.encode({"type": kind, "data": data})
        yield (shortened_event(event) if len(event) > EVENT_BYTES_MAX else event) + b"\n"


def _submatch(found: re.Match[str]) -> dict[str, object]:
    before = os.fsencode(found.string[: found.start()])
    return {"match": json_text(os.fsencode(found[0])), "start": len(before)}


def search(query: Query, listed: list[str] | None = None) -> Iterator[bytes]:
    """Yield all output, of the files `listed` if they are given. Raises `re.error` before the first
    piece.
    """
    skipped: dict[str, str] = {}
    files = files_of(query, skipped) if listed is None else listed
    if query.mode == "names":
        for path in files:
            if not os.path.islink(path):
                yield os.fsencode(path) + b"\0"
        return
    pattern = compile_pattern(query)
    for path in files:
        try:
            text = text_of(path)
        except OSError as error:
            skipped[path] = error.strerror.lower() if error.strerror else str(error)
            continue
        if text is None and path == query.path and os.path.isfile(path):
            skipped[path] = "a binary file"
        matches = {} if text is None else matching(pattern, text, query.multiline)
        if text is not None and matches:
            yield from show(path, query, matches, _lines(text))
    for path, reason in skipped.items():
        told = {"path": json_text(os.fsencode(path)), "reason": reason}
        yield msgspec.json.encode({"type": "skipped", "data": told}) + b"\n"


def main(asked: str, path: str, source: str = "") -> int:
    """Search and print. `path` is not part of the query because JSON cannot hold every path."""
    listed = None
    if source == LISTED:
        listed = sorted(os.fsdecode(sys.stdin.buffer.read()).split("\0"))
    query = msgspec.structs.replace(msgspec.json.decode(asked, type=Query), path=path)
    try:
        for piece in search(query, listed):
            sys.stdout.buffer.write(piece)
    except re.error as error:
        sys.stdout.write(f"the pattern is no regular expression: {error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""Search files by name and lines by content, with `rg` or the same in Python.

`rg` is used when it is found outside the roots. Either runs as a command through the spawner, so a
slow pattern or an endless tree costs a timeout and not the session. Both print the same form. They
include hidden files but never `.git`, obey `.gitignore` inside and outside git repositories and no
other ignore file, follow no links, and skip binary files.
"""

import asyncio
import binascii
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any, Literal

import msgspec

from longrein.workspace.command_output import CollectingSink
from longrein.workspace.files import find_program, open_regular, spellings
from longrein.workspace.supervisor.openat import Folder, open_folder
from longrein.workspace.walk import compile_glob, name_glob
from longrein.workspace.workspace_port import CommandExit, CommandSpec, Workspace

Mode = Literal["files", "content", "count", "names"]
SEARCH_S = 10.0
"""Longest search in seconds; what was found by then is returned as partial."""
CONTENT_BYTES_MAX = 8 << 20
NAMES_BYTES_MAX = 64 << 20
"""Longest raw output of a search."""


IsHidden = Callable[[str], bool]
"""Tells whether a path is left out of the results."""
FILES_A_GO = 2000
"""Files looked at before the event loop gets its turn: about 5 ms."""


class Query(msgspec.Struct, frozen=True):
    """A search."""

    path: str
    """Absolute real path of a folder, or of one file (searched even if ignored)."""
    pattern: str = ""
    """Regular expression."""
    glob: str = ""
    """Only files of this name: `*.py` at any depth, `src/**/*.py` from `path`; `!` in front
    excludes.
    """
    mode: Mode = "files"
    """`files`: files with a match, newest first. `content`: lines. `count`: matching lines per
    file. `names`: files.
    """
    ignore_case: bool = False
    multiline: bool = False
    """A match may span lines, and `.` matches line ends."""
    before: int = 0
    """Lines of context."""
    after: int = 0
    limit: int = 250
    """Most lines, files or counts returned."""
    offset: int = 0
    """Lines, files or counts left out before them."""
    only_matching: bool = False
    """Of a line only what matches, each match by itself."""


class Line(msgspec.Struct, frozen=True):
    """A line of a file."""

    path: str
    number: int
    """1-based."""
    text: str
    """Without its line end. `surrogateescape` for bytes that are not UTF-8."""
    match: bool
    """False for context."""


class SearchResult(msgspec.Struct, frozen=True):
    """Result of a search. Paths are absolute."""

    paths: tuple[str, ...] = ()
    """Modes `files` and `names`."""
    lines: tuple[Line, ...] = ()
    """Mode `content`, by path and number."""
    counts: tuple[tuple[str, int], ...] = ()
    """Mode `count`, by path."""
    more: bool = False
    """True when the limit cut the result."""
    partial: str = ""
    """Reason for an incomplete search: `time`, `size`, `changed` (files changed meanwhile); ''
    for a complete one.
    """
    error: str = ""
    """Reason why nothing could be searched, for the model."""


async def grep(workspace: Workspace, query: Query, hidden: IsHidden | None = None) -> SearchResult:
    """Search lines. Never raises for what is on the disk or in the pattern."""
    rg = _rg(workspace)
    if rg:  # it opens files by their names, so what it found is looked at again
        found = await _search(workspace, query, rg_words(rg, query), hidden)
        if not found.error:
            return found
    # rg's dialect has no lookaround and takes `{` strictly; Python's often knows what was meant
    return await _search(workspace, query, python_words(query), hidden)


async def glob(
    workspace: Workspace,
    pattern: str,
    folder: str,
    limit: int = 100,
    hidden: IsHidden | None = None,
) -> SearchResult:
    """Find files below `folder` whose relative path matches, newest first, then by name.

    `pattern` is anchored: `*.py` is in `folder` itself, `**/*.py` anywhere below. The caller moves
    a leading part without wildcards, `/` or `..` into `folder` (`split_glob`) after resolving it.
    """
    rg = _rg(workspace)
    query = Query(folder, "", pattern, "names", limit=limit)
    return await _search(
        workspace, query, rg_words(rg, query) if rg else python_words(query), hidden
    )


def _rg(workspace: Workspace) -> str:
    path = workspace.environment("").get("PATH", "")
    beside_python = os.path.dirname(sys.executable)  # where the extra `rg` puts it
    return find_program("rg", f"{path}:{beside_python}", spellings(workspace.roots))


async def _search(
    workspace: Workspace, query: Query, words: list[str], hidden: IsHidden | None
) -> SearchResult:
    taken = CollectingSink()
    most = CONTENT_BYTES_MAX if query.mode == "content" else NAMES_BYTES_MAX
    environment = workspace.environment("")
    ended = await workspace.spawner.run(
        CommandSpec(words, "/", environment),
        sink=taken,
        timeout_s=SEARCH_S,
        output_bytes_max=most,
    )
    return await read_output(query, bytes(taken.data), ended, hidden)


async def read_output(
    query: Query, data: bytes, ended: CommandExit, hidden: IsHidden | None = None
) -> SearchResult:
    """Parse what a search printed."""
    partial = {"timeout": "time", "flood": "size"}.get(ended.cause, "")
    if error := _error_text(data, ended):
        return SearchResult(error=error)
    end = query.offset + query.limit
    wanted = passes = glob_test(query)
    if hidden is not None:
        wanted = cache(
            lambda path: passes(path) and not hidden(path)
        )  # once a file, however many lines match
    if query.mode == "content":
        return _lines(query, data, wanted, partial)
    if query.mode == "names":
        paths = await newest_first(map(os.fsdecode, data.split(b"\0")[:-1]), wanted)
    else:
        found, is_whole = await _matching_files(data, wanted)
        partial = partial or ("" if is_whole else "changed")
        if query.mode == "count":
            counts = tuple(found.items())
            return SearchResult(
                counts=counts[query.offset : end], more=len(counts) > end, partial=partial
            )
        paths = await newest_first(found, lambda _: True)
    return SearchResult(
        paths=tuple(paths[query.offset : end]), more=len(paths) > end, partial=partial
    )


def _error_text(data: bytes, ended: CommandExit) -> str:
    """Reason why nothing was searched; '' otherwise. Code 2 alone may mean one unreadable file."""
    if ended.cause == "not_started":
        return ended.message
    if ended.cause == "exit" and ended.signal:
        return f"the search was ended by {ended.signal}"
    if ended.code in (0, 1, None) or data.startswith((b"/", b'{"')):
        return ""
    return data.decode("utf-8", "replace").strip().removeprefix("rg: ")[:1000]


def glob_test(query: Query) -> Callable[[str], bool]:
    """Return a test whether a path passes the query's glob."""
    if not query.glob or not os.path.isdir(query.path):
        return lambda _: True
    excludes = query.glob.startswith("!")
    matcher = compile_glob(query.glob.removeprefix("!"), anywhere=query.mode != "names")
    start = len(query.path.rstrip("/")) + 1
    return lambda path: (matcher.match(path, start) is None) == excludes


def _lines(query: Query, data: bytes, wanted: Callable[[str], bool], partial: str) -> SearchResult:
    found: list[Line] = []
    end = query.offset + query.limit
    for lines in _standing(data, wanted, only_matching=query.only_matching):
        if lines is None:
            partial = partial or "changed"
            continue
        found += lines
        if len(found) > end:
            break
    shown = tuple(found[query.offset : end])
    return SearchResult(lines=shown, more=len(found) > end, partial=partial)


async def _matching_files(
    data: bytes, wanted: Callable[[str], bool]
) -> tuple[dict[str, int], bool]:
    """Return (file -> its matching lines in the output, False if files have changed meanwhile)."""
    counts, is_whole = dict[str, int](), True
    for at, lines in enumerate(_standing(data, wanted)):
        if lines is None:
            is_whole = False
        elif lines:
            counts[lines[0].path] = counts.get(lines[0].path, 0) + len(lines)
        if at % FILES_A_GO == FILES_A_GO - 1:
            await asyncio.sleep(0)
    return counts, is_whole


def _standing(
    data: bytes, wanted: Callable[[str], bool], *, only_matching: bool = False
) -> Iterator[list[Line] | None]:
    """Yield the lines of each event in the output; None for lines that do not stand in their
    file.
    """
    with FoundFiles() as files:
        for raw in data.split(b"\n"):
            if not raw.startswith((b'{"type":"match"', b'{"type":"context"')):
                continue
            try:
                event = msgspec.json.decode(raw)
            except msgspec.MsgspecError:
                continue  # the last line, where the output was cut
            lines = _split(event, wanted, only_matching=only_matching)
            yield lines if not lines or files.holds(lines[0].path, event["data"]) else None


def _split(
    event: dict[str, Any], wanted: Callable[[str], bool], *, only_matching: bool
) -> list[Line]:
    """The lines of one event; a match that spans lines has several."""
    data = event["data"]
    path = _text(data["path"])
    if not wanted(path):
        return []
    if only_matching:
        matches = (_text(one["match"]) for one in data["submatches"])
        return [Line(path, data["line_number"], text, True) for text in matches]
    texts = _text(data["lines"]).removesuffix("\n").split("\n")
    match = event["type"] == "match"
    return [
        Line(path, number, text.removesuffix("\r"), match)
        for number, text in enumerate(texts, data["line_number"])
    ]


def _text(value: dict[str, str]) -> str:
    """Decode `{"text": …}`, or `{"bytes": …}` in base64 for what is not UTF-8."""
    return value["text"] if "text" in value else os.fsdecode(binascii.a2b_base64(value["bytes"]))


class FoundFiles:
    """Looks again at the files of a result, through descriptors.

    `rg` opens files by name. A program that swaps a folder and a link in that moment makes it read
    other files. Their lines must not be shown, nor that they match, so `rg` prints what it has
    found in every mode. The last folder and the last file stay open: results come in the order of
    paths.
    """

    def __init__(self) -> None:
        self._folder: Folder | None = None
        self._path = ""
        self._file = -1
        self._start = b""

    def __enter__(self) -> "FoundFiles":
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._folder is not None:
            os.close(self._folder.descriptor)

    def stat(self, path: str) -> os.stat_result | None:
        """Stat a file; None where there is no regular file without a link on the way."""
        try:
            status = self._in(path).stat(os.path.basename(path))
        except OSError:
            return None
        return status if stat.S_ISREG(status.st_mode) else None

    def holds(self, path: str, data: dict[str, Any]) -> bool:
        """Tell whether the text of an event of `rg` stands in the file where `rg` found it."""
        if "absolute_offset" not in data:  # printed by `python_search`, which opens files as we do
            return True
        if path != self._path:
            self._close()
            try:
                self._file, _ = open_regular(os.path.basename(path), self._in(path))
            except OSError:
                return False
            self._path, self._start = path, os.pread(self._file, 3, 0)
        if self._start.startswith((b"\xff\xfe", b"\xfe\xff")):
            return self._holds_utf16(data)
        at, text = data["absolute_offset"], os.fsencode(_text(data["lines"]))
        starts = (at, at + 3) if self._start == b"\xef\xbb\xbf" else (at,)
        return any(os.pread(self._file, len(text), start) == text for start in starts)

    def _holds_utf16(self, data: dict[str, Any]) -> bool:
        raw = os.pread(self._file, CONTENT_BYTES_MAX, 0)
        return _text(data["lines"]) in raw.decode("utf-16", "replace")

    def _in(self, path: str) -> Folder:
        folder = os.path.dirname(path)
        if self._folder is None or self._folder.path != folder:
            found = open_folder(folder)
            if self._folder is not None:
                os.close(self._folder.descriptor)
            self._folder = found
        return self._folder

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._path, self._file = "", -1


async def newest_first(names: Iterable[str], wanted: Callable[[str], bool]) -> list[str]:
    """Return the wanted regular files, newest first, then by name. Yields to the loop in
    between.
    """
    times: list[tuple[int, str]] = []
    with FoundFiles() as files:
        for at, path in enumerate(names):
            status = files.stat(path) if wanted(path) else None
            if status is not None:
                times.append((-status.st_mtime_ns, path))
            if at % FILES_A_GO == FILES_A_GO - 1:
                await asyncio.sleep(0)
    return [path for _, path in sorted(times)]


def rg_words(rg: str, query: Query) -> list[str]:
    """Build the command line of `rg`."""
    words = [
        rg,
        "--no-config",
        "--no-messages",
        "--color=never",
        "--hidden",
        "--glob=!.git",
        "--crlf",
        "--sort=path",
    ]
    words += [
        "--no-require-git",
        "--no-ignore-dot",
        "--no-ignore-global",
        "--no-ignore-exclude",
        "--no-follow",
    ]
    words += _flags(query)
    name = name_glob(query.glob)
    if name and not query.glob.startswith("!"):
        words += [f"--type-add=wanted:{name}", "--type=wanted"]
    if query.mode != "names":
        words += ["--regexp", query.pattern]
    return [*words, "--", query.path]


def _flags(query: Query) -> Sequence[str]:
    flags = {
        "names": ["--files", "--null"],
        "files": ["--json", "--max-count=1"],
        "count": ["--json"],
        "content": ["--json", f"--before-context={query.before}", f"--after-context={query.after}"],
    }[query.mode]
    flags += ["--ignore-case"] if query.ignore_case else []
    return flags + (["--multiline", "--multiline-dotall"] if query.multiline else [])


def python_words(query: Query) -> list[str]:
    """Build the command line of the Python search. Isolated: folder and environment add no
    modules.
    """
    pattern, glob = (
        text.encode("utf-8", "replace").decode() for text in (query.pattern, query.glob)
    )
    clean = msgspec.structs.replace(query, path="", pattern=pattern, glob=glob)
    asked = msgspec.json.encode(clean).decode()
    return [sys.executable, "-I", "-B", "-m", "longrein.workspace.python_search", asked, query.path]

"""Search files by name and lines by content, with `rg` or the same in Python.

`rg` is used when it is found outside the roots. Either runs as a command through the spawner, so a
slow pattern or an endless tree costs a timeout and not the session. Both print the same form. They
include hidden files but never `.git`, obey `.gitignore` inside and outside git repositories and no
other ignore file, follow no links, and skip binary files.

`rg` reads UTF-8. Beside the search, a second `rg` lists the files that are not UTF-8, and the
Python search decodes and searches these. What could not be searched is in `SearchResult.skipped`.
"""

import asyncio
import binascii
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Literal

import msgspec

from longrein.workspace.files import find_program, open_regular, read, spellings
from longrein.workspace.stream_process import run_with_input
from longrein.workspace.supervisor.openat import Folder, open_folder
from longrein.workspace.text_decoding import SAMPLE_BYTES, is_binary
from longrein.workspace.walk import compile_glob, name_glob
from longrein.workspace.workspace_port import CommandExit, CommandSpec, Workspace

Mode = Literal["files", "content", "count", "names"]
SEARCH_S = 10.0
"""Longest search in seconds; what was found by then is returned as partial."""
CONTENT_BYTES_MAX = 8 << 20
NAMES_BYTES_MAX = 64 << 20
"""Longest raw output of a search."""
EVENT_BYTES_MAX = 1 << 16
"""Longest event of the output that is kept whole; of a longer line only the place of the match."""
LINE_BYTES_MAX = 64 << 20
"""Longest event that is read."""
AROUND_BYTES = 4096
"""Bytes of a long line that are kept before and after the beginning of a match."""
MATCHES = b',"submatches":['
"""Begins the matches of an event, behind its text."""
MATCHES_MAX = 1000
"""Matches of one long line that are kept."""
NOT_UTF8 = (
    r"(?-u)\x00|(?:^|[\x00-\x7f])[\x80-\xbf]|[\xc0\xc1\xf5-\xff]"
    r"|[\xc2-\xdf](?:$|[^\x80-\xbf]|[\x80-\xbf]{2})"
    r"|\xe0[\x80-\x9f]|\xed[\xa0-\xbf]|\xf0[\x80-\x8f]|\xf4[\x90-\xbf]"
    r"|[\xe0-\xef](?:$|[^\x80-\xbf]|[\x80-\xbf](?:$|[^\x80-\xbf])|[\x80-\xbf]{3})"
    r"|[\xf0-\xf4](?:$|[^\x80-\xbf]|[\x80-\xbf](?:$|[^\x80-\xbf]|[\x80-\xbf](?:$|[^\x80-\xbf]))"
    r"|[\x80-\xbf]{4})"
)
"""Matches in every file that is not UTF-8 or holds a NUL, and in no other."""
NEVER_TEXT = (
    "--glob=!*.{pyc,pyo,class,o,so,dylib,dll,exe,jar,whl,wasm,zip,gz,bz2,xz,zst,7z,png,jpg,jpeg,gif,"
    "webp,ico,pdf,woff,woff2,ttf,otf,mp3,mp4,mov,avi,sqlite,db}"
)
"""Files that need not be opened to know that they are binary."""
UNREADABLE = re.compile(rb"^(?:rg: )?(/.+?): (?:.*: )?(.*) \(os error (?!2\))\d+\)$", re.MULTILINE)


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
    at: int = 0
    """Character of `text` where the first match begins."""
    left_out: int = 0
    """Characters of a long line before `text`."""
    chars: int = 0
    """Length of a long line of which `text` is a part; 0 for a whole line."""


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
    skipped: tuple[tuple[str, str], ...] = ()
    """(path, reason) of each file or folder that was not searched: too large, unreadable, or a
    binary file that the query names.
    """


class SearchOutput(msgspec.Struct, frozen=True):
    """Output of a search program, and its end."""

    data: bytes
    ended: CommandExit


LISTED = "listed"
"""Argument with which the Python search reads the files to search from its input."""


class _Found(msgspec.Struct):
    """Result of one search program, before it is sorted and cut to the limit."""

    paths: list[str] = []
    lines: list[Line] = []
    counts: dict[str, int] = {}
    partial: str = ""
    error: str = ""
    skipped: list[tuple[str, str]] = []


async def grep(workspace: Workspace, query: Query, hidden: IsHidden | None = None) -> SearchResult:
    """Search lines. Never raises for what is on the disk or in the pattern."""
    rg = _rg(workspace)
    if rg:  # it opens files by their names, so what it found is looked at again
        found = await _grep_with_rg(workspace, rg, query, hidden)
        if not found.error:
            return found
    # rg's dialect has no lookaround and takes `{` strictly; Python's often knows what was meant
    output = await _run(workspace, query, python_words(query))
    return await read_output(query, output, hidden)


async def _grep_with_rg(
    workspace: Workspace, rg: str, query: Query, hidden: IsHidden | None
) -> SearchResult:
    """Search with `rg`, and with Python the files that are not UTF-8."""
    wanted = _wanted(query, hidden)
    listing = asyncio.ensure_future(_pipe(workspace, list_words(rg, query)))
    try:
        output = await _run(workspace, query, rg_words(rg, query))
        if output.ended.cause == "flood" or _error_text(output.data, output.ended):
            return await _result(query, [await _parse(query, output, wanted)])
        listed, errors = await listing
    finally:
        listing.cancel()
    names = filter(wanted, map(os.fsdecode, listed.data.split(b"\0")[:-1]))
    others = await workspace.run_in_thread(lambda: _text_files(names, query.path))
    other = _Found()
    if others:
        other = await _search_listed(workspace, query, others)
    decoded = others.difference(path for path, _ in other.skipped)
    found = await _parse(query, output, lambda path: wanted(path) and path not in decoded)
    for path, reason in UNREADABLE.findall(errors):
        if wanted(os.fsdecode(path)):
            found.skipped.append((os.fsdecode(path), os.fsdecode(reason).lower()))
    found.partial = found.partial or PARTIAL.get(listed.ended.cause, "")
    return await _result(query, [found, other] if others else [found])


def _text_files(paths: Iterable[str], named: str) -> frozenset[str]:
    """Return the files that are not binary, and the one that the query names."""
    found = set()
    for path in paths:
        with suppress(OSError):
            if path == named or not is_binary(read(path, SAMPLE_BYTES)):
                found.add(path)
    return frozenset(found)


async def _search_listed(workspace: Workspace, query: Query, paths: Iterable[str]) -> _Found:
    """Search files that are not UTF-8 in Python."""
    names = b"\0".join(map(os.fsencode, paths))
    output, _ = await _pipe(workspace, [*python_words(query), LISTED], names)
    found = await _parse(query, output, lambda _: True)
    skipped = found.skipped
    if found.error:  # a pattern that only `rg` knows
        skipped = [(path, f"not UTF-8, where {found.error}") for path in paths]
    found.skipped = [(path, f"{reason}; only searched as bytes") for path, reason in skipped]
    found.error = ""
    return found


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
    words = rg_words(rg, query) if rg else python_words(query)
    return await read_output(query, await _run(workspace, query, words), hidden)


def _rg(workspace: Workspace) -> str:
    path = workspace.environment("").get("PATH", "")
    beside_python = os.path.dirname(sys.executable)  # where the extra `rg` puts it
    return find_program("rg", f"{path}:{beside_python}", spellings(workspace.roots))


# --- Running the programs -------------------------------------------------------------------------


async def _run(workspace: Workspace, query: Query, words: list[str]) -> SearchOutput:
    """Run a search until it has printed enough."""
    most = CONTENT_BYTES_MAX if query.mode == "content" else NAMES_BYTES_MAX

    def stop() -> None:
        running.cancel()

    sink = EventSink(most, stop)
    running = asyncio.ensure_future(
        workspace.spawner.run(
            CommandSpec(words, "/", workspace.environment("")),
            sink=sink,
            timeout_s=SEARCH_S,
            output_bytes_max=sys.maxsize,
        )
    )
    try:
        ended = await running
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if not sink.is_full or (task is not None and task.cancelling()):
            raise
        ended = CommandExit(None, "", "flood")
    return SearchOutput(bytes(sink.data), ended)


async def _pipe(
    workspace: Workspace, words: list[str], data: bytes = b""
) -> tuple[SearchOutput, bytes]:
    """Run a program with `data` as its input: its output and its errors."""
    spec = CommandSpec(words, "/", workspace.environment(""))
    piped = await run_with_input(
        workspace.spawner,
        spec,
        data=data,
        timeout_s=SEARCH_S,
        output_bytes_max=NAMES_BYTES_MAX,
    )
    return SearchOutput(piped.stdout, piped.exit), piped.stderr


class EventSink:
    """Collects events of `rg --json`; of one with a very long line only the place of the match.

    Calls `stop()` once it holds `bytes_max`.
    """

    def __init__(self, bytes_max: int, stop: Callable[[], object]) -> None:
        self.data = bytearray()
        self.is_full = False
        self._bytes_max, self._stop = bytes_max, stop
        self._begin = 0
        self._is_skipping = False

    def write(self, data: bytes) -> None:
        """See `Sink.write`."""
        if self.is_full:
            return
        size, first = len(self.data), data.find(b"\n")
        if self._is_skipping and first < 0:
            return
        if self._is_skipping:
            data, first, self._is_skipping = data[first:], 0, False
        self.data += data
        if first >= 0:
            event = slice(self._begin, size + first)
            if event.stop - event.start > EVENT_BYTES_MAX:
                self.data[event] = shortened_event(bytes(self.data[event]))
            self._begin = len(self.data) - len(data) + data.rfind(b"\n") + 1
        if len(self.data) - self._begin > LINE_BYTES_MAX:
            self._is_skipping = MATCHES in self.data[self._begin :]
            self.data[self._begin :] = shortened_event(bytes(self.data[self._begin :]))
        if self._begin > self._bytes_max or len(self.data) - self._begin > LINE_BYTES_MAX:
            self.is_full = True
            self._stop()


def shortened_event(raw: bytes) -> bytes:
    """Cut the text of an event of `rg --json` to what surrounds its first match. Of its matches the
    first ones are enough.
    """
    begin = raw.find(MATCHES)
    if 0 <= begin < len(raw) - EVENT_BYTES_MAX:
        end = raw.rfind(b',{"match":', begin, begin + EVENT_BYTES_MAX)
        raw = raw[:end] + b"]}}" if end > 0 else raw
    try:
        event = msgspec.json.decode(raw)
        data = event["data"]
        text = _bytes(data["lines"])
    except (msgspec.MsgspecError, KeyError):
        return raw
    matches = data["submatches"][:MATCHES_MAX]
    middle = matches[0]["start"] if matches else 0
    begin = _char_start(text, max(0, middle - AROUND_BYTES))
    end = _char_start(text, min(len(text), middle + AROUND_BYTES))
    line = text.rfind(b"\n", 0, begin) + 1
    until = text.find(b"\n", end)
    whole = text[line : until if until >= 0 else len(text)]
    for one in matches:
        found = _bytes(one["match"])
        one["match"] = json_text(found[: _char_start(found, AROUND_BYTES)])
        one["start"] = max(0, one["start"] - begin)
    data["left_out"] = len(text[line:begin].decode("utf-8", "replace"))
    data["chars"] = len(whole.removesuffix(b"\r").decode("utf-8", "replace"))
    data["lines"] = json_text(text[begin:end])
    data["line_number"] += text.count(b"\n", 0, begin)
    data["submatches"] = matches
    if "absolute_offset" in data:
        data["absolute_offset"] += begin
    return msgspec.json.encode(event)


def _char_start(text: bytes, at: int) -> int:
    """Return the first place from `at` on that is not within a UTF-8 character."""
    while 0 < at < len(text) and text[at] & 0xC0 == 0x80:
        at += 1
    return at


def json_text(data: bytes) -> dict[str, object]:
    """Return `{"text": …}`, or `{"bytes": …}` for what is not UTF-8."""
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"bytes": data}


def _bytes(value: dict[str, str]) -> bytes:
    """Return the bytes of `json_text`."""
    return value["text"].encode() if "text" in value else binascii.a2b_base64(value["bytes"])


# --- Reading their output -------------------------------------------------------------------------


PARTIAL = {"timeout": "time", "flood": "size"}
"""Reasons for an incomplete search by the causes of a command's end."""


async def read_output(
    query: Query, output: SearchOutput, hidden: IsHidden | None = None
) -> SearchResult:
    """Parse what a search printed."""
    return await _result(query, [await _parse(query, output, _wanted(query, hidden))])


def _wanted(query: Query, hidden: IsHidden | None) -> Callable[[str], bool]:
    passes = glob_test(query)
    if hidden is None:
        return passes
    # once a file, however many lines match
    return cache(lambda path: passes(path) and not hidden(path))


async def _parse(query: Query, output: SearchOutput, wanted: Callable[[str], bool]) -> _Found:
    """Read the events of one program; as many lines as the query wants, and one more."""
    data = output.data
    found = _Found(partial=PARTIAL.get(output.ended.cause, ""))
    found.error = _error_text(data, output.ended)
    if query.mode == "names":
        found.paths = [path for path in map(os.fsdecode, data.split(b"\0")[:-1]) if wanted(path)]
    if found.error or query.mode == "names":
        return found
    with FoundFiles() as files:
        for at, event in enumerate(_events(data)):
            _take_event(query, event, found, wanted, files)
            if len(found.lines) > query.offset + query.limit:
                break
            if at % FILES_A_GO == FILES_A_GO - 1:
                await asyncio.sleep(0)
    return found


def _events(data: bytes) -> Iterator[dict[str, Any]]:
    for raw in data.split(b"\n"):
        if raw.startswith((b'{"type":"match"', b'{"type":"context"', b'{"type":"skipped"')):
            try:
                yield msgspec.json.decode(raw)
            except msgspec.MsgspecError:
                continue  # the last line, where the output was cut


def _take_event(
    query: Query,
    event: dict[str, Any],
    found: _Found,
    wanted: Callable[[str], bool],
    files: "FoundFiles",
) -> None:
    """Add one event to what was found, unless its lines do not stand in their file."""
    data = event["data"]
    path = os.fsdecode(_bytes(data["path"]))
    if not wanted(path):
        return
    if event["type"] == "skipped":
        found.skipped.append((path, data["reason"]))
    elif not files.holds(path, data):
        found.partial = found.partial or "changed"
    elif query.mode == "content":
        found.lines += _lines_of(path, event, only_matching=query.only_matching)
    else:
        lines = len(_lines_of(path, event, only_matching=False))
        found.counts[path] = found.counts.get(path, 0) + lines


async def _result(query: Query, parts: list[_Found]) -> SearchResult:
    """Join the results of programs that searched different files, and cut them to the limit."""
    lines = [line for part in parts for line in part.lines]
    counts = [pair for part in parts for pair in part.counts.items()]
    if len(parts) > 1:
        lines.sort(key=lambda line: line.path.split("/"))
        counts.sort(key=lambda pair: pair[0].split("/"))
    names: list[str] = []
    if query.mode in ("names", "files"):
        names = await newest_first([*parts[0].paths, *(path for path, _ in counts)])
        counts = []
    end = query.offset + query.limit
    return SearchResult(
        paths=tuple(names[query.offset : end]),
        lines=tuple(lines[query.offset : end]),
        counts=tuple(counts[query.offset : end]),
        more=max(len(names), len(lines), len(counts)) > end,
        partial=next((part.partial for part in parts if part.partial), ""),
        error=parts[0].error,
        skipped=tuple(dict.fromkeys(one for part in parts for one in part.skipped)),
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


def _lines_of(path: str, event: dict[str, Any], *, only_matching: bool) -> list[Line]:
    """The lines of one event; a match that spans lines has several."""
    data = event["data"]
    number, matches = data["line_number"], data["submatches"]
    if only_matching:
        return [Line(path, number, os.fsdecode(_bytes(one["match"])), True) for one in matches]
    raw = _bytes(data["lines"])
    at = len(os.fsdecode(raw[: matches[0]["start"]])) if matches else 0
    left_out, chars = data.get("left_out", 0), data.get("chars", 0)
    lines = []
    for text in os.fsdecode(raw).removesuffix("\n").split("\n"):
        whole = text.removesuffix("\r")
        lines.append(Line(path, number, whole, event["type"] == "match", at, left_out, chars))
        number += 1
        at = left_out = chars = 0
    return lines


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
        at, text = data["absolute_offset"], _bytes(data["lines"])
        starts = (at, at + 3) if self._start == b"\xef\xbb\xbf" else (at,)
        return any(os.pread(self._file, len(text), start) == text for start in starts)

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


async def newest_first(names: Iterable[str]) -> list[str]:
    """Return the regular files, newest first, then by name. Yields to the loop in between."""
    times: list[tuple[int, str]] = []
    with FoundFiles() as files:
        for at, path in enumerate(names):
            status = files.stat(path)
            if status is not None:
                times.append((-status.st_mtime_ns, path))
            if at % FILES_A_GO == FILES_A_GO - 1:
                await asyncio.sleep(0)
    return [path for _, path in sorted(times)]


def rg_words(rg: str, query: Query) -> list[str]:
    """Build the command line of `rg`."""
    words = [*_rg_words(rg, query), "--no-messages", "--crlf", "--sort=path", *_flags(query)]
    if query.mode != "names":
        words += ["--regexp", query.pattern]
    return [*words, "--", query.path]


def list_words(rg: str, query: Query) -> list[str]:
    """Build the command line of `rg` that lists the files that are not UTF-8."""
    words = [*_rg_words(rg, query), "--files-with-matches", "--null", "--text", "--encoding=none"]
    words.append(NEVER_TEXT)
    return [*words, "--regexp", NOT_UTF8, "--", query.path]


def _rg_words(rg: str, query: Query) -> list[str]:
    """Build the words that say which files `rg` reads."""
    words = [
        rg,
        "--no-config",
        "--color=never",
        "--hidden",
        "--glob=!.git",
        "--no-require-git",
        "--no-ignore-dot",
        "--no-ignore-global",
        "--no-ignore-exclude",
        "--no-follow",
    ]
    name = name_glob(query.glob)
    if name and not query.glob.startswith("!"):
        words += [f"--type-add=wanted:{name}", "--type=wanted"]
    return words


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

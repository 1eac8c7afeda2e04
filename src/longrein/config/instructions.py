"""Instruction files (`AGENTS.md` and similar), from the project's root down to the current folder.

The nearest file comes last. A file of the project may import only files of the project: a link or import that leads
out of it is left out with a note, because a repository must not read the user's files through its instructions.
"""

import hashlib
import os
import re
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from longrein.config.environment import config_dir
from longrein.config.settings_file import shorten_home
from longrein.events import SourceFile
from longrein.permissions import escape
from longrein.settings_schema import Settings
from longrein.workspace import read_file

# --- Comments and imports --------------------------------------------------------------------------------------------


_FENCE = r" {0,3}(`{3,}|~{3,})"
_COMMENT = r" {0,3}<!--"
_SPAN = r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)"
_IMPORT = r"(?:^|(?<=[\s(]))@((?:~/|/)?[\w.][\w./+-]*|/[\w./+-]+)"


def without_comments(text: str) -> str:
    """Remove HTML comments that begin a line. Comments in fenced code and unclosed ones stay."""
    kept: list[str] = []
    fence = ""
    lines = text.splitlines(keepends=True)
    i = 0
    while i < len(lines):
        fence = _fence_after(fence, lines[i])
        if not fence and re.compile(_COMMENT).match(lines[i]):
            end = next((j for j in range(i, len(lines)) if "-->" in lines[j]), None)
            if end is not None:
                rest = lines[end].partition("-->")[2]
                kept.append(rest if rest.strip() else "")
                i = end + 1
                continue
        kept.append(lines[i])
        i += 1
    return "".join(kept)


def imports(text: str) -> Iterator[str]:
    """Yield each path after `@` once, in order. Code spans, fenced code and mail addresses are skipped."""
    seen: set[str] = set()
    for paragraph in _prose(text):
        for match in re.compile(_IMPORT).finditer(re.compile(_SPAN).sub(" ", paragraph)):
            path = match[1].rstrip(".")
            if path and path not in seen:
                seen.add(path)
                yield path


def _prose(text: str) -> Iterator[str]:
    """Yield the paragraphs without fenced code. A code span never crosses an empty line."""
    fence, paragraph = "", ""
    for line in text.splitlines(keepends=True):
        before, fence = fence, _fence_after(fence, line)
        if fence or before or not line.strip():
            if paragraph:
                yield paragraph
            paragraph = ""
        else:
            paragraph += line
    if paragraph:
        yield paragraph


def _fence_after(fence: str, line: str) -> str:
    """Return the fence that is open after `line`; '' outside of fenced code."""
    match = re.compile(_FENCE).match(line)
    if not match:
        return fence
    if not fence:
        return match[1]
    closes = match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line[match.end() :].strip()
    return "" if closes else fence


# --- Instruction files -----------------------------------------------------------------------------------------------


HOPS_MAX = 4
"""Depth of nested imports, as in other agents."""
FILE_BYTES_MAX = 16 << 20
"""Larger files are skipped. A file is read whole for its hash, which shows later changes."""
ROOT_MARK = ".git"
"""Entry of a project's root: a folder or, in a worktree or submodule, a file."""


class Instructions(NamedTuple):
    """Instruction texts, their files and notes."""

    texts: tuple[str, ...] = ()
    """One text per file, headed by its path, in the order to send."""
    sources: tuple[SourceFile, ...] = ()
    """Real path and hash of each file, in the same order."""
    notes: tuple[str, ...] = ()
    """Lines for the user about files that were cut or left out."""


def load_instructions(cwd: str, home: str, environ: Mapping[str, str], settings: Settings) -> Instructions:
    """Load the user's own instruction files, then those from the project's root down to `cwd`.

    The root is the nearest folder above with `.git`, else `cwd`. Never raises for the content of the disk.
    """
    root = project_root(cwd)
    taking = _InstructionReader(root, home, settings)
    for path in (f"{config_dir(environ, home)}/AGENTS.md", f"{home}/.agents/AGENTS.md"):
        taking.take(path, own=True)
    for folder in folders_between(root, cwd):
        taking.take_folder(folder)
    return taking.done()


def nested_instructions(
    folder: str, root: str, already: Collection[str], home: str, settings: Settings
) -> Instructions:
    """Load the files of the folders below `root` down to `folder` that are not in `already`.

    `already`: real paths of loaded files. Called when a tool touches a file in `folder`. A `folder` outside `root`
    gives nothing.
    """
    taking = _InstructionReader(root, home, settings, already)
    if folder.startswith(root.rstrip("/") + "/"):
        for below in folders_between(root, folder)[1:]:
            taking.take_folder(below)
    return taking.done()


def project_root(cwd: str) -> str:
    """Return the nearest folder from `cwd` upwards that holds `.git`; `cwd` where there is none."""
    folder = cwd
    while True:
        if os.path.lexists(f"{folder.rstrip('/')}/{ROOT_MARK}"):
            return folder
        above = os.path.dirname(folder)
        if above == folder:
            return cwd
        folder = above


def folders_between(root: str, folder: str) -> list[str]:
    """Return the folders from `root` to `folder`."""
    found = [folder]
    while folder != root and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        found.append(folder)
    return found[::-1]


def _local_names(names: Sequence[str]) -> list[str]:
    """Return names such as `AGENTS.local.md`, for notes that a person keeps out of git."""
    return [f"{name.removesuffix('.md')}.local.md" for name in names if name.endswith(".md") and name.count(".") == 1]


class _InstructionReader:
    """Reader of instruction files up to the byte limit."""

    def __init__(self, root: str, home: str, settings: Settings, already: Collection[str] = ()) -> None:
        self.root = os.path.realpath(root)
        self.home = home
        self.names = settings.context.files
        self.bytes_max = settings.context.bytes_max
        self.seen = set(already)
        self.left_bytes = self.bytes_max
        self.texts: list[str] = []
        self.sources: list[SourceFile] = []
        self.notes: list[str] = []

    def done(self) -> Instructions:
        return Instructions(tuple(self.texts), tuple(self.sources), tuple(self.notes))

    def take_folder(self, folder: str) -> None:
        """Read at most one file of the usual names, and the local ones."""
        for name in self.names:
            if self.take(f"{folder.rstrip('/')}/{name}"):
                break
        for name in _local_names(self.names):
            self.take(f"{folder.rstrip('/')}/{name}")

    def take(self, path: str, *, own: bool = False, hops: int = 0, by: str = "") -> bool:
        """Read one file and its imports; return whether it has content.

        `own`: the user's own file, which may import any file.
        """
        if not os.path.lexists(path):
            return False  # most folders hold none, and realpath makes a system call per folder
        real = os.path.realpath(path)
        shown = shorten_home(path, self.home)
        if real in self.seen:
            return True
        if not own and not real.startswith(self.root.rstrip("/") + "/"):
            if os.path.lexists(path):
                self.notes.append(f"{shown} leads out of the project{f' (imported by {by})' if by else ''}: left out.")
            return False
        data, digest = self._read(real, shown)
        text = without_comments(data.decode("utf-8", "replace").removeprefix("\ufeff")) if data else ""
        if not data or not text.strip():
            return False
        self.seen.add(real)
        self._add(real, shown, digest, text, by)
        self._imports(path, text, own, hops, shown)
        return True

    def _read(self, real: str, shown: str) -> tuple[bytes, str]:
        """Return the content of a regular file, up to one byte over the limit, and the hash of all of it."""
        try:
            if not stat.S_ISREG(os.stat(real).st_mode):
                return b"", ""
            data = read_file(real, FILE_BYTES_MAX + 1)  # which follows no link that was put there meanwhile
            if len(data) > FILE_BYTES_MAX:
                self.notes.append(f"{shown} is larger than {FILE_BYTES_MAX >> 20} MB: left out.")
                return b"", ""
            return data[: self.bytes_max + 1], hashlib.sha256(data).hexdigest()
        except FileNotFoundError:
            return b"", ""
        except OSError as error:
            self.notes.append(f"{shown} cannot be read ({error.strerror}): left out.")
            return b"", ""

    def _add(self, real: str, shown: str, digest: str, text: str, by: str) -> None:
        clean = escape(text.replace("\r\n", "\n")).strip("\n")
        if clean != text.replace("\r\n", "\n").strip("\n"):
            self.notes.append(f"{shown} holds characters that cannot be seen: they are written out as \\u….")
        limit = f"{self.bytes_max} bytes together"
        if self.left_bytes <= 0:
            self.notes.append(f"{shown} was left out: instruction files may hold {limit}.")
            return
        size = len(clean.encode("utf-8", "surrogatepass"))
        if size > self.left_bytes:
            clean = _cut(clean, self.left_bytes) + f"\n[cut here by longrein: instruction files may hold {limit}]"
            self.notes.append(f"{shown} was cut: instruction files may hold {limit}.")
        self.left_bytes -= size
        whence = f", imported by {by}" if by else ""
        self.texts.append(f"Instructions from {shown}{whence}:\n\n{clean}")
        self.sources.append(SourceFile(real, digest))

    def _imports(self, path: str, text: str, own: bool, hops: int, shown: str) -> None:
        for name in imports(text):
            target = f"{self.home}{name[1:]}" if name.startswith("~/") else os.path.join(os.path.dirname(path), name)
            target = os.path.normpath(target)
            if not os.path.isfile(target):
                continue  # most words after an @ are not files
            if hops >= HOPS_MAX:
                self.notes.append(f"{shown}: @{name} is more than {HOPS_MAX} imports deep: left out.")
                continue
            self.take(target, own=own, hops=hops + 1, by=shown)


def _cut(text: str, size_bytes: int) -> str:
    """Return the first lines of `text` that fit, else its first characters."""
    part = text.encode("utf-8", "surrogatepass")[:size_bytes].decode("utf-8", "ignore")
    return part[: part.rfind("\n")] if "\n" in part else part

"""Instruction files (`AGENTS.md` and similar), from the project's root down to the current folder.

The nearest file comes last. Files of a folder count only where the user trusts it. A file of the
project may import only files of the project: a link or import that leads out of it is left out with
a note, because a repository must not read the user's files through its instructions. For the same
reason a file that a `Read` rule denies or asks about, or that looks like a secret, is left out.
Other files than the usual ones are searched for secrets, too; in the usual ones tokens are replaced
when the log is written.
"""

import errno
import hashlib
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from longrein.config.frontmatter import FrontmatterError, split_frontmatter
from longrein.config.secret_detection import has_secret_name, has_secrets
from longrein.config.settings_file import shorten_home
from longrein.config.user_environment import agent_folder, config_dir, read_bounded
from longrein.folder_trees import walk_folders
from longrein.permissions import Call, Rules, Touched, escape, visible
from longrein.settings_schema import InstructionOptions, Settings
from longrein_context.events import SourceFile

# --- Comments and imports -------------------------------------------------------------------------


_FENCE = r" {0,3}(`{3,}|~{3,})"
_COMMENT = r" {0,3}<!--"
_SPAN = r"(?s)(`+)(?!`).*?(?<!`)\1(?!`)"
_IMPORT = r"(?:^|(?<=[\s(]))@((?:~/|/)?[\w.][\w./+-]*|/[\w./+-]+)"


def without_comments(text: str) -> str:
    """Remove HTML comments that begin a line. Comments in fenced code and unclosed ones stay."""
    kept: list[str] = []
    fence = ""
    lines = text.splitlines(keepends=True)
    last_end = next((j for j in range(len(lines) - 1, -1, -1) if "-->" in lines[j]), -1)
    i = 0
    while i < len(lines):
        fence = _fence_after(fence, lines[i])
        if not fence and i <= last_end and re.compile(_COMMENT).match(lines[i]):
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
    """Yield each path after `@` once, in order. Code spans, fenced code and mail addresses are
    skipped.
    """
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
    closes = (
        match[1][0] == fence[0] and len(match[1]) >= len(fence) and not line[match.end() :].strip()
    )
    return "" if closes else fence


# --- Instruction files ----------------------------------------------------------------------------


HOPS_MAX = 4
"""Depth of nested imports, as in other agents."""
IMPORTS_MAX = 100
"""Imports followed at one start."""
FILE_BYTES_MAX = 1 << 20
"""Larger files are skipped. A file is read whole for its hash, which shows later changes."""
USUAL_NAMES = frozenset(
    (*InstructionOptions().files, *(f"{name[:-3]}.local.md" for name in InstructionOptions().files))
)
"""Names of files that are written to be sent."""
CLAUDE_FILE = "CLAUDE.md"
"""File that may also stand in `.claude`, with rules beside it."""
RULES_FOLDER = ".claude/rules"
RULES_MAX = 50
"""Files of one folder of rules that are read."""
RULES_DEPTH_MAX = 4
USER_FILES = (
    ("claude", (CLAUDE_FILE,)),
    ("codex", ("AGENTS.override.md", "AGENTS.md")),
    ("gemini", ("GEMINI.md",)),
    ("opencode", ("AGENTS.md",)),
)
"""The user's instructions for other agents: the files of which the first with content is read."""
ROOT_MARK = ".git"
"""Entry of a project's root: a folder or, in a worktree or submodule, a file."""


class Instructions(NamedTuple):
    """Instruction texts, their files and notes."""

    texts: tuple[str, ...] = ()
    """Texts of the files, each headed by its path, in the order to send."""
    sources: tuple[SourceFile, ...] = ()
    """Real path and hash of each file, in the same order."""
    notes: tuple[str, ...] = ()
    """Lines for the user about files that were cut or left out."""


def load_instructions(
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    settings: Settings,
    trusted: Callable[[str], bool],
    *,
    own: bool = True,
) -> Instructions:
    """Load the user's own instruction files (with `own`), then those from the project's root down
    to `cwd`.

    The user's instructions for other agents come first, so that all others are stronger. They are
    read last, so that they take no room from the others. The root is the nearest folder above with
    `.git`, else `cwd`. `trusted`: whether the user trusts a folder. Never raises for the content of
    the disk.
    """
    root = project_root(cwd)
    taking = _InstructionReader(root, cwd, home, settings)
    for path in (
        (f"{config_dir(environ, home)}/AGENTS.md", f"{home}/.agents/AGENTS.md") if own else ()
    ):
        taking.take(path, own=True)
    for folder in folders_between(root, cwd):
        if trusted(folder):
            taking.take_folder(folder)
    nearer = len(taking.texts)
    if own and settings.other_agents.read:
        taking.take_other_agents(environ)
    return taking.done(nearer)


def instruction_files(cwd: str, home: str, settings: Settings) -> list[str]:
    """Return the paths of the project's instruction files that `load_instructions` would look at,
    without reading them.
    """
    names = _names_in_folder(settings.context.files)
    folders = folders_between(project_root(cwd), cwd)
    found = []
    for folder in folders:
        for name in names:
            path = f"{folder.rstrip('/')}/{name}"
            is_own = folder == home and name.startswith(".claude/")
            if not os.path.lexists(path) or is_own:
                continue
            if name != RULES_FOLDER:
                found.append(path)
            elif not leads_out(path, folders[0]):
                found += _rule_files(path)
    return found


def nested_instructions(
    folder: str,
    cwd: str,
    already: Collection[str],
    home: str,
    settings: Settings,
    trusted: Callable[[str], bool],
) -> Instructions:
    """Load the files of the folders below the root of `cwd` down to `folder` that are not in
    `already`.

    `already`: real paths of loaded files. Called when a tool touches a file in `folder`. A `folder`
    outside that root gives nothing, and neither does a repository inside it that is not trusted.
    """
    root = project_root(cwd)
    taking = _InstructionReader(root, cwd, home, settings, already)
    if folder.startswith(root.rstrip("/") + "/"):
        for below in folders_between(root, folder)[1:]:
            if taking.any_file(below) and trusted(below):
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


def leads_out(path: str, root: str) -> bool:
    """Return whether a path leads out of a folder, with all links followed."""
    return not os.path.realpath(path).startswith(os.path.realpath(root).rstrip("/") + "/")


def folders_between(root: str, folder: str) -> list[str]:
    """Return the folders from `root` to `folder`."""
    found = [folder]
    while folder != root and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        found.append(folder)
    return found[::-1]


def _local_names(names: Sequence[str]) -> list[str]:
    """Return names such as `AGENTS.local.md`, for notes that a person keeps out of git."""
    return [
        f"{name.removesuffix('.md')}.local.md"
        for name in names
        if name.endswith(".md") and name.count(".") == 1
    ]


def _usual_names(names: Sequence[str]) -> Iterator[str]:
    """Yield the names of which the first with content is read, below a folder."""
    for name in names:
        yield name
        if name == CLAUDE_FILE:
            yield f".claude/{name}"


def _names_in_folder(names: Sequence[str]) -> tuple[str, ...]:
    """Return all that may be read of a folder."""
    rules = (RULES_FOLDER,) if CLAUDE_FILE in names else ()
    return (*_usual_names(names), *_local_names(names), *rules)


def _rule_files(folder: str) -> list[str]:
    """Return the markdown files below a folder of rules, in order. Links to folders are not
    followed.
    """
    found: list[str] = []
    for place, folders, files in walk_folders(folder):
        depth = place.removeprefix(folder).count("/")
        folders[:] = sorted(folders) if depth < RULES_DEPTH_MAX else []
        found += [f"{place}/{name}" for name in sorted(files) if name.endswith(".md")]
        if len(found) > RULES_MAX:
            break
    return found


class _InstructionReader:
    """Reader of instruction files up to the byte limit."""

    def __init__(
        self, root: str, cwd: str, home: str, settings: Settings, already: Collection[str] = ()
    ) -> None:

        self.root, self.written_root = os.path.realpath(root), root
        self.cwd = cwd
        self.home = home
        self.rules = Rules((), settings.permissions.ask, settings.permissions.deny, cwd, home)
        self.left_imports = IMPORTS_MAX
        self.names = settings.context.files
        self.bytes_max = settings.context.bytes_max
        self.seen = set(already)
        self.left_bytes = self.bytes_max
        self.texts: list[str] = []
        self.sources: list[SourceFile] = []
        self.notes: list[str] = []

    def done(self, first: int = 0) -> Instructions:
        """Return what was read; the texts from index `first` on come before the others."""
        texts = (*self.texts[first:], *self.texts[:first])
        sources = (*self.sources[first:], *self.sources[:first])
        return Instructions(texts, sources, tuple(self.notes))

    def any_file(self, folder: str) -> bool:
        """Return whether a folder has a file of the usual names, a local one or rules."""
        names = _names_in_folder(self.names)
        return any(os.path.lexists(f"{folder.rstrip('/')}/{name}") for name in names)

    def take_other_agents(self, environ: Mapping[str, str]) -> None:
        """Read the user's instructions and rules for other agents."""
        for agent, names in USER_FILES:
            folder = agent_folder(agent, environ, self.home)
            any(self.take(f"{folder}/{name}", own=True) for name in names)
            if CLAUDE_FILE in names:
                self.take_rules(f"{folder}/rules", own=True)

    def take_folder(self, folder: str) -> None:
        """Read at most one file of the usual names, the local ones, and rules. An empty override
        hides the others.
        """
        for name in _usual_names(self.names):
            path = f"{folder.rstrip('/')}/{name}"
            if self.take(path) or (name.endswith(".override.md") and os.path.isfile(path)):
                break
        for name in _local_names(self.names):
            self.take(f"{folder.rstrip('/')}/{name}")
        if CLAUDE_FILE in self.names:
            self.take_rules(f"{folder.rstrip('/')}/{RULES_FOLDER}")

    def take_rules(self, folder: str, *, own: bool = False) -> None:
        """Read the rules of a folder that hold for all files.

        A project's folder that leads out of the project is not looked through: that could take
        long.
        """
        shown = shorten_home(folder, self.home)
        if not own and os.path.lexists(folder) and leads_out(folder, self.root):
            self.notes.append(f"{shown} leads out of the project: left out.")
            return
        found = _rule_files(folder)
        for path in found[:RULES_MAX]:
            self.take(path, own=own, is_rule=True)
        if len(found) > RULES_MAX:
            self.notes.append(f"{shown} has more than {RULES_MAX} files: the others are left out.")

    def take(
        self, path: str, *, own: bool = False, hops: int = 0, by: str = "", is_rule: bool = False
    ) -> bool:
        """Read one file and its imports; return whether it has content.

        `own`: the user's own file, which may import any file. `is_rule`: a file with a head, which
        may say for which files it holds.
        """
        if not os.path.lexists(path):
            return False  # most folders hold none, and realpath makes a system call per folder
        real = os.path.realpath(path)
        shown = shorten_home(path, self.home)
        if real in self.seen:
            return True
        if not own and not real.startswith(self.root.rstrip("/") + "/"):
            if os.path.lexists(path):
                self.notes.append(
                    f"{shown} leads out of the project{f' (imported by {by})' if by else ''}: "
                    "left out."
                )
            return False
        refused = self._refused(path, real)
        if not by and os.path.isdir(real):
            refused = "is a folder"
        data, digest = (b"", "") if refused else self._read(real, shown)
        if (
            data
            and os.path.basename(real) not in USUAL_NAMES
            and has_secrets(data.decode("utf-8", "replace"))
        ):
            refused = "seems to hold a secret"
        if refused:
            self.notes.append(f"{shown}{f' (imported by {by})' if by else ''} {refused}: left out.")
            return False
        head = data[: self.bytes_max + 1]
        text = (
            without_comments(head.decode("utf-8", "replace").removeprefix("\ufeff")) if data else ""
        )
        text = self._rule_text(text, shown) if is_rule else text
        if not data or not text.strip():
            return False
        if own and any(source.hash == digest for source in self.sources):
            return True  # a copy for another agent
        self.seen.add(real)
        self._add(real, shown, digest, text, by)
        self._imports(path, text, own, hops, shown)
        return True

    def _rule_text(self, text: str, shown: str) -> str:
        """Return a rule without its head; '' and a note for one that holds for some files only."""
        try:
            fields, body = split_frontmatter(text)
        except FrontmatterError as error:
            self.notes.append(f"{shown} {error}: left out.")
            return ""
        if fields.get("paths"):
            self.notes.append(f"{shown} holds for some paths only, not for all files: left out.")
            return ""
        return body

    def _refused(self, path: str, real: str) -> str:
        """Return why a file must not be read, as the end of a sentence; '' where it may."""
        from longrein.permissions.rule_evaluation import judge

        if has_secret_name(path) or has_secret_name(real):
            return "has the name of a file with secrets"
        path = os.path.normpath(path)
        call = Call(
            "Read",
            {"file_path": path},
            "read",
            (Touched(path, path, real, inside=True, writes=False),),
        )
        verdict = judge(call, self.rules, "default", self.cwd)
        rule = f"rule {visible(verdict.rule)}" if verdict.rule else verdict.reason
        return "" if verdict.kind == "allow" else f"must not be read without a question ({rule})"

    def _read(self, real: str, shown: str) -> tuple[bytes, str]:
        """Return the content of a regular file and its hash; nothing, and a note, where it
        cannot be read.
        """
        try:
            data = read_bounded(real, FILE_BYTES_MAX, exact=True)
        except FileNotFoundError:
            return b"", ""
        except OSError as error:
            if not os.path.isdir(real):
                said = (
                    f"is {error.strerror}"
                    if error.errno == errno.EFBIG
                    else f"cannot be read ({error.strerror})"
                )
                self.notes.append(f"{shown} {said}: left out.")
            return b"", ""
        return data, hashlib.sha256(data).hexdigest()

    def _add(self, real: str, shown: str, digest: str, text: str, by: str) -> None:
        clean = escape(text.replace("\r\n", "\n")).strip("\n")
        if clean != text.replace("\r\n", "\n").strip("\n"):
            self.notes.append(
                f"{shown} holds characters that cannot be seen: they are written out as \\u…."
            )
        limit = f"{self.bytes_max} bytes together"
        if self.left_bytes <= 0:
            self.notes.append(f"{shown} was left out: instruction files may hold {limit}.")
            return
        size = len(clean.encode("utf-8", "surrogatepass"))
        if size > self.left_bytes:
            clean = (
                _cut(clean, self.left_bytes)
                + f"\n[cut here by longrein: instruction files may hold {limit}]"
            )
            self.notes.append(f"{shown} was cut: instruction files may hold {limit}.")
        self.left_bytes -= size
        whence = f", imported by {by}" if by else ""
        self.texts.append(f"Instructions from {shown}{whence}:\n\n{clean}")
        self.sources.append(SourceFile(real, digest))

    def _imports(self, path: str, text: str, own: bool, hops: int, shown: str) -> None:
        for name in imports(text):
            target = (
                f"{self.home}{name[1:]}"
                if name.startswith("~/")
                else os.path.join(os.path.dirname(path), name)
            )
            target = os.path.normpath(target)
            if not own and not target.startswith(
                (f"{self.root.rstrip('/')}/", f"{self.written_root.rstrip('/')}/")
            ):
                away = shorten_home(
                    target, self.home
                )  # not even looked at: it may be a network mount
                self.notes.append(
                    f"{away} leads out of the project (imported by {shown}): left out."
                )
                continue
            if not os.path.isfile(target):
                continue  # most words after an @ are not files
            if self.left_imports <= 0:
                self.notes.append(
                    f"{shown}: @{name} is beyond the {IMPORTS_MAX} imports of one start: left out."
                )
                return
            self.left_imports -= 1
            if hops >= HOPS_MAX:
                self.notes.append(
                    f"{shown}: @{name} is more than {HOPS_MAX} imports deep: left out."
                )
                continue
            self.take(target, own=own, hops=hops + 1, by=shown)


def _cut(text: str, size_bytes: int) -> str:
    """Return the first lines of `text` that fit, else its first characters."""
    part = text.encode("utf-8", "surrogatepass")[:size_bytes].decode("utf-8", "ignore")
    return part[: part.rfind("\n")] if "\n" in part else part

"""Parts of the input: folded pastes, project history, completion of files and commands."""

import os
import re
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import msgspec
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History

from longrein.agent.extension_part import SlashCommand
from longrein.frontends.localization import translate
from longrein.frontends.terminal.command_table import COMMANDS, summary_of
from longrein.steps.human_text import escape_line
from longrein.tools import SkillInfo
from longrein_context.events import Image

if TYPE_CHECKING:
    from longrein.app.file_names import FilesFound

PASTE_LINES_MAX = 5
"""A paste of more lines is folded."""
PASTE_CHARS_MAX = 1_000
"""The same for one long line."""
HISTORY_BYTES_MAX = 512 * 1024

_TOKEN = re.compile(r"\[Pasted text #(\d{1,9}) \+\d+ lines\]")
_AT = re.compile(r"(?:^|(?<=\s))@(\S*)$")


class Pastes:
    """Long pastes, shown in the input as `[Pasted text #1 +N lines]`."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def fold(self, text: str) -> str:
        """Input text for pasted `text`: a mark when long, else the text."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= PASTE_LINES_MAX and len(text) <= PASTE_CHARS_MAX:
            return text
        self._texts.append(text)
        return f"[Pasted text #{len(self._texts)} +{lines} lines]"

    def expand(self, text: str) -> str:
        """Replace the marks in `text` by their pastes; unknown marks stay."""
        known = dict(enumerate(self._texts, 1))
        return _TOKEN.sub(lambda match: known.get(int(match[1]), match[0]), text)

    def named_in(self, text: str) -> tuple[str, ...]:
        """Return all pastes up to the last one whose mark stands in `text`, to be kept with a
        draft.
        """
        last = max((int(match[1]) for match in _TOKEN.finditer(text)), default=0)
        return tuple(self._texts[:last])

    def restore(self, texts: Sequence[str]) -> None:
        """Take the pastes of a draft back, before any other paste."""
        self._texts[:0] = texts

    @staticmethod
    def token_before(text: str) -> int:
        """Length of the mark at the end of `text`, which is deleted as a whole; 0 without one."""
        start = text.rfind("[Pasted text #")
        return len(text) - start if start >= 0 and _TOKEN.fullmatch(text, start) else 0


class ProjectHistory(History):
    """History file of a project: one JSON string per line, appended in one write for concurrent
    terminals.
    """

    def __init__(self, path: str) -> None:
        """`path` is created, mode 0600, with the first line; '' keeps no history."""
        super().__init__()
        self._path = path

    def load_history_strings(self) -> Iterable[str]:
        lines = _end_of(self._path).split(b"\n") if self._path else []
        return [text for row in reversed(lines) if (text := _decoded(row))]

    def store_string(self, string: str) -> None:
        """Append a message; errors of the disk are ignored."""
        if self._path:
            line = msgspec.json.encode(string.encode("utf-8", "replace").decode()) + b"\n"
            with suppress(OSError), open(self._path, "ab", buffering=0, opener=_private) as file:
                file.write(line)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _end_of(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            file.seek(max(file.seek(0, os.SEEK_END) - HISTORY_BYTES_MAX, 0))
            return file.read()
    except OSError:
        return b""


def _decoded(row: bytes) -> str:
    try:
        return msgspec.json.decode(row, type=str) if row else ""
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""


class InputCompleter(Completer):
    """Completes `/command` at the beginning, those of extensions among them, and `@file`
    anywhere.
    """

    def __init__(
        self,
        complete_files: Callable[[str], "Awaitable[FilesFound]"],
        added: Callable[[], Sequence[SlashCommand]] = tuple,
        custom: Callable[[], Sequence[SkillInfo]] = tuple,
    ) -> None:
        self._complete_files = complete_files
        self._added = added
        self._custom = custom

    def get_completions(
        self,
        document: Document,
        complete_event: CompleteEvent | None,  # noqa: ARG002
    ) -> Iterable[Completion]:
        typed = document.text_before_cursor
        if not typed.startswith("/") or " " in typed or "\n" in typed:
            return []
        rows = [(c.name, c.argument, translate(c.summary)) for c in COMMANDS]
        names = {name for name, _, _ in rows}
        rows += [
            (c.name, escape_line(c.argument_hint), summary_of(c))
            for c in self._custom()
            if c.name not in names
        ]
        commands = [
            Completion(
                f"/{name}",
                -len(typed),
                display=f"/{escape_line(name)} {argument}",
                display_meta=summary,
            )
            for name, argument, summary in rows
            if name.startswith(typed[1:])
        ]
        return commands + [
            Completion(
                f"/{one.name}",
                -len(typed),
                display=f"/{one.name} {one.argument}",
                display_meta=escape_line(translate(one.summary))[:80],
            )
            for one in self._added()
            if one.name.startswith(typed[1:])
        ]

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        for completion in self.get_completions(document, complete_event):
            yield completion
        prefix = at_prefix(document.text_before_cursor)
        if prefix is None:
            return
        found = await self._complete_files(prefix)
        for path in found.paths:
            written = f'"{path}"' if " " in path else path
            space = "" if path.endswith("/") else " "
            yield Completion(
                f"@{written}{space}", start_position=-len(prefix) - 1, display=escape_line(path)
            )
        if found.note:
            yield Completion("", display=f"… {found.note}")  # choosing it changes nothing


def at_prefix(text: str) -> str | None:
    """Text after the `@` at the end of `text`; None without one."""
    found = _AT.search(text)
    return found[1] if found else None


# --- Pictures -------------------------------------------------------------------------------------


TYPES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
PATHS_CHARS_MAX = 8_000
"""Longer pastes are no paths."""
_MARK = re.compile(r"\[image [^\]\n]+\]")


class Pictures:
    """The pictures whose marks stand in the input."""

    def __init__(self, read: Callable[[str], Image | None]) -> None:
        """`read`: path -> picture, None when there is none."""
        self._read = read
        self._images: dict[str, Image] = {}

    def fold(self, pasted: str) -> str:
        """Return marks for a paste that is nothing but paths of pictures; '' for any other
        paste.
        """
        paths = pasted_paths(pasted)
        if not paths or not all(path.lower().endswith(TYPES) for path in paths):
            return ""
        found = [self._read(path) for path in paths]
        images = [image for image in found if image is not None]
        if len(images) < len(paths):
            return ""
        return " ".join(
            self.add(os.path.basename(path), image)
            for path, image in zip(paths, images, strict=True)
        )

    def add(self, name: str, image: Image) -> str:
        """Return the mark of a picture; another picture of the same name gets a number."""
        name = escape_line(name).replace("[", "(").replace("]", ")") or "picture"
        stem, ending = os.path.splitext(name)
        mark, n = f"[image {name}]", 1
        while self._images.get(mark, image) != image:
            n += 1
            mark = f"[image {stem}-{n}{ending}]"
        self._images[mark] = image
        return mark

    def named_in(self, text: str) -> tuple[Image, ...]:
        """Return the pictures whose marks stand in `text`, in their order, each once."""
        marks = dict.fromkeys(_MARK.findall(text))
        return tuple(self._images[mark] for mark in marks if mark in self._images)

    def mark_before(self, text: str) -> int:
        """Return the length of the mark at the end of `text`, which is deleted as a whole; 0
        without one.
        """
        start = text.rfind("[image ")
        return len(text) - start if start >= 0 and text[start:] in self._images else 0


def pasted_paths(text: str) -> list[str]:
    """Return the absolute paths that a paste or drop consists of; [] for anything else.

    Terminals write a dropped path with backslashes, in quotes or as a `file:` address; several are
    apart by blanks or line breaks.
    """
    text = text.strip()
    if not text or len(text) > PATHS_CHARS_MAX or text[0] not in "/~'\"f":
        return []
    if (
        text.startswith(("/", "~/"))
        and "\\" not in text
        and os.path.isfile(os.path.expanduser(text))
    ):
        return [os.path.expanduser(text)]  # a path with blanks, as it is
    try:
        words = shlex.split(text)
    except ValueError:
        return []
    paths = [_path(word) for word in words]
    return paths if all(paths) else []


def _path(word: str) -> str:
    if word.startswith("file:"):
        address = urlsplit(word)
        return unquote(address.path) if address.netloc in ("", "localhost") else ""
    if word.startswith("~/"):
        return os.path.expanduser(word)
    return word if word.startswith("/") else ""

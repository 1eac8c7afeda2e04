"""Export of a stored session to a file, in the formats of longrein and of extensions."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import BinaryIO

from longrein.config import door_points
from longrein.extension_points import EXPORTERS_DOOR, Point
from longrein.store import Reader, export_jsonl
from longrein_context.events import LongreinError, UsageError


def exporters(plugins: Sequence[str]) -> dict[str, Point]:
    """Return the formats of extensions, each with the function from a `Reader` to the bytes,
    whole or in pieces.
    """
    points = door_points(EXPORTERS_DOOR, plugins)
    return {point.name: point for point in reversed(points)}  # those of longrein come first


ENDINGS = {
    ".html": "html",
    ".htm": "html",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "atif",
    ".jsonl": "",
}
"""Ending of a file -> its format, '' for the entries of the log. Another ending is the name of the
format.
"""


def export_file(state_dir: str, plugins: Sequence[str], session: str, path: str) -> None:
    """Write a session to the new file `path`, in the format of its ending. Raises `UsageError`,
    `LongreinError`.
    """
    ending = os.path.splitext(path)[1].lower()
    known = exporters(plugins)
    name = ENDINGS.get(ending, ending[1:])
    if name and name not in known:
        endings = [one for one, form in ENDINGS.items() if form in known or not form]
        raise UsageError(f"{path}: give it one of the endings {', '.join(endings)}")
    if os.path.lexists(path):
        raise UsageError(f"{path} is there already: name another file")
    with closing(Reader(state_dir, session)) as reader:
        if name:
            page = known[name].load()(reader)
            write_new_file(lambda file: write_page(page, file), path)
        else:
            write_new_file(lambda file: export_jsonl(reader, file), path)


def write_page(page: bytes | Iterable[bytes], file: BinaryIO) -> None:
    """Write what an exporter has made, whole or piece by piece."""
    file.writelines((page,) if isinstance(page, bytes) else page)


def write_new_file(write: Callable[[BinaryIO], object], path: str) -> None:
    """Write to the new file `path`, which is removed where it cannot be completed. Raises
    `UsageError`, `LongreinError`.
    """
    try:
        with open(path, "xb", opener=_private) as file:
            try:
                write(file)
            except BaseException:
                os.unlink(path)
                raise
    except FileExistsError:
        raise UsageError(f"{path} is there already; name another file with -o") from None
    except OSError as error:
        raise LongreinError(f"{path} cannot be written: {error.strerror}") from None


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)

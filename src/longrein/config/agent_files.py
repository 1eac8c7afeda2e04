"""The files that hold subagent types: found in folders, read no further than they may, taken in by priority."""

import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from longrein.config.agent_fields import Found, Taking
from longrein.config.frontmatter import split_head
from longrein.config.reading import short
from longrein.events import UsageError, decode_json
from longrein.tools import Kind

FILES_MAX = 200
"""Files of one folder; more is a mistake."""
DEPTH_MAX = 5
"""Folders below one another."""
SIZE_MAX_BYTES = 256 * 1024


def kinds_of(
    folders: Sequence[tuple[str, str]], given: str, home: str, known_tools: Sequence[str]
) -> tuple[dict[str, Kind], list[str]]:
    """(types by name, lines for the user). `folders`: see `agents`; `given`: of `--agents`. Raises `UsageError`."""
    notes: list[str] = []
    scopes = [_given(given)] if given else []
    read: set[str] = set()
    scopes += [list(_files(folder, root, home, notes, read)) for folder, root in folders]
    taking = Taking(known_tools)
    kinds: dict[str, Kind] = {}
    for scope in reversed(scopes):
        kinds |= taking.scope(scope)
    return kinds, [*notes, *taking.notes()]


def _files(folder: str, root: str, home: str, notes: list[str], read: set[str]) -> Iterator[Found]:
    """Markdown files at any depth, in the order of their names; each once, whatever links lead to it."""
    inside = f"{os.path.realpath(root).rstrip('/')}/" if root else ""
    for number, path in enumerate(_walk(folder, DEPTH_MAX, set())):
        shown, real = short(path, home), os.path.realpath(path)
        if number == FILES_MAX:
            notes.append(f"{short(folder, home)} holds more than {FILES_MAX} files: the others were left out.")
            return
        if inside and not real.startswith(inside):
            notes.append(f"{shown} leads out of the project: left out.")
            continue
        if real in read:
            continue
        read.add(real)
        yield _read(path, Found(shown, os.path.basename(path).removesuffix(".md")))


def _walk(folder: str, depth: int, walked: set[str]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in walked:
        return
    walked.add(real)
    try:
        with os.scandir(folder) as listed:
            entries = sorted(listed, key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry.path, depth - 1, walked) if depth else ()
        elif entry.name.endswith(".md") and not entry.name.startswith("."):
            yield entry.path


def _read(path: str, found: Found) -> Found:
    """With what it holds, or why that cannot be read."""
    why = ""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return msgspec.structs.replace(found, problem="is no file")
        with open(path, "rb") as file:
            data = file.read(SIZE_MAX_BYTES + 1)
        if len(data) > SIZE_MAX_BYTES:
            return msgspec.structs.replace(found, problem=f"is larger than {SIZE_MAX_BYTES // 1024} kB")
        fields, body = split_head(data.decode("utf-8"))
        return msgspec.structs.replace(found, fields=fields, body=body)
    except OSError as error:
        why = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        why = "is not UTF-8 text"
    except ValueError as bad:
        why = str(bad)
    return msgspec.structs.replace(found, problem=why)


def _given(text: str) -> list[Found]:
    """The entries of `--agents`."""
    wanted = '--agents wants a JSON object such as {"reviewer": {"description": "…", "prompt": "…"}}'
    try:
        table: Any = decode_json(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"{wanted}: {error}") from None
    if not isinstance(table, dict) or not all(isinstance(fields, dict) for fields in table.values()):
        raise UsageError(wanted)
    return [Found(f"--agents {name}", name, without_name(fields), "") for name, fields in table.items()]


def without_name(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The key is the name."""
    return {key: value for key, value in fields.items() if key != "name"}

"""Versions of a file that the log knows."""

from collections.abc import Iterable

import msgspec

from longrein.store import SessionHistory
from longrein.tools.arguments import nearest
from longrein.tools.recall_times import shown_time
from longrein_context.events import (
    Entry,
    FileChanged,
    FileSeen,
    ToolError,
)

VERSIONS_SHOWN = 12
"""Newest versions that are listed."""
FILES_SHOWN = 30
"""Files that are listed when a path is ambiguous."""


class Version(msgspec.Struct):
    """A version of a file that the session has read or written."""

    seq: int
    """Entry that holds the content."""
    at: int
    """Time of the newest entry with this content, microseconds UTC."""
    how: str
    """Origin of the version: read, changed or removed, and by whom."""
    hash: str
    """Hash of the whole file; '' when the file was gone."""
    kept: bool
    """True if the log has the content."""
    since: int = 0
    """Oldest of the consecutive entries with the same content."""


class FileHistory(msgspec.Struct, frozen=True):
    """All known versions of one file."""

    path: str
    """Absolute."""
    versions: list[Version]
    """Newest first."""


def file_history(past: SessionHistory, path: str, real: str) -> FileHistory:
    """Return the versions of the file `real`, else of the one file whose path ends with `path`.

    Raises `ToolError` with the candidates.
    """
    known: dict[str, list[Version]] = {}
    for entry in past.of_kind("FileSeen", "FileChanged"):
        _add_version(known, entry)
    wanted = path.strip().removeprefix("./")
    meant = (
        [real]
        if real in known
        else [name for name in known if name.endswith("/" + wanted.lstrip("/"))]
    )
    if len(meant) == 1:
        return FileHistory(meant[0], known[meant[0]])
    raise ToolError(_file_problem(known, wanted, real, meant))


def _add_version(known: dict[str, list[Version]], entry: Entry) -> None:
    event = entry.event
    if not isinstance(event, FileSeen | FileChanged):
        return
    versions = known.setdefault(event.path, [])
    if versions and versions[-1].hash == event.hash:
        same = versions[-1]
        same.since = entry.seq
        if event.blob and not same.kept:
            same.seq, same.kept = entry.seq, True
        if isinstance(event, FileChanged):
            same.how = _version_origin(event)
    else:
        versions.append(
            Version(
                entry.seq, entry.at, _version_origin(event), event.hash, bool(event.blob), entry.seq
            )
        )


def _version_origin(event: FileSeen | FileChanged) -> str:
    if isinstance(event, FileSeen):
        return "read"
    verb = "changed" if event.hash else "removed"
    who = {"agent": "you", "user": "the user"}.get(event.by, f"a {event.by}")
    return f"{verb} by {who}"


def _file_problem(known: dict[str, list[Version]], wanted: str, real: str, meant: list[str]) -> str:
    below = [name for name in known if name.startswith(real.rstrip("/") + "/")] if not meant else []
    if meant or below:
        why = (
            f"{len(meant)} files are called {wanted}"
            if meant
            else f"{wanted} is a folder; of it I know"
        )
        return f"[which-file] {why}: {_name_list(meant or below)}. Name one."
    if not known:
        return "[no-file] This session has read or changed no file yet: read it."
    base = nearest(wanted.rpartition("/")[2], [name.rpartition("/")[2] for name in known])
    near = next((name for name in known if base and name.endswith("/" + base)), "")
    hint = f" Did you mean {near}?" if near else f" It knows {_name_list(known)}."
    return f"[no-file] This session has neither read nor changed {wanted[:200]}.{hint}"


def _name_list(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - FILES_SHOWN} more" if len(every) > FILES_SHOWN else ""
    return ", ".join(every[:FILES_SHOWN]) + more


def version_at(found: FileHistory, seq: int) -> Version:
    """Return the version at entry `seq`; with 0 the newest that exists. Raises `ToolError` when
    none is so old.
    """
    standing = [one for one in found.versions if not seq or one.since <= seq]
    if not standing:
        first = found.versions[-1]
        raise ToolError(
            f"[no-file] {found.path} was first seen {shown_time(first.at)} (r{first.since}); "
            "nothing older is known: name a later time."
        )
    return next((one for one in standing if one.hash), standing[0]) if not seq else standing[0]


def version_list(found: FileHistory, shown: Version) -> str:
    """List the versions, a line each, and mark the one whose content follows."""
    rows = [_version_row(one, one is shown) for one in found.versions[:VERSIONS_SHOWN]]
    left = len(found.versions) - VERSIONS_SHOWN
    rows += [f"  and {left} older"] if left > 0 else []
    many = (
        "one version"
        if len(found.versions) == 1
        else f"{len(found.versions)} versions, newest first"
    )
    other = (
        ""
        if len(found.versions) == 1
        else '; another: Recall(handle="r…") or time="…" with this path'
    )
    return "\n".join([f"[{found.path}: {many}{other}]", *rows])


def _version_row(one: Version, shown: bool) -> str:
    lost = "" if one.kept or not one.hash else ", content not kept (too large)"
    return f"{'>' if shown else ' '} r{one.seq} {shown_time(one.at)} {one.how}{lost}"

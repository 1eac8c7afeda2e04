"""A file's past: which versions of it this session has seen or written, and what each held."""

from collections.abc import Iterable

import msgspec

from longrein.events import Entry, FileChanged, FileSeen, ToolError
from longrein.tools.nearest import nearest
from longrein.tools.port import Past
from longrein.tools.recall_times import shown_time

VERSIONS_SHOWN = 12
"""Newest versions that are listed."""
FILES_SHOWN = 30
"""Files that are listed when several are meant."""


class Version(msgspec.Struct):
    """One content of a file."""

    seq: int
    """The last entry that holds it."""
    at: int
    """When that was written, microseconds UTC."""
    how: str
    """Whether it was read, changed or removed, and by whom."""
    hash: str
    """Of the whole file; '' when it was gone."""
    kept: bool
    """Whether its bytes are in the log."""
    since: int = 0
    """The first entry in a row that had the same content."""


class History(msgspec.Struct, frozen=True):
    """What is known of one file."""

    path: str
    """Absolute."""
    versions: list[Version]
    """Newest first."""


def history(past: Past, path: str, real: str) -> History:
    """The versions of the file that is meant: `real`, else the one whose path ends with `path`.

    Raises `ToolError` with those that may be meant.
    """
    known: dict[str, list[Version]] = {}
    for entry in past.of_kind("FileSeen", "FileChanged"):
        _note(known, entry)
    wanted = path.strip().removeprefix("./")
    meant = [real] if real in known else [name for name in known if name.endswith("/" + wanted.lstrip("/"))]
    if len(meant) == 1:
        return History(meant[0], known[meant[0]])
    raise ToolError(_which(known, wanted, real, meant))


def _note(known: dict[str, list[Version]], entry: Entry) -> None:
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
            same.how = _how(event)
    else:
        versions.append(Version(entry.seq, entry.at, _how(event), event.hash, bool(event.blob), entry.seq))


def _how(event: FileSeen | FileChanged) -> str:
    if isinstance(event, FileSeen):
        return "read"
    verb = "changed" if event.hash else "removed"
    return f"{verb} by {'you' if event.by == 'agent' else 'a ' + event.by if event.by != 'user' else 'the user'}"


def _which(known: dict[str, list[Version]], wanted: str, real: str, meant: list[str]) -> str:
    below = [name for name in known if name.startswith(real.rstrip("/") + "/")] if not meant else []
    if meant or below:
        why = f"{len(meant)} files are called {wanted}" if meant else f"{wanted} is a folder; of it I know"
        return f"[which-file] {why}: {_listed(meant or below)}. Name one."
    if not known:
        return "[no-file] This session has read or changed no file yet."
    base = nearest(wanted.rpartition("/")[2], [name.rpartition("/")[2] for name in known])
    near = next((name for name in known if base and name.endswith("/" + base)), "")
    hint = f" Did you mean {near}?" if near else f" It knows {_listed(known)}."
    return f"[no-file] This session has neither read nor changed {wanted[:200]}.{hint}"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - FILES_SHOWN} more" if len(every) > FILES_SHOWN else ""
    return ", ".join(every[:FILES_SHOWN]) + more


def version_at(found: History, seq: int) -> Version:
    """The version that stood when entry `seq` was written; with 0 the newest. Raises `ToolError`."""
    standing = [one for one in found.versions if not seq or one.since <= seq]
    if not standing:
        first = found.versions[-1]
        raise ToolError(
            f"[no-file] {found.path} was first seen {shown_time(first.at)} (r{first.since}); nothing older is known."
        )
    return next((one for one in standing if one.hash), standing[0]) if not seq else standing[0]


def told(found: History, shown: Version) -> str:
    """The versions, a line each; the one whose content follows is marked."""
    rows = [_row(one, one is shown) for one in found.versions[:VERSIONS_SHOWN]]
    left = len(found.versions) - VERSIONS_SHOWN
    rows += [f"  and {left} older"] if left > 0 else []
    many = "one version" if len(found.versions) == 1 else f"{len(found.versions)} versions, newest first"
    other = "" if len(found.versions) == 1 else '; another: Recall(handle="r…") or time="…" with this path'
    return "\n".join([f"[{found.path}: {many}{other}]", *rows])


def _row(one: Version, shown: bool) -> str:
    lost = "" if one.kept or not one.hash else ", content not kept (too large)"
    return f"{'>' if shown else ' '} r{one.seq} {shown_time(one.at)} {one.how}{lost}"

"""Details of an open session that few commands show: settings and rules in force, instruction
files, changed files, earlier answers.
"""

import os
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.app.run_context import RunContext
from longrein.config import config_dir, project_root, shorten_home
from longrein.config.settings import forget_rule, own_rules
from longrein.steps.human_text import joined
from longrein.store import SessionHistory
from longrein_context.events import FileChanged, FileSeen, LongreinError, Replied, Text

if TYPE_CHECKING:
    from longrein.app.app_session import AppSession

KINDS = ("deny", "ask", "allow")
TEXT_BYTES_MAX = 1_000_000
"""Larger files are not compared."""


class RuleRow(msgspec.Struct, frozen=True):
    """A permission rule in force."""

    kind: str
    """`allow`, `ask` or `deny`."""
    rule: str
    origin: str
    """The file, flag or variable that it comes from; `this session` for an answer of this run."""
    removable: bool
    """True for a rule of this session or of the user's own settings file."""


class MemoryFile(msgspec.Struct, frozen=True):
    """An instruction file."""

    path: str
    shown: str
    """The path for display."""
    size_bytes: int
    """-1 for a file that is not there yet."""
    use: str
    """`read`, or why not."""


class ChangedFile(msgspec.Struct, frozen=True):
    """A file that the session changed."""

    path: str
    shown: str
    before: str | None
    """Text before the session's first change, '' for a new file; None when it was not kept or is
    no text.
    """
    after: str | None
    """Text on disk now, '' for a removed file; None when it is no text."""


# --- Settings and rules ---------------------------------------------------------------------------


def changed_settings(opened: "AppSession") -> Sequence[tuple[str, str, str]]:
    """Return the settings that are not built in; values without secrets."""
    place = opened.app.context
    return [
        (key, opened.deps.redact(_value(place, key)), origin)
        for key, origin in sorted(place.settings.origin.items())
    ]


def _value(run_context: RunContext, key: str) -> str:
    """Return the value of a setting as text; `…` for headers and variables, which may hold
    secrets.
    """
    value: Any = run_context.settings
    names = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', key)]
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    hidden = value is None or names[-1] == "headers" or names[0] in ("env", "redact")
    return "…" if hidden else msgspec.json.encode(value).decode()


def rules_in_force(opened: "AppSession") -> Sequence[RuleRow]:
    """Return the rules in force: of this session, of the user's file, of other places."""
    place = opened.app.context
    own = {(kind, rule): where for kind, rule, where in own_rules(place.environ, place.home)}
    rows = []
    for kind in KINDS:
        known = getattr(opened.deps.rules, kind)
        session = opened.session.approvals.rules if kind == "allow" else ()
        for rule in dict.fromkeys((*known, *session)):
            origins = place.settings.origin.get(f"permissions.{kind}", "").split(", ")
            elsewhere = (
                joined(*(one for one in origins if one not in own.values())) or "the command line"
            )
            where = own.get((kind, rule)) or ("this session" if rule in session else elsewhere)
            rows.append(RuleRow(kind, rule, where, (kind, rule) in own or rule in session))
    return rows


def remove_rule(opened: "AppSession", row: RuleRow) -> None:
    """Remove a rule from this session, and from the user's file if it stands there."""
    place = opened.app.context
    own = [(kind, rule) for kind, rule, _ in own_rules(place.environ, place.home)]
    if (row.kind, row.rule) in own:
        forget_rule(row.kind, row.rule, place.environ, place.home)
    kept = tuple(rule for rule in getattr(opened.deps.rules, row.kind) if rule != row.rule)
    opened.deps.rules = msgspec.structs.replace(opened.deps.rules, **{row.kind: kept})
    if row.kind == "allow":
        approvals = opened.session.approvals
        approvals.rules = tuple(rule for rule in approvals.rules if rule != row.rule)


def instruction_files(opened: "AppSession") -> Sequence[MemoryFile]:
    """Return the instruction files that the model was given, then the usual ones that are not
    there yet.
    """
    place = opened.app.context
    state = opened.session.state
    read = [*(source.path for source in state.prefix.sources), *state.told] if state.prefix else []
    files = [_memory_file(place.home, path, "read") for path in dict.fromkeys(read)]
    skipped = [path for path in place.trusted.left_out if path.endswith(".md")]
    files += [
        _memory_file(place.home, os.path.join(place.cwd, path), "not read: not trusted")
        for path in skipped
    ]
    usual = os.path.join(place.cwd, "AGENTS.md")
    if all(file.path != os.path.realpath(usual) for file in files) and not os.path.lexists(usual):
        files.append(_memory_file(place.home, usual, ""))
    return files


def _memory_file(home: str, path: str, use: str) -> MemoryFile:
    try:
        found = os.stat(path).st_size
    except OSError:
        found = -1
    return MemoryFile(path, shorten_home(path, home), found, use)


# --- Instruction files that notes are added to ----------------------------------------------------


def note_files(run_context: RunContext) -> Sequence[tuple[str, str]]:
    """Return (label, path) of the project's file of instructions, which may not exist yet, and
    of the user's own.
    """
    root = project_root(run_context.cwd)
    names = [
        name
        for name in run_context.settings.context.files
        if os.path.isfile(os.path.join(root, name))
    ]
    usual = (
        "AGENTS.md"
        if "AGENTS.md" in run_context.settings.context.files
        else next(iter(run_context.settings.context.files), "")
    )
    project = os.path.join(root, next(iter(names), usual))
    own = os.path.join(config_dir(run_context.environ, run_context.home), "AGENTS.md")
    return [*([("this project", project)] if usual else []), ("all your projects", own)]


# --- Changes and answers --------------------------------------------------------------------------


async def changed_files(opened: "AppSession") -> Sequence[ChangedFile]:
    """Return the files that the session and its subagents changed with their tools, by name."""
    cwd = opened.session.state.cwd

    def read(past: SessionHistory) -> list[ChangedFile]:
        first: dict[str, str] = {}
        kept: set[str] = set()
        for entry in past.entries():
            event = entry.event
            if (
                isinstance(event, FileSeen | FileChanged)
                and event.hash
                and event.blob == event.hash
            ):
                kept.add(event.hash)
            if isinstance(event, FileChanged) and event.by in ("agent", "subagent"):
                first.setdefault(event.path, event.before)
        return [
            ChangedFile(
                path, os.path.relpath(path, cwd), _before(past, before, kept), _present(path)
            )
            for path, before in sorted(first.items())
        ]

    return await opened.read_history(read)


def _before(past: SessionHistory, before: str, kept: set[str]) -> str | None:
    if not before:
        return ""
    try:
        return _text(past.blob(before)) if before in kept else None
    except (KeyError, LongreinError):
        return None


def _present(path: str) -> str | None:
    try:
        with open(path, "rb") as file:
            return _text(file.read(TEXT_BYTES_MAX + 1))
    except FileNotFoundError:
        return ""
    except OSError:
        return None


def _text(data: bytes) -> str | None:
    if len(data) > TEXT_BYTES_MAX or b"\0" in data[:8192]:
        return None
    return data.decode("utf-8", "replace")


async def nth_answer(opened: "AppSession", nth: int) -> str:
    """Return the text of the last reply but `nth` - 1 that has one."""

    def read(past: SessionHistory) -> str:
        left = nth
        for entry in past.of_kind("Replied"):
            event = entry.event
            text = (
                "".join(p.text for p in event.parts if isinstance(p, Text))
                if isinstance(event, Replied)
                else ""
            )
            left -= bool(text.strip())
            if not left:
                return text.strip()
        return ""

    return await opened.read_history(read)

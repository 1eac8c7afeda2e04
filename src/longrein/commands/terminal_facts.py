"""Facts and callbacks of a session, its settings and its files, for the terminal's slash commands
and its input.
"""

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import msgspec

from longrein import __version__
from longrein.agent.messages import session_usd
from longrein.app import AppSession
from longrein.app.run_context import CLOCK, RunContext, chosen_model, fork
from longrein.config import config_dir, project_root, shorten_home, user_file
from longrein.config.settings_file import forget_rule, own_rules
from longrein.events import FileChanged, FileSeen, LongreinError, Replied, Text, UsageError
from longrein.frontends.reports.cost import CostRow, cost_rows
from longrein.frontends.terminal.clipboard_image import clipboard_image
from longrein.frontends.terminal.command_facts import ChangedFile, CommandFacts, MemoryFile, RuleRow
from longrein.frontends.terminal.input_facts import InputFacts
from longrein.frontends.terminal.keymap import ACTIONS
from longrein.models import open_model
from longrein.settings_schema import EFFORTS
from longrein.steps.human_text import joined, money, size, tokens
from longrein.store import HistoryReader, Reader, find_session, is_open
from longrein.store.daemon_threads import run_in_thread

KINDS = ("deny", "ask", "allow")
TEXT_BYTES_MAX = 1_000_000
"""Larger files are not compared."""


def command_facts(place: RunContext, built: AppSession) -> CommandFacts:
    """Return the callbacks of the slash commands for one open session."""
    efforts = EffortChoice(place, built)
    return CommandFacts(
        environ=place.environ,
        status=lambda: _status(place, built, efforts),
        settings=lambda: _settings(place, built),
        settings_file=user_file(place.environ, place.home),
        doctor=lambda: _doctor(place),
        rules=lambda: _rules(place, built),
        remove_rule=lambda row: _remove_rule(place, built, row),
        memory=lambda: _memory(place, built),
        changes=lambda: _changes(built),
        git=lambda words: _git(built, words),
        effort=efforts.now,
        efforts=EFFORTS,
        set_effort=efforts.change,
        costs=lambda: _costs(built),
        answer=lambda nth: _answer(built, nth),
        export=lambda path: _export(place, built, path),
        fork=lambda: fork(place, built.session.id),
        folder=lambda written: _folder(built, written),
        folders=lambda: built.deps.workspace.roots,
        is_open=lambda session: _is_open(place, session),
        preview=lambda session: _preview(place, session),
    )


# --- Status, settings, rules, instruction files ---------------------------------------------------


def _status(
    place: RunContext, built: AppSession, efforts: "EffortChoice"
) -> Sequence[tuple[str, str]]:
    deps, state = built.deps, built.session.state
    window = deps.model.budget.usable_tokens
    rung = deps.sandbox.rung if deps.sandbox is not None else None
    servers = [one for part in deps.extension_parts for one in part.connections()]
    working = sum(status == "connected" for _, status in servers)
    key = "" if built.key_source == "none" else f"key from {built.key_source}"
    return [
        ("longrein", __version__),
        ("model", joined(deps.model.name, efforts.now() and f"effort {efforts.now()}", key)),
        ("folder", joined(state.cwd, state.branch and f"branch {state.branch}")),
        *(
            [("further folders", ", ".join(deps.workspace.roots[1:]))]
            if deps.workspace.roots[1:]
            else []
        ),
        (
            "trust",
            "trusted"
            if place.trusted.cover(place.cwd)
            else "not trusted; `longrein trust` changes that",
        ),
        (
            "sandbox",
            rung.name if rung is not None and rung.confines else "none: commands run as you",
        ),
        ("context", f"{tokens(state.view_tokens)} of {tokens(window)} tokens"),
        ("spent", money(session_usd(state, built.session.agents()))),
        ("MCP servers", f"{working} of {len(servers)} connected" if servers else "none"),
        ("state folder", place.state_dir),
    ]


def _settings(place: RunContext, built: AppSession) -> Sequence[tuple[str, str, str]]:
    """Return the settings that are not built in; values without secrets."""
    return [
        (key, built.deps.redact(_value(place, key)), origin)
        for key, origin in sorted(place.settings.origin.items())
    ]


def _value(place: RunContext, key: str) -> str:
    """Return the value of a setting as text; `…` for headers and variables, which may hold
    secrets.
    """
    value: Any = place.settings
    names = [quoted or bare for quoted, bare in re.findall(r'"([^"]*)"|([^."]+)', key)]
    for name in names:
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    hidden = value is None or names[-1] == "headers" or names[0] in ("env", "redact")
    return "…" if hidden else msgspec.json.encode(value).decode()


async def _doctor(place: RunContext) -> Sequence[str]:
    from longrein.commands.doctor import doctor_lines

    return await asyncio.wrap_future(run_in_thread(lambda: doctor_lines(place), "doctor"))


def _rules(place: RunContext, built: AppSession) -> Sequence[RuleRow]:
    """Return the rules in force: of this session, of the user's file, of other places."""
    own = {(kind, rule): where for kind, rule, where in own_rules(place.environ, place.home)}
    rows = []
    for kind in KINDS:
        known = getattr(built.deps.rules, kind)
        session = built.session.approvals.rules if kind == "allow" else ()
        for rule in dict.fromkeys((*known, *session)):
            origins = place.settings.origin.get(f"permissions.{kind}", "").split(", ")
            elsewhere = (
                joined(*(one for one in origins if one not in own.values())) or "the command line"
            )
            where = own.get((kind, rule)) or ("this session" if rule in session else elsewhere)
            rows.append(RuleRow(kind, rule, where, (kind, rule) in own or rule in session))
    return rows


def _remove_rule(place: RunContext, built: AppSession, row: RuleRow) -> None:
    if any(
        (kind, rule) == (row.kind, row.rule)
        for kind, rule, _ in own_rules(place.environ, place.home)
    ):
        forget_rule(row.kind, row.rule, place.environ, place.home)
    kept = tuple(rule for rule in getattr(built.deps.rules, row.kind) if rule != row.rule)
    built.deps.rules = msgspec.structs.replace(built.deps.rules, **{row.kind: kept})
    if row.kind == "allow":
        built.session.approvals.rules = tuple(
            rule for rule in built.session.approvals.rules if rule != row.rule
        )


def _memory(place: RunContext, built: AppSession) -> Sequence[MemoryFile]:
    """Return the instruction files that the model was given, then the usual ones that are not
    there yet.
    """
    state = built.session.state
    read = [*(source.path for source in state.prefix.sources), *state.told] if state.prefix else []
    files = [_memory_file(place, path, "read") for path in dict.fromkeys(read)]
    skipped = [path for path in place.left_out if path.endswith(".md")]
    files += [
        _memory_file(place, os.path.join(place.cwd, path), "not read: not trusted")
        for path in skipped
    ]
    usual = os.path.join(place.cwd, "AGENTS.md")
    if all(file.path != os.path.realpath(usual) for file in files) and not os.path.lexists(usual):
        files.append(_memory_file(place, usual, ""))
    return files


def _memory_file(place: RunContext, path: str, use: str) -> MemoryFile:
    try:
        found = os.stat(path).st_size
    except OSError:
        found = -1
    return MemoryFile(path, shorten_home(path, place.home), found, use)


class EffortChoice:
    """The effort of thinking of one session, which the user may change."""

    def __init__(self, place: RunContext, built: AppSession) -> None:
        self._place = place
        self._built = built
        self._chosen = ""

    def now(self) -> str:
        """Return the effort in force; '' for the provider's default."""
        if self._chosen:
            return self._chosen
        try:
            return chosen_model(self._place, self._built.deps.model.name).effort
        except LongreinError:
            return ""  # a model of a plugin

    def change(self, level: str) -> str:
        """Open models with `level` from now on; return the present one. Raises `LongreinError`."""
        deps = self._built.deps
        place = self._place
        log = self._built.log
        chosen_model(place, deps.model.name)  # raises for one that a plugin opens
        deps.open_model = lambda name: open_model(
            msgspec.structs.replace(chosen_model(place, name), effort=level), log.read_blob, CLOCK
        )
        self._chosen = level
        return deps.model.name


# --- Changes, money, copies -----------------------------------------------------------------------


async def _changes(built: AppSession) -> Sequence[ChangedFile]:
    """Return the files that the session and its subagents changed with their tools, by name."""
    cwd = built.session.state.cwd

    def read(past: Reader) -> list[ChangedFile]:
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

    return await HistoryReader(built.app.context.state_dir, built.session.id).reading(read)


def _before(past: Reader, before: str, kept: set[str]) -> str | None:
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


async def _git(built: AppSession, words: Sequence[str]) -> tuple[int, str]:
    from longrein.workspace.git import run_git

    code, said = await run_git(built.deps.workspace, words, built.session.state.cwd)
    return code, said.decode("utf-8", "replace")


async def _costs(built: AppSession) -> Sequence[CostRow]:
    archive = HistoryReader(built.app.context.state_dir, built.session.id)
    return await archive.reading(lambda past: cost_rows(past.entries()))


async def _answer(built: AppSession, nth: int) -> str:
    """Return the text of the last reply but `nth` - 1 that has one."""
    archive = HistoryReader(built.app.context.state_dir, built.session.id)

    def read(past: Reader) -> str:
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

    return await archive.reading(read)


async def _export(place: RunContext, built: AppSession, path: str) -> str:
    """Write the session to `path`, in the format of its ending; return the line about it."""
    from longrein.commands.sessions import export_file

    target = os.path.join(
        built.session.state.cwd, os.path.expanduser(path or f"longrein-{built.session.id[:8]}.md")
    )
    await asyncio.wrap_future(
        run_in_thread(lambda: export_file(place, built.session.id, target), "export")
    )
    entries, written = built.session.state.seq, os.path.getsize(target)
    return f"written to {shorten_home(target, place.home)}: {entries} entries, {size(written)}"


def _folder(built: AppSession, written: str) -> str:
    path = os.path.abspath(os.path.join(built.session.state.cwd, os.path.expanduser(written)))
    if not os.path.isdir(path):
        raise UsageError(f"{path} is not a folder")
    return path


def _is_open(place: RunContext, session: str) -> bool:
    return is_open(place.state_dir, find_session(place.state_dir, session))


async def _preview(place: RunContext, session: str) -> Sequence[str]:
    from longrein.frontends.reports.session_preview import preview_lines

    def read() -> Sequence[str]:
        with closing(Reader(place.state_dir, session)) as reader:
            return preview_lines(reader)

    return await asyncio.wrap_future(run_in_thread(read, "preview"))


# --- The input ------------------------------------------------------------------------------------


def folder_name(cwd: str) -> str:
    """Return the name under which something is kept for a folder, such as what was sent there."""
    return cwd.strip("/").replace("/", "-")[-200:] or "root"


def input_facts(place: RunContext, built: AppSession) -> InputFacts:
    """Return the facts for the input of one session."""
    settings = place.settings
    reader = built.attachments()
    return InputFacts(
        keys={
            one.name: getattr(settings.keys, one.name)
            for one in ACTIONS
            if f"keys.{one.name}" in settings.origin
        },
        vim=settings.keys.vim,
        drafts=os.path.join(place.state_dir, "drafts", folder_name(place.cwd)),
        environ=place.environ,
        attachments=reader.read,
        image=reader.image,
        image_of=reader.image_of,
        clipboard=lambda: built.deps.workspace.run_in_thread(
            lambda: clipboard_image(place.environ)
        ),
        memory_files=lambda: memory_files(place),
    )


def memory_files(place: RunContext) -> Sequence[tuple[str, str]]:
    """Return (label, path) of the project's file of instructions, which may not exist yet, and
    of the user's own.
    """
    root = project_root(place.cwd)
    names = [
        name for name in place.settings.context.files if os.path.isfile(os.path.join(root, name))
    ]
    usual = (
        "AGENTS.md"
        if "AGENTS.md" in place.settings.context.files
        else next(iter(place.settings.context.files), "")
    )
    project = os.path.join(root, next(iter(names), usual))
    own = os.path.join(config_dir(place.environ, place.home), "AGENTS.md")
    return [*([("this project", project)] if usual else []), ("all your projects", own)]

"""Slash commands about the session as a whole: title, copy, export, fork, folders, effort, other
sessions, rewind.
"""

import asyncio
import os
from collections.abc import Sequence
from contextlib import closing
from functools import partial

from longrein.agent import Rewind, RewindPreview, SetModel, SetTitle
from longrein.app import App
from longrein.app.run_context import CLOCK
from longrein.config import shorten_home
from longrein.frontends.localization import translate
from longrein.frontends.reports.cost import preview_lines
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.clipboard import copy
from longrein.frontends.terminal.command_types import (
    Choices,
    Command,
    CommandContext,
    CommandResult,
    MaybeAwaitable,
    Outcome,
    done,
    leave,
    notice,
    number,
    without_keep,
)
from longrein.frontends.terminal.event_lines import Line, line
from longrein.settings_schema import EFFORTS
from longrein.steps.human_text import age, counted, escape_line, joined, size
from longrein.store import Reader, SessionInfo
from longrein.store.daemon_threads import run_in_thread
from longrein_context.events import Opened, SessionError
from longrein_context.events.escape import one_line

ROWS_MAX = 100
"""Sessions shown by `/resume`."""
ONE_SHOT = "one-shot runs (-p)"
NOTHING_SAID = "nothing was said yet"


async def session_rows(app: App) -> list[Row]:
    """Return the sessions of this folder that have a title, newest first; one-shot runs come
    last.
    """

    place = app.context

    def read() -> list[Row]:
        here = [info for info in app.sessions() if info.cwd == place.cwd and info.title]
        now = CLOCK.wall_us()
        infos = sorted(here, key=lambda info: info.one_shot)[:ROWS_MAX]
        return [
            Row(info.session, info.title, _note(app, info, now), ONE_SHOT if info.one_shot else "")
            for info in infos
        ]

    return await asyncio.wrap_future(run_in_thread(read, "sessions"))


def _note(app: App, info: SessionInfo, now: int) -> str:
    """Return age, branch, size and, where it is so, that another process has it open."""
    where = translate("open elsewhere") if info.open else ""
    entries = "" if info.damaged else translate(counted(info.entries, "entry"))
    old = translate(age(now - info.updated_at))
    return joined(old, _branch(app, info), entries, where, by=" · ")


def _branch(app: App, info: SessionInfo) -> str:
    try:
        with closing(Reader(app.context.state_dir, info.session)) as reader:
            opened = reader.opening_entry()
    except SessionError:
        return ""
    return opened.event.branch if opened is not None and isinstance(opened.event, Opened) else ""


def _rename(context: CommandContext, title: str) -> CommandResult:
    line, now = one_line(title), context.session.state.title
    if not line:
        first = context.view.prompts[0].text.partition("\n")[0] if context.view.prompts else ""
        shown = escape_line(now or first)[:200]
        return notice(
            f"the title is: {shown}; /rename TITLE gives another"
            if shown
            else "say which: /rename TITLE"
        )
    if line == now:
        return notice(f"the title is {escape_line(line)} already")
    return CommandResult(message=SetTitle(line))


async def _copy(context: CommandContext, wanted: str) -> CommandResult:
    nth = number(wanted) if wanted else 1
    if nth < 1:
        return notice("say which: /copy, or /copy 2 for the last answer but one")
    text = await context.opened.answer(nth)
    if not text:
        return notice(
            f"there is no answer {nth} to copy" if nth > 1 else "there is no answer to copy yet"
        )
    how = await copy(text, context.opened.app.context.environ)
    return done(
        f"copied {how}: {counted(text.count(chr(10)) + 1, 'line')}, {len(text):,} characters"
    )


async def _export(context: CommandContext, path: str) -> CommandResult:
    if not context.view.prompts:
        return notice(f"{NOTHING_SAID}, so there is nothing to export")
    opened = context.opened
    target = opened.resolve_path(path or f"longrein-{opened.session.id[:8]}.md")
    await opened.export(target)
    shown = escape_line(shorten_home(target, opened.app.context.home))
    entries = opened.session.state.seq
    return done(f"written to {shown}: {counted(entries, 'entry')}, {size(os.path.getsize(target))}")


async def _fork(context: CommandContext, _: str) -> CommandResult:
    if not context.view.prompts:
        return notice(f"{NOTHING_SAID}, so there is nothing to fork")
    before, copied = context.session.id, await context.opened.fork()
    return CommandResult(
        outcome=Outcome("switch", copied),
        notice=f"from here on this is a copy, session {copied[:8]}; session {before[:8]} stays as "
        "it is",
        is_done=True,
    )


def _add_dir(context: CommandContext, path: str) -> CommandResult:
    known = context.opened.folders
    if not path:
        shown = escape_line(", ".join(known) or context.session.state.cwd)
        return notice(f"longrein works in {shown}; /add-dir FOLDER adds one")
    folder = context.opened.resolve_folder(path)
    if folder in known:
        return notice(f"{escape_line(folder)} is one of the folders already")
    spoken = bool(context.view.prompts)
    return CommandResult(
        outcome=Outcome("switch" if spoken else "new", context.session.id * spoken, folder=folder)
    )


EFFORT_NOTES = {
    "none": "answers at once, where the model allows it",
    "minimal": "hardly thinks: quick and cheap",
    "low": "thinks briefly",
    "medium": "thinks for usual tasks",
    "high": "thinks long: hard tasks, more tokens",
    "max": "thinks as long as the model allows",
}


def _effort(context: CommandContext, argument: str) -> CommandResult:
    level, keeps = without_keep(argument)
    now = context.opened.effort or "the provider's default"
    if not level:
        rows = [Row(one, one, EFFORT_NOTES[one], is_present=one == now) for one in EFFORTS]
        title = f"how much should the model think? now: {now}"
        return CommandResult(choices=Choices(title, rows, keeps=True))
    if level not in EFFORTS:
        return notice(f"there is no effort {escape_line(level)}; it is one of {', '.join(EFFORTS)}")
    setting = ("models", context.opened.model, "effort")
    kept = context.opened.app.keep_setting(setting, level) if keeps else ""
    if level == now:
        return done(kept) if kept else notice(f"the effort is {level} already")
    model = context.opened.set_effort(level)
    told = (
        f"effort: {now} → {level}, from the next request of this session on; it writes the "
        "cache anew"
    )
    return CommandResult(message=SetModel(model), notice=kept or told, is_done=True)


def _resume(context: CommandContext, session: str) -> MaybeAwaitable:
    return _chosen(context, session) if session else _sessions(context)


async def _sessions(context: CommandContext) -> CommandResult:
    app = context.opened.app
    rows = await session_rows(app)
    others = [row for row in rows if row.value != context.session.id]
    if not others:
        return notice("there is no other session of this folder")

    async def preview(session: str) -> Sequence[str]:
        return await app.read(session, preview_lines)

    return CommandResult(choices=Choices("which session?", others, preview=preview))


def _chosen(context: CommandContext, session: str) -> CommandResult:
    """Open a session, or ask what to do with one that is open elsewhere: `ID`, `ID watch`, `ID
    fork`.
    """
    name, _, how = session.partition(" ")
    if how.strip() in ("watch", "copy"):
        return CommandResult(outcome=Outcome("watch" if how.strip() == "watch" else "copy", name))
    if not context.opened.app.is_open(name):
        return leave("switch", name)
    rows = [
        Row(f"{name} watch", "watch it", "read-only, as it goes on there"),
        Row(f"{name} copy", "go on in a copy", "the session there stays as it is"),
    ]
    return CommandResult(choices=Choices("that session is open in another process:", rows))


SESSION_COMMANDS = (
    Command(
        "resume",
        "[ID]",
        "open another session; go on with it, or watch it",
        _resume,
        ("sessions",),
        idle_only=True,
    ),
    Command("rename", "[TITLE]", "give the session a title", _rename),
    Command(
        "fork",
        "",
        "go on in a copy; this session stays as it is",
        _fork,
        ("branch",),
        idle_only=True,
    ),
    Command("export", "[FILE]", "write the session out; FILE: .md .html .json .jsonl", _export),
    Command("copy", "[N]", "copy the last answer; or the N-th last one", _copy),
    Command("add-dir", "[FOLDER]", "work in FOLDER, too", _add_dir, idle_only=True),
    Command("effort", "[LEVEL [--keep]]", "how much to think", _effort),
)


def rewind(context: CommandContext, argument: str) -> MaybeAwaitable:
    """Go back to before something that the user said; without words, choose."""
    seq, _, rest = argument.partition(" ")
    prompts, how = context.view.prompts, rest.strip()
    target = next((prompt for prompt in prompts if prompt.seq == number(seq)), None)
    if argument == "undo":
        if not context.view.rewound:
            return notice("there is no rewind to take back")
        return CommandResult(message=Rewind(context.view.rewound - 1, files=True))
    if target is not None and how == "show":
        return _rewind_preview(context, target.seq - 1)
    if target is not None and how == "only-files":
        return CommandResult(message=Rewind(target.seq - 1, files=True, conversation=False))
    if target is not None and how in ("", "files", "all-files"):
        word = Rewind(target.seq - 1, bool(how), overwrite=how == "all-files")
        return CommandResult(message=word, edit=target.text)
    if not prompts:
        return notice(f"{NOTHING_SAID}, so there is nothing to go back to")
    rows = [
        Row(str(prompt.seq), prompt.text.partition("\n")[0][:300]) for prompt in reversed(prompts)
    ]
    first = rows[0].value
    hint = (
        f"/rewind {first} files restores the files too; /rewind {first} show says which; "
        "/rewind undo takes it back"
    )
    return CommandResult(
        choices=Choices(
            "go back to before which of your words?",
            rows,
            partial(_rewind_ways, context),
            hint,
        )
    )


async def _rewind_preview(context: CommandContext, to: int) -> CommandResult:
    preview = await context.session.preview_rewind(to)
    return CommandResult("what a rewind with the files does", preview_rows(preview))


async def _rewind_ways(context: CommandContext, seq: str) -> CommandResult:
    preview = await context.session.preview_rewind(number(seq) - 1)
    lasts = "/rewind undo takes it back"
    return CommandResult(choices=Choices("what goes back?", ways_back(seq, preview), lasts=lasts))


FILES_MAX = 200
"""Files that a preview lists for each kind."""


def preview_summary(preview: RewindPreview) -> str:
    """Describe a preview in one line: `2 files put back, 1 removed, 1 kept`."""
    back = len(preview.restored)
    gone = len(preview.removed)
    kept = len(preview.kept)
    if not back and not gone and not kept:
        return translate("no file has changed since")
    parts = [
        f"{counted(back, 'file')} put back" if back else "",
        f"{gone} removed" if gone else "",
        f"{kept} kept as they are" if kept else "",
    ]
    return ", ".join(translate(part) for part in parts if part)


def preview_rows(preview: RewindPreview) -> list[Line]:
    """List every file with what becomes of it, and the notes."""
    rows = [line(("dim", preview_summary(preview)))]
    for what, paths in (("put back", preview.restored), ("removed", preview.removed)):
        rows += [
            line(("dim", f"  {translate(what)}  "), escape_line(path)) for path in paths[:FILES_MAX]
        ]
        rows += (
            [line(("dim", translate(f"  … and {len(paths) - FILES_MAX} more")))]
            if len(paths) > FILES_MAX
            else []
        )
    for put in preview.kept[:FILES_MAX]:
        rows.append(
            line(
                ("warn", translate("  kept  ")),
                escape_line(put.path),
                ("dim", f"  {escape_line(put.why)}"),
            )
        )
    rows += [line(("dim", f"  {escape_line(note)}")) for note in preview.notes]
    return [*rows, line(("dim", translate("  files that .gitignore excludes stay as they are")))]


def ways_back(seq: str, preview: RewindPreview) -> Sequence[Row]:
    """Return the ways to go back to before message `seq`, with what each does to the files."""
    effect = preview_summary(preview)
    rows = [
        Row(seq, "the conversation only", "files stay as they are"),
        Row(f"{seq} files", "the conversation and the files", effect),
        Row(f"{seq} only-files", "the files only", effect),
    ]
    if preview.kept:
        rows.append(
            Row(
                f"{seq} all-files",
                "both, also files that somebody else changed",
                "their changes are lost",
            )
        )
    return [*rows, Row(f"{seq} show", "show what becomes of each file", "changes nothing")]

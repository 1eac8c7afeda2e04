"""Slash commands about the session as a whole: title, copy, export, fork, folders, effort, other
sessions.
"""

from longrein.agent import SetModel, SetTitle
from longrein.events.escape import one_line
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_types import (
    Choices,
    Command,
    CommandContext,
    CommandResult,
    MaybeAwaitable,
    leave,
    notice,
    number,
)
from longrein.frontends.terminal.interface import Outcome
from longrein.steps.human_text import counted, escape_line

NOTHING_SAID = "nothing was said yet"


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
    from longrein.frontends.terminal.clipboard import copy

    nth = number(wanted) if wanted else 1
    if nth < 1:
        return notice("say which: /copy, or /copy 2 for the last answer but one")
    text = (
        await context.facts.commands.answer(nth)
        if context.facts.commands.answer is not None
        else ""
    )
    if not text:
        return notice(
            f"there is no answer {nth} to copy" if nth > 1 else "there is no answer to copy yet"
        )
    how = await copy(text, context.facts.commands.environ)
    return notice(
        f"copied {how}: {counted(text.count(chr(10)) + 1, 'line')}, {len(text):,} characters"
    )


async def _export(context: CommandContext, path: str) -> CommandResult:
    if not context.view.prompts:
        return notice(f"{NOTHING_SAID}, so there is nothing to export")
    line = await context.facts.commands.export(path)
    return notice(escape_line(line) or "this session is not on disk, so it cannot be exported")


async def _fork(context: CommandContext, _: str) -> CommandResult:
    if not context.view.prompts or context.facts.commands.fork is None:
        return notice(f"{NOTHING_SAID}, so there is nothing to fork")
    return leave("switch", await context.facts.commands.fork())


def _add_dir(context: CommandContext, path: str) -> CommandResult:
    known = context.facts.commands.folders()
    if not path:
        shown = escape_line(", ".join(known) or context.session.state.cwd)
        return notice(f"longrein works in {shown}; /add-dir FOLDER adds one")
    folder = context.facts.commands.folder(path)
    if folder in known:
        return notice(f"{escape_line(folder)} is one of the folders already")
    spoken = bool(context.view.prompts)
    return CommandResult(
        outcome=Outcome("switch" if spoken else "new", context.session.id * spoken, folder=folder)
    )


def _effort(context: CommandContext, level: str) -> CommandResult:
    commands = context.facts.commands
    now = commands.effort() or "the provider's default"
    if not level:
        rows = [Row(one, one, "now" if one == now else "") for one in commands.efforts]
        return (
            CommandResult(choices=Choices(f"how much should the model think? now: {now}", rows))
            if rows
            else notice(f"the effort is {now}")
        )
    if level not in commands.efforts:
        return notice(
            f"there is no effort {escape_line(level)}; it is one of {', '.join(commands.efforts)}"
        )
    if level == now:
        return notice(f"the effort is {level} already")
    model = commands.set_effort(level)
    told = (
        f"effort: {now} → {level}, from the next request of this session on; it writes the "
        "cache anew"
    )
    return CommandResult(message=SetModel(model), notice=told)


def _resume(context: CommandContext, session: str) -> MaybeAwaitable:
    return _chosen(context, session) if session else _sessions(context)


async def _sessions(context: CommandContext) -> CommandResult:
    rows = await context.facts.sessions() if context.facts.sessions is not None else ()
    others = [row for row in rows if row.value != context.session.id]
    if not others:
        return notice("there is no other session of this folder")
    preview = context.facts.commands.preview
    return CommandResult(choices=Choices("which session?", others, search=True, preview=preview))


def _chosen(context: CommandContext, session: str) -> CommandResult:
    """Open a session, or ask what to do with one that is open elsewhere: `ID`, `ID watch`, `ID
    fork`.
    """
    name, _, how = session.partition(" ")
    if how.strip() in ("watch", "copy"):
        return CommandResult(outcome=Outcome("watch" if how.strip() == "watch" else "copy", name))
    if not context.facts.commands.is_open(name):
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
        "go on with another session, or watch it",
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
    Command("export", "[FILE]", "write the session to FILE: .md .html .json .jsonl", _export),
    Command("copy", "[N]", "copy the last answer, or the N-th last one", _copy),
    Command("add-dir", "[FOLDER]", "let longrein work in FOLDER, too", _add_dir, idle_only=True),
    Command("effort", "[LEVEL]", "how much the model thinks", _effort),
)

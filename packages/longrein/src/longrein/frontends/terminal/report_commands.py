"""Slash commands that show something: status, settings, rules, instruction files, skills,
changes, the todo list.
"""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from longrein.agent import session_usd
from longrein.app import AppSession
from longrein.frontends.localization import translate
from longrein.frontends.terminal import event_lines
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_types import (
    Choices,
    Command,
    CommandContext,
    CommandResult,
    done,
    notice,
    number,
)
from longrein.frontends.terminal.event_lines import (
    COLUMN,
    Line,
    cells,
    counts,
    diff_lines,
    fold,
    line,
    only_changes,
    pad,
)
from longrein.steps.human_text import counted, escape, escape_line, joined, money, size, tokens
from longrein.store.daemon_threads import run_in_thread
from longrein_context.events import LongreinError
from longrein_context.events.escape import one_line, shortened

if TYPE_CHECKING:
    from longrein.app.session_details import ChangedFile, MemoryFile, RuleRow

DIFF_LINES_MAX = 60
"""Lines shown of one file's change; /diff FILE shows all."""
GIT_LINES_MAX = 400


def pairs(rows: Sequence[tuple[str, str]]) -> list[Line]:
    """Two columns: what, and how it is."""
    shown = [(escape_line(translate(name)), escape_line(value)) for name, value in rows]
    wide = max((cells(name) for name, _ in shown), default=0)
    return [line(("dim", f"  {pad(name, wide)}  "), COLUMN, value) for name, value in shown]


def status_rows(opened: AppSession) -> list[tuple[str, str]]:
    """Rows of `/status`: (name, value)."""
    place = opened.app.context
    state = opened.session.state
    servers = opened.connections()
    working = sum(status == "connected" for _, status in servers)
    key = "" if opened.key_source == "none" else translate(f"key from {opened.key_source}")
    effort = opened.effort and translate(f"effort {opened.effort}")
    further = ", ".join(opened.folders[1:])
    is_trusted = place.trusted.cover(place.cwd)
    is_confined = opened.sandbox != "none"
    window = tokens(opened.budget.usable_tokens)
    return [
        ("longrein", opened.app.version),
        ("model", joined(opened.model, effort, key)),
        ("folder", joined(state.cwd, state.branch and translate(f"branch {state.branch}"))),
        *([("further folders", further)] if further else []),
        (
            "trust",
            translate("trusted" if is_trusted else "not trusted; `longrein trust` changes that"),
        ),
        ("sandbox", opened.sandbox if is_confined else translate("none: commands run as you")),
        ("context", translate(f"{tokens(state.view_tokens)} of {window} tokens")),
        ("spent", money(session_usd(state, opened.session.agents()))),
        ("MCP servers", translate(f"{working} of {len(servers)} connected" if servers else "none")),
        ("state folder", place.state_dir),
    ]


def _status(context: CommandContext, _: str) -> CommandResult:
    rows = status_rows(context.opened)
    state = context.session.state
    running = [view.id for view in context.session.tasks() if view.state == "running"]
    agents = [
        view.label
        for view in context.session.agents()
        if view.state in ("running", "asking", "queued")
    ]
    rows += [("title", state.title)] if state.title else []
    rows += [("mode", state.mode), ("requests", str(state.asks))]
    rows += [("background", ", ".join([*running, *agents]) or translate("nothing runs"))]
    return CommandResult(f"session {context.session.id}", pairs(rows))


def _config(context: CommandContext, wanted: str) -> CommandResult:
    file = context.opened.app.settings_file
    if wanted == "edit":
        return CommandResult(edit_file=file)
    rows = [row for row in context.opened.changed_settings() if wanted in row[0]]
    if not rows:
        what = (
            f"no setting with {escape_line(wanted)} in its name is set"
            if wanted
            else "every setting is built in"
        )
        return notice(f"{what}; /config edit opens {escape_line(file)}")
    shown = [
        line(
            ("name", f"  {escape_line(key)} = "),
            COLUMN,
            f"{shortened(escape_line(value), 200)}",
            ("dim", f"  {escape_line(origin)}"),
        )
        for key, value, origin in rows
    ]
    return CommandResult("settings that are not built in; /config edit opens your file", shown)


async def _doctor(context: CommandContext, _: str) -> CommandResult:
    from longrein.frontends.reports.doctor import doctor_lines

    work = partial(doctor_lines, context.opened.app.context)
    found = await asyncio.wrap_future(run_in_thread(work, "doctor"))
    rows = [line("  ", escape_line(row)) for row in found]
    return CommandResult("what longrein finds here", rows)


def _todos(context: CommandContext, _: str) -> CommandResult:
    todos = context.session.state.todos
    if not todos:
        return notice("the todo list is empty; the model keeps one for work of several steps")
    done = sum(todo.status == "completed" for todo in todos)
    return CommandResult(f"todo list, {done} of {len(todos)} done", event_lines.todo_lines(todos))


def _skills(context: CommandContext, _: str) -> CommandResult:
    known = context.opened.known_skills()
    if not known:
        return notice(
            "there are no skills; put one into ~/.agents/skills/NAME/SKILL.md, a command into "
            ".claude/commands"
        )
    rows = [
        line(
            ("name", f"  /{escape_line(one.name)}  "),
            COLUMN,
            f"{shortened(escape_line(one.description), 60)}",
            ("dim", f"  {one.kind}, {escape_line(one.source)}"),
        )
        for one in known
    ]
    return CommandResult(f"{len(known)} of skills and commands", rows)


# --- Rules ----------------------------------------------------------------------------------------


def _permissions(context: CommandContext, argument: str) -> CommandResult:
    rules = context.opened.rules()
    word, _, rest = argument.partition(" ")
    if word == "remove":
        return _remove_rule(context, rules, rest.strip())
    if word:
        return notice("say what: /permissions, or /permissions remove NUMBER")
    if not rules:
        return notice(
            f"no rules; mode {context.session.state.mode} decides. `always` at a question stores "
            "one"
        )
    title = (
        f"{counted(len(rules), 'rule')} above mode {context.session.state.mode}: deny beats "
        "ask beats allow"
    )
    return CommandResult(title, [_rule_line(n, row) for n, row in enumerate(rules, 1)])


def _rule_line(n: int, row: "RuleRow") -> Line:
    style = {"deny": "bad", "ask": "warn"}.get(row.kind, "ok")
    return line(
        ("name", f"  {n} "),
        (style, f"{row.kind:<5} "),
        COLUMN,
        escape_line(row.rule),
        ("dim", f"  {escape_line(translate(row.origin))}"),
    )


def _remove_rule(context: CommandContext, rules: "Sequence[RuleRow]", wanted: str) -> CommandResult:
    allowed = {row.rule: n for n, row in enumerate(rules, 1) if row.kind == "allow"}
    n = allowed.get(wanted) or number(wanted)
    if not wanted and rules:
        lists = [
            Row(f"remove {n}", f"{row.kind} {row.rule}", row.origin)
            for n, row in enumerate(rules, 1)
        ]
        lasts = "a rule of your settings is removed there, one of the session until it ends"
        return CommandResult(choices=Choices("remove which rule?", lists, lasts=lasts))
    if not 0 < n <= len(rules):
        known = f"1 to {len(rules)}" if rules else "there are none"
        return notice(f"say which rule to remove by its number ({known}): /permissions remove 1")
    row = rules[n - 1]
    if not row.removable:
        return notice(
            f"{escape_line(row.rule)} comes from {escape_line(row.origin)}: remove it there"
        )
    try:
        context.opened.remove_rule(row)
    except LongreinError as error:
        return notice(escape_line(str(error)))
    return done(
        f"removed: {row.kind} {escape_line(row.rule)} ({escape_line(row.origin)}), "
        f"{len(rules) - 1} left"
    )


# --- Instruction files ----------------------------------------------------------------------------


def _memory(context: CommandContext, wanted: str) -> CommandResult:
    files = context.opened.instruction_files()
    n = number(wanted) if wanted else 0
    if wanted and not 0 < n <= len(files):
        return notice(f"say which file to open by its number (1 to {len(files)}): /memory 1")
    if n:
        return CommandResult(edit_file=files[n - 1].path)
    if not files:
        return notice("no instruction file is read here; /init writes AGENTS.md")
    read = sum(file.use == "read" for file in files)
    title = f"instruction files: {read} read; /memory NUMBER opens one"
    return CommandResult(title, [_memory_line(n, file) for n, file in enumerate(files, 1)])


def _memory_line(n: int, file: "MemoryFile") -> Line:
    how = (
        translate("not there yet")
        if file.size_bytes < 0
        else f"{size(file.size_bytes)}, {translate(file.use)}"
    )
    shown = (escape_line(file.shown), ("dim", f"  {escape_line(how)}"))
    return line(("name", f"  {n} "), COLUMN, *shown)


# --- Changes --------------------------------------------------------------------------------------


async def _diff(context: CommandContext, wanted: str) -> CommandResult:
    if wanted == "git" or wanted.startswith("git "):
        return await _git_diff(context, wanted[3:].split())
    files = await context.opened.changes()
    if wanted:
        files = [file for file in files if wanted in file.shown]
        if not files:
            return notice(
                f"this session changed no file with {escape_line(wanted)} in its name; /diff "
                "lists them"
            )
    rows: list[Line] = []
    added = removed = 0
    for file in files:
        more, changed = _file_rows(file, DIFF_LINES_MAX if not wanted else 10**9)
        added, removed = added + changed[0], removed + changed[1]
        rows += more
    code, stat = await context.opened.git(("diff", "--shortstat", "HEAD"))
    in_git = (
        f"git, against the last commit: {escape_line(stat.strip()) or 'no change'}; /diff "
        "git shows it"
    )
    if not files:
        return notice(
            "this session changed no files with its tools; "
            f"{in_git if not code else 'here is no git'}"
        )
    title = f"{counted(len(files), 'file')} changed by this session, +{added} -{removed}"
    return CommandResult(title, [*rows, *([line(("dim", translate(in_git)))] if not code else [])])


def _file_rows(file: "ChangedFile", most: int) -> tuple[list[Line], tuple[int, int]]:
    """Lines of one file's change, and the numbers of added and removed lines."""
    name = line(("name", f"  {escape_line(file.shown)}"))
    if file.before is None or file.after is None:
        return [(*name, ("dim", translate("  changed; its text before or now is not known")))], (
            0,
            0,
        )
    if file.before == file.after:
        return [(*name, ("dim", translate("  as it was before")))], (0, 0)
    changed = diff_lines(file.before, file.after)
    styles = [row[0][0] for row in changed]
    if not file.before:
        note = "  new"
    elif not file.after:
        note = "  removed"
    else:
        note = ""
    head = (*name, ("dim", f"  {counts(changed)}{translate(note)}"))
    return [head, *fold(only_changes(changed), most)], (styles.count("add"), styles.count("del"))


async def _git_diff(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if any(word.startswith("-") for word in words):
        return notice("say what: /diff git, or /diff git main, or /diff git HEAD~2 src")
    code, text = await context.opened.git(("diff", *(words or ("HEAD",))))
    if code:
        said = escape_line(one_line(text)[:200])
        return notice(
            f"git has no diff here: {said or 'git is not installed, or this is no repository'}"
        )
    if not text.strip():
        return notice("git sees no change of tracked files")
    rows = [line((_git_style(row), escape(row).expandtabs(4))) for row in text.splitlines()]
    return CommandResult("git diff", [*fold(rows, GIT_LINES_MAX)])


def _git_style(row: str) -> str:
    if row.startswith(("+++", "---", "diff ", "index ", "@@")):
        return "dim"
    if row.startswith("+"):
        return "add"
    if row.startswith("-"):
        return "del"
    return ""


REPORT_COMMANDS = (
    Command("status", "", "session, model, money; folder, context, what runs", _status),
    Command("config", "[TEXT | edit]", "settings that are set; and their files", _config),
    Command("doctor", "", "what is found here; and what is missing", _doctor),
    Command("diff", "[FILE | git [REV]]", "changes of this session; the git diff", _diff),
    Command("todos", "", "the todo list", _todos),
    Command("permissions", "[remove N]", "rules in force; removes one", _permissions, ("rules",)),
    Command("memory", "[N]", "files of instructions; N opens one", _memory),
    Command("skills", "", "skills and own commands", _skills),
)

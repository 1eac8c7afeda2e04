"""`longrein trust`, and the question before the first prompt in a folder that is not trusted."""

import os
import shutil
from collections.abc import Sequence

from longrein import config
from longrein.app.run_context import RunContext, read_run_context
from longrein.frontends.secret_input import YES_NO, ask, is_terminal
from longrein.frontends.stdio import say, show
from longrein.frontends.terminal.event_lines import COLUMN, Line, fit, line, plain
from longrein.options import Options
from longrein.steps.human_text import escape_line
from longrein_context.events import SettingsError

ROWS_MAX = 30
"""Rows of the screen."""
COLUMNS_MAX = 10_000
QUESTION = "Trust this folder? yes: use them from now on; no: go on without them; quit: [y/n/q] "
ANSWERS = {**YES_NO, "q": "quit", "quit": "quit"}


def trust(
    run_context: RunContext, _words: Sequence[str], *, undo: bool = False, show_only: bool = False
) -> int:
    """Trust the repository of the current folder; with `undo` stop trusting it, with `show_only`
    only list.
    """
    if undo:
        config.distrust(run_context.state_dir, run_context.cwd)
        say(f"{run_context.cwd} is no longer trusted")
        return 0
    show("".join(f"{line}\n" for line in trust_screen(run_context, _columns())))
    if not show_only:
        say(f"{_trust(run_context)} is trusted")
    return 0


def _trust(run_context: RunContext) -> str:
    """Trust the folder with the hooks and programs that the screen has shown; return what is
    trusted.
    """
    hooks, _ = config.read_project_hooks(run_context.cwd, run_context.home, run_context.environ)
    hooks += config.shown_head_hooks(
        run_context.cwd, run_context.home, run_context.environ, run_context.settings
    )
    unit = config.trust(
        run_context.state_dir,
        run_context.cwd,
        run_context.home,
        tuple(map(config.fingerprint, hooks)),
    )
    for kind in config.all_kinds(run_context.settings):
        kind.approve(run_context.state_dir, run_context.cwd)
    return unit


def _columns() -> int:
    """Columns of the terminal; many where the output is no terminal."""
    return shutil.get_terminal_size().columns if os.isatty(1) else COLUMNS_MAX


def trust_screen(run_context: RunContext, width: int = COLUMNS_MAX) -> list[str]:
    """Return the lines of at most `width` columns that say what trusting the current folder
    activates.

    Raises `SettingsError` where it cannot be trusted.
    """
    unit = config.trust_unit(run_context.cwd, run_context.home)
    rows = config.trust_preview(
        run_context.cwd, run_context.home, run_context.environ, run_context.settings
    )
    why = run_context.trusted.why_not(run_context.cwd)
    head = [f"Note: {escape_line(why)}."] if why else []
    if run_context.hooks.changed:
        head.append("Note: hooks of this folder are new, or not as they were when you trusted it.")
    if not rows:
        nothing = f"{escape_line(unit)} brings no settings, hooks, subagent types or instructions."
        return _fitted([*map(line, head), line(nothing)], width)
    kinds, files = (
        max(len(name) for name in names)
        for names in zip(*((r.kind, r.file) for r in rows), strict=True)
    )
    files = min(files, 40)
    lines = [
        line(f"  {row.kind:<{kinds}}  ", f"{row.file:<{files}}  ", COLUMN, row.effect)
        for row in rows[:ROWS_MAX]
    ]
    more = [line(f"  and {len(rows) - ROWS_MAX} more files")] if len(rows) > ROWS_MAX else []
    title = f"{escape_line(unit)} brings files that are obeyed only where you trust it:"
    return _fitted([*map(line, head), line(title), *lines, *more], width)


def _fitted(lines: Sequence[Line], width: int) -> list[str]:
    return [plain(row).rstrip() for of in lines for row in fit(of, width)]


def trusted_run_context(options: Options) -> RunContext | None:
    """Read the run context for the terminal; ask first whether to trust the folder. None: the user
    quits.

    There is no question where the folder brings nothing, is trusted, or nobody sits at a terminal.
    Until the answer nothing of the folder is used, no program is started and nothing is sent.
    """
    run_context = read_run_context(options)
    if not (run_context.trusted.left_out or run_context.hooks.changed) or not is_terminal():
        return run_context
    try:
        lines = trust_screen(run_context, _columns())
    except SettingsError:
        return (
            run_context  # the home; the line about what was left out is shown as in a headless run
        )
    show("".join(f"{line}\n" for line in lines))
    answer = ask(QUESTION, ANSWERS) or "quit"
    if answer == "yes":
        _trust(run_context)
        return read_run_context(options)
    return None if answer == "quit" else run_context

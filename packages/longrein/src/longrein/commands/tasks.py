"""`longrein tasks` and `longrein agents`: background tasks and subagents of all sessions on this
machine.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

from longrein.app.run_context import CLOCK, RunContext, sweep_orphans
from longrein.app.task_output import TAIL_LINES, output_tail, tasks_in_log
from longrein.frontends.reports import subagents as agents_page
from longrein.frontends.reports import task_lists as tasks_page
from longrein.frontends.reports.task_lists import TaskRow
from longrein.frontends.stdio import say, show
from longrein.store import SessionHistory, SessionInfo, find_session, list_sessions, session_info
from longrein.workspace import (
    SPOOL,
    SpooledTask,
    is_supervised,
    spooled_tasks,
    stop_background_task,
    unreadable_tasks,
)
from longrein_context.events import SessionError, UsageError

ID_CHARS, ID_DASHES = 36, 4
"""Length of a session id, which names its folder, and the number of dashes in it."""
USAGE = "longrein tasks [SESSION | SESSION/TASK | stop SESSION/TASK]; see longrein tasks --help"


# --- Tasks ----------------------------------------------------------------------------------------


def tasks(
    run_context: RunContext, words: Sequence[str], *, tail: int = 0, json: bool = False
) -> int:
    """Run `longrein tasks WORDS`; return the exit code."""
    if len(words) == 2 and words[0] != "stop":
        raise UsageError(f"what is to be done with {words[1]!r}? {USAGE}")
    if ended := sweep_orphans(run_context.state_dir):  # so that every running process is listed
        say(f"ended what a crash had left running: {', '.join(ended)}")
    if words[:1] == ["stop"]:
        return _stop(run_context.state_dir, words[1] if len(words) == 2 else "")
    if words and _is_session(words[0]):
        rows = _of_session(run_context.state_dir, find_session(run_context.state_dir, words[0]))
        show(tasks_page.as_json(rows) if json else tasks_page.as_table(rows))
    elif words:
        _show(run_context.state_dir, words[0], tail or TAIL_LINES, json=json)
    else:
        rows = _spooled(run_context.state_dir)
        show(tasks_page.as_json(rows) if json else tasks_page.as_table(rows))
    return 0


def _is_session(word: str) -> bool:
    """Return whether `word` names a session rather than a task, such as `b3` or `a398.b3`."""
    if "/" in word:
        return False
    *above, last = word.split(".")
    task = all(part[:1] == "a" and part[1:].isdecimal() for part in above)
    return not (task and last[:1] == "b" and last[1:].isdecimal() and (above or len(word) < 8))


def _names(state_dir: str) -> list[str]:
    try:
        names = os.listdir(os.path.join(state_dir, "sessions"))
    except OSError:
        return []
    return sorted(name for name in names if len(name) == ID_CHARS and name.count("-") == ID_DASHES)


def _spooled(state_dir: str) -> list[TaskRow]:
    """Return all tasks in the spools. Sessions without a spool are skipped."""
    folders = ((name, os.path.join(state_dir, "sessions", name)) for name in _names(state_dir))
    return [
        row
        for name, folder in folders
        if os.path.isdir(os.path.join(folder, SPOOL))
        for row in _rows(state_dir, name)
    ]


def _rows(state_dir: str, session: str) -> Iterator[TaskRow]:
    folder = os.path.join(state_dir, "sessions", session)
    found = spooled_tasks(folder)
    for path in unreadable_tasks(folder):
        say(
            f"{path} cannot be read, so its task is not listed; remove the file if nothing of "
            "that task runs any more"
        )
    info = _info(state_dir, session) if found else None
    for task in found:
        yield _row(session, info, task, supervised=is_supervised(folder))
    if info is not None and info.open:
        yield from (
            _row(session, info, task, supervised=True) for task in _queued(state_dir, session)
        )


def _queued(state_dir: str, session: str) -> list[SpooledTask]:
    """Return the queued tasks of a session, which only its log knows."""
    try:
        with closing(SessionHistory(state_dir, session)) as past:
            logged = tasks_in_log(past)
    except SessionError:
        return []  # unreadable log: list the spool only
    tasks = [
        tasks_page.spooled_from_log(entry, None)
        for entry, ended in logged.values()
        if ended is None
    ]
    return [task for task in tasks if task.state == "queued"]


def _row(session: str, info: SessionInfo | None, task: SpooledTask, *, supervised: bool) -> TaskRow:
    return TaskRow(session, info.cwd if info else "", bool(info and info.open), supervised, task)


def _info(state_dir: str, session: str) -> SessionInfo | None:
    try:
        return session_info(state_dir, session)
    except SessionError:
        return None  # unreadable log: its tasks can still be listed and stopped


def _of_session(state_dir: str, session: str) -> list[TaskRow]:
    """Return all tasks of a session: those in the spool, then the ended ones of the log."""
    spooled = {row.task.task: row for row in _rows(state_dir, session)}
    with closing(SessionHistory(state_dir, session)) as past:
        logged = tasks_in_log(past)
    info = _info(state_dir, session)
    over = [
        _row(session, info, tasks_page.spooled_from_log(entry, ended), supervised=False)
        for task, (entry, ended) in logged.items()
        if task not in spooled
    ]
    return [*spooled.values(), *over]


def _show(state_dir: str, wanted: str, tail: int, *, json: bool) -> None:
    session, slash, name = wanted.rpartition("/")
    rows = (
        _of_session(state_dir, find_session(state_dir, session)) if slash else _spooled(state_dir)
    )
    row = tasks_page.find_task(rows, name if slash else wanted)
    if json:
        show(tasks_page.as_json([row]))
        return
    folder = os.path.join(state_dir, "sessions", row.session)
    with closing(SessionHistory(state_dir, row.session)) as past:
        shown = output_tail(past, folder, row.task.task, tail)
    show(tasks_page.as_page(row, shown))


def _stop(state_dir: str, wanted: str) -> int:
    if not wanted:
        raise UsageError("which one? longrein tasks stop SESSION/TASK; `longrein tasks` lists them")
    row = tasks_page.find_task(_spooled(state_dir), wanted)
    folder = os.path.join(state_dir, "sessions", row.session)
    ended = asyncio.run(stop_background_task(folder, row.task.task, "stopped by the user"))
    if ended is None or ended.state == "running":
        say(f"{wanted} could not be ended: its processes do not go away")
        return 1
    was = "was over already" if row.task.state != "running" else "is over"
    say(
        f"{wanted} {was}: {ended.state.replace('_', ' ')}"
        + (f" ({ended.cause})" if ended.cause else "")
    )
    return 0


# --- Subagents ------------------------------------------------------------------------------------


def agents(run_context: RunContext, words: Sequence[str], *, json: bool = False) -> int:
    """Run `longrein agents [SESSION]`; return the exit code."""
    if words:
        info = session_info(run_context.state_dir, find_session(run_context.state_dir, words[0]))
        every = [_agents(run_context.state_dir, info)] if info is not None else []
    else:
        opened = [info for info in list_sessions(run_context.state_dir) if info.open]
        working = [
            agents_page.SessionSubagents(
                info, agents_page.unfinished(_agents(run_context.state_dir, info).agents)
            )
            for info in opened
        ]
        every = [one for one in working if one.agents]
    if json:
        show(agents_page.as_json(every))
    elif any(one.agents for one in every):
        show(agents_page.as_text(every))
    else:
        show("this session has had no subagents\n" if words else "no subagents work now\n")
    return 0


def _agents(state_dir: str, info: SessionInfo) -> agents_page.SessionSubagents:
    with closing(SessionHistory(state_dir, info.session)) as past:
        return agents_page.SessionSubagents(
            info, agents_page.tree(past, CLOCK.wall_us(), open=info.open)
        )

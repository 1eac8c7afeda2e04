"""Tell the model the state of the git repository once, before the first request of a session.

The text is a reminder, so it is part of the conversation: the prefix of the requests stays the
same, and nothing is updated later. Changes of the branch are told as they happen
(`file_watcher.BranchWatcher`).
"""

import asyncio
import os
from collections.abc import Sequence

from longrein.agent.git_metadata import find_git_folder
from longrein.agent.session import Session
from longrein.context import neutralize_markers
from longrein.events import Reminded, marker
from longrein.events.escape import shortened
from longrein.tools import Tool

GIT_TIMEOUT_S = 1.0
"""Longest wait for git. What it has not said by then is left out."""
STATUS_LINES_MAX = 20
FILE_LINES_MAX = 60
COMMITS_MAX = 5
LINE_CHARS_MAX = 100
HEAD = "the git repository when the session began; it is not told again"


async def tell_project_start(session: Session) -> None:
    """Append git status, newest commits and tracked files before the first request, where there
    is a repository.
    """
    state, deps = session.state, session.deps
    if (
        not deps.tells_project
        or state.asks
        or deps.parent_policy is not None
        or state.profile.startswith("seed")
    ):
        return
    folder = state.roots[0]
    git_folder = (
        find_git_folder(deps.workspace, folder) if any(map(_reads, deps.tools.values())) else ""
    )
    if not git_folder or not deps.workspace.resolve(f"{git_folder}/index", "/").kind:
        return
    session.commit(flush=False)
    status, files, commits = await asyncio.gather(
        _lines(session, "status", "--porcelain=v1", "--branch", "--no-renames", "-z"),
        _lines(session, "ls-files", "-z"),
        _lines(session, "log", "-z", f"-{COMMITS_MAX}", "--format=%h %s"),
    )
    parts = []
    if len(status) > 1:
        parts.append(
            (f"* git status, {_counted(len(status) - 1, 'entry', 'entries')}", _bounded(status))
        )
    elif status:
        parts.append(("* git status, nothing changed", status))
    if status and commits:
        parts.append(("* newest commits", [shortened(line, LINE_CHARS_MAX) for line in commits]))
    if files:
        parts.append(
            (f"* {_counted(len(files), 'tracked file', 'tracked files')}", summarize_files(files))
        )
    if parts:
        told = [marker(state.nonce, "project_start", HEAD)]
        for head, lines in parts:
            told += [head, *(f"| {neutralize_markers(line, state.nonce)}" for line in lines)]
        session.append(Reminded("project_start", "\n".join(told), "git"))


def _reads(tool: Tool) -> bool:
    return tool.access in ("read", "command")


async def _lines(session: Session, *arguments: str) -> list[str]:
    """Return the NUL-separated output of git as one-line texts; [] when it fails or takes too
    long.
    """
    from longrein.workspace.git import run_git

    state = session.state
    code, output = await run_git(
        session.deps.workspace,
        arguments,
        state.roots[0],
        session.process_session,
        timeout_s=GIT_TIMEOUT_S,
    )
    texts = os.fsdecode(output).split("\0") if code == 0 else []
    return [text.replace("\n", "\\n") for text in texts if text]


def _bounded(lines: Sequence[str]) -> list[str]:
    more = len(lines) - 1 - STATUS_LINES_MAX
    shown = [shortened(line, LINE_CHARS_MAX) for line in lines[: STATUS_LINES_MAX + 1]]
    return [*shown, *([f"… and {more} more"] if more > 0 else [])]


def _counted(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def summarize_files(files: Sequence[str]) -> list[str]:
    """Return at most `FILE_LINES_MAX` lines for the sorted paths: files, and folders with the
    number of files below.

    The folder with the most files is opened first, as long as its entries fit.
    """
    shown = _entries("", files)
    while True:
        folders = sorted(
            (name for name, below in shown.items() if name.endswith("/")),
            key=lambda n: -len(shown[n]),
        )
        for name in folders:
            opened = _entries(name, shown[name])
            if len(shown) - 1 + len(opened) <= FILE_LINES_MAX:
                del shown[name]
                shown |= opened
                break
        else:
            break
    lines = [
        shortened(name, LINE_CHARS_MAX) + (f" ({len(below)})" if name.endswith("/") else "")
        for name, below in sorted(shown.items())
    ]
    more = len(lines) - FILE_LINES_MAX
    return [*lines[:FILE_LINES_MAX], *([f"… and {more} more entries"] if more > 0 else [])]


def _entries(folder: str, files: Sequence[str]) -> dict[str, list[str]]:
    """Return the entries of `folder`: each file, and each folder with the files below it."""
    found: dict[str, list[str]] = {}
    for path in files:
        name, slash, _ = path[len(folder) :].partition("/")
        found.setdefault(f"{folder}{name}{slash}", []).append(path)
    return found

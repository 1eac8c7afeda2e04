"""The user's command for the status line: what it is told of the session, run as the user's own
hooks are.
"""

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from longrein.agent.hooks import CommandHandler, SessionHooks
from longrein.agent.messages import session_usd
from longrein.permissions import Hook, visible
from longrein_context.events import LongreinError

if TYPE_CHECKING:
    from longrein.agent.open_session import OpenSession

TIMEOUT_S = 10.0
LARGE_TOKENS = 200_000
GIT_FILE_BYTES_MAX = 100_000
ORIGIN = re.compile(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE)
REPO = re.compile(
    r"(?:^[\w+.-]+://(?:[^@/]*@)?|^(?:[^@/]*@)?)([\w.-]+)(?::\d+)?[:/]+(.+)/([^/]+?)(?:\.git)?/?$"
)


class StatusCommand:
    """Runs the command. Cancelled, it ends what it has started."""

    def __init__(
        self, session: "OpenSession", hook: Hook, project: str, version: str, effort: str = ""
    ) -> None:
        """`hook`: the command with its scripts; `project`: root of the project."""
        self._session = session
        self._hook = hook
        self._project = project
        self._version, self._effort = version, effort

    async def __call__(self, known: Mapping[str, Any]) -> str:
        """Run it with the data of the session and `known`. Raises `LongreinError` when it fails."""
        session = self._session
        usd = session_usd(session.state, session.agents())
        cost = {"total_cost_usd": usd, **known.get("cost", {})}
        data = msgspec.json.encode({**self._data(), **known, "cost": cost})
        output = await session.part(SessionHooks).run_handler(
            CommandHandler(self._hook), "StatusLine", data, TIMEOUT_S
        )
        name = visible(self._hook.name)[:60]
        if output.problem or output.code:
            said = output.stderr.strip().partition("\n")[0][:200]
            why = output.problem or f"exit code {output.code}{f': {said}' if said else ''}"
            raise LongreinError(f"the status line `{name}` is not shown: {why}")
        return output.stdout

    def _data(self) -> dict[str, Any]:
        session, state = self._session, self._session.state
        model = (
            f"{state.prefix.provider}/{state.prefix.model}"
            if state.prefix
            else session.deps.model.name
        )
        last, roots = state.last_usage, session.deps.workspace.roots
        return {
            "hook_event_name": "Status",
            "session_id": session.process_session,
            "transcript_path": session.part(SessionHooks).transcript_path,
            "cwd": state.cwd,
            "version": self._version,
            "model": {"id": model, "display_name": model.partition("/")[2]},
            "workspace": {
                "current_dir": state.cwd,
                "project_dir": self._project,
                "added_dirs": [root for root in roots if root != self._project],
                **git_facts(state.cwd),
            },
            "output_style": {"name": "default"},
            "context_window": self._context(),
            "exceeds_200k_tokens": last.total_tokens > LARGE_TOKENS,
            **(
                {"effort": {"level": self._effort}, "thinking": {"enabled": self._effort != "none"}}
                if self._effort
                else {}
            ),
        }

    def _context(self) -> dict[str, Any]:
        state, window = self._session.state, self._session.deps.model.budget.window_tokens
        last, all_of_it = state.last_usage, state.usage
        used = round(100 * last.context_tokens / window) if window and last.context_tokens else None
        current = {
            "input_tokens": last.input_tokens,
            "output_tokens": last.output_tokens,
            "cache_creation_input_tokens": last.cache_write_tokens,
            "cache_read_input_tokens": last.cache_read_tokens,
        }
        return {
            "total_input_tokens": all_of_it.context_tokens,
            "total_output_tokens": all_of_it.output_tokens,
            "context_window_size": window,
            "used_percentage": used,
            "remaining_percentage": None if used is None else 100 - used,
            "current_usage": current if last.context_tokens else None,
        }


def git_facts(folder: str) -> dict[str, Any]:
    """Return `git_worktree` and `repo` of the repository around a folder, as far as its files
    tell them.
    """
    found = folder
    while not os.path.exists(f"{found}/.git") and found != os.path.dirname(found):
        found = os.path.dirname(found)
    git, facts = f"{found}/.git", dict[str, Any]()
    if os.path.isfile(git):
        git = os.path.join(found, _read(git).removeprefix("gitdir:").strip())
        main, _, name = git.partition("/worktrees/")
        if name:
            facts["git_worktree"], git = os.path.basename(found), main
    origin = ORIGIN.search(_read(f"{git}/config"))
    repo = REPO.match(origin[1]) if origin else None
    return {
        **facts,
        **({"repo": {"host": repo[1], "owner": repo[2], "name": repo[3]}} if repo else {}),
    }


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(GIT_FILE_BYTES_MAX)
    except (OSError, ValueError):
        return ""

"""Watch the git branch of a session: `.git/HEAD` is read before each request, without running git."""

from longrein.agent.git_repository import current_branch, find_git_folder
from longrein.context import State
from longrein.events import Reminded
from longrein.workspace import Workspace


class BranchWatcher:
    """Branch of the repository around the session's first folder. What was noticed is in the log."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._git_folder: str | None = None
        """'' for none; None until the first look."""
        self._first = ""
        """Branch at the first look, for a log that names none."""

    def change(self, state: State) -> tuple[Reminded, ...]:
        """Return the event of another branch than the last known one; () for none.

        While calls are open the change counts as theirs: it is recorded, and not told.
        """
        if self._git_folder is None:
            self._git_folder = find_git_folder(self._workspace, state.roots[0]) if state.roots else ""
        now = current_branch(self._workspace, self._git_folder) if self._git_folder else ""
        self._first = self._first or state.branch or now
        known = state.branch or self._first
        return (Reminded("branch_changed", "", now),) if now and now != known else ()

"""Choice of the place where the work tree is kept before commands, if it is kept."""

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from longrein.app.run_context import RunContext
from longrein.store import SessionLog
from longrein.workspace import Workspace

if TYPE_CHECKING:
    from longrein.agent.checkpoints import SessionCheckpoints

CHECKPOINTS = "checkpoints"
"""Folder of the copies, beside the log."""


def checkpoint_opener(
    run_context: RunContext, log: SessionLog, workspace: Workspace
) -> "Callable[[], SessionCheckpoints] | None":
    """Return a function that opens the checkpoints of a session; None where the settings switch
    them off.
    """
    bytes_max = run_context.settings.tools.checkpoint_bytes_max
    if not bytes_max:
        return None

    def open_them() -> "SessionCheckpoints":
        from longrein.agent.checkpoints import SessionCheckpoints
        from longrein.workspace.root_copies import CheckpointStore

        store = CheckpointStore(
            os.path.join(log.folder, CHECKPOINTS),
            workspace.environment(""),
            [run_context.state_dir],
        )
        return SessionCheckpoints(store, bytes_max)

    return open_them

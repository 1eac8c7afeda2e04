"""Where files and processes are."""

import importlib
from typing import Any

from longrein.workspace.environment import depth_of
from longrein.workspace.git import GIT_CUT, run_git
from longrein.workspace.globs import split_glob
from longrein.workspace.halves import sweep_halves
from longrein.workspace.memory import MemoryUse, give_back, memory_use
from longrein.workspace.orphans import sweep
from longrein.workspace.plain import open_workspace
from longrein.workspace.port import (
    Ended,
    Keeping,
    Merge,
    Place,
    Printout,
    Replaced,
    Sink,
    Spawner,
    Spooled,
    Stamp,
    Started,
    Supervision,
    Workspace,
)
from longrein.workspace.search import Found, Line, Query, glob, grep
from longrein.workspace.spawner import PlainSpawner
from longrein.workspace.spool import SPOOL, is_supervised, read_output, spooled_tasks, unreadable_tasks
from longrein.workspace.stamps import differs, stamp
from longrein.workspace.supervised import SupervisedSpawner, SupervisionOptions

__all__ = [
    "GIT_CUT",
    "SPOOL",
    "Ended",
    "Finished",
    "Found",
    "Keeping",
    "Line",
    "MemoryUse",
    "Merge",
    "Place",
    "PlainSpawner",
    "Printout",
    "Query",
    "Replaced",
    "Sink",
    "Spawner",
    "Spooled",
    "Stamp",
    "Started",
    "SupervisedSpawner",
    "Supervision",
    "SupervisionOptions",
    "Workspace",
    "Worktree",
    "depth_of",
    "differs",
    "finish_worktree",
    "give_back",
    "glob",
    "grep",
    "is_supervised",
    "list_worktrees",
    "make_worktree",
    "memory_use",
    "merge_worktree",
    "open_workspace",
    "read_output",
    "read_worktree",
    "remove_worktree",
    "run_git",
    "split_glob",
    "spooled_tasks",
    "stamp",
    "stop_spooled",
    "sweep",
    "sweep_halves",
    "unreadable_tasks",
    "worktree_changes",
]

_LATER = {
    "Finished": "worktrees",
    "Worktree": "worktrees",
    "finish_worktree": "worktrees",
    "list_worktrees": "worktrees",
    "make_worktree": "worktrees",
    "merge_worktree": "worktree_merge",
    "read_worktree": "worktrees",
    "remove_worktree": "worktrees",
    "stop_spooled": "stopping",
    "worktree_changes": "worktrees",
}
"""Public name -> where it stands, for what most sessions never need."""


def __getattr__(name: str) -> Any:
    """Names of `_LATER`, imported at first use."""
    if name in _LATER:
        return getattr(importlib.import_module(f"longrein.workspace.{_LATER[name]}"), name)
    raise AttributeError(f"longrein.workspace has no public name {name!r}")

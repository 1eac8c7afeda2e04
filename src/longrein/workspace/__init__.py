"""Where files and processes are."""

from longrein.workspace.background_tasks import stop_spooled
from longrein.workspace.command import PlainSpawner
from longrein.workspace.environment import depth_of
from longrein.workspace.files import differs, stamp
from longrein.workspace.git import GIT_CUT, run_git
from longrein.workspace.local_workspace import open_workspace
from longrein.workspace.memory import MemoryUse, give_back, memory_use
from longrein.workspace.orphans import sweep
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
from longrein.workspace.spool import SPOOL, is_supervised, read_output, spooled_tasks, unreadable_tasks
from longrein.workspace.supervised_command import SupervisedSpawner, SupervisionOptions
from longrein.workspace.temp_files import sweep_halves
from longrein.workspace.walk import split_glob
from longrein.workspace.worktrees import (
    Finished,
    Worktree,
    finish_worktree,
    list_worktrees,
    make_worktree,
    merge_worktree,
    read_worktree,
    remove_worktree,
    worktree_changes,
)

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

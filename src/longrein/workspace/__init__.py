"""Where files and processes are."""

from longrein.workspace.files import sweep_halves
from longrein.workspace.git import run_git
from longrein.workspace.globs import split_glob
from longrein.workspace.memory import MemoryUse, give_back, memory_use
from longrein.workspace.orphans import sweep
from longrein.workspace.plain import open_workspace
from longrein.workspace.port import (
    Ended,
    Keeping,
    Place,
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
from longrein.workspace.stamps import differs, stamp, stamp_again

__all__ = [
    "Ended",
    "Found",
    "Keeping",
    "Line",
    "MemoryUse",
    "Place",
    "PlainSpawner",
    "Query",
    "Sink",
    "Spawner",
    "Spooled",
    "Stamp",
    "Started",
    "Supervision",
    "Workspace",
    "differs",
    "give_back",
    "glob",
    "grep",
    "memory_use",
    "open_workspace",
    "run_git",
    "split_glob",
    "stamp",
    "stamp_again",
    "sweep",
    "sweep_halves",
]

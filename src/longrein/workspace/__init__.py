"""Where files and processes are."""

from longrein.workspace.plain import open_workspace
from longrein.workspace.port import Ended, Place, Sink, Spawner, Workspace
from longrein.workspace.spawner import PlainSpawner

__all__ = ["Ended", "Place", "PlainSpawner", "Sink", "Spawner", "Workspace", "open_workspace"]

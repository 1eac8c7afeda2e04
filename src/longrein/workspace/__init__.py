"""Where files and processes are."""

from longrein.workspace.port import Ended, Place, Sink, Spawner, Workspace

__all__ = ["Ended", "Place", "Sink", "Spawner", "Workspace"]

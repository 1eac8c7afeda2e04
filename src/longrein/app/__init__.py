"""Every part of an open session is made here, once, and handed to its users."""

from longrein.app.additions import Additions
from longrein.app.builder import Composition, build

__all__ = ["Additions", "Composition", "build"]

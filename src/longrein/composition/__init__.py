"""Every part of an open session is made here, once, and handed to its users."""

from longrein.composition.additions import Additions
from longrein.composition.builder import Composition, build

__all__ = ["Additions", "Composition", "build"]

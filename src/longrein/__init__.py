"""longrein: a coding agent for the terminal, and the context engine under it.

Public: `Session`, `tool`, `engine` for other loops, and the package `longrein.context`. Nothing is imported before it
is used.
"""

import importlib

__all__ = ["Session", "context", "engine", "tool"]

_HOMES = {"Session": "longrein.sdk", "engine": "longrein.library", "tool": "longrein.tools", "context": ""}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"longrein has no public name {name!r}; it has {', '.join(__all__)}")
    return getattr(importlib.import_module(home), name) if home else importlib.import_module(f"longrein.{name}")

"""Subagent types from files, as users of terminal agents have them: `.claude/agents/*.md` and its kin.

Of two types with one name the nearer wins: `--agents`, then the project's folders from the present one upwards (only in
a trusted one, like its settings), then the user's, then the built-in ones. A file that cannot be taken is left out with
a line that names it and the reason; nothing here ever stops a start. What reads files is imported where there are any.
"""

import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from longrein.config.instructions import project_root
from longrein.config.places import config_dir
from longrein.config.reading import short
from longrein.tools import Kind

PROJECT = (".longrein/agents", ".agents/agents", ".claude/agents")
"""Below each folder from the present one up to the project's root, in this order."""


def load_kinds(
    builtin: Sequence[Kind],
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    *,
    trusted: Callable[[str], bool],
    given: str = "",
    known_tools: Sequence[str] = (),
) -> tuple[tuple[Kind, ...], tuple[str, ...]]:
    """(types, lines for the user): those of `builtin` first, in their order, then the others by name.

    `trusted`: whether the user trusts a folder; asked only where it has such files. `given`: the value of `--agents`, a
    JSON object of name -> fields, `prompt` for the text. `known_tools`: names of tools that need no mention. Raises
    `UsageError` where `given` is no such object.
    """
    notes: list[str] = []
    folders = list(_folders(cwd, home, environ, trusted, notes))
    if not folders and not given:
        return tuple(builtin), tuple(notes)
    files: Any = importlib.import_module("longrein.config.agent_files")
    found, more = files.kinds_of(folders, given, home, known_tools)
    kinds = {kind.name: kind for kind in builtin} | found
    own = [kinds.pop(kind.name) for kind in builtin]
    return (*own, *(kinds[name] for name in sorted(kinds))), (*notes, *more)


def _folders(
    cwd: str, home: str, environ: Mapping[str, str], trusted: Callable[[str], bool], notes: list[str]
) -> Iterator[tuple[str, str]]:
    """(folder that is there, what its files must not lead out of; '' for the user's own), the nearest first."""
    root = project_root(cwd)
    for above in _upwards(cwd, root):
        for folder in (f"{above.rstrip('/')}/{name}" for name in PROJECT):
            if above == home or not os.path.isdir(folder):
                continue  # the home's own are the user's
            if trusted(above):
                yield folder, root
            else:
                notes.append(f"{short(folder, home)} was not read: it is not trusted; `longrein trust` changes that.")
    for folder in (f"{config_dir(environ, home)}/agents", f"{home}/.agents/agents", f"{home}/.claude/agents"):
        if os.path.isdir(folder):
            yield folder, ""


def _upwards(folder: str, root: str) -> Iterator[str]:
    """`folder`, … , `root`."""
    yield folder
    while folder != root and os.path.dirname(folder) != folder:
        folder = os.path.dirname(folder)
        yield folder

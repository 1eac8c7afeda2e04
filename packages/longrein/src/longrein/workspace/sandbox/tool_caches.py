"""Caches of tool chains for confined commands: one folder for each project, shown by variables.

Home is read-only for commands, and most tool chains keep downloads and build results there. The
folder lies at the same path for commands and file tools.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple
from zlib import crc32

from longrein.workspace.supervisor.openat import open_folder


class ToolCache(NamedTuple):
    """Variable that moves a cache."""

    variable: str
    place: str
    """Where the cache is below home without the variable."""
    name: str
    """Its folder in the project's cache; '' for that folder itself."""
    keeps: bool = False
    """True if a cache that exists below home stays in use, read-only."""


TOOL_CACHES = (
    ToolCache("XDG_CACHE_HOME", ".cache", ""),  # pip, uv, go build, ccache, pre-commit, yarn
    ToolCache("npm_config_cache", ".npm", "npm"),
    ToolCache("PNPM_HOME", ".local/share/pnpm", "pnpm"),  # npm warns of `npm_config_store_dir`
    ToolCache("YARN_GLOBAL_FOLDER", ".yarn/berry", "yarn"),
    ToolCache("BUN_INSTALL_CACHE_DIR", ".bun/install/cache", "bun"),
    ToolCache("CARGO_HOME", ".cargo", "cargo", keeps=True),
    ToolCache("GOPATH", "go", "go", keeps=True),
    ToolCache("GRADLE_USER_HOME", ".gradle", "gradle"),
    ToolCache("NUGET_PACKAGES", ".nuget/packages", "nuget", keeps=True),
    ToolCache("DOTNET_CLI_HOME", ".dotnet", "dotnet"),
    ToolCache("MPLCONFIGDIR", ".config/matplotlib", "matplotlib"),
    ToolCache("BUNDLE_USER_HOME", ".bundle", "bundle"),
    ToolCache("CABAL_DIR", ".cabal", "cabal", keeps=True),
    ToolCache("STACK_ROOT", ".stack", "stack", keeps=True),
)
"""Variables from the manuals of the tool chains."""
READ_ONLY_CACHES = ("huggingface", "torch", "ms-playwright")
"""Large downloads below `~/.cache` that tests only read: the project's cache holds links to them.
"""
READ_ONLY_VARIABLES = (
    ("GRADLE_RO_DEP_CACHE", ".gradle/caches", "{}"),
    ("MAVEN_ARGS", ".m2/repository", "-Dmaven.repo.local.tail={}"),
)
"""(variable, place below home, its value there) of caches that are read beside another one."""


def cache_folder(home: str, environ: Mapping[str, str], root: str) -> str:
    """Return the real path of the cache folder of a project, existing or not; '' where the user
    cannot write there.
    """
    above = environ.get("XDG_CACHE_HOME", "")
    base = above if above.startswith("/") else os.path.join(home, ".cache")
    key = f"{os.path.basename(root) or 'root'}-{crc32(os.fsencode(root)):08x}"
    folder = existing = os.path.realpath(os.path.join(base, "longrein", key))
    while not os.path.exists(existing):
        existing = os.path.dirname(existing)
    return folder if os.access(existing, os.W_OK) else ""


def make_cache_folder(folder: str, home: str) -> None:
    """Make the folder with links to large caches of the user. Raises OSError."""
    if os.path.isdir(folder):
        return
    with open_folder(folder, make=True) as made:
        for name in READ_ONLY_CACHES:
            target = os.path.join(home, ".cache", name)
            if os.path.isdir(target):
                with suppress(FileExistsError):
                    made.make_link(target, name)


def cache_environment(
    folder: str, home: str, environ: Mapping[str, str], writable: Sequence[str]
) -> dict[str, str]:
    """Return the variables that lead tool chains to `folder`.

    A variable that the user has set stays, and so does a cache below home that commands may change
    (`writable`, names below home).
    """
    found = {}
    for cache in TOOL_CACHES:
        is_written = any(f"{name}/".startswith(f"{cache.place}/") for name in writable)
        is_kept = cache.keeps and os.path.isdir(os.path.join(home, cache.place))
        if not (environ.get(cache.variable) or is_written or is_kept):
            found[cache.variable] = os.path.join(folder, cache.name).rstrip("/")
    for variable, place, value in READ_ONLY_VARIABLES:
        path = os.path.join(home, place)
        if os.path.isdir(path) and not environ.get(variable):
            found[variable] = value.format(path)
    if "MAVEN_ARGS" not in environ:
        local = f"-Dmaven.repo.local={os.path.join(folder, 'maven')}"
        found["MAVEN_ARGS"] = " ".join(filter(None, (local, found.get("MAVEN_ARGS"))))
    return found

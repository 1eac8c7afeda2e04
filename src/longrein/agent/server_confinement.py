"""The sandbox of MCP servers: those of a project run as commands do, those of the user reach
more.
"""

import os
from collections.abc import Iterator

from longrein.agent.confinement import confine
from longrein.agent.session import Session
from longrein.tools.mcp import McpServer
from longrein.workspace import Confinement
from longrein.workspace.sandbox import SessionSandbox

PACKAGE_CACHES = (
    ".npm",
    ".cache/uv",
    ".local/share/uv",
    ".cache/pip",
    ".cache/deno",
    ".deno",
    ".bun",
    ".cache/pypoetry",
)
"""Folders below home that `npx`, `uvx` and similar programs write."""
PROJECT_FILES = ("package.json", "pyproject.toml", "node_modules", ".venv", "go.mod", ".git")
"""Names in the folder around a program that needs more of it than its own file."""


def confine_server(session: Session, server: McpServer, cwd: str) -> Confinement | None:
    """Return how to confine a server of a session; None for not at all. Raises OSError where
    that cannot be set up.
    """
    sandbox = session.deps.sandbox
    if sandbox is None or server.sandbox == "off":
        return None
    return confine(session, cwd, sandbox=server_sandbox(sandbox, server, cwd))


def server_sandbox(sandbox: SessionSandbox, server: McpServer, cwd: str) -> SessionSandbox:
    """Return the sandbox for a server that starts in `cwd`.

    One of the user has the network, the caches of package managers, and the files and folders that
    its entry names.
    """
    options = sandbox.options
    if server.sandbox == "strict":
        return sandbox.with_options(
            home=(*options.home, cwd)
        )  # the session may work in a folder below
    named = tuple(_named(server, cwd))
    written = tuple(folder for path in named if (folder := _granted(path, sandbox.home)))
    around = tuple(folder for path in named if (folder := _project_around(path, sandbox.home)))
    return sandbox.with_options(
        home=(*options.home, cwd, *around),
        home_writable=(*options.home_writable, *PACKAGE_CACHES),
        write=(*options.write, *written),
        network=("*",),
    )


def _named(server: McpServer, cwd: str) -> Iterator[str]:
    """Yield the real paths that an entry names in its words and variables, existing or not."""
    for word in (*server.command, *(value for _, value in server.env), server.cwd):
        path = os.path.expanduser(word.partition("=")[2] or word)
        if path.startswith("/") or (
            word in server.command and os.path.exists(os.path.join(cwd, path))
        ):
            yield os.path.realpath(os.path.join(cwd, path))


def _granted(path: str, home: str) -> str:
    """Return what of a named path the server may change; '' for nothing.

    Of a file its folder, because databases write beside it. Never home or a folder above it.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if _may_be_shown(folder, home):
        return folder
    return path if os.path.isfile(path) else ""


def _project_around(path: str, home: str) -> str:
    """Return the nearest folder around a named path that holds a project; '' for none."""
    folder = path
    while _may_be_shown(folder, home):
        if any(os.path.exists(f"{folder}/{name}") for name in PROJECT_FILES):
            return folder
        folder = os.path.dirname(folder)
    return ""


def _may_be_shown(folder: str, home: str) -> bool:
    """Return True for folders in home and in places for data of users, but not for these
    themselves.
    """
    places = (home, "/tmp", "/var/tmp", "/mnt", "/media", "/srv")
    return any(folder.startswith(f"{place}/") for place in places) and not f"{home}/".startswith(
        f"{folder}/"
    )

"""The sandbox of MCP servers: those of a project run as commands do, those of the user reach
more.
"""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress

from longrein.extensions.mcp.server_config import McpServer
from longrein.workspace.sandbox import ENVIRONMENT, INSTALLED, INTERPRETERS, SessionSandbox

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


HOPS_MAX = 40
"""Links and interpreters that are followed for one program, as the kernel follows links."""
FIRST_LINE_BYTES = 512


def server_sandbox(sandbox: SessionSandbox, server: McpServer, cwd: str) -> SessionSandbox:
    """Return the sandbox for a server that starts in `cwd`.

    Every server sees what its program needs to start. One of the user also has the network, the
    caches of package managers, and the files and folders that its entry names.
    """
    options = sandbox.options
    shown = (*options.home, cwd, *_program_files(server, cwd, sandbox))
    if server.sandbox == "strict":
        return sandbox.with_options(image="", home=shown)  # the session may work in a folder below
    named = tuple(_named(server, cwd))
    written = tuple(folder for path in named if (folder := _granted(path, sandbox.home)))
    around = tuple(folder for path in named if (folder := _project_around(path, sandbox.home)))
    return sandbox.with_options(
        image="",
        home=(*shown, *around),
        home_writable=(*options.home_writable, *PACKAGE_CACHES),
        write=(*options.write, *written),
        network=("*",),
    )


def server_words(server: McpServer) -> Sequence[str]:
    """Return the words of a server's command, also of one that a shell starts (`sh -c '…'`)."""
    words = server.command
    if len(words) == 3 and words[1] in ("-c", "-lc"):
        with suppress(ValueError):  # quotes that a shell would not take
            return (*words[:2], *shlex.split(words[2].removeprefix("exec ")))
    return words


def _named(server: McpServer, cwd: str) -> Iterator[str]:
    """Yield the real paths that an entry names in its words and variables, existing or not."""
    words = server_words(server)
    for word in (*words, *(value for _, value in server.env), server.cwd):
        path = os.path.expanduser(word.partition("=")[2] or word)
        if path.startswith("/") or (word in words and os.path.exists(os.path.join(cwd, path))):
            yield os.path.realpath(os.path.join(cwd, path))


def _program_files(server: McpServer, cwd: str, sandbox: SessionSandbox) -> tuple[str, ...]:
    """Return what the program of a server needs to start: its links, the virtual environment in
    which it lies, and the installation of its interpreter.

    Nothing is followed from a place that commands can change, nor for a server of the project from
    the folder in which it starts: what stands there was not made by the user.
    """
    held = (cwd,) if server.sandbox == "strict" else ()
    found: dict[str, None] = {}
    waiting = [_program(server, cwd, sandbox)]
    while waiting and len(found) < HOPS_MAX:
        path = waiting.pop()
        if not path or path in found or not (os.path.isfile(path) and os.access(path, os.X_OK)):
            continue
        if sandbox.is_changeable(path, held):
            continue
        found[path] = None
        waiting += [_link_target(path), _interpreter(path), *_environment_programs(path)]
    parts = [part for path in found for part in _installation(path, sandbox)]
    return tuple(path for path in (*found, *parts) if os.path.exists(path))


def _program(server: McpServer, cwd: str, sandbox: SessionSandbox) -> str:
    """Return the path of a server's program; '' where it is not found."""
    word = os.path.expanduser(server.command[0]) if server.command else ""
    if "/" in word:
        return os.path.normpath(os.path.join(cwd, word))
    search_path = dict(server.env).get("PATH") or sandbox.search_path
    return shutil.which(word, path=search_path) or ""


def _link_target(path: str) -> str:
    """Return where a link leads, by the names in it; '' for no link."""
    with suppress(OSError):
        return os.path.normpath(
            os.path.join(os.path.realpath(os.path.dirname(path)), os.readlink(path))
        )
    return ""


def _interpreter(path: str) -> str:
    """Return the program that the first line of a script names; '' for none."""
    with suppress(OSError), open(path, "rb") as file:
        head, _, rest = file.read(FIRST_LINE_BYTES).partition(b"\n")[0].partition(b"#!")
        words = os.fsdecode(rest).split()
        return words[0] if not head and words else ""
    return ""


def _environment_of(path: str) -> str:
    """Return the virtual environment of Python in whose `bin` a program lies; '' for none."""
    above = os.path.dirname(os.path.dirname(path))
    return above if os.path.isfile(f"{above}/{ENVIRONMENT[0]}") else ""


def _environment_programs(path: str) -> list[str]:
    """Return the interpreter of the virtual environment of a program, and the one that it was
    made with.
    """
    environment = _environment_of(path)
    if not environment:
        return []
    found = [f"{environment}/bin/python"]
    with suppress(OSError, ValueError), open(f"{environment}/{ENVIRONMENT[0]}") as file:
        for line in file.read().splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "home":
                found.append(f"{value.strip()}/python3")
    return found


def _installation(path: str, sandbox: SessionSandbox) -> list[str]:
    """Return the virtual environment of a program, or the installation of an interpreter."""
    environment = _environment_of(path)
    if environment:
        return [f"{environment}/{part}" for part in ENVIRONMENT]
    folder = os.path.dirname(path)
    is_interpreter = os.path.basename(path).startswith(INTERPRETERS)
    leads_away = os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder)
    prefix = os.path.dirname(folder)
    if (
        not is_interpreter
        or leads_away
        or not _may_be_shown(os.path.realpath(prefix), sandbox.home)
    ):
        return []
    return [f"{prefix}/{part}" for part in INSTALLED]


def _granted(path: str, home: str) -> str:
    """Return what of a named path the server may change; '' for nothing.

    Of a file its folder, because databases write beside it, but not the folder of installed
    programs. Never home or a folder above it.
    """
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    if folder != path and os.path.basename(folder) == "bin":
        return ""
    if _may_be_shown(folder, home):
        return folder
    return path if os.path.isfile(path) else ""


def _project_around(path: str, home: str) -> str:
    """Return the nearest folder around a named path that holds a project; '' for none."""
    folder = path.partition("/node_modules/")[0]  # its packages lie in the outermost one
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

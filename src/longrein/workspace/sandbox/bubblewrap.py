"""Arguments of bubblewrap: own user, mount, PID, IPC, UTS, cgroup and network namespaces.

There is no `--die-with-parent`: processes that a command leaves in the background (`server &`) go
on, as without a sandbox. The init process of the PID namespace ends with the last of them.
"""

import os
from collections.abc import Container, Iterator

from longrein.workspace.sandbox.policy import SandboxPolicy

EMPTIED = ("/tmp", "/var/tmp", "/run", "/root", "/home", "/media", "/mnt")
"""Folders that commands see empty: other users' files, sockets of daemons, other people's
temporary files.
"""
RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
"""Folders in /run that hold the file behind /etc/resolv.conf; visible where commands have the
network.
"""
PROXY_SOCKET = "/dev/longrein-proxy"
"""Socket of the proxy, as commands see it."""
NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
)

Mounts = dict[str, tuple[str, ...]]
"""Path -> arguments that mount something there."""


def bubblewrap_arguments(
    policy: SandboxPolicy, program: str, cwd: str, seccomp: str = ""
) -> list[str]:
    """Return the command line in front of a command.

    `seccomp` is the number of the descriptor that holds the filter, or a word that stands for it;
    '' for none.
    """
    words = [program, *NAMESPACES]
    if not policy.network:
        words.append("--unshare-net")
    words += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    if (
        not os.getuid()
    ):  # the kernel lets root change its settings by the user id alone, without any capability
        words += ["--ro-bind", "/proc/sys", "/proc/sys"]
    mounts = _mounts(policy)
    for mount in _needed(mounts):
        words += mount
    words += ["--chdir", cwd]
    if seccomp:
        words += ["--seccomp", seccomp]
    return [*words, "--"]


def _needed(mounts: Mounts) -> Iterator[tuple[str, ...]]:
    """Yield the mounts, those of outer folders first, without read-only ones inside read-only ones.

    Each mount costs a command about 0.1 ms. A writable mount in a writable one stays: a mount
    cannot be renamed.
    """
    around: list[tuple[str, str]] = []
    """(path, kind) of the mounts that contain the next path, outermost first."""
    for path in sorted(mounts, key=lambda path: path.split("/")):
        while around and not _is_below(path, (around[-1][0],)):
            around.pop()
        mount = mounts[path]
        kind = mount[0] if mount[1:] == (path, path) else ""
        if kind != "--ro-bind" or not around or around[-1][1] != kind:
            around.append((path, kind))
            yield mount


def _is_empty(folder: str) -> bool:
    try:
        with os.scandir(folder) as entries:
            return next(entries, None) is None
    except OSError:
        return False


def _mounts(policy: SandboxPolicy) -> Mounts:
    """Return all mounts; of several for one path the strictest."""
    mounts: Mounts = {}
    if policy.private_tmp:
        mounts["/tmp"] = ("--bind", policy.private_tmp, "/tmp")
    if policy.home and policy.private_home:
        mounts[policy.home] = ("--bind", policy.private_home, policy.home)
    elif policy.home and not _is_below(policy.home, EMPTIED):
        mounts[policy.home] = ("--tmpfs", policy.home)
    for folder in EMPTIED:
        if (
            folder not in mounts
            and os.path.isdir(folder)
            and not os.path.islink(folder)
            and not _is_empty(folder)
        ):
            mounts[folder] = ("--tmpfs", folder)
    visible = (*policy.home_visible, *(RESOLVERS if policy.network else ()))
    for how, paths in (
        ("--ro-bind", visible),
        ("--bind", policy.home_writable),
        ("--bind", policy.roots),
        ("--ro-bind", policy.read_only),
    ):
        mounts.update((path, (how, path, path)) for path in paths if path and os.path.lexists(path))
    if policy.proxy_socket:
        mounts[PROXY_SOCKET] = ("--bind", policy.proxy_socket, PROXY_SOCKET)
    kept, hidden = {*policy.roots, *policy.read_only}, set(policy.hidden)
    for path in [one for one in mounts if one not in kept and _is_below(one, hidden)]:
        del mounts[path]
    shown = {*visible, *policy.home_writable, *policy.roots}
    absent = {*EMPTIED, policy.home}
    with_more = {folder for path in (*mounts, *hidden) for folder in _folders_above(path)}
    for path in policy.hidden:
        if _is_below(path, absent) and not _is_below(path, shown):
            continue  # the folder above is empty already
        mounts[path] = _hiding(path, policy.unreadable, closed=path not in with_more)
    return mounts


def _hiding(path: str, unreadable: str, *, closed: bool) -> tuple[str, ...]:
    """Return the arguments that hide a file or folder; a folder that is not `closed` can be
    passed through.
    """
    if os.path.isdir(path):
        return (
            "--perms",
            "0000" if closed else "0711",
            "--tmpfs",
            path,
            *(("--remount-ro", path) if closed else ()),
        )
    return "--ro-bind", unreadable or "/dev/null", path


def _is_below(path: str, folders: Container[str]) -> bool:
    return path in folders or any(folder in folders for folder in _folders_above(path))


def _folders_above(path: str) -> Iterator[str]:
    while len(path) > 1:
        path = path.rpartition("/")[0] or "/"
        yield path

"""Arguments of bubblewrap: own user, mount, PID, IPC, UTS, cgroup and network namespaces."""

import os
from collections.abc import Iterable

from longrein.workspace.sandbox.policy import SandboxPolicy

_EMPTIED = ("/tmp", "/var/tmp", "/run", "/dev/shm", "/root", "/home", "/media", "/mnt")
"""Folders that commands see empty: other users' files, sockets of daemons, other people's temporary files."""


def bubblewrap_arguments(policy: SandboxPolicy, program: str, cwd: str, seccomp: int) -> list[str]:
    """Return the command line in front of a command. `seccomp` is the descriptor that holds the filter; -1 for none."""
    words = [program, "--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    if not policy.network:
        words.append("--unshare-net")
    words += ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for folder in _EMPTIED:
        if os.path.isdir(folder) and not os.path.islink(folder):
            words += ["--tmpfs", folder]
    if policy.home and not _below(policy.home, _EMPTIED) and policy.home not in policy.roots:
        words += ["--tmpfs", policy.home]
    words += _bound("--ro-bind", policy.home_visible)
    words += _bound("--bind", (*policy.home_writable, *policy.roots))
    if policy.proxy_socket:
        words += _bound("--bind", (policy.proxy_socket,))
    words += _bound("--ro-bind", policy.read_only)
    for path in policy.hidden:
        words += ["--tmpfs", path] if os.path.isdir(path) else ["--ro-bind", "/dev/null", path]
    words += ["--chdir", cwd]
    if seccomp >= 0:
        words += ["--seccomp", str(seccomp)]
    return [*words, "--"]


def _bound(how: str, paths: Iterable[str]) -> list[str]:
    """Return the arguments that mount each existing path at its own place, outer folders first."""
    return [word for path in sorted(paths) if os.path.lexists(path) for word in (how, path, path)]


def _below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder + "/") for folder in folders)

"""Confinement by bubblewrap: mounts of a policy, and the arguments that add the other namespaces.

The mounts are made before bubblewrap starts, by descriptors (`mount_process`): bubblewrap takes
paths, and a command can put a link at any name in the project.

There is no `--die-with-parent`: processes that a command leaves in the background (`server &`) go
on, as without a sandbox. The init process of the PID namespace ends with the last of them.
"""

import os
from collections.abc import Container, Iterator
from functools import lru_cache
from itertools import chain
from typing import NamedTuple

from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.supervisor.mount_process import (
    CLOSED,
    COVER,
    EMPTY,
    IMAGE,
    LINK,
    READ,
    WRITE,
    Mount,
    encode_plan,
)

EMPTIED = ("/tmp", "/var/tmp", "/run", "/root", "/home", "/media", "/mnt")
"""Folders that commands see empty: other users' files, sockets of daemons, other people's
temporary files.
"""
RESOLVERS = ("/run/systemd/resolve", "/run/resolvconf", "/run/NetworkManager")
"""Folders in /run that hold the file behind /etc/resolv.conf; visible where commands have the
network.
"""
PROXY_SOCKET = "/run/longrein-proxy"
"""Socket of the proxy, as commands see it."""
NAMESPACES = (
    "--unshare-user",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
)


def bubblewrap_arguments(
    program: str, cwd: str, *, network: bool = False, seccomp: str = "", top: str = "/"
) -> list[str]:
    """Return the command line in front of a command whose mounts are made, below `top`.

    `seccomp` is the number of the descriptor that holds the filter, or a word that stands for it;
    '' for none.
    """
    words = [program, *NAMESPACES]
    if not network:
        words.append("--unshare-net")
    words += ["--cap-drop", "ALL", "--bind", top, "/", "--dev", "/dev", "--proc", "/proc"]
    if not os.getuid():
        # the kernel lets root change its settings by the user id alone, without any capability
        words += ["--ro-bind", "/proc/sys", "/proc/sys"]
    words += ["--chdir", cwd]
    if seccomp:
        words += ["--seccomp", seccomp]
    return [*words, "--"]


class ExistingPaths(NamedTuple):
    """Those of a policy's paths that exist. With the policy they decide the mounts."""

    shown: frozenset[str]
    """Paths that commands may see; a link counts wherever it leads."""
    emptied: tuple[str, ...]
    """Folders that commands see empty."""
    hidden: frozenset[str]
    """Hidden paths that are folders."""


def plan_of(policy: SandboxPolicy) -> bytes:
    """Return the mounts of a policy for `apply_mounts`."""
    return _plan(policy, existing_paths(policy))


def existing_paths(policy: SandboxPolicy) -> ExistingPaths:
    """Look which paths of a policy exist."""
    named = chain(_visible(policy), policy.home_writable, policy.roots, policy.read_only)
    emptied = (one for one in EMPTIED if os.path.isdir(one) and not os.path.islink(one))
    return ExistingPaths(
        frozenset(path for path in named if path and os.path.lexists(path)),
        tuple(emptied),
        frozenset(filter(os.path.isdir, policy.hidden)),
    )


@lru_cache(maxsize=8)
def _plan(policy: SandboxPolicy, existing: ExistingPaths) -> bytes:
    """The plan of the last command is nearly always that of the next: to make one takes 0.5 ms."""
    return encode_plan(mounts_of(policy, existing))


def mounts_of(policy: SandboxPolicy, existing: ExistingPaths) -> list[Mount]:
    """Return the mounts of a policy, those of outer folders first.

    Folders between a root and something protected in it are mounted on themselves: a mount cannot
    be renamed, so nothing protected gets another path.
    """
    mounts = _strictest(policy, existing)
    fixed = [path for path, mount in mounts.items() if mount.kind not in (WRITE, EMPTY)]
    for path in fixed:
        for folder in _folders_above(path):
            if folder in mounts or not _is_below(folder, policy.roots):
                break
            mounts[folder] = Mount(WRITE, folder, folder)
    for link, target in policy.links:
        above = next((mounts[folder] for folder in _folders_above(link) if folder in mounts), None)
        if link not in mounts and above is not None and above.kind == EMPTY:
            mounts[link] = Mount(LINK, link, target)
    image = [Mount(IMAGE, "/", policy.image)] if policy.image else []
    return [*image, *_needed(mounts)]


def _needed(mounts: dict[str, Mount]) -> Iterator[Mount]:
    """Yield the mounts, those of outer folders first, without read-only ones inside read-only
    ones.
    """
    around: list[Mount] = []
    """Mounts that contain the next path, outermost first."""
    for path in sorted(mounts, key=lambda path: path.split("/")):
        while around and not _is_below(path, (around[-1].path,)):
            around.pop()
        mount = mounts[path]
        if mount.kind != READ or not around or around[-1].kind != READ:
            around.append(mount)
            yield mount


def _strictest(policy: SandboxPolicy, existing: ExistingPaths) -> dict[str, Mount]:
    """Return one mount for each path; of several the strictest."""
    emptied = (policy.home, *existing.emptied)  # also those that are empty: files may come
    mounts = {path: Mount(EMPTY, path, "") for path in emptied if path}
    if policy.private_tmp:
        mounts["/tmp"] = Mount(WRITE, "/tmp", policy.private_tmp)
    visible = _visible(policy)
    for kind, paths in (
        (READ, visible),
        (WRITE, policy.home_writable),
        (WRITE, policy.roots),
        (READ, policy.read_only),
    ):
        mounts.update((path, Mount(kind, path, path)) for path in paths if path in existing.shown)
    if policy.proxy_socket:
        mounts["/run"] = Mount(EMPTY, "/run", "")
        mounts[PROXY_SOCKET] = Mount(READ, PROXY_SOCKET, policy.proxy_socket)
    kept, hidden = {*policy.roots, *policy.read_only}, set(policy.hidden)
    for path in [one for one in mounts if one not in kept and _is_below(one, hidden)]:
        del mounts[path]
    _hide(policy, existing, mounts)
    if not policy.image:
        return mounts
    shown = {"/tmp", *policy.home_writable, *policy.roots}
    return {path: mount for path, mount in mounts.items() if _is_below(path, shown)}


def _visible(policy: SandboxPolicy) -> tuple[str, ...]:
    return (*policy.home_visible, *(RESOLVERS if policy.network else ()))


def _hide(policy: SandboxPolicy, existing: ExistingPaths, mounts: dict[str, Mount]) -> None:
    """Add the mounts over hidden paths; one that lies in an empty folder needs none."""
    shown = {*_visible(policy), *policy.home_writable, *policy.roots}
    absent = {*EMPTIED, policy.home}
    with_more = {folder for path in (*mounts, *policy.hidden) for folder in _folders_above(path)}
    for path in policy.hidden:
        if _is_below(path, absent) and not _is_below(path, shown):
            continue
        if path not in existing.hidden:
            mounts[path] = Mount(COVER, path, policy.unreadable or "/dev/null")
        else:
            mounts[path] = Mount(EMPTY if path in with_more else CLOSED, path, "")


def _is_below(path: str, folders: Container[str]) -> bool:
    return path in folders or any(folder in folders for folder in _folders_above(path))


def _folders_above(path: str) -> Iterator[str]:
    while len(path) > 1:
        path = path.rpartition("/")[0] or "/"
        yield path

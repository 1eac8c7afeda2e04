"""Rules of Landlock for a policy, for Linux without bubblewrap; `landlock_process` applies them.

Landlock can only allow: a folder that is readable is readable as a whole. Where a hidden path lies
in a readable folder, its siblings are allowed one by one. `unenforced` lists what stays open.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from longrein.workspace.files import is_inside
from longrein.workspace.sandbox.bubblewrap import RESOLVERS
from longrein.workspace.sandbox.masks import identity_of
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.seccomp import AF_INET, AF_INET6, filter_bytes
from longrein.workspace.supervisor.landlock_process import (
    ABI_MIN,
    ABI_SCOPES,
    EXECUTE,
    IOCTL_DEV,
    READ,
    READ_DIR,
    READ_FILE,
    TRUNCATE,
    WRITE,
    WRITE_FILE,
    abi,
)
from longrein.workspace.supervisor.openat import open_folder

RULES_MAX = 20_000
"""Siblings of hidden paths that are allowed one by one; the rest stays closed."""
CLOSED = ("/tmp", "/var/tmp", "/run", "/dev", "/root", "/home", "/media", "/mnt")
"""Folders that commands cannot read, apart from roots and visible folders in them."""
DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
HIDDEN_FILES_MAX = 5_000
"""Files of hidden folders that are remembered."""
_hidden_files: dict[bytes, str] = {}
"""Files in roots that were hidden once, with the folder they lay in: a command may have renamed
them since.
"""


# --- What the kernel can do -----------------------------------------------------------------------


def available() -> str:
    """Return '' if commands can be confined here, else the reason why not."""
    if sys.platform != "linux":
        return "Landlock exists on Linux only"
    try:
        found = abi()
        filter_bytes(())
    except OSError as error:
        return f"the kernel offers no Landlock ({error.strerror})"
    except LookupError:
        return f"no table of system calls for {os.uname().machine}"
    return (
        ""
        if found >= ABI_MIN
        else f"the kernel has version {found} of Landlock; version {ABI_MIN} is needed"
    )


def unenforced(policy: SandboxPolicy) -> tuple[str, ...]:
    """Return what commands can do although the policy says otherwise, one sentence each."""
    found = [
        "change mode, times and extended attributes of your files outside the project",
        "see names and sizes of all files",
        "see the command lines of other processes",
        "see which processes run and when they end (pidfd_open)",
    ]
    found += [
        f"change {path} until longrein puts it back"
        for path in policy.read_only
        if is_inside(path, policy.roots)
    ]
    found += [
        f"replace {path}, which is hidden"
        for path in policy.hidden
        if is_inside(path, policy.roots)
    ]
    if abi() < ABI_SCOPES:
        found.append("end other processes of yours")
    return tuple(found)


# --- From a policy to rules -----------------------------------------------------------------------


def rules_of(policy: SandboxPolicy) -> dict[str, int]:
    """Return the rights below each path. Reads folders that hold hidden paths."""
    hidden = {*policy.hidden, *_remember(policy)}
    home = (policy.home,) if policy.home else ()
    rules: dict[str, int] = {}
    _allow(rules, "/", READ, 0, {*CLOSED, *home, *hidden})
    for path in (*policy.home_visible, *(RESOLVERS if policy.network else ())):
        _allow(rules, path, READ, 0, hidden)
    if policy.private_home:  # a write there would not last
        _allow(rules, policy.private_home, READ, 0, hidden)
    own = [policy.private_tmp] if policy.private_tmp else []
    for path in (*policy.home_writable, *policy.roots, *own):
        _allow(rules, path, READ | WRITE, WRITE | EXECUTE | READ_DIR, hidden)
    for name in DEVICES:
        rules[f"/dev/{name}"] = READ_FILE | WRITE_FILE | TRUNCATE | IOCTL_DEV
    return rules


def environment(policy: SandboxPolicy) -> dict[str, str]:
    """Return the variables that lead a confined command to its own home folder and folder for
    temporary files.
    """
    found = (
        dict.fromkeys(("TMPDIR", "TMP", "TEMP"), policy.private_tmp) if policy.private_tmp else {}
    )
    return {**found, "HOME": policy.private_home} if policy.private_home else found


def link_visible(policy: SandboxPolicy) -> None:
    """Make links in the private home folder to what commands see of the real one. Raises
    OSError.
    """
    shown = [(path, path) for path in (*policy.home_visible, *policy.home_writable)]
    for path, real in sorted((*shown, *policy.links)):
        link = policy.private_home + path.removeprefix(policy.home)
        if policy.private_home and path.startswith(policy.home + "/") and not os.path.exists(link):
            os.makedirs(os.path.dirname(link), 0o700, exist_ok=True)
            os.symlink(real, link)


def _allow(rules: dict[str, int], path: str, rights: int, at_least: int, closed: set[str]) -> None:
    """Allow `rights` below a path but for the closed paths, in whose parents only `at_least` is
    allowed.
    """
    if path in closed:
        return
    inner = {one for one in closed if is_inside(one, (path,))}
    if not inner:
        rules[path] = rules.get(path, 0) | rights
        return
    if at_least:
        rules[path] = rules.get(path, 0) | at_least
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if not entry.is_symlink() and len(rules) < RULES_MAX:
                _allow(rules, entry.path, rights, at_least, inner)


def _remember(policy: SandboxPolicy) -> Iterator[str]:
    """Remember the files that are hidden in the roots, and yield where those hidden before are now.

    A command can rename them in their folder, or move them out of a hidden folder into the one
    above.
    """
    for path in policy.hidden:
        with suppress(OSError):
            if (
                is_inside(path, policy.roots)
                and _hidden_files.setdefault(identity_of(path), path) == path
            ):
                for folder, _, names in (
                    os.walk(path) if len(_hidden_files) < HIDDEN_FILES_MAX else ()
                ):
                    _hidden_files.update((identity_of(f"{folder}/{name}"), path) for name in names)
    for folder in {os.path.dirname(path) for path in _hidden_files.values()}:
        with suppress(OSError), open_folder(folder) as opened:
            paths = map(opened.path_of, opened.names())
            yield from (path for path in paths if identity_of(path) in _hidden_files)


def filter_of(policy: SandboxPolicy) -> bytes:
    """Return the seccomp filter for a policy.

    Without network no socket can be made: Landlock limits neither UDP nor sockets with a path, such
    as that of Docker. Pairs of connected sockets remain.
    """
    return filter_bytes((AF_INET, AF_INET6) if policy.network else (), namespaces=False)


def plan_of(policy: SandboxPolicy) -> bytes:
    """Return the filter and the rules for the process that confines itself. Reads folders that
    hold hidden paths.
    """
    parts = [filter_of(policy).hex().encode()]
    for path, rights in sorted(rules_of(policy).items()):
        parts += [b"%d" % rights, os.fsencode(path)]
    return b"\0".join(parts)

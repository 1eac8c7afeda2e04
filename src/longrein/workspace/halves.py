"""Files in the making: how they are called, and what a killed longrein has left of them.

A file in the making lies beside its target and names its owner, a process. Once it is whole it also names its target,
the content it brings and the content it expects there. So whoever finds it later can tell what it holds: what was to be
written, what was rightly replaced, or somebody else's text that the killed process had taken out of the file and not
yet merged. That text goes back to its place, or where the place has been written since it is kept beside it.
"""

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import cache
from hashlib import sha256
from itertools import count

import msgspec

from longrein.workspace.afterwards import content
from longrein.workspace.exchange import exchange
from longrein.workspace.files import content_hash, open_regular, read
from longrein.workspace.processes import LINUX, process

BEGIN, END = ".longrein-", ".tmp"
HASH_CHARS = 16
"""Of a content's hash, in a name."""

_serial = count(1)


class Half(msgspec.Struct, frozen=True):
    """A file in the making."""

    folder: str
    owner: str
    """`<pid>.<start>` of the process that makes it."""
    number: str
    target: str = ""
    """Hash of its target's name; '' for one that is not whole yet."""
    put: str = ""
    """Hash of what it brings."""
    there: str = ""
    """Hash of what it expects in its place."""
    within: str = ""
    """Hash of a content that somebody else's text, which it holds, was merged into."""

    @property
    def path(self) -> str:
        """Where it lies."""
        parts = filter(None, (self.owner, self.number, self.target, self.put, self.there, self.within))
        return os.path.join(self.folder, BEGIN + "-".join(parts) + END)


def new_half(folder: str) -> Half:
    """One of this process, under a number that is not used yet."""
    return Half(folder, _owner(os.getpid()), str(next(_serial)))


def short(digest: str) -> str:
    """A content's hash as it stands in a name."""
    return digest[:HASH_CHARS]


def name_hash(path: str) -> str:
    """The name of a target, as it stands in the name of a file in the making."""
    return short(sha256(os.fsencode(os.path.basename(path))).hexdigest())


@cache
def _owner(pid: int) -> str:
    own = process(pid) if LINUX else None
    return f"{pid}.{own.start if own else 0}"


def sweep_halves(folders: Iterable[str]) -> list[str]:
    """Clear up what killed processes left in `folders`; what living ones make stays.

    Gives a sentence for each file with somebody else's text that had to be kept beside its place.
    """
    said: list[str] = []
    for folder in folders:
        for half in _left_in(folder):
            with contextlib.suppress(OSError):  # another process clears up too, or the folder is not ours
                said += _settle(half)
    return said


def _left_in(folder: str) -> Iterator[Half]:
    try:
        names = os.listdir(folder)
    except OSError:
        return
    for name in names:
        if not name.startswith(BEGIN) or not name.endswith(END):
            continue
        parts = name[len(BEGIN) : -len(END)].removesuffix(".old").split("-")
        pid, _, start = parts[0].partition(".")
        if pid.isdigit() and not _alive(int(pid), int(start) if start.isdigit() else 0):
            yield _claimed(os.path.join(folder, name), Half(folder, *parts[:6]))


def _claimed(path: str, half: Half) -> Half:
    """The same under a name of this process, so that nobody else clears it up too; a missing one stays missing."""
    mine = msgspec.structs.replace(half, owner=_owner(os.getpid()), number=str(next(_serial)))
    with contextlib.suppress(OSError):
        os.rename(path, mine.path)
    return mine


def _alive(pid: int, start: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    now = process(pid) if LINUX and start else None
    return now is None or now.start == start


def _settle(half: Half) -> list[str]:
    """Drop what everybody has, put back what only it has. Raises OSError."""
    text = _settled(half.path)
    digest = "" if text is None else short(sha256(text).hexdigest())
    if not half.there or digest in (half.put, half.there):
        os.unlink(half.path)
        return []
    names = (name for name in os.listdir(half.folder) if name_hash(name) == half.target)
    target = os.path.join(half.folder, next(names, ""))
    now = short(content_hash(target))
    if now == half.put and exchange(half.path, target):
        return _settle_again(half, target)
    if now and text is not None and (now == half.within or holds(read(target), text)):
        os.unlink(half.path)
        return []
    return [_kept_beside(half, target if now else "")]


def _settle_again(half: Half, target: str) -> list[str]:
    """After an exchange: what came out is what was put there, unless somebody wrote in that very moment."""
    text = _settled(half.path)
    if text is not None and short(sha256(text).hexdigest()) == half.put:
        os.unlink(half.path)
        return []
    exchange(half.path, target)
    return [_kept_beside(half, target)]


def _settled(path: str) -> bytes | None:
    """Content, once nobody who had the file open before it was taken out writes to it; None when that goes on."""
    descriptor, _ = open_regular(path)
    try:
        return content(descriptor)
    finally:
        os.close(descriptor)


def holds(text: bytes, other: bytes) -> bool:
    """Whether every line of `other` is in `text` too: then nothing that anybody wrote goes with it."""
    return set(other.splitlines()) <= set(text.splitlines())


def _kept_beside(half: Half, target: str) -> str:
    """Give it a name that people see."""
    kept = beside(target or os.path.join(half.folder, "kept"))
    os.rename(half.path, kept)
    return f"{kept} holds a change of {target or 'a file'} by another program, which a crash had cut: compare the two"


def beside(target: str) -> str:
    """A free name beside `target`, which people see, for a text of somebody else that has no place in it."""
    names = (f"{target}.theirs{number or ''}" for number in count())
    return next(name for name in names if not os.path.lexists(name))

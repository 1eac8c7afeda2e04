"""Rot in the database of a session: places relative to its pages and cells, and what an open says.

A session of many entries is closed, some bytes of its file are overwritten, and the session is
opened again. What was acknowledged must be there, or its loss must be told.
"""

import asyncio
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from random import Random

import msgspec

from longrein.store import SessionLog, open_log
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    Opened,
    Parent,
    SessionError,
    SubagentStarted,
    Text,
    ToolEnded,
    UserSpoke,
)
from tests.timeouts import HANG_S

PAGE_BYTES = 4096
ROOT_ID, CHILD_ID = "6f1c3a52-7d0e-4b7a-9f3e-0123456789ab", "6f9d0000-0000-4000-8000-000000000002"
LEAF, INTERIOR, INDEX_LEAF, INDEX_INTERIOR = 0x0D, 0x05, 0x0A, 0x02
PATTERNS = (b"\xff" * 64, b"\0" * 64, b"\xff" * 8, b"\x80" * 9, b"\x01", b"\0")
"""What overwrites the bytes at a place; a single byte is added to the one that was there."""


class Place(msgspec.Struct, frozen=True):
    """Bytes of a database file that rot may hit."""

    offset: int
    kind: str
    """Part of the file: `cell of a leaf`, `header of an interior page`, `free page` …"""


def places(path: Path) -> dict[str, list[Place]]:
    """Return the places of a database file at which its structure begins and ends, by kind."""
    data = path.read_bytes()
    found = [Place(at, "header of the file") for at in (0, 16, 18, 24, 28, 32, 36, 40, 44, 60, 96)]
    free = set(_free_pages(data))
    for number in range(1, len(data) // PAGE_BYTES + 1):
        start = (number - 1) * PAGE_BYTES
        if number in free:
            found += [Place(start + at, "free page") for at in (0, 4, 8, PAGE_BYTES // 2)]
        else:
            found += _of_page(data, start, 100 if number == 1 else 0)
    kinds: dict[str, list[Place]] = {}
    for place in found:
        if 0 <= place.offset < len(data):
            kinds.setdefault(place.kind, []).append(place)
    return kinds


def _of_page(data: bytes, start: int, skipped: int) -> Iterator[Place]:
    names = {LEAF: "leaf", INTERIOR: "interior page", INDEX_LEAF: "leaf of an index"}
    names[INDEX_INTERIOR] = "interior page of an index"
    head = start + skipped
    name = names.get(data[head])
    if name is None:
        for at in (0, 4, PAGE_BYTES - 32):
            yield Place(start + at, "overflow page")
        return
    size = 12 if "interior" in name else 8
    for at in (0, 1, 3, 5, 7, *([8] if size == 12 else [])):
        yield Place(head + at, f"header of a {name}")
    cells = struct.unpack_from(">H", data, head + 3)[0]
    pointers = head + size
    for cell in struct.unpack_from(f">{cells}H", data, pointers):
        for at in (-56, -32, -8, -1, 0, 1, 3, 8, 12, 20):
            yield Place(start + cell + at, f"cell of a {name}")
    for at in range(0, 2 * cells, 6):
        yield Place(pointers + at, f"pointers of a {name}")


def _free_pages(data: bytes) -> Iterator[int]:
    trunk = struct.unpack_from(">I", data, 32)[0]
    while trunk:
        yield trunk
        at = (trunk - 1) * PAGE_BYTES
        trunk, leaves = struct.unpack_from(">II", data, at)
        yield from struct.unpack_from(f">{leaves}I", data, at + 8)


def overwrite(path: Path, place: Place, pattern: bytes) -> None:
    """Let rot hit a place."""
    with open(path, "r+b") as file:
        file.seek(place.offset)
        if len(pattern) == 1:
            pattern = bytes([(file.read(1)[0] + pattern[0] + 1) % 256])
            file.seek(place.offset)
        file.write(pattern)


# --- A session of all kinds of pages --------------------------------------------------------------


def database(state: Path, session: str = ROOT_ID) -> Path:
    """Return the path of a session's database."""
    return state / "sessions" / session / "log.sqlite"


def _entries(first: int, last: int, random: Random) -> list[Entry]:
    at = 1_760_000_000_000_000
    kinds = (0, 20, 300, 900, 3_500, 9_000)
    texts = [f"{seq:05} " * (random.choice(kinds) // 6) for seq in range(first, last + 1)]
    return [
        Entry(seq, at + seq, ToolEnded(f"c{seq}.0", "Bash", "ok", (Text(text),)))
        for seq, text in enumerate(texts, first)
    ]


async def make_session(state: Path, seed: int, last: int, *, subagent: bool = True) -> None:
    """Make a closed session of `last` entries with a subagent, blobs, and pages that are free."""
    random, at = Random(seed), 1_760_000_000_000_000
    log = await _open(state, create=True)
    opened = Opened(SCHEMA_VERSION, ROOT_ID, "n0nce", ("/work",), "/work")
    await _append(log, [Entry(1, at, opened), Entry(2, at, UserSpoke((Text("hello"),)))])
    middle = last // 2
    waiting = [log.put(b"%05d " % n * 500) for n in range(8)]
    await _append(log, _entries(3, middle, random))
    await _append(log, [Entry(middle + 1, at, SubagentStarted("c2.0", CHILD_ID, "general"))])
    child = log.child(CHILD_ID)
    if subagent:
        parent = Parent(ROOT_ID, 2, "c2.0")
        own = Opened(SCHEMA_VERSION, CHILD_ID, "n0nce", ("/work",), "/work", parent=parent)
        await _append(child, [Entry(1, at, own), Entry(2, at, UserSpoke((Text("a task"),)))])
    for first in range(middle + 2, last + 1, 40):
        to = min(first + 39, last)
        await _append(log, _entries(first, to, random), [number for number, _ in waiting])
        if subagent:
            await _append(child, _entries(first - middle + 1, to - middle + 1, random))
        waiting = []
        log.put_blob(b"blob %d " % first * 300)
    await log.close()


async def _open(state: Path, *, create: bool) -> SessionLog:
    log = await open_log(
        str(state), ROOT_ID, create=create, wall_us=lambda: 1_760_000_000_000_000, network=False
    )
    log.close_wait_s = HANG_S
    return log


async def _append(log: SessionLog, entries: list[Entry], take: list[int] | None = None) -> None:
    await asyncio.wrap_future(log.append(entries, flush=True, take=take or ()))


class Opening(msgspec.Struct):
    """What an open gave."""

    entries: list[Entry] = []
    child: list[Entry] = []
    told: str = ""
    """What the user was told of a loss; '' for nothing."""


async def read_session(state: Path) -> Opening:
    """Open the session, wait for all of its checks, and read it."""
    try:
        log = await _open(state, create=False)
    except SessionError as error:
        return Opening(told=str(error))
    found = Opening(told="; ".join(log.notes))
    try:
        found.entries = list(log.entries)
        found.child = list(log.child(CHILD_ID).entries)
        if log.checked is not None:
            found.told += await asyncio.wrap_future(log.checked)
    except SessionError as error:
        found.told += str(error)
    finally:
        try:
            await log.close()
        except SessionError as error:
            found.told += str(error)
    return found


def is_silent(found: Opening, intact: Opening) -> bool:
    """Return True if an acknowledged entry is gone and nobody was told."""
    return not found.told and (found.entries, found.child) != (intact.entries, intact.child)


def copy_of(state: Path, target: Path) -> Path:
    """Copy a session's folder; return the new state folder."""
    shutil.copytree(state, target)
    return target

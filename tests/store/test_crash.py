"""`kill -9` at any instant, a full disk, concurrent writers: no acknowledged write is lost, none
is half done.
"""

import asyncio
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein.store import SessionLog, is_open, list_sessions, open_log, read_entries
from longrein_context.events import SessionBusy, StoreFull
from tests.seeds import seeds
from tests.store.fixtures import (
    ID,
    add,
    crash,
    done,
    entries,
    entry,
    filled,
    folder,
    in_writer,
    killed_after,
    make,
    new_log,
    reopen,
    seqs,
    stored_log,
    text_in,
    wall_us,
)

pytestmark = pytest.mark.anyio

STRACE = ("strace", "-f", "-o", "/dev/null")
UNCOUNTED = ("-shm", "-journal", "lock", "high-water-mark")
"""What need not be on disk: shared memory, the journal of the empty database's making, the
lock's message, and the high-water mark, which may be behind.
"""


async def acknowledge_for_ever(state: Path, start: int, pipe: int) -> None:
    """Append until killed; tell each acknowledged seq to the parent process."""
    log = await (make(state) if start == 1 else reopen(state))
    seq = start
    while True:
        blob = log.put_blob(b"%d " % seq * (20_000 if seq % 5 == 0 else 10))
        new = [entry(seq, "x" * 70_000 if seq % 9 == 8 else blob if seq > 2 else "")]
        new += [entry(seq + 1)] if seq % 3 == 0 else []
        await done(log.append(new, flush=seq % 2 == 1))
        seq += len(new)
        os.write(pipe, b"%d\n" % (seq - 1))


@pytest.mark.parametrize("seed", seeds(4))
async def test_R030_killed_at_any_instant_nothing_acknowledged_is_lost(
    tmp_path: Path, seed: int
) -> None:
    pause, start = random.Random(seed), 1
    for _ in range(5):
        writer = partial(acknowledge_for_ever, tmp_path, start)
        acknowledged = killed_after(writer, pause.randrange(0 if start > 1 else 1, 12), pause)
        async with stored_log(tmp_path) as log:
            found = list(log.entries)
            assert [one.seq for one in found] == list(range(1, len(found) + 1))
            assert len(found) >= max(acknowledged, default=start - 1)
            for one in found:
                blob = text_in(one) if one.seq > 2 else ""
                assert len(blob) != 64 or log.read_blob(blob).startswith(b"%d " % one.seq)
            assert list(log.notes) == []
        start = len(found) + 1


def test_R037_it_is_acknowledged_after_the_flush(tmp_path: Path) -> None:
    """System calls of a real run: each write to the log is flushed before it is acknowledged."""
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    program = (
        "import asyncio, os, sys\nfrom tests.store.fixtures import *\nasync def main():\n    log = "
        "await make(Path(sys.argv[1]))\n    for seq in range(1, 6):\n        if seq == 5:\n        "
        "    growing = log.new_blob()\n            growing.write(b'g' * 70_000)\n            "
        "growing.finish()\n        await add(log, [entry(seq, 'x' * 70_000 if seq == 4 else "
        "'')])\n        os.write(1, b'ACK')\nasyncio.run(main())\nos._exit(0)\n"
    )
    trace = tmp_path / "trace"
    calls = "trace=pwrite64,write,fsync,fdatasync,rename"
    subprocess.run(
        ["strace", "-f", "-y", "-o", trace, "-e", calls, sys.executable, "-c", program, tmp_path],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=Path(__file__).parents[2],
    )
    unflushed: set[str] = set()
    flushed: set[str] = set()
    acknowledged = 0
    for line in trace.read_text().splitlines():
        call = re.search(r"(\w+)\((\d+)<([^>]*)>", line)
        if (
            call
            and ID in call[3]
            and call[1] in ("pwrite64", "write")
            and not call[3].endswith(UNCOUNTED)
        ):
            unflushed.add(call[3])
        elif call and call[1] in ("fsync", "fdatasync"):
            unflushed.discard(call[3])
            flushed.add(call[3].removeprefix(str(tmp_path)))
        elif renamed := re.search(r'rename\("([^"]*)", "([^"]*)"', line):
            if renamed[1] in unflushed:
                unflushed.remove(renamed[1])
                unflushed.add(renamed[2])
        elif "ACK" in line and call and call[1] == "write":
            acknowledged += 1
            assert not unflushed, f"acknowledged before {unflushed} was on disk"
    assert acknowledged == 5
    names = {name.replace(ID, "ID") for name in flushed}
    assert {
        "",
        "/sessions",
        "/sessions/ID",
        "/sessions/ID/log.sqlite",
        "/sessions/ID/log.sqlite-wal",
    } <= names
    assert "/sessions/ID/blobs" in names
    assert sum(name.startswith("/sessions/ID/blobs/") and len(name) > 64 for name in names) == 1


async def test_a_resumed_session_flushes_the_name_of_its_log_before_it_acknowledges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(tmp_path, 3)
    flushed: list[str] = []

    def note(descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        flushed.extend(os.listdir(path) if os.path.isdir(path) else ())

    async with stored_log(tmp_path) as log:
        monkeypatch.setattr("os.fsync", note)
        await add(log, [entry(4)])
        assert "log.sqlite-wal" in flushed


@both_stores
async def test_R039_a_second_opener_is_told_who_has_it(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        await add(log, entries(1, 2))
        with pytest.raises(SessionBusy) as busy:
            await reopen(tmp_path)
        assert str(busy.value) == (
            f"session {ID} is open in process {os.getpid()} on {os.uname().nodename}; "
            "close that one, or go on in a copy with --fork-session"
        )
        assert is_open(str(tmp_path), ID)
        assert [info.open for info in list_sessions(str(tmp_path))] == [True]
        assert len(list(read_entries(str(tmp_path), ID))) == 2  # reading needs no lock

        async def other() -> None:
            with pytest.raises(SessionBusy, match=f"process {os.getppid()} "):
                await reopen(tmp_path)

        crash(other)
        await add(log, [entry(3)])
    assert not is_open(str(tmp_path), ID)


@both_stores
async def test_a_dead_process_holds_no_lock(tmp_path: Path) -> None:
    async def die_open() -> None:
        log = await make(tmp_path)
        await add(log, entries(1, 4))

    crash(die_open)
    assert not is_open(str(tmp_path), ID)
    async with stored_log(tmp_path) as log:
        assert seqs(log) == [1, 2, 3, 4]


async def fill_up(log: SessionLog, seq: int) -> int:
    """Append 30 kB at a time until the disk is full; return the seq that did not fit."""
    while True:
        try:
            await add(log, [entry(seq, "x" * 30_000)])
        except StoreFull:
            return seq
        seq += 1


async def test_R035_a_full_disk_loses_nothing_and_the_log_goes_on_when_there_is_room(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with new_log(tmp_path) as log:
            await add(log, entries(1, 2))
            resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, hard))
            full = await fill_up(log, 3)
            assert 5 < full < 20
            behind = [
                log.append([entry(seq, "y" * 30_000)], flush=True) for seq in range(full, full + 3)
            ]
            for future in behind:  # those queued behind a failed one fail too: no gap
                with pytest.raises(
                    StoreFull, match=f"free some room, then go on with `longrein -r {ID}`"
                ):
                    await done(future)
            big = log.new_blob()
            with pytest.raises(OSError, match="File too large"):
                big.write(b"z" * 500_000)
            big.discard()
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await add(log, [entry(full)])
        assert [one.seq for one in read_entries(str(tmp_path), ID)] == list(range(1, full + 1))

    crash(story)
    async with stored_log(tmp_path) as log:
        assert seqs(log) == list(range(1, len(log.entries) + 1))
        assert list(folder(tmp_path).glob("blobs/tmp-*")) == []


async def test_a_first_write_that_failed_still_gives_the_session_its_title(tmp_path: Path) -> None:
    async def story() -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        async with new_log(tmp_path) as log:
            await asyncio.wrap_future(in_writer(log, lambda _: None))  # it is open
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
            for _ in range(2):
                with pytest.raises(StoreFull):
                    await add(log, entries(1, 2))
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await add(log, entries(1, 2))

    crash(story)
    found = [(info.title, info.cwd, info.entries) for info in list_sessions(str(tmp_path))]
    assert found == [("hello", "/work", 2)]


@pytest.mark.parametrize(("failing", "acknowledged"), [(5, 0), (6, 1), (8, 3)])
def test_after_a_failed_flush_nothing_counts_until_the_log_is_reopened(
    tmp_path: Path, failing: int, acknowledged: int
) -> None:
    """The n-th flush of a run fails: its writes and all later ones are not acknowledged.

    The first four flushes create the database, then each entry has its own.
    """
    if not shutil.which("strace"):
        pytest.skip("needs strace")
    program = (
        "import sys\nfrom tests.store.fixtures import *\nfrom longrein_context.events import "
        "SessionError\nasync def main():\n    log = await make(Path(sys.argv[1]))\n    for seq in "
        "range(1, 7):\n        try:\n            await add(log, [entry(seq)])\n            "
        "print('acknowledged', seq)\n        except SessionError as error:\n            "
        "print(type(error).__name__, seq)\n    number, stored = log.put(b'{}')\n    try:\n        "
        "await done(stored)\n        print('stored')\n    except SessionError as error:\n        "
        "print(type(error).__name__)\nasyncio.run(main())\n"
    )
    inject = f"inject=fdatasync:error=ENOSPC:when={failing}"
    ran = subprocess.run(
        [*STRACE, "-e", "trace=fdatasync", "-e", inject, sys.executable, "-c", program, tmp_path],
        check=True,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    words = ran.stdout.split()
    assert words[::2] == ["acknowledged"] * acknowledged + ["StoreFull"] * (7 - acknowledged)
    found = [one.seq for one in read_entries(str(tmp_path), ID)]
    assert found in (list(range(1, acknowledged + 1)), list(range(1, acknowledged + 2)))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("needs the right to mount")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


async def test_R035_a_256_kb_disk_fills_up_and_is_freed(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"b" * 60_000)
    async with new_log(small_disk) as log:
        await add(log, entries(1, 2))
        full = await fill_up(log, 3)
        assert full > 3
        ballast.unlink()
        await add(log, [entry(full)])
    async with stored_log(small_disk) as log:
        assert seqs(log) == list(range(1, full + 1))


async def test_no_room_even_to_begin(small_disk: Path) -> None:
    with pytest.raises(OSError, match="No space"):
        (small_disk / "ballast").write_bytes(b"b" * 1_000_000)
    log = await open_log(str(small_disk), ID, create=True, wall_us=wall_us)
    with pytest.raises(StoreFull, match="free some room"):
        await add(log, entries(1, 2))
    await log.close()
    (small_disk / "ballast").unlink()
    async with new_log(small_disk) as log:
        await add(log, entries(1, 2))


async def test_a_killed_close_loses_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        log = await make(tmp_path)
        await add(log, entries(1, 40), flush=False)
        closing = asyncio.ensure_future(log.close())
        await asyncio.sleep(0)
        del closing

    crash(story)
    await filled(tmp_path, 1, "00000000-0000-4000-8000-000000000001")
    async with stored_log(tmp_path) as log:
        assert len(log.entries) in (0, 40)

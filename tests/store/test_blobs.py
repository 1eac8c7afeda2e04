"""Blobs: small ones in the database, large ones in files; files that no commit named are
removed.
"""

import asyncio
import hashlib
import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from lab.support.postgresql import both_stores
from longrein_context.events import StoreDamaged
from tests.store.fixtures import (
    add,
    crash,
    entries,
    entry,
    filled,
    folder,
    in_writer,
    make,
    new_log,
    stored_log,
)

pytestmark = pytest.mark.anyio

SIZES = [0, 1, 64 * 1024 - 1, 64 * 1024, 64 * 1024 + 1, 300_000]


def data_of(size: int) -> bytes:
    return bytes(range(256)) * (size // 256) + b"." * (size % 256)


@pytest.mark.parametrize("size", SIZES)
@both_stores
async def test_a_blob_of_any_size_and_way_reads_the_same(tmp_path: Path, size: int) -> None:
    log, data = await make(tmp_path), data_of(size)
    blob = log.put_blob(data)
    assert blob == hashlib.sha256(data).hexdigest()
    assert log.read_blob(blob) == data  # before any commit
    growing = log.new_blob()
    for start in range(0, size, 10_000):
        growing.write(data[start : start + 10_000])
    assert b"".join(growing.pieces()) == data
    assert (growing.size_bytes, growing.finish()) == (size, blob)
    await add(log, entries(1, 2))
    assert log.read_blob(blob) == data
    path = log.blob_path(blob)
    assert bool(path) == (size > 64 * 1024)
    await log.close()
    async with stored_log(tmp_path) as log:
        assert log.read_blob(blob) == data
        assert log.blob_path(blob) == path
        assert sum(1 for _ in folder(tmp_path).glob("blobs/*/*")) == (size > 64 * 1024)


@both_stores
async def test_a_growing_blob_can_be_read_at_its_path(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        growing = log.new_blob()
        growing.write(b"first ")
        assert Path(growing.path).read_bytes() == b"first "
        growing.write(b"second")
        assert Path(growing.path).read_bytes() == b"first second"
        blob = growing.finish()
        await add(log, entries(1, 1))
        assert log.read_blob(blob) == b"first second"


@both_stores
async def test_a_discarded_blob_leaves_nothing(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        for size in (10, 100_000):
            growing = log.new_blob()
            growing.write(b"x" * size)
            growing.discard()
            growing.discard()
        await add(log, entries(1, 1))
        assert list(folder(tmp_path).glob("blobs/*")) == []


async def test_unnamed_files_are_swept_at_open_and_named_ones_stay(tmp_path: Path) -> None:
    async def die_open() -> None:
        log = await make(tmp_path)
        log.put_blob(b"n" * 100_000)
        await add(log, entries(1, 2))
        for finish in (True, False):
            growing = log.new_blob()
            growing.write(os.urandom(100_000))
            if finish:
                growing.finish()
        await asyncio.wrap_future(in_writer(log, lambda _: None))

    crash(die_open)
    assert sum(path.is_file() for path in folder(tmp_path).glob("blobs/**/*")) == 3
    async with stored_log(tmp_path):
        left = [path for path in folder(tmp_path).glob("blobs/**/*") if path.is_file()]
        assert [path.name for path in left] == [hashlib.sha256(b"n" * 100_000).hexdigest()]


async def test_a_blob_that_is_not_what_was_kept_says_so(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        blob = log.put_blob(b"n" * 100_000)
        await add(log, entries(1, 2))
        Path(log.blob_path(blob)).write_bytes(b"m" * 100_000)
        with pytest.raises(StoreDamaged, match="is not what was written"):
            log.read_blob(blob)


@pytest.mark.parametrize("name", ["", "ab", "../../lock", "0" * 64, "z" * 64, "../" * 21 + "x"])
@both_stores
async def test_no_such_blob(tmp_path: Path, name: str) -> None:
    await filled(tmp_path, 2)
    async with stored_log(tmp_path) as log:
        with pytest.raises(KeyError):
            log.read_blob(name)
        assert log.blob_path(name) == ""


async def test_the_same_content_is_kept_once(tmp_path: Path) -> None:
    async with new_log(tmp_path) as log:
        seq = 1
        for data in (b"s" * 100, b"l" * 100_000) * 3:
            log.put_blob(data)
            await add(log, [entry(seq)])
            seq += 1
        assert sum(path.is_file() for path in folder(tmp_path).glob("blobs/**/*")) == 1
    with closing(sqlite3.connect(folder(tmp_path) / "log.sqlite")) as database:
        assert database.execute("SELECT count(*) FROM blobs").fetchone() == (1,)


async def test_a_temporary_file_that_a_crash_left_is_in_nobodys_way(tmp_path: Path) -> None:
    """It may be a second name of a task's output."""
    (tmp_path / "output").write_bytes(b"output of a task")
    async with new_log(tmp_path) as log:
        (folder(tmp_path) / "blobs").mkdir()
        for number in (1, 2, 3):
            os.link(tmp_path / "output", folder(tmp_path) / "blobs" / f"tmp-{number}")
        growing = log.new_blob()
        growing.write(b"g" * 100_000)
        blobs = growing.finish(), log.put_blob(b"p" * 100_000)
        await add(log, entries(1, 2))
        assert [log.read_blob(blob)[:1] for blob in blobs] == [b"g", b"p"]
    assert (tmp_path / "output").read_bytes() == b"output of a task"

"""Virtual clock and loop, and the memory log compared with the log on disk."""

import asyncio
from pathlib import Path

import pytest

from longrein.store import Log, open_log
from longrein.testing.clock import Deadlock, VirtualClock, run_virtual
from longrein.testing.store import SESSION, MemoryDisk
from longrein_context.events import SCHEMA_VERSION, Entry, Opened, Parent, SessionError, TodoSet

# --- time -----------------------------------------------------------------------------------------


def test_a_day_passes_in_no_time() -> None:
    clock = VirtualClock()

    async def main() -> list[str]:
        done: list[str] = []

        async def after(seconds: float, name: str) -> None:
            await clock.sleep(seconds)
            done.append(f"{name} at {clock.mono_s():g}")

        await asyncio.gather(after(86_400, "day"), after(3_600, "hour"), after(0.5, "blink"))
        return done

    assert run_virtual(main(), clock=clock) == ["blink at 0.5", "hour at 3600", "day at 86400"]
    assert clock.wall_us() == clock.start_us + 86_400_000_000
    assert clock.slept == [86_400, 3_600, 0.5]


def test_waiting_for_what_never_comes_is_a_deadlock() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match=r"nothing can happen any more at 0.000 s; waiting: .*main"):
        run_virtual(main())


def test_the_order_of_ready_tasks_is_drawn_from_the_seed() -> None:
    async def main() -> str:
        order = []

        async def say(name: str) -> None:
            await asyncio.sleep(0)
            order.append(name)

        await asyncio.gather(*map(say, "abcdef"))
        return "".join(order)

    orders = [run_virtual(main(), seed=seed) for seed in range(8)]
    assert orders == [run_virtual(main(), seed=seed) for seed in range(8)]
    assert len(set(orders)) > 4


# --- the log: one story on both -------------------------------------------------------------------


CHILD = "00000000-0000-4000-8000-00000000c41d"
FORK = "00000000-0000-4000-8000-00000000f04c"


def entry(seq: int, opens: str = "") -> Entry:
    event = Opened(SCHEMA_VERSION, SESSION, "n0nce", ("/w",), "/w") if seq == 1 else TodoSet(())
    if opens:
        event = Opened(
            SCHEMA_VERSION, opens, "n0nce", ("/w",), "/w", parent=Parent(SESSION, seq - 1, "c1.0")
        )
    return Entry(seq, seq, event)


async def story(log: Log) -> list[object]:
    """Use a log as a session does."""
    small, large = log.put_blob(b"small"), log.new_blob()
    large.write(b"x" * 70_000)
    large.write(b"y")
    found: list[object] = [small, large.size_bytes, large.finish(), log.read_blob(small)]
    number, written = log.put(b'"hello"')
    await asyncio.wrap_future(log.append([entry(1), entry(2)], flush=False))
    await asyncio.wrap_future(written)
    second, _ = log.put(b'"again"')
    await asyncio.wrap_future(log.append([entry(3)], flush=True, take=[number]))
    with pytest.raises(SessionError):
        await asyncio.wrap_future(log.append([entry(5)], flush=True))
    with pytest.raises(KeyError):
        log.read_blob("0" * 64)
    child, forked = log.child(CHILD), log.child(FORK, 2)
    found += [[e.seq for e in child.entries], [e.seq for e in forked.entries]]
    with pytest.raises(SessionError):
        await asyncio.wrap_future(
            log.append([entry(4)], flush=True, beside=[(child, [entry(2)], ())])
        )
    begun = [(child, [entry(1, CHILD)], [second]), (forked, [entry(3, FORK)], ())]
    await asyncio.wrap_future(log.append([entry(4)], flush=True, beside=begun))
    third, _ = forked.put(b'"for the fork"')
    await asyncio.wrap_future(
        forked.append([entry(4)], flush=False, beside=[(log, [entry(5)], ())])
    )
    found += [number, second, third, await log.collect(), await child.collect()]
    found += [list(log.history(2, 3)), list(forked.history(1, 4)), list(child.history(1, 0))]
    await child.close()
    await log.close()
    await log.close()
    return found


def seen(log: Log) -> list[object]:
    below = [log.child(CHILD), log.child(FORK)]
    return [
        log.read_blob(log.put_blob(b"small")),
        *(
            [[e.seq for e in one.entries], [(m.id, m.body) for m in one.inbox]]
            for one in (log, *below)
        ),
    ]


@pytest.mark.anyio
async def test_the_log_in_memory_does_as_the_log_on_disk_does(tmp_path: Path) -> None:
    disk = MemoryDisk()
    real = await open_log(str(tmp_path), SESSION, create=True, wall_us=VirtualClock().wall_us)
    assert await story(disk.open()) == await story(real)
    again, real = (
        disk.open(),
        await open_log(str(tmp_path), SESSION, create=False, wall_us=VirtualClock().wall_us),
    )
    assert (
        seen(again)
        == seen(real)
        == [b"small", [[1, 2, 3, 4, 5], []], [[1], []], [[1, 2, 3, 4], [(3, b'"for the fork"')]]]
    )
    assert list(again.child(FORK).entries) == list(real.child(FORK).entries)
    assert again.put(b"x")[0] == real.put(b"x")[0] == 4
    (tmp_path / "out").write_bytes(b"o" * 100_000)
    assert await again.adopt(str(tmp_path / "out")) == await real.adopt(str(tmp_path / "out"))
    await again.close()
    await real.close()


@pytest.mark.anyio
async def test_a_kill_leaves_whole_transactions() -> None:
    def cut(upto: int, **how: bool) -> str:
        copy = MemoryDisk()
        copy.writes, copy.committed = list(disk.writes), disk.committed
        log = copy.reopen(upto, **how)
        return f"{[e.seq for e in log.entries]} {[m.id for m in log.inbox]}"

    disk = MemoryDisk()
    log = disk.open()
    log.append([entry(1)], flush=True)
    log.put(b"word")
    log.append([entry(2), entry(3)], flush=False, take=[1])
    log.put(b"more")
    await asyncio.wrap_future(log.append([entry(4)], flush=True))
    assert disk.flushed == disk.committed == 5
    assert [cut(n) for n in range(5)] == [
        "[] []",
        "[1] [1]",
        "[1] [1]",
        "[1, 2, 3] [2]",
        "[1, 2, 3, 4] [2]",
    ]
    assert cut(2, whole=False) == "[1, 2] []"

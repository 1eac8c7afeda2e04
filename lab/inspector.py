"""Time and size of the inspector's data: `python -m lab.inspector` for a stored session of
10,000 entries.

The time is that of the CPU, which varies less on a busy machine.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from lab.context.table import Row, print_table
from lab.inspector_session import SESSION, SampleSession
from longrein.extensions.inspector.inspect_command import StoredLogs
from longrein.extensions.inspector.inspection import SessionInspector, inspect_session
from longrein.store import open_log

READ_S_MAX, BYTES_MAX = 3.0, 8_000_000


async def store(sample: SampleSession, state_dir: str) -> None:
    """Write the session with its subagents as longrein stores them."""
    log = await open_log(state_dir, SESSION, create=True, wall_us=lambda: time.time_ns() // 1000)
    await asyncio.wrap_future(log.append(sample.entries, flush=True))
    for child, entries in sample.children.items():
        await asyncio.wrap_future(log.child(child).append(entries, flush=True))
    await log.close()


def measure(entries: int) -> list[Row]:
    """Return the rows of the table."""
    sample = SampleSession().grow(entries)
    with tempfile.TemporaryDirectory() as state_dir:
        asyncio.run(store(sample, state_dir))
        begun, cpu = time.perf_counter(), time.process_time()
        logs = StoredLogs(state_dir, SESSION)
        inspector = SessionInspector(logs, lambda _: sample.budget)
        inspector.read()
        read_s = time.perf_counter() - begun
        found = inspect_session(inspector)
        data = msgspec.json.encode(found)
        took, used = time.perf_counter() - begun, time.process_time() - cpu
        logs.close()
    made = f"{len(found.transcript):,} rows, {len(found.items):,} items"
    note = f"by the clock {took:.2f} s, {read_s:.2f} s of it to read; {made}"
    left = f"{found.left_out.bodies:,} texts above {found.left_out.above_bytes:,} bytes shortened"
    return [
        Row(
            f"data of a session of {len(sample.entries):,} entries",
            f"{used:.2f} s",
            "< 3 s",
            used < READ_S_MAX,
            note,
        ),
        Row("JSON of it", f"{len(data) / 1e6:.2f} MB", "< 8 MB", len(data) < BYTES_MAX, left),
    ]


def main() -> int:
    """Print the table, and write the JSON of another session with `--json`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument(
        "--json",
        type=Path,
        help="write the JSON of such a session to this file and measure nothing",
    )
    given = parser.parse_args()
    if given.json:
        from lab.inspector_session import SampleLogs

        sample = SampleSession().grow(given.entries)
        inspector = SessionInspector(SampleLogs(sample), lambda _: sample.budget)
        inspector.read()
        given.json.write_bytes(msgspec.json.encode(inspect_session(inspector)))
        return 0
    return print_table(measure(given.entries))


if __name__ == "__main__":
    sys.exit(main())

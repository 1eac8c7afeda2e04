"""Kill an MCP server again and again during its calls.

    python -m lab.campaigns.mcp --kills 100

One session calls a tool of a server over stdio. While a call runs, SIGKILL ends the server; the
next call must find it again. Checks:

- Each killed call is a failed result that says so; each other call has its answer.
- The session ends with its answer and exit code 0, and no process of it is left.
- The prefix changes only before the first request: one `PrefixSet` for the start, one for the
  tools.
- The log folds, and a resume continues it with the same prefix.
"""

import argparse
import os
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from longrein_context import fold
from longrein_context.events import Asked, PrefixSet
from tests.e2e.harness import BYPASS, CliHarness, call, calls, says
from tests.mcp_servers.harness import fault, serve

LIMIT_S = 900.0


def kill_servers(mark: Path, over: threading.Event) -> int:
    """Kill each server that says that it works on a call; return the number of kills."""
    kills = 0
    while not over.is_set():
        try:
            pid = int(mark.read_text())
        except (OSError, ValueError):
            time.sleep(0.005)
            continue
        mark.unlink()
        os.kill(pid, signal.SIGKILL)
        kills += 1
    return kills


def campaign(folder: Path, kills: int) -> list[str]:
    """Run one session with `kills` kills; return what is wrong."""
    cli, mark, over = CliHarness(folder), folder / "call", threading.Event()
    cli.settings('[sandbox]\nmode = "off"')  # a sandbox has process numbers of its own
    serve(cli, s=fault("killed", str(mark)))
    turns = [
        calls(call("mcp__s__echo", text=f"{word} {n}"))
        for n in range(kills)
        for word in ("die", "live")
    ]
    cli.plays(*turns, says("done"), calls(call("mcp__s__echo", text="live")), says("again"))
    killed: list[int] = []
    killer = threading.Thread(target=lambda: killed.append(kill_servers(Path(f"{mark}.pid"), over)))
    killer.start()
    run = cli.run("-p", "go", BYPASS, limit_s=LIMIT_S)
    over.set()
    killer.join()
    again = cli.run("-p", "-c", "more", BYPASS)
    wrong = [] if killed == [kills] else [f"{killed[0]} kills, not {kills}"]
    wrong += [f"{one.told()}" for one in (run, again) if one.code]
    results = cli.results()
    for number, (status, text) in enumerate(results[: 2 * kills]):
        fine = (
            status == "failed" and "[mcp] s: " in text
            if number % 2 == 0
            else (status, text) == ("ok", f"echo live {number // 2}")
        )
        wrong += [] if fine else [f"call {number}: {status}: {text[:200]}"]
    wrong += [] if len(results) == 2 * kills + 1 else [f"{len(results)} results"]
    entries = cli.entries()
    reasons = [entry.event.reason for entry in entries if isinstance(entry.event, PrefixSet)]
    wrong += [] if reasons == ["start", "tools"] else [f"prefixes: {reasons}"]
    asked = {entry.event.prefix for entry in entries if isinstance(entry.event, Asked)}
    wrong += [] if len(asked) == 1 else [f"requests with {len(asked)} prefixes"]
    wrong += [] if fold(entries).seq == len(entries) else ["the log does not fold"]
    wrong += [f"left: {line}" for line in cli.wait_survivors()]
    cli.clean_up()
    return wrong


def main() -> int:
    """Run the campaign; return 1 when it found a fault."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=100)
    kills = parser.parse_args().kills
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        wrong = campaign(Path(folder), kills)
    print(
        f"{kills} kills of an MCP server in {time.monotonic() - began:.0f} s: {len(wrong)} faults"
    )
    print("\n".join(wrong[:40]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())

"""Cost of a subagent. Run: `python -m lab.concurrency.agents`.

The installed command with a scripted model that takes 0.2 s for each reply: one call of `Agent`
with one or with eight tasks, each subagent runs one command and reports. CPU and memory of the
harness with eight less those with one, by seven, is what one more costs.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from longrein.store import Reader, list_sessions
from longrein_context.events import Entry, SubagentEnded, ToolEnded

LONGREIN = Path(sys.executable).parent / "longrein"
REPLY_S = 0.2
MANY = 8
ROUNDS = 5


@dataclass
class RunResult:
    """Figures of a run of the command."""

    cpu_s: float
    rss_mib: float
    call_s: float
    """Time of the `Agent` call."""
    slowest_s: float
    """Time of its slowest subagent."""


def script(count: int) -> dict[str, Any]:
    """Return the script: a main agent that starts `count` subagents, and their answers."""
    names = [f"PART{n}X" for n in range(count)]
    tasks = [{"description": f"part {name}", "prompt": f"Do {name}."} for name in names]
    call = {"name": "Agent", "arguments": {"description": "parts", "tasks": tasks}}
    command = {"name": "Bash", "arguments": {"command": "echo done"}}
    part = [{"calls": [command], "delay_s": REPLY_S}, {"text": "It is done.", "delay_s": REPLY_S}]
    return {
        "turns": [{"calls": [call]}, {"text": "all done"}],
        "branches": [{"when": name, "turns": part} for name in names],
    }


def run(count: int) -> RunResult:
    """Start `count` subagents once."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        settings = base / "home" / ".config" / "longrein"
        settings.mkdir(parents=True)
        (base / "tree").mkdir()
        (base / "script.json").write_text(json.dumps(script(count)))
        (settings / "config.toml").write_text(
            'model = "played/parts"\n[providers.played]\nwire = "scripted"\nbase_url = '
            f'"{base}/script.json"\n'
        )
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(base / "home"),
            "LONGREIN_STATE_DIR": str(base / "state"),
        }
        process = subprocess.Popen(
            [str(LONGREIN), "-p", "go", "--allowedTools", "Bash"],
            cwd=base / "tree",
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"longrein ended with {process.returncode}")
        call_s, slowest_s = times(str(base / "state"))
        return RunResult(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, call_s, slowest_s)


def times(state: str) -> tuple[float, float]:
    """Return (time of the call, time of the slowest subagent) in seconds, from the log."""
    reader = Reader(state, list_sessions(state)[0].session)
    entries: list[Entry] = list(reader.entries())
    reader.close()
    ended = [one.event.elapsed_ms for one in entries if isinstance(one.event, SubagentEnded)]
    call = next(one.event for one in entries if isinstance(one.event, ToolEnded))
    return call.elapsed_ms / 1000, max(ended) / 1000


def measure(rounds: int = ROUNDS) -> list[tuple[str, str, str, bool]]:
    """Return (measure, reached, goal, whether it was met)."""
    runs = {count: [run(count) for _ in range(rounds)] for count in (1, MANY)}
    many = runs[MANY]
    ratio = statistics.median(one.call_s / one.slowest_s for one in many)
    alone = statistics.median(one.call_s for one in runs[1])
    call = statistics.median(one.call_s for one in many)

    def more(of: str) -> float:
        one, eight = (
            statistics.median(getattr(ran, of) for ran in runs[count]) for count in (1, MANY)
        )
        return float(eight - one) / (MANY - 1)

    cpu_ms, rss = 1000 * more("cpu_s"), more("rss_mib")
    return [
        (
            f"{MANY} subagents: the call / the slowest of them",
            f"{ratio:.2f} × ({call:.2f} s)",
            "≤ 1.15 ×",
            ratio <= 1.15,
        ),
        (f"{MANY} subagents: the call / that of one alone", f"{call / alone:.2f} ×", "", True),
        ("one more subagent: CPU", f"{cpu_ms:.1f} ms", "≤ 25 ms", cpu_ms <= 25),
        ("one more subagent: memory", f"{rss:.2f} MiB", "≤ 1.5 MiB", rss <= 1.5),
    ]


if __name__ == "__main__":
    for row in measure():
        print("| " + " | ".join(map(str, row)) + " |")

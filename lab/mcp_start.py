"""Time to the prompt with five MCP servers, against none: `python -m lab.mcp_start`.

The two kinds of start alternate, and each start with servers is compared with the one before it, so
that other work on the machine delays both. The verdict is on processor time, which it does not
delay; wall time is printed beside it.
"""

import json
import os
import pty
import select
import statistics
import sys
import tempfile
import time
from pathlib import Path

RUNS = 20
SERVERS = 5
LIMIT_MS = 30.0
"""Reach of the measure."""
GIVEN_UP_S = 60.0
PROMPT = b"say something"
SERVER = Path(__file__).parent.parent / "tests/mcp_servers/fault_server.py"


def person(folder: Path, servers: int) -> dict[str, str]:
    """Make a home with so many servers, and a project; return the environment."""
    config = folder / "home/.config/longrein"
    config.mkdir(parents=True)
    (folder / "project").mkdir()
    (folder / "script.json").write_text(json.dumps({"turns": [{"text": "done"}]}))
    (config / "config.toml").write_text(
        'model = "play/small"\n[providers.play]\nwire = "scripted"\nbase_url = '
        f'"{folder}/script.json"\n'
    )
    entry = {"command": sys.executable, "args": ["-S", str(SERVER), "good"]}
    (config / "mcp.json").write_text(
        json.dumps({"mcpServers": {f"s{n}": entry for n in range(servers)}})
    )
    more = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "HOME": f"{folder}/home"}
    return {"PATH": os.environ["PATH"], "LONGREIN_STATE_DIR": f"{folder}/state", **more}


def start(folder: Path, environ: dict[str, str]) -> tuple[float, float]:
    """Start longrein on a terminal; return milliseconds of wall and of processor time until its
    prompt stands.
    """
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder / "project")
        os.execvpe(sys.executable, [sys.executable, "-m", "longrein"], environ)
    seen = b""
    while PROMPT not in seen:
        if not select.select([terminal], [], [], GIVEN_UP_S)[0]:
            raise SystemExit(f"no prompt within {GIVEN_UP_S:g} s: {seen[-500:]!r}")
        seen += os.read(terminal, 65_536)
    wall_s = time.perf_counter() - began
    threads = Path(f"/proc/{pid}/task").iterdir()
    ran_ns = sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)
    os.write(terminal, b"\x04")  # it ends by itself, with its servers
    until = time.monotonic() + GIVEN_UP_S
    while os.waitpid(pid, os.WNOHANG) == (0, 0) and time.monotonic() < until:
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                os.read(terminal, 65_536)
            except OSError:
                time.sleep(0.05)
    os.close(terminal)
    return wall_s * 1000, ran_ns / 1e6


def main() -> int:
    """Print the figures; 1 when the measure is missed."""
    took: dict[int, list[tuple[float, float]]] = {0: [], SERVERS: []}
    with tempfile.TemporaryDirectory() as base:
        places = {servers: Path(base, f"with{servers}") for servers in took}
        environs = {servers: person(folder, servers) for servers, folder in places.items()}
        for servers, environ in environs.items():
            start(places[servers], environ)  # compiled and cached
        for _ in range(RUNS):
            for servers, environ in environs.items():
                took[servers].append(start(places[servers], environ))
    missed = False
    for which, name in enumerate(("wall time", "processor time")):
        plain, with_servers = ([run[which] for run in runs] for runs in took.values())
        more = statistics.median(b - a for a, b in zip(plain, with_servers, strict=True))
        print(
            f"{name} to the prompt: {statistics.median(plain):.0f} ms, with {SERVERS} MCP servers "
            f"{statistics.median(with_servers):.0f} ms: {more:+.1f} ms (at most {LIMIT_MS:g})"
        )
        missed = name == "processor time" and more > LIMIT_MS
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())

"""Time from exec to a frame that takes keys, to the screen, and to the answer to what was typed at
once, on a pty.

    python -m lab.terminal_start [--rounds N]

The model is scripted, so nothing waits for a network. The first round compiles every module and
does not count.
"""

import argparse
import fcntl
import json
import os
import pty
import select
import shutil
import statistics
import struct
import sys
import tempfile
import termios
import time
from collections.abc import Sequence
from pathlib import Path

TYPED_AFTER_S = 0.005
"""Seconds after exec at which text and Enter are typed."""
LIMIT_MS = 200
FRAME, SCREEN = "a frame, in raw mode", "the screen"
ANSWER = f"the answer to a prompt typed {1000 * TYPED_AFTER_S:.0f} ms after exec"
SEEN = {FRAME: "›", SCREEN: "say something", ANSWER: "Good morning"}
"""What is measured -> text that shows it."""


def make_home(folder: Path) -> dict[str, str]:
    """Write settings with a scripted model; return the environment."""
    settings = folder / "home/.config/longrein"
    settings.mkdir(parents=True)
    (folder / "project").mkdir()
    (folder / "script.json").write_text(json.dumps({"turns": [{"text": "Good morning.\n"}]}))
    provider = f'[providers.mock]\nwire = "scripted"\nbase_url = "{folder}/script.json"\n'
    (settings / "config.toml").write_text(f'model = "mock/small"\n{provider}')
    home, path = str(folder / "home"), os.environ["PATH"]
    return {"TERM": "xterm-256color", "LANG": "C.UTF-8", "PATH": path, "HOME": home}


def start_once(
    folder: Path, environ: dict[str, str], wanted: Sequence[str], typed: str = ""
) -> dict[str, float]:
    """Start longrein on a pty, type `typed`; return milliseconds until each text of `wanted` was
    there.
    """
    began = time.monotonic()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder / "project")
        os.execve(sys.executable, [sys.executable, "-m", "longrein"], environ)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    found: dict[str, float] = {}
    data, sent = b"", not typed
    while len(found) < len(wanted):
        now = time.monotonic() - began
        if not sent and now >= TYPED_AFTER_S:
            os.write(fd, typed.encode())
            sent = True
        if select.select([fd], [], [], 0.001)[0]:
            data += os.read(fd, 65_536)
        for what in wanted:
            if what not in found and SEEN[what].encode() in data:
                found[what] = 1000 * (time.monotonic() - began)
        if now > 30:
            raise SystemExit(
                f"not seen within 30 s: {[w for w in wanted if w not in found]}\n{data!r}"
            )
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(fd)
    return found


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each measure, one for each round."""
    folder = Path(tempfile.mkdtemp(prefix="longrein-start-"))
    try:
        environ = make_home(folder)
        start_once(folder, environ, [SCREEN])
        figures: dict[str, list[float]] = {what: [] for what in SEEN}
        for _ in range(rounds):
            for wanted, typed in (([FRAME, SCREEN], ""), ([ANSWER], "hello\r")):
                for what, ms in start_once(folder, environ, wanted, typed).items():
                    figures[what].append(ms)
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the median and the spread of each measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    for what, ms in measure(parser.parse_args().rounds).items():
        print(f"{what:<46} {statistics.median(ms):5.0f} ms  ({min(ms):.0f} to {max(ms):.0f})")
    print(f"reach: a frame that takes keys in less than {LIMIT_MS} ms")


if __name__ == "__main__":
    main()

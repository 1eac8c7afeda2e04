"""Time from exec to the screen, and to the answer to what was typed at once, on a pty.

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
from pathlib import Path

TYPED_AFTER_S = 0.005
"""Seconds after exec at which text and Enter are typed."""
SCREEN = "the screen"
ANSWER = f"the answer to a prompt typed {1000 * TYPED_AFTER_S:.0f} ms after exec"
SEEN = {SCREEN: "say something", ANSWER: "Good morning"}
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


def start_once(folder: Path, environ: dict[str, str], wanted: str, typed: str = "") -> float:
    """Start longrein on a pty, type `typed`; return milliseconds until the text of `wanted` was
    there.
    """
    began = time.monotonic()
    pid, fd = pty.fork()
    if pid == 0:
        os.chdir(folder / "project")
        os.execve(sys.executable, [sys.executable, "-m", "longrein"], environ)
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    data, sent = b"", not typed
    while SEEN[wanted].encode() not in data:
        now = time.monotonic() - began
        if not sent and now >= TYPED_AFTER_S:
            os.write(fd, typed.encode())
            sent = True
        if select.select([fd], [], [], 0.001)[0]:
            data += os.read(fd, 65_536)
        if now > 30:
            raise SystemExit(f"not seen within 30 s: {wanted}\n{data!r}")
    found_ms = 1000 * (time.monotonic() - began)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    os.close(fd)
    return found_ms


def measure(rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds of each measure, one for each round."""
    folder = Path(tempfile.mkdtemp(prefix="longrein-start-"))
    try:
        environ = make_home(folder)
        start_once(folder, environ, SCREEN)
        figures: dict[str, list[float]] = {what: [] for what in SEEN}
        for _ in range(rounds):
            for wanted, typed in ((SCREEN, ""), (ANSWER, "hello\r")):
                figures[wanted].append(start_once(folder, environ, wanted, typed))
        return figures
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main() -> None:
    """Print the median and the spread of each measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    for what, ms in measure(parser.parse_args().rounds).items():
        print(f"{what:<46} {statistics.median(ms):5.0f} ms  ({min(ms):.0f} to {max(ms):.0f})")


if __name__ == "__main__":
    main()

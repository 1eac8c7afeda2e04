"""A program on a real pseudo-terminal, with pyte as the emulated screen."""

import codecs
import copy
import fcntl
import json
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import pyte

from lab.support.forked import ForkedProcess, can_fork
from lab.support.idle_watch import IdleWatch, cpu_times
from tests.timeouts import HANG_S, source

LATE_READER_S = float(os.environ.get("LATE_READER_S", "0"))
"""Pause of each wait before it reads a screen that has changed, which must change no verdict."""

KEYBOARD = re.compile(r"\x1b\[(?:[?<>]\d*u|>4(?:;\d)?m)")
"""Requests for keyboard protocols, which pyte takes for others."""
ROOT = Path(__file__).parent.parent.parent


WIDE = 300
"""Columns in which a row with a path of a test fits, whatever folder the tests run in."""
FRAME_END = b"\x1b[?2026l"
"""End of synchronised output: what came before it is drawn at once."""
ALTERNATE = 1049 << 5
"""Mode of the alternate screen, as pyte counts private modes."""


class TerminalScreen(pyte.HistoryScreen):
    """A screen with the alternate screen, which pyte does not have: leaving it brings the main
    screen back.
    """

    _main: Any = None

    def set_mode(self, *modes: int, **how: Any) -> None:
        super().set_mode(*modes, **how)
        if ALTERNATE in self.mode and self._main is None:
            self._main = copy.deepcopy((self.buffer, self.cursor))
            self.erase_in_display(2)

    def reset_mode(self, *modes: int, **how: Any) -> None:
        super().reset_mode(*modes, **how)
        if ALTERNATE not in self.mode and self._main is not None:
            (self.buffer, self.cursor), self._main = self._main, None

    @property
    def is_alternate(self) -> bool:
        """Whether a program has the whole screen."""
        return self._main is not None


def fresh_attributes() -> list[Any]:
    """The attributes of a new terminal."""
    ours, theirs = os.openpty()
    try:
        return termios.tcgetattr(ours)
    finally:
        os.close(ours)
        os.close(theirs)


class PseudoTerminal:
    """A context manager that runs a program on a pseudo-terminal and kills it at the end.

    The program is the turn NAME of `scripted_terminal.py`, `bash`, or for an empty name `module`.
    `ARGS` among `environ` are its arguments. `forks`: False for a new interpreter, whose imports
    take time. `typed`: keys that are there before the program is.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        columns: int = 80,
        rows: int = 24,
        *,
        forks: bool = True,
        module: str = "tests.terminal.adjusted_longrein",
        typed: str = "",
        **environ: str,
    ) -> None:
        self.folder = folder
        self.screen = TerminalScreen(columns, rows, history=20_000, ratio=0.5)
        self.stream = pyte.Stream(self.screen)
        self.raw = self._unread = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.code: int | None = None
        self.late_s = LATE_READER_S
        self._has_paused = False
        env = {
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
        }
        self.before = (
            fresh_attributes()
        )  # the program may have changed its own already when it is asked for
        module = "tests.terminal.scripted_terminal" if name else module
        words = environ.pop("ARGS", "").split()
        arguments = [name, str(folder), *words] if name else words
        env |= environ
        self.fd, terminal = os.openpty()
        self.size(columns, rows)
        os.write(self.fd, typed.encode())
        self.process: subprocess.Popen[bytes]
        if forks and name != "bash" and can_fork(arguments, env):
            argv = [module, *arguments]
            self.process = ForkedProcess(module, argv, terminal=terminal, cwd=folder, env=env)
        else:
            self.process = subprocess.Popen(
                ["bash", *words] if name == "bash" else [sys.executable, "-m", module, *arguments],
                **dict.fromkeys(("stdin", "stdout", "stderr"), terminal),
                cwd=folder,
                env=env,
                start_new_session=True,
                preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - as pty.fork
            )
        self.pid = self.process.pid
        os.close(terminal)

    def size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def pause(self) -> "PseudoTerminal":
        """Stop the program until `resize`, and read what it had written.

        What it writes for the old size after that is cut off by a narrower screen.
        """
        os.kill(self.pid, signal.SIGSTOP)
        while b") T " not in Path(f"/proc/{self.pid}/stat").read_bytes():
            time.sleep(0.001)
        return self.settle(0)

    def resize(self, columns: int, rows: int) -> "PseudoTerminal":
        self.settle(0).screen.resize(rows, columns)
        self.size(columns, rows)
        os.kill(self.pid, signal.SIGCONT)
        return self

    def __enter__(self) -> "PseudoTerminal":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        if kind is not None:
            print("\n".join(self.lines()))
        if self.code is None:
            self.process.kill()
            self.process.wait()
        os.close(self.fd)

    def send(self, text: str) -> "PseudoTerminal":
        data = text.encode()
        while data:
            data = data[os.write(self.fd, data[:512]) :]
            self.read(0)
        return self

    def ask(self, text: str) -> "PseudoTerminal":
        """Wait until it listens, and send `text` with Enter."""
        return self.until("say something").send(text + "\r")

    def lines(self) -> list[str]:
        """What stands on the screen."""
        return [row.rstrip() for row in self.screen.display]

    def text(self) -> str:
        """The scrollback and the screen, a line a row."""
        return "\n".join(self.everything())

    def everything(self) -> list[str]:
        """The scrollback and the screen."""
        width = self.screen.columns
        above = [
            "".join(str(row[x].data) for x in range(width)).rstrip()
            for row in self.screen.history.top
        ]
        return above + self.lines()

    def read(self, wait_s: float) -> bool:
        """Take at most one frame of what comes within `wait_s` seconds; False when nothing did.

        On a busy machine many frames come at once, and what `until` waits for may stand in any.
        """
        if not self._unread:
            if not select.select([self.fd], [], [], wait_s)[0]:
                return False
            if wait_s and not self._has_paused:
                time.sleep(self.late_s)
                self._has_paused = True
            try:
                self._unread = os.read(self.fd, 65536)
            except OSError:
                return False
        frame, end, self._unread = self._unread.partition(FRAME_END)
        data = frame + end
        self.raw += data
        text = self._decoder.decode(data).replace("\u200d", "")  # which pyte stops at
        self.stream.feed(KEYBOARD.sub("", text))
        return bool(data)

    def until(self, seen: str | Callable[[], Any], limit_s: float = HANG_S) -> "PseudoTerminal":
        """Read until `seen` stands on the screen (or is true)."""
        check = seen if callable(seen) else lambda: any(seen in row for row in self.lines())
        end, watch, self._has_paused = time.monotonic() + limit_s, IdleWatch(), False
        while self.half_drawn or not check():
            self._expect_more(seen, end, watch)
        return self

    def _expect_more(self, seen: str | Callable[[], Any], end: float, watch: IdleWatch) -> None:
        """Read; fail after `end`, or if the program has nothing to do."""
        if time.monotonic() > end:
            why = "it takes too long"
        elif not self.read(0.02) and watch.is_idle(len(self.raw)):
            why = "the program sleeps"
        else:
            return
        wanted = source(seen) if callable(seen) else repr(seen)
        raise AssertionError(f"{why}, not seen: {wanted}\n" + "\n".join(self.lines()))

    def until_written(self, *parts: str, since: int = 0) -> "PseudoTerminal":
        """Read until the program has written each of `parts`, also what no screen shows.

        `since`: number of bytes that do not count.
        """
        wanted = [part.encode() for part in parts]
        return self.until(lambda: all(part in self.raw[since:] for part in wanted))

    @property
    def half_drawn(self) -> bool:
        """Whether a terminal that knows synchronised output would not show yet what came."""
        return self.raw.rfind(b"\x1b[?2026h") > self.raw.rfind(b"\x1b[?2026l")

    def settle(self, quiet_s: float = 0.25) -> "PseudoTerminal":
        """Read until nothing comes for a while and the program waits: it has taken all keys."""
        self._has_paused = False
        while self.read(quiet_s) or cpu_times(self.pid) is None:
            pass
        return self

    def wait_exit(self, limit_s: float = HANG_S) -> int:
        """Read until the program has ended; gives its exit code."""
        end, watch, self._has_paused = time.monotonic() + limit_s, IdleWatch(), False
        while self.code is None:
            self._expect_more("its end", end, watch)
            self.code = self.process.poll()
        while self.read(0.05):
            pass
        return self.code

    @property
    def peak_kb(self) -> int:
        """Largest resident memory so far; 0 where the system does not say."""
        status = Path(f"/proc/{self.pid}/status")
        rows = status.read_text().splitlines() if status.exists() else []
        return next((int(row.split()[1]) for row in rows if row.startswith("VmHWM:")), 0)

    def leave(self) -> list[Any]:
        """Ctrl-D, and the words the session was told, none of the real program."""
        return self.send("\x04").exits(0)

    def exits(self, code: int) -> list[Any]:
        """Wait until it ends with `code` and has restored the terminal; gives the words the
        session was told.
        """
        assert self.wait_exit() == code
        assert termios.tcgetattr(self.fd) == self.before
        return self.told()

    def told(self) -> list[Any]:
        """The words the session was told, once it has ended."""
        file = self.folder / "told.jsonl"
        return [json.loads(row) for row in file.read_bytes().splitlines()] if file.exists() else []

    @property
    def outcome(self) -> str:
        """How it was left: kind, session, code."""
        return (self.folder / "outcome").read_text()

    def pager_counts(self) -> bool:
        """Whether the page of a question fills the screen and its keys count: they are bold
        then.
        """
        row = self.lines()[-1]
        at = row.find(" y") + 1
        return (
            self.screen.is_alternate
            and at > 0
            and bool(self.screen.buffer[self.screen.lines - 1][at].bold)
        )

    def keys_count(self) -> bool:
        """Whether the question on the screen has the keys: they are bold then."""
        for y, row in enumerate(self.lines()):
            if row.lstrip("› ").startswith(("y yes", "o answer")):
                return bool(self.screen.buffer[y][1].bold)
        return False

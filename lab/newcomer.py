"""The newcomer's walk with the seconds of each step: clone, install, first answer, first question,
kill, resume.

    python3 lab/newcomer.py [REPOSITORY]

Needs Python and git only; run it in a bare container. It clones REPOSITORY (default: this one) into
a new folder, installs longrein into a venv there as docs/start.md says, and works with an empty
home. The model is a loopback server at the address of Ollama, which longrein finds by itself. The
question is answered on a real terminal, and the kill is `kill -9` in the middle of a command.
"""

import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

LIMIT_S = 300.0
FILE = "for n in range(1, 11):\n    print(n)\n"
SERVER = """
import asyncio, sys
from longrein.testing.loopback import Call, LoopbackProvider, Turn

edit = {"file_path": "count.py", "old_string": "range(1, 11)", "new_string": "range(1, 21)"}
turns = [
    Turn(text="It prints the numbers from 1 to 10."),
    Turn(calls=(Call("Read", {"file_path": "count.py"}),)),
    Turn(calls=(Call("Edit", edit),)),
    Turn(text="Now it counts to 20."),
    Turn(calls=(Call("Bash", {"command": "sleep 60"}),)),
    Turn(text="That command was cut; I go on."),
]

async def main() -> None:
    server = LoopbackProvider(turns)
    await server.start(int(sys.argv[1]))
    print("ready", flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


class Walk:
    """One newcomer: a folder, a home and the steps with their times."""

    def __init__(self, folder: Path, repository: str) -> None:
        self.folder, self.repository = folder, repository
        self.home, self.project = folder / "home", folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        (self.project / "count.py").write_text(FILE)
        kept = {key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_"))}
        self.env = {
            **kept,
            "HOME": str(self.home),
            "PATH": os.defpath,
            "TERM": "xterm-256color",
            "LANG": "C.UTF-8",
        }
        self.longrein = str(folder / "venv/bin/longrein")

    def step(self, name: str, act: Callable[[], str]) -> None:
        """Run a step and print its seconds and its last line."""
        begun = time.monotonic()
        said = act().strip().splitlines()
        print(
            f"| {name} | {time.monotonic() - begun:.1f} | {said[-1][:80] if said else ''} |",
            flush=True,
        )

    def run(self, *words: str, code: int = 0) -> str:
        """Run a program to its end and return what it printed."""
        done = subprocess.run(
            words,
            cwd=self.project,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        if done.returncode != code:
            raise SystemExit(
                f"{' '.join(words)} ended with {done.returncode}: {done.stdout}{done.stderr}"
            )
        return done.stdout

    def question(self) -> str:
        """Ask for a change on a terminal, answer the question with y, and leave."""
        pid, fd = pty.fork()
        if pid == 0:
            os.chdir(self.project)
            os.execve(self.longrein, [self.longrein], self.env)
        screen = _Screen(fd)
        screen.until(b"ollama")
        os.write(fd, b"count to 20\r")
        screen.until(b"range(1, 21)")
        time.sleep(1)  # keys that were typed before the question could be read do not answer it
        os.write(fd, b"y")
        screen.until(b"Now it counts to 20.")
        os.write(fd, b"\x04")
        os.waitpid(pid, 0)
        return "the change was shown and approved"

    def kill(self) -> str:
        """Kill a headless run in the middle of a command."""
        words = [self.longrein, "-p", "wait a minute", "--permission-mode", "bypassPermissions"]
        running = subprocess.Popen(words, cwd=self.project, env=self.env, stderr=subprocess.DEVNULL)
        limit = time.monotonic() + LIMIT_S
        while not _runs_sleep():
            if time.monotonic() > limit:
                raise SystemExit("the command did not start")
            time.sleep(0.05)
        running.send_signal(signal.SIGKILL)
        running.wait()
        return "killed by signal 9"


class _Screen:
    """What a program wrote to its terminal."""

    def __init__(self, fd: int) -> None:
        self.fd, self.seen = fd, b""

    def until(self, text: bytes) -> None:
        """Read until the program has written `text`."""
        limit = time.monotonic() + LIMIT_S
        while text not in self.seen:
            if time.monotonic() > limit:
                raise SystemExit(f"{text!r} did not appear: {self.seen[-2000:]!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                self.seen += os.read(self.fd, 65_536)


def _runs_sleep() -> bool:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if (folder / "cmdline").read_bytes() == b"sleep\x0060\x00":
                return True
        except OSError:
            continue
    return False


def main(argv: list[str]) -> int:
    """Walk, print the table."""
    repository = argv[1] if len(argv) > 1 else str(Path(__file__).resolve().parent.parent)
    with tempfile.TemporaryDirectory() as folder:
        walk = Walk(Path(folder), repository)
        print("| step | seconds | what it said |\n|---|---|---|")
        walk.step(
            "git clone",
            lambda: walk.run("git", "clone", "-q", repository, str(walk.folder / "clone")),
        )
        walk.step(
            "python3 -m venv",
            lambda: walk.run(sys.executable, "-m", "venv", str(walk.folder / "venv")),
        )
        pip = str(walk.folder / "venv/bin/pip")
        walk.step(
            "pip install .",
            lambda: walk.run(pip, "install", "-q", f"{walk.folder / 'clone'}[mcp,acp]"),
        )
        walk.step("longrein --version", lambda: walk.run(walk.longrein, "--version"))
        words = [str(walk.folder / "venv/bin/python"), "-c", SERVER, "11434"]
        with subprocess.Popen(words, env=walk.env, stdout=subprocess.PIPE) as server:
            try:
                assert server.stdout is not None
                server.stdout.readline()
                walk.step(
                    "first answer", lambda: walk.run(walk.longrein, "-p", "what does count.py do?")
                )
                walk.step("first question, on a terminal", walk.question)
                walk.step("kill -9 in the middle of a command", walk.kill)
                walk.step("longrein -p -c", lambda: walk.run(walk.longrein, "-p", "-c"))
            finally:
                server.kill()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))

"""Harness of the end-to-end tests: the installed command with a temporary home, project and
scripted model.

The command does not see the environment of the person who runs the tests. Every process it starts
carries the tag of its harness, so that a test can find survivors.
"""

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lab.support.forked import FORKING, ForkedProcess, can_fork
from lab.support.idle_watch import LOOK_EVERY_S, IdleWatch
from longrein.store import Reader, latest_session
from longrein.testing.loopback import LoopbackProvider, Play, Received, Rules
from longrein.testing.loopback import Turn as Loopback
from longrein.workspace.sandbox.rung import find_rung
from longrein_context.events import (
    Entry,
    Reminded,
    Replied,
    TaskEnded,
    Text,
    ToolCall,
    ToolEnded,
    TurnEnded,
    text_of,
)
from tests.headless.schema import validate
from tests.timeouts import GONE_S, HANG_S

COMMAND = (str(Path(sys.executable).with_name("longrein")),)
Turn = dict[str, Any]
RUNG = find_rung(os.environ, ())
needs_sandbox = pytest.mark.skipif(not RUNG.confines, reason="no sandbox works here")
needs_bubblewrap = pytest.mark.skipif(
    RUNG.name != "bubblewrap", reason="bubblewrap does not work here"
)
BYPASS = "--dangerously-skip-permissions"
RUN_LOOKS = 60
"""Looks of 15 s: a run may wait 10 s for its MCP servers."""
UNTIL_GO = "until [ -e go ]; do sleep 0.05; done"
"""Command that runs until `CliHarness.go`: a `sleep` may be over before what it is to outlast."""


# --- Turns of the scripted model ------------------------------------------------------------------


def call(name: str, **arguments: Any) -> Turn:
    """A tool call."""
    return {"name": name, "arguments": arguments}


def bash(command: str, **more: Any) -> Turn:
    """A call of Bash."""
    return call("Bash", command=command, **more)


def calls(*made: Turn, **more: Any) -> Turn:
    """A reply with calls."""
    return {"calls": list(made), **more}


def says(text: str, **more: Any) -> Turn:
    """A reply with text."""
    return {"text": text, **more}


def fails(status: int, message: str, times: int = 1, pause_s: float = 0) -> Turn:
    """A reply that comes after `times` errors of the provider, which wants a pause."""
    fault = {"status": status, "message": message, "times": times, "retry_after_s": pause_s}
    return {"text": "never mind", "fault": fault}


# --- Results of a run -----------------------------------------------------------------------------


class RunResult:
    """A command that has ended."""

    def __init__(self, code: int, out: bytes, err: bytes, seconds: float) -> None:
        self.code, self.out, self.raw_err, self.seconds = code, out, err, seconds

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def err(self) -> str:
        return self.raw_err.decode()

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Lines of stream-json, each checked against its schema."""
        lines = [json.loads(line) for line in self.out.decode().splitlines()]
        for line in lines:
            validate(line)
        return lines

    @property
    def kinds(self) -> list[str]:
        """`system/init`, `assistant`, `user`, … `result`."""
        return [validate(line) for line in self.lines]

    @property
    def result(self) -> dict[str, Any]:
        """The last line."""
        return self.lines[-1]

    def told(self) -> tuple[int, str, str]:
        """Code, stdout, stderr: what a person sees."""
        return self.code, self.text, self.err


class RunningCommand:
    """A command that runs; `end` waits for it."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.process = process
        self.pid = process.pid
        self.began = time.monotonic()
        self._seen = b""

    def line(self) -> bytes:
        """The next line of stdout."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self._seen += line
        return line

    def wait_for(self, kind: str) -> dict[str, Any]:
        """Read stdout until a stream-json line of this kind came, such as `assistant`."""
        while line := self.line():
            data: dict[str, Any] = json.loads(line)
            if validate(data) == kind:
                return data
        raise AssertionError(f"no {kind} came: {self.end().told()}")

    def send(self, number: int) -> None:
        """Send a signal to longrein alone."""
        self.process.send_signal(number)

    def end(self, stdin: bytes | None = None, limit_s: float = HANG_S) -> RunResult:
        """Wait for the end; a run that hangs, or sleeps with all that it has started, is killed
        and fails the test.
        """
        end_s, watch = time.monotonic() + limit_s, IdleWatch(RUN_LOOKS)
        while True:
            try:
                out, err = self.process.communicate(stdin, timeout=LOOK_EVERY_S)
                break
            except subprocess.TimeoutExpired:
                stdin = None
            is_idle = watch.is_idle()
            if is_idle or time.monotonic() > end_s:
                os.killpg(self.pid, signal.SIGKILL)
                out, err = self.process.communicate()
                why = "everything sleeps" if is_idle else f"still running after {limit_s} s"
                raise AssertionError(f"{why}: {self._seen + (out or b'')!r} {err!r}")
        return RunResult(
            self.process.returncode, self._seen + (out or b""), err, time.monotonic() - self.began
        )


# --- The harness ----------------------------------------------------------------------------------


class CliHarness:
    """A project folder (a git repository), a home with settings, a state folder; and `longrein`
    on it.
    """

    def __init__(self, folder: Path, command: Sequence[str] = COMMAND) -> None:
        self.folder = folder
        self.home, self.state, self.project = folder / "home", folder / "state", folder / "project"
        self.tag = f"e2e-{os.getpid()}-{folder.name}"
        self.command = list(command)
        self.forks = True
        """False: each start is a new interpreter."""
        self.extensions: tuple[str, ...] = ()
        """Extensions that a fork finds imported."""
        self._forked: dict[int, bytes] = {}
        """Pid -> command line of each fork, which has those of the process that it comes from."""
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "LONGREIN_STATE_DIR": str(self.state),
            "LONGREIN_TEST_TAG": self.tag,
        }
        (self.home / ".config/longrein").mkdir(parents=True)
        (self.project / ".git").mkdir(parents=True)
        (self.project / ".git/HEAD").write_text("ref: refs/heads/main\n")
        self.settings()

    def settings(self, more: str = "", model: str = "play/one") -> None:
        """Write the person's settings: the scripted provider `play`, and `more`."""
        self.config.write_text(
            f'model = "{model}"\n{more}\n[providers.play]\nwire = "scripted"\nbase_url = '
            f'"{self.folder}/script.json"\n'
        )

    def without_sandbox(self) -> None:
        """Run commands as the user: for tests whose commands reach longrein itself."""
        self.env["LONGREIN_SANDBOX_MODE"] = "off"

    @property
    def config(self) -> Path:
        return self.home / ".config/longrein/config.toml"

    def plays(self, *turns: Turn, **more: Any) -> None:
        """What the model will answer, turn by turn."""
        (self.folder / "script.json").write_text(json.dumps({"turns": list(turns), **more}))

    def start(
        self,
        *words: str | bytes,
        stdin: int | None = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        **more: Any,
    ) -> RunningCommand:
        """Start `longrein WORDS` in the project folder: as a fork, or as a new interpreter where
        the test asks for what only that does.
        """
        argv, variables = [*self.command, *words], {**self.env, **(env or {})}
        how: dict[str, Any] = {
            "cwd": more.pop("cwd", self.project),
            "env": variables,
            "stdin": stdin,
            "stdout": stdout,
            "stderr": subprocess.PIPE,
            "bufsize": 0,  # `communicate` does not see what `readline` has buffered
        }
        forks = self.forks and not more and self.command == list(COMMAND)
        if not forks or not can_fork(argv, variables):
            return RunningCommand(subprocess.Popen(argv, start_new_session=True, **how, **more))
        forked = ForkedProcess("longrein", argv, extensions=self.extensions, **how)
        self._forked[forked.pid] = b"\0".join(map(os.fsencode, argv))
        return RunningCommand(forked)

    def run(
        self, *words: str | bytes, stdin: bytes | None = None, limit_s: float = HANG_S, **more: Any
    ) -> RunResult:
        """Run `longrein WORDS` to its end."""
        more.setdefault("stdin", subprocess.DEVNULL if stdin is None else subprocess.PIPE)
        return self.start(*words, **more).end(stdin, limit_s)

    def stream(self, *words: str, **more: Any) -> RunResult:
        """A headless run with stream-json output."""
        return self.run("-p", *words, "--output-format", "stream-json", **more)

    def go(self) -> None:
        """End the commands that wait with `UNTIL_GO`."""
        (self.project / "go").touch()

    # --- What is on disk --------------------------------------------------------------------------

    @property
    def sessions(self) -> list[str]:
        """Ids of all stored sessions."""
        folder = self.state / "sessions"
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    @property
    def session(self) -> str:
        """Id of the only session, or of the newest of this folder."""
        ids = self.sessions
        return (
            ids[0]
            if len(ids) == 1
            else latest_session(str(self.state), str(self.project))
            if ids
            else ""
        )

    def session_folder(self, session: str = "") -> Path:
        return self.state / "sessions" / (session or self.session)

    def entries(self, session: str = "") -> list[Entry]:
        """The log, without a gap in its seqs."""
        reader = Reader(str(self.state), session or self.session)
        try:
            entries = list(reader.entries())
        finally:
            reader.close()
        assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
        return entries

    def left(self) -> str:
        """What is on disk, short: the facts of each session, such as `Opened PrefixSet UserSpoke
        … TurnEnded:done`.
        """
        return " | ".join(map(self.left_of, self.sessions)) or "no session"

    def left_of(self, session: str) -> str:
        """The same of one session."""
        return " ".join(map(_short, self.entries(session)))

    def results(self, session: str = "") -> list[tuple[str, str]]:
        """(status, text) of each tool result, in the order of the calls."""
        ends = [e.event for e in self.entries(session) if isinstance(e.event, ToolEnded)]
        ends.sort(key=lambda end: tuple(map(int, end.call.lstrip("c").split("."))))
        return [(end.status, text_of(end.parts)) for end in ends]

    def reports(self) -> list[str]:
        """Texts of the tool results, and causes of the ends of tasks."""
        ends = [e.event.cause for e in self.entries() if isinstance(e.event, TaskEnded)]
        return [*(text for _, text in self.results()), *ends]

    def said(self, session: str = "") -> list[str]:
        """Texts of the model."""
        replies = [e.event for e in self.entries(session) if isinstance(e.event, Replied)]
        return [
            text for r in replies if (text := text_of([p for p in r.parts if isinstance(p, Text)]))
        ]

    # --- Processes that still run -----------------------------------------------------------------

    def processes(self) -> dict[int, bytes]:
        """Pid -> command line of each process that carries the tag of this harness."""
        mark, found = f"LONGREIN_TEST_TAG={self.tag}".encode(), {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = Path(f"/proc/{pid}/cmdline").read_bytes()
                if int(pid) in self._forked and FORKING in line:
                    found[int(pid)] = self._forked[int(pid)]
                elif mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found[int(pid)] = line
            except OSError:
                continue
        return {pid: line for pid, line in found.items() if line}  # a zombie has no command line

    def running(self, mark: str) -> list[int]:
        """Pids of the processes of this harness whose command line holds `mark`.

        Another run of the suite on this machine has processes with the same command lines.
        """
        return [pid for pid, line in self.processes().items() if mark.encode() in line]

    def survivors(self) -> list[str]:
        """`pid command line` of each process that carries the tag of this harness."""
        return [
            f"{pid} " + line.replace(b"\0", b" ").decode() for pid, line in self.processes().items()
        ]

    def wait_survivors(self, limit_s: float = GONE_S) -> list[str]:
        """Wait at most `limit_s` seconds for the end of all processes; return those that still
        run.
        """
        until = time.monotonic() + limit_s
        while (alive := self.survivors()) and time.monotonic() < until:
            time.sleep(0.01)
        return alive

    def signal_all(self, number: int) -> None:
        """Send a signal to every process that carries the tag of this harness."""
        for pid in self.processes():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def clean_up(self) -> None:
        """End what a failed test left."""
        self.signal_all(signal.SIGKILL)


def _short(entry: Entry) -> str:
    match entry.event:
        case TurnEnded(reason=reason):
            return f"TurnEnded:{reason}"
        case ToolEnded(status=status):
            return f"ToolEnded:{status}"
        case event:
            kind = getattr(event, "kind", "") if type(event).__name__ == "AskFailed" else ""
            return type(event).__name__ + (f":{kind}" if kind else "")


# --- Background tasks -----------------------------------------------------------------------------


def background(command: str, **more: Any) -> Turn:
    return bash(command, run_in_background=True, **more)


def of(cli: CliHarness, kind: type) -> list[Any]:
    return [entry.event for entry in cli.entries() if isinstance(entry.event, kind)]


def ended(cli: CliHarness) -> list[tuple[str, str, int | None]]:
    return [(end.task, end.state, end.code) for end in of(cli, TaskEnded)]


def told(cli: CliHarness, kind: str = "bg_done") -> list[str]:
    """The notices of this kind, as the model got them."""
    return [event.text for event in of(cli, Reminded) if event.kind == kind and event.text]


def lines(notices: Sequence[str]) -> list[str]:
    """What they say of each task."""
    return [line for text in notices for line in text.split("\n") if line.startswith("* ")]


def full(limit_bytes: int) -> Callable[[], None]:
    """A disk on which no file can grow beyond `limit_bytes`: what a full one says, without
    filling one.
    """
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


def call_ids(entries: Sequence[Entry]) -> list[str]:
    """Ids of all calls the model made."""
    replies = [e.event for e in entries if isinstance(e.event, Replied)]
    return [part.id for reply in replies for part in reply.parts if isinstance(part, ToolCall)]


class Provider:
    """The rule-enforcing provider of `longrein.testing.loopback`, on a port of its own, in a
    thread.
    """

    def __init__(
        self, *turns: Loopback, script: Callable[[Received], Loopback] | None = None, **rules: Any
    ) -> None:
        """It plays `turns`, or asks `script` for each answer."""
        self._server = LoopbackProvider(script or Play(turns=turns, rules=Rules(**rules)))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> "Provider":
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._server.start(0), self._loop).result(HANG_S)
        return self

    def __exit__(self, *error: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result(HANG_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()

    @property
    def requests(self) -> list[Received]:
        """What came, in order."""
        return list(self._server.requests)

    @property
    def refused(self) -> list[str]:
        """Rules that were broken."""
        return [request.refused for request in self.requests if request.refused]

    @property
    def unused(self) -> list[str]:
        """Turns that nobody asked for."""
        return [str(turn) for turn in self._server.unused()]

    @property
    def url(self) -> str:
        """Its address."""
        return self._server.url

    def settings(self, wire: str, more: str = "") -> str:
        """The lines of config.toml that name this provider as `served`."""
        return f'{more}\n[providers.served]\nwire = "{wire}"\nbase_url = "{self._server.url}"\n'

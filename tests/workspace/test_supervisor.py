"""Background tasks: output, input, limits, and one report of each end through the spool."""

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from longrein.workspace import (
    BackgroundOptions,
    CommandExit,
    CommandSpec,
    SpooledTask,
    SupervisedSpawner,
    end_orphans,
    is_supervised,
    open_workspace,
    spooled_tasks,
    stop_background_task,
    supervisor_client,
)
from longrein.workspace.supervisor.channel import VERSION
from longrein.workspace.supervisor.command_processes import Command, KeptTask, RemainingProcesses
from longrein.workspace.supervisor.pipes import Loop, Pipes
from longrein.workspace.supervisor.process_tree import (
    Process,
    Tree,
    process,
    processes,
    processes_with,
)
from longrein.workspace.supervisor.spool_writer import SpoolWriter
from longrein.workspace.supervisor.task_processes import Tasks
from longrein_context.events.redact_stream import StreamRedactor
from tests.timeouts import HANG_S, growing_limits
from tests.workspace.conftest import connection_of, supervised, tagged

pytestmark = pytest.mark.anyio
SECRET = "correct-horse-battery"


class OutputBuffer:
    """`ReplayableSink` that keeps a command's foreground output."""

    def __init__(self, all_printed: bytearray) -> None:
        self.data, self.all_printed = bytearray(), all_printed
        self.full = False

    def write(self, data: bytes) -> None:
        self.data += data
        self.all_printed += data

    def pieces(self) -> Iterator[bytes]:
        for at in range(0, len(self.data), 1000):
            yield bytes(self.data[at : at + 1000])
            if self.full:
                raise OSError(28, "No space left on device")


class SupervisorHarness:
    """Starts commands in one folder, keeps them, and collects the news of their ends."""

    def __init__(self, folder: Path, tag: str, **options: object) -> None:
        self.folder, self.tag = folder, tag
        self.environ = {"PATH": os.environ["PATH"], "LONGREIN_TEST_TAG": tag}
        self.options = {"secrets": (SECRET,), "alone_s": 0.05, **options}
        self.printed = bytearray()
        self.news: list[str] = []
        self._heard = asyncio.Event()
        self.short_limits = pytest.MonkeyPatch()
        """Limits of the waits for a supervisor that is stopped."""
        self.spawner = self.reopen()

    def reopen(self) -> SupervisedSpawner:
        """Open the same session with another longrein."""
        spawner = supervised(self.folder, self.environ, **self.options)
        spawner.on_news(self._on_news)
        self.spawner = spawner
        return spawner

    def _on_news(self, task: str) -> None:
        self.news.append(task)
        self._heard.set()

    @property
    def env(self) -> dict[str, str]:
        return open_workspace(
            [str(self.folder)], spawner=self.spawner, environment=self.environ
        ).environment("s")

    async def start(self, command: str, *, stdin: bool = False):  # type: ignore[no-untyped-def]
        self.buffer = OutputBuffer(self.printed)
        return await self._started(command, self.buffer, stdin=stdin)

    async def _started(self, command: str, sink: OutputBuffer | None, *, stdin: bool):  # type: ignore[no-untyped-def]
        started = await self.spawner.start(
            CommandSpec(command, str(self.folder), self.env, stdin=stdin),
            sink=sink,
            output_bytes_max=1 << 28,
        )
        assert not isinstance(started, CommandExit), started
        return started

    async def run(self, command: str, timeout_s: float = HANG_S) -> CommandExit:
        sink = OutputBuffer(self.printed)
        return await self.spawner.run(
            CommandSpec(command, str(self.folder), self.env),
            sink=sink,
            timeout_s=timeout_s,
            output_bytes_max=99,
        )

    async def keep(
        self, task: str, command: str, *, stdin: bool = False, **limits: object
    ) -> SpooledTask:
        started = await self._started(command, None, stdin=stdin)
        return await started.keep(BackgroundOptions(task, command, **limits))  # type: ignore[arg-type]

    async def over(self, *tasks: str) -> SpooledTask:
        """Wait for the ends of these tasks; returns the last."""
        async with asyncio.timeout(HANG_S):
            while not set(tasks) <= set(self.news):
                self._heard.clear()
                await self._heard.wait()
        found = self.spawner.spooled(tasks[-1])
        assert found is not None
        return found

    async def until(self, ready: Callable[[], object]) -> None:
        async with asyncio.timeout(HANG_S):
            while not ready():  # noqa: ASYNC110  # what is waited for happens in another process
                await asyncio.sleep(0.005)

    def output(self, task: str) -> bytes:
        return self.spawner.read(task, 0, 1 << 20)[1]

    def files(self) -> list[str]:
        return sorted(os.listdir(self.folder / "tasks"))


@pytest.fixture
async def harness(tmp_path: Path, tag: str, anyio_backend: str) -> AsyncIterator[SupervisorHarness]:
    one = SupervisorHarness(tmp_path, tag)
    yield one
    for task in [task.task for task in spooled_tasks(str(tmp_path)) if task.state == "running"]:
        await one.spawner.stop(task, "the end of the test")
        await one.over(task)
    await one.spawner.drain()
    assert tagged(tag) == []


@pytest.mark.parametrize(("command", "state", "code", "cause", "printed"), [
    ("echo out; echo err >&2", "done", 0, "", b"out\nerr\n"),
    ("echo x; exit 3", "failed", 3, "", b"x\n"),
    ("kill -SEGV $$", "failed", None, "SIGSEGV", b""),
    ("nosuch", "failed", 127, "", b"bash: line 1: nosuch: command not found\n"),
    ("true", "done", 0, "", b""),
    ("cd /; echo $PWD", "done", 0, "", b"/\n"),
    ("printf 'no line end'", "done", 0, "", b"no line end"),
])  # fmt: skip
async def test_B1_B7_a_kept_command_ends_as_it_ended(
    harness: SupervisorHarness,
    command: str,
    state: str,
    code: int | None,
    cause: str,
    printed: bytes,
) -> None:
    await harness.keep("b1", command)
    ended = await harness.over("b1")
    found = (ended.state, ended.code, ended.cause, harness.output("b1"))
    assert found == (state, code, cause, printed)
    assert ended.size_bytes == len(printed)
    assert harness.news == ["b1"]
    whole = harness.spawner.whole("b1")
    assert (Path(whole).read_bytes() if whole else b"") == printed
    harness.spawner.settle("b1")
    assert harness.spawner.spooled("b1") is None
    assert harness.files() == [f"v{VERSION}.{kind}" for kind in ("json", "log", "sock")]


async def test_B1_what_was_printed_before_it_was_kept_is_there_from_the_first_byte(
    harness: SupervisorHarness,
) -> None:
    started = await harness.start("seq 300000; read x; echo last", stdin=True)
    await harness.until(lambda: harness.printed.endswith(b"300000\n"))
    running = await started.keep(BackgroundOptions("b1", "seq"))
    assert (running.state, running.size_bytes) == ("running", len(harness.printed))
    await harness.spawner.give("b1", b"\n", eof=True)
    ended = await harness.over("b1")
    whole = Path(harness.spawner.whole("b1")).read_bytes()
    assert whole == b"".join(b"%d\n" % n for n in range(1, 300001)) + b"last\n"
    assert ended.elided_bytes == 0


async def test_B4_what_could_not_be_kept_of_it_before_is_counted(
    harness: SupervisorHarness,
) -> None:
    started = await harness.start("seq 2000; read x; echo last", stdin=True)
    await harness.until(lambda: harness.printed.endswith(b"2000\n"))
    harness.buffer.full = True
    await started.keep(BackgroundOptions("b1", "seq"))
    await harness.spawner.give("b1", b"\n", eof=True)
    ended = await harness.over("b1")
    there, size = bytes(harness.printed[:1000]), len(harness.printed) + len(b"last\n")
    assert (ended.size_bytes, ended.elided_bytes, ended.lost) == (
        size,
        size - 1005,
        f"the disk was full: {size - 1005:,} bytes were not written",
    )
    assert harness.output("b1") == there
    assert harness.spawner.read("b1", 1000, 99) == (size - 5, b"last\n")


async def test_B1_one_that_ended_before_it_is_kept_is_told_all_the_same(
    harness: SupervisorHarness,
) -> None:
    started = await harness.start("echo quick; exit 4")
    await harness.until(lambda: not Path(f"/proc/{started.pid}").exists())
    await started.keep(BackgroundOptions("b1", "quick"))
    ended = await harness.over("b1")
    assert (ended.state, ended.code, harness.output("b1")) == ("failed", 4, b"quick\n")


async def test_ended_never_returns_for_a_kept_command(harness: SupervisorHarness) -> None:
    started = await harness.start("sleep 0.05")
    waiting = asyncio.create_task(started.ended())
    await asyncio.sleep(0)
    await started.keep(BackgroundOptions("b1", "sleep"))
    await harness.over("b1")
    assert not waiting.done()
    waiting.cancel()


async def test_an_interrupted_command_is_not_heard_any_more_and_is_let_go(
    harness: SupervisorHarness,
) -> None:
    started = await harness.start(
        "trap 'echo late; exit 9' TERM; echo early; while :; do sleep 0.01; done"
    )
    await harness.until(lambda: harness.printed)
    started.end("interrupt")
    ended = await started.ended()
    assert (ended.code, ended.cause, bytes(harness.printed)) == (9, "interrupt", b"early\n")
    with pytest.raises(OSError, match="was let go"):
        await started.keep(BackgroundOptions("b1", "x"))


async def test_B3_a_time_limit_ends_the_whole_tree(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "trap '' TERM; setsid sleep 99 & sleep 99", timeout_s=0.1)
    ended = await harness.over("b1")
    assert (ended.state, ended.cause, ended.code) == ("timed_out", "after 0.1 s", None)
    assert tagged(harness.tag, "LONGREIN_SESSION") == []


async def test_B2_a_memory_limit_and_a_cpu_limit(harness: SupervisorHarness) -> None:
    hog = (
        f"{sys.executable} -S -c 'x = bytes(1 << 26); y = [*range(9)] * (1 << 22); import time; "
        "time.sleep(99)'"
    )
    await harness.keep("b1", hog + "; true", memory_bytes=30 << 20)
    await harness.keep("b2", "while :; do :; done", cpu_s=0.1)
    assert (await harness.over("b1")).cause == "it used more than 30 MiB of memory"
    ended = await harness.over("b2")
    assert (ended.state, ended.cause) == ("killed", "it used more than 0.1 s of CPU")


async def test_B4_output_beyond_the_quota_keeps_its_first_and_its_newest_half(
    harness: SupervisorHarness,
) -> None:
    quota = 4096
    await harness.keep("b1", "seq 50000", quota_bytes=quota)
    ended = await harness.over("b1")
    printed = b"".join(b"%d\n" % n for n in range(1, 50001))
    assert ended.size_bytes == len(printed)
    whole = Path(harness.spawner.whole("b1")).read_bytes()
    head, _, tail = whole.partition(b"\n[longrein:0badcafe elided: ")
    assert head == printed[: quota // 2]
    told, _, tail = tail.partition(b" bytes of the output were not kept]\n")
    assert printed.endswith(tail)
    assert quota // 2 >= len(tail) >= quota * 3 // 8
    assert (
        int(told.replace(b",", b"")) == ended.elided_bytes == len(printed) - len(head) - len(tail)
    )
    at, data = harness.spawner.read("b1", quota // 2, 10)
    assert (at, data) == (len(printed) - len(tail), tail[:10]), "what was not kept is skipped"
    assert harness.spawner.read("b1", len(printed), 10) == (len(printed), b"")


async def test_a_secret_never_reaches_the_spool_however_it_is_cut(
    harness: SupervisorHarness,
) -> None:
    half = len(SECRET) // 2
    token = "ghp_" + "a1B2" * 9
    await harness.keep(
        "b1",
        f"printf 'x {SECRET[:half]}'; sleep 0.05; printf '{SECRET[half:]} y\\n'; sleep 0.03;printf "
        f"'tok {token[:7]}'; sleep 0.05; printf '{token[7:]} z\\n'; printf 'name? '; sleep 0.05",
    )
    await harness.until(lambda: b"name? " in harness.output("b1"))
    await harness.over("b1")
    printed = harness.output("b1").decode()
    assert printed.count("[longrein:0badcafe secret: ") == 2
    assert SECRET not in printed
    assert token not in printed
    assert all(
        SECRET.encode() not in p.read_bytes()
        for p in (harness.folder / "tasks").iterdir()
        if p.is_file()
    )


async def test_a_secret_in_the_command_itself_is_not_written_down(
    harness: SupervisorHarness,
) -> None:
    kept = await harness.keep("b1", f"sleep 0; : {SECRET}")
    assert kept.command.startswith("sleep 0; : [longrein:0badcafe secret: ")
    await harness.over("b1")


async def test_after_its_supervisor_died_the_next_command_gets_a_new_one(
    harness: SupervisorHarness,
) -> None:
    running = await harness.keep("b1", "trap '' TERM; sleep 99; sleep 99")
    started = await harness.start("sleep 98")
    os.kill(parent_of(running.pid), signal.SIGKILL)
    ended = await started.ended()
    assert (ended.code, ended.signal, ended.cause) == (None, "", "lost")
    found = ended.message
    assert found == "the supervisor of processes ended, and what it had started was ended with it"
    assert (await (await harness.start("exit 6")).ended()).code == 6
    lost = await harness.over("", "b1")
    told = (lost.state, lost.code, lost.cause)
    assert told == ("lost", None, "its supervisor ended while it ran")
    assert harness.news == ["", "b1"]
    assert [one.state for one in await harness.spawner.adopt()] == ["lost"]
    assert tagged(harness.tag, "LONGREIN_SESSION") == []


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_secrets_are_neither_in_the_arguments_nor_in_the_environment_of_the_supervisor(
    harness: SupervisorHarness,
) -> None:
    harness.environ["API_KEY"] = SECRET
    started = await harness.start("sleep 99")
    parent = parent_of(started.pid)
    assert SECRET.encode() not in Path(f"/proc/{parent}/cmdline").read_bytes()
    assert b"API_KEY" not in Path(f"/proc/{parent}/environ").read_bytes()
    assert SECRET.encode() not in Path(f"/proc/{parent}/environ").read_bytes()
    started.end("interrupt")


async def test_B13_input_is_given_and_closed(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "read x; echo got $x; cat; echo end", stdin=True)
    await harness.until(lambda: (found := harness.spawner.spooled("b1")) and found.reads_input)
    await harness.spawner.give("b1", b"one\ntwo\n", eof=False)
    await harness.until(lambda: b"two" in harness.output("b1"))
    await harness.spawner.give("b1", b"", eof=True)
    await harness.over("b1")
    assert harness.output("b1") == b"got one\ntwo\nend\n"
    with pytest.raises(OSError, match="it is over"):
        await harness.spawner.give("b1", b"x", eof=False)


async def test_B13_input_that_nobody_takes(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "exec sleep 99 <&-", stdin=True)
    await harness.keep("b2", "sleep 99")
    await harness.until(
        lambda: (
            "sleep" in Path(f"/proc/{spooled_tasks(str(harness.folder))[0].pid}/comm").read_text()
        )
    )
    with pytest.raises(BrokenPipeError, match="nobody reads its input"):
        await harness.spawner.give("b1", b"x", eof=False)
    with pytest.raises(BrokenPipeError, match="it takes no input"):
        await harness.spawner.give("b2", b"x", eof=False)
    with pytest.raises(OSError, match="cannot be reached"):
        await harness.spawner.give("nobody", b"x", eof=False)


async def test_stop_ends_the_tree_and_names_who_wanted_it(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "trap '' TERM; (setsid sleep 99 &); sleep 99; sleep 99")
    await harness.spawner.stop("b1", "the user")
    ended = await harness.over("b1")
    assert (ended.state, ended.cause) == ("killed", "the user")
    assert tagged(harness.tag, "LONGREIN_SESSION") == []
    await harness.spawner.stop("b1", "again")
    await harness.spawner.stop("nobody", "again")


THREADS = (
    "import threading, time; [threading.Thread(target=time.sleep, args=(99,), "
    "daemon=True).start() for _ in '1' * 40]"
)


async def test_one_whose_threads_outlive_its_leader_for_a_moment_has_its_time_too(
    harness: SupervisorHarness,
) -> None:
    for number in range(3):
        began = time.monotonic()
        memory = "held = b'x' * (64 << 20); print('up', flush=True); time.sleep(99)"
        await harness.keep(f"b{number}", f'exec {sys.executable} -S -E -c "{THREADS}; {memory}"')
        await harness.until(lambda task=f"b{number}": harness.output(task))  # type: ignore[misc]
        await harness.spawner.stop(f"b{number}", "the user")
        ended = await harness.over(f"b{number}")
        assert (ended.state, ended.cause) == ("killed", "the user")
        assert 0 < ended.elapsed_s <= time.monotonic() - began


async def test_many_commands_leave_no_descriptor_open(harness: SupervisorHarness) -> None:
    def descriptors() -> tuple[int, int]:
        return len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{record['pid']}/fd"))

    async def each() -> None:
        await (await harness.start("true", stdin=True)).ended()
        ended = await harness.start("sleep 99", stdin=True)
        ended.end("interrupt")
        await ended.ended()
        await (await harness.start("nosuch")).ended()
        await harness.keep("b1", "cat", stdin=True)
        await harness.spawner.give("b1", b"x", eof=True)
        await harness.over("b1")
        harness.spawner.settle("b1")
        harness.news.clear()

    await each()
    record = json.loads((harness.folder / "tasks" / f"v{VERSION}.json").read_bytes())
    before = descriptors()
    for _ in range(10):
        await each()
    await harness.until(lambda: descriptors() <= before)


async def test_R051_a_task_whose_daemon_holds_its_pipe_is_over_when_it_has_ended(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("b1", "sleep 60 & echo done")
    ended = await harness.over("b1")
    assert (ended.state, harness.output("b1")) == ("done", b"done\n")
    assert len(tagged(harness.tag, "LONGREIN_COMMAND")) == 1, "it may go on until longrein ends"


async def test_ids_that_cannot_name_files_and_ids_in_use_are_refused(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("a398.b1", "sleep 99")
    for task in ("../x", "", ".hidden", "a/b", "v1", "a398.b1"):
        started = await harness.start("sleep 99")
        with pytest.raises(OSError, match="a task cannot be called"):
            await started.keep(BackgroundOptions(task, "x"))
        started.end("interrupt")


async def test_an_exit_in_order_lets_kept_tasks_go_on_and_ends_the_others(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("b1", "until [ -e go ]; do sleep 0.05; done; echo late; exit 6")
    await harness.keep("b2", "sleep 99", policy="stop")
    await harness.start("sleep 98")
    await harness.spawner.drain()
    await harness.until(
        lambda: (
            {t.task: t.state for t in spooled_tasks(str(harness.folder))}
            == {"b1": "running", "b2": "killed"}
        )
    )
    assert is_supervised(str(harness.folder))
    adopted = await harness.reopen().adopt()
    found = [(one.task, one.state, one.cause) for one in adopted]
    assert found == [("b1", "running", ""), ("b2", "killed", "longrein is gone")]
    (harness.folder / "go").touch()
    ended = await harness.over("b1")
    assert (ended.state, ended.code, harness.output("b1")) == ("failed", 6, b"late\n")


async def test_what_a_dead_longrein_had_in_the_foreground_ends_also_when_another_is_there_at_once(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("b1", "sleep 99")
    started = await harness.start("trap '' TERM; sleep 98 & sleep 98")
    first = harness.spawner
    connection_of(first).close()  # as its death does: without a word
    await harness.reopen().adopt()
    going = await harness.start("sleep 97")
    await harness.until(lambda: not alive(started.pid))
    await harness.until(lambda: len(tagged(harness.tag, "LONGREIN_SESSION")) == 2)
    assert alive(going.pid)
    assert spooled_tasks(str(harness.folder))[0].state == "running"


async def test_a_daemon_that_a_dead_longrein_had_left_ends_and_one_of_the_next_stays(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("b1", "sleep 99")
    first = harness.spawner

    async def daemon() -> int:
        await (await harness.start("setsid sleep 98 & echo $! > pid")).ended()
        return int((harness.folder / "pid").read_text())

    old = await daemon()
    connection_of(first).close()  # as its death does: without a word
    await harness.reopen().adopt()
    new = await daemon()
    await harness.until(lambda: not alive(old))
    assert alive(new)
    assert spooled_tasks(str(harness.folder))[0].state == "running"


@pytest.mark.parametrize(
    "rest", [RemainingProcesses("/1.1", 1, 0.0, lambda: (), float("inf")), Tree("/1.1.5/", 0, 0.0)]
)
def test_one_look_that_finds_nobody_is_not_believed(rest: Tree) -> None:
    """Who forks and exits while the table of processes is read is in none of it, and who begins
    another program has no environment.
    """
    found: list[dict[int, Process]] = [{}, {7: Process(7, 1, 7, 7, 70)}, {}, {}]
    looks = [
        rest.is_gone(rest.members(table, dict.fromkeys(table, b"\x00X=/1.1.5/\x00")))
        for table in found
    ]
    assert looks == [False, False, False, True]


def alive(pid: int) -> bool:
    return process(pid) is not None


async def test_nobody_comes_back_within_task_keep(tmp_path: Path, tag: str) -> None:
    harness = SupervisorHarness(tmp_path, tag, keep_s=0.2)
    await harness.keep("b1", "sleep 99")
    await harness.spawner.drain()
    await harness.until(lambda: not tagged(tag))
    (left,) = spooled_tasks(str(tmp_path))
    assert (left.state, left.cause) == ("killed", f"nobody came back within {0.2 / 3600:g} h")
    assert harness.files() == ["b1.end", "b1.json", f"v{VERSION}.log"]


async def test_who_comes_back_in_time_stops_that_clock(tmp_path: Path, tag: str) -> None:
    for keep_s in growing_limits(0.4):
        session = tmp_path / str(keep_s)
        session.mkdir()
        harness = SupervisorHarness(session, tag, keep_s=keep_s)
        await harness.keep("b1", "until [ -e go ]; do sleep 0.05; done")
        left = time.monotonic()
        await harness.spawner.drain()
        await harness.reopen().adopt()
        in_time = time.monotonic() - left < keep_s
        await asyncio.sleep(keep_s)
        (session / "go").touch()
        ended = await harness.over("b1")
        await harness.spawner.drain()
        if in_time:
            assert ended.state == "done"
            return
    raise AssertionError("nobody came back in time")


async def test_a_second_longrein_cannot_attach_while_one_is_attached(
    harness: SupervisorHarness,
) -> None:
    await harness.keep("b1", "sleep 99")
    other = supervised(harness.folder, harness.environ)
    assert [one.task for one in await other.adopt()] == ["b1"], "it may look"
    started = await other.start(
        CommandSpec("echo plain", "/", harness.env), sink=None, output_bytes_max=99
    )
    assert isinstance(started, CommandExit)
    assert "another longrein is attached" in started.message
    await other.drain()
    assert (await harness.start("true")).pid > 0, "the first one is as it was"


async def test_longrein_tasks_of_another_process_stops_one(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "trap '' TERM; sleep 99; sleep 99")
    assert await stop_background_task(str(harness.folder), "nobody") is None
    stopped = await stop_background_task(str(harness.folder), "b1", "the user, from elsewhere")
    assert (stopped.state, stopped.cause) == ("killed", "the user, from elsewhere")
    await harness.over("b1")
    assert await stop_background_task(str(harness.folder), "b1") == stopped


@pytest.fixture
def frozen(harness: SupervisorHarness) -> Iterator[Callable[[], None]]:
    """Stops the supervisor, as a debugger does; nobody waits long for it until `wake`."""
    stopped: list[int] = []

    def freeze() -> None:
        stopped.append(supervisor_of(harness))
        os.kill(stopped[0], signal.SIGSTOP)
        shorten_limits(harness.short_limits)

    yield freeze
    harness.short_limits.undo()
    for supervisor in stopped:
        with suppress(ProcessLookupError):
            os.kill(supervisor, signal.SIGCONT)


def shorten_limits(patch: pytest.MonkeyPatch) -> None:
    """Give up a supervisor after some tenths of a second, which a live one may need too."""
    for name, limit_s in (
        ("HELLO_S", 0.2),
        ("DRAIN_S", 0.2),
        ("START_S", 0.4),
        ("START_GRACE_S", 0.05),
    ):
        patch.setattr(f"longrein.workspace.supervised_command.{name}", limit_s)
    for name in ("HELLO_S", "END_S"):
        patch.setattr(f"longrein.workspace.task_adoption.{name}", 0.2)
    patch.setattr(supervisor_client.SupervisorConnection.ask, "__kwdefaults__", {"limit_s": 0.2})


def supervisor_of(harness: SupervisorHarness) -> int:
    return int(connection_of(harness.spawner).owner[1:].partition(".")[0])


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def wake(harness: SupervisorHarness) -> None:
    harness.short_limits.undo()
    os.kill(supervisor_of(harness), signal.SIGCONT)


async def test_a_supervisor_that_hears_nothing_holds_nobody_back(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    """Its tasks can be ended all the same, and longrein can be left: that wakes it, and it ends."""
    task = await harness.keep("b1", "sleep 99")
    supervisor = supervisor_of(harness)
    frozen()
    harness.short_limits.undo()
    await stop_background_task(str(harness.folder), "b1")
    assert task.pid not in processes()
    await harness.spawner.drain()
    await harness.until(lambda: spooled_tasks(str(harness.folder))[0].state != "running")
    await harness.until(lambda: process(supervisor) is None)


async def test_a_supervisor_that_was_stopped_goes_on_with_its_tasks_when_longrein_is_left(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    task, ended = await harness.keep("b1", "sleep 99"), await harness.start("sleep 98")
    supervisor = supervisor_of(harness)
    frozen()
    harness.short_limits.undo()
    await harness.spawner.drain()
    assert [task.pid in processes(), ended.pid in processes()] == [True, False]
    await harness.until(lambda: not is_stopped(supervisor))
    (found,) = await harness.reopen().adopt()
    assert found.state == "running"


async def test_a_supervisor_that_cannot_be_woken_is_killed_when_longrein_is_left(
    harness: SupervisorHarness, frozen: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that a debugger holds."""
    monkeypatch.setattr(supervisor_client.SupervisorConnection, "wake", lambda _: None)
    started = await harness.start("setsid sleep 99 & sleep 98")
    supervisor = supervisor_of(harness)
    frozen()
    await harness.spawner.drain()
    assert not {started.pid, supervisor} & processes().keys()


async def test_a_supervisor_that_was_stopped_when_its_longrein_died_is_woken_by_the_next_start(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    await harness.start("setsid sleep 99 & sleep 98")
    supervisor = supervisor_of(harness)
    frozen()
    connection_of(harness.spawner).close()  # as the death of longrein does
    await harness.until(lambda: is_stopped(supervisor))
    end_orphans(lambda _: True)
    assert is_stopped(supervisor), "somebody has the session open: it is left alone"
    end_orphans(lambda session: session != harness.folder.name)
    await harness.until(lambda: process(supervisor) is None)
    assert tagged(harness.tag) == []


@pytest.mark.parametrize("command", [
    "sleep 99; echo never",
    "trap '' TERM; setsid sleep 99 & sleep 99",
    "until [ -e go ]; do sleep 0.05; done",
])  # fmt: skip
async def test_a_time_limit_holds_also_while_the_supervisor_is_stopped(
    harness: SupervisorHarness, frozen: Callable[[], None], command: str
) -> None:
    await harness.keep("b1", "sleep 98")
    started = await harness.start(command)
    frozen()
    (harness.folder / "go").touch()
    ended = await started.run(asyncio.get_running_loop().time() + 0.3)
    assert (ended.cause, ended.code) == ("lost", None)
    assert (
        ended.message
        == "the supervisor of processes did not answer, so longrein ended it itself (timeout)"
    )
    others = [
        pid
        for pid, _ in processes_with("LONGREIN_SESSION")
        if pid in tagged(harness.tag, "LONGREIN_SESSION")
    ]
    kept = harness.spawner.spooled("b1")
    assert others == [kept.pid], "what it was not about goes on"
    wake(harness)
    await harness.until(lambda: not connection_of(harness.spawner).unresponsive)
    assert (await harness.start("true")).pid > 0, "and it serves again when it wakes up"


async def test_a_command_cannot_be_kept_by_a_supervisor_that_is_stopped(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    started = await harness.start("sleep 99")
    frozen()
    with pytest.raises(OSError, match="does not answer"):
        await started.keep(BackgroundOptions("b1", "sleep 99"))
    started.end("lost")
    await harness.until(lambda: started.pid not in processes())
    wake(harness)


async def test_a_command_that_a_stopped_supervisor_does_not_start_says_so_and_wakes_it(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    await harness.start("true")
    supervisor = supervisor_of(harness)
    frozen()
    ended = await harness.run("echo ran >> runs")
    assert (ended.cause, ended.message) == (
        "not_started",
        "the supervisor of processes does not answer; try again",
    )
    harness.short_limits.undo()
    await harness.until(lambda: not is_stopped(supervisor))
    assert (await harness.run("echo again >> runs")).code == 0
    assert (await harness.keep("b1", "sleep 99")).state == "running"
    assert (harness.folder / "runs").read_text() == "again\n", "it never starts late"


async def test_a_task_of_a_stopped_supervisor_is_ended_and_told(
    harness: SupervisorHarness, frozen: Callable[[], None]
) -> None:
    task = await harness.keep("b1", "sleep 99")
    frozen()
    await harness.spawner.stop("b1", "stopped by the user")
    over = await harness.over("b1")
    found = (over.state, over.cause)
    assert found == ("lost", "stopped by the user; its supervisor did not answer")
    assert task.pid not in processes()
    wake(harness)


async def test_a_supervisor_of_another_version_keeps_its_tasks(tmp_path: Path, tag: str) -> None:
    harness = SupervisorHarness(tmp_path, tag, alone_s=9.0)
    gate = tmp_path / "gate"
    await harness.keep("b1", f"echo old; until [ -e {gate} ]; do sleep 0.1; done; exit 5")
    await harness.keep("b2", "sleep 99")
    for kind in ("sock", "json"):  # as an older one would have called them
        (tmp_path / "tasks" / f"v{VERSION}.{kind}").rename(tmp_path / "tasks" / f"v0.{kind}")
    older = harness.spawner
    newer = harness.reopen()
    harness.news.clear()
    assert [one.state for one in await newer.adopt()] == ["running", "running"]
    gate.touch()
    await harness.keep("b3", "exit 9")
    assert (await harness.over("b3")).code == 9
    assert (await harness.over("b1")).code == 5, "its end is read from the spool"
    with pytest.raises(OSError, match="another version"):
        await newer.give("b2", b"x", eof=False)
    await newer.stop("b2", "the user")
    assert (await harness.over("b2")).state == "failed"
    assert newer.read("b1", 0, 99) == (0, b"old\n")
    await newer.drain()
    await older.drain()


async def test_a_folder_that_vanished(harness: SupervisorHarness) -> None:
    await harness.keep("b1", "read x; echo lost words; exit 3", stdin=True)
    aside = harness.folder / "aside"
    for file in (harness.folder / "tasks").iterdir():
        file.unlink()
    (harness.folder / "tasks").rename(aside)
    aside.rmdir()
    await harness.spawner.give("b1", b"\n", eof=True)
    ended = await harness.over("b1")
    assert (ended.state, ended.code) == ("failed", 3)
    assert "its folder is gone" in ended.lost or "No such file" in ended.lost
    assert harness.spawner.whole("b1") == ""
    assert (await harness.start("true")).pid, "commands go on"


def test_a_task_whose_folder_was_deleted_does_not_go_on_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    now, ended = [0.0], []
    loop = Loop(lambda: now[0])
    tasks = Tasks(loop, Pipes(loop), lambda *how: ended.append(how[1:]), lambda *_: None)
    nothing = SpoolWriter(".", "b1", 10, StreamRedactor(str, (), words=False)).export_state()
    kept = KeptTask(task="b1", policy="keep", timeout_s=0, quota_bytes=10, memory_bytes=0, cpu_s=0)
    assert not tasks.keep(Command(0, "/1.1.1/", -1, -1, 0.0), kept, {"command": "x"}, nothing)
    for minute, gone in ((1, False), (2, False), (3, True)):
        if gone:
            (tmp_path / "b1.json").unlink()
        now[0] = 60.0 * minute
        loop.step(0)
        assert ended == [("its folder was deleted", "killed")] * gone


async def test_where_no_socket_can_lie_tasks_are_kept_told_of_and_stopped(
    tmp_path: Path, tag: str
) -> None:
    harness = SupervisorHarness(tmp_path, tag)
    (tmp_path / "tasks" / f"v{VERSION}.sock").mkdir(parents=True)
    await harness.keep("b1", "echo one; until [ -e go ]; do sleep 0.05; done; exit 4")
    await harness.keep("b2", "sleep 99")
    await harness.spawner.drain()
    assert {one.state for one in await harness.reopen().adopt()} == {"running"}
    (harness.folder / "go").touch()
    assert (await harness.over("b1")).code == 4
    await harness.spawner.stop("b2", "the user")
    assert (await harness.over("b2")).cause == "SIGTERM"
    await harness.spawner.drain()
    await harness.until(lambda: not tagged(tag))


async def test_where_there_is_no_proc_psutil_tells_of_processes(
    tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = "import longrein.workspace.supervisor.process_tree as p; p.LINUX = False\n"
    last = "from longrein.workspace.supervisor.main"
    monkeypatch.setattr("longrein.workspace.supervisor.process_tree.LINUX", False)
    monkeypatch.setattr(supervisor_client, "PYTHON_FLAGS", ("-E", "-s"))
    monkeypatch.setattr(
        supervisor_client, "BOOTSTRAP", supervisor_client.BOOTSTRAP.replace(last, elsewhere + last)
    )
    harness = SupervisorHarness(tmp_path, tag)
    await (await harness.start("ls /proc/self/fd")).ended()
    assert len(harness.printed.split()) == 4, (
        "no descriptor of another command: input, two outputs, the listed folder"
    )
    await harness.keep("b1", "(setsid sleep 99 &); sleep 99")
    await harness.spawner.stop("b1", "the user")
    assert (await harness.over("b1")).state == "killed"
    await harness.spawner.drain()
    assert tagged(tag) == []


NO_SUPERVISOR = "the command was not started: the supervisor of processes cannot be started"


async def test_a_command_without_a_supervisor_says_why_it_cannot_start(
    tmp_path: Path, tag: str
) -> None:
    harness = SupervisorHarness(tmp_path, tag)
    (tmp_path / "tasks").write_text("a file is in the way")
    ended = await harness.run("exit 3")
    assert (ended.cause, ended.message) == ("not_started", f"{NO_SUPERVISOR} (File exists)")
    (tmp_path / "tasks").unlink()
    assert (await harness.run("exit 3")).code == 3, "each command tries again"
    await harness.spawner.drain()


async def test_a_supervisor_that_fails_at_once_names_its_log(
    tmp_path: Path, tag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = SupervisorHarness(tmp_path, tag)
    monkeypatch.setattr(
        "longrein.workspace.supervisor_client.BOOTSTRAP", "raise SystemExit('broken')"
    )
    log = tmp_path / "tasks" / f"v{VERSION}.log"
    ended = await harness.run("exit 3")
    assert ended.cause == "not_started"
    assert ended.message == f"{NO_SUPERVISOR} (it ended at once; {log} may say why)"
    assert log.read_text() == "broken\n"
    await harness.spawner.drain()


async def test_a_long_path_is_no_hindrance(tmp_path: Path, tag: str) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    harness = SupervisorHarness(deep, tag)
    await harness.keep("b1", "until [ -e go ]; do sleep 0.05; done; exit 4")
    await harness.spawner.drain()
    await harness.reopen().adopt()
    (deep / "go").touch()
    await harness.until(
        lambda: (task := harness.spawner.spooled("b1")) is not None and task.state != "running"
    )
    task = harness.spawner.spooled("b1")
    assert task.code == 4
    await harness.spawner.drain()


async def test_a_supervisor_told_to_end_ends_all_and_says_so(harness: SupervisorHarness) -> None:
    running = await harness.keep("b1", "sleep 99")
    started = await harness.start("sleep 98")
    os.kill(parent_of(running.pid), signal.SIGTERM)
    ended = await harness.over("b1")
    assert (ended.state, ended.cause) == ("killed", "its supervisor was told to end (SIGTERM)")
    assert (await started.ended()).code is None

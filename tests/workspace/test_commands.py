"""Commands: their exact outcome comes from the process, not from its pipe; the rest of the tree
ends too.
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from longrein.workspace import command_output
from longrein.workspace.command_output import OutputReader
from tests.timeouts import HANG_S
from tests.workspace.conftest import CommandHarness, supervised, tagged

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(("command", "code", "by", "printed"), [
    ("echo out; echo err >&2; echo out", 0, "", "out\nerr\nout\n"),
    ("exit 137", 137, "", ""),
    ("kill -9 $$", None, "SIGKILL", ""),
    ("kill -SEGV $$", None, "SIGSEGV", ""),
    ("cd / && kill -9 $$", None, "SIGKILL", ""),
    ("kill -40 $$", None, "SIG40", ""),
    (f"kill -{int(signal.SIGPIPE)} $$", None, "SIGPIPE", ""),
    ("false", 1, "", ""),
    ("nosuch", 127, "", "bash: line 1: nosuch: command not found\n"),
    ("./plain", 126, "", "bash: line 1: ./plain: Permission denied\n"),
    ("cd /tmp\nnosuch", 127, "", "bash: line 2: nosuch: command not found\n"),
    ("set -e; cd /; false; echo no", 1, "", ""),
    ("cd /; trap 'echo bye' EXIT; exit 3", 3, "", "bye\n"),
    ("exec true", 0, "", ""),
    ("[ $(ps -o sid= -p $$) = $$ ] && echo alone", 0, "", "alone\n"),
    ("tty; ps -o tty= -p $$ | tr -d ' '", 0, "", "not a tty\n?\n"),
    ("cat <<X\nin $HOME_X here\nX", 0, "", "in  here\n"),
])  # fmt: skip
async def test_R063_how_a_command_ends_is_told_exactly(
    harness: CommandHarness, command: str, code: int | None, by: str, printed: str
) -> None:
    (harness.folder / "plain").write_text("x")
    ended = await harness.run(command)
    found = (ended.code, ended.signal, ended.cause, harness.printed.decode())
    assert found == (code, by, "exit", printed)


async def test_R063_a_syntax_error_and_a_missing_interpreter_are_the_shells_to_tell(
    harness: CommandHarness,
) -> None:
    assert (await harness.run("echo )")).code == 2
    assert b"syntax error near unexpected token `)'" in harness.printed
    script = harness.folder / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    assert (await harness.run("./script")).code in (126, 127)
    assert b"./script: " in harness.printed


WAITS = (
    "import os, select; os.dup2({}, 0); print('ready', flush=True); {}; select.select([0], [], [])"
)


def python(*parts: str) -> str:
    return f'"{sys.executable}" -c "{WAITS.format(*parts)}"'


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's view of processes is in /proc")
@pytest.mark.parametrize(("command", "waits"), [
    (python("2", "0"), True),
    (f"cd . && ({python('2', '0')}) 2>&1 | cat", True),
    (python("os.pipe()[0]", "0"), False),
    (python("2", "import subprocess; subprocess.Popen(['sleep', '100'])"), False),
    (python("2", "import time; time.sleep(100)"), False),
    ("echo ready; sleep 100", False),
    ("echo ready; exec sleep 100 0>&2", False),
    ("mkfifo lock; echo ready; cat lock", False),
])  # fmt: skip
async def test_a_program_that_waits_for_keys_where_there_is_no_terminal_is_found(
    harness: CommandHarness, command: str, waits: bool
) -> None:
    running = await harness.start(command)
    await harness.until(b"ready")
    found = {running.waits_for_keys()}
    for _ in range(10):
        await asyncio.sleep(0.01)
        found.add(running.waits_for_keys())
    async with asyncio.timeout(HANG_S):
        while waits and not running.waits_for_keys()[0]:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.01)
    assert running.waits_for_keys()[0].startswith("python") == waits
    assert waits or found == {("", b"")}
    running.end("terminal")
    assert (await running.ended()).cause == "terminal"


TOO_LONG = "the command is too long for the system (200,005 characters): write it to a file and run"
NO_START = "the command or its environment holds what cannot be started"


@pytest.mark.parametrize(("command", "code", "message"), [
    (["nosuch-program"], 127, "nosuch-program: no such file or directory"),
    (["/etc/passwd"], 126, "/etc/passwd: permission denied"),
    ("echo " + "x" * 200_000, 126, f"{TOO_LONG} that"),
    ("echo a\0b", 126, f"{NO_START} (embedded null byte)"),
    ([], 126, f"{NO_START} (nothing)"),
])  # fmt: skip
async def test_R063_what_cannot_start_says_why(
    harness: CommandHarness, command: str | list[str], code: int, message: str
) -> None:
    ended = await harness.run(command)
    assert (ended.cause, ended.code) == ("not_started", code)
    assert ended.message == message


async def test_R086_a_folder_that_is_gone_is_told(harness: CommandHarness) -> None:
    ended = await harness.run("ls", cwd=str(harness.folder / "gone"))
    assert ended.message == f"the folder {harness.folder}/gone does not exist (any more)"


async def test_R051_a_process_left_behind_holds_the_pipe_but_not_the_answer(
    harness: CommandHarness,
) -> None:
    ended = await harness.run("sleep 60 & echo done")
    assert (ended.code, bytes(harness.printed)) == (0, b"done\n")
    assert len(harness.survivors()) == 1, "it may go on until longrein ends"


async def test_what_is_left_behind_can_go_on_printing(harness: CommandHarness) -> None:
    await harness.run(
        "(while :; do echo tick || exit; echo more >> ticks; sleep 0.005; done) & true"
    )
    ticks = harness.folder / "ticks"
    async with asyncio.timeout(HANG_S):  # else its pipe was closed on it
        while not ticks.exists() or ticks.stat().st_size <= 10 * len("more\n"):  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_output_just_after_the_exit_is_kept(
    harness: CommandHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_output, "HELD_PIPE_S", HANG_S)
    await harness.run("(sleep 0.03; echo late) & echo early")
    assert bytes(harness.printed) == b"early\nlate\n"


async def test_a_process_that_closes_its_output_is_still_waited_for(
    harness: CommandHarness,
) -> None:
    ended = await harness.run("exec >&- 2>&-; sleep 0.05; exit 4")
    assert ended.code == 4  # which is known after its end alone


@pytest.mark.parametrize(
    "command", ["cat", "read x || echo none", f"{sys.executable} -S -c 'input()' || true"]
)
async def test_R057_whoever_reads_gets_the_end_of_the_file_at_once(
    harness: CommandHarness, command: str
) -> None:
    ended = await harness.run(command)
    assert (ended.cause, ended.code) == ("exit", 0)


async def test_R053_a_tree_that_ignores_TERM_is_killed_whole(harness: CommandHarness) -> None:
    ended = await harness.time_out_when_ready("trap '' TERM; echo ready; sleep 999 & sleep 999")
    assert (ended.cause, ended.signal) == ("timeout", "SIGKILL")
    assert harness.survivors() == []


@pytest.mark.parametrize("escape", [
    "setsid sleep 999 & sleep 999",
    "(setsid sh -c 'trap \"\" TERM; sleep 999; sleep 999' &); sleep 999",
    "(setsid sh -c '(setsid sh -c \"trap : TERM; while :; do sleep 9; done\" &)' &); sleep 999",
    "env -u LONGREIN_COMMAND setsid sleep 999 & sleep 999",
    "set -m; sleep 999 & sleep 998 & wait",
])  # fmt: skip
async def test_R053_who_forks_away_is_found(harness: CommandHarness, escape: str) -> None:
    running = asyncio.create_task(harness.run(escape, timeout_s=0.15))
    ended = await running
    assert ended.cause == "timeout"
    assert harness.survivors() == []


@pytest.mark.parametrize("grace_s", [HANG_S])
async def test_TERM_comes_once_and_leaves_time_to_tidy_up(harness: CommandHarness) -> None:
    command = (
        "trap 'echo told' TERM; exec 2>/dev/null; sleep 999 & echo ready; wait; sleep 0.05; "
        "echo tidied; exit 7"
    )
    ended = await harness.time_out_when_ready(command)
    assert bytes(harness.printed) == b"ready\ntold\ntidied\n"
    assert (ended.cause, ended.code) == ("timeout", 7)


async def test_one_commands_timeout_leaves_the_others_alone(harness: CommandHarness) -> None:
    other = asyncio.create_task(harness.run("sleep 0.4; exit 5"))
    assert (await harness.run("sleep 999", timeout_s=0.1)).cause == "timeout"
    assert (await other).code == 5


@pytest.mark.parametrize("grace_s", [1.0])
async def test_an_interrupt_is_at_once_and_the_kill_goes_on_behind_it(
    harness: CommandHarness,
) -> None:
    command = "trap '' TERM; echo ready; while :; do sleep 9; done"
    running = [asyncio.create_task(harness.run(command)) for _ in range(3)]
    await harness.until(b"ready\nready\nready\n")
    for one in running:
        one.cancel()
    found = [type(end) for end in await asyncio.gather(*running, return_exceptions=True)]
    assert found == [asyncio.CancelledError] * 3
    assert harness.survivors(), "they ignore TERM"
    async with asyncio.timeout(HANG_S):
        while harness.survivors():  # noqa: ASYNC110 - other processes end
            await asyncio.sleep(0.01)


async def test_R059_a_flood_is_cut_at_the_limit(harness: CommandHarness) -> None:
    ended = await harness.run("yes", most=100_000)
    assert (ended.cause, len(harness.printed)) == ("flood", 100_000)
    assert (await harness.run("head -c 100000 /dev/zero", most=100_000)).cause == "exit"
    assert len(harness.printed) == 100_000, "exactly the limit is no flood"


async def test_R061_output_is_bytes(harness: CommandHarness) -> None:
    await harness.run(r"printf 'a\0b\377c\355\240\200'")
    assert bytes(harness.printed) == b"a\0b\xffc\xed\xa0\x80"


async def test_no_piece_of_a_large_output_is_lost_or_moved(harness: CommandHarness) -> None:
    await harness.run("seq 1 300000", most=1 << 24)
    assert bytes(harness.printed) == "".join(f"{n}\n" for n in range(1, 300_001)).encode()


class Pieces(list[int]):
    """Sink that notes the size of each piece."""

    def write(self, data: bytes) -> None:
        assert data == b"x" * len(data)
        self.append(len(data))


@pytest.mark.parametrize("most", [10, 70_000, 200_000, 1 << 30])
async def test_much_output_in_small_pieces_is_taken_in_large_ones_up_to_the_limit(
    most: int,
) -> None:
    """Each piece costs as much as 50 kB do."""
    theirs, ours = os.pipe()
    os.set_blocking(theirs, False)
    sizes, stopped = Pieces(), list[str]()
    running = OutputReader(theirs, sizes, most, stopped.append)
    running.start()
    for _ in range(3000):
        if not stopped:
            os.write(ours, b"x" * 1000)
            await asyncio.sleep(0)
    os.close(ours)
    running.exited()
    await running.ended
    assert (sum(sizes), stopped) == ((3_000_000, []) if most == 1 << 30 else (most, ["flood"]))
    assert len(sizes) < 1500
    if stopped:
        os.close(running.detach_output())


@pytest.mark.parametrize(("command", "left_in"), [
    ("cd sub", "sub"),
    ("cd sub && false", "sub"),
    ("cd sub; exit 3", "sub"),
    ("pushd sub >/dev/null; echo", "sub"),
    ("cd 'a b\n'", "a b\n"),
    ("(cd sub)", "."),
    ("f() { cd sub; }; f", "sub"),
    ("eval 'cd sub'", "sub"),
    (". ./go", "sub"),
    ("cd sub; pwd() { echo fooled; }", "sub"),
    ("ls", None),
    ("cd sub; exec true", None),
    ("cd sub; trap 'echo mine' EXIT", None),
    ("cd sub; kill -9 $$", None),
])  # fmt: skip
async def test_the_shell_says_where_it_was_left(
    harness: CommandHarness, command: str, left_in: str | None
) -> None:
    for name in ("sub", "a b\n"):
        (harness.folder / name).mkdir()
    (harness.folder / "go").write_text("cd sub\n")
    ended = await harness.run(command)
    assert ended.cwd == ("" if left_in is None else os.path.normpath(harness.folder / left_in))


async def test_a_cd_costs_the_command_nothing_it_can_see(harness: CommandHarness) -> None:
    await harness.run("cd /; echo $LINENO $- $FUNCNAME; return 2>/dev/null\necho $LINENO")
    with_cd = bytes(harness.printed)
    await harness.run("true; echo $LINENO $- $FUNCNAME; return 2>/dev/null\necho $LINENO")
    assert with_cd == bytes(harness.printed)


async def test_children_hold_none_of_our_files_and_no_signal_is_ignored(
    harness: CommandHarness,
) -> None:
    with open(harness.folder / "open", "wb"):
        await harness.run("ls /proc/self/fd; grep SigIgn /proc/self/status")
    *files, _, ignored = harness.printed.decode().split()
    assert files == ["0", "1", "2", "3"], "3 is the folder ls reads"
    assert int(ignored, 16) & 0x7FFFFFFF == 0, (
        "of the signals 1 to 31; a C library may keep a real-time one for itself"
    )


async def test_without_bash_there_is_sh(harness: CommandHarness, tmp_path: Path) -> None:
    harness.spawner.shell = "/bin/sh"
    ended = await harness.run("cd /; echo $((1 + 1))")
    assert (ended.code, ended.cwd, bytes(harness.printed)) == (0, "", b"2\n")


def test_S026_a_shell_from_the_repository_is_never_taken(tmp_path: Path) -> None:
    (tmp_path / "bash").write_text("#!/bin/sh\ntouch tripped\n")
    (tmp_path / "bash").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:.:{os.environ['PATH']}"}
    spawner = supervised(tmp_path, environment, [str(tmp_path)])
    assert not spawner.shell.startswith(str(tmp_path))
    assert spawner.shell.endswith("/bash")


async def test_thirty_two_commands_run_at_once(harness: CommandHarness) -> None:
    """Each ends only when all have begun."""
    command = "mkdir in.{0}; until [ -e in.31 ] && set -- in.* && [ $# = 32 ]; do sleep 0.05; done"
    ends = await asyncio.gather(*[harness.run(command.format(n)) for n in range(32)])
    assert {(end.cause, end.code) for end in ends} == {("exit", 0)}


async def test_law_11_shutdown_ends_what_commands_left(harness: CommandHarness) -> None:
    await harness.run("nohup sleep 999 >/dev/null 2>&1 & setsid sleep 999 & true")
    assert len(harness.survivors()) == 2
    await harness.spawner.drain()
    assert harness.survivors() == []


def test_law_11_a_loop_that_closes_in_the_middle_leaves_nobody(tmp_path: Path, tag: str) -> None:
    async def main() -> None:
        harness = CommandHarness(tmp_path, tag, grace_s=0.4)
        running = await harness.start("trap '' TERM; echo ready; while :; do sleep 9; done")
        await harness.until(b"ready")
        running.end("timeout")
        await asyncio.sleep(0.2)
        assert harness.survivors(), "it had its TERM and ignores it"

    asyncio.run(main())
    until = time.monotonic() + HANG_S
    while tagged(tag, "LONGREIN_SESSION"):
        assert time.monotonic() < until, "it lives on"

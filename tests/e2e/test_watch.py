"""`longrein watch`: a session that another process has open is followed, read-only."""

import signal
import subprocess

from tests.e2e.harness import BYPASS, UNTIL_GO, CliHarness, bash, calls, says

UUID = "0192d0c8-0000-7000-8000-0000000000aa"


def test_a_session_of_another_process_is_followed_until_it_is_closed(cli: CliHarness) -> None:
    cli.plays(calls(bash(f"{UNTIL_GO}; echo one > acts")), says("it is done"))
    going = cli.start("-p", "do it", BYPASS, "--session-id", UUID, "--output-format", "stream-json")
    going.wait_for("assistant")
    watching = cli.start("watch", UUID[:8])
    assert watching.line().startswith(b"session ")
    cli.go()
    assert going.end().code == 0, "the watcher does not disturb the writer"
    ran = watching.end()
    rows = [row for row in ran.text.splitlines() if row]
    assert (ran.code, rows[0]) == (0, f"session {UUID[:8]} do it  watching, read-only; Ctrl-C ends")
    assert "› do it" in rows
    assert any(row.startswith("● Bash ok") for row in rows)
    assert "it is done" in rows
    assert ran.err.endswith(f"`longrein -r {UUID[:8]}` goes on with session {UUID[:8]}\n")


def test_the_newest_open_session_is_watched_and_left_with_ctrl_c(cli: CliHarness) -> None:
    cli.plays(calls(bash("sleep 97")), says("later"))
    ran = cli.run("watch")
    assert (ran.code, ran.text) == (1, "")
    assert ran.err.startswith(
        f"longrein: no session of {cli.project} is open; `longrein sessions` lists all"
    )
    going = cli.start("-p", "do it", BYPASS, "--session-id", UUID, "--output-format", "stream-json")
    going.wait_for("assistant")
    watching = cli.start("watch")
    assert watching.line().startswith(f"session {UUID[:8]}".encode())
    while b"do it" not in watching.line():
        pass
    watching.send(signal.SIGINT)
    assert watching.end().code == 0
    going.send(signal.SIGTERM)
    assert going.end().code == 143


def test_a_closed_session_is_shown_and_left(cli: CliHarness) -> None:
    cli.plays(says("one"))
    cli.run("-p", "first words", "--session-id", UUID)
    ran = cli.run("watch", UUID)
    assert ran.code == 0
    assert "› first words" in ran.text
    assert (
        ran.err
        == f"longrein: no process has it open; `longrein -r {UUID[:8]}` goes on with session "
        f"{UUID[:8]}\n"
    )
    assert subprocess.run(["ls", cli.session_folder(UUID)], capture_output=True, check=True).stdout

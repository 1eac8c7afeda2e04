"""Signals at any moment: exit code, log, no survivors, and the session can be resumed."""

import signal
import time
from pathlib import Path

import pytest

from tests.timeouts import HANG_S, wait_until

from .harness import CliHarness, bash, calls, says

BYPASS = (
    "--dangerously-skip-permissions",
    "--output-format",
    "stream-json",
    "--include-partial-messages",
)
CODES = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
REASONS = {
    signal.SIGINT: "interrupted by the user",
    signal.SIGTERM: "interrupted: longrein was told to end",
    signal.SIGHUP: "interrupted: the terminal was closed",
}
GOES_ON = "longrein: interrupted: the session is saved, `longrein -p -c` goes on with it\n"


@pytest.mark.parametrize(("number", "code"), CODES)
def test_A6_7_while_the_model_streams(number: int, code: int, cli: CliHarness) -> None:
    """The reply so far is kept, marked interrupted; the model is told so with the next prompt."""
    cli.plays(
        says("once upon a time there was " * 400, pace_s=0.02),
        says("As you wish.", expect=f"[{REASONS[number]}]"),
    )
    going = cli.start("-p", "tell", *BYPASS)
    while going.wait_for("stream_event")["event"]["type"] != "content_block_delta":
        pass
    going.send(number)
    ran = going.end()
    assert (ran.code, ran.err) == (code, GOES_ON)
    assert ran.result["subtype"] == "error_during_execution"
    assert ran.result["errors"] == [
        "interrupted: the session is saved, `longrein -p -c` goes on with it"
    ]
    assert (
        cli.left()
        == "Opened PrefixSet ModeSet UserSpoke Asked Replied Interrupted TurnEnded:interrupted"
    )
    assert cli.said()[0].startswith("once upon a time")
    assert cli.run("-p", "go on", "-c", "--dangerously-skip-permissions").told() == (
        0,
        "As you wish.\n",
        "",
    )


@pytest.mark.parametrize(("number", "code"), CODES)
def test_A6_7_while_a_command_runs(number: int, code: int, cli: CliHarness) -> None:
    cli.plays(
        calls(bash("echo begun; touch begun; sleep 97"), bash("touch begun")), says("As you wish.")
    )
    going = cli.start("-p", "x", *BYPASS)
    wait_until((cli.project / "begun").exists)
    going.send(number)
    ran = going.end()
    assert (ran.code, ran.err) == (code, GOES_ON)
    assert cli.results() == [
        ("interrupted", f"begun\n[{REASONS[number]}; the command was ended]"),
        ("not_run", "not run: the turn was interrupted"),
    ]
    assert cli.wait_survivors() == []
    assert not (cli.project / "second").exists()
    assert cli.run("-p", "go on", "-c", "--dangerously-skip-permissions").told() == (
        0,
        "As you wish.\n",
        "",
    )


def test_twice(cli: CliHarness) -> None:
    """The second Ctrl-C does not wait for what ignores the first; nothing is left running even
    so.
    """
    cli.plays(
        calls(bash("trap '' TERM INT; touch begun; while :; do sleep 0.1; done")),
        says("As you wish."),
    )
    going = cli.start("-p", "x", *BYPASS)
    wait_until((cli.project / "begun").exists)
    going.send(signal.SIGINT)
    time.sleep(0.05)
    going.send(signal.SIGINT)
    assert going.end().code == 130
    assert cli.wait_survivors() == []
    assert cli.run("-p", *([] if "Interrupted" not in cli.left() else ["go on"]), "-c").code == 0


def catches(pid: int, number: int) -> bool:
    """Whether a process has a handler of its own for a signal."""
    (line,) = [
        s for s in Path(f"/proc/{pid}/status").read_text().splitlines() if s.startswith("SigCgt")
    ]
    return bool(int(line.split()[1], 16) >> (number - 1) & 1)


@pytest.mark.parametrize("after_s", [0, 0.03, 0.08, 0.2, 0.5])
def test_at_any_moment_of_the_start_and_after(after_s: float, cli: CliHarness) -> None:
    """Never a traceback, never another code, and what had begun goes on.

    A fork has imported all before it starts, so that no signal would meet the imports.
    """
    cli.forks = False
    commands = [calls(bash("true")) for _ in range(3)]
    cli.plays(*commands, says("done", pace_s=HANG_S))
    going = cli.start("-p", "x", *BYPASS)
    wait_until(lambda: catches(going.pid, signal.SIGINT))  # Python has started …
    begun = time.monotonic()  # … and longrein has; on a busy machine that moment may pass unseen
    wait_until(lambda: not catches(going.pid, signal.SIGINT) or time.monotonic() > begun + 1)
    time.sleep(after_s)
    going.send(signal.SIGINT)
    ran = going.end()
    assert ran.code in (130, -signal.SIGINT)
    assert b"Traceback" not in ran.raw_err
    assert ran.err in ("", GOES_ON)
    if "UserSpoke" in cli.left():
        cli.plays(*commands, says("done"), says("done"))
        prompt = [] if not cli.left().endswith("TurnEnded:interrupted") else ["go on"]
        assert cli.run("-p", *prompt, "-c", "--dangerously-skip-permissions").told()[:2] == (
            0,
            "done\n",
        )


def test_nohup_is_respected(cli: CliHarness) -> None:
    """A signal that was ignored from outside stays ignored."""
    cli.plays(calls(bash("touch begun; sleep 0.2")), says("done"))
    going = cli.start(
        "-p", "x", *BYPASS, preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
    )
    wait_until((cli.project / "begun").exists)
    going.send(signal.SIGHUP)
    assert going.end().code == 0

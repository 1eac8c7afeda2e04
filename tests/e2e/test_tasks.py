"""Background tasks of the installed command, with real processes: rows B1 to B15, and what a kill leaves of them."""

import json
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from longrein.events import Asked, Reminded, TaskEnded, ToolEnded
from tests.timeouts import GONE_S

from .harness import CliHarness, RunningCommand, Turn, bash, call, calls, says, wait_until

BYPASS = "--dangerously-skip-permissions"


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


def at(cli: CliHarness, kind: type, n: int = 0) -> float:
    """When the nth entry of this kind was written, seconds."""
    return [entry.at for entry in cli.entries() if isinstance(entry.event, kind)][n] / 1e6


def kill(going: RunningCommand, number: int = signal.SIGKILL) -> None:
    os.kill(going.pid, number)
    going.process.wait()


def alive(mark: str) -> list[int]:
    """Processes whose command line holds `mark`."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in line and int(pid) != os.getpid():
            found.append(int(pid))
    return found


# --- Starting --------------------------------------------------------------------------------------------------------


def test_B1_B12_a_task_is_started_at_once_and_the_next_request_happens_meanwhile(cli: CliHarness) -> None:
    wait = "until [ -e go ]; do sleep 0.05; done; echo built"
    cli.plays(calls(background(wait)), calls(bash("touch go")), says("it is built"), says("it is built"))
    ran = cli.run("-p", "build", BYPASS)
    assert (ran.code, ran.err) == (0, "")
    assert ran.text.endswith("it is built\n")
    assert at(cli, Asked, 1) < at(cli, TaskEnded), "the model was asked while it ran"
    (line,) = lines(told(cli))
    assert line.startswith(f"* b1 ({wait}): done, exit code 0 after ")
    assert re.search(r"; 6 bytes of output, whole in r\d+, the end below$", line), line
    results = [end.call for end in of(cli, ToolEnded)]
    assert len(results) == len(set(results)) == 2, "the end of a task is no result of its call"
    assert cli.wait_survivors() == []


# --- Telling ---------------------------------------------------------------------------------------------------------


def test_B7_a_command_that_fails_says_how(cli: CliHarness) -> None:
    commands = {"cd /nowhere/at/all && ls": 1, "no-such-program-here": 127, "kill -9 $$": None, "exit 7": 7}
    cli.plays(calls(*map(background, commands)), *[says("so")] * 5)
    assert cli.run("-p", "go", BYPASS).code == 0
    ends = {end.task: (end.state, end.code, end.cause) for end in of(cli, TaskEnded)}
    assert [ends[f"b{n}"] for n in range(1, 5)] == [
        ("failed", code, "" if code else "SIGKILL") for code in commands.values()
    ]


def test_B10_drain_waits_and_asks_nobody(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 0.3; echo late")), says("done"))
    assert cli.run("-p", "go", BYPASS, "--background", "drain").told() == (0, "done\n", "")
    assert ended(cli) == [("b1", "done", 0)]
    assert not told(cli)


def test_steer_is_bounded_by_turns_and_time(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 0.1")), says("one"), says("never asked"))
    assert cli.run("-p", "go", BYPASS, "--max-turns", "2").text == "one\n"
    cli.settings("[tasks]\nbackground_s = 0.3")
    cli.plays(calls(background("sleep 30")), says("one"))
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "one\n")
    assert ran.err == "longrein: b1 goes on in the background: sleep 30\n"
    cli.clean_up()


def test_a_run_that_stays_for_a_command_that_hangs_says_so(cli: CliHarness) -> None:
    cli.settings("[tasks]\nbackground_s = 20")
    cli.plays(calls(bash("sleep 300", timeout=100)), says("it hangs"))
    going = cli.start("-p", "go", BYPASS)
    assert going.line() == b"it hangs\n"
    assert going.process.stderr is not None
    assert going.process.stderr.readline() == b"longrein: waiting at most 20 s for b1 (sleep 300)\n"
    going.send(signal.SIGINT)
    assert going.end().code == 130
    assert not cli.wait_survivors()


def test_B13_the_users_lines_are_not_stolen(cli: CliHarness) -> None:
    cli.plays(calls(bash('read x; echo "fg: $x"')), calls(background('read x; echo "bg: $x"')), says("so"))
    cli.run("-p", "go", BYPASS, "--background", "exit", stdin=b"a secret line\n")
    assert cli.results()[0] == ("ok", "fg: ")
    cli.clean_up()


# --- Leaving and coming back -----------------------------------------------------------------------------------------


def test_B14_a_kept_task_outlives_a_killed_longrein_and_is_adopted(cli: CliHarness) -> None:
    cli.plays(
        calls(background("echo begun; until [ -e go ]; do sleep 0.05; done; echo done; exit 5")),
        calls(bash("sleep 48.15")),
        says("welcome back"),
        says("I see"),
    )
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: alive("sleep\x0048.15"))
    kill(going)
    wait_until(lambda: not alive("sleep\x0048.15"), GONE_S)  # foreground: ended
    assert alive("echo begun; until"), "background: goes on"
    (cli.project / "go").touch()
    ran = cli.run("-p", "-c", "and now?", BYPASS, "--background", "drain")
    assert ran.code == 0
    assert ended(cli) == [("b1", "failed", 5)]
    assert cli.run("-p", "-c", "and now?", BYPASS).code == 0
    (end,) = of(cli, TaskEnded)
    assert end.tail == "begun\ndone"
    assert len(lines(told(cli))) == 1


def supervisors(cli: CliHarness) -> list[int]:
    return [
        pid for pid in alive("longrein.workspace.supervisor") if f"LONGREIN_TEST_TAG={cli.tag}".encode() in _env(pid)
    ]


def _env(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def test_B14_when_both_are_killed_it_is_lost_and_no_exit_code_is_invented(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 40.5")), calls(bash("sleep 48.35")), says("I see"))
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: alive("sleep\x0048.35"))
    (supervisor,) = supervisors(cli)
    os.kill(supervisor, signal.SIGKILL)
    kill(going)
    ran = cli.run("-p", "-c", "and now?", BYPASS)
    assert ran.code == 0, ran.told()
    assert ended(cli) == [("b1", "lost", None)]
    assert of(cli, TaskEnded)[0].cause
    assert "lost" in lines(told(cli, "bg_lost"))[0]
    assert not alive("sleep\x0040.5")


def test_B14_what_both_left_running_is_ended_by_a_look_at_the_tasks_and_told(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 40.6")), calls(bash("sleep 48.36")))
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: alive("sleep\x0048.36"))
    (supervisor,) = supervisors(cli)
    going.send(signal.SIGSTOP)  # so that it does not see the supervisor die and end the commands itself
    os.kill(supervisor, signal.SIGKILL)
    kill(going)
    ran = cli.run("tasks")
    assert ran.code == 0
    assert ran.err.startswith("longrein: ended what a crash had left running: sleep (")
    assert "lost (its supervisor ended" in ran.text
    assert not alive("sleep\x0040.6")
    assert not alive("sleep\x0048.36")
    assert cli.run("tasks").err == ""


def test_a_question_does_not_wait_for_what_ran_before_it(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 47.5")), says("it runs"), says("yes"))
    cli.run("-p", "serve", BYPASS, "--background", "exit")
    ran = cli.run("-p", "does it run?", "-c", BYPASS)
    assert ran.told() == (0, "yes\n", "longrein: b1 goes on in the background: sleep 47.5\n")
    cli.clean_up()


def test_a_copy_of_a_session_does_not_claim_its_tasks(cli: CliHarness) -> None:
    cli.plays(calls(background("until [ -e go ]; do sleep 0.05; done; exit 3")), says("bye"), says("I see"), says("ah"))
    cli.run("-p", "go", BYPASS, "--background", "exit")
    first = cli.session
    copy = "0192d0c8-0000-7000-8000-0000000000cc"
    ran = cli.run("-p", "and?", "-c", "--fork-session", "--session-id", copy, BYPASS, "--background", "exit")
    assert ran.code == 0
    (end,) = [entry.event for entry in cli.entries(copy) if isinstance(entry.event, TaskEnded)]
    assert (end.state, end.cause) == ("lost", f"it belongs to session {first}, of which this is a copy")
    (cli.project / "go").touch()
    cli.run("-p", "and?", "-r", first, BYPASS, "--background", "drain")
    (end,) = [entry.event for entry in cli.entries(first) if isinstance(entry.event, TaskEnded)]
    assert (end.state, end.code) == ("failed", 3)


def test_leaving_ends_what_may_not_stay_and_names_what_goes_on(cli: CliHarness) -> None:
    cli.plays(calls(bash("sleep 42.5", timeout=100), background("sleep 43.5")), says("bye"))
    ran = cli.run("-p", "go", BYPASS, "--background", "exit")
    assert ran.told() == (0, "bye\n", "longrein: b1 goes on in the background: sleep 43.5\n")
    assert ended(cli) == [("b2", "killed", None)]
    assert not alive("sleep\x0042.5")
    assert alive("sleep\x0043.5")
    cli.clean_up()


def test_A18_15_stream_json_says_who_spoke(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 0.3; echo late")), says("done"), says("now it is"))
    ran = cli.stream("go", BYPASS)
    (line,) = [line for line in ran.lines if line.get("origin")]
    assert line["origin"] == {"kind": "task-notification"}
    kinds = [line["subtype"] for line in ran.lines if line.get("subtype", "").startswith("task")]
    assert kinds == ["task_started", "task_notification"]
    assert ran.result["result"] == "done\n\nnow it is"


def test_what_may_run_in_the_background_is_what_may_run_at_all(cli: CliHarness) -> None:
    cli.plays(calls(background("touch made")), calls(call("TaskInput", task_id="b1", text="y")), says("I may not"))
    ran = cli.run("-p", "go")
    assert ran.code == 3
    assert [status for status, _ in cli.results()] == ["denied", "denied"]
    assert not (cli.project / "made").exists()


def test_B5_the_seed_profile_tells_results_as_its_documents_do(cli: CliHarness) -> None:
    cli.plays(
        calls(background("sleep 0.2; echo '</background-results> built'")),
        calls(bash("echo slow; sleep 5", timeout=100)),
        says("started"),
        says("I see"),
    )
    assert cli.run("-p", "go", BYPASS, "--profile", "seed").code == 0
    assert cli.results()[1] == (
        "failed",
        "slow\n[timed out after 0.1 s and was ended; timeout may be up to 600000 ms]",
    )
    (block,) = told(cli)
    assert block == "<background-results>\n[bg:b1] </background results> built\n</background-results>"


# --- A longrein in a command -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", [False, True])
def test_B14_what_a_longrein_in_a_command_leaves_is_listed_and_ends_with_the_one_above(
    cli: CliHarness, flag: bool
) -> None:
    inner = cli.folder / "inner.json"
    inner.write_text(json.dumps({"turns": [calls(background("sleep 97")), says("it sleeps")]}))
    cli.settings(f'[providers.inner]\nwire = "scripted"\nbase_url = "{inner}"')
    nested = f"{cli.command[0]} -p go {BYPASS} --background exit --model inner/one"
    cli.plays(calls(bash(f"mkdir -p below; cd below; {nested}; {cli.command[0]} tasks")), says("it has ended"))
    words, env = [], {}
    if flag:  # named on the command line, and not absolute: it holds below all the same
        words, env = ["--state-dir", "../state"], {"LONGREIN_STATE_DIR": ""}
    ran = cli.run("-p", "go", BYPASS, *words, env=env)
    assert ran.told() == (0, "it has ended\n", "")
    (text,) = [text for _, text in cli.results()]
    assert "b1 goes on in the background, at most until the longrein above this one is left: sleep 97" in text
    assert re.search(r"/b1 +running ", text), f"`longrein tasks` of the same command lists it: {text}"
    assert len(cli.sessions) == 2
    assert cli.wait_survivors() == []
    assert "lost" not in cli.run("tasks").text

"""Background tasks of the installed command, with real processes: rows B1 to B15, and what a
kill leaves of them.
"""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from longrein.testing.loopback import Call
from longrein_context.events import TaskEnded, TaskStarted, ToolEnded
from tests.timeouts import GONE_S, wait_until

from .harness import (
    BYPASS,
    UNTIL_GO,
    CliHarness,
    Loopback,
    Provider,
    RunningCommand,
    background,
    bash,
    call,
    calls,
    ended,
    full,
    lines,
    of,
    says,
    told,
)
from .test_children import part, tasks
from .test_sandbox import broken_program


def kill(going: RunningCommand, number: int = signal.SIGKILL) -> None:
    os.kill(going.pid, number)
    going.process.wait()


def kill_process(cli: CliHarness, pid: int) -> None:
    """Kill a process that is not ours, and wait until it is dead: it may have to wait for a CPU."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: pid not in cli.processes())


def test_each_command_has_the_id_of_its_call(cli: CliHarness) -> None:
    tell = f"echo $LONGREIN_CALL_ID >> {cli.project}/ids"
    cli.plays(calls(bash(tell), bash(tell)), calls(background(tell)), says("Done."))
    cli.stream(BYPASS, "go")
    found = of(cli, ToolEnded)
    ids = (cli.project / "ids").read_text().split()
    assert sorted(ids) == sorted(f"{cli.session}/{one.call}" for one in found)
    assert len(set(ids)) == 3


# --- Starting -------------------------------------------------------------------------------------


# --- Telling --------------------------------------------------------------------------------------


ENDED = (
    "longrein: b2 was not over when the answer was done, so it was ended (--wait-tasks S waits for "
    "it): {}"
)


def test_B7_a_command_that_fails_says_how(cli: CliHarness) -> None:
    commands = {
        "cd /nowhere/at/all && ls": 1,
        "no-such-program-here": 127,
        "kill -9 $$": None,
        "exit 7": 7,
    }
    cli.plays(calls(*map(background, commands)), *[says("so")] * 5)
    assert cli.run("-p", "go", BYPASS).code == 0
    ends = {end.task: (end.state, end.code, end.cause) for end in of(cli, TaskEnded)}
    assert [ends[f"b{n}"] for n in range(1, 5)] == [
        ("failed", code, "" if code else "SIGKILL") for code in commands.values()
    ]


def test_B10_drain_waits_and_asks_nobody(cli: CliHarness) -> None:
    cli.plays(calls(background(f"{UNTIL_GO}; echo late")), says("done"))
    going = cli.start("-p", "go", BYPASS, "--background", "drain")
    assert going.line() == b"done\n"
    cli.go()
    assert going.end().told() == (0, "done\n", "")
    assert ended(cli) == [("b1", "done", 0)]
    assert not told(cli)


def test_steer_is_bounded_by_turns_and_time(cli: CliHarness) -> None:
    cli.plays(calls(background(UNTIL_GO)), says("one"), says("never asked"))
    going = cli.start("-p", "go", BYPASS, "--max-turns", "2")
    assert going.line() == b"one\n"
    cli.go()
    assert going.end().text == "one\n"
    cli.settings("[tasks]\nbackground_s = 0.3")
    cli.plays(calls(background("sleep 30")), says("one"))
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "one\n")
    assert ran.err == "longrein: b1 goes on in the background: sleep 30\n"
    cli.clean_up()


def test_a_run_ends_with_its_answer_and_says_which_command_it_ended(cli: CliHarness) -> None:
    cli.plays(calls(bash("tail -f /dev/null", timeout=100)), says("it hangs"))
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "it hangs\n")
    assert ran.err == ENDED.replace("b2", "b1").format("tail -f /dev/null") + "\n"
    assert [end.state for end in of(cli, TaskEnded)] == ["killed"]
    assert not cli.wait_survivors()


ASK = (
    "read x </dev/tty",
    "read x",
    "cat",
    "python3",
    "python3 -c 'import getpass; getpass.getpass()'",
    "git commit --allow-empty",
    "less /etc/hosts",
)
KEYS = "python3 -c 'import os, select; os.dup2(2, 0); select.select([0], [], [])'"


@pytest.mark.skipif(not os.path.exists("/proc/self/wchan"), reason="needs Linux")
@pytest.mark.parametrize("rung", ["bubblewrap", "landlock", "none"])
def test_nothing_waits_for_a_terminal_until_its_limit(cli: CliHarness, rung: str) -> None:
    if rung == "none":
        cli.without_sandbox()
    elif rung == "landlock":
        broken_program(cli)
    cli.plays(calls(*map(bash, ASK), bash(KEYS)), says("so"))
    assert cli.run("-p", "go", BYPASS).code == 0
    assert not of(cli, TaskStarted), "nothing went to the background"
    status, told = cli.results()[-1]
    assert status == "failed"
    assert re.fullmatch(
        r"\[python\S* waits for keys of a terminal and there is none: ended after \d+ s; "
        r"change files with Edit or Write, and use commands and flags that ask nothing\]",
        told.splitlines()[-1],
    )


def test_a_run_waits_for_a_command_past_its_limit_where_it_is_asked_to(cli: CliHarness) -> None:
    cli.plays(calls(bash(f"{UNTIL_GO}; echo late", timeout=100)), says("wait"), says("it is done"))
    going = cli.start("-p", "go", BYPASS, "--wait-tasks", "60")
    assert going.line() == b"wait\n"
    cli.go()
    assert going.end().told() == (0, "wait\n\nit is done\n", "")


def test_a_run_that_stays_for_a_command_that_hangs_says_so(cli: CliHarness) -> None:
    cli.plays(calls(bash("sleep 300", timeout=100)), says("it hangs"))
    going = cli.start("-p", "go", BYPASS, "--wait-tasks", "20")
    assert going.line() == b"it hangs\n"
    assert going.process.stderr is not None
    assert going.process.stderr.readline() == b"longrein: waiting at most 20 s for b1 (sleep 300)\n"
    going.send(signal.SIGINT)
    assert going.end().code == 130
    assert not cli.wait_survivors()


def test_B13_the_users_lines_are_not_stolen(cli: CliHarness) -> None:
    cli.plays(
        calls(bash('read x; echo "fg: $x"')), calls(background('read x; echo "bg: $x"')), says("so")
    )
    cli.run("-p", "go", BYPASS, "--background", "exit", stdin=b"a secret line\n")
    assert cli.results()[0] == ("ok", "fg: ")
    cli.clean_up()


# --- Leaving and coming back ----------------------------------------------------------------------


def test_B14_a_kept_task_outlives_a_killed_longrein_and_is_adopted(cli: CliHarness) -> None:
    cli.plays(
        calls(background(f"echo begun; {UNTIL_GO}; echo done; exit 5")),
        calls(bash("sleep 48.15")),
        says("welcome back"),
        says("I see"),
    )
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: cli.running("sleep\x0048.15"))
    kill(going)
    wait_until(lambda: not cli.running("sleep\x0048.15"), GONE_S)  # foreground: ended
    assert cli.running("echo begun; until"), "background: goes on"
    cli.go()
    ran = cli.run("-p", "-c", "and now?", BYPASS, "--background", "drain")
    assert ran.code == 0
    assert ended(cli) == [("b1", "failed", 5)]
    assert cli.run("-p", "-c", "and now?", BYPASS).code == 0
    (end,) = of(cli, TaskEnded)
    assert end.tail == "begun\ndone"
    assert len(lines(told(cli))) == 1


def supervisors(cli: CliHarness) -> list[int]:
    return cli.running("longrein.workspace.supervisor")


def test_B14_when_both_are_killed_it_is_lost_and_no_exit_code_is_invented(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 40.5")), calls(bash("sleep 48.35")), says("I see"))
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: cli.running("sleep\x0048.35"))
    (supervisor,) = supervisors(cli)
    going.send(signal.SIGSTOP)  # so that it does not go on between the two kills
    kill_process(cli, supervisor)
    kill(going)
    ran = cli.run("-p", "-c", "and now?", BYPASS)
    assert ran.code == 0, ran.told()
    assert ended(cli) == [("b1", "lost", None)]
    assert of(cli, TaskEnded)[0].cause
    assert "lost" in lines(told(cli, "bg_lost"))[0]
    assert not cli.running("sleep\x0040.5")


def test_B14_what_both_left_running_is_ended_by_a_look_at_the_tasks_and_told(
    cli: CliHarness,
) -> None:
    cli.plays(calls(background("sleep 40.6")), calls(bash("sleep 48.36")))
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: cli.running("sleep\x0048.36"))
    (supervisor,) = supervisors(cli)
    going.send(
        signal.SIGSTOP
    )  # so that it does not see the supervisor die and end the commands itself
    kill_process(cli, supervisor)
    kill(going)
    ran = cli.run("tasks")
    assert ran.code == 0
    assert ran.err.startswith("longrein: ended what a crash had left running: sleep (")
    assert "lost (its supervisor ended" in ran.text
    assert not cli.running("sleep\x0040.6")
    assert not cli.running("sleep\x0048.36")
    assert cli.run("tasks").err == ""


def test_a_question_does_not_wait_for_what_ran_before_it(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 47.5")), says("it runs"), says("yes"))
    cli.run("-p", "serve", BYPASS, "--background", "exit")
    ran = cli.run("-p", "does it run?", "-c", BYPASS)
    assert ran.told() == (0, "yes\n", "longrein: b1 goes on in the background: sleep 47.5\n")
    cli.clean_up()


def test_a_copy_of_a_session_does_not_claim_its_tasks(cli: CliHarness) -> None:
    cli.plays(
        calls(background(f"{UNTIL_GO}; exit 3")),
        says("bye"),
        says("I see"),
        says("ah"),
    )
    cli.run("-p", "go", BYPASS, "--background", "exit")
    first = cli.session
    copy = "0192d0c8-0000-7000-8000-0000000000cc"
    ran = cli.run(
        "-p", "and?", "-c", "--fork-session", "--session-id", copy, BYPASS, "--background", "exit"
    )
    assert ran.code == 0
    (end,) = [entry.event for entry in cli.entries(copy) if isinstance(entry.event, TaskEnded)]
    assert (end.state, end.cause) == (
        "lost",
        f"it belongs to session {first}, of which this is a copy",
    )
    cli.go()
    cli.run("-p", "and?", "-r", first, BYPASS, "--background", "drain")
    (end,) = [entry.event for entry in cli.entries(first) if isinstance(entry.event, TaskEnded)]
    assert (end.state, end.code) == ("failed", 3)


def test_leaving_ends_what_may_not_stay_and_names_what_goes_on(cli: CliHarness) -> None:
    turns = calls(background("sleep 43.5")), calls(bash("sleep 42.5", timeout=100)), says("bye")
    cli.plays(*turns)
    ran = cli.run("-p", "go", BYPASS, "--background", "exit")
    assert (ran.code, ran.text) == (0, "bye\n")
    kept = "longrein: b1 goes on in the background: sleep 43.5"
    assert ran.err.splitlines() == [ENDED.format("sleep 42.5"), kept]
    assert ended(cli) == [("b2", "killed", None)]
    assert not cli.running("sleep\x0042.5")
    assert cli.running("sleep\x0043.5")
    cli.clean_up()


def test_A18_15_stream_json_says_who_spoke(cli: CliHarness) -> None:
    cli.plays(calls(background(f"{UNTIL_GO}; echo late")), says("done"), says("now it is"))
    going = cli.start("-p", "go", BYPASS, "--output-format", "stream-json")
    for _ in ("the call", "done"):
        going.wait_for("assistant")
    cli.go()
    ran = going.end()
    (line,) = [line for line in ran.lines if line.get("origin")]
    assert line["origin"] == {"kind": "task-notification"}
    kinds = [line["subtype"] for line in ran.lines if line.get("subtype", "").startswith("task")]
    assert kinds == ["task_started", "task_notification"]
    assert ran.result["result"] == "done\n\nnow it is"


def test_what_may_run_in_the_background_is_what_may_run_at_all(cli: CliHarness) -> None:
    cli.without_sandbox()
    cli.plays(
        calls(background("touch made")),
        calls(call("TaskInput", task_id="b1", text="y")),
        says("I may not"),
    )
    ran = cli.run("-p", "go")
    assert ran.code == 3
    assert [status for status, _ in cli.results()] == ["denied", "denied"]
    assert not (cli.project / "made").exists()


# --- A longrein in a command ----------------------------------------------------------------------


@pytest.mark.parametrize("flag", [False, True])
def test_B14_what_a_longrein_in_a_command_leaves_is_listed_and_ends_with_the_one_above(
    cli: CliHarness, flag: bool
) -> None:
    cli.without_sandbox()
    inner = cli.folder / "inner.json"
    inner.write_text(json.dumps({"turns": [calls(background("sleep 97")), says("it sleeps")]}))
    cli.settings(f'[providers.inner]\nwire = "scripted"\nbase_url = "{inner}"')
    nested = f"{cli.command[0]} -p go {BYPASS} --background exit --model inner/one"
    cli.plays(
        calls(bash(f"mkdir -p below; cd below; {nested}; {cli.command[0]} tasks")),
        says("it has ended"),
    )
    words, env = [], {}
    if flag:  # named on the command line, and not absolute: it holds below all the same
        words, env = ["--state-dir", "../state"], {"LONGREIN_STATE_DIR": ""}
    ran = cli.run("-p", "go", BYPASS, *words, env=env)
    assert ran.told() == (0, "it has ended\n", "")
    (text,) = [text for _, text in cli.results()]
    assert (
        "b1 goes on in the background, at most until the longrein above this one is left: sleep 97"
        in text
    )
    assert re.search(r"/b1 +running ", text), (
        f"`longrein tasks` of the same command lists it: {text}"
    )
    assert len(cli.sessions) == 2
    assert cli.wait_survivors() == []
    assert "lost" not in cli.run("tasks").text


# --- Ends, threads and odd places -----------------------------------------------------------------


def test_B14_a_signal_ends_the_foreground_keeps_tasks_and_names_them(cli: CliHarness) -> None:
    number = signal.SIGTERM
    cli.plays(
        calls(background("sleep 44.5")),
        calls(bash(f"sleep 45.0{number}9")),
        says("welcome back"),
        says("so"),
    )
    going = cli.start("-p", "go", BYPASS)
    wait_until(lambda: cli.running(f"sleep\x0045.0{number}9"))
    going.send(number)
    ran = going.end()
    assert ran.code == 128 + number
    assert "longrein: b1 goes on in the background: sleep 44.5\n" in ran.err
    assert not cli.running(f"sleep\x0045.0{number}9")
    stopped = cli.run("tasks", "stop", "b1")
    assert stopped.told() == (0, "", "longrein: b1 is over: killed (stopped by the user)\n")
    assert cli.run("tasks", "stop", "b1").code == 0, "a second stop is no mistake"
    assert cli.run("-p", "and?", "-c", BYPASS).text == "welcome back\n"
    assert ended(cli) == [("b1", "killed", None)]
    assert len(lines(told(cli))) == 1


def test_a_run_at_its_limit_of_turns_does_not_wait_for_what_it_cannot_tell(cli: CliHarness) -> None:
    cli.plays(calls(background("sleep 46.5")), says("never"))
    ran = cli.run("-p", "go", BYPASS, "--max-turns", "1")
    assert ran.code == 4
    assert ran.err.startswith("longrein: b1 goes on in the background: sleep 46.5\n")
    cli.clean_up()


def test_64_MB_of_output_under_a_quota_of_1_keep_both_ends_and_say_what_is_missing(
    cli: CliHarness,
) -> None:
    cli.settings("[tasks]\nquota_mb = 1")
    cli.plays(
        calls(background("echo BEGIN; yes 0123456789abcde | head -c 64000000; echo END; exit 9")),
        says("started"),
        calls(call("TaskOutput", task_id="b1", tail=1)),
        says("I see"),
    )
    assert cli.run("-p", "go", BYPASS).code == 0
    (end,) = of(cli, TaskEnded)
    assert (end.state, end.code, end.size_bytes) == ("failed", 9, 64_000_010)
    assert 62_000_000 < end.elided_bytes < 64_000_010
    (line,) = lines(told(cli))
    assert "failed, exit code 9" in line
    assert "what was kept of it in r" in line, "part of it is not called all of it"
    assert "bytes of its middle were not kept" in cli.results()[1][1]
    blob = next(p for p in cli.session_folder().rglob("*") if p.is_file() and p.name == end.output)
    assert blob.read_bytes().startswith(b"BEGIN\n0123")
    assert blob.read_bytes().endswith(b"END\n")
    stored = sum(path.stat().st_size for path in cli.state.rglob("*") if path.is_file())
    assert stored < 4_000_000


def test_a_task_whose_spool_was_deleted_ends_as_it_ended_and_promises_no_output(
    cli: CliHarness,
) -> None:
    cli.without_sandbox()
    cli.plays(
        calls(background(f"echo begun; {UNTIL_GO}; exit 3")),
        calls(bash(f"rm -r {cli.state}/sessions/*/tasks; touch go; sleep 0.4")),
        calls(bash("echo on")),
        *[says("I see")] * 2,  # the second if the task ends after the first
    )
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.err) == (0, "")
    assert ended(cli) == [("b1", "failed", 3)]
    (line,) = lines(told(cli))
    assert "No such file or directory" in line
    assert line.endswith("; 6 bytes of output, none of which was kept")
    assert cli.results()[-1] == ("ok", "on")


def test_R086_the_folder_of_the_session_was_deleted(cli: CliHarness) -> None:
    shutil.rmtree(cli.project / ".git")
    cli.without_sandbox()
    cli.plays(
        calls(bash(f"rm -r {cli.project}")),
        calls(background("pwd"), bash("pwd")),
        calls(call("Write", file_path="a.txt", content="x")),
        calls(background("ls; exit 4")),
        says("so"),
        says("I see"),
    )
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.err) == (0, "")
    _, one, two, _, _ = cli.results()
    for status, text in (one, two):
        assert status == "failed"
        assert "does not exist (any more)]" in text
        assert text.endswith(
            "[the folder of this session is gone, so no command can run; a file written into it "
            "makes it again]"
        )
    assert [(end.state, end.code, end.tail) for end in of(cli, TaskEnded)] == [
        ("failed", 4, "a.txt")
    ]


def test_on_a_full_disk_a_task_ends_as_it_ended_and_says_what_is_missing(cli: CliHarness) -> None:
    cli.env["PYTHONDONTWRITEBYTECODE"] = (
        "1"  # half a file of bytecode would be one that no later start could read
    )
    cli.plays(
        calls(background("yes | head -c 3000000; exit 3")),
        calls(bash("sleep 0.4")),
        *[says("I see")] * 3,
    )
    ran = cli.run("-p", "go", BYPASS, preexec_fn=full(100_000))
    assert (ran.code, ran.err) == (0, ""), ran.told()
    (end,) = of(cli, TaskEnded)
    assert (end.state, end.code, end.size_bytes, end.output) == ("failed", 3, 3_000_000, "")
    assert "output not kept whole: File too large" in end.cause
    kept = end.cause.rpartition(" and lies in ")[2]
    assert Path(kept).read_bytes().startswith(b"y\ny\n"), "the only copy is not removed"
    assert cli.run("-p", "and?", "-c", BYPASS).code == 0
    assert len(lines(told(cli))) == len(of(cli, TaskEnded)) == 1


def test_queued_tasks_that_are_left_wait_for_the_next_start_and_run_once(cli: CliHarness) -> None:
    waits = f"{UNTIL_GO}; echo "
    cli.settings("[tasks]\nmax = 1")
    cli.plays(
        calls(*[background(f"{waits}{n} >> r") for n in range(3)]),
        says("bye"),
        *[says("so")] * 9,
    )
    ran = cli.run("-p", "go", BYPASS, "--background", "exit")
    assert ran.err == (
        f"longrein: b1 goes on in the background: {waits}0 >> r\n"
        f"longrein: b2 waits for `longrein -p -c` to begin: {waits}1 >> r\n"
        f"longrein: b3 waits for `longrein -p -c` to begin: {waits}2 >> r\n"
    )
    cli.go()
    assert cli.run("-p", "and?", "-c", BYPASS, "--background", "drain").code == 0
    assert (cli.project / "r").read_text() == "0\n1\n2\n"
    assert ended(cli) == [("b1", "done", 0), ("b2", "done", 0), ("b3", "done", 0)]


def test_a_folder_with_a_line_break_in_its_name_is_a_folder_like_others(tmp_path: Path) -> None:
    cli = CliHarness(tmp_path / "a b\n\x1b[31mc'd")
    with Provider(
        Loopback(
            when="SPLIT",
            calls=(Call("Bash", {"command": "pwd; exit 3", "run_in_background": True}),),
        ),
        Loopback(when="SPLIT", calls=(tasks("APPLE"),)),
        Loopback(when="SPLIT", calls=(Call("Bash", {"command": "sleep 0.2"}),)),
        *part("APPLE", "pwd"),
        *[Loopback(when="SPLIT", text="done")] * 2,  # the second if the task ends after the first
    ) as provider:
        cli.config.write_text(provider.settings("anthropic", 'model = "served/one"'))
        ran = cli.run("-p", "SPLIT", BYPASS)
        assert (ran.code, set(ran.text.split()), ran.err) == (0, {"done"}, "")
    assert ended(cli) == [("b1", "failed", 3)]
    assert of(cli, TaskEnded)[0].tail == str(cli.project).replace("\x1b[31m", ""), (
        "a colour is no part of a text"
    )
    for words in (["sessions"], ["tasks", cli.session], ["agents", cli.session]):
        ran = cli.run(*words)
        assert ran.code == 0
        assert "\x1b" not in ran.text
    assert len(cli.run("sessions").text.splitlines()) == 2
    assert cli.wait_survivors() == []

"""The whole program on a real terminal with a provider over HTTP: tasks, subagents, steering,
leaving.
"""

import os
import re
import shutil

import pytest

from longrein.store import SessionHistory
from longrein.testing.loopback import Call, Fault, Turn
from longrein.workspace import spooled_tasks
from longrein_context.events import TaskEnded, UserSpoke, text_of
from tests.e2e.harness import CliHarness, Provider
from tests.terminal.pseudo_terminal import PseudoTerminal

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="commands need a shell")


def open_it(cli: CliHarness, provider: Provider, *arguments: str, more: str = "") -> PseudoTerminal:
    cli.settings(provider.settings("anthropic", more), "served/small")
    return PseudoTerminal("", cli.project, 110, 34, **cli.env, ARGS=" ".join(arguments))


def bash(command: str, **more: object) -> Call:
    return Call("Bash", {"command": command, **more})


def test_B1_B10_B14_a_task_from_its_start_through_its_wake_to_the_end(cli: CliHarness) -> None:
    turns = [
        Turn(
            text="Two things.",
            calls=(bash("sleep 60", run_in_background=True), bash("read line < gate; exit 3")),
        ),
        Turn(text="I go on meanwhile."),
        Turn(text="It failed."),
    ]
    os.mkfifo(cli.project / "gate")
    with (
        Provider(*turns) as provider,
        open_it(cli, provider, "--permission-mode", "bypassPermissions") as tty,
    ):
        tty.ask("go").until("task b1 started  sleep 60").until("○ Bash running")
        tty.until(
            lambda: tty.send("\x02") or any("task b2 goes on" in row for row in tty.lines())
        )  # once it has begun
        tty.until("task b2 goes on in the background  read line").until("I go on meanwhile.").until(
            "idle · served"
        )
        tty.until("2 tasks  b1 sleep 60")
        (cli.project / "gate").write_text("now\n")
        tty.until("task b2 failed  exit code 3").until("woken  a background task has ended").until(
            "It failed."
        )
        tty.until("1 task  b1 sleep 60").until("idle · served").send("\x04")
        tty.until("1 task still runs (b1 sleep 60): what becomes of it?").send("\r").exits(0)
    assert cli.wait_survivors() == []
    past = SessionHistory(str(cli.state), cli.session)
    ends = [
        entry.event for entry in past.of_kind("TaskEnded") if isinstance(entry.event, TaskEnded)
    ]
    past.close()
    assert [(end.task, end.state) for end in ends] == [("b1", "killed"), ("b2", "failed")]


def test_B14_in_the_middle_of_a_turn_tasks_are_ended_and_the_turn_is_kept(cli: CliHarness) -> None:
    turns = [
        Turn(calls=(bash("sleep 60", run_in_background=True),)),
        Turn(text="word " * 300, pace_s=0.05, deltas=300),
    ]
    with Provider(*turns) as provider:
        with open_it(cli, provider, "--permission-mode", "bypassPermissions") as tty:
            tty.ask("go").until("task b1 started  sleep 60").until("word word").send("\x04")
            tty.until("what becomes of it?").send("\r").exits(0)
            assert any("ending b1" in row for row in tty.lines())
        assert [one.state for one in spooled_tasks(str(cli.session_folder()))] == ["killed"]
        with open_it(cli, provider, "-c") as tty:
            tty.until("the last turn was cut off  Enter goes on with it")
            tty.until("task b1 killed  stopped by longrein on leaving")


READ = '[permissions]\nallow = ["Bash(cat gate)"]'


def part(name: str, *steps: Turn) -> list[Turn]:
    return [Turn(when=f"Task {name}", text=s.text, calls=s.calls, delay_s=s.delay_s) for s in steps]


def test_E17_two_subagents_one_asks_one_is_steered_and_both_report(cli: CliHarness) -> None:
    jobs = [
        {"description": "write the notes", "prompt": "Task APPLE", "subagent_type": "general"},
        {"description": "look around", "prompt": "Task BEECH"},
    ]
    turns = [
        Turn(when="SPLIT", calls=(Call("Agent", {"description": "both", "tasks": jobs}),)),
        Turn(when="SPLIT", text="Both are done."),
        *part(
            "APPLE",
            Turn(calls=(Call("Write", {"file_path": "n.md", "content": "one\n"}),)),
            Turn(text="Written."),
        ),
        *part("BEECH", Turn(calls=(bash("cat gate"),)), Turn(text="Seen.")),
    ]
    os.mkfifo(cli.project / "gate")
    with Provider(*turns) as provider, open_it(cli, provider, more=READ) as tty:
        tty.ask("SPLIT").until("general asks: Write: it changes n.md").until("│ 1 + one").until(
            tty.keys_count
        )
        tty.send("y").until("look around · Bash cat gate")
        tty.until(lambda: not any("write the notes ·" in row for row in tty.lines()))
        label = next(row.split()[1] for row in tty.lines() if "look around ·" in row)
        tty.send(f"/agents tell {label} mind the gap\r")
        tty.until(f"to {label}, with its next request: mind the gap")
        (cli.project / "gate").write_text("now\n")
        tty.until(f"› mind the gap  (delivered to {label} general)").until(
            "2 subagents done"
        ).until("Both are done.")
        tty.until("idle · served").leave()
    assert (cli.project / "n.md").read_text() == "one\n"
    past = SessionHistory(str(cli.state), cli.session)
    child = past.child(next(e.event.child for e in past.of_kind("ChildStarted")))  # type: ignore[union-attr]
    assert child is not None
    spoken = [
        text_of(e.event.parts) for e in child.of_kind("UserSpoke") if isinstance(e.event, UserSpoke)
    ]
    past.close()
    assert spoken[0] == "mind the gap"


def test_who_leaves_a_subagent_at_work_is_told_so_and_it_goes_on_when_they_come_back(
    cli: CliHarness,
) -> None:
    job = Call("Agent", {"description": "look", "prompt": "Task APPLE", "run_in_background": True})
    turns = [
        Turn(when="SPLIT", calls=(job,)),
        Turn(when="SPLIT", text="It looks."),
        *part("APPLE", Turn(calls=(bash("sleep 50"),)), Turn(text="Seen.")),
        Turn(when="SPLIT", text="It has seen."),
    ]
    with Provider(*turns) as provider:
        with open_it(cli, provider, "--permission-mode", "bypassPermissions") as tty:
            tty.ask("SPLIT").until("It looks.").until("Bash sleep 50").until("idle · served").send(
                "\x04"
            )
            tty.exits(0)
            assert any(
                "goes on with it, and with 1 subagent at work (a9)" in row for row in tty.lines()
            )
        assert cli.wait_survivors() == []
        with open_it(cli, provider, "-c", "--permission-mode", "bypassPermissions") as tty:
            tty.until("a9 general done").until("It has seen.").until("idle · served").leave()


def footer(tty: PseudoTerminal) -> str:
    """The word that says what goes on."""
    return next((row.split(" · ")[0] for row in reversed(tty.lines()) if " · served/" in row), "")


def overloaded(**headers: str) -> Fault:
    return Fault(
        status=529,
        headers=headers,
        body='{"error": {"message": "Overloaded \\u001b[31m"}}',
        times=1,
    )


WAITED = Turn(text="never", fault=overloaded(**{"retry-after": "30"}))
"""The provider wants a pause of half a minute."""


def test_a_retry_says_why_which_attempt_and_when(cli: CliHarness) -> None:
    with Provider(WAITED) as provider, open_it(cli, provider) as tty:
        tty.ask("go").until(r"s, attempt 2 of 10: Overloaded \x1b[31m")
        assert any(re.search(r"retrying in \d+ s, attempt", row) for row in tty.lines())
        assert footer(tty) == "retrying"
        tty.send("\x1b").until("interrupted  say what to do instead").until(
            lambda: footer(tty) == "idle"
        )

"""Tasks, subagents and messages to them on a real terminal."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_plain import play


def answers(told: list[Any]) -> list[Any]:
    return [word for word in told if word["type"] == "Answer"]


def test_E15_what_works_beside_is_seen_while_it_works_and_when_it_is_over(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 110, 40) as tty:
        tty.ask("wait").until(
            "○ a10 explore running 4 s  find the \\u202eparser · Read src/parser.py"
        )
        rows = tty.lines()
        assert any("2 steps, 12.3k tokens, $0.02" in row for row in rows)
        tasks = (
            r"3 tasks  b1 npm run dev \d+ s · b2 pytest -q \\x1b\[31m \d+ s · b3 make docs queued"
        )
        assert any(re.search(tasks, row) for row in rows)
        assert "task b3 waits for its turn  make docs" in rows
        assert not any("a10 explore started" in row for row in rows), "the live row tells it"
        tty.until("3 tasks, 2 agents")
        assert b"\x1b[31m " not in tty.raw.replace(b"\x1b[31m\xe2", b"")
        tty.send("/agents\r").until("subagents").until("  ○ a11 general running  write the tests")
        tty.send("/agents 10\r").until("subagent a10").until("    do: find the \\u202eparser")
        tty.send("/agents stop a11\r")
        tty.until("a11 is being stopped; it reports what it has").until("a11 general interrupted")
        tty.send("/agents stop a11\r").until(
            "a11 is over (interrupted); ask the model to ask it again"
        )
        tty.send("/agents nobody\r").until("no subagent nobody; known: a10, a11")


def test_B6_tasks_are_listed_looked_at_and_stopped(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 110, 40) as tty:
        tty.ask("wait").until("3 tasks, 2 agents").send("/tasks\r")
        tty.until("background tasks").until("  b1    running").until("  b3    queued").send(
            "/tasks b1 3\r"
        )
        tty.until("task b1").until(r"  line 2 of b1 \x1b[2J").send("/tasks stop b1\r")
        tty.until("task b1 is being stopped").until(
            "task b1 killed  stopped by the user  npm run dev"
        )
        tty.until("2 tasks, 2 agents").send("/tasks stop b1\r").until(
            "task b1 is over already: killed"
        )
        tty.send("/tasks b9\r").until("no task b9; known: b1, b2, b3")


def test_E17_a_subagent_asks_with_its_name_and_is_answered_alone(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("go").until("? a11 general asks: Bash: no rule allows it").until(
            "│ rm -rf build"
        ).until(tty.keys_count)
        assert any("waiting · mock/small" in row for row in tty.lines())
        tty.send("y").until("a10 explore done  4.2 s, 2 steps, 12.3k tokens, $0.02  find the")
        tty.until("a11 general limit reached  1 m 05 s, 9 steps  write the tests").until(
            "  9 of 9 requests used"
        )
        tty.until("task b2 failed  exit code 1, 12 s, 3.5 kB  pytest").until(r"  1 failed \x07")
        tty.until("task b3 began: its turn has come  make docs")
        tty.until("You said allow to two.").until("2 tasks  b1").until("idle").send("\x04")
        tty.until("2 tasks still run (b1 npm run dev, b3 make docs): what becomes of them?").send(
            "\r"
        ).exits(0)
        assert (tmp_path / "left").read_text() == "stop"
        [answer] = answers(tty.told())
        assert (answer["call"], answer["verdict"], answer["session"]) == ("c2.0", "allow", "two")


@pytest.mark.parametrize("key", ["n", "\x1b"], ids=["n", "esc"])
def test_a_no_to_a_subagent_is_a_no_to_that_call_only(tmp_path: Path, key: str) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("go").until("? a11 general asks").until(tty.keys_count).send(key)
        tty.until("You said deny to two.").until("idle")
        assert not any("interrupted" in row for row in tty.everything())


def test_one_thing_of_all_that_runs_is_stopped(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("/stop").until("nothing runs that could be stopped").ask("wait").until(
            "3 tasks, 2 agents"
        )
        tty.send("/stop\r")
        tty.until("stop which?").until("› Agent look around  call").until(
            "explore: find the \\u202eparser  a10"
        )
        tty.send("\x1b[B\x1b[B\x1b[B\r")
        tty.until("task b1 is being stopped").until("task b1 killed").until("2 tasks, 2 agents")
        tty.send("/stop a11\r").until("a11 is being stopped").until("a11 general interrupted")
        tty.send("/stop b9\r").until(
            "nothing that runs is called b9; /stop lists what can be stopped"
        )
        tty.send("/stop c4.0\r")
        tty.until("Agent look around is being stopped").until("interrupted  say what to do instead")


def test_E4_a_message_to_a_subagent_waits_is_taken_back_and_is_delivered(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("wait").until("3 tasks, 2 agents").send("/agents tell a10 look in lib, too\r")
        tty.until("to a10, with its next request: look in lib, too").until(
            "↑ takes the last one back"
        )
        tty.send("\x1b[A").until("› /agents tell a10 look in lib, too")
        assert not any("with its next request" in row for row in tty.lines())
        tty.send(" \x1b\rand quickly\r").until(
            "to a10, with its next request: look in lib, too \\nand quickly"
        )
        tty.send("/queue\r")
        tty.until("waiting messages").until(
            "  2 to a10, with its next request: look in lib, too"
        ).until("/queue drop")
        tty.send("/queue drop 2\r")
        tty.until("thrown away: look in lib, too").until(
            lambda: "1 queued" not in "".join(tty.lines())
        )
        tty.send("/queue 1\r").until("that message waits no more: it has been delivered")


def test_B1_ctrl_b_sends_the_command_to_the_background_and_its_end_wakes(tmp_path: Path) -> None:
    with PseudoTerminal("promote", tmp_path) as tty:
        tty.ask("go").until("○ Bash running").until("Ctrl-B backgrounds").send("\x02")
        tty.until("task b1 goes on in the background  make all").until("I go on meanwhile.")
        tty.until("task b1 done  1.2 s  make all").until(
            "woken  a background task has ended (r12)"
        ).until("It is built.").until("idle")
        tty.send("\x02").until("no command runs that could go to the background").leave()


def test_goals_are_seen_and_changed(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 100, 50) as tty:
        for command, seen in {
            "/goals": "  [>] #2 tests  (by a398; after #1)",
            "/goals all": r"  [x] #1 a parser \x1b[31m",
            "/goals add write the docs after 2": "  [ ] #3 write the docs  (after #2)",
            "/goals done 2": "  can begin now: [ ] #3 write the docs",
            "/goals done 77": "  there is no goal 77",
            "/goals frob": "  /goals [all | N | add TITLE",
        }.items():
            tty.ask(command).until(seen)
        tty.leave()


@pytest.mark.parametrize(
    ("keys", "left"), [("\r", "stop later"), ("\x1b[B\r", "keep later"), ("\x04", ""), ("\x03", "")]
)
def test_B14_leaving_asks_what_becomes_of_running_tasks(
    tmp_path: Path, keys: str, left: str
) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("wait").until("3 tasks, 2 agents").send("\x04")
        tty.until("3 tasks still run (b1 npm run dev,").until("1 of 3; type to search, ↑ ↓ move")
        for key in (keys[:-1], keys[-1]) if keys.endswith("\r") else (keys,):
            tty.send(key)
        tty.exits(0)
        assert (
            tmp_path / "left"
        ).read_text() == left  # later: in the middle of a turn, so when it is closed


def test_B14_one_may_stay_and_settings_may_have_answered(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, 100, 40) as tty:
        tty.ask("wait").until("3 tasks, 2 agents").send("\x04").until("what becomes of them?").send(
            "\x1b"
        )
        tty.until("Enter queues").send("\x04").until("what becomes of them?").send("\x1b[B\x1b[B")
        tty.until("3 of 3").send("\r").until("Enter queues")
    with PseudoTerminal("company", tmp_path, 100, 40, LEAVE="keep") as tty:
        tty.ask("wait").until("3 tasks, 2 agents").send("\x04").exits(0)
    assert (tmp_path / "left").read_text() == "keep later"


def test_R095_without_a_screen_all_of_it_is_lines(tmp_path: Path) -> None:
    out = play("company", tmp_path, "go\n/tasks\n/agents tell a10 x\n/queue\n/goals\n")
    assert "\x1b" not in out
    for row in (
        "task b1 started  npm run dev",
        "  a11 Bash rm -rf build",
        "a10 explore started  find the \\u202eparser",
        "? a11 general asks: Bash: no rule allows it",
        "You said deny to two.",
    ):
        assert f"{row}\n" in out, out


def test_R095_without_a_screen_leaving_asks_too(tmp_path: Path) -> None:
    with PseudoTerminal("company", tmp_path, TERM="dumb") as tty:
        tty.until(lambda: ">" in tty.lines()).send("go\n").until("answer>").send("n\n")
        tty.until("You said deny to two.").until(
            lambda: tty.lines()[-1] == ">" or ">" in tty.lines()[-3:]
        )
        tty.send("/exit\n")
        tty.until("2 tasks still run (b1 npm run dev, b3 make docs)").until(
            "  keep  leave them running"
        )
        tty.send("hm\n")  # it asks again
        tty.until(lambda: sum("still run" in row for row in tty.lines()) == 2).send("keep\n").exits(
            0
        )
        assert (tmp_path / "left").read_text() == "keep"

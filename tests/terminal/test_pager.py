"""Ctrl-O, `/show` and Ctrl-T of the real program: everything can be opened whole, and the screen
comes back.
"""

from pathlib import Path
from typing import Any

from longrein_context.events import TurnEnded
from tests.terminal.held_clock import set_clock
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_real import home, open_it
from tests.terminal.test_real_input import entries

SEQ = {"calls": [{"name": "Bash", "arguments": {"command": "seq 300"}}]}
EDIT = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
TURNS: tuple[dict[str, Any], ...] = (
    SEQ,
    {"calls": [{"name": "Read", "arguments": {"file_path": "calc.py"}}]},
    {
        "calls": [{"name": "Edit", "arguments": EDIT}],
        "thinking": "first I think\nevil \x1b[2J\x1b]0;x\x07",
    },
    {"text": "Done.\n"},
)
BYPASS = "--permission-mode bypassPermissions"


def numbers(tty: PseudoTerminal) -> list[int]:
    return [int(row) for row in tty.lines() if row.isdecimal()]


def test_I13_ctrl_o_opens_the_last_results_whole_and_comes_back(tmp_path: Path) -> None:
    with open_it(home(tmp_path, *TURNS), BYPASS) as tty:
        tty.ask("go").until("Done.").until("idle").until("say something")
        before, where = tty.lines(), (tty.screen.cursor.y, tty.screen.cursor.x)
        tty.send("\x0f").until("last results, thinking and diffs")
        assert tty.screen.is_alternate
        tty.until("- a - b").until("+ a + b")  # it opens at the newest
        tty.send("g").until("Bash  seq 300").until(lambda: numbers(tty)[:3] == [1, 2, 3])
        tty.send(" ").until(lambda: numbers(tty)[0] > 15)
        tty.send("/evil\r").until(r"evil \x1b[2J\x1b]0;x\x07")
        tty.send("/first i\r").until("first I think").send("/nowhere\r").until("not found: nowhere")
        tty.send("G\t").until("+ a + b").send("q").until(lambda: not tty.screen.is_alternate)
        tty.until("say something")
        assert (tty.lines(), (tty.screen.cursor.y, tty.screen.cursor.x)) == (before, where)
        assert b"\x1b[2J\x1b]0;x" not in tty.raw
        for key in ("\x1b", "\x03", "\x0f"):
            tty.send("\x0f").until("last results").send(key).until(
                lambda: not tty.screen.is_alternate
            )
        tty.send("\x04").exits(0)


def test_I13_keys_sent_along_with_the_one_that_closes_a_page_are_kept(tmp_path: Path) -> None:
    with open_it(home(tmp_path, *TURNS), BYPASS) as tty:
        tty.ask("go").until("Done.").until("idle").until("say something")
        for n in range(8):
            tty.send("\x0f").until("last results").send(f"q{n}")
            tty.until(lambda: not tty.screen.is_alternate)
        tty.until("01234567")
        tty.send("\x15\x0f").until("last results").send("\x1b")
        tty.until(lambda: not tty.screen.is_alternate).send("\x04").exits(0)


def test_I13_show_opens_an_entry_and_what_happens_meanwhile_is_printed_after(
    tmp_path: Path,
) -> None:
    held = {"text": " ".join(f"word{n:03}" for n in range(40)) + "\n"}
    project = home(tmp_path, SEQ, {"text": "Done.\n"}, held)
    with open_it(project, BYPASS, HOLD_AFTER="word010") as tty:
        tty.ask("go").until("Done.").until("idle").ask("/show").until("open what?").until(
            "Bash  seq 300"
        )
        tty.send("\r").until(lambda: tty.screen.is_alternate).until(
            lambda: numbers(tty)[:2] == [1, 2]
        )
        handle = tty.lines()[0]
        assert handle.startswith("r")
        tty.resize(40, 12).until(lambda: len(numbers(tty)) < 12 and tty.lines()[0] == handle)
        tty.resize(80, 24).send("q").until("say something").send(f"/show {handle}.1\r")
        tty.until(lambda: tty.screen.is_alternate and numbers(tty)[:2] == [1, 2]).send("q")
        tty.ask("/show r99999").until("There is no entry r99999").ask("/show what").until(
            "say which: /show r412"
        )
        tty.ask("more").until("word003").send("\x0f").until("last results")
        (project / "go").touch()
        tty.until(lambda: [type(one) for one in entries(project)].count(TurnEnded) == 2)
        tty.send("q").until("idle").until("word039")
        assert "".join(tty.text().split()).count("word001") == 1


def test_I13_a_signal_ends_the_program_while_a_page_is_open(tmp_path: Path) -> None:
    import os
    import signal

    with open_it(home(tmp_path, SEQ, {"text": "Done.\n"}), BYPASS) as tty:
        tty.ask("go").until("Done.").until("idle").until("say something").send("\x0f").until(
            "last results"
        )
        os.kill(tty.pid, signal.SIGTERM)
        tty.exits(143)
        assert not tty.screen.is_alternate
        assert not tty.screen.cursor.hidden


AGENT = {
    "calls": [
        {"name": "Agent", "arguments": {"description": "look around", "prompt": "Task APPLE"}}
    ]
}


def test_I13_a_subagents_transcript_opens_from_its_row_and_by_command(tmp_path: Path) -> None:
    with open_it(home(tmp_path, AGENT, SEQ, {"text": "It is whole.\n"}), BYPASS) as tty:
        tty.ask("go").until("general done").until("It is whole.").until("idle").until(
            "say something"
        ).send("\x0f").until("last results")
        tty.send("g").until("Enter opens").send("\r").until("/r4 the user").until("Task APPLE")
        tty.send("/seq 300\r").until(lambda: 1 in numbers(tty)).send("G").until("It is whole.")
        tty.send("q").until("last results").send("q").until(lambda: not tty.screen.is_alternate)
        label = next(row.split()[0] for row in tty.text().splitlines() if "general done" in row)
        tty.ask(f"/agents {label}").until(f"{label} general: look around").send("q")
        tty.ask(f"/show {label}").until(f"{label} general: look around").send("G").until(
            "It is whole."
        )


def test_I13_show_on_the_plain_terminal_prints_the_whole(tmp_path: Path) -> None:
    with open_it(
        home(tmp_path, SEQ, AGENT, {"text": "It is whole.\n"}, {"text": "Done.\n"}),
        f"--plain {BYPASS}",
    ) as tty:
        tty.until(lambda: any(row.endswith(">") for row in tty.lines())).send("go\n").until(
            "general done"
        )
        tty.until(
            lambda: (
                tty.lines()[-1].endswith("> ") or tty.text().rstrip().endswith("bypassPermissions>")
            )
        )
        tty.send("/show\n").until(lambda: any(row.startswith("/show a") for row in tty.lines()))
        handle = next(
            row.split()[1]
            for row in tty.everything()
            if "Bash  seq 300" in row and row.startswith("/show")
        )
        agent = next(row.split()[1] for row in tty.everything() if row.startswith("/show a"))
        tty.send(f"/show {handle}\n").until(lambda: "\n299\n300\n" in tty.text())
        tty.send(f"/show {agent}\n").until("It is whole.")


TODOS = [
    {"content": f"step {n}", "status": "completed" if n < 3 else "pending"} for n in range(1, 13)
]


def test_I13_ctrl_t_pins_the_todo_list_above_the_input_and_unpins_it(tmp_path: Path) -> None:
    write = {"calls": [{"name": "TodoWrite", "arguments": {"todos": TODOS}}]}
    with open_it(home(tmp_path, write, {"text": "Done.\n"}), BYPASS) as tty:
        tty.until("say something").send("\x14").until("the todo list is empty").send("\x14")
        tty.ask("go").until("Done.").until("idle").until("say something")

        def pinned() -> list[str]:
            end = max(
                (n for n, row in enumerate(tty.lines()) if "› say something" in row), default=0
            )
            start = max((n for n, row in enumerate(tty.lines()[:end]) if not row), default=0)
            return [row for row in tty.lines()[start:end] if row.startswith(("[ ] step", "todos:"))]

        tty.send("\x14").until("todos: 2 of 12 done; Ctrl-T unpins them").until("[ ] step 3")
        tty.resize(40, 12).until("todos: 2 of 12 done")
        tty.resize(80, 60).until(lambda: pinned()[-1:] == ["[ ] step 12"])
        tty.send("\x14").until(lambda: pinned() == [])


def test_I13_a_question_that_comes_up_below_a_page_is_announced_and_not_answered_by_accident(
    tmp_path: Path,
) -> None:
    look = {"calls": [{"name": "Read", "arguments": {"file_path": "calc.py"}}]}
    ask = {
        "text": "word " * 40 + "held",
        "calls": [{"name": "Bash", "arguments": {"command": "rm -rf build"}}],
    }
    project = home(tmp_path, look, ask, {"text": "Done.\n"})
    with open_it(project, HELD_CLOCK="1", QUIET_S="0.7", HOLD_AFTER="held") as tty:
        tty.ask("go").until("held").send("\x0f").until("last results")
        (project / "go").touch()
        tty.until("a question waits; q goes back to it")
        tty.send("q").until("? Bash").send("y").until("› y").send("\x15").until(
            lambda: "›" in tty.lines()
        )
        set_clock(project / "clock", 10)
        tty.until(tty.keys_count).send("n").until("Done.")


def test_reads_and_searches_in_a_row_are_one_line_that_opens(tmp_path: Path) -> None:
    look = {
        "calls": [
            {"name": "Read", "arguments": {"file_path": "calc.py"}},
            {"name": "Grep", "arguments": {"pattern": "return", "output_mode": "content"}},
        ]
    }
    once_more = {"calls": [{"name": "Glob", "arguments": {"pattern": "*.py"}}]}
    project = home(tmp_path, look, once_more, SEQ, {"text": "Done.\n"})
    with open_it(project, BYPASS) as tty:
        tty.ask("go").until("Done.").until("idle")
        [row] = [row for row in tty.lines() if "1 read, 2 searches ok r" in row]
        assert row.endswith("calc.py (2 lines), return (1 hit in 1 file), …")
        assert not any(row.startswith(("● Read", "● Grep", "● Glob")) for row in tty.lines())
        span = row.split()[6]
        at = next(n for n, row in enumerate(tty.lines()) if row.endswith("  seq 300"))
        assert tty.lines()[at + 1 : at + 5] == ["  … 297 lines above", "  298", "  299", "  300"]
        tty.send(f"/show {span}\r").until(lambda: tty.screen.is_alternate)
        tty.until("Read  calc.py").until("Grep  return").until("2:    return a - b").until(
            "Glob  *.py"
        )
        tty.send("q").until("idle")

"""The whole program on a real terminal, with a scripted model: the screen and a real session
together.
"""

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from longrein.store import Reader, list_sessions
from longrein_context.events import ToolEnded, text_of
from tests.terminal.pseudo_terminal import WIDE, PseudoTerminal

WORDS = " ".join(f"word{n:03}" for n in range(400)) + "\n"
LONG: dict[str, Any] = {"text": WORDS}
"""A reply that `open_it(hold_after=WORD)` holds."""
ASKED: dict[str, Any] = {
    "text": "I wait.\n",
    "calls": [{"name": "Bash", "arguments": {"command": "make it"}}],
}
RUNNING: dict[str, Any] = {"calls": [{"name": "Bash", "arguments": {"command": "sleep 60"}}]}


def home(tmp_path: Path, *turns: dict[str, Any]) -> Path:
    """A home and a project whose model plays `turns`."""
    settings = tmp_path / "home" / ".config" / "longrein"
    settings.mkdir(parents=True)
    script = tmp_path / "script.json"
    script.write_text(
        json.dumps({"turns": turns, "summaries": [{"text": "What was done: little."}] * 2})
    )
    provider = f'[providers.mock]\nwire = "scripted"\nbase_url = "{script}"\n'
    (settings / "config.toml").write_text(f'model = "mock/small"\n{provider}')
    project = tmp_path / "project"
    project.mkdir()
    (project / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    return project


def open_it(
    project: Path,
    arguments: str = "",
    columns: int = 80,
    *,
    forks: bool = True,
    typed: str = "",
    **adjusted: str,
) -> PseudoTerminal:
    """longrein without a sandbox, so that commands ask. `typed`: keys that are there before
    longrein is. `adjusted`: see `adjusted_longrein`.
    """
    root = project.parent
    environ = {
        "HOME": str(root / "home"),
        "LONGREIN_STATE_DIR": str(root / "state"),
        "LONGREIN_SANDBOX_MODE": "off",
        "ARGS": arguments,
    }
    return PseudoTerminal("", project, columns, forks=forks, typed=typed, **environ, **adjusted)


def test_leaving_in_mid_reply_is_at_once_and_the_turn_can_be_gone_on_with(tmp_path: Path) -> None:
    project = home(tmp_path, LONG)
    with open_it(project, HOLD_AFTER="word050") as tty:
        tty.ask("go").until("word030").send("\x04").exits(0)
        assert any("is kept; `longrein -c` goes on with it" in row for row in tty.lines())
    with open_it(project, "-c", HOLD_AFTER="word050") as tty:
        tty.until("the last turn was cut off  Enter goes on with it").until("say something").until(
            "idle"
        )
        assert "› go" in tty.lines()
        tty.send("\r").until("writing").until("word010")


def test_a_session_whose_command_was_cut_waits_for_a_word_when_it_is_opened(tmp_path: Path) -> None:
    project = home(tmp_path, RUNNING)
    with open_it(project, "--permission-mode bypassPermissions") as tty:
        tty.ask("go").until("Bash running")
        os.kill(tty.pid, signal.SIGKILL)
        assert tty.wait_exit() == -signal.SIGKILL
    with open_it(project, "-c") as tty:
        tty.until("the last turn was cut off  Enter goes on with it").until(
            "interrupted; it may have run"
        ).until("idle")
        assert "say something" in "".join(tty.lines())


@pytest.mark.parametrize("how", ["", "--plain"])
def test_a_turn_that_waits_for_an_answer_is_not_called_cut(tmp_path: Path, how: str) -> None:
    project = home(tmp_path, ASKED, {"text": "Not made."})
    with open_it(project) as tty:
        tty.ask("go").until("yes, once")
        os.kill(tty.pid, signal.SIGKILL)
        tty.wait_exit()
    with open_it(project, f"-c {how}") as tty:
        tty.until("yes, once").until(lambda: how or tty.keys_count())
        tty.send("n\r").until("Not made.")
        assert "was cut off" not in tty.text()


@pytest.mark.parametrize(
    ("turn", "seen", "number", "code"),
    [(LONG, "word030", signal.SIGTERM, 143), (ASKED, "yes, once", signal.SIGHUP, 129)],
)
def test_a_signal_ends_a_real_session(
    tmp_path: Path, turn: dict[str, Any], seen: str, number: signal.Signals, code: int
) -> None:
    with open_it(home(tmp_path, turn), HOLD_AFTER="word050") as tty:
        tty.ask("go").until(seen)
        os.kill(tty.pid, number)
        tty.exits(code)
        assert not tty.screen.cursor.hidden
        assert b"\x1b[?2004l" in tty.raw[-2_000:], "bracketed paste is off again"


def test_an_edit_is_approved_made_and_taken_back(tmp_path: Path) -> None:
    edit = {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"}
    look = {"calls": [{"name": "Read", "arguments": {"file_path": "calc.py"}}]}
    project = home(
        tmp_path, look, {"calls": [{"name": "Edit", "arguments": edit}]}, {"text": "Mended.\n"}
    )
    with open_it(project, columns=WIDE) as tty:
        tty.ask("mend calc.py").until("│ 2 -     return a - b").until(
            "│ 2 +     return a + b"
        ).until(tty.keys_count).send("y")
        tty.until("● Edit ok +1 -1  calc.py").until("Mended.").until("idle")
        assert "a + b" in (project / "calc.py").read_text()
        tty.ask("/compact").until("summarised: you asked for it").until("idle").until(
            "say something"
        )
        tty.send("/rewind\r").until("go back to before which").until("› mend calc.py").send("\r")
        tty.until("what goes back?").send("\x1b[B\r")
        tty.until("  put back  /").until("› mend calc.py")
        assert "a - b" in (project / "calc.py").read_text()


def test_one_session_is_left_for_another_and_back(tmp_path: Path) -> None:
    with open_it(home(tmp_path, {"text": "First.\n"}, {"text": "Second.\n"})) as tty:
        tty.ask("tell me of parsers").until("First.").until("idle").ask("/clear")
        tty.until(lambda: sum("longrein 0." in row for row in tty.lines()) == 2)
        tty.ask("/resume").until("which session?").until("› tell me of parsers").send("\r")
        tty.until("1 prompt").until(lambda: sum(row == "First." for row in tty.lines()) == 2)
        tty.ask("/nope").until("there is no command /nope")


def test_r_without_an_id_lets_the_user_choose_and_c_passes_over_what_is_empty(
    tmp_path: Path,
) -> None:
    project = home(tmp_path, {"text": "First.\n"}, {"text": "Second.\n"}, {"text": "Third.\n"})
    with open_it(project) as tty:
        tty.ask("tell me of parsers").until("First.").until("idle").leave()
    with open_it(project, "-r") as tty:
        tty.until("which session?").until("› tell me of parsers").until("1 of 1").send("\x1b")
        tty.exits(0)  # nothing was chosen, so nothing is begun
    with open_it(project, "-r") as tty:
        tty.until("which session?").until("› tell me of parsers").send("\r")
        tty.until("1 prompt").ask("and of lexers").until("Second.").until("idle").leave()
    with open_it(project, "-c") as tty:
        tty.until("2 prompts").until("› and of lexers").leave()
    with open_it(project, "-r --fork-session") as tty:
        tty.until("which session?").send("\r")
        tty.until("2 prompts").ask("in a copy").until("Third.").until("idle").leave()
    found = list_sessions(str(tmp_path / "state"))
    assert {one.title for one in found} == {"tell me of parsers", "fork of tell me of parsers"}, (
        "nothing is left of those that were only opened"
    )
    stored = [one.entries for one in found]
    assert len(stored) == 2
    assert stored[0] > stored[1]


def test_S067_what_the_model_links_to_is_never_fetched(tmp_path: Path) -> None:
    """An image, a link, a bare address, HTML: nothing asks for them, neither while they stream
    nor when they stand.
    """
    with socket.create_server(("127.0.0.1", 0)) as trap:
        at = f"http://127.0.0.1:{trap.getsockname()[1]}"
        text = (
            f"![x]({at}/?k=SECRET)\n\n[y]({at}/y) <{at}/z> <img "
            f"src='{at}/i'>\n\n![r][1]\n\n[1]: {at}/r\n\nDone.\n"
        )
        with open_it(home(tmp_path, {"text": text, "pace_s": 0.005})) as tty:
            tty.ask("show me").until("Done.").until("idle").leave()
        trap.settimeout(0.2)
        with pytest.raises(TimeoutError):
            trap.accept()


ANSWERS = {
    "/compact": "nothing was compacted: there is nothing yet that could be compacted",
    "/uncompact": "there is no compaction to undo",
    "/uncompact r3": "there is no compaction to undo at r3",
    "/compact --dry-run": "the next compaction finds nothing to take",
    "hello": "Hello there.",
    "/compact keep all": "summarised: you asked for it",
    "/uncompact ": "is undone; what it put away is shown again",
    "/compact --undo": "there is no compaction to undo",
    "/pin be kind": "pinned: be kind",
    "/pin  be kind": "it is pinned already: be kind",
    "/unpin 1": "no longer pinned: be kind",
    "/unpin  1": "there is no pin 1",
    "/mode plan": "mode: plan",
    "/mode  plan": "the mode is plan already",
}


@pytest.mark.parametrize("arguments", ["", "--plain"])
def test_each_command_that_changes_the_session_says_what_came_of_it(
    tmp_path: Path, arguments: str
) -> None:
    with open_it(home(tmp_path, {"text": "Hello there.\n"}), arguments) as tty:
        tty.resize(120, 50)
        for said, told in ANSWERS.items():
            tty.until(
                lambda: (
                    [row for row in tty.lines() if row][-1:] == [">"]
                    or "› say something" in tty.text()
                )
            )
            before = tty.text().count(told)
            tty.send(said + "\r").until(
                lambda before=before, told=told: tty.text().count(told) > before
            )


@pytest.mark.parametrize(("argument", "early"), [("first", "second\r"), ("", "first\rsecond\r")])
def test_lines_typed_before_the_first_frame_come_after_the_prompt_and_one_by_one(
    tmp_path: Path, argument: str, early: str
) -> None:
    project = home(tmp_path, LONG, {"text": "Hello second.\n"})
    with open_it(project, argument, HOLD_AFTER="word050") as tty:
        tty.send(early).until("› first").until("after this turn: second").until("word010").send(
            "\x1b"
        )
        tty.until("interrupted").until("› second").until("Hello second.")


@pytest.mark.parametrize("delay_s", [0.0, 0.06, 0.2])
def test_text_and_enter_typed_before_the_screen_stands_are_sent(
    tmp_path: Path, delay_s: float
) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"}, {"text": "Hello again.\n"})
    with open_it(project, forks=False) as tty:
        time.sleep(delay_s)
        tty.send("first ünï\r").until("› first ünï").until("Hello there.").until("idle")
        tty.ask("second").until("Hello again.").until("idle").send("\x04").exits(0)


def test_what_was_typed_before_a_question_of_trust_does_not_answer_it(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Hello there.\n"})
    (project / "AGENTS.md").write_text("Be kind.\n")
    with open_it(project, typed="y\r") as tty:
        tty.until("Trust this folder?").send("n\r").until("say something").until("idle")
        tty.send("\x04").exits(0)
        assert "not trusted" in tty.text()


def test_all_proposed_rules_are_shown_and_stored(tmp_path: Path) -> None:
    project = home(
        tmp_path,
        {"calls": [{"name": "Bash", "arguments": {"command": "frob one; grub two"}}]},
        {"text": "Fine."},
    )
    with open_it(project) as tty:
        tty.ask("go").until("rule: Bash(frob one:*)").until("rule: Bash(grub two:*)").until(
            "always: these 2 rules"
        )
        tty.until(tty.keys_count).send("a\r").until("Fine.").until("idle")
    settings = (tmp_path / "home" / ".config" / "longrein" / "config.toml").read_text()
    assert all(f'"{rule}"' in settings for rule in ("Bash(frob one:*)", "Bash(grub two:*)"))


def test_a_plan_is_shown_and_agreed_to(tmp_path: Path) -> None:
    plan = {"calls": [{"name": "ExitPlanMode", "arguments": {"plan": "1. Fix calc.py\n2. Run it"}}]}
    with open_it(home(tmp_path, plan, {"text": "Fine."}), "--permission-mode plan") as tty:
        tty.ask("go").until("1. Fix calc.py").until("yes, start").until(tty.keys_count).send(
            "y"
        ).until("Fine.")
        tty.until("idle · mock/small · context")


@pytest.mark.parametrize(("key", "then"), [("y", "context"), ("a\r", "acceptEdits"), ("n", "plan")])
def test_a_plan_has_three_answers(tmp_path: Path, key: str, then: str) -> None:
    plan = {"calls": [{"name": "ExitPlanMode", "arguments": {"plan": "1. Fix calc.py"}}]}
    with open_it(home(tmp_path, plan, {"text": "Fine."}), "--permission-mode plan") as tty:
        tty.ask("go").until("accept all edits").until(tty.keys_count).send(key).until("Fine.")
        tty.until(f"idle · mock/small · {then}")


COLOURS = {
    "question": "Which colour?",
    "options": [{"label": "red", "description": "warm"}, {"label": "blue"}, {"label": "green"}],
}
SIZES = {
    "question": "Which sizes?",
    "options": [{"label": "S"}, {"label": "M"}, {"label": "L"}],
    "multiSelect": True,
}


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        (("2", "13\r"), "Which colour?\nblue\n\nWhich sizes?\nS, L"),
        (("omauve\r", "2\r"), "Which colour?\nmauve\n\nWhich sizes?\nM"),
        (("1", "11oall\r"), "Which colour?\nred\n\nWhich sizes?\nall"),
        (("b", "aC\r"), "Which colour?\nblue\n\nWhich sizes?\nS, L"),
        (("\x1b[B\x1b[B\x1b[A\r", "\x1b[B \x1b[B \r"), "Which colour?\nblue\n\nWhich sizes?\nM, L"),
        (("\r", "\x1b[B\r"), "Which colour?\nred\n\nWhich sizes?\nM"),
    ],
)
def test_the_user_answers_questions_of_the_model(
    tmp_path: Path, keys: tuple[str, str], said: str
) -> None:
    ask = {"calls": [{"name": "AskUserQuestion", "arguments": {"questions": [COLOURS, SIZES]}}]}
    with open_it(
        home(tmp_path, ask, {"text": "Fine."}), "--permission-mode bypassPermissions"
    ) as tty:
        tty.ask("go").until("(1 of 2) Which colour?").until(" 1 red  warm").until(tty.keys_count)
        tty.send(keys[0]).until("(2 of 2) Which sizes?").until(" 3 [ ] L").send(keys[1]).until(
            "Fine."
        )
    assert result_of(tmp_path, "AskUserQuestion").endswith(said)


def has_keys(tty: PseudoTerminal) -> bool:
    """Whether the short keys of a question count: they are bold then."""
    rows = [y for y, row in enumerate(tty.lines()) if row.startswith(" o words")]
    return any(tty.screen.buffer[y][1].bold for y in rows)


def test_a_question_of_the_model_fits_a_small_window(tmp_path: Path) -> None:
    ask = {"calls": [{"name": "AskUserQuestion", "arguments": {"questions": [COLOURS, SIZES]}}]}
    project = home(tmp_path, ask, {"text": "Fine."})
    environ = {"HOME": str(tmp_path / "home"), "LONGREIN_STATE_DIR": str(tmp_path / "state")}
    with PseudoTerminal("", project, 40, 12, LONGREIN_SANDBOX_MODE="off", **environ) as tty:
        tty.ask("go").until("│ › 1 red  warm").until("│   3 green").until(
            "1-3, a-c or Enter choose, ↑ ↓ move"
        )
        tty.until(" o words  n no answer  f why not").until(lambda: has_keys(tty))
        tty.send("\x1b[B\x1b[B")
        tty.until("│ › 3 green").send("\r").until("(2 of 2) Which sizes?")
        tty.until("lines 1-4 of 6; ↑ ↓ move").send("\x1b[B ").until("│ › 2 [x] M")
        tty.send("c").until("│   3 [x] L").send("\r").until("Fine.")
    said = "Which colour?\ngreen\n\nWhich sizes?\nM, L"
    assert result_of(tmp_path, "AskUserQuestion").endswith(said)


@pytest.mark.parametrize("lines", [("3", "1 2"), ("c", "a,b"), ("also this\ngr", "s m")])
def test_the_user_answers_questions_of_the_model_by_lines(
    tmp_path: Path, lines: tuple[str, str]
) -> None:
    ask = {"calls": [{"name": "AskUserQuestion", "arguments": {"questions": [COLOURS, SIZES]}}]}
    with open_it(home(tmp_path, ask, {"text": "Fine."}), "--plain") as tty:
        tty.until(">").send("go\n").until("(1 of 2) Which colour?").until("answer>")
        tty.send(f"{lines[0]}\n").until("(2 of 2) Which sizes?").send(f"{lines[1]}\n").until(
            "Fine."
        )
    assert result_of(tmp_path, "AskUserQuestion").endswith(
        "Which colour?\ngreen\n\nWhich sizes?\nS, M"
    )


def result_of(tmp_path: Path, tool: str) -> str:
    """Text of the last result of a tool in the only session."""
    found = [
        text_of(entry.event.parts)
        for folder in (tmp_path / "state" / "sessions").iterdir()
        for entry in Reader(str(tmp_path / "state"), folder.name).entries()
        if isinstance(entry.event, ToolEnded) and entry.event.name == tool
    ]
    return found[-1]


def footer_colours(tty: PseudoTerminal, text: str) -> set[str]:
    """Colours in which `text` stands in the footer."""
    found = set()
    for number, row in enumerate(tty.screen.display):
        if text in row and "· mock/small ·" in row:
            found |= {tty.screen.buffer[number][row.index(text) + n].fg for n in range(len(text))}
    return found


def test_a_session_that_asks_nothing_says_so_in_red_and_comes_back_in_default(
    tmp_path: Path,
) -> None:
    project = home(
        tmp_path,
        {"calls": [{"name": "Bash", "arguments": {"command": "touch ran"}}]},
        {"text": "Fine."},
    )
    with open_it(project, "--permission-mode bypassPermissions") as tty:
        tty.until("idle · mock/small · bypassPermissions")
        tty.until(lambda: footer_colours(tty, "bypassPermissions") == {"red"})
        if os.geteuid() == 0:
            tty.until("longrein runs as root")
        tty.ask("go").until("Fine.").until("idle").size(30, 24)
        tty.until(lambda: any("bypassPermissions" in row for row in tty.screen.display))
        tty.send("\x04").exits(0)
    assert (project / "ran").exists()
    with open_it(project, "-c") as tty:
        tty.until("mode bypassPermissions is not restored").until("idle · mock/small · context")


def test_reads_in_a_row_are_told_when_the_session_is_left_in_mid_turn(tmp_path: Path) -> None:
    look = {"calls": [{"name": "Read", "arguments": {"file_path": "calc.py"}}]}
    with open_it(home(tmp_path, look, RUNNING), "--permission-mode bypassPermissions") as tty:
        tty.ask("go").until("Bash running").send("\x04").exits(0)
        assert any("● Read ok 2 lines  calc.py" in row for row in tty.everything())


@pytest.mark.parametrize(
    ("typed", "written", "said"),
    [
        ("/model mock/large --keep", 'model = "mock/large"', 'in place of "mock/small"'),
        ("/effort high --keep", 'effort = "high"', 'models."mock/small".effort = "high"'),
        ("/theme light --keep", 'theme = "light"', 'terminal.theme = "light"'),
    ],
)
def test_a_choice_is_kept_for_new_sessions(
    tmp_path: Path, typed: str, written: str, said: str
) -> None:
    project = home(tmp_path)
    settings = tmp_path / "home/.config/longrein/config.toml"
    with open_it(project, columns=WIDE) as tty:
        tty.until("say something").ask(typed).until(said).until("/config edit takes it back")
        assert not any(row.startswith("! ") for row in tty.lines())
    assert written in settings.read_text().splitlines()
    assert "[providers.mock]" in settings.read_text()


def test_a_key_keeps_the_choice_of_a_list(tmp_path: Path) -> None:
    project = home(tmp_path)
    with open_it(project, columns=WIDE) as tty:
        tty.until("say something").ask("/effort").until("Ctrl-S keeps it for new sessions, too")
        tty.send("high").until("1 of 1").send("\x13").until('effort = "high" for new sessions')
    assert 'effort = "high"' in (tmp_path / "home/.config/longrein/config.toml").read_text()


def test_a_closed_terminal_is_not_called_an_interrupt_by_the_user(tmp_path: Path) -> None:
    run = {"calls": [{"name": "Bash", "arguments": {"command": "echo begun; sleep 60"}}]}
    project = home(tmp_path, run)
    with open_it(project, "--permission-mode bypassPermissions") as tty:
        tty.ask("go").until("Bash running").until("  begun")
        os.kill(tty.pid, signal.SIGHUP)
        tty.exits(129)
    with open_it(project, "-c --permission-mode bypassPermissions") as tty:
        tty.until("[interrupted: the terminal was closed; the command was ended]")
        assert "by the user" not in tty.text()


def test_a_plan_is_drawn_as_markdown_in_its_question(tmp_path: Path) -> None:
    text = "# Mend it\n\n- change **calc.py**\n- run `make test`\n\n```\nmake **it**\n```"
    plan = {"calls": [{"name": "ExitPlanMode", "arguments": {"plan": text}}]}
    with open_it(home(tmp_path, plan, {"text": "Fine."}), "--permission-mode plan") as tty:
        tty.ask("go").until("│ Mend it").until("│ • change calc.py").until("│ • run make test")
        tty.until("│ make **it**").until(tty.keys_count).send("y").until("Fine.")

"""The commands and modes on a real terminal."""

from pathlib import Path
from typing import Any

import pytest

from longrein.frontends.terminal import TerminalFacts
from longrein.frontends.terminal.commands import COMMANDS, Command, CommandContext, CommandResult
from longrein.frontends.terminal.view_model import ViewModel
from longrein.frontends.text_format import escape
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.scripted_session import ScriptedSession
from tests.terminal.scripted_terminal import echo

pytestmark = pytest.mark.anyio


def run(tty: PseudoTerminal, command: str, *seen: str) -> PseudoTerminal:
    tty.ask(command)
    for part in seen:
        tty.until(part)
    return tty


def other_words(told: list[Any]) -> list[Any]:
    return [word for word in told if word["type"] != "Said"]


ARGUMENTS: dict[str, tuple[str, ...]] = {
    "help": ("",),
    "model": ("", "mock/large"),
    "mode": ("", "default", "plan", "strict", "\x1b"),
    "clear": ("",),
    "resume": ("", "3333"),
    "rewind": ("", "3", "9" * 5_000),
    "compact": ("", "the tests", "--dry-run", "--undo"),
    "uncompact": ("", "r3", "3", "that", "9" * 5_000),
    "context": ("", "r7"),
    "pin": ("", "be kind"),
    "unpin": ("", "1", "it", "9" * 5_000),
    "pins": ("",),
    "cost": ("",),
    "tasks": ("", "b1", "b1 " + "9" * 5_000, "stop b1", "stop"),
    "agents": ("", "a1", "stop a1", "tell a1 x", "tell"),
    "goals": ("", "all", "help", "add"),
    "queue": ("", "1", "drop 1", "drop", "9" * 5_000),
    "stop": ("", "b1"),
    "background": ("",),
    "exit": ("",),
}


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
async def test_every_command_says_or_does_something_whatever_its_argument(command: Command) -> None:
    facts = TerminalFacts("m", "/w", "0", models=lambda: ("m",), analysis=lambda: ("nothing",))
    for argument in ARGUMENTS[command.name]:
        result = command.run(CommandContext(ScriptedSession(echo), facts, ViewModel()), argument)
        told = result if isinstance(result, CommandResult) else await result
        assert told != CommandResult(), argument
        assert escape(told.notice) == told.notice
        assert bool(told.title) == bool(told.rows)


def test_what_was_done_already_is_said_and_not_done_again(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        run(tty, "/mode default", "the mode is default already")
        run(tty, "/mode plan", "mode: plan")
        run(tty, "/mode plan", "the mode is plan already")
        run(tty, "/unpin 1", "there is no pin 1; /pins lists them")
        assert tty.leave() == [{"type": "SetMode", "mode": "plan"}]


def test_a_command_and_what_is_said_after_it_keep_their_order(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("say something").send("/mode plan\rfirst\r/pin second\r")
        tty.until("You said 5").until("pinned: second")
        assert [word["type"] for word in tty.leave()] == ["SetMode", "Said", "Pin"]


ANSWERS = {
    "/help": ["commands and keys", "/rewind", "Ctrl-S", "steer: send into the turn that goes on"],
    "/cost": ["what this session used", "read from cache", "$0.00"],
    "/context": ["what fills the context", "user requests", "20.0k", "all", "24.6k of 100.0k tokens"],
    "/context r7": ["why r7 stands as it does", "nothing with that handle is shown"],
    "/pins": ["pinned", "nothing is pinned; /pin TEXT keeps TEXT word for word"],
    "/unpin it": ["say which: /unpin NUMBER; /pins lists them"],
    "/uncompact that": ["say which: /uncompact r412, or nothing for the last one"],
    "/nope": ["! there is no command /nope; /help lists them"],
    "/comp": ["did you mean /compact?"],
    "/mode strict": ["there is no mode strict; it is one of default, acceptEdits, plan, bypassPermissions"],
    "/rewind": ["nothing was said yet"],
}


def test_a_command_answers_on_the_screen(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 100, 60) as tty:
        for command, seen in ANSWERS.items():
            run(tty, command, *seen)
        assert tty.leave() == []


def test_a_command_becomes_a_word(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        run(tty, "/model mock/large", "idle · mock/large")
        run(tty, "/mode plan", "mode: plan")
        run(tty, "/compact keep the tests").until("say something").settle(0.1)
        assert tty.leave() == [
            {"type": "SetModel", "model": "mock/large"},
            {"type": "SetMode", "mode": "plan"},
            {"type": "Compact", "focus": "keep the tests"},
        ]


def test_the_model_is_chosen_from_a_list_and_shown(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        run(tty, "/model", "which model?", "› mock/small", "1 of 2; ↑ ↓ move, Enter chooses, Esc leaves")
        tty.send("\x1b[B").until("› mock/large").send("\r")
        tty.until("model: mock/large").until("idle · mock/large")
        assert tty.leave() == [{"type": "SetModel", "model": "mock/large"}]


def test_shift_tab_goes_through_the_modes(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("idle · mock/small · default")
        for mode in ("acceptEdits", "plan", "default"):
            tty.send("\x1b[Z").until(f"mode: {mode}").until(f"idle · mock/small · {mode}")


@pytest.mark.parametrize(("down", "files"), [("", False), ("\x1b[B", True)])
def test_rewind_asks_to_where_and_whether_with_the_files(tmp_path: Path, down: str, files: bool) -> None:
    with PseudoTerminal("echo", tmp_path, 80, 40) as tty:
        run(tty, "first", "You said 5")
        run(tty, "second!", "You said 7").until("idle")
        run(tty, "/rewind", "go back to before which", "› second!")
        tty.send("\x1b[B").until("2 of 2").send("\r")
        tty.until("what goes back?").until("the conversation and the files").send(down)
        tty.until("2 of 2" if files else "1 of 2").send("\r").until("rewound").until("› first").send("\x15")
        assert other_words(tty.leave()) == [{"type": "Rewind", "to": 2, "files": files}]


def test_a_list_is_left_by_esc(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        run(tty, "/model", "which model?")
        tty.send("\x1b").until("say something")
        assert tty.leave() == []


@pytest.mark.parametrize(
    ("command", "keys", "outcome"),
    [
        ("/resume", "\r", "switch 11111111-aaaa 0"),
        ("/resume", "\x1b[B\r", "switch 2222 0"),
        ("/resume 3333", "", "switch 3333 0"),
        ("/clear", "", "new  0"),
        ("/exit", "", "exit  0"),
    ],
)
def test_a_session_is_left_for_another(tmp_path: Path, command: str, keys: str, outcome: str) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        run(tty, command)
        if keys:
            tty.until("which session?").until("mend the parser  yesterday").until("日本語 title").send(keys)
        tty.exits(0)
        assert tty.outcome == outcome


def test_what_needs_an_idle_session_says_so(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path) as tty:
        tty.ask("go").until("○ Bash running").send("/clear\r")
        tty.until("/clear waits until the turn is over; Esc interrupts it").send("/cost\r")
        tty.until("what this session used")

"""The slash commands and modes: each row of the table on both terminals, then on a real
terminal.
"""

import asyncio
import os
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from longrein.agent import Rewind
from longrein.agent.extension_part import SlashCommand
from longrein.frontends.localization import use_language
from longrein.frontends.terminal.command_actions import run_command
from longrein.frontends.terminal.command_table import (
    BY_NAME,
    COMMANDS,
    HELP_GROUPS,
    context_lines,
    help_lines,
    next_mode,
    parse,
    unknown_command_text,
)
from longrein.frontends.terminal.command_types import (
    Command,
    CommandContext,
    CommandResult,
    Outcome,
)
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import cells, fit, plain
from longrein.frontends.terminal.terminal_run import run_plain
from longrein.frontends.terminal.view_model import Piece, Prompt, ViewModel
from longrein.steps.human_text import escape
from longrein_context.events import LongreinError
from tests.terminal.opened_session import REPORT, OpenedSession
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.scripted_session import NullScreen, ScriptedSession
from tests.terminal.scripted_terminal import Goals, echo

pytestmark = pytest.mark.anyio

HUGE = "9" * 5_000
ARGUMENTS: dict[str, tuple[str, ...]] = {
    "help": ("",),
    "model": ("", "mock/large"),
    "mode": ("", "default", "plan", "strict", "\x1b"),
    "clear": ("",),
    "resume": ("", "3333"),
    "rewind": ("", "3", "3 only files", HUGE),
    "compact": ("", "the tests", "--dry-run", "--undo"),
    "uncompact": ("", "r3", "3", "that", HUGE),
    "context": ("", "r7"),
    "show": ("", "r7", "a1", "that"),
    "pin": ("", "be kind"),
    "unpin": ("", "1", "it", HUGE),
    "pins": ("",),
    "loop": ("5m check the build", "5m", "1x y", "", f"{HUGE}m x"),
    "schedule": (
        "",
        "0 9 * * 1-5 look",
        "remove s1",
        "remove",
        "61 * * * * x",
        "x",
        f"{HUGE} * * * * y",
    ),
    "theme": ("", "light", "\x1b"),
    "cost": ("",),
    "tasks": ("", "b1", f"b1 {HUGE}", "stop b1", "stop"),
    "agents": ("", "a1", "stop a1", "tell a1 x", "tell"),
    "goals": ("", "all", "help", "add"),
    "hooks": ("",),
    "keys": ("",),
    "queue": ("", "1", "drop 1", "drop", HUGE),
    "stop": ("", "b1"),
    "background": ("",),
    "login": ("", "openai"),
    "logout": ("",),
    "exit": ("",),
    "rename": ("", "a title", "a  title"),
    "fork": ("",),
    "export": ("", "x.md"),
    "copy": ("", "0", HUGE),
    "add-dir": ("", "/tmp", "\x1b"),
    "effort": ("", "high"),
    "status": ("",),
    "config": ("", "model", "\x1b"),
    "doctor": ("",),
    "diff": ("", "x", "git", "git --output=x", "\x1b"),
    "todos": ("",),
    "permissions": ("", "remove", "remove 1", f"remove {HUGE}", "x"),
    "memory": ("", "1", HUGE),
    "skills": ("",),
    "init": ("", "briefly"),
    "review": ("", "HEAD~1"),
}


def opened(session: ScriptedSession) -> OpenedSession:
    found = OpenedSession(session)
    found.goals = Goals()
    return found


async def run(command: Command, argument: str, view: ViewModel | None = None) -> CommandResult:
    context = CommandContext(opened(ScriptedSession(echo)), view or ViewModel())
    try:
        result = command.run(context, argument)
        return result if isinstance(result, CommandResult) else await result
    except LongreinError as error:
        return CommandResult(notice=str(error))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
async def test_every_row_does_something_on_both_terminals_and_is_in_the_help(
    command: Command, capfd: pytest.CaptureFixture[str]
) -> None:
    shown = "\n".join(map(plain, help_lines()))
    summary = command.summary.partition(";")[0]
    assert len(re.findall(rf"  /{command.name} +{re.escape(summary)}(?:  |$)", shown, re.M)) == 1
    assert [BY_NAME[name] for name in (command.name, *command.aliases)] == [command] * (
        1 + len(command.aliases)
    )
    for argument in ARGUMENTS[command.name]:
        result = await run(command, argument)
        assert result != CommandResult(), argument
        assert escape(result.notice) == result.notice
        assert bool(result.title) == bool(result.rows)
        await on_screen(f"/{command.name} {argument}")
        await on_plain(f"/{command.name} {argument}", capfd)


class RecordedConversation(Conversation):
    """A conversation that keeps what it shows, and whose commands can be waited for."""

    def __init__(
        self,
        opened: OpenedSession,
        screen: Any = None,
        mono_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(opened, mono_s)  # type: ignore[arg-type]
        self.screen = screen or NullScreen()
        self.shown: list[Piece] = []
        self.acts: list[asyncio.Future[None]] = []

    def show(self, pieces: Sequence[Piece]) -> None:
        self.shown += pieces
        super().show(pieces)

    def spawn(self, act: Coroutine[Any, Any, None]) -> None:
        self.acts.append(asyncio.ensure_future(act))

    async def run(self, text: str) -> None:
        """Run a command to its end."""
        typed = parse(text)
        assert typed is not None
        run_command(self, typed)
        while self.acts:
            await self.acts.pop(0)


async def on_screen(text: str) -> None:
    """Something is shown, chosen from, typed, told to the session, or the session is left."""
    session = ScriptedSession(echo)
    conversation = RecordedConversation(opened(session))
    await conversation.run(text)
    done = (
        conversation.shown,
        conversation.chooser,
        conversation.buffer.text,
        session.told,
        conversation.outcome,
    )
    assert any(done), text


async def on_plain(text: str, capfd: pytest.CaptureFixture[str]) -> None:
    reading, writing = os.pipe()
    os.write(writing, f"{text}\n".encode())
    os.close(writing)
    session = ScriptedSession(echo)
    how = {"prompt": "", "choosing": False, "mono_s": time.monotonic, "fd": reading}
    outcome = await run_plain(opened(session), **how)  # type: ignore[arg-type]
    os.close(reading)
    _, _, printed = capfd.readouterr().out.partition("say something, / commands, @ files\n")
    is_left = outcome != Outcome("exit") or text == "/exit "
    assert printed.strip() or session.told or is_left, text


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/cost", "cost|"),
        ("/compact  keep the tests ", "compact|keep the tests"),
        ("/model a/b", "model|a/b"),
        ("/quit", "exit|"),
        ("/new", "clear|"),
        ("/?", "help|"),
        ("/nope x", "?nope|x"),
        ("/usr/bin/x fails", None),
        ("/cost\nmore", None),
        ("/agents tell a7 one\ntwo", "agents|tell a7 one\ntwo"),
        ("/bg", "background|"),
        ("/", None),
        ("cost", None),
        ("what is /cost", None),
    ],
)
def test_what_is_a_command(text: str, parsed: str | None) -> None:
    typed = parse(text)
    assert (typed and f"{'' if typed.command else '?'}{typed.name}|{typed.argument}") == parsed


def test_an_unknown_command_names_the_nearest() -> None:
    for name, hint in (
        ("comp", "did you mean /compact?"),
        ("nope", "/help lists them"),
        ("wind", "did you mean /rewind?"),
    ):
        assert unknown_command_text(name) == f"there is no command /{name}; {hint}"


@pytest.mark.parametrize("language", ["en", "zh"])
def test_help_has_two_commands_in_a_row_where_they_fit(language: str) -> None:
    use_language(language)
    try:
        rows = help_lines(added=[SlashCommand("mcp", "[NAME]", "MCP servers")])
        wide, narrow = ([plain(part) for row in rows for part in fit(row, at)] for at in (79, 40))
    finally:
        use_language("en")
    assert len(wide) == len(rows)
    assert max(map(cells, narrow)) <= 40
    assert sum(row.startswith("  /") for row in narrow) == len(COMMANDS) + 1


def test_help_fits_80_columns_and_40_rows(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 80, 40) as tty:
        tty.ask("/help").until("keys: ? or /keys")
        shown = [row.rstrip() for row in tty.lines()]
        assert "commands" in shown, "the head is still on the screen"
        assert [row for row in shown if row in HELP_GROUPS] == [*HELP_GROUPS]


def test_modes_go_round_and_never_into_the_one_without_questions() -> None:
    modes = ["default", "acceptEdits", "plan", "auto", "dontAsk", "bypassPermissions"]
    assert [next_mode(mode) for mode in modes] == [
        "acceptEdits",
        "plan",
        "auto",
        "default",
        "default",
        "default",
    ]


def test_A6_5_context_adds_up() -> None:
    assert [" ".join(plain(row).split("█")[0].split()) for row in context_lines(REPORT)] == [
        "system 1.4k 1%",
        "calls and results 3.2k 3%",
        "user requests 20.0k 20%",
        "free 75.4k 75%",
        "all 24.6k of 100.0k tokens",
        "estimates are corrected by 1.02 to match the provider's counts",
        "largest items (· = the next compaction takes it)",
        "·r7 3,200 $0.0123 Read: def main",
    ]


REWINDS = {
    "3": Rewind(2),
    "3 files": Rewind(2, True),
    "3  files": Rewind(2, True),
    "3 all-files": Rewind(2, True, overwrite=True),
    "3 fils": None,
    "three": None,
    "": None,
    HUGE: None,
}


@pytest.mark.parametrize("argument", REWINDS, ids=lambda argument: argument[:20])
async def test_a_rewind_can_be_had_with_the_files(argument: str) -> None:
    view = ViewModel()
    view.prompts = [Prompt(3, "first")]
    result = await run(BY_NAME["rewind"], argument, view)
    assert result.message == REWINDS[argument]
    assert result.edit == ("first" if result.message else "")
    assert bool(result.choices) == (result.message is None)


# --- On a real terminal ---------------------------------------------------------------------------

ANSWERS = {
    "/help": "/skills      skills and own commands",
    "/cost": "  requests            0",
    "/context": "24.6k of 100.0k tokens",
    "/pins": "nothing is pinned; /pin TEXT keeps TEXT word for word",
    "/nope": "! there is no command /nope; /help lists them",
    "/mode strict": "! there is no mode strict; it is one of default, acceptEdits, plan, auto, "
    "dontAsk, "
    "bypassPermissions",
    "/mode default": "! the mode is default already",
    "/rewind": "! nothing was said yet, so there is nothing to go back to",
    "/rewind undo": "! there is no rewind to take back",
    "/unpin it": "! say which: /unpin NUMBER",
    "/uncompact that": "! say which: /uncompact r412, or nothing for the last one",
    "/stop": "! nothing runs that could be stopped",
}


@pytest.mark.parametrize("mode", ["screen", "plain"])
def test_commands_answer(tmp_path: Path, mode: str) -> None:
    with PseudoTerminal("echo", tmp_path, 110, 60, ARGS=mode) as tty:
        for command, answer in ANSWERS.items():
            tty.until(
                "say something"
                if mode == "screen"
                else lambda: tty.lines()[tty.screen.cursor.y] == ">"
            )
            tty.send(command + "\r").until(answer)
        assert tty.leave() == []


def test_a_command_becomes_a_message_and_keeps_its_order(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask("/model mock/large").until("idle · mock/large")
        tty.ask("/mode plan\rfirst\r/compact keep the tests\r/pin second").until(
            "You said 5"
        ).until("pinned: second")
        *told, pin = [message for message in tty.leave() if message["type"] != "Said"]
        assert told == [
            {"type": "SetModel", "model": "mock/large"},
            {"type": "SetMode", "mode": "plan"},
            {"type": "Compact", "focus": "keep the tests"},
        ]
        assert pin["type"] == "Pin"


def test_a_list_is_chosen_from_or_left(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask("/model").until("which model?").send("\x1b")
        tty.ask("/model").until("› mock/small  (now)  200k window, $3 in and $15 out")
        tty.until("for this session; Ctrl-S keeps it for new sessions, too")
        tty.until("1 of 2; type to search, ↑ ↓ move, Enter chooses, Esc leaves")
        tty.send("lar").until("which model?  lar").until("› mock/large").send("\x7f" * 3)
        tty.until("› mock/small").send("zz").until("nothing fits").send("\x7f\x7f")
        tty.until("1 of 2").send("\x1b[B").until("› mock/large").send("\r")
        tty.until("model: mock/large").until("idle · mock/large")
        assert tty.leave() == [{"type": "SetModel", "model": "mock/large"}]


def test_a_list_of_modes_explains_each_and_begins_at_the_present_one(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask("/mode plan").until("idle · mock/small · plan").send("/mode\r")
        tty.until("› plan  (now)  changes nothing; ends with a plan")
        tty.until("default  asks before it changes files")
        tty.until("for this session; permission_mode in the settings makes it last")
        tty.send("accept folders").until("1 of 1").send("\r").until(
            "idle · mock/small · acceptEdits"
        )


def test_a_narrow_list_shows_the_whole_note_of_the_marked_row(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path, 40, 14) as tty:
        tty.ask("/mode").until("› default  (now)  asks before").until("  │ asks before it changes")
        tty.until("  │ before commands that no sandbox").until("1 of 6; type, ↑ ↓, Enter, Esc")


@pytest.mark.parametrize(("columns", "rows"), [(80, 24), (40, 12)])
def test_a_question_mark_alone_shows_the_keys_and_costs_nothing(
    tmp_path: Path, columns: int, rows: int
) -> None:
    with PseudoTerminal("echo", tmp_path, columns, rows) as tty:
        tty.until("say something").send("?").until("send into the turn that").until("Enter prints")
        tty.send("\r").until("say something").until(lambda: "Esc Esc" in tty.text())
        tty.send("?").until("Enter prints").send(" why\r").until("You said 5 char")
        [said] = tty.leave()
        assert said["parts"] == [{"type": "text", "text": "? why"}]


def test_shift_tab_goes_through_the_modes(tmp_path: Path) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.until("idle · mock/small · context")
        for mode in ("acceptEdits", "plan", "auto", "context"):
            tty.send("\x1b[Z").until(f"idle · mock/small · {mode}")
        assert not any(
            "mode: " in row for row in tty.lines()
        )  # the footer shows it, the scrollback stays clean
        tty.ask("/mode plan").until("mode: plan")


@pytest.mark.parametrize(("down", "files"), [("", False), ("\x1b[B", True)])
def test_rewind_asks_to_where_and_whether_with_the_files(
    tmp_path: Path, down: str, files: bool
) -> None:
    with PseudoTerminal("echo", tmp_path, 80, 40) as tty:
        tty.ask("first").until("You said 5").ask("second!").until("You said 7").until("idle")
        tty.ask("/rewind").until("go back to before which").until("› second!").send("\x1b[B").until(
            "2 of 2"
        ).send("\r")
        tty.until("what goes back?").until("the conversation and the files").send(down)
        tty.until("2 of 4" if files else "1 of 4").send("\r").until("rewound").until(
            "› first"
        ).send("\x15")
        assert tty.leave()[-1] == {
            "type": "Rewind",
            "to": 2,
            "files": files,
            "conversation": True,
            "overwrite": False,
        }


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
def test_a_session_is_left_for_another(
    tmp_path: Path, command: str, keys: str, outcome: str
) -> None:
    with PseudoTerminal("echo", tmp_path) as tty:
        tty.ask(command)
        if keys:
            tty.until("which session?").until("mend the parser  1 day ago").until(
                "日本語 title"
            ).send(keys)
        tty.exits(0)
        assert tty.outcome == outcome


def test_what_needs_an_idle_session_says_so(tmp_path: Path) -> None:
    with PseudoTerminal("hang", tmp_path) as tty:
        tty.ask("go").until("○ Bash running").send("/clear\r")
        tty.until("/clear waits until the turn is over; Esc interrupts it").send("/cost\r")
        tty.until("what this session used")

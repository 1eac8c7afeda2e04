"""Window title, notifications, progress and themes: with a real session on a pseudo-terminal,
and by themselves.
"""

import os
from pathlib import Path

import pytest

from longrein.frontends.terminal import themes
from longrein.frontends.terminal.event_lines import STYLES
from longrein.frontends.terminal.terminal_input import AnswerFilter
from longrein.frontends.terminal.window import Activity, TerminalWindow, shows_progress
from longrein.settings_schema import TerminalOptions
from tests.terminal.held_clock import set_clock
from tests.terminal.pseudo_terminal import PseudoTerminal
from tests.terminal.test_jobs import shell
from tests.terminal.test_real import ASKED, home

SIGNALS = (
    b"\x1b]2;",
    b"\x1b[22;0t",
    b"\x1b[?1004h",
    b"\x1b]9;",
    b"\x1b]777;",
    b"\x1b]11;",
    b"\x07",
)


def open_it(project: Path, lines: str = "", arguments: str = "", **environ: str) -> PseudoTerminal:
    config = project.parent / "home/.config/longrein/config.toml"
    config.write_text(f"{config.read_text()}\n[terminal]\n{lines}\n")
    places = {
        "HOME": str(project.parent / "home"),
        "LONGREIN_STATE_DIR": str(project.parent / "state"),
    }
    return PseudoTerminal(
        "", project, **places, LONGREIN_SANDBOX_MODE="off", ARGS=arguments, **environ
    )


# --- On a terminal --------------------------------------------------------------------------------


def test_the_title_and_the_progress_follow_the_session_and_are_undone(tmp_path: Path) -> None:
    project = home(
        tmp_path, {"calls": [{"name": "Bash", "arguments": {"command": "cat gate"}}]}, ASKED
    )
    os.mkfifo(project / "gate")
    settings = 'notify_after_s = 9_000\n[permissions]\nallow = ["Bash(cat gate)"]'
    with open_it(project, settings, TERM_PROGRAM="ghostty") as tty:
        tty.ask("mend the parser")
        tty.until_written("\x1b]2;working · mend the parser · longrein\x1b\\", "\x1b]9;4;3;0\x1b\\")
        (project / "gate").write_text("now\n")
        tty.until("yes, once")
        tty.until_written(
            "\x1b]2;waiting · mend the parser · longrein\x1b\\", "\x1b]9;4;4;100\x1b\\"
        )
        assert tty.raw.index(b"\x1b[22;0t") < tty.raw.index(b"\x1b]2;")
        assert tty.raw.index(b"\x1b]9;4;3;0\x1b\\") < tty.raw.index(b"\x1b]9;4;4;100\x1b\\")
        assert b"\x07" not in tty.raw, "who has just typed is not called"
        tty.send("\x03").until("idle").send("\x04").exits(0)
        end = tty.raw[-2_000:]
        assert tty.raw.rfind(b"\x1b]9;4;0;0") > tty.raw.rfind(b"\x1b]9;4;3")
        assert end.rfind(b"\x1b[?1004l") > 0
        assert end.rfind(b"\x1b]2;\x1b\\\x1b[23;0t") > 0


@pytest.mark.parametrize(
    ("notify", "sent"),
    [
        ("all", "\x1b]777;notify;longrein;waiting for you: Bash\x1b\\\x07"),
        ("bell", "\x07"),
        ("off", ""),
    ],
)
def test_a_question_calls_who_looks_elsewhere(tmp_path: Path, notify: str, sent: str) -> None:
    settings = f'notify = "{notify}"'
    with open_it(home(tmp_path, ASKED), settings, HELD_CLOCK="1") as tty:
        tty.ask("go").until("yes, once").send("\x1b[O")
        assert b"\x07" not in tty.raw
        set_clock(tmp_path / "project/clock", 11)
        tty.until_written(sent).settle()
        assert "[O" not in tty.text(), "a focus event is no key"
        assert (b"\x07" in tty.raw) == (notify != "off")
        assert (b"]777" in tty.raw) == (notify == "all")


@pytest.mark.parametrize(
    ("arguments", "environ"),
    [("", {"NO_COLOR": "1"}), ("", {"TERM": "dumb"}), ("--plain", {"TERM": "xterm-256color"})],
)
def test_nothing_of_it_is_sent_without_colours_or_screen(
    tmp_path: Path, arguments: str, environ: dict[str, str]
) -> None:
    with open_it(home(tmp_path, {"text": "All done.\n"}), arguments=arguments, **environ) as tty:
        tty.until("say something" if "NO_COLOR" in environ else "/help").send(
            "\x1b[Ogo\r" if not arguments else "go\r"
        )
        tty.until("All done.").send("\x04").exits(0)
        assert not [sign for sign in SIGNALS if sign in tty.raw]


def test_the_theme_follows_the_background_and_the_answer_is_not_typed(tmp_path: Path) -> None:
    with open_it(
        home(tmp_path, {"text": "First.\n"}, {"text": "Second.\n"}, {"text": "Third.\n"})
    ) as tty:
        tty.until("say something")
        assert b"\x1b]11;?\x1b\\" in tty.raw
        assert b"38;5;25m" not in tty.raw
        tty.send("\x1b]11;rgb:ffff/ff").send("ff/eeee\x1b\\").send("go\r").until("First.").until(
            "idle"
        )
        assert b"\x1b[1;38;5;25m" in tty.raw, "the light theme's colour of the user's words"
        assert "rgb" not in tty.text()
        tty.send("/theme\r").until("which theme?").until("for a light background").send("\x1b")
        tty.send("/theme colour-blind\r").until("theme colour-blind, until longrein ends")
        tty.send("more\r").until("Second.").until_written("\x1b[1;38;5;32m")
        before = len(tty.until("idle").raw)
        tty.send("/clear\r").until(lambda: tty.text().count("longrein 0.1.0") == 2).until(
            "say something"
        )
        tty.send("third\r").until_written("\x1b[1;38;5;32m", since=before)


def test_COLORFGBG_is_taken_without_a_question(tmp_path: Path) -> None:
    with open_it(home(tmp_path, {"text": "First.\n"}), COLORFGBG="0;15") as tty:
        tty.ask("go").until("First.").until("idle")
        assert b"\x1b]11;" not in tty.raw
        assert b"\x1b[1;38;5;25m" in tty.raw


def test_while_it_is_stopped_the_shell_has_its_own_window(tmp_path: Path) -> None:
    with shell(home(tmp_path, {"text": "All done.\n"})) as tty:
        tty.ask("go").until("All done.").until("idle").until_written("]2;go · longrein")
        tty.send("\x1a").until("Stopped").until(
            lambda: tty.lines()[tty.screen.cursor.y] == "shell>"
        )
        assert tty.raw.rfind(b"\x1b[?1004l") > tty.raw.rfind(b"\x1b[?1004h")
        assert tty.raw.rfind(b"\x1b[23;0t") > tty.raw.rfind(b"]2;go")
        before = len(tty.raw)
        tty.send("fg\r").until_written("]2;go", since=before).until("say something")
        assert b"\x1b[?1004h" in tty.raw[before:]
        tty.send("\x04").until("is kept").until("shell>").send("exit\r")


# --- By themselves --------------------------------------------------------------------------------


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("focus", "quiet_s", "turn_s", "called"),
    [
        ("O", 0, 30, True),
        ("O", 0, 5, False),
        ("I", 60, 60, False),
        ("", 60, 60, True),
        ("", 3, 60, False),
    ],
)
def test_the_end_of_a_long_turn_calls_who_is_away(
    focus: str, quiet_s: float, turn_s: float, called: bool
) -> None:
    sent: list[str] = []
    clock = Clock()
    window = TerminalWindow(sent.append, TerminalOptions(), {"TERM": "linux"}, clock, enabled=True)
    window.enter()
    window.heard(focus)
    window.update(Activity("the parser", "working", turn_since_s=clock.now_s))
    clock.now_s += turn_s
    window.last_key_s = clock.now_s - quiet_s
    window.update(Activity("the parser", "", turn_since_s=100.0))
    assert ("\x1b]777;notify;longrein;done: the parser\x1b\\\x07" in sent) == called
    count = len(sent)
    window.update(Activity("the parser", "", turn_since_s=100.0))
    assert len(sent) == count, "only once"


@pytest.mark.parametrize(
    ("happens", "calls"),
    [
        ("ask 9", 0),
        ("ask O 9", 0),
        ("ask O 10 10", 1),
        ("O ask 10 I O 30", 1),
        ("ask 30 ask 30", 1),
        ("ask 30 ask2 30", 2),
        ("ask 30 none ask2 9", 1),
        ("I ask 30", 0),
        ("I ask 30 O 1", 1),
        ("O key ask 9 key 9 key 9", 0),
        ("O ask 9 key 5 O 4 1", 1),
        ("ask 5 none 30", 0),
    ],
)
def test_a_question_that_waits_calls_once_who_is_away(happens: str, calls: int) -> None:
    sent: list[str] = []
    clock = Clock()
    window = TerminalWindow(sent.append, TerminalOptions(), {"TERM": "linux"}, clock, enabled=True)
    window.enter()
    now = Activity("the parser", "working", turn_since_s=clock.now_s)
    for word in happens.split():
        match word:
            case "I" | "O":
                window.heard(word)
            case "key":
                window.pressed()
            case "none":
                now = Activity("the parser", "working", turn_since_s=clock.now_s)
            case "ask" | "ask2":
                now = Activity("the parser", "waiting", "Bash", word, 100.0)
            case seconds:
                clock.now_s += float(seconds)
        window.update(now)
    assert sum("waiting for you: Bash" in text for text in sent) == calls


def test_a_title_from_outside_cannot_end_its_sequence() -> None:
    sent: list[str] = []
    window = TerminalWindow(
        sent.append, TerminalOptions(), {"TERM": "linux"}, Clock(), enabled=True
    )
    window.enter()
    window.update(Activity("a\x07\x1b\\\x1b]52;c;aGk=\x9cb\nnext " + "x" * 500, ""))
    assert sent[-1].startswith("\x1b]2;a\\x07")
    assert sent[-1].count("\x1b") == 2
    assert len(sent[-1]) < 100


@pytest.mark.parametrize(
    ("environ", "shown"),
    [
        ({"WT_SESSION": "x"}, True),
        ({"TERM_PROGRAM": "ghostty"}, True),
        ({"TERM_PROGRAM": "ghostty", "TMUX": "x"}, False),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.5.2"}, False),
        ({"TERM_PROGRAM": "iTerm.app", "TERM_PROGRAM_VERSION": "3.6.10"}, True),
        ({"VTE_VERSION": "7600"}, False),
        ({"VTE_VERSION": "8000"}, True),
        ({"TERM": "xterm"}, False),
    ],
)
def test_progress_is_sent_to_terminals_that_know_it(environ: dict[str, str], shown: bool) -> None:
    assert shows_progress("auto", environ) == shown
    assert shows_progress("on", environ)
    assert not shows_progress("off", environ)


def test_in_tmux_a_notification_is_passed_through() -> None:
    sent: list[str] = []
    window = TerminalWindow(
        sent.append,
        TerminalOptions(notify="message", notify_after_s=0),
        {"TMUX": "x", "KITTY_WINDOW_ID": "1"},
        Clock(),
        enabled=True,
    )
    window.enter()
    window.heard("O")
    window.update(Activity("", "waiting", "Bash", "c2.0"))
    assert sent[-1] == "\x1bPtmux;\x1b\x1b]9;longrein: waiting for you: Bash\x1b\x1b\\\x1b\\"


ANSWER = "\x1b]11;rgb:1e1e/2e2e/3e3e\x1b\\"


@pytest.mark.parametrize("cut", range(2, len(ANSWER)))
def test_an_answer_in_two_parts_is_still_no_key(cut: int) -> None:
    heard: list[str] = []
    filtered = AnswerFilter(heard.append)
    assert filtered.feed("a" + ANSWER[:cut]) + filtered.feed(ANSWER[cut:] + "b\x1b[I") == "ab"
    assert heard == ["rgb:1e1e/2e2e/3e3e", "I"]


@pytest.mark.parametrize(
    "keys", ["\x1b", "\x1b[A", "\x1b]x", "\x1b[200~\x1b[31m\x1b[201~", "\x1b]12;x", "\x1bO"]
)
def test_keys_pass(keys: str) -> None:
    filtered = AnswerFilter(pytest.fail)
    assert filtered.feed(keys) + filtered.flush() == keys


def contrast(one: str, other: str) -> float:
    """Contrast of two colours as WCAG 2 defines it, 1 to 21."""
    brighter, darker = sorted(map(luminance, (one, other)), reverse=True)
    return (brighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    parts = [part / 255 for part in themes.rgb(colour)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize(
    ("colours", "grounds", "least"),
    [
        (themes.DARK, ("#000000", "#1e1e1e", "#282c34"), 4.5),
        (themes.LIGHT, ("#ffffff", "#fafafa"), 4.5),
        (themes.COLOUR_BLIND, ("#000000", "#ffffff"), 3.0),
    ],
)
def test_every_colour_of_a_theme_can_be_read(
    colours: dict[str, str], grounds: tuple[str, ...], least: float
) -> None:
    low = {
        word: ground
        for word, colour in colours.items()
        for ground in grounds
        if contrast(colour, ground) < least
    }
    assert not low


def test_themes_colour_the_same_words_and_the_old_one_comes_back() -> None:
    before = dict(STYLES)
    for name, styles in themes.THEMES.items():
        themes.use_theme(name)
        assert themes.theme_in_use() == name
        assert styles.keys() == before.keys()
    themes.use_theme("ansi")
    assert before == STYLES

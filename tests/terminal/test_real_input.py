"""The input with a real session: commands of the user, attached files, and the plain terminal."""

import json
from pathlib import Path

from longrein.store import Reader, list_sessions
from longrein_context.events import Reminded, Replied, UserSpoke, text_of
from tests.terminal.pseudo_terminal import WIDE, PseudoTerminal
from tests.terminal.test_attachments import PNG
from tests.terminal.test_real import home, open_it


def entries(project: Path) -> list[object]:
    """The events of the one session of `project`."""
    state = str(project.parent / "state")
    (info,) = list_sessions(state)
    return [entry.event for entry in Reader(state, info.session).entries()]


def test_a_command_of_the_user_enters_the_log_and_a_later_folder_change_lasts(
    tmp_path: Path,
) -> None:
    project = home(tmp_path, {"find": {"seen": r"\| (hel\w+)"}, "text": "I see {{seen}}.\n"})
    (project / "sub").mkdir()
    with open_it(project) as tty:
        tty.ask("!echo hello; cd sub; exit 3").until("  hello").until("  [exit code 3]").until(
            "idle"
        )
        tty.ask('!basename "$PWD"').until(lambda: "  sub" in tty.lines())
        tty.ask("what was it?").until("I see hello.").until("idle").leave()
    found = entries(project)
    first, second = (
        event for event in found if isinstance(event, Reminded) and event.kind == "user_command"
    )
    moved = f"[current folder is now {project}/sub]"
    assert (first.source, first.state) == (
        "echo hello; cd sub; exit 3",
        f"hello\n[exit code 3]\n{moved}",
    )
    assert "| $ echo hello; cd sub; exit 3\n| hello\n| [exit code 3]" in first.text
    assert second.state == "sub"
    spoke = next(n for n, event in enumerate(found) if isinstance(event, UserSpoke))
    assert sum(isinstance(event, Replied) for event in found) == 1
    assert found.index(second) < spoke
    with open_it(project, "-c") as tty:  # what was run is shown again
        tty.until('! basename "$PWD"').until("› what was it?").leave()


def test_esc_stops_a_command_and_leaving_stops_it_too(tmp_path: Path) -> None:
    project = home(tmp_path)
    with open_it(project) as tty:
        tty.ask("!echo begun; sleep 100").until("  begun").until("Esc stops it").send("\x1b")
        tty.until("interrupted by the user").ask("!touch started; sleep 100")
        tty.until((project / "started").exists).leave()
    told = [event.source for event in entries(project) if isinstance(event, Reminded)]
    assert told[0] == "echo begun; sleep 100"


def test_a_file_a_folder_and_a_picture_go_with_the_message_and_only_its_words_are_shown(
    tmp_path: Path,
) -> None:
    project = home(tmp_path, {"text": "Fine.\n"})
    (project / "shot.png").write_bytes(PNG)
    with open_it(project, columns=WIDE) as tty:
        tty.until("say something").send("see @calc.py @shot.png and @. now").settle().send("\r")
        tty.until("[Image #1]").until("/calc.py]").until("Fine.").until("idle").leave()
        assert not any("return a - b" in row for row in tty.everything())
    (spoke,) = (event for event in entries(project) if isinstance(event, UserSpoke))
    assert text_of(spoke.parts[:1]) == "see @calc.py @shot.png and @. now"
    assert "| def add(a, b):\n|     return a - b\n[end of " in text_of(spoke.parts)
    assert "| calc.py\n| shot.png" in text_of(spoke.parts)


def test_keys_of_the_settings_hold(tmp_path: Path) -> None:
    project = home(tmp_path)
    config = tmp_path / "home/.config/longrein/config.toml"
    config.write_text(
        config.read_text() + '[keys]\nvim = true\neditor = ["f6"]\nredraw = ["ctrl-c"]\n'
    )
    with open_it(project) as tty:
        tty.until("keys.redraw: `ctrl-c` has a meaning of its own that stays; Ctrl-L stays").until(
            "INSERT · idle"
        )
        tty.ask("/keys").until("keys.suspend")
        assert any("F6" in row and "edit the input" in row for row in tty.everything())


def test_the_plain_terminal_runs_commands_keeps_notes_and_attaches(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "Fine.\n"})
    with open_it(project, "--plain", WIDE) as tty:
        tty.until(lambda: ">" in tty.lines()).send("!echo hello $((1 + 1))\r").until("  hello 2")
        tty.send("#be brief\r").until("#project: be brief").until("#user: be").send(
            "#project: be brief\r"
        ).until("added to ")
        tty.send("see @calc.py\r").until("Fine.").settle().send("\x04")
        assert tty.wait_exit() == 0
    assert (project / "AGENTS.md").read_text() == "- be brief\n"
    (spoke,) = (event for event in entries(project) if isinstance(event, UserSpoke))
    assert "return a - b" in text_of(spoke.parts)


def test_a_draft_of_the_real_program_is_private(tmp_path: Path) -> None:
    project = home(tmp_path)
    drafts = tmp_path / "state/drafts"
    with open_it(project) as tty:
        tty.until("say something").send("half a thought").until(
            lambda: drafts.is_dir() and any(drafts.iterdir())
        )
        (file,) = drafts.iterdir()
        tty.until(lambda: json.loads(file.read_bytes()).get("text") == "half a thought")
        assert file.stat().st_mode & 0o777 == 0o600
        assert isinstance(tty, PseudoTerminal)

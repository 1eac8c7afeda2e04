"""Slash commands about the session, its settings and files: the whole program on a real
terminal.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

from longrein.store import Reader, list_sessions
from longrein_context.events import TitleSet, UserSpoke, text_of
from tests.terminal.pseudo_terminal import WIDE, PseudoTerminal
from tests.terminal.test_real import home, open_it

EDIT: dict[str, Any] = {
    "text": "I mend it.\n",
    "calls": [
        {"name": "Read", "arguments": {"file_path": "calc.py"}},
        {
            "name": "Edit",
            "arguments": {"file_path": "calc.py", "old_string": "a - b", "new_string": "a + b"},
        },
    ],
}
DONE: dict[str, Any] = {"text": "It adds now.\n"}
MORE: dict[str, Any] = {"text": "And more.\n"}
BYPASS = "--permission-mode bypassPermissions"


def in_git(project: Path) -> None:
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        who = ["-c", "user.name=ada", "-c", "user.email=ada@example.com"]
        subprocess.run(["git", *who, *words], cwd=project, check=True)


def idle(tty: PseudoTerminal) -> PseudoTerminal:
    return tty.until("say something").until("idle")


def entries(project: Path, session: int = 0) -> list[Any]:
    state = str(project.parent / "state")
    return [entry.event for entry in Reader(state, list_sessions(state)[session].session).entries()]


def test_commands_show_the_session(tmp_path: Path) -> None:
    project = home(tmp_path, EDIT, DONE)
    in_git(project)
    (project / "AGENTS.md").write_text("Be kind.\n")
    with open_it(project, BYPASS + " --trust") as tty:
        tty.resize(WIDE, 60)
        idle(
            tty.ask("/diff").until(
                "this session changed no files with its tools; git, against the last commit"
            )
        )
        idle(tty.ask("mend it").until("It adds now."))
        idle(
            tty.ask("/diff")
            .until("1 file changed by this session, +1 -1")
            .until("+     return a + b")
        )
        idle(tty.ask("/diff git").until("git diff").until("+++ b/calc.py"))
        idle(tty.ask("/diff nope").until("this session changed no file with nope in its name"))
        idle(tty.ask("/status").until("mock/small").until("mode          bypassPermissions"))
        idle(tty.ask("/memory").until("instruction files: 1 read").until("AGENTS.md  9 B, read"))
        idle(tty.ask("/config").until('model = "mock/small"').until("config.toml:1"))
        idle(tty.ask("/config wire").until('providers.mock.wire = "scripted"'))
        idle(tty.ask("/config nope").until("no setting with nope in its name is set"))
        idle(tty.ask("/doctor").until("what longrein finds here").until("python"))
        idle(tty.ask("/cost").until("mock/small  turn: 2 requests"))
        idle(tty.ask("/todos").until("the todo list is empty"))
        idle(tty.ask("/skills").until("there are no skills"))


def test_a_title_is_given_kept_and_listed(tmp_path: Path) -> None:
    project = home(tmp_path, DONE)
    with open_it(project) as tty:
        idle(tty.ask("/rename").until("say which: /rename TITLE"))
        idle(tty.ask("mend it").until("It adds now."))
        idle(tty.ask("/rename").until("the title is: mend it"))
        idle(tty.ask("/rename The adder").until("title: The adder"))
        tty.ask("/rename The adder").until("the title is The adder already")
    assert [event.title for event in entries(project) if isinstance(event, TitleSet)] == [
        "The adder"
    ]
    assert [info.title for info in list_sessions(str(tmp_path / "state"))] == ["The adder"]


def test_export_copy_and_fork(tmp_path: Path) -> None:
    project = home(tmp_path, DONE, MORE)
    with open_it(project, columns=WIDE) as tty:
        idle(tty.ask("/export").until("nothing was said yet, so there is nothing to export"))
        idle(tty.ask("/fork").until("nothing was said yet, so there is nothing to fork"))
        idle(tty.ask("/copy").until("there is no answer to copy yet"))
        idle(tty.ask("mend it").until("It adds now."))
        idle(tty.ask("/export told.md").until(r"written to").until("told.md: "))
        idle(tty.ask("/export told.md").until("is there already: name another file"))
        idle(tty.ask("/export told.exe").until("give it one of the endings .html"))
        idle(tty.ask("/copy").until("copied by the terminal: 1 line, 12 characters"))
        tty.ask("/fork").until("from here on this is a copy, session ").until("── session")
        idle(tty.ask("more").until("And more."))
    assert "It adds now." in (project / "told.md").read_text()
    first, second = list_sessions(str(tmp_path / "state"))
    assert first.entries != second.entries


def test_permissions_are_listed_and_removed(tmp_path: Path) -> None:
    project = home(tmp_path, DONE)
    config = tmp_path / "home/.config/longrein/config.toml"
    rules = '[permissions]\nallow = ["Bash(git status)", "Read"] # mine\ndeny = ["WebFetch"]\n'
    config.write_text(config.read_text() + rules)
    with open_it(project, "--allowed-tools Edit") as tty:
        tty.ask("/permissions").until("4 rules above mode default").until("1 deny  WebFetch").until(
            "config.toml:"
        )
        idle(tty).ask("/permissions remove 2").until("removed: allow Bash(git status)").until(
            "3 left"
        )
        idle(tty).ask("/permissions remove 9").until(
            "say which rule to remove by its number (1 to 3)"
        )
        idle(tty).ask("/permissions remove 3").until(
            "Edit comes from --allowed-tools: remove it there"
        )
        idle(tty).ask("/permissions remove Read").until("removed: allow Read").until("2 left")
    assert 'allow = [] # mine\ndeny = ["WebFetch"]\n' in config.read_text()


def test_init_and_review_are_prompts_shown_as_typed(tmp_path: Path) -> None:
    project = home(tmp_path, DONE, MORE)
    with open_it(project) as tty:
        idle(tty.ask("/init briefly").until("It adds now."))
        idle(tty.ask("/review HEAD~1").until("And more."))
        assert "› /init briefly" in tty.everything()
        assert not any("Write the file AGENTS.md" in row for row in tty.everything())
    init, review = [event for event in entries(project) if isinstance(event, UserSpoke)]
    assert "The user adds: briefly" in text_of(init.parts)
    assert text_of(init.typed) == "/init briefly"
    assert "What to review: HEAD~1" in text_of(review.parts)


def test_a_folder_is_added_and_the_session_goes_on(tmp_path: Path) -> None:
    project, other = home(tmp_path, DONE, DONE), tmp_path / "other"
    other.mkdir()
    with open_it(project, columns=WIDE) as tty:
        idle(tty.ask("mend it").until("It adds now."))
        idle(tty.ask("/add-dir nowhere").until("nowhere is not a folder"))
        idle(tty.ask(f"/add-dir {other}").until("── session"))
        idle(tty.ask("/add-dir").until("adds one"))
        idle(tty.ask(f"/add-dir {other}").until("is one of the folders already"))
    assert len(list_sessions(str(tmp_path / "state"))) == 1


def test_the_effort_is_changed_for_the_session(tmp_path: Path) -> None:
    project = home(tmp_path, DONE)
    with open_it(project) as tty:
        idle(tty.ask("/effort much").until("there is no effort much; it is one of none, minimal"))
        tty.ask("/effort").until("how much should the model think?").send("\x1b[B\r").until(
            "→ minimal"
        )
        idle(tty).ask("/effort minimal").until("the effort is minimal already")


def test_a_session_is_found_by_typing_with_a_preview(tmp_path: Path) -> None:
    project = home(tmp_path, DONE)
    for words in ("alpha beta", "gamma delta"):
        with open_it(project) as tty:
            idle(tty.ask(words).until("It adds now."))
    run_once(project)
    with open_it(project, "-r") as tty:
        tty.until("which session?").until("› gamma delta").until("one-shot runs (-p)").until(
            "│ It adds now."
        )
        tty.send("alp").until("› alpha beta").until("1 of 1; type to search")
        tty.send("zz").until("nothing fits").send("\x7f\x7f").until("│ › alpha beta").send("\r")
        tty.until("── session")
        idle(tty)
        assert "› alpha beta" in tty.lines()


def run_once(project: Path) -> None:
    """A one-shot run."""
    root = project.parent
    env = {
        "HOME": str(root / "home"),
        "LONGREIN_STATE_DIR": str(root / "state"),
        "PATH": "/usr/bin:/bin",
    }
    script = root / "script.json"
    script.write_text(json.dumps({"turns": [DONE]}))
    done = subprocess.run(
        [Path(__file__).parents[2] / ".venv/bin/longrein", "-p", "once only"],
        cwd=project,
        env=env,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        check=True,
    )
    assert done.stdout == b"It adds now.\n"


def test_c_goes_on_with_the_newest_session_that_is_no_one_shot_run_and_says_which(
    tmp_path: Path,
) -> None:
    project = home(tmp_path, DONE)
    with open_it(project) as tty:
        idle(tty.ask("alpha beta").until("It adds now."))
    run_once(project)
    with open_it(project, "-c") as tty:
        tty.until("going on with").until("(alpha beta, just now)")


def test_a_one_shot_run_that_is_opened_in_the_terminal_is_a_session_like_any_other(
    tmp_path: Path,
) -> None:
    project = home(tmp_path, DONE)
    run_once(project)
    state = str(tmp_path / "state")
    assert [info.one_shot for info in list_sessions(state)] == [True]
    with open_it(project, "-c") as tty:
        idle(tty)
        idle(tty.ask("/rename").until("the title is: once only"))
    assert [(info.one_shot, info.title) for info in list_sessions(state)] == [(False, "once only")]


def test_a_session_that_is_open_elsewhere_is_watched_or_copied(tmp_path: Path) -> None:
    project = home(tmp_path, DONE, MORE)
    with open_it(project) as other:
        idle(other.ask("alpha beta").until("It adds now."))
        with open_it(project) as tty:
            idle(tty.ask("mine").until("It adds now."))
            tty.ask("/resume").until("› alpha beta").until("open elsewhere").send("\r").until(
                "watch it"
            )
            tty.send("\r").until("alpha beta  watching, read-only").until(
                "idle · watching, read-only; Ctrl-C ends"
            )
            idle(other.ask("more of it").until("And more."))
            tty.until("› more of it").until("And more.").until("turn ended").send("\x03")
            idle(tty.until("── session"))  # back in its own session
            assert "› mine" in tty.lines()
            tty.ask("/resume").until("open elsewhere").send("\r").until("watch it").send("\x1b[B\r")
            tty.until("2 prompts ──").until("And more.")
            idle(tty)
    assert len(list_sessions(str(tmp_path / "state"))) == 3


def test_shift_tab_while_a_reply_comes_goes_on_and_shows_what_comes(tmp_path: Path) -> None:
    project = home(tmp_path, {"text": "word " * 40 + "held " + "word " * 40})
    with open_it(project, HOLD_AFTER="held") as tty:
        tty.until("say something").ask("go").until("word word")
        tty.send("\x1b[Z\x1b[Z").until("default → plan").send("\x1b").until("· plan")
        assert not any("mode: " in row for row in tty.everything())

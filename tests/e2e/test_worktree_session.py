"""`longrein -w NAME`: a session in a git worktree of the folder's repository."""

import shutil
import subprocess
from pathlib import Path

from longrein.store import list_sessions
from tests.e2e.harness import BYPASS, CliHarness, bash, calls, says
from tests.terminal.test_real import home, open_it
from tests.terminal.test_session_commands import DONE, EDIT, idle, in_git


def real_repository(cli: CliHarness) -> None:
    shutil.rmtree(cli.project / ".git")
    (cli.project / "calc.py").write_text("one\n")
    (cli.project / "AGENTS.md").write_text("Be kind.\n")
    in_git(cli.project)
    (cli.project / "new.py").write_text("not committed\n")


def branches(project: Path) -> list[str]:
    listed = subprocess.run(
        ["git", "branch", "--format=%(refname:short)"], cwd=project, capture_output=True, check=True
    )
    return listed.stdout.decode().split()


def test_changes_stay_in_the_worktree_and_are_merged(cli: CliHarness) -> None:
    real_repository(cli)
    cli.plays(calls(bash("echo two >> calc.py")), says("done"))
    ran = cli.run("-p", "x", BYPASS, "-w", "mine")
    tree = cli.state / "worktrees" / "mine"
    assert (ran.code, ran.text) == (0, "done\n")
    assert (
        f"working in worktree {tree}, branch longrein/mine; 1 uncommitted change of {cli.project} "
        "not in it" in ran.err
    )
    assert (
        f"worktree {tree} stays with 1 changed file; `longrein worktrees merge mine` brings them "
        "here" in ran.err
    )
    assert (cli.project / "calc.py").read_text() == "one\n"
    assert (tree / "calc.py").read_text() == "one\ntwo\n"
    assert [info.cwd for info in list_sessions(str(cli.state))] == [str(tree)]
    cli.plays(calls(bash("true")), says("done"), says("again"))
    assert cli.run("-p", "and now", BYPASS, "-w", "mine", "-c").text == "again\n"
    assert len(list_sessions(str(cli.state))) == 1, "-c goes on with the session of the worktree"
    assert cli.run("worktrees", "merge", "mine").code == 0
    assert (cli.project / "calc.py").read_text() == "one\ntwo\n"


def test_an_unchanged_worktree_is_removed(cli: CliHarness) -> None:
    real_repository(cli)
    cli.plays(says("nothing to do"))
    ran = cli.run("-p", "x", "-w", "idle")
    assert (ran.code, ran.text) == (0, "nothing to do\n")
    assert "worktree idle was unchanged and is removed" in ran.err
    assert not (cli.state / "worktrees" / "idle").exists()
    assert branches(cli.project) == ["main"]


def test_trust_of_the_folder_holds_in_its_worktree(cli: CliHarness) -> None:
    real_repository(cli)
    cli.plays(says("ok"))
    assert (
        "not read, because this folder is not trusted: AGENTS.md"
        in cli.run("-p", "x", "-w", "a").err
    )
    assert cli.run("trust").code == 0
    assert "not read" not in cli.run("-p", "x", "-w", "b").err


def test_where_there_can_be_no_worktree_one_line_says_why(cli: CliHarness) -> None:
    assert "longrein: -w mine: " in cli.run("-p", "x", "-w", "mine").err
    real_repository(cli)
    ran = cli.run("-p", "x", "-w", "../x")
    assert (ran.code, ran.text) == (2, "")
    assert "'../x' is no name for a worktree" in ran.err


def test_the_terminal_asks_before_it_removes_an_unchanged_worktree(tmp_path: Path) -> None:
    project = home(tmp_path, DONE)
    in_git(project)
    with open_it(project, "-w mine") as tty:
        tty.until("working in worktree").until("branch longrein/mine")
        idle(tty.ask("look").until("It adds now.")).send("\x04")
        tty.until("worktree mine is unchanged: remove it?").send("y\n")
        tty.until("was unchanged and is removed").exits(0)
    assert branches(project) == ["main"]


def test_the_terminal_keeps_a_worktree_with_changes(tmp_path: Path) -> None:
    project = home(tmp_path, EDIT, DONE)
    in_git(project)
    with open_it(project, "-w mine --permission-mode bypassPermissions") as tty:
        idle(tty.ask("mend it").until("It adds now.")).send("\x04")
        tty.until("longrein -w mine -c").exits(0)
    assert "a - b" in (project / "calc.py").read_text()
    assert "a + b" in (tmp_path / "state/worktrees/mine/calc.py").read_text()

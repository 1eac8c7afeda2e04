"""Hooks and settings of other agents with the installed command: trust, changes, refusals, a
kill in a hook.
"""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from longrein_context.events import HookAnswered, ToolStarted, UserSpoke
from tests.e2e.harness import BYPASS, CliHarness, bash, call, calls, of, says
from tests.e2e.test_trust import open_terminal
from tests.timeouts import HANG_S, wait_until

TOUCH = bash("touch ran.txt")


def write(folder: Path, name: str, table: Any) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps(table))


def hooks(event: str, line: str, **more: Any) -> dict[str, Any]:
    return {"hooks": {event: [{"hooks": [{"type": "command", "command": line, **more}]}]}}


def test_a_project_s_hook_runs_only_where_it_is_trusted_and_as_it_was(cli: CliHarness) -> None:
    write(cli.project, ".claude/settings.json", hooks("PreToolUse", "echo not here >&2; exit 2"))
    cli.plays(calls(TOUCH), says("done"))
    untrusted = cli.run("-p", "go", BYPASS)
    assert "not read, because this folder is not trusted: .claude/settings.json" in untrusted.err
    assert (cli.project / "ran.txt").exists()
    (cli.project / "ran.txt").unlink()
    shown = cli.run("trust")
    assert "runs on PreToolUse: echo not here >&2; exit 2" in shown.text
    assert cli.run("-p", "go", BYPASS).code == 0
    assert not (cli.project / "ran.txt").exists()
    write(cli.project, ".claude/settings.json", hooks("PreToolUse", "touch evil"))
    changed = cli.run("-p", "go", BYPASS)
    assert (
        "hooks that are not as you have confirmed them do not run: PreToolUse `touch" in changed.err
    )
    assert not (cli.project / "evil").exists()
    cli.run("trust")
    cli.run("-p", "go", BYPASS)
    assert (cli.project / "evil").exists()


def test_a18_9_a_refused_prompt_reaches_nobody(cli: CliHarness) -> None:
    write(
        cli.home,
        ".claude/settings.json",
        hooks("UserPromptSubmit", "echo no passwords >&2; exit 2"),
    )
    cli.plays(says("never"))
    ran = cli.stream("my password is correct-horse")
    assert ran.code == 3
    assert "no passwords" in json.dumps(ran.result) + ran.err
    assert of(cli, UserSpoke) == []
    assert b"correct-horse" not in b"".join(
        path.read_bytes() for path in cli.state.rglob("*") if path.is_file()
    )


def test_a_broken_hook_is_a_line_and_never_a_hang(cli: CliHarness) -> None:
    broken = {
        "sleep 300 & sleep 300": 1,
        "echo '{\"a'": HANG_S,
        "exit 2 >&2": HANG_S,
        "yes": HANG_S,
        "head -c 100000000 /dev/zero": HANG_S,
        "/nonexistent": HANG_S,
        "(while :; do sleep 0.01 & done)": 1,
    }
    groups = [
        {"hooks": [{"type": "command", "command": line, "timeout": limit_s}]}
        for line, limit_s in broken.items()
    ]
    write(
        cli.home,
        ".claude/settings.json",
        {"hooks": {"SessionStart": groups, "SessionEnd": groups, "Nope": 1}},
    )
    cli.plays(says("done"))
    ran = cli.run("-p", "go")
    assert (ran.code, ran.text) == (0, "done\n")
    for said in (
        "no answer within 1 s",
        "is no JSON",
        "more than 1,000,000 bytes",
        "exit code 127",
        "Nope",
    ):
        assert said in ran.err, said
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("levels", [101, 600, 990, 20_000])
def test_an_answer_nested_deep_is_a_line(levels: int, cli: CliHarness) -> None:
    """It went into the log's own functions, which call themselves for each level, at each open."""
    deep = f'{{"updated_input": {{"command": "touch evil", "a": {"[" * levels}{"]" * levels}}}}}'
    (cli.project / "answer").write_text(deep)
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", "cat answer"))
    cli.plays(calls(TOUCH), says("done"), says("again"))
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "done\n")
    assert "nested deeper than 100 levels" in ran.err
    assert "Traceback" not in ran.err
    assert (cli.project / "ran.txt").exists()
    assert cli.run("-p", "go on", "-c", BYPASS).text == "again\n"


def test_a_kill_in_the_middle_of_a_hook(cli: CliHarness) -> None:
    line = (
        f"cd {cli.project}; echo x >> asked; touch begun; test -e go || sleep 60; "
        "echo no >&2; exit 2"
    )
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", line))
    cli.plays(calls(TOUCH), says("done"))
    running = cli.start("-p", "go", BYPASS)
    wait_until((cli.project / "begun").exists)
    running.send(signal.SIGKILL)
    running.end()
    assert cli.wait_survivors() == [], "the hook ends with longrein"
    (cli.project / "go").touch()
    cli.plays(says("done"))
    cli.run("-p", "-c", BYPASS)
    assert (cli.project / "asked").read_text() == "x\nx\n"
    assert of(cli, ToolStarted) == []
    assert [one.decision for one in of(cli, HookAnswered)] == ["deny"]


def test_the_user_s_rules_and_variables_of_another_agent(cli: CliHarness) -> None:
    table = {
        "permissions": {"deny": ["Bash(rm *)"], "allow": ["Bash(printenv *)"]},
        "env": {"FLAVOUR": "vanilla"},
    }
    write(cli.home, ".claude/settings.json", table)
    cli.plays(calls(bash("rm -rf x"), bash("printenv FLAVOUR")), says("done"))
    cli.run("-p", "go")
    (denied, ran) = cli.results()
    assert denied[0] == "denied"
    assert ran == ("ok", "vanilla")


def test_a_hook_sees_the_user_s_variables_and_no_other_secrets(cli: CliHarness) -> None:
    table = {**hooks("SessionStart", "env > env.txt"), "env": {"FLAVOUR": "vanilla"}}
    write(cli.home, ".claude/settings.json", table)
    cli.plays(says("done"))
    cli.run("-p", "go", env={"ANTHROPIC_API_KEY": "sk-ant-secret-value"})
    seen = (cli.project / "env.txt").read_text()
    assert "FLAVOUR=vanilla" in seen
    assert f"CLAUDE_PROJECT_DIR={os.path.realpath(cli.project)}" in seen
    assert "sk-ant-secret-value" not in seen


def test_disabled_hooks_do_not_run(cli: CliHarness) -> None:
    cli.settings("[hooks]\ndisable = true")
    write(cli.home, ".claude/settings.json", hooks("SessionStart", f"touch {cli.folder}/ran"))
    cli.plays(says("done"))
    assert cli.run("-p", "go").code == 0
    assert not (cli.folder / "ran").exists()


def test_import_asks_first_and_writes_with_yes(cli: CliHarness) -> None:
    write(
        cli.home,
        ".claude/settings.json",
        {"permissions": {"deny": ["Bash(rm *)"]}, "theme": "dark"},
    )
    before = cli.config.read_text()
    shown = cli.run("import", "claude")
    assert "permissions.deny: Bash(rm *)" in shown.text
    assert "theme of settings.json: no such setting" in shown.text
    assert "nothing was written" in shown.err
    assert cli.config.read_text() == before
    assert cli.run("import", "claude", "--yes").code == 0
    assert 'deny = ["Bash(rm *)"]' in cli.config.read_text()
    wrong = cli.run("import", "emacs")
    assert wrong.code == 2
    assert "claude, codex, gemini, opencode" in wrong.err


def test_the_terminal_asks_again_about_a_changed_hook_and_lists_hooks(cli: CliHarness) -> None:
    write(cli.project, ".claude/settings.json", hooks("PreToolUse", "true"))
    cli.run("trust")
    write(cli.project, ".claude/settings.json", hooks("PreToolUse", "touch changed"))
    cli.plays(says("done"))
    with open_terminal(cli) as tty:
        tty.until("[y/n/q]")
        assert any(
            "hooks of this folder are new, or not as they were" in row for row in tty.lines()
        )
        assert any("PreToolUse: touch changed" in row for row in tty.lines())
        tty.send("y\r").until("idle")
        tty.send("/hooks\r").until("PreToolUse: touch changed")
        tty.send("/exit\r")
        assert tty.wait_exit() == 0
    with open_terminal(cli) as tty:
        tty.until("idle")
        assert not any("[y/n/q]" in row for row in tty.lines())
        tty.send("/exit\r")
        tty.wait_exit()


def test_a18_13_rules_of_another_agent_mean_the_same_here(cli: CliHarness) -> None:
    """Headless and without a sandbox: what no rule allows is denied."""
    cli.without_sandbox()
    table = {
        "permissions": {
            "allow": ["Bash(git *)", "Edit(src/**)"],
            "deny": ["Read(./.env)", "Edit(/locked/**)"],
        }
    }
    write(cli.home, ".claude/settings.json", table)
    for name in ("src/a.txt", "locked/a.txt", ".env", "seen.txt"):
        (cli.project / name).parent.mkdir(exist_ok=True)
        (cli.project / name).write_text("SECRET=1\n")
    (cli.project / "out").symlink_to(cli.folder / "outside.txt")
    (cli.folder / "outside.txt").write_text("SECRET=2\n")
    wanted = [
        (bash("git --version"), "ok"),
        (bash("git --version && rm -rf src"), "denied"),
        (bash("timeout 5 git --version"), "ok"),
        (bash("cat .env"), "denied"),
        (call("Read", file_path=".env"), "denied"),
        (call("Grep", pattern="SECRET", output_mode="files_with_matches"), "ok"),
        (call("Write", file_path="src/new.txt", content="x"), "ok"),
        (call("Write", file_path="locked/new.txt", content="x"), "denied"),
        (call("Write", file_path="other.txt", content="x"), "denied"),
        (call("Read", file_path="out"), "denied"),
    ]
    cli.plays(*(calls(one) for one, _ in wanted), says("done"))
    cli.run("-p", "go")
    results = cli.results()
    assert [status for status, _ in results] == [status for _, status in wanted]
    assert ".env" not in results[5][1]
    assert "seen.txt" in results[5][1]


def test_a4_3_the_terminal_says_why_a_session_ends_and_begins(cli: CliHarness) -> None:
    table = {
        **hooks("SessionEnd", 'grep -o \'"reason":"[a-z_]*"\' >> told.txt')["hooks"],
        **hooks("SessionStart", 'grep -o \'"source":"[a-z_]*"\' >> told.txt')["hooks"],
    }
    write(cli.home, ".claude/settings.json", {"hooks": table})
    cli.plays(says("hello there"))
    seen = cli.project / "told.txt"
    with open_terminal(cli) as tty:
        tty.until("idle").send("hi\r").until("hello there").until("idle")
        tty.send("/clear\r").until(lambda: seen.read_text().count("\n") >= 3).until("idle")
        tty.send("/exit\r")
        assert tty.wait_exit() == 0
    told = seen.read_text().split()
    assert told == [
        '"source":"startup"',
        '"reason":"clear"',
        '"source":"clear"',
        '"reason":"prompt_input_exit"',
    ]

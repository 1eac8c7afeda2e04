"""Commands of hooks with the installed command: the sandbox they run in, and the variables they
set for later ones.
"""

import pytest

from longrein.workspace.sandbox import landlock
from longrein_context.events import HookAnswered
from tests.e2e.harness import (
    BYPASS,
    CliHarness,
    bash,
    call,
    calls,
    needs_sandbox,
    of,
    says,
)
from tests.e2e.test_hooks import TOUCH, hooks, write
from tests.e2e.test_sandbox import broken_program
from tests.timeouts import wait_until

OUTSIDE = "[hooks]\noutside_sandbox = true"
LOOK = (
    'touch in-project; touch "${TMPDIR:-/tmp}/in-tmp" && echo tmp >> seen; touch ~/in-home; ls '
    "~/.ssh >> seen; "
    'touch .claude/more.json; head -c 20 "$(sed \'s/.*"transcript_path":"\\([^"]*\\)".*/\\1/\')" '
    ">> seen"
)


@needs_sandbox
@pytest.mark.parametrize(
    ("own", "settings", "confined"),
    [(False, OUTSIDE, True), (True, "", True), (True, OUTSIDE, False)],
)
@pytest.mark.parametrize("rung", ["bubblewrap", "landlock"])
def test_commands_of_hooks_are_confined_as_those_of_bash(
    cli: CliHarness, own: bool, settings: str, confined: bool, rung: str
) -> None:
    if rung == "landlock":
        if landlock.available():
            pytest.skip(landlock.available())
        broken_program(cli)
    cli.settings(settings)
    (cli.home / ".ssh").mkdir()
    (cli.home / ".ssh/id_secret").touch()
    write(cli.home if own else cli.project, ".claude/settings.json", hooks("PreToolUse", LOOK))
    cli.run("trust")
    cli.plays(calls(TOUCH), says("done"))
    ran = cli.run("-p", "go", BYPASS)
    assert (cli.project / "in-project").exists(), ran.err
    assert (cli.home / "in-home").exists() != confined
    seen = (cli.project / "seen").read_text()
    assert seen.startswith("tmp\n"), "its folder for temporary files can be written"
    assert '{"type":"user"' in seen, "its transcript can be read"
    assert ("id_secret" in seen) != confined
    assert not (cli.project / ".claude/more.json").exists() or own
    assert [one.decision for one in of(cli, HookAnswered)] == ["none"]


@needs_sandbox
@pytest.mark.parametrize(
    "line",
    ["~/.claude/hooks/guard.sh", '"$HOME"/.claude/hooks/guard.sh', "sh {}/.claude/hooks/guard.sh"],
)
def test_a_confined_hook_of_the_user_reaches_its_own_scripts(cli: CliHarness, line: str) -> None:
    folder = cli.home / ".claude/hooks"
    folder.mkdir(parents=True)
    (folder / "guard.sh").write_text(
        '#!/bin/sh\n. "$(dirname "$0")/words.sh"\necho "$WORDS" >&2\nexit 2\n'
    )
    (folder / "guard.sh").chmod(0o755)
    (folder / "words.sh").write_text("WORDS='not on Sundays'\n")
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", line.format(cli.home)))
    cli.plays(calls(TOUCH), says("done"))
    assert cli.run("-p", "go", BYPASS).code == 0
    assert cli.results() == [("denied", "Denied: a hook refused this call: not on Sundays")]


@needs_sandbox
def test_what_a_confined_hook_may_not_make_is_moved_away(cli: CliHarness) -> None:
    write(
        cli.home,
        ".claude/settings.json",
        hooks("PreToolUse", "mkdir -p .claude && echo {} > .claude/settings.json; touch AGENTS.md"),
    )
    cli.plays(calls(TOUCH), says("done"))
    ran = cli.run("-p", "go", BYPASS)
    assert "after a hook: a confined command may not make files that are run or obeyed" in ran.err
    assert f"obeyed later by the program named: {cli.project}/AGENTS.md (coding agents" in ran.err
    assert not (cli.project / ".claude/settings.json").exists()


@needs_sandbox
def test_an_edit_accepts_nothing_that_a_command_made_meanwhile(cli: CliHarness) -> None:
    wait = "case $(cat) in *'\"Write\"'*) until [ -e AGENTS.md ]; do sleep 0.02; done;; esac"
    cli.settings(OUTSIDE)
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", wait))
    plants = "echo x > .envrc; touch AGENTS.md; until [ -e end ]; do sleep 0.02; done"
    cli.plays(
        calls(bash(plants, run_in_background=True)),
        calls(call("Write", file_path="notes", content="x")),
        calls(bash("touch end")),
        says("done"),
    )
    cli.run("-p", "go", "--permission-mode", "acceptEdits")
    assert "".join(cli.reports()).count(f"{cli.project}/.envrc (now ") == 1
    assert f"{cli.project}/AGENTS.md (coding agents)" in "".join(cli.reports())
    assert not (cli.project / ".envrc").exists()


@needs_sandbox
def test_a_hook_that_fails_in_the_sandbox_says_so(cli: CliHarness) -> None:
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", "cat ~/.missing"))
    cli.plays(calls(TOUCH), says("done"))
    assert "hooks.outside_sandbox = true" in cli.run("-p", "go", BYPASS).err


# --- Variables ------------------------------------------------------------------------------------

SET = (
    'echo "export FLAVOUR=\'vanilla ice\'" >> "$CLAUDE_ENV_FILE"; '
    'echo \'export PATH="$PATH:/opt/flavours"\' >> "$CLAUDE_ENV_FILE"'
)
SHOW = bash('echo "$FLAVOUR, $PATH"')


@pytest.mark.parametrize("sandbox", ["off", "auto"])
def test_a4_1_variables_of_a_session_start_reach_commands_and_last_over_a_resume(
    cli: CliHarness, sandbox: str
) -> None:
    cli.settings(f'[sandbox]\nmode = "{sandbox}"')
    table = hooks("SessionStart", SET)
    table["hooks"]["SessionStart"][0]["matcher"] = "startup"
    write(cli.home, ".claude/settings.json", table)
    waiting = bash('echo "$FLAVOUR"', run_in_background=True)
    cli.plays(calls(SHOW, waiting), says("done"), calls(SHOW), says("done"))
    cli.run("-p", "go", BYPASS, "--background", "drain")
    first = cli.results()[0]
    assert first[1].startswith("vanilla ice, ")
    assert first[1].endswith(":/opt/flavours")
    cli.run("-p", "-c", "again", BYPASS)
    assert cli.results()[-1] == first
    (cli.home / ".claude/settings.json").unlink()
    cli.plays(*[says("")] * 4, calls(SHOW), says("done"))
    cli.run("-p", "-c", "once more", BYPASS)
    assert cli.results()[-1][1].startswith(", "), "the log alone sets nothing"
    assert [sorted(one.variables) for one in of(cli, HookAnswered)] == [["FLAVOUR", "PATH"]]
    assert list((cli.session_folder() / "hook-env").iterdir()) == []


def test_a4_1_variables_follow_the_folder(cli: CliHarness) -> None:
    (cli.project / "sub").mkdir()
    line = (
        'test -n "$CLAUDE_ENV_FILE" && echo "export HERE=$(basename "$PWD")" > '
        '"$CLAUDE_ENV_FILE"; touch told'
    )
    write(cli.home, ".claude/settings.json", hooks("CwdChanged", line))
    wait = bash("until [ -e ../go ]; do sleep 0.05; done")
    cli.plays(calls(bash("cd sub")), calls(wait), calls(bash('echo "$HERE"')), says("done"))
    going = cli.start("-p", "go", BYPASS)
    wait_until((cli.project / "sub/told").exists)
    wait_until(lambda: of(cli, HookAnswered))
    cli.go()
    going.end()
    assert cli.results()[-1] == ("ok", "sub")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("printf 'export A=%070000d' 1", "sets more than 64,000 bytes"),
        ("echo exit 3", "cannot be read"),
        ("echo 'export A=1; (('", ""),
        ("head -c 3000 /dev/urandom", ""),
    ],
)
def test_a_broken_file_for_variables_is_at_most_a_line(
    cli: CliHarness, content: str, said: str
) -> None:
    write(
        cli.home, ".claude/settings.json", hooks("SessionStart", f'{content} > "$CLAUDE_ENV_FILE"')
    )
    cli.plays(calls(bash("true")), says("done"))
    ran = cli.run("-p", "go", BYPASS)
    assert (ran.code, ran.text) == (0, "done\n")
    assert said in ran.err
    assert "Traceback" not in ran.err

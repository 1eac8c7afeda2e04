"""A4.1, A5: hooks in the heads of skills and subagent types run while these are in use."""

import json
from pathlib import Path

from longrein_context.events import HookAnswered
from tests.e2e.harness import BYPASS, CliHarness, bash, call, calls, of, says
from tests.e2e.test_hooks import hooks, write

SKILL = """---
name: careful
description: Works carefully.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks:
        - type: command
          command: "echo x >> asked.txt; grep -q danger && { echo 'not with this skill' >&2; exit 2; } || true"
          once: {once}
  Nonsense: 7
---
Be careful.
"""  # noqa: E501
AGENT = """---
name: careful
description: Works carefully.
hooks:
  PreToolUse:
    - matcher: Bash
      hooks: [{type: command, command: "echo 'not for this agent' >&2; exit 2"}]
  Stop:
    - hooks: [{type: command, command: "touch stopped-$(grep -o 'Sub[a-z]*Stop' | head -1)"}]
---
You are careful.
"""
DANGER = bash("echo danger")
LOAD = call("Skill", skill="careful")


def skill(folder: Path, once: bool = False) -> None:
    place = folder / ".claude/skills/careful/SKILL.md"
    place.parent.mkdir(parents=True)
    place.write_text(SKILL.replace("{once}", str(once).lower()))


def test_hooks_of_a_skill_run_once_it_is_loaded_and_after_a_resume(cli: CliHarness) -> None:
    skill(cli.home)
    cli.plays(calls(DANGER), calls(LOAD), calls(DANGER), says("done"), calls(DANGER), says("done"))
    ran = cli.run("-p", "go", BYPASS)
    assert "hooks of Nonsense do not run: is no event" in ran.err
    assert [status for status, _ in cli.results()] == ["ok", "ok", "denied"]
    assert cli.results()[-1][1] == "Denied: a hook refused this call: not with this skill"
    cli.run("-p", "-c", "again", BYPASS)
    assert cli.results()[-1][0] == "denied"


def test_a_hook_with_once_runs_once(cli: CliHarness) -> None:
    skill(cli.home, once=True)
    cli.plays(calls(LOAD), calls(bash("true")), calls(DANGER), says("done"))
    cli.run("-p", "go", BYPASS)
    assert (cli.project / "asked.txt").read_text() == "x\n"
    assert cli.results()[-1][0] == "ok"


def test_once_counts_in_heads_only(cli: CliHarness) -> None:
    write(cli.home, ".claude/settings.json", hooks("PreToolUse", "echo x >> asked.txt", once=True))
    cli.plays(calls(DANGER), calls(DANGER), says("done"))
    cli.run("-p", "go", BYPASS)
    assert (cli.project / "asked.txt").read_text() == "x\nx\n"


def confirm_and_change(cli: CliHarness, path: Path) -> None:
    """Trust the folder and play; then change the hooks of a file and play again."""
    assert (
        f"{path.relative_to(cli.project)}  runs on PreToolUse Bash: echo " in cli.run("trust").text
    )
    cli.run("-p", "go", BYPASS)
    first = cli.session
    path.write_text(path.read_text().replace("echo ", "touch evil.txt; echo "))
    changed = cli.run("-p", "go", BYPASS)
    assert "hooks of careful do not run: confirm them with `longrein trust`" in changed.err
    assert not (cli.project / "evil.txt").exists()
    assert cli.session != first


def test_hooks_of_a_project_s_skill_run_as_they_were_confirmed(cli: CliHarness) -> None:
    skill(cli.project)
    cli.plays(calls(LOAD), calls(DANGER), says("done"))
    confirm_and_change(cli, cli.project / ".claude/skills/careful/SKILL.md")
    assert sorted(cli.results(session)[-1][0] for session in cli.sessions) == ["denied", "ok"]


def test_hooks_of_a_project_s_subagent_run_as_they_were_confirmed(cli: CliHarness) -> None:
    path = cli.project / ".claude/agents/careful.md"
    path.parent.mkdir(parents=True)
    path.write_text(AGENT)
    task = call("Agent", description="x", prompt="look", subagent_type="careful")
    tries = {"when": "look", "turns": [calls(bash("echo x >> ran.txt")), says("tried")]}
    cli.plays(calls(task), calls(bash("echo main >> ran.txt")), says("done"), branches=[tries])
    confirm_and_change(cli, path)
    assert (cli.project / "stopped-SubagentStop").exists()
    assert (cli.project / "ran.txt").read_text() == "main\nx\nmain\n", (
        "the hook is for the subagent alone"
    )


def test_disabled_hooks_of_heads_do_not_run(cli: CliHarness) -> None:
    skill(cli.home)
    write(cli.home, ".claude/settings.json", {"disableAllHooks": True})
    cli.plays(calls(LOAD), calls(DANGER), says("done"))
    ran = cli.run("-p", "go", BYPASS)
    assert cli.results()[-1][0] == "ok"
    assert "confirm" not in ran.err
    assert of(cli, HookAnswered) == []


def test_agents_of_the_command_line_may_have_hooks(cli: CliHarness) -> None:
    table = hooks("PreToolUse", "echo 'not for this agent' >&2; exit 2")
    given = {"careful": {"description": "x", "prompt": "x", **table}}
    task = call("Agent", description="x", prompt="look", subagent_type="careful")
    cli.plays(
        calls(task),
        says("done"),
        branches=[{"when": "look", "turns": [calls(bash("touch a")), says("tried")]}],
    )
    cli.run("-p", "go", BYPASS, "--agents", json.dumps(given))
    assert "tried" in str(cli.results())
    assert not (cli.project / "a").exists()

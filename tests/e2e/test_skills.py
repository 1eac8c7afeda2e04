"""Skills and commands on the command line (A2, A3): `-p "/name"`, the init line, stream-json,
the plain terminal.
"""

import json
from pathlib import Path

import pytest

from longrein.frontends.terminal import command_table
from longrein.frontends.terminal.event_lines import cells, fit, plain
from longrein.frontends.terminal.input_completion import InputCompleter
from longrein.tools import SkillInfo
from longrein_context.events import UserSpoke, text_of

from .harness import CliHarness, call, calls, of, says


def put(cli: CliHarness, name: str, text: str) -> Path:
    path = cli.project / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_A3_a_command_runs_headless_and_the_model_gets_its_text(cli: CliHarness) -> None:
    put(
        cli,
        ".claude/commands/deploy.md",
        "---\ndescription: Deploy\n---\nDeploy to $0. Files: !`ls *.txt`",
    )
    put(cli, "a.txt", "x")
    put(
        cli,
        ".agents/skills/greet/SKILL.md",
        "---\nname: greet\ndescription: Greets\n---\nSay bonjour.",
    )
    cli.plays(calls(call("Skill", skill="greet")), says("done"))
    ran = cli.run("-p", "/deploy staging", "--trust", "--output-format", "stream-json", "--verbose")
    assert ran.code == 0, ran.err
    init = json.loads(ran.text.splitlines()[0])
    assert init["slash_commands"][-2:] == ["deploy", "greet"], "after those of longrein"
    assert init["skills"] == ["greet"]
    assert "Skill" in init["tools"]
    assert "Say bonjour." in ran.text
    [spoke] = of(cli, UserSpoke)
    assert spoke.skill == "deploy"
    assert "Deploy to staging. Files: a.txt" in text_of(spoke.parts)


def test_A3_a_command_that_cannot_run_is_one_line_and_exit_code_2(cli: CliHarness) -> None:
    put(cli, ".claude/commands/bad.md", "!`exit 7`")
    put(cli, ".claude/commands/broken.md", "---\na: [\n---\nx")
    cli.plays(says("never"))
    ran = cli.run("-p", "/bad", "--trust", "--permission-mode", "bypassPermissions")
    assert (ran.code, ran.text) == (2, "")
    lines = ran.err.splitlines()
    assert lines[-1].startswith("longrein: /bad: ")
    assert lines[-1].endswith("/.claude/commands/bad.md: `exit 7` failed: [exit code 7]")
    assert any("broken.md has a head that is no YAML" in line for line in lines)


# --- Terminal -------------------------------------------------------------------------------------


OWN = (
    SkillInfo("deploy", "Deploy\x1b[31m it " * 20, "/x", "x", argument_hint="[place]"),
    SkillInfo("help", "Another", "/x", "x"),
    SkillInfo("git:commit", "Commit", "/x", "x"),
)


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("/dep", ["/deploy"]), ("/he", ["/help"]), ("/git", ["/git:commit"]), ("/deploy x", [])],
)
def test_A3_completion_offers_them_with_their_descriptions(typed: str, offered: list[str]) -> None:
    from prompt_toolkit.document import Document

    found = [*InputCompleter(None, custom=lambda: OWN).get_completions(Document(typed), None)]
    assert [one.text for one in found] == offered
    assert all("\x1b" not in one.display_meta_text for one in found)


def test_A3_help_lists_them_in_80_cells() -> None:
    rows = command_table.help_lines(OWN)
    assert any(plain(row).startswith("  /deploy [place]") for row in rows)
    assert max(cells(plain(part)) for row in rows for part in fit(row, 79)) < 80


def test_A3_a_command_of_a_file_is_a_message_and_a_built_in_one_wins() -> None:
    assert command_table.parse("/deploy x", OWN) is None
    unknown, known = command_table.parse("/deplox", OWN), command_table.parse("/help", OWN)
    assert unknown is not None
    assert unknown.command is None
    assert known is not None
    assert known.command is command_table.BY_NAME["help"]
    assert command_table.unknown_command_text("deplox", OWN).endswith("did you mean /deploy?")


def test_A3_the_plain_terminal_runs_them(cli: CliHarness) -> None:
    put(cli, ".claude/commands/deploy.md", "Deploy to $0.")
    put(cli, ".claude/commands/bad.md", "!`exit 7`")
    cli.plays(says("deployed"))
    ran = cli.run(
        "--plain",
        "--trust",
        "--permission-mode",
        "bypassPermissions",
        stdin=b"/bad\n/deploy staging\n",
    )
    assert "/.claude/commands/bad.md: `exit 7` failed" in ran.text
    assert "> /deploy staging" in ran.text.replace("›", ">")
    assert "deployed" in ran.text
    assert "Deploy to staging." not in ran.text, "the text is for the model"

"""What a run says that nobody could answer: the call, and the flag that would allow it."""

from typing import Any

import pytest

from tests.e2e.harness import CliHarness, bash, call, calls, says

ASK = '{"permissions":{"ask":["Bash(make)"]}}'
ONLY_A_PERSON = "; to approve it, go on with `longrein -r`"
EDITS = "--permission-mode acceptEdits or --allowedTools 'Edit(/{project}/a)'"
WAYS: list[tuple[dict[str, Any], tuple[str, ...], str]] = [
    # call, flags of the run, what the last line says; the sandbox is off
    (bash("echo > a"), (), EDITS),
    (call("Write", file_path="a", content="x"), (), EDITS),
    (bash("touch a"), (), "--permission-mode acceptEdits or --allowedTools 'Bash(touch a)'"),
    (bash("git commit -m x"), (), "allow it with --allowedTools 'Bash(git commit:*)'"),
    (bash("npm test > a"), (), "--allowedTools 'Edit(/{project}/a),Bash(npm test:*)'"),
    (bash("rm $X"), (), "allow it with --allowedTools Bash, as every command is (`rm $X` is"),
    (bash("make"), ("--settings", ASK), f"the rule Bash(make) asks{ONLY_A_PERSON}"),
    (call("Write", file_path=".envrc", content="x"), (), f"obeyed later{ONLY_A_PERSON}"),
    (call("Write", file_path="/etc/x", content="x"), (), "--allowedTools 'Edit(//etc/x)'"),
]


@pytest.mark.parametrize(("asked", "flags", "says_"), WAYS)
def test_a_refusal_names_the_flag_that_would_allow_the_call(
    cli: CliHarness, asked: dict[str, Any], flags: tuple[str, ...], says_: str
) -> None:
    cli.without_sandbox()
    cli.plays(calls(asked), says("I may not."))
    run = cli.run("-p", "go", *flags)
    [line] = run.err.strip().splitlines()
    assert run.code == 3
    assert says_.format(project=cli.project) in line
    if "--allowedTools '" in line:
        cli.plays(calls(asked), says("Done."))
        rules = line.split("--allowedTools '")[1].split("'")[0]
        assert cli.run("-p", "go", "--allowedTools", rules).code == 0


def test_a_plan_that_nobody_can_judge_is_the_answer(cli: CliHarness) -> None:
    plan = call("ExitPlanMode", plan="1. Read\n2. Write")
    wrapped = {"name": "CallTool", "arguments": {"name": "ExitPlanMode", "args": plan["arguments"]}}
    for presents in (plan, wrapped):
        cli.plays(calls(presents), says("Open: the name."))
        run = cli.run("-p", "go", "--permission-mode", "plan")
        assert run.told() == (0, "1. Read\n2. Write\n\nOpen: the name.\n", "")
    result = cli.run("-p", "go", "--permission-mode", "plan", "--output-format", "json").result
    assert (result["subtype"], result["is_error"], result["permission_denials"]) == (
        "success", False, [],
    )  # fmt: skip
    assert result["result"] == "1. Read\n2. Write\n\nOpen: the name."

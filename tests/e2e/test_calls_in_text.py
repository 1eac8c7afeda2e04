"""A model that writes its calls as text, headless."""

import json

import pytest

from longrein_context.events import Replied
from tests.e2e.harness import BYPASS, CliHarness, bash, calls, of, says

TOUCH = "```json\n" + json.dumps({"name": "Bash", "arguments": {"command": "touch made"}}) + "\n```"
LATE = TOUCH + "\nThis makes the file."
NATIVE = calls(bash("true"))


@pytest.mark.parametrize(
    ("turns", "made", "code", "requests"),
    [
        ([says("I make it.\n" + TOUCH), says("done")], True, 0, 2),
        ([says(TOUCH), says(TOUCH), says("done")], True, 0, 3),
        ([says(LATE), says(TOUCH), says("done")], True, 0, 3),
        ([says(LATE), says("It was an example.")], False, 0, 2),
        ([says(LATE), says(LATE)], False, 0, 2),
        ([says(LATE), says(TOUCH.replace("command", "x"))], False, 1, 2),
        ([says(TOUCH[:-9]), says(TOUCH[:-9])], False, 1, 2),
        ([NATIVE, says(LATE)], False, 0, 2),
        ([says(TOUCH.replace("Bash", "Run")), says(TOUCH), says("done")], True, 0, 3),
        ([says(TOUCH.replace("Bash", "Run"))] * 2, False, 0, 2),
        ([NATIVE, says(TOUCH.replace("Bash", "Run"))], False, 0, 2),
        ([NATIVE, says(TOUCH), calls(bash("touch made")), says("done")], True, 0, 4),
        ([NATIVE, says(TOUCH), says(TOUCH)], False, 1, 3),
    ],
)
def test_a_text_that_is_a_call_is_done_or_told_and_never_a_success(
    cli: CliHarness, turns: list[object], made: bool, code: int, requests: int
) -> None:
    cli.plays(*turns)
    ran = cli.run("-p", "make it", BYPASS)
    assert (ran.code, (cli.project / "made").exists()) == (code, made)
    replies = of(cli, Replied)
    assert len(replies) == requests
    assert ("wrote a call as text" in ran.err) == bool(code)


def test_permissions_hold_for_a_call_in_text(cli: CliHarness) -> None:
    cli.plays(says(TOUCH), says("done"))
    assert cli.run("-p", "make it").code == 3
    assert not (cli.project / "made").exists()
    ((status, _),) = cli.results()
    assert status == "denied"

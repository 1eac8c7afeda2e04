"""A program that answers permission questions is asked about confined commands too."""

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import needs_bubblewrap

from .harness import CLI, call, say, sdk_setup
from .test_protocol import ASKS, INITIALIZE, started, user

pytestmark = [
    pytest.mark.anyio,
    needs_bubblewrap,
    pytest.mark.skipif(not CLI.exists(), reason="longrein is not installed as a command"),
]

COMMANDS = ("ls", "touch a.txt", "python3 -c 'print(1)'", "git commit -m x", "echo x > /tmp/y")
PROGRAMS = COMMANDS[1:]
SAYS = ("touch a.txt", "git commit -m x")
WAYS: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = [
    # settings, flags, commands that the program is asked about
    ("", ASKS, PROGRAMS),
    ('[permissions]\nconfined = "run"\n', ASKS, SAYS),
    ("", (*ASKS, "--permission-mode", "auto"), ()),
    ("", (*ASKS, "--permission-mode", "acceptEdits"), PROGRAMS[1:-1]),
    ("", (*ASKS, "--permission-mode", "dontAsk"), ()),
]


async def gate(folder: Path, config: str, flags: tuple[str, ...]) -> tuple[list[Any], list[str]]:
    """Run the commands; return the questions, all denied, and the results of the calls."""
    turns = [*(call("Bash", command=text) for text in COMMANDS), say("done")]
    asked: list[Any] = []
    async with sdk_setup(folder, turns, config) as setup:
        host = await started(setup, *flags)
        host.write(INITIALIZE, user("go"))
        while (line := await host.until_any("control_request", "result"))["type"] != "result":
            asked.append(line["request"])
            response = {"behavior": "deny", "message": "no"}
            answer = {
                "subtype": "success", "request_id": line["request_id"], "response": response,
            }  # fmt: skip
            host.write({"type": "control_response", "response": answer})
        _, lines, _ = await host.end()
    return asked, [str(line) for line in lines if line["type"] == "user"]


@pytest.mark.parametrize(("config", "flags", "wanted"), WAYS)
async def test_a_program_is_asked_about_all_that_no_rule_or_mode_allows(
    tmp_path: Path, config: str, flags: tuple[str, ...], wanted: tuple[str, ...]
) -> None:
    asked, _ = await gate(tmp_path, config, flags)
    assert tuple(one["input"]["command"] for one in asked) == wanted
    updates = {one["input"]["command"]: one["permission_suggestions"] for one in asked}
    edits = {"type": "setMode", "mode": "acceptEdits", "destination": "session"}
    if config == "" and flags == ASKS:
        assert [edits in updates[text] for text in PROGRAMS] == [True, False, False, True]
    if config:
        assert all(edits in updates[text] for text in SAYS)

"""Run what docs/editors.md says: the settings of editors start an agent, and the lists are those
of the code.
"""

import asyncio
import json
import re
from pathlib import Path

import pytest

from longrein.extensions.acp.editor_commands import COMMANDS
from tests.e2e.harness import CliHarness, says

PAGE = (Path(__file__).parent.parent / "docs/editors.md").read_text(encoding="utf-8")
SETTINGS = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)]


@pytest.mark.parametrize("settings", SETTINGS, ids=["zed", "jetbrains"])
def test_settings_of_an_editor_start_an_agent(cli: CliHarness, settings: dict[str, object]) -> None:
    pytest.importorskip("acp", reason="needs agent-client-protocol, which `make library` installs")
    from tests.acp.harness import raw_agent

    [server] = settings["agent_servers"].values()  # type: ignore[attr-defined]
    assert Path(server["command"]).name == Path(cli.command[0]).name
    cli.plays(says("Hi."))

    async def work() -> None:
        async with raw_agent(cli, server["args"], **server["env"]) as raw:
            session = await raw.open(cli)
            answer = await raw.ask(
                "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hello"}]
            )
            assert answer == {"stopReason": "end_turn"}

    asyncio.run(work())


def test_the_commands_of_the_page_run(cli: CliHarness) -> None:
    cli.plays(says("Hi."))
    assert "$ longrein acp --doctor" in PAGE
    done = cli.run("acp", "--doctor")
    assert (done.code, "play/one" in done.text) == (0, True)


def test_the_slash_commands_of_the_page_are_those_that_there_are() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| slash commands"))
    assert re.findall(r"`/(\w+)`", row) == list(COMMANDS)

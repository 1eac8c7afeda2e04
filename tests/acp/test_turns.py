"""A19: the happy path of a turn, with the client of the SDK."""

import asyncio

from tests.acp.harness import acp, agent, file
from tests.e2e.harness import CliHarness, call, calls, says


def run(work: object) -> None:
    asyncio.run(work)  # type: ignore[arg-type]


def test_a19_a_turn_with_thinking_plan_edit_and_permission(cli: CliHarness) -> None:
    file(cli, "app.py", "one\ntwo\n")
    cli.plays(
        calls(
            call("Read", file_path="app.py"), call("TodoWrite", todos=[{"content": "do it", "status": "in_progress"}])
        ),
        calls(call("Edit", file_path="app.py", old_string="two", new_string="three")),
        says("Done."),
    )

    async def turn() -> None:
        async with agent(cli) as longrein:
            session = await longrein.new()
            assert session.session_id == cli.session
            stop = await longrein.prompt(
                session.session_id, "change it", acp.resource_link_block("app", f"file://{cli.project}/app.py")
            )

            assert stop == "end_turn"

    run(turn())
    assert (cli.project / "app.py").read_text() == "one\nthree\n"

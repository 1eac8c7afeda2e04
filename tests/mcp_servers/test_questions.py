"""A7, elicitation: a question of a server is a line for the user, answered with `/mcp answer`."""

import asyncio
from typing import Any

import pytest

from longrein.extensions.mcp.questions import Questions
from longrein_context.events import UsageError
from tests.e2e.harness import CliHarness, call, calls, says
from tests.mcp_servers.harness import fault, serve
from tests.terminal.pseudo_terminal import PseudoTerminal

pytestmark = pytest.mark.anyio

FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "sure": {"type": "boolean"},
        "size": {"type": "string", "enum": ["S", "M"]},
    },
    "required": ["name"],
}
ONE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
ANSWERS: tuple[tuple[dict[str, Any], str, Any], ...] = (
    (
        FORM,
        "name=Ada age=36 sure=true size=M",
        {"name": "Ada", "age": 36, "sure": True, "size": "M"},
    ),
    (FORM, 'name="Ada Lovelace"', {"name": "Ada Lovelace"}),
    (ONE, "Ada Lovelace", {"name": "Ada Lovelace"}),
    ({}, "", {}),
    (FORM, "age=36", 'missing "name"'),
    (FORM, "name=Ada age=old", '"age" must be a whole number'),
    (FORM, "name=Ada size=XL", '"size" must be "S" or "M"'),
)


@pytest.mark.parametrize(("schema", "text", "expected"), ANSWERS)
async def test_an_answer(schema: dict[str, Any], text: str, expected: Any) -> None:
    shown: list[str] = []
    questions = Questions(shown.append)
    asking = asyncio.ensure_future(questions.ask("s", "Who\x1b[2J are\nyou?", schema, ""))
    await asyncio.sleep(0)
    assert shown[0].startswith("MCP server s asks: Who are you? (type /mcp answer s")
    assert await questions.ask("s", "And you?", schema, "") == ("decline", {})
    if isinstance(expected, str):
        with pytest.raises(UsageError, match=expected):
            questions.answer(f"s {text}")
        questions.decline("s")
        assert await asking == ("decline", {})
    else:
        questions.answer(f"s {text}")
        assert await asking == ("accept", expected)
    with pytest.raises(UsageError, match="asks nothing"):
        questions.decline("s")


def test_a_user_answers_in_the_terminal(cli: CliHarness) -> None:
    serve(cli, s=fault("asks"))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("It has your name."))
    arguments = "--permission-mode bypassPermissions go"
    with PseudoTerminal("", cli.project, 100, 40, ARGS=arguments, **cli.env) as terminal:
        terminal.until("MCP server s asks: Who are you?")
        terminal.send("/mcp answer s name=Ada\r").until("It has your name.")
        terminal.send("/mcp\r").until("s  connected  1 tool")
        terminal.send("/exit\r").wait_exit()
    assert '"action": "accept"' in cli.results()[0][1]
    assert '"name": "Ada"' in cli.results()[0][1]

"""A8: questions of the model, commands and skills of the user's files, and folders, in the
editor.
"""

import asyncio
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from longrein_context.events import Asked, Text, UserSpoke
from tests.acp.harness import Agent, RequestError, agent, schema
from tests.acp.test_turns import talk
from tests.e2e.harness import CliHarness, call, calls, of, says
from tests.e2e.test_traces import Collector
from tests.tables import cases, record

COLOUR = {
    "question": "Which colour?",
    "options": [{"label": "red"}, {"label": "green", "description": "like grass"}],
}
SIZES = record(
    question="Which sizes?", multiSelect=True, options=[{"label": n} for n in ("S", "M", "L")]
)
FORMS = schema.ClientCapabilities(elicitation={"form": {}})
FAULT = Path(__file__).parent.parent / "mcp_servers" / "fault_server.py"
ASKING = {"command": sys.executable, "args": ["-S", str(FAULT), "asks"]}
ANSWERED = "The user answered:\n\n"


@cases(
    "questions choices result",
    ([COLOUR], ["choice 2"], ("ok", ANSWERED + "Which colour?\ngreen")),
    ([COLOUR, SIZES], ["choice 1", "choice 3", "choice 1", "no"], ("ok", "Which sizes?\nL, S")),
    ([SIZES], ["choice 1", "choice 2", "choice 3"], ("ok", "Which sizes?\nS, M, L")),
    (
        [COLOUR, SIZES],
        ["no", "choice 1", "no"],
        ("ok", "Which colour?\n(not answered)\n\nWhich sizes?\nS"),
    ),
    ([COLOUR, SIZES], ["no", "no"], ("denied", "the user has not answered")),
    ([COLOUR, SIZES], ["choice 1", None], ("denied", "the editor has not answered")),
    ([COLOUR], ["choice 9"], ("denied", "the editor has not answered")),
    ([COLOUR, SIZES], ["choice 1", "stop"], ("denied", "")),
)
def test_a8_questions_are_asked_one_after_another(
    cli: CliHarness, questions: list[Any], choices: list[str | None], result: tuple[str, str]
) -> None:
    cli.plays(calls(call("AskUserQuestion", questions=questions)), says("Well."))
    left = list(choices)

    async def work(longrein: Agent, session: str) -> None:
        longrein.editor.choose = lambda question: left.pop(0)
        stop = await longrein.prompt(session, "ask me")
        assert stop == ("cancelled" if choices[-1] == "stop" else "end_turn")
        first = longrein.editor.questions[0]
        assert questions[0]["question"] in str(first.tool_call.content)

    talk(cli, work)
    assert left == []
    [(status, text)] = cli.results()
    assert (status, result[1] in text) == (result[0], True)


@cases(
    "fills result",
    ({"q1": "green", "q2": ["S", "M"]}, ("ok", "Which colour?\ngreen\n\nWhich sizes?\nS, M")),
    ({"q1": "my own words"}, ("ok", "Which colour?\nmy own words\n\nWhich sizes?\n(not answered)")),
    ({"q1": 3, "q9": "x"}, ("denied", "the user has not answered")),
    (None, ("denied", "the user has not answered")),
)
def test_a8_questions_are_one_form_where_it_can(
    cli: CliHarness, fills: Any, result: tuple[str, str]
) -> None:
    cli.plays(calls(call("AskUserQuestion", questions=[COLOUR, SIZES])), says("Well."))

    async def work(longrein: Agent, session: str) -> None:
        longrein.editor.fills = fills
        assert await longrein.prompt(session, "ask me") == "end_turn"
        [(message, form)] = longrein.editor.forms
        assert message == "Which colour?\nWhich sizes?"
        assert [one["type"] for one in form["properties"].values()] == ["string", "array"]
        assert longrein.editor.questions == []

    talk(cli, work, capabilities=FORMS)
    [(status, text)] = cli.results()
    assert (status, result[1] in text) == (result[0], True)


@pytest.mark.skipif(find_spec("mcp") is None, reason="the extra `mcp`")
@pytest.mark.parametrize(("fills", "told"), [({"name": "Ada"}, "accept"), (None, "decline")])
def test_a7_a_question_of_a_server_is_a_form(cli: CliHarness, fills: Any, told: str) -> None:
    (cli.home / ".config/longrein/mcp.json").write_text(json.dumps({"mcpServers": {"s": ASKING}}))
    cli.plays(calls(call("mcp__s__echo", text="hi")), says("Well."))

    async def work(longrein: Agent, session: str) -> None:
        longrein.editor.fills = fills
        await longrein.prompt(session, "go")
        [(message, form)] = longrein.editor.forms
        assert message == "MCP server s: Who are you?"
        assert list(form["properties"]) == ["name"]

    talk(cli, work, capabilities=FORMS)
    assert told in str(cli.results())


@pytest.mark.skipif(find_spec("opentelemetry") is None, reason="the extra otel is not installed")
def test_a14_traces_are_sent_when_a_session_closes(cli: CliHarness) -> None:
    collector = Collector()
    cli.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.address
    cli.plays(says("Hello."))

    async def work(longrein: Agent, session: str) -> None:
        await longrein.prompt(session, "hello")
        await longrein.connection.close_session(session_id=session)
        assert {span.name for span in collector.spans} >= {"invoke_agent longrein", "chat one"}

    talk(cli, work)
    collector.close()


def command(cli: CliHarness, name: str, text: str) -> None:
    path = cli.home / ".claude" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a8_commands_and_skills_of_files_are_announced_and_run(cli: CliHarness) -> None:
    command(
        cli,
        "commands/greet.md",
        "---\ndescription: Greet\nargument-hint: WHOM\n---\nGreet $ARGUMENTS warmly.\n",
    )
    command(cli, "commands/compact.md", "Not longrein's own.\n")
    command(
        cli,
        "skills/review/SKILL.md",
        "---\nname: review\ndescription: Review code\n---\nReview it.\n",
    )
    command(cli, "commands/broken.md", "!`rm -r /nothing`\n")
    cli.plays(says("Hello, Ann."), says("Reviewed."))

    async def work(longrein: Agent, session: str) -> None:
        editor = longrein.editor
        await editor.wait_for(lambda: editor.of("available_commands_update"))
        [announced] = editor.of("available_commands_update")
        rows = {one["name"]: one for one in announced["availableCommands"]}
        assert rows["greet"] == {"name": "greet", "description": "Greet", "input": {"hint": "WHOM"}}
        assert rows["review"] == {"name": "review", "description": "Review code"}
        assert rows["compact"]["description"] == "compact the conversation now"
        with pytest.raises(RequestError, match="/broken: "):
            await longrein.prompt(session, "/broken")
        assert await longrein.prompt(session, "/greet Ann") == "end_turn"
        command(cli, "commands/later.md", "Do it later.\n")
        assert await longrein.prompt(session, "/review") == "end_turn"
        await editor.wait_for(lambda: len(editor.of("available_commands_update")) == 2)
        names = [
            one["name"] for one in editor.of("available_commands_update")[-1]["availableCommands"]
        ]
        assert "later" in names

    talk(cli, work)
    said = ["".join(p.text for p in one.parts if isinstance(p, Text)) for one in of(cli, UserSpoke)]
    assert ["Greet Ann warmly." in said[0], "Review it." in said[1]] == [True, True]
    assert len(of(cli, Asked)) == 2


def test_a8_further_folders_are_those_of_the_request(cli: CliHarness, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.txt").write_text(name)
    read = [
        calls(call("Read", file_path=str(tmp_path / name / "a.txt")))
        for name in ("one", "two", "one")
    ]
    cli.plays(*(turn for made in read for turn in (made, says("Read."))))

    async def work() -> None:
        async with agent(cli) as longrein:
            longrein.editor.choose = lambda question: "no"
            session = (
                await longrein.new(additional_directories=[str(tmp_path / "one")])
            ).session_id
            await longrein.prompt(session, "go")
            connection = longrein.connection
            await connection.close_session(session_id=session)
            where = {"session_id": session, "cwd": str(cli.project), "mcp_servers": []}
            for method in (connection.load_session, connection.resume_session):
                await method(**where, additional_directories=[str(tmp_path / "two")])
            await longrein.prompt(session, "go")
            await longrein.prompt(session, "go")

    asyncio.run(work())
    assert [status for status, _ in cli.results()] == ["ok", "ok", "denied"]

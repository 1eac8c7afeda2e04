"""Options of `claude-agent-sdk` become flags: each is accepted and does what it means, or is
said on stderr.
"""

from pathlib import Path
from typing import Any

import pytest

from longrein.frontends.subcommands import WITHOUT_EFFECT
from tests.tables import cases, row

from .harness import NEEDS_CLI, answers, ask, call, of, say, sdk_setup

sdk = pytest.importorskip("claude_agent_sdk", reason="the SDK drives longrein")
pytestmark = NEEDS_CLI

OWN_PROMPT = "You are longrein"


@cases(
    "options has lacks",
    ({}, "", OWN_PROMPT),  # the SDK passes --system-prompt ""
    ({"system_prompt": "Be a pirate."}, "Be a pirate.", OWN_PROMPT),
    ({"system_prompt": {"type": "preset", "preset": "claude_code"}}, OWN_PROMPT, "pirate"),
    (
        {"system_prompt": {"type": "preset", "preset": "claude_code", "append": "Rhyme."}},
        "Rhyme.",
        "pirate",
    ),
    ({"system_prompt": {"type": "file", "path": "prompt.txt"}}, "From a file.", OWN_PROMPT),
    ({"tools": []}, "", '"name":"Bash"'),
    ({"tools": ["Read", "Grep"]}, '"name":"Grep"', '"name":"Bash"'),
    ({"tools": {"type": "preset", "preset": "claude_code"}}, '"name":"Bash"', "pirate"),
    ({"model": "claude-opus-4-1-20250805"}, '"model":"claude-opus-4-1-20250805"', "sonnet-4-5"),
    ({"effort": "high"}, '"thinking":{"type":"enabled","budget_tokens":16000}', "pirate"),
    ({"effort": "xhigh"}, '"thinking":{"type":"enabled"', "pirate"),
    ({"max_thinking_tokens": 2000}, '"budget_tokens":2048', "pirate"),
    ({"thinking": {"type": "disabled"}}, "", '"thinking":{'),
    ({"thinking": {"type": "adaptive"}}, "", '"thinking":{'),
    ({"setting_sources": []}, "", "Always rhyme"),
    ({"setting_sources": ["user", "project"]}, "Always rhyme", "pirate"),
)
async def test_A6_1_options(options: dict[str, Any], has: str, lacks: str, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("4")]) as setup:
        (setup.tree / "prompt.txt").write_text("From a file.")
        (tmp_path / ".config" / "longrein" / "AGENTS.md").write_text("Always rhyme.")
        messages = await ask(setup, "What is 2 + 2?", **options)
        result = messages[-1]
        assert (result.subtype, result.result, result.num_turns) == ("success", "4", 1)
        assert has in setup.sent()
        assert lacks not in setup.sent()
        assert setup.errors == []


@cases(
    "options flag",
    ({"betas": ["context-1m-2025-08-07"]}, "--betas"),
    ({"task_budget": {"total": 1000}}, "--task-budget"),
    ({"extra_args": {"no-session-persistence": None}}, "--no-session-persistence"),
    ({"thinking": {"type": "adaptive", "display": "omitted"}}, "--thinking-display"),
)
async def test_an_idle_option_is_said_in_one_line(options: Any, flag: str, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("4")]) as setup:
        assert (await ask(setup, "2 + 2?", **options))[-1].result == "4"
        assert setup.errors == [f"longrein: {flag} has no effect: {WITHOUT_EFFECT[flag][1]}"]


async def test_unknown_tool_and_a_folder_that_is_not_trusted_are_said_too(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("4")]) as setup:
        (setup.tree / "CLAUDE.md").write_text("Always rhyme.")
        messages = await ask(
            setup, "2 + 2?", tools=["Read", "Teleport"], setting_sources=["project"]
        )
        told = [
            m.data["content"] for m in of(messages, "SystemMessage") if m.subtype == "informational"
        ]
        assert "not read, because this folder is not trusted: CLAUDE.md" in told[0]
        assert told[1].startswith("--tools: there is no Teleport; there are Read, ")


async def test_allowed_and_disallowed_tools(tmp_path: Path) -> None:
    turns = [
        call("Write", file_path="a.txt", content="a"),
        call("Bash", command="touch b.txt"),
        say("ok"),
    ]
    async with sdk_setup(tmp_path, turns) as setup:
        messages = await ask(
            setup, "go", allowed_tools=["Write", "Bash"], disallowed_tools=["Bash"]
        )
        result = messages[-1]
        assert (result.subtype, result.result) == ("success", "ok")
        assert [denial["tool_name"] for denial in result.permission_denials] == ["Bash"]
        assert '"name":"Write"' in setup.sent(0)
        assert '"name":"Bash"' not in setup.sent(0)
        assert "Bash" not in messages[0].data["tools"]
        assert [path.name for path in setup.tree.iterdir()] == ["a.txt"]


SKILL = "---\nname: {0}\ndescription: Does {0}.\n---\nThe text of {0}.\n"


def plant_skills(home: Path, *names: str) -> None:
    for name in names:
        folder = home / ".agents/skills" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(SKILL.format(name))


@cases(
    "skills listed",
    (None, "deploy review"),
    ("all", "deploy review"),
    (["review"], "review"),
    ([], ""),
)
async def test_skills_are_chosen(skills: Any, listed: str, tmp_path: Path) -> None:
    turns = [call("Skill", skill="deploy"), say("ok")]
    async with sdk_setup(tmp_path, turns) as setup:
        plant_skills(tmp_path, "deploy", "review")
        messages = await ask(setup, "go", skills=skills)
        assert messages[-1].result == "ok"
        for name in ("deploy", "review"):
            assert (f"Does {name}." in setup.sent(0)) == (name in listed.split())
        assert ("The text of deploy." in setup.sent()) == ("deploy" in listed)
        assert setup.errors == []


async def test_a_skill_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("ok")]) as setup:
        messages = await ask(setup, "go", skills=["gone"])
        told = [m.data for m in of(messages, "SystemMessage") if m.subtype == "informational"]
        assert [one["content"] for one in told] == ["skills: there is no gone"]


@pytest.mark.parametrize("verbatim", [False, True])
async def test_a_verbatim_prompt_names_no_skill(verbatim: bool, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("ok")]) as setup:
        plant_skills(tmp_path, "deploy")
        await ask(setup, "/deploy now", verbatim_prompts=verbatim)
        assert ("The text of deploy." in setup.sent()) != verbatim
        assert "/deploy now" in setup.sent()


async def test_A18_12_limits_have_their_subtypes(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [call("Glob", pattern="*"), say("unused")], unused=1) as setup:
        with pytest.raises(sdk.ResultError) as stopped:
            await ask(setup, "go", max_turns=1)
        assert (stopped.value.subtype, stopped.value.exit_code) == ("error_max_turns", 4)
    async with sdk_setup(tmp_path, [say("unused")], unused=1) as setup:
        with pytest.raises(sdk.ResultError) as stopped:
            await ask(setup, "go", max_budget_usd=0.0001)
        assert (stopped.value.subtype, stopped.value.exit_code) == ("error_max_budget_usd", 4)


async def test_agents_of_the_program_can_be_started(tmp_path: Path) -> None:
    agent = sdk.AgentDefinition(description="Reviews code.", prompt="You review.", tools=["Read"])
    start = call("Agent", subagent_type="reviewer", prompt="Review it.", description="review")
    async with sdk_setup(tmp_path, [start, say("Fine code."), say("It is fine.")]) as setup:
        messages = await ask(setup, "review", agents={"reviewer": agent})
        assert messages[-1].result == "It is fine."
        assert "Reviews code." in setup.sent(0)
        assert "You review." in setup.sent(1)
        child = next(m for m in of(messages, "AssistantMessage") if m.parent_tool_use_id)
        assert child.content[0].text == "Fine code."


async def test_sessions_are_named_continued_resumed_and_forked(tmp_path: Path) -> None:
    name = "0192d0c8-0000-7000-8000-000000000042"
    async with sdk_setup(tmp_path, [say("one"), say("two"), say("three"), say("four")]) as setup:
        first = (await ask(setup, "first", session_id=name))[-1]
        second = (await ask(setup, "second", continue_conversation=True))[-1]
        third = (await ask(setup, "third", resume=name))[-1]
        forked = (await ask(setup, "fourth", resume=name, fork_session=True))[-1]
        assert (
            first.session_id == second.session_id == third.session_id == name != forked.session_id
        )
        assert all(word in setup.sent() for word in ("first", "second", "third", "fourth"))


@pytest.mark.parametrize("fork", [False, True])
async def test_a_session_is_resumed_at_a_message(fork: bool, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("one"), say("answer 2"), say("three")]) as setup:
        first = await ask(setup, "first question")
        session = first[-1].session_id
        await ask(setup, "second question", resume=session)
        at = of(first, "AssistantMessage")[0].uuid
        third = await ask(
            setup, "third question", resume=session, fork_session=fork, resume_session_at=at
        )
        assert third[-1].result == "three"
        assert [
            word in setup.sent()
            for word in ("first question", "one", "second question", "answer 2")
        ] == [True, True, False, False]
        with pytest.raises(Exception, match=r"no message of session .* has the id"):
            await ask(
                setup,
                "fourth",
                resume=session,
                resume_session_at="0192d0c8-0000-7000-8000-000000000042",
            )


async def test_partial_messages(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [{"thinking": "hm", "text": "2 + 2 is 4"}]) as setup:
        messages = await ask(setup, "2 + 2?", include_partial_messages=True)
        events = [m.event for m in of(messages, "StreamEvent")]
        assert (events[0]["type"], events[-1]["type"]) == ("message_start", "message_stop")
        deltas = [e["delta"] for e in events if e["type"] == "content_block_delta"]
        assert "".join(d.get("text", "") for d in deltas) == "2 + 2 is 4"
        assert "".join(d.get("thinking", "") for d in deltas) == "hm"


SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "integer", "minimum": 1}},
    "required": ["answer"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


async def test_structured_output_is_checked_and_asked_for_again(tmp_path: Path) -> None:
    turns = [
        say("It is four."),
        call("StructuredOutput", answer="many"),
        call("StructuredOutput", answer=0),
        call("StructuredOutput", answer=4),
        say("Done."),
    ]
    async with sdk_setup(tmp_path, turns) as setup:
        result = (await ask(setup, "2 + 2?", output_format=FORMAT))[-1]
        assert (result.subtype, result.structured_output, result.num_turns) == row(
            "success", {"answer": 4}, 5
        )
        assert "counts only as a call of StructuredOutput" in setup.sent(1)
        assert "[bad-output] $.answer: 0 is less than the minimum of 1" in setup.sent(3)


async def test_structured_output_that_never_comes_is_an_error(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("four")] * 6) as setup:
        with pytest.raises(sdk.ResultError) as stopped:
            await ask(setup, "2 + 2?", output_format=FORMAT)
        assert stopped.value.subtype == "error_max_structured_output_retries"


async def test_each_prompt_of_a_client_has_its_own_structured_output(tmp_path: Path) -> None:
    turns = [
        call("StructuredOutput", answer=1),
        say("a"),
        say("four"),
        call("StructuredOutput", answer=2),
        say("b"),
    ]
    async with sdk_setup(tmp_path, turns) as setup:
        async with sdk.ClaudeSDKClient(setup.options(output_format=FORMAT)) as client:
            found = [
                (await answers(client, prompt))[-1].structured_output
                for prompt in ("first", "second")
            ]
        assert found == [{"answer": 1}, {"answer": 2}]

"""A4 the hook contract: answers and matchers judged by kimi, OpenHands and Gemini CLI, which run
the same hooks.
"""

import json
import re
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config.hook_files import HookFile, parse_hooks
from longrein.permissions.hook_protocol import EVENTS, OTHER_EVENTS, Hook, matches, read_answer
from longrein.tools import ASK_USER, SKILL, agent_tool, builtin_tools
from tests.tables import split_words

from .peers import AGENTS, GEMINI, KIMI, ask, needs

TEXTS = st.sampled_from(
    ["", "no", "two\nlines", " blank ", "größer ☃", "{", "[1]", '"text"', "{}", "null"]
)
CODES = st.sampled_from([0, 1, 2, 3, 127])
DECISIONS = st.fixed_dictionaries(
    {},
    optional={
        "permissionDecision": st.sampled_from(["allow", "deny", "ask"]),
        "permissionDecisionReason": st.sampled_from(["", "because", "größer"]),
    },
).map(lambda fields: {"hookSpecificOutput": {"hookEventName": "PreToolUse", **fields}})
OLD_DECISIONS = st.fixed_dictionaries(
    {},
    optional={
        "decision": st.sampled_from(["allow", "deny"]),
        "reason": st.sampled_from(["because", "größer"]),
        "continue": st.booleans(),
    },
)
TOOLS = split_words("""
    Bash BashOutput Edit Write NotebookEdit mcp__mem__add mcp__mem__x_y WebFetch
""")


def refused(event: str, code: int, stdout: str, stderr: str) -> tuple[bool, str]:
    """Whether the call or prompt is refused, and why."""
    answer = read_answer(event, code, stdout, stderr)
    return answer.decision in ("deny", "block", "stop"), answer.reason


@needs(KIMI)
@given(code=CODES, stdout=TEXTS | DECISIONS.map(json.dumps), stderr=TEXTS)
@settings(max_examples=40, deadline=None)
def test_A4_5_kimi_refuses_same_calls_for_same_reason(code: int, stdout: str, stderr: str) -> None:
    ours, why = refused("PreToolUse", code, stdout, stderr)
    action, reason = ask("kimi_hook", "PreToolUse", code, stdout, stderr)
    assert ours is (action == "block")
    assert not ours or not reason or why == reason


@needs(AGENTS)
@pytest.mark.parametrize("event", ["PreToolUse", "UserPromptSubmit", "Stop"])
@given(code=CODES, stdout=TEXTS, stderr=TEXTS, answer=OLD_DECISIONS)
@settings(max_examples=30, deadline=None)
def test_A4_6_openhands_refuses_the_same(
    event: str, code: int, stdout: str, stderr: str, answer: dict[str, Any]
) -> None:
    # OpenHands also reads the JSON of a hook that has failed
    said = json.dumps(answer) if code == 0 else stdout
    ours, why = refused(event, code, said, stderr)
    theirs, reason = ask("openhands_hook", event, code, said, stderr)
    assert ours is theirs
    assert not ours or not reason or answer.get("continue") is False or why == reason


def ours_matches(matcher: str, tool: str) -> bool:
    return matches(Hook("PreToolUse", "x", "settings.json", matcher), "PreToolUse", (tool,))


@needs(AGENTS)
@given(
    names=st.lists(st.sampled_from(TOOLS), min_size=1, max_size=3),
    tool=st.sampled_from(TOOLS),
    all_=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_A4_1_openhands_reads_list_of_names_same(names: list[str], tool: str, all_: bool) -> None:
    matcher = "*" if all_ else "|".join(names)
    assert ours_matches(matcher, tool) is ask("openhands_matches", matcher, tool)


PATTERNS = st.lists(
    st.sampled_from(
        [".*", "^", "$", "mcp__", "(Edit|Write)", "[A-Z]", "Bash", "mem", "_", ".", "\\w+", "x?"]
    ),
    min_size=1,
    max_size=4,
).map("".join)


@needs(KIMI, GEMINI)
@given(
    matcher=PATTERNS.filter(lambda text: not re.fullmatch(r"[\w\-, |]*", text)),
    tool=st.sampled_from(TOOLS),
)
@settings(max_examples=100, deadline=None)
def test_A4_1_kimi_and_gemini_read_an_expression_the_same(matcher: str, tool: str) -> None:
    ours = ours_matches(matcher, tool)
    assert ours is ask("kimi_matches", matcher, tool)
    assert ours is ask("gemini_matches", matcher, tool)


GROUPS = st.lists(
    st.fixed_dictionaries(
        {
            "hooks": st.lists(
                st.sampled_from(["./a.sh", "echo b", "c --d"]), min_size=1, max_size=2, unique=True
            )
        },
        optional={"matcher": st.sampled_from(["", "*", "Bash", "Edit|Write", "mcp__.*"])},
    ),
    min_size=1,
    max_size=3,
)


@needs(AGENTS)
@given(
    table=st.dictionaries(
        st.sampled_from(["PreToolUse", "PostToolUse", "Stop"]), GROUPS, min_size=1
    ),
    tool=st.sampled_from(TOOLS),
)
@settings(max_examples=40, deadline=None)
def test_A4_1_openhands_starts_same_commands_of_a_file(table: dict[str, Any], tool: str) -> None:
    written = {
        event: [
            {**group, "hooks": [{"type": "command", "command": line} for line in group["hooks"]]}
            for group in groups
        ]
        for event, groups in table.items()
    }
    found, notes = parse_hooks(
        written, HookFile("settings.json", "settings.json", is_own=True), "/repo"
    )
    assert notes == []
    theirs = ask("openhands_hooks", {"hooks": written}, tool)
    for event in table:
        if event != "Stop":  # there the matcher does not count
            assert [hook.name for hook in found if matches(hook, event, (tool,))] == theirs[event]


def test_A4_3_every_event_of_the_sdk_is_known_by_its_name() -> None:
    types = pytest.importorskip(
        "claude_agent_sdk.types", reason="claude-agent-sdk is not installed: make library"
    )
    events = {name for one in get_args(types.HookEvent) for name in get_args(one) or (one,)}
    assert "PreToolUse" in events
    assert events <= set(EVENTS)
    assert not set(EVENTS) & set(OTHER_EVENTS)


INPUTS = [
    ("Bash", "command description timeout run_in_background"),
    ("Read", "file_path offset limit"),
    ("Write", "file_path content"),
    ("Edit", "file_path old_string new_string replace_all"),
    ("Glob", "pattern path"),
    ("Grep", "pattern path glob output_mode -i multiline"),
    ("WebFetch", "url"),
    ("Agent", "prompt description subagent_type model run_in_background"),
    ("Task", "prompt description subagent_type model run_in_background"),
    ("AskUserQuestion", "questions"),
    ("ExitPlanMode", "plan"),
    ("TodoWrite", "todos"),
    ("Skill", "skill args"),
    ("TaskOutput", "task_id"),
    ("BashOutput", "task_id"),
    ("TaskStop", "task_id"),
    ("KillShell", "task_id"),
]


@pytest.mark.parametrize(("name", "inputs"), INPUTS)
def test_A4_4_a_tool_has_the_name_and_inputs_that_scripts_look_for(name: str, inputs: str) -> None:
    tools = [*builtin_tools(), agent_tool(()), SKILL, ASK_USER]
    tool = next(one for one in tools if name == one.spec.name or name.lower() in one.aliases)
    assert set(inputs.split()) <= tool.spec.schema["properties"].keys()

"""What a request says of tools: none that is not offered in it, and how much of it there is."""

import re
from collections.abc import Collection
from itertools import combinations

import pytest

from longrein.agent import builtin_kinds, compose_system, subagent_system
from longrein.tools import (
    SKILL,
    Tool,
    agent_tool,
    builtin_tools,
    for_offered,
    goal_tools,
    offer_tools,
)

TOOLS = (*builtin_tools(), agent_tool(builtin_kinds()), *goal_tools(), SKILL)
NAMES = [tool.spec.name for tool in TOOLS]
COMMON = ("Read", "Write", "Edit", "apply_patch", "Bash", "Grep", "Glob", "Recall", "Agent")
SETS = [
    (),
    *((name,) for name in NAMES),
    *combinations(COMMON, 2),
    *(tuple(name for name in NAMES if name != left) for left in NAMES),
    NAMES,
]


def named_in(text: str) -> set[str]:
    """The tools that a text names."""
    return {name for name in (*NAMES, "ToolSearch", "CallTool") if re.search(rf"\b{name}\b", text)}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("patches", [False, True])
def test_no_text_names_a_tool_that_is_not_offered(small: bool, patches: bool) -> None:
    for names in SETS:
        chosen: list[Tool] = [tool for tool in TOOLS if tool.spec.name in names]
        told = offer_tools(chosen, 100_000, patches=patches, small=NAMES if small else ())
        specs = (*told.listed, *told.deferred)
        offered = {spec.name for spec in specs}
        texts = {spec.name: str(spec.sent) for spec in told.listed}
        texts["system"] = compose_system(offered, small=small)
        for where, text in texts.items():
            assert named_in(text) <= offered, (where, names)
            assert "{{" not in text
            assert "}}" not in re.sub(r"\}\}+['\"]?", "", text) or where != "system"


@pytest.mark.parametrize("kind", builtin_kinds(), ids=lambda kind: kind.name)
def test_no_text_of_a_subagent_names_a_tool_that_it_has_not(kind: object) -> None:
    given: Collection[str] = getattr(kind, "tools", None) or ("Read", "Write", "Bash")
    system = subagent_system(kind, given)  # type: ignore[arg-type]
    assert named_in(system.partition("# What the harness tells you")[2]) <= {*given}


def test_no_text_holds_an_example_of_a_path_or_of_a_call_in_another_form() -> None:
    for small in (False, True):
        system = compose_system(NAMES, small=small)
        assert not re.search(r"\bsrc/|\w+\.py\b|\w+\([a-z_]+=", system)
        for spec in offer_tools(TOOLS, 100_000, small=NAMES if small else ()).listed:
            assert "src" not in str(spec.sent), spec.name


def test_passages() -> None:
    text = "a{{Read: b}}{{Read, Glob: c}}{{Glob:\nd}}"
    assert [for_offered(text, names) for names in ((), ("Read",), ("Glob",), ("Read", "Glob"))] == [
        "a",
        "ab",
        "ad",
        "abcd",
    ]


@pytest.mark.parametrize(("small", "chars"), [(True, 4_000), (False, 10_000)])
def test_what_each_request_holds_is_short(small: bool, chars: int) -> None:
    told = offer_tools(TOOLS[:-1], 100_000, small=NAMES if small else ())
    sizes = [len(str(spec.sent)) for spec in told.listed]
    names = [spec.name for spec in (*told.listed, *told.deferred)]
    assert sum(sizes) + len(compose_system(names, small=small)) <= chars

"""Deferred tools (E5): their cost, search results, and errors for calls that do not fit."""

import re

import msgspec
import pytest

from longrein.tools import (
    DeferralPolicy,
    Tool,
    bad_arguments_message,
    builtin_tools,
    make_tool,
    named_tools,
    offer_tools,
    tools_by_name,
    unknown_call_message,
)
from longrein.tools.tool_search import catalogue, rank_tools, search_answer
from longrein_context import schema_diagnosis, spec_tokens
from longrein_context.events import PrefixSet, ToolCall, unwrapped
from tests.tools.servers import SERVERS, server_tool, server_tools

FOREIGN = server_tools()
SPECS = tuple(tool.spec for tool in FOREIGN)
LISTED = named_tools(tool for tool in builtin_tools() if tool.spec.name != "apply_patch")
OWN = tuple(tool.spec for tool in LISTED)
USABLE = 180_000


def cost(specs: object) -> int:
    return sum(map(spec_tokens, specs))  # type: ignore[call-overload, no-any-return]


# --- what is offered ------------------------------------------------------------------------------


def test_E5_sixty_foreign_tools_cost_at_most_two_thousand_tokens() -> None:
    assert cost(SPECS) > 9_000, "in full"
    told = offer_tools((*LISTED, *FOREIGN), USABLE)
    assert cost(told.listed) - cost(OWN) <= 2_000
    found = [spec.name for spec in told.listed]
    assert found == [*(spec.name for spec in OWN), "ToolSearch", "CallTool"]
    assert told.deferred == SPECS


def test_E5_each_of_sixty_names_can_be_read_from_the_catalogue() -> None:
    lines = catalogue(SPECS).splitlines()
    assert lines[0] == "They are, by server (full name mcp__SERVER__TOOL):"
    found = lines[1:]
    assert found == [f"- {server}: {', '.join(names.split())}" for server, names in SERVERS.items()]


def test_E5_a_thousand_tools_still_fit_and_the_catalogue_says_what_it_leaves_out() -> None:
    many = tuple(
        server_tool(f"server{n % 20}", f"do_the_thing_number_{n}").spec for n in range(1_000)
    )
    text = catalogue(many)
    assert len(text) < 3_200
    assert ", and 4" in text
    some = catalogue(
        tuple(server_tool(f"server_with_a_long_name_{n}", "run").spec for n in range(500))
    )
    assert len(some) < 3_200
    assert " more servers" in some.splitlines()[-1]


@pytest.mark.parametrize(("tools", "usable", "options", "deferred"), [
    (FOREIGN, USABLE, None, True),
    (FOREIGN[:3], USABLE, None, False),
    (FOREIGN[:3], 4_000, None, True),
    (FOREIGN, USABLE, DeferralPolicy(tokens_max=50_000), False),
    (FOREIGN, 60_000, DeferralPolicy(tokens_max=50_000), True),
    ((), USABLE, None, False),
])  # fmt: skip
def test_E5_when_they_are_deferred(
    tools: tuple[Tool, ...], usable: int, options: DeferralPolicy, deferred: bool
) -> None:
    told = offer_tools((*LISTED, *tools), usable, options)
    assert bool(told.deferred) is deferred
    names = [spec.name for spec in told.listed]
    assert ("ToolSearch" in names, "CallTool" in names) == (deferred, deferred)
    assert set(names) >= {spec.name for spec in OWN}, "tools that were named never are"


def test_E5_a_tool_may_ask_to_be_deferred_whatever_its_name() -> None:
    async def Convert(text: str) -> str:
        """Convert a text."""
        return text

    told = offer_tools(
        (*LISTED, make_tool(Convert, access="none", listing="deferred")),
        4_000,
        DeferralPolicy(0, 0),
    )
    assert [spec.name for spec in told.deferred] == ["Convert"]
    assert "- others (full names): Convert" in told.listed[-2].description


def test_E5_there_is_nothing_to_search_where_nothing_is_foreign() -> None:
    assert list(tools_by_name(LISTED)) == [spec.name for spec in OWN]
    found = list(tools_by_name((*LISTED, FOREIGN[0])))[-3:]
    assert found == ["mcp__github__create_issue", "ToolSearch", "CallTool"]


# --- what is found --------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "first"), [
    ("mcp__crm__find_customer", "mcp__crm__find_customer"),
    ("select:mcp__db__run_query", "mcp__db__run_query"),
    ("find_customer", "mcp__crm__find_customer"),
    ("close an issue", "mcp__github__close_issue"),
    ("issues", "mcp__github__list_issues"),
    ("pull request merge", "mcp__github__merge_pull_request"),
    ("refund", "mcp__crm__refund_order"),
    ("Search Pages", "mcp__wiki__searchPages"),
    ("wiki version restore", "mcp__wiki__restoreVersion"),
    ("book a meeting room", "mcp__calendar__book_room"),
    ("free slot", "mcp__calendar__find_free_slot"),
    ("locks in the db", "mcp__db__list_locks"),
    ("explain", "mcp__db__explain_query"),
])  # fmt: skip
def test_E5_the_search_finds(query: str, first: str) -> None:
    assert rank_tools(query, SPECS)[0].name == first


def test_E5_several_names_give_all_of_them_first() -> None:
    found = rank_tools("mcp__db__list_locks, mcp__crm__add_note", SPECS)
    assert {spec.name for spec in found[:2]} == {"mcp__db__list_locks", "mcp__crm__add_note"}


def test_E5_a_description_in_another_script_is_found() -> None:
    async def run(text: str) -> str:
        """客户资料的查询。"""
        return text

    run.__name__ = "mcp__zh__query"
    spec = make_tool(run, access="read").spec
    assert rank_tools("客户", (*SPECS, spec)) == [spec]


def test_E5_an_answer_has_names_descriptions_and_schemas() -> None:
    text = search_answer("close issue", SPECS, 1)
    schema = msgspec.json.encode(FOREIGN[2].spec.schema).decode()
    head, page, more = text.split("\n\n")
    assert head.endswith("of 60 tools match; call one with CallTool(name, args).")
    assert page == f"## mcp__github__close_issue\n{FOREIGN[2].spec.description}\nargs: {schema}"
    assert more.startswith("Less likely: mcp__github__")


def test_E5_an_answer_has_a_limit() -> None:
    huge = tuple(msgspec.structs.replace(spec, description="issue " * 1_500) for spec in SPECS)
    assert search_answer("issue", huge, 20).count("\n## ") == 2
    assert search_answer("list", SPECS, 500).count("\n## ") <= 20
    assert search_answer("list", SPECS, -3).count("\n## ") == 1


def test_E5_nothing_found_names_the_nearest_and_where_tools_come_from() -> None:
    told = "They come from: github (12), crm (12), calendar (12), wiki (12), db (12)."
    assert search_answer("zzz", SPECS, 5) == f"None of 60 tools matches 'zzz'. {told}"
    assert "Did you mean mcp__" in search_answer("mcp__cmr__fnd_cstomr", SPECS, 5)
    assert search_answer("", SPECS, 5).startswith("None of 60 tools matches ''.")


# --- what a call means ----------------------------------------------------------------------------


NOTE = "mcp__crm__add_note"
NESTED = {"name": "CallTool", "args": {"name": "Read", "args": {"file_path": "a"}}}


@pytest.mark.parametrize(("arguments", "name", "inner"), [
    ({"name": NOTE, "args": {"query": "x"}}, NOTE, {"query": "x"}),
    ({"name": NOTE}, NOTE, {}),
    ({"name": NOTE, "args": None}, NOTE, {}),
    ({"name": NOTE, "args": '{"query": "x"}'}, NOTE, {"query": "x"}),
    (NESTED, "Read", {"file_path": "a"}),
    ({"name": NOTE, "query": "x"}, "CallTool", None),
    ({"name": NOTE, "args": [1]}, "CallTool", None),
    ({"name": NOTE, "args": "{"}, "CallTool", None),
    ({"name": 3}, "CallTool", None),
    ({"name": ""}, "CallTool", None),
    ({"args": {}}, "CallTool", None),
    ({}, "CallTool", None),
    (None, "CallTool", None),
])  # fmt: skip
def test_E5_a_call_is_unwrapped_or_stays_what_it_is(
    arguments: object, name: str, inner: object
) -> None:
    call = ToolCall("c1.0", "CallTool", arguments)  # type: ignore[arg-type]
    meant = unwrapped(call)
    assert (meant.id, meant.name) == ("c1.0", name)
    assert meant.arguments == (arguments if inner is None else inner)


def test_E5_an_ordinary_call_is_itself() -> None:
    call = ToolCall("c1.0", "Read", {"name": "x", "args": {}})
    assert unwrapped(call) is call


def test_E5_an_unknown_name_is_answered_with_the_nearest_one() -> None:
    names = list(tools_by_name((*builtin_tools(), *FOREIGN)))
    text = unknown_call_message("mcp__crm__find_custmer", names, SPECS)
    assert text.startswith(
        '[unknown-tool] There is no tool "mcp__crm__find_custmer". Did you mean '
        "mcp__crm__find_customer?"
    )
    assert "Tools: Read, Write, " in text
    assert "mcp__db__" not in text
    assert text.endswith("github (12), crm (12), calendar (12), wiki (12), db (12).")
    assert (
        unknown_call_message("find_customer", names, SPECS).count(
            "Did you mean mcp__crm__find_customer?"
        )
        == 1
    )


def test_E5_arguments_that_do_not_fit_are_refused_with_the_schema() -> None:
    told = bad_arguments_message(FOREIGN[0], "[bad-arguments] …", SPECS)
    schema = msgspec.json.encode(FOREIGN[0].spec.schema).decode()
    assert told == f"[bad-arguments] …\nThe arguments of mcp__github__create_issue: {schema}"
    found = bad_arguments_message(builtin_tools()[0], "[bad-arguments] …", SPECS)
    assert found == "[bad-arguments] …"


# --- what is said of it ---------------------------------------------------------------------------


FILLS = "server github's schemas fill N of your N window"


@pytest.mark.parametrize(("tools", "window", "told"), [
    (FOREIGN, 20_000, f"{FILLS}; these are deferred now"),
    (FOREIGN[:3], 4_000, f"{FILLS}; switch off what you do not need of it"),
    (FOREIGN, 200_000, ""),
    ((), 4_000, ""),
])  # fmt: skip
def test_E5_the_floor_diagnosis_names_the_server(
    tools: tuple[Tool, ...], window: int, told: str
) -> None:
    options = DeferralPolicy() if len(tools) > 3 else DeferralPolicy(share_max=1.0)
    offered = offer_tools((*builtin_tools(), *tools), window, options)
    prefix = PrefixSet("start", "p", "m", "scripted", "", offered.listed, (), (), offered.deferred)
    assert re.sub(r"[\d.]+k?\b", "N", schema_diagnosis(prefix, window)) == told

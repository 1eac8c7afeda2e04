"""E5: sixty foreign tools in a session: looked up, called through one frozen tool, judged and
seen by their names.
"""

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from longrein.agent import Answer, Continue, OpenSession
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.frontends.headless.reporter import progress
from longrein.frontends.headless.run_state import RunState
from longrein.frontends.headless.stream_json import draw
from longrein.frontends.terminal.view_model import ViewModel
from longrein.models import ModelOptions, open_model
from longrein.options import Options
from longrein.permissions import Rules
from longrein.steps import steps_of
from longrein.testing.clock import VirtualClock
from longrein.testing.harness import (
    memory_dependencies,
    memory_tools,
    open_test_session,
    results,
    story,
)
from longrein.testing.loopback import Call, LoopbackProvider, Play, Turn, common_blocks
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.store import MemoryDisk
from longrein.tools import Tool
from longrein_context import Budget, Price, Request, estimate_text
from longrein_context.events import PrefixSet, Replied, ToolCall, ToolEnded, ToolStarted
from tests.agent.disk_harness import question, turn
from tests.tables import cases
from tests.tools.servers import server_tools

pytestmark = pytest.mark.anyio

BUDGET = Budget(200_000, 8_000, Price(3, 15, 0.3, 3.75))
FIND = "mcp__crm__find_customer"


def finds(**more: object) -> ToolCall:
    """The call that the stories are about, as a model writes it."""
    return call("CallTool", name=FIND, args={"query": "Ada", **more})


def opened(
    model: ScriptedModel,
    disk: MemoryDisk,
    *,
    rules: Rules | None = None,
    tools: Sequence[Tool] | None = None,
) -> OpenSession:
    deps = memory_dependencies(
        model,
        disk,
        tools=(*memory_tools(), *(server_tools() if tools is None else tools)),
        rules=rules,
    )
    return open_test_session(
        model, disk=disk, deps=deps, mode="default" if rules else "bypassPermissions"
    )


async def run_turn(
    model: ScriptedModel, disk: MemoryDisk | None = None, *, words: str = "go", **more: object
) -> MemoryDisk:
    """Say `words` and let the turn end."""
    disk = disk or MemoryDisk()
    session = opened(model, disk, **more)  # type: ignore[arg-type]
    await turn(session, words)
    await session.close()
    model.check_done()
    return disk


def model_of(*steps: object) -> ScriptedModel:
    return ScriptedModel(*steps, budget=BUDGET)  # type: ignore[arg-type]


def bytes_of(request: Request) -> list[bytes]:
    """Prefix and items as bytes that show any change."""
    prefix = request.prefix
    return [
        msgspec.json.encode((prefix.system, prefix.tools)),
        *(msgspec.json.encode(i.part) for i in request.items),
    ]


# --- the prefix -----------------------------------------------------------------------------------


async def test_E5_sixty_tools_cost_two_thousand_tokens_until_they_are_used() -> None:
    bare, full = model_of(says("hi")), model_of(says("hi"))
    await run_turn(bare, tools=())
    disk = await run_turn(full)
    sizes = [
        sum(estimate_text(str(tool)) for tool in model.requests[0].prefix.tools)
        for model in (bare, full)
    ]
    assert sizes[1] - sizes[0] <= 2_000
    prefix = next(e.event for e in disk.entries() if isinstance(e.event, PrefixSet))
    assert len(prefix.deferred) == 60, "the log has them all"
    assert [tool.name for tool in prefix.tools][-2:] == ["ToolSearch", "CallTool"]


async def test_E5_law_2_looking_up_and_calling_changes_no_earlier_byte() -> None:
    model = model_of(
        says(call("ToolSearch", query="find customer")),
        says(finds()),
        says(finds(count=3)),
        says("done"),
    )
    await run_turn(model)
    sent = [bytes_of(request) for request in model.requests]
    for before, after in pairwise(sent):
        assert after[: len(before)] == before
    looked, first, second = results(model.requests[-1])
    assert f"## {FIND}\nFind customer of the crm server." in looked
    assert '"required":["query"]' in looked
    assert first == "CallTool ok: crm.find_customer('Ada', 10)"
    assert second == "CallTool ok: crm.find_customer('Ada', 3)"


async def test_E5_view_has_the_call_as_the_model_wrote_it_and_people_see_the_real_name() -> None:
    model = model_of(says(finds()), says("done"))
    disk = await run_turn(model)
    item = next(item for item in model.requests[1].items if item.kind == "call")
    assert isinstance(item.part, ToolCall)
    assert (item.part.name, item.part.arguments) == (
        "CallTool",
        {"name": FIND, "args": {"query": "Ada"}},
    )
    result = next(item.part for item in model.requests[1].items if item.kind == "result")
    assert result.name == "CallTool", "some wires compare the names of call and result"  # type: ignore[union-attr]
    started = next(e.event for e in disk.entries() if isinstance(e.event, ToolStarted))
    ended = next(e.event for e in disk.entries() if isinstance(e.event, ToolEnded))
    assert (started.name, ended.name, started.call) == (FIND, FIND, ended.call), "in the log"
    tally, view, uses, told, drawn = RunState(disk.session, model.name), ViewModel(), [], [], ""
    for entry in disk.entries():
        drawn += "".join(map(str, view.apply(entry, 0.0)))
    for step in steps_of(disk.entries()):
        tally.step(step)
        shown = [
            b
            for line in draw(step, tally)
            if line["type"] == "assistant"
            for b in line["message"]["content"]
        ]
        uses += [(block["name"], block["input"]) for block in shown if block["type"] == "tool_use"]
        told += progress(step)
    assert uses == [(FIND, {"query": "Ada"})], "in stream-json"
    assert told[0] == f"calls {FIND} Ada"
    assert FIND in drawn
    assert "Ada" in drawn
    assert "CallTool" not in drawn


# --- who sees the real name -----------------------------------------------------------------------


@cases(
    "rules status told",
    (Rules(allow=(FIND,)), "ok", "crm.find_customer"),
    (Rules(allow=("mcp__crm",)), "ok", "crm.find_customer"),
    (Rules(allow=("mcp__crm__*",)), "ok", "crm.find_customer"),
    (
        Rules(deny=(FIND,), allow=("mcp__crm",)),
        "denied",
        f"Denied: the user's rule {FIND} forbids this",
    ),
    (
        Rules(deny=("mcp__crm",), allow=("CallTool",)),
        "denied",
        "Denied: the user's rule mcp__crm forbids this",
    ),
)
async def test_E5_permission_rules_speak_of_real_tool(rules: Rules, status: str, told: str) -> None:
    model = model_of(says(finds()), says("done"))
    disk = await run_turn(model, rules=rules)
    ended = next(e.event for e in disk.entries() if isinstance(e.event, ToolEnded))
    assert (ended.name, ended.status) == (FIND, status)
    assert told in results(model.requests[1])[0]


async def test_E5_allowing_CallTool_allows_no_tool_behind_it() -> None:
    model = model_of(says(finds()), says("I may not"))
    session = opened(model, MemoryDisk(), rules=Rules(allow=("CallTool", "ToolSearch")))
    task = asyncio.ensure_future(turn(session, "go"))
    asked = await question(session)
    session.tell(Answer(asked.call, "deny"))
    await task
    await session.close()
    assert asked.name == FIND
    assert "Ada" in asked.shown
    assert "CallTool" not in asked.shown


# --- what does not fit ----------------------------------------------------------------------------


@cases(
    "arguments told",
    (
        {"name": "mcp__crm__find_custmer", "args": {}},
        '[unknown-tool] There is no tool "mcp__crm__find_custmer".',
    ),
    ({"name": "mcp__crm__find_custmer", "args": {}}, f"Did you mean {FIND}?"),
    (
        {"name": FIND, "args": {"qwery": "Ada"}},
        f'[bad-arguments] {FIND}: unknown argument "qwery" (did you mean "query"?)',
    ),
    ({"name": FIND, "args": {"qwery": "Ada"}}, '"required":["query"]'),
    ({"name": "Read", "args": {"file_path": "gone.txt"}}, "[not-found] No such file: /w/gone.txt."),
    ({"name": FIND, "qwery": "Ada"}, f'[bad-arguments] {FIND}: unknown argument "qwery"'),
    ({"args": {}}, '[bad-arguments] CallTool: missing "name" (a string)'),
    ({"name": FIND, "args": 3}, '[bad-arguments] CallTool: "args" must be an object'),
    ({"name": ""}, '[unknown-tool] There is no tool ""; find one with ToolSearch.'),
)
async def test_E5_a_wrapping_that_does_not_fit_is_refused(
    arguments: dict[str, object], told: str
) -> None:
    model = model_of(says(call("CallTool", **arguments)), says("sorry"))
    disk = await run_turn(model)
    assert told in results(model.requests[1])[0]
    ran = [e.event.name for e in disk.entries() if isinstance(e.event, ToolStarted)]
    assert ("Read" in ran) == (arguments.get("name") == "Read"), (
        "a built-in tool is judged as itself"
    )
    assert FIND not in ran


@cases(
    "made told",
    (call("CallTool", name="Read", args={"file_path": "gone.txt"}), "[not-found] "),
    (call("CallTool", name="read_file", args={"path": "gone.txt"}), "[not-found] "),
    (call("CallTool", name="Read", file_path="gone.txt"), "[not-found] "),
    (call("CallTool", name="Read", arguments={"file_path": "gone.txt"}), "[not-found] "),
    (call("CallTool", tool="Read", args='{"file_path": "gone.txt"}'), "[not-found] "),
    (call("CallTool", name=FIND, query="Ada"), "crm.find_customer('Ada', 10)"),
    (call(FIND, query="Ada"), "crm.find_customer('Ada', 10)"),
)
async def test_a_listed_tool_by_CallTool_and_a_deferred_one_by_its_name_run(
    made: ToolCall, told: str
) -> None:
    model = model_of(says(made), says("done"))
    await run_turn(model)
    assert told in results(model.requests[1])[0]


async def test_E5_calls_side_by_side_keep_their_order() -> None:
    locks = call("CallTool", name="mcp__db__list_locks", args='{"query": "x"}')
    batch = says(finds(), call("Read", file_path="gone.txt"), locks)
    model = model_of(batch, says("done"))
    await run_turn(model)
    assert [line.split(":")[0] for line in results(model.requests[1])] == [
        "CallTool ok",
        "Read failed",
        "CallTool ok",
    ]


# --- later ----------------------------------------------------------------------------------------


async def test_E5_a_resumed_session_sends_the_same_bytes_and_calls_go_on() -> None:
    first = model_of(says(call("ToolSearch", query="customer")), says(finds()), says("found"))
    disk = await run_turn(first)
    second = model_of(says(finds(count=1)), says("again"))
    await run_turn(second, disk, words="once more")
    before, after = bytes_of(first.requests[-1]), bytes_of(second.requests[0])
    assert after[: len(before)] == before
    assert story(disk.entries()).count("PrefixSet") == 1
    assert results(second.requests[1])[-1] == "CallTool ok: crm.find_customer('Ada', 1)"


async def test_E5_a_session_that_was_cut_before_the_call_ran_runs_it_once() -> None:
    disk = MemoryDisk()
    await run_turn(model_of(says(finds()), says("done")), disk)
    replied = next(e.seq for e in disk.entries() if isinstance(e.event, Replied))
    disk.reopen(replied, whole=False)
    disk.kill()
    model = model_of(says("found"))
    session = opened(model, disk)
    await turn(session, Continue())
    await session.close()
    assert [e.event.name for e in disk.entries() if isinstance(e.event, ToolStarted)] == [FIND]
    assert results(model.requests[0]) == ["CallTool ok: crm.find_customer('Ada', 10)"]


async def test_E5_a_server_that_is_gone_at_resume_is_one_break_and_its_calls_still_stand() -> None:
    disk = await run_turn(model_of(says(finds()), says("done")))
    model = model_of(says(finds()), says("gone"))
    await run_turn(model, disk, words="again", tools=())
    assert [e.event.reason for e in disk.entries() if isinstance(e.event, PrefixSet)] == [
        "start",
        "tools",
    ]
    assert "ToolSearch" not in [tool.name for tool in model.requests[0].prefix.tools]
    assert f'There is no tool "{FIND}"' in results(model.requests[1])[1]


async def test_E5_another_schema_behind_the_same_name_is_in_the_log() -> None:
    disk = await run_turn(model_of(says("hi")))
    tools = list(server_tools())
    tools[0] = msgspec.structs.replace(
        tools[0], spec=msgspec.structs.replace(tools[0].spec, description="New.")
    )
    await run_turn(model_of(says("hi")), disk, words="again", tools=tools)
    prefixes = [e.event for e in disk.entries() if isinstance(e.event, PrefixSet)]
    assert prefixes[-1].deferred[0].description == "New."
    assert prefixes[0].tools == prefixes[1].tools


async def test_E5_a_small_window_lists_none_and_a_large_one_lists_few_tools_in_full() -> None:
    few = server_tools()[:4]
    roomy = model_of(says("hi"))
    await run_turn(roomy, tools=few)
    assert [tool.name for tool in roomy.requests[0].prefix.tools][-4:] == [
        tool.spec.name for tool in few
    ]
    narrow = ScriptedModel(says("hi"), budget=Budget(8_000, 1_000))
    await run_turn(narrow, tools=few)
    assert [tool.name for tool in narrow.requests[0].prefix.tools][-1] == "CallTool"


@pytest.mark.parametrize("wire", ["anthropic", "openai-chat", "openai-responses", "gemini"])
async def test_E5_every_wire_takes_it_and_no_earlier_byte_changes(wire: str) -> None:
    calls = (
        Call("ToolSearch", {"query": "customer"}),
        Call("CallTool", {"name": FIND, "args": {"query": "Ada"}}),
    )
    play = Play(turns=(*(Turn(calls=(one,)) for one in calls), Turn(text="done")))
    async with LoopbackProvider(play) as server:
        options = ModelOptions("served", "m-1", wire, server.url, "key", BUDGET)
        model, disk = open_model(options, lambda _: b"", VirtualClock()), MemoryDisk()
        deps = memory_dependencies(model, disk, tools=(*memory_tools(), *server_tools()))
        session = open_test_session(model, disk=disk, deps=deps, mode="bypassPermissions")
        await turn(session, "go")
        await session.close()
        assert not server.refused
        assert not server.unused()
        for before, after in pairwise(server.requests):
            assert common_blocks(before, after) == len(before.blocks)
    assert [e.event.name for e in disk.entries() if isinstance(e.event, ToolEnded)] == [
        "ToolSearch",
        FIND,
    ]


@pytest.mark.parametrize("window", [20_000, 200_000])
async def test_E5_the_user_is_told_once_at_the_start_when_a_server_would_fill_the_window(
    window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "tree").mkdir()
    run_context = read_run_context(
        Options(state_dir=str(tmp_path / "state")), folder=str(tmp_path / "tree")
    )
    model = ScriptedModel(budget=Budget(window, 2_000))
    built = await App(run_context, print).open(
        fresh=True, additions=Additions(model=model, tools=tuple(server_tools()))
    )
    await built.session.close()
    told = [note for note in built.notes if "schemas fill" in note]
    assert bool(told) is (window < 30_000)
    assert not told or told[0].endswith("of your 20k window; these are deferred now")

"""Search of the web by the provider's own tool, over each wire that has one; the provider
enforces its rules.
"""

import asyncio
import json
from typing import Any

import msgspec
import pytest

from longrein.models import Reply, can_search_web, cost_usd
from longrein.models.catalog import WEB_SEARCH_USD
from longrein.testing.loopback import Call
from longrein_context import Request, fold
from longrein_context.events import Form, PrefixSet, Replied, Text, Thinking, Usage
from longrein_context.fold_notices import change_form
from tests.models.http_server import answer_of, item, open_wire_model

from .harness import BYPASS, CliHarness, Loopback, Provider

MODELS = {"anthropic": "claude-sonnet-4-5", "openai-responses": "gpt-5", "gemini": "gemini-3-pro"}
ON = "[tools]\nweb_search = true\n"
OFFERED = {
    "anthropic": {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    "openai-responses": {"type": "web_search"},
    "gemini": {"googleSearch": {}},
}
TURNS = (
    Loopback(
        thinking="I must look it up.",
        searches=("newest Python", "its changes"),
        text="Found it.",
        calls=(Call("Read", {"file_path": "a.py"}),),
    ),
    Loopback(text="Done."),
    Loopback(text="Still known."),
)


def tools(body: bytes) -> list[dict[str, Any]]:
    return list(msgspec.json.decode(body).get("tools") or ())


def own_items(wire: str, body: bytes) -> list[dict[str, Any]]:
    """The provider's own items of the searches in a request, in order."""
    sent = msgspec.json.decode(body)
    if wire == "openai-responses":
        return [one for one in sent["input"] if one.get("type") == "web_search_call"]
    messages = sent["messages" if wire == "anthropic" else "contents"]
    parts = [
        part for one in messages for part in one["content" if wire == "anthropic" else "parts"]
    ]
    kinds = ("server_tool_use", "web_search_tool_result")
    return [
        part
        for part in parts
        if part.get("type") in kinds or part.keys() & {"toolCall", "toolResponse"}
    ]


def searched(cli: CliHarness) -> list[str]:
    replies = [entry.event for entry in cli.entries() if isinstance(entry.event, Replied)]
    texts = [part.text for reply in replies for part in reply.parts if isinstance(part, Thinking)]
    return [text for text in texts if text.startswith("Searched")]


@pytest.mark.parametrize("wire", MODELS)
def test_searches_survive_the_log_a_resume_an_export_and_a_summary(
    cli: CliHarness, wire: str
) -> None:
    (cli.project / "a.py").write_text("x = 1\n")
    summary = Loopback(text="The user wanted the newest Python; it was found.")
    with Provider(*TURNS, summary, Loopback(text="Goes on.")) as provider:
        name = f"served/{MODELS[wire]}"
        price = f'[models."{name}"]\nprice_input = 0\nprice_output = 0\n'
        cli.settings(provider.settings(wire, ON + price), model=name)
        ran = cli.stream("-p", "what is new?", BYPASS)
        assert (provider.refused, ran.code) == ([], 0), ran.err
        again = cli.run("-p", "and?", "-c", BYPASS)
        assert (provider.refused, again.told()) == ([], (0, "Still known.\n", ""))
        first, second, third = (request.body for request in provider.requests)
        assert OFFERED[wire] in tools(first)
        assert (not own_items(wire, first), len(own_items(wire, second))) == (
            True,
            2 if wire[0] == "o" else 4,
        )
        assert own_items(wire, third) == own_items(wire, second)
        assert cli.run("-p", "/compact", "-c", BYPASS).code == 0
        assert cli.run("-p", "go on", "-c", BYPASS).code == 0
        assert provider.refused == []
        assert len(own_items(wire, provider.requests[-1].body)) in (0, 2, 4)
    assert [text.splitlines()[0] for text in searched(cli)] == [
        "Searched the web: newest Python",
        "Searched the web: its changes",
    ]
    used = ran.result["modelUsage"][name]
    assert (used["webSearchRequests"], used["costUSD"]) == (
        2,
        pytest.approx(2 * WEB_SEARCH_USD[wire]),
    )
    assert ran.result["usage"]["server_tool_use"] == {"web_search_requests": 2}
    assert (
        "Searched the web: newest Python"
        in cli.run("export", cli.session, "--format", "markdown").text
    )
    check_with_vendor(wire, second)


@pytest.mark.parametrize("wire", MODELS)
def test_whatever_is_cleared_the_provider_takes_the_rest(cli: CliHarness, wire: str) -> None:
    """Each item of the model left out, or shortened to text; no half of a search is ever sent."""
    (cli.project / "a.py").write_text("x = 1\n")
    with Provider(*TURNS) as provider:
        cli.settings(provider.settings(wire, ON), model=f"served/{MODELS[wire]}")
        assert cli.run("-p", "what is new?", BYPASS).code == 0
    state = fold(cli.entries())
    view = [*state.items, item(90, Text("and now?"), "user")]
    cleared = [n for n, one in enumerate(view) if one.kind == "thinking"]
    assert len(cleared) >= 2
    forms = [[one for m, one in enumerate(view) if m != n] for n in cleared]
    forms += [[one for one in view if one.kind != "thinking"]]
    for n in cleared:
        again = fold(cli.entries())
        change_form(again, 91, Form(view[n].handle, "placeholder", "[a search]"))
        forms.append([*again.items, view[-1]])

    async def ask(url: str) -> None:
        model = open_wire_model(wire, url, MODELS[wire])
        for items in forms:
            answer = (
                await answer_of(model, Request("s", state.prefix, 2, tuple(items), (), 1000))
            )[-1]  # type: ignore[arg-type]
            assert isinstance(answer, Reply), answer
        await model.aclose()

    with Provider(script=lambda _: Loopback(text="Hi.")) as provider:
        asyncio.run(ask(provider.url))


def check_with_vendor(wire: str, body: bytes) -> None:
    """The vendor's own types take every item and tool of the request."""
    adapter = pytest.importorskip("pydantic").TypeAdapter
    sent = msgspec.json.decode(body)
    if wire == "gemini":
        types = pytest.importorskip(
            "google.genai.types", reason="google-genai is not installed: make library"
        )
        checks = [(types.Content, sent["contents"]), (types.Tool, sent["tools"])]
        checks.append((types.ToolConfig, [sent["toolConfig"]]))
    elif wire == "anthropic":
        types = pytest.importorskip(
            "anthropic.types", reason="anthropic is not installed: make library"
        )
        checks = [(types.MessageParam, sent["messages"]), (types.ToolUnionParam, sent["tools"])]
    else:
        types = pytest.importorskip(
            "openai.types.responses", reason="openai is not installed: make library"
        )
        checks = [(types.ResponseInputItemParam, sent["input"]), (types.ToolParam, sent["tools"])]
        checks.append((types.ResponseIncludable, sent["include"]))
    for kind, items in checks:
        for one in items:
            adapter(kind).validate_python(one)


ONE = Loopback(text="Hi.", searches=("anything",))
LINE = "has no search of its own over"
OFFERS = [
    ("anthropic", "claude-sonnet-4-5", "", (), False, ""),
    ("anthropic", "claude-sonnet-4-5", ON, (), True, ""),
    ("anthropic", "claude-sonnet-4-5", ON, ("--disallowedTools", "WebSearch"), False, ""),
    ("anthropic", "claude-sonnet-4-5", ON, ("--disallowedTools", "Web*"), False, ""),
    ("anthropic", "claude-sonnet-4-5", ON, ("--disallowedTools", "WebFetch"), True, ""),
    ("anthropic", "claude-sonnet-4-5", ON + '[permissions]\nask = ["WebSearch"]\n', (), False, ""),
    ("anthropic", "claude-sonnet-4-5", ON, ("--tools", "Read"), False, ""),
    ("anthropic", "claude-sonnet-4-5", ON, ("--tools", "Read,WebSearch"), True, ""),
    ("anthropic", "claude-sonnet-4-5", "", ("--tools", "Read,WebSearch"), False, ""),
    ("gemini", "gemini-2.5-pro", ON, (), False, LINE),
    ("openai-chat", "gpt-5", ON, (), False, LINE),
]


@pytest.mark.parametrize(("wire", "model", "settings", "flags", "offered", "line"), OFFERS)
def test_the_search_is_offered_only_when_the_user_wants_it(
    cli: CliHarness,
    wire: str,
    model: str,
    settings: str,
    flags: tuple[str, ...],
    offered: bool,
    line: str,
) -> None:
    with Provider(ONE) as provider:
        cli.settings(provider.settings(wire, settings), model=f"served/{model}")
        ran = cli.run("-p", "hello", *flags)
        assert (provider.refused, ran.text) == ([], "Hi.\n")
        sent = json.dumps(tools(provider.requests[0].body)).lower()
    assert ("web_search" in sent or "googlesearch" in sent) == offered
    assert "websearch" not in sent.replace("web_search", "")
    assert (LINE in ran.err) == bool(line), ran.err
    prefix = next(entry.event for entry in cli.entries() if isinstance(entry.event, PrefixSet))
    assert ("WebSearch" in [tool.name for tool in prefix.tools]) == offered
    assert bool(searched(cli)) == offered


def test_a_project_cannot_turn_the_search_on(cli: CliHarness) -> None:
    (cli.project / ".longrein").mkdir()
    (cli.project / ".longrein/config.toml").write_text(ON)
    with Provider(ONE) as provider:
        cli.settings(provider.settings("anthropic"), model="served/claude-sonnet-4-5")
        assert cli.run("-p", "hello", "--trust").text == "Hi.\n"
        assert OFFERED["anthropic"] not in tools(provider.requests[0].body)


def test_each_wire_that_searches_has_a_price() -> None:
    assert all(
        can_search_web(wire, model) and cost_usd(None, Usage()) == 0
        for wire, model in MODELS.items()
    )
    assert set(WEB_SEARCH_USD) == set(MODELS)

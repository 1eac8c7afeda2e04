"""The servers of a session in one process: which tools, resources and prompts are there, what calls
of them return, and what the model and the user are told.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from longrein.extensions.mcp.server_config import McpServer
from longrein.extensions.mcp.servers import McpToolset
from longrein.extensions.mcp.settings import McpOptions
from longrein.workspace import CommandExit
from longrein_context.events import PrefixSet, UsageError, text_of
from tests.mcp_servers.scripted_server import (
    ALL,
    SERVER,
    Host,
    ScriptedServer,
    refuse,
    silent,
    text,
    tool,
    until,
)

pytest.importorskip("mcp", reason="the extra `mcp` is not installed")
pytestmark = [
    pytest.mark.anyio,
    pytest.mark.filterwarnings("ignore:resources/subscribe is removed"),
]

OTHER = msgspec.structs.replace(SERVER, name="t")
OFF = msgspec.structs.replace(SERVER, name="off", disabled=True)
WRONG = msgspec.structs.replace(SERVER, name="wrong", problem="no command")
NONCE = "n0nce"


def in_loop(work: Callable[[], Any]) -> "asyncio.Future[Any]":
    async def run() -> Any:
        return work()

    return asyncio.ensure_future(run())


class Blobs:
    def put_blob(self, data: bytes) -> str:
        return "b1"


@asynccontextmanager
async def session(
    *programs: Any,
    servers: tuple[McpServer, ...] = (SERVER,),
    denies: Callable[[str], bool] = lambda _: False,
    stored: PrefixSet | None = None,
    **services: Any,
) -> AsyncIterator[SimpleNamespace]:
    """Yield the servers of a session, connected, with what they have announced."""
    host = Host(*programs, **services)
    announced: list[tuple[str, str]] = []
    host.port.announce = lambda *told: announced.append(told)
    tools = McpToolset(servers, host.port, McpOptions(background_s=0), in_loop)
    tools.denies = denies
    registry: dict[str, Any] = {}
    tools.attach(registry, NONCE, stored, 7)
    try:
        yield SimpleNamespace(tools=tools, host=host, registry=registry, announced=announced)
    finally:
        await tools.close()


async def call(place: SimpleNamespace, name: str, **arguments: Any) -> tuple[str, str]:
    """Call a tool of the registry; return (status, text), and keep its notes."""
    place.notes = []
    context = SimpleNamespace(
        note=place.notes.append, blobs=Blobs(), commands=SimpleNamespace(tasks=None)
    )
    outcome = await place.registry[name].run(context, **arguments)
    return outcome.status, text_of(outcome.parts)


def listed(*names: str, **more: Any) -> dict[str, Any]:
    return {"tools/list": {"tools": [tool(name, **more) for name in names]}}


async def test_each_server_is_shown_with_its_state() -> None:
    servers = (SERVER, OFF, WRONG)
    answers = {"prompts/list": {"prompts": [{"name": "greet"}]}}
    async with session(lambda: ScriptedServer(answers), servers=servers) as place:
        tools = place.tools
        shown = [(one.name, one.status, one.problem) for one in tools.views()]
        rest = [("off", "disabled", ""), ("wrong", "failed", "no command")]
        assert shown == [("s", "connecting", ""), *rest]
        assert (tools.connecting, tools.late) == (["s"], ["s"])
        await tools.ready()
        assert (tools.connecting, tools.late) == ([], [])
        view, *others = tools.views()
        assert [(one.name, one.status, one.problem) for one in others] == rest
        assert (view.status, view.title, view.address) == ("connected", "fault 1", "serve")
        assert view.tools == ("mcp__s__echo",)
        assert (view.prompts, view.resources) == (("mcp__s__greet",), True)
        assert view.protocol
        tools.missing = "no SDK"
        assert tools.connecting == []
        assert [one.status for one in tools.views()] == ["connected", "failed", "failed"]


async def test_the_prefix_gets_the_tools_of_all_servers_in_the_order_of_the_settings() -> None:
    async with session(lambda: ScriptedServer(listed("b", "a")), servers=(OTHER, SERVER)) as place:
        tools = place.tools
        await tools.ready()
        assert not tools.pinned
        tools.pin()
        assert [one.spec.name for one in tools.offered] == [
            *("mcp__t__a", "mcp__t__b", "mcp__s__a", "mcp__s__b"),
            *("ListMcpResourcesTool", "ReadMcpResourceTool"),
        ]
        assert tools.pinned
        assert "ToolSearch" in place.registry
        assert tools.read_seq == 7
        assert tools.take_news() == []


async def test_a_tool_is_found_once_its_server_is_connected() -> None:
    async with session(ScriptedServer) as place:
        assert place.registry.keys() == {"ToolSearch", "CallTool"}
        found = await place.tools.find("mcp__s__echo")
        assert found is place.registry["mcp__s__echo"]
        assert await place.tools.find("mcp__s__echo") is found
        assert await place.tools.find("mcp__s__other") is None
        place.tools.pin()
        place.tools.start()
        assert len(place.host.started) == 1


async def test_news_from_before_the_first_request_are_in_the_prefix() -> None:
    async with session(ScriptedServer) as place:
        server = (await ready(place)).servers[0]
        place.tools.pin()
        server.answers.update(listed("echo", "later"))
        server.say(method="notifications/tools/list_changed")
        await until(lambda: "mcp__s__later" in place.registry)
        place.tools.pin()
        assert place.tools.take_news() == []


async def test_without_servers_nothing_is_offered() -> None:
    async with session(ScriptedServer, servers=()) as place:
        assert (place.tools.pinned, place.registry, place.tools.views()) == (True, {}, [])
        assert await place.tools.list_resources() == "no server offers resources"


async def test_a_change_of_the_tools_is_told_once() -> None:
    async with session(lambda: ScriptedServer(listed("a", "b"))) as place:
        tools, (server,) = place.tools, (await ready(place)).servers
        tools.pin()
        for answers, told, changed in (
            (listed("a", "b", "c"), "new: mcp__s__c", []),
            (listed("a"), "gone: mcp__s__b, mcp__s__c", []),
            (listed("a", description="D"), "changed: mcp__s__a", ["mcp__s__a"]),
            (
                {"tools/list": {"tools": [tool("a"), tool("d")]}},
                "new: mcp__s__d; changed: mcp__s__a",
                ["mcp__s__a"],
            ),
        ):
            server.answers.update(answers)
            server.say(method="notifications/tools/list_changed")
            assert await next_news(place) == [("s", told)]
            assert tools.take_news() == []
            assert tools.changed_tools == changed
            tools.changed_tools = []
        assert place.registry["mcp__s__d"].spec.name == "mcp__s__d"
        offered = [one.spec.name for one in tools.offered]
        assert offered[:2] == ["mcp__s__a", "mcp__s__b"]  # the prefix keeps its bytes


async def ready(place: SimpleNamespace) -> Host:
    await place.tools.ready()
    host: Host = place.host
    return host


async def test_a_denied_tool_is_withdrawn_and_not_told() -> None:
    def denies(name: str) -> bool:
        return name in ("mcp__s__a", "mcp__t__", "ReadMcpResourceTool")

    kind = {"instructions": "Be kind."}
    server = lambda: ScriptedServer({**listed("a", "b"), "initialize": greeting(kind)})  # noqa: E731
    async with session(server, servers=(SERVER, OTHER), denies=denies) as place:
        await ready(place)
        place.tools.pin()
        withdrawn = [one.spec.name for one in place.tools.offered if one.withdrawn]
        assert withdrawn == ["mcp__s__a", "ReadMcpResourceTool"]
        assert place.tools.instructions.count("Be kind.") == 1
        first = place.host.servers[0]
        first.answers.update(listed("a", "b", "c"))
        first.say(method="notifications/tools/list_changed")
        assert await next_news(place) == [("s", "new: mcp__s__c")]


def greeting(more: dict[str, Any]) -> Any:
    def answer(_server: ScriptedServer, params: dict[str, Any]) -> Any:
        version = params["protocolVersion"]
        info = {"name": "fault", "version": "1"}
        return {"protocolVersion": version, "capabilities": ALL, "serverInfo": info, **more}

    return answer


async def test_a_call_of_a_tool() -> None:
    def work(server: ScriptedServer, params: dict[str, Any]) -> Any:
        token = params["_meta"]["progressToken"]
        for done in ({"progress": 1}, {"progress": 2, "total": 5, "message": "half\x1b[2J"}):
            server.say(method="notifications/progress", params={"progressToken": token, **done})
        return text(f"got {params['arguments']}")

    async with session(lambda: ScriptedServer({"tools/call": work})) as place:
        host = await ready(place)
        assert await call(place, "mcp__s__echo", a=1) == ("ok", "got {'a': 1}")
        await until(lambda: len(place.notes) == 2)
        assert place.notes == [b"1\n", b"2/5 half\n"]
        (server,) = host.servers
        server.answers["tools/call"] = {"content": [], "isError": True}
        assert (await call(place, "mcp__s__echo"))[0] == "failed"
        server.answers["tools/call"] = refuse(-5, "out of\x1b[2J luck")
        assert await call(place, "mcp__s__echo") == ("failed", "[mcp] s: error -5: out of luck")


async def test_a_tool_that_has_changed_since_its_call_was_allowed_is_not_run() -> None:
    async with session(lambda: ScriptedServer(listed("echo", "gone"))) as place:
        server = (await ready(place)).servers[0]
        old = dict(place.registry)
        server.answers.update(listed("echo", description="Another."))
        server.say(method="notifications/tools/list_changed")
        await until(lambda: place.registry["mcp__s__echo"] is not old["mcp__s__echo"])
        assert await call(place, "mcp__s__echo") == ("ok", "fine")
        found = await call(place, "mcp__s__gone")
        assert found == ("failed", "[mcp] s: the server does not offer this tool")
        changed = SimpleNamespace(registry=old)
        status, said = await call(changed, "mcp__s__echo")
        assert status == "failed"
        assert "it has changed this tool since the call was allowed; nothing was run" in said
        assert len(server.calls("tools/call")) == 1


@pytest.mark.parametrize(("servers", "name", "told"), [
    ((SERVER,), "mcp__s__echo", "it is not connected: it cannot be started: no such file"),
    ((OFF, SERVER), "mcp__off__echo", "it is disabled"),
    ((WRONG, SERVER), "mcp__wrong__echo", "no command"),
])  # fmt: skip
async def test_a_call_of_a_server_that_is_not_there(
    servers: tuple[McpServer, ...], name: str, told: str
) -> None:
    gone = CommandExit(None, cause="not_started", message="no such file")
    async with session(gone, servers=servers) as place:
        await ready(place)
        server = name.split("__")[1]
        assert await place.tools.find(name) is None
        assert await place.tools.mention(server, "a://b") == f"it cannot be read: {told}"
        with pytest.raises(UsageError, match=told.rpartition(": ")[2]):
            await place.tools.prompt_text(f"mcp__{server}__greet", [], Blobs())


async def test_the_user_disconnects_and_connects_a_server() -> None:
    async with session(ScriptedServer, servers=(SERVER, OFF, WRONG)) as place:
        tools, host = place.tools, await ready(place)
        for work in (tools.reconnect, tools.login, tools.disable, tools.enable):
            with pytest.raises(UsageError, match="no MCP server 'x'; there are s, off, wrong"):
                work("x")
        with pytest.raises(UsageError, match="MCP server wrong: no command"):
            tools.enable("wrong")
        tools.disable("s")
        assert [one.status for one in tools.views()] == ["disabled", "disabled", "failed"]
        await until(lambda: host.servers[0].exit)
        tools.enable("s")
        tools.enable("off")
        await tools.ready()
        assert [one.status for one in tools.views()] == ["connected", "connected", "failed"]
        tools.reconnect("s")
        await until(lambda: len(host.servers) == 4)
        tools.enable("s")
        await tools.ready()
        assert len(host.servers) == 4


async def test_a_program_replaces_its_servers() -> None:
    own, more = (
        msgspec.structs.replace(SERVER, name=name, scope="program") for name in ("own", "more")
    )

    async with session(ScriptedServer, servers=(SERVER, own)) as place:
        tools, _ = place.tools, await ready(place)
        tools.pin()
        assert tools.set_program_servers([own]) == ([], [])
        assert tools.set_program_servers([own, more]) == (["more"], [])
        assert tools.pinned
        await tools.ready()
        assert "mcp__more__echo" in place.registry
        assert tools.take_news() == [("more", "new: mcp__more__echo")]
        assert tools.set_program_servers([own]) == ([], ["more"])
        assert tools.take_news() == [("more", "gone: mcp__more__echo")]
        assert "mcp__more__echo" not in place.registry
        changed = msgspec.structs.replace(own, command=("other",))
        assert tools.set_program_servers([changed]) == (["own"], ["own"])
        assert tools.set_program_servers([]) == ([], ["own"])
        assert [one.name for one in tools.views()] == ["s"]
        assert "mcp__own__echo" in place.registry  # the prefix holds it
        status, said = await call(place, "mcp__own__echo")
        assert (status, said) == ("failed", "[mcp] own: there is no such server")

    async with session(ScriptedServer, servers=()) as place:
        assert place.tools.set_program_servers([own]) == (["own"], [])
        assert not place.tools.pinned  # the prefix cannot find later tools


async def test_a_login_is_shown_and_announced() -> None:
    async with session(ScriptedServer) as place:
        tools, host = place.tools, await ready(place)
        tools.login("s")
        assert host.port.login is not None
        await host.port.login("https://log.in")
        assert host.notices == ["MCP server s: open this address and log in there: https://log.in"]
        await until(lambda: place.announced)
        assert place.announced == [("auth_success", "MCP server s: you are logged in")]


async def test_a_question_of_a_server_is_announced() -> None:
    async with session(ScriptedServer) as place:
        place.tools.let_user_answer()
        server = (await ready(place)).servers[0]
        question = {
            "message": "Who\x1b[2J?",
            "requestedSchema": {"type": "object", "properties": {}},
        }
        server.say(id="q", method="elicitation/create", params=question)
        await until(lambda: place.announced)
        await until(lambda: place.host.notices)
        assert place.host.notices[0].startswith("MCP server s asks: Who? (type /mcp answer s")
        place.tools.questions.decline("s")
        await until(lambda: server.replies)
        assert place.announced == [
            ("elicitation_dialog", "MCP server s asks: Who?"),
            ("elicitation_response", "MCP server s was answered: decline"),
        ]


async def test_resources_of_all_servers_are_listed_a_line_each() -> None:
    def many(count: int) -> dict[str, Any]:
        rows = [{"uri": f"a://{n}", "name": "n", "description": "D\n d"} for n in range(count)]
        return {"resources/list": {"resources": rows}}

    programs = (
        lambda: ScriptedServer({**many(2), "resources/templates/list": templates}),
        lambda: ScriptedServer({"resources/list": refuse(-5, "none")}),
    )
    templates = {"resourceTemplates": [{"uriTemplate": "a://{n}", "name": "any"}]}
    async with session(*programs, servers=(SERVER, OTHER, OFF)) as place:
        host = await ready(place)
        lines = ["@s:a://0  n D d", "@s:a://1  n D d", "template @s:a://{n}  any"]
        assert await place.tools.list_resources() == "\n".join([*lines, "t: error -5: none"])
        assert await place.tools.list_resources("s") == "\n".join(lines)
        assert await place.tools.list_resources("off") == "off: it is disabled"
        for count, last in ((199, "template @s:a://{n}  any"), (200, "and 1 more")):
            host.servers[0].answers.update(many(count))
            told = (await place.tools.list_resources("s")).splitlines()
            assert (len(told), told[-1]) == (200 + (count == 200), last)

    async with session(lambda: ScriptedServer(can={"tools": {}})) as place:
        await ready(place)
        assert await place.tools.list_resources() == "no server offers resources"
        assert "ReadMcpResourceTool" not in place.registry


async def test_a_resource_that_the_user_mentions_is_read() -> None:
    async with session(ScriptedServer) as place:
        server = (await ready(place)).servers[0]

        async def read(*contents: dict[str, Any]) -> str:
            rows = [{"uri": "a://b", **one} for one in contents]
            server.answers["resources/read"] = {"contents": rows}
            found: str = await place.tools.mention("s", "a://b")
            return found

        async def read_by_tool() -> tuple[str, str]:
            return await call(place, "ReadMcpResourceTool", server="s", uri="a://b")

        assert await read({"text": "a\x1b[2J"}, {"blob": "AAAA"}) == "a\n[binary content]"
        assert await read() == "(no content)"
        assert await read({"text": "x" * 60_000}) == "x" * 50_000
        assert await read_by_tool() == ("ok", "[resource a://b]\n" + "x" * 60_000)
        await read()
        assert await read_by_tool() == ("ok", "[no content]")


async def test_changed_resources_are_told_up_to_a_limit() -> None:
    async with session(ScriptedServer) as place:
        for number in (0, 0, *range(30)):
            place.host.port.resource_updated("s", f"a://{number}\x1b[2J")
        assert place.tools.take_updates() == [f"s:a://{n}" for n in range(20)]
        assert place.tools.take_updates() == []


async def test_a_prompt_takes_the_words_behind_its_command() -> None:
    arguments = [{"name": "who", "required": True}, {"name": "how"}]
    answers = {
        "prompts/list": {"prompts": [{"name": "greet", "arguments": arguments}, {"name": "plain"}]},
        "prompts/get": lambda _, params: {
            "messages": [
                {"role": "user", "content": {"type": "text", "text": str(params["arguments"])}},
                {"role": "assistant", "content": {"type": "text", "text": "Yes."}},
                {"role": "user", "content": {"type": "text", "text": ""}},
            ]
        },
    }

    async with session(lambda: ScriptedServer(answers)) as place:
        tools = place.tools

        async def told(command: str, *words: str) -> str:
            try:
                found: str = await tools.prompt_text(command, words, Blobs())
            except UsageError as error:
                return str(error)
            return found

        end = "\n\n(assistant)\nYes."
        greet = "mcp__s__greet"
        assert await told(greet, "Ada") == f"{{'who': 'Ada'}}{end}"
        assert await told(greet, "Ada", "now") == f"{{'who': 'Ada', 'how': 'now'}}{end}"
        both = "{'who': 'Ada', 'how': 'right now'}"
        assert await told(greet, "Ada", "right", "now") == f"{both}{end}"
        assert await told("mcp__s__plain", "x", "y") == f"{{}}{end}"
        assert await told(greet) == "/mcp__s__greet needs who: /mcp__s__greet WHO HOW"
        seen = await told("mcp__s__no")
        assert seen == "there is no prompt /mcp__s__no; there are /mcp__s__greet, /mcp__s__plain"
        assert await told("mcp__x__no") == "there is no MCP server 'x'; there are s"
        server = place.host.servers[0]
        server.answers["prompts/get"] = {"messages": []}
        assert await told(greet, "Ada") == "(an empty prompt)"
        server.answers["prompts/get"] = refuse(-5, "out of luck")
        assert await told(greet, "Ada") == "/mcp__s__greet: error -5: out of luck"
        assert [name for name, _, _ in tools.prompts()] == [greet, "mcp__s__plain"]


async def test_limits_of_a_server_count_before_those_of_the_settings() -> None:
    quick = msgspec.structs.replace(SERVER, call_s=0.01)
    answers = {"tools/call": silent}
    for server, limit_s in ((quick, 0.01), (SERVER, 0.02)):
        async with session(
            lambda: ScriptedServer(answers), servers=(server,), call_s=0.02
        ) as place:
            await ready(place)
            assert await call(place, "mcp__s__echo") == (
                "failed",
                f"[mcp] s: no answer within {limit_s} s; the call was cancelled",
            )


async def test_a_long_result_is_cut_at_the_limit_of_the_tool_or_the_settings() -> None:
    for meta, most in (({}, 400), ({"anthropic/maxResultSizeChars": 900}, 900)):
        answers = {**listed("echo", _meta=meta), "tools/call": text("x" * 5_000)}
        async with session(
            lambda answers=answers: ScriptedServer(answers), output_tokens_max=100
        ) as place:
            await ready(place)
            _, said = await call(place, "mcp__s__echo")
            assert most * 0.5 < said.count("x") <= most


async def test_a_resumed_session_keeps_the_tools_of_its_prefix() -> None:
    async with session(lambda: ScriptedServer(listed("a", "b"))) as place:
        await ready(place)
        place.tools.pin()
        specs = tuple(one.spec for one in place.tools.offered)
        search = place.registry["ToolSearch"].spec
    stored = PrefixSet("start", "p", "m", "scripted", "", (*specs, search))
    gone = McpServer("gone", command=("x",), disabled=True)
    async with session(
        lambda: ScriptedServer(listed("a", "c")), servers=(SERVER, gone), stored=stored
    ) as place:
        assert place.tools.pinned
        assert tuple(one.spec for one in place.tools.offered) == specs
        place.tools.want()
        assert await next_news(place) == [("s", "new: mcp__s__c; gone: mcp__s__b")]
    async with session(ScriptedServer, servers=(gone,), stored=stored) as place:
        found = [one.spec.name for one in place.tools.offered]
        assert found == ["ListMcpResourcesTool", "ReadMcpResourceTool"]
    without = msgspec.structs.replace(stored, tools=specs)
    async with session(ScriptedServer, stored=without) as place:
        assert (place.tools.pinned, place.tools.offered) == (False, ())


async def next_news(place: SimpleNamespace) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    await until(lambda: found or found.extend(place.tools.take_news()))
    return found

"""A connection with a server: what it offers, requests in both directions, and what is told when
it fails.
"""

import asyncio
import http.server
import json
import threading
from collections.abc import Coroutine, Iterator
from typing import Any

import msgspec
import pytest

from longrein.extensions.mcp.mcp_port import (
    ListedPrompt,
    ListedResource,
    ListedTool,
    McpFailure,
    ServerOffer,
)
from longrein.workspace import CommandExit, Confinement
from tests.mcp_servers.scripted_server import (
    SERVER,
    Host,
    ScriptedServer,
    connection,
    die,
    pages,
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


def offered(answers: dict[str, Any], *, can: Any, server: Any = SERVER) -> ServerOffer:
    found = []

    async def story() -> None:
        host = Host(lambda: ScriptedServer(answers, can=can))
        async with connection(host, server) as made:
            assert (made.status, made.problem) == ("connected", "")
            assert host.changes == 1
            found.append(made.offer)

    asyncio.run(story())
    return found[0]


def test_a_server_offers_what_it_says_it_can() -> None:
    prompt = {"name": "greet", "arguments": [{"name": "who", "required": True}, {"name": "how"}]}
    answers = {"prompts/list": {"prompts": [prompt]}}
    found = msgspec.structs.replace(offered(answers, can={}), protocol="")
    assert found == ServerOffer(title="fault 1")
    told = offered(answers, can={"tools": {}}).tools
    assert told == (ListedTool("echo", "", {"type": "object"}),)
    greet = ListedPrompt("greet", "", (("who", True), ("how", False)))
    found = offered(answers, can={"prompts": {}})
    assert (found.tools, found.prompts, found.resources) == ((), (greet,), False)
    found = offered(answers, can={"resources": {}})
    assert (found.tools, found.prompts, found.resources) == ((), (), True)


def test_the_settings_of_a_server_leave_tools_out() -> None:
    answers = {"tools/list": {"tools": [tool("a"), tool("b"), tool("c")]}}

    def names(**more: Any) -> list[str]:
        server = msgspec.structs.replace(SERVER, **more)
        return [one.name for one in offered(answers, can={"tools": {}}, server=server).tools]

    assert names() == ["a", "b", "c"]
    assert names(only_tools=("b", "c")) == ["b", "c"]
    assert names(only_tools=("b", "c"), without_tools=("b",)) == ["c"]
    assert names(only_tools=()) == []


@pytest.mark.parametrize(
    ("sizes", "found", "asked"),
    [((2, 1), 3, 2), ((600, 399, 5), 1_000, 3), ((600, 400, 5), 1_000, 2), ((1,) * 60, 50, 50)],
)
async def test_a_listing_is_read_to_its_end_or_its_limit(
    sizes: tuple[int, ...], found: int, asked: int
) -> None:
    tools = [[tool(f"t{n}_{i}") for i in range(size)] for n, size in enumerate(sizes)]
    host = Host(lambda: ScriptedServer({"tools/list": pages("tools", *tools)}))
    async with connection(host) as made:
        assert len(made.offer.tools) == found
        assert len(host.servers[0].calls("tools/list")) == asked


def test_what_a_server_says_of_a_tool() -> None:
    def check(listed: dict[str, Any], **fields: Any) -> None:
        found = offered({"tools/list": {"tools": [tool("t", **listed)]}}, can={"tools": {}})
        assert found.tools == (
            msgspec.structs.replace(ListedTool("t", "", {"type": "object"}), **fields),
        )

    check({"title": "T"}, description="T")
    check({"title": "T", "description": "D"}, description="D")
    check({"annotations": {"readOnlyHint": True}}, reads=True)
    check({"annotations": {"readOnlyHint": False}})
    check({"annotations": {"destructiveHint": True}})
    check({"_meta": {"anthropic/alwaysLoad": True}}, always_listed=True)
    check({"_meta": {"anthropic/alwaysLoad": "yes"}})
    for chars, most in ((1, 1), (0, 0), (-5, 0), ("9", 0), (500_000, 500_000), (500_001, 500_000)):
        check({"_meta": {"anthropic/maxResultSizeChars": chars}}, result_chars_max=most)


# --- Requests to the server -----------------------------------------------------------------------


async def test_a_call_returns_its_result_and_tells_of_its_progress() -> None:
    def work(server: ScriptedServer, params: dict[str, Any]) -> Any:
        for done in ({"progress": 1}, {"progress": 2.5, "total": 5, "message": "half"}):
            token = params["_meta"]["progressToken"]
            server.say(method="notifications/progress", params={"progressToken": token, **done})
        return text(f"got {params['arguments']}")

    host = Host(lambda: ScriptedServer({"tools/call": work}))
    async with connection(host) as made:
        told: list[Any] = []
        found = await made.call_tool("echo", {"a": 1}, lambda *one: told.append(one), 30)
        assert found["content"] == [{"type": "text", "text": "got {'a': 1}"}]
        assert "structuredContent" not in found
        await until(lambda: len(told) == 2)
        assert told == [(1.0, None, ""), (2.5, 5.0, "half")]
        assert await made.call_tool("echo", {}, None, 30) == found | text("got {}")


async def called(made: Any) -> str:
    found = await made.call_tool("echo", {}, None, 30)
    return str(found["content"][0]["text"])


async def failure(work: Coroutine[Any, Any, Any]) -> str:
    with pytest.raises(McpFailure) as raised:
        await work
    return str(raised.value)


@pytest.mark.parametrize("code", [-32000, -32001, 7])
async def test_an_error_of_a_call_leaves_the_connection_as_it_is(code: int) -> None:
    host = Host(lambda: ScriptedServer({"tools/call": refuse(code, "out of luck")}))
    async with connection(host) as made:
        told = await failure(made.call_tool("echo", {}, None, 30))
        assert told == f"error {code}: out of luck"
        host.servers[0].answers["tools/call"] = text("better")
        assert await called(made) == "better"
        assert len(host.started) == 1


async def test_a_call_without_an_answer_is_cancelled_at_its_limit() -> None:
    host = Host(lambda: ScriptedServer({"tools/call": silent}))
    async with connection(host) as made:
        told = await failure(made.call_tool("echo", {}, None, 0.01))
        assert told == "no answer within 0.01 s; the call was cancelled"
        await until(lambda: host.servers[0].calls("notifications/cancelled"))
        host.servers[0].answers["tools/call"] = text("better")
        assert await called(made) == "better"
        assert len(host.started) == 1


@pytest.mark.parametrize(("end", "told"), [
    (die(3, "first\nout of luck\n \n"), "the connection was lost during the call; it may"),
    (lambda server, _: server.print("no json {"), "no answer within 0.01 s"),
    (lambda server, _: server.print("{"), "the connection was lost during the call; it may"),
    (lambda server, _: server.say(id=99, result={}), "no answer within 0.01 s"),
    ({"content": 5}, "its answer is not valid: "),
])  # fmt: skip
async def test_what_a_call_says_of_an_answer_that_is_none(end: Any, told: str) -> None:
    host = Host(lambda: ScriptedServer({"tools/call": end}))
    async with connection(host) as made:
        limit_s = 0.01 if "0.01" in told else 30
        found = await failure(made.call_tool("echo", {}, None, limit_s))
        assert found.startswith(told), found


async def test_a_lost_connection_is_made_again_for_the_next_call() -> None:
    host = Host(lambda: ScriptedServer({"tools/call": die(3, "out of luck")}), ScriptedServer)
    async with connection(host) as made:
        await failure(made.call_tool("echo", {}, None, 30))
        assert await called(made) == "fine"
        assert len(host.started) == 2
        assert host.notices == ["MCP server s: it has stopped (exit code 3): out of luck"]


async def test_resources_are_listed_with_their_templates_and_read() -> None:
    answers = {
        "resources/list": pages(
            "resources",
            [{"uri": "a://1", "name": "one", "description": "D"}],
            [{"uri": "a://2", "name": "two"}],
        ),
        "resources/templates/list": {
            "resourceTemplates": [{"uriTemplate": "a://{n}", "name": "any"}]
        },
        "resources/read": lambda _, params: {"contents": [{"uri": params["uri"], "text": "words"}]},
    }
    host = Host(lambda: ScriptedServer(answers))
    listed = (ListedResource("a://1", "one", "D"), ListedResource("a://2", "two", ""))
    async with connection(host) as made:
        server = host.servers[0]
        more = ListedResource("a://{n}", "any", "", template=True)
        assert await made.list_resources(30) == (*listed, more)
        server.answers["resources/templates/list"] = refuse(-32601, "no templates")
        assert await made.list_resources(30) == listed
        assert not server.calls("resources/subscribe")
        assert await made.read_resource("a://1", 30) == [{"uri": "a://1", "text": "words"}]
        assert [one["uri"] for one in server.calls("resources/subscribe")] == ["a://1"]
        server.answers["resources/subscribe"] = refuse(-32601, "not that one")
        assert await made.read_resource("a://2", 30) == [{"uri": "a://2", "text": "words"}]
        server.say(method="notifications/resources/updated", params={"uri": "a://1"})
        await until(lambda: host.updates)
        assert host.updates == [("s", "a://1")]


@pytest.mark.parametrize(
    ("can", "follows"), [({}, False), ({"subscribe": False}, False), ({"subscribe": True}, True)]
)
async def test_a_resource_is_followed_where_the_server_can(
    can: dict[str, bool], follows: bool
) -> None:
    read = {"contents": [{"uri": "a://1", "text": "words"}]}
    host = Host(lambda: ScriptedServer({"resources/read": read}, can={"resources": can}))
    async with connection(host) as made:
        await made.read_resource("a://1", 30)
        assert bool(host.servers[0].calls("resources/subscribe")) is follows


async def test_a_prompt_is_asked_for_with_its_arguments() -> None:
    message = {"role": "user", "content": {"type": "text", "text": "hi"}}
    host = Host(lambda: ScriptedServer({"prompts/get": {"messages": [message]}}))
    async with connection(host) as made:
        assert await made.get_prompt("greet", {"who": "Ada"}, 30) == [message]
        (asked,) = host.servers[0].calls("prompts/get")
        assert (asked["name"], asked["arguments"]) == ("greet", {"who": "Ada"})


# --- Requests of the server -----------------------------------------------------------------------

FORM = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize(("answer", "reply"), [
    (("accept", {"name": "Ada"}), {"action": "accept", "content": {"name": "Ada"}}),
    (("decline", {"name": "Ada"}), {"action": "decline"}),
    (("cancel", {}), {"action": "cancel"}),
    (None, {"action": "decline"}),
])  # fmt: skip
async def test_a_question_of_a_server_goes_to_the_user(answer: Any, reply: dict[str, Any]) -> None:
    asked: list[Any] = []

    async def ask(*question: Any) -> Any:
        asked.append(question)
        return answer

    host = Host(ScriptedServer, elicit=None if answer is None else ask)
    async with connection(host):
        server = host.servers[0]
        question = {"message": "Who?", "requestedSchema": FORM}
        server.say(id="q", method="elicitation/create", params=question)
        await until(lambda: server.replies)
        assert server.replies == [reply]
        if answer is None:
            assert host.notices == [
                "MCP server s asked a question; nobody is there to answer it: declined"
            ]
        else:
            assert (asked, host.notices) == ([("s", "Who?", FORM, "")], [])


async def test_a_server_learns_the_folders_of_the_session() -> None:
    host = Host(ScriptedServer, roots=lambda: ("/a", "/b"))
    async with connection(host):
        server = host.servers[0]
        server.say(id="r", method="roots/list")
        await until(lambda: server.replies)
        assert server.replies == [{"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}]


@pytest.mark.parametrize("what", ["tools", "prompts"])
async def test_a_change_of_a_list_is_read_again(what: str) -> None:
    host = Host(ScriptedServer)
    async with connection(host) as made:
        server = host.servers[0]
        for number in (2, 3):
            server.answers["tools/list"] = {"tools": [tool(f"t{number}")]}
            server.say(method=f"notifications/{what}/list_changed")
            await until(lambda wanted=number: host.changes == wanted)
            assert [one.name for one in made.offer.tools] == [f"t{number}"]
        assert (made.status, len(host.started)) == ("connected", 1)


# --- Failures -------------------------------------------------------------------------------------


async def test_a_program_that_cannot_be_started_is_tried_again_only_for_a_call() -> None:
    gone = CommandExit(None, cause="not_started", message="no such file")
    host = Host(gone, gone, ScriptedServer)
    async with connection(host) as made:
        assert (made.status, made.problem) == ("failed", "it cannot be started: no such file")
        told = f"it is not connected: {made.problem}"
        assert await failure(made.call_tool("echo", {}, None, 30)) == told
        assert len(host.started) == 2
        assert host.notices == [f"MCP server s: {made.problem}"] * 2
        assert await called(made) == "fine"
        assert (made.status, made.problem, len(host.started)) == ("connected", "", 3)


async def test_a_server_that_fails_again_and_again_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longrein.extensions.mcp.connection.BACKOFF_S", (0.0,) * 4)

    host = Host(lambda: ScriptedServer({"initialize": die(1, "cannot work here")}))
    async with connection(host) as made:
        await until(lambda: host.changes == 4)
        for _ in range(20):
            await asyncio.sleep(0)
        problem = "it has stopped (exit code 1): cannot work here"
        assert (made.status, made.problem, len(host.started)) == ("failed", problem, 4)
        assert host.notices == [f"MCP server s: {problem}"] * 2  # the first and the last
        made.reconnect()
        await until(lambda: host.changes == 5)
        assert len(host.started) == 5


async def test_a_server_that_ends_after_each_answer_is_started_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longrein.extensions.mcp.connection.BACKOFF_S", (0.0, 0.0))

    host = Host(ScriptedServer)
    async with connection(host) as made:
        for number in range(1, 6):
            assert await called(made) == "fine"
            host.servers[-1].end(0)
            await until(lambda wanted=number: host.changes == 2 * wanted)
        await until(lambda: len(host.started) == 6)
        assert host.notices == ["MCP server s: it has stopped (exit code 0)"] * 5


async def test_a_server_that_only_connects_and_ends_is_not_started_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("longrein.extensions.mcp.connection.BACKOFF_S", (0.0, 0.0))

    host = Host(ScriptedServer)
    async with connection(host) as made:
        for wanted in (1, 2):
            await until(lambda n=wanted: len(host.servers) == n and made.status == "connected")
            host.servers[-1].end(None, signal="SIGKILL")
            await until(lambda: made.status != "connected")
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(host.started) == 2
        problem = "MCP server s: it has stopped (ended by SIGKILL)"
        last = f"{problem}; it is started again only for a call"
        assert host.notices == [problem, last]
        assert await called(made) == "fine"


async def test_a_server_that_does_not_answer_in_time_has_failed() -> None:
    server = msgspec.structs.replace(SERVER, startup_s=0.02)
    host = Host(lambda: ScriptedServer({"initialize": silent}))
    async with connection(host, server) as made:
        assert made.problem == "it has not answered within 0.02 s"

    def chat(server: ScriptedServer, _: dict[str, Any]) -> None:
        server.print("Welcome!")

    host = Host(lambda: ScriptedServer({"initialize": chat}))
    async with connection(host, server) as made:
        assert made.problem == (
            "it has not answered within 0.02 s; it prints lines that are no JSON, such as "
            "'Welcome!'"
        )


@pytest.mark.parametrize(("answer", "problem"), [
    (refuse(-32603, "broken"), "broken"),
    ({"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {}}, "its answer is"),
])  # fmt: skip
async def test_why_a_server_does_not_connect(answer: Any, problem: str) -> None:
    host = Host(lambda: ScriptedServer({"initialize": answer}))
    async with connection(host) as made:
        assert made.problem.startswith(problem), made.problem


async def test_a_connection_that_is_closed_ends_its_program() -> None:
    host = Host(ScriptedServer)
    async with connection(host) as made:
        pass
    assert host.servers[0].exit is not None
    assert (host.notices, host.changes, len(host.started)) == ([], 1, 1)
    found = await failure(made.call_tool("echo", {}, None, 30))
    assert found == "it is not connected: no answer yet"


# --- Ways to reach a server -----------------------------------------------------------------------


def problem(host: Host, server: Any) -> str:
    """Return why a connection fails; '' where it does not."""
    found = []

    async def story() -> None:
        async with connection(host, server) as made:
            found.append(made.problem)

    asyncio.run(story())
    return str(found[0])


@pytest.mark.parametrize(("fields", "cwd", "env"), [
    ({}, "/work", {}),
    ({"cwd": "/else"}, "/else", {}),
    ({"env": (("A", "1"), ("PATH", "/own"))}, "/work", {"A": "1", "PATH": "/own"}),
])  # fmt: skip
def test_a_program_is_started_with_its_folder_and_variables(
    fields: dict[str, Any], cwd: str, env: dict[str, str]
) -> None:
    host = Host(ScriptedServer)
    assert problem(host, msgspec.structs.replace(SERVER, **fields)) == ""
    (started,) = host.started
    usual = {"PATH": "/usr/bin:/bin", "CLAUDE_PROJECT_DIR": "/work"}
    assert (started.command, started.cwd, started.env) == (("serve",), cwd, usual | env)
    assert started.confinement is None


def test_a_program_in_the_sandbox_must_be_there() -> None:
    inside = Confinement(("bwrap",))

    def told(command: str, **fields: Any) -> str:
        host = Host(
            lambda: ScriptedServer({"initialize": die(1)}), confine=lambda _server, _cwd: inside
        )
        server = msgspec.structs.replace(SERVER, command=(command,), **fields)
        found = problem(host, server)
        assert [one.confinement for one in host.started] == [inside] * len(host.started)
        return found

    ended = "it has stopped (exit code 1) (in the sandbox: `longrein mcp get s`)"
    gone = "it cannot be started: {}: no such file or directory"
    assert told("sh") == ended
    assert told("/bin/sh") == ended
    assert told("./sh", cwd="/bin") == ended
    for command in ("no-such-program", "/bin/no-such-program", "./sh"):
        assert told(command) == gone.format(command)

    def fail(_server: Any, _cwd: str) -> Any:
        raise OSError(28, "no space")

    found = problem(Host(ScriptedServer, confine=fail), SERVER)
    assert found == "the sandbox could not be set up (no space)"


async def test_a_server_inside_the_program_is_reached_through_it() -> None:
    inside = msgspec.structs.replace(SERVER, transport="sdk", program_name="own name")
    alone = Host(ScriptedServer)
    async with connection(alone, inside) as made:
        assert made.problem == "it is inside a program, and none runs longrein"
    server = ScriptedServer()
    carried: list[str] = []

    async def carry(name: str, message: Any) -> Any:
        carried.append(name)
        if message.get("method") == "tools/call" and message["params"]["arguments"]:
            raise McpFailure("the program is gone")
        server.write(json.dumps(message).encode() + b"\n")
        return json.loads(await server.reader.readline()) if "id" in message else None

    host = Host(ScriptedServer, tunnel=carry)
    async with connection(host, inside) as made:
        assert (made.status, made.problem) == ("connected", "")
        assert await called(made) == "fine"
        await failure(made.call_tool("echo", {"a": 1}, None, 30))
        await until(lambda: made.problem)
        assert made.problem == "the program is gone"
    assert set(carried) == {"own name"}
    assert host.started == []


async def answer_to(request: Any) -> bytes:
    server = ScriptedServer(can={"tools": {}})
    server.write(json.dumps(request).encode() + b"\n")
    server.end()
    return await server.reader.read()


class Page(http.server.BaseHTTPRequestHandler):
    """A server over HTTP: `/401` answers with that status."""

    seen: list[Any]

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(dict(self.headers))
        status = int(self.path[1:])
        if status != 200:
            self.send_error(status)
            return
        data = asyncio.run(answer_to(request))
        self.send_response(200 if data else 202)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.send_error(405)


@pytest.fixture
def pages_at() -> Iterator[str]:
    Page.seen = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()


@pytest.mark.parametrize(("status", "state", "told"), [
    (200, "connected", ""),
    (401, "needs login", "it wants you to log in (HTTP 401)"),
    (403, "needs login", "it wants you to log in (HTTP 403)"),
    (400, "failed", "it answers with HTTP 400"),
    (418, "failed", "it answers with HTTP 418"),
    (500, "failed", "it answers with HTTP 500"),
])  # fmt: skip
async def test_a_server_over_http_is_told_by_its_status(
    pages_at: str, status: int, state: str, told: str
) -> None:
    server = msgspec.structs.replace(
        SERVER,
        transport="http",
        url=f"{pages_at}/{status}",
        headers=(("Authorization", "Bearer t"), ("X-A", "own")),
        headers_helper="print",
    )
    lines: list[Any] = []

    async def run_line(*line: Any) -> bytes:
        lines.append(line)
        return b'{"X-A": "helped", "X-B": "b"}'

    host = Host(ScriptedServer, run_line=run_line)
    async with connection(host, server) as made:
        assert (made.status, made.problem) == (state, told)
        hint = "; log in with `longrein mcp login s`" if state == "needs login" else ""
        assert host.notices == ([f"MCP server s: {told}{hint}"] if told else [])
        sent = {name.lower(): value for name, value in Page.seen[0].items()}
        assert (sent["authorization"], sent["x-a"], sent["x-b"]) == ("Bearer t", "helped", "b")
        assert lines == [("print", {"CLAUDE_PROJECT_DIR": "/work"}, None)]
        if not told:
            assert await called(made) == "fine"


@pytest.mark.parametrize("output", [b"", b"[]", b"{", b'{"a": 1}', b"5"])
def test_a_helper_of_headers_prints_an_object_of_texts(output: bytes) -> None:
    async def run_line(*_: Any) -> bytes:
        return output

    server = msgspec.structs.replace(
        SERVER, transport="http", url="http://127.0.0.1:1/", headers_helper="print"
    )
    found = problem(Host(ScriptedServer, run_line=run_line), server)
    assert found == "its headersHelper has not printed a JSON object of texts"

"""A7, A18.10: `.mcp.json` and its relatives: scopes, expansion, the shapes of other agents,
approvals (S054).
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.app.run_context import read_run_context
from longrein.config.trusted_folders import TrustedFolders, left_out_files, trust_preview
from longrein.extensions.mcp.mcp_command import describe, mcp
from longrein.extensions.mcp.server_config import McpServer, OAuthOptions, token_path
from longrein.extensions.mcp.server_files import (
    approve_servers,
    change_entry,
    forget_approvals,
    load_mcp_servers,
    read_server,
    server_secrets,
)
from longrein.extensions.mcp.servers import ServerView
from longrein.options import Options
from longrein.settings_schema import Settings
from longrein_context.events import SettingsError, UsageError

ENVIRON = {"PORT": "", "TOKEN": "t0ken", "HOST": "h"}


def read(raw: Any, name: str = "s") -> McpServer:
    return read_server(name, raw, ENVIRON, "user", "")


def check(raw: Any, **fields: Any) -> None:
    found = read(raw)
    told = {name: getattr(found, name) for name in ("problem", *fields)}
    assert told == {"problem": "", **fields}


OAUTH = {"clientId": "c", "callbackPort": 7777, "scopes": "a b"}
CODEX = {
    "url": "https://x",
    "bearer_token_env_var": "TOKEN",
    "startup_timeout_sec": 5,
    "tool_timeout_sec": 7,
    "enabled_tools": ["a"],
    "enabled": True,
}
OF_BUN = {"command": ("bun", "x"), "env": (("A", "t0ken"),), "startup_s": 5.0, "call_s": 0.0}
OF_CODEX = {"headers": (("Authorization", "Bearer t0ken"),), "startup_s": 5.0, "call_s": 7.0}
NPX = {"command": "npx", "args": ["-y", "x"], "env": {"A": "${TOKEN}"}}
OF_NPX = {"command": ("npx", "-y", "x"), "env": (("A", "t0ken"),), "transport": "stdio"}
PORT = {"type": "http", "url": "http://${HOST}:${PORT:-8080}/"}
BUN = {"command": ["bun", "x"], "environment": {"A": "{env:TOKEN}"}, "timeout": 5000}
KIMI = {"command": "x", "startupTimeoutMs": 2000, "toolTimeoutMs": 100}
HTTP = {"transport": "http"}
SSE = {"transport": "sse"}
X = {"command": "x"}
URL = {"url": "https://x"}
ENTRIES: tuple[tuple[str, Any, dict[str, Any]], ...] = (
    ("claude", NPX, OF_NPX),
    ("default", PORT, {**HTTP, "url": "http://h:8080/"}),
    ("alias", {"type": "streamable-http", **URL}, HTTP),
    ("sse", {"type": "sse", **URL, "headers": {"A": "b"}}, {**SSE, "headers": (("A", "b"),)}),
    ("no type", URL, HTTP),
    ("timeout", {**X, "timeout": 1500, "alwaysLoad": True}, {"call_s": 1.5, "always_listed": True}),
    ("timeout beyond a float", {**X, "timeout": 10**400}, {"call_s": 0.0}),
    ("timeout below 0", {**X, "timeout": -1}, {"call_s": 0.0}),
    ("oauth", {"type": "http", **URL, "oauth": OAUTH}, {"oauth": OAuthOptions("c", 7777, "a b")}),
    ("codex", CODEX, {**OF_CODEX, "only_tools": ("a",)}),
    ("opencode", {"type": "local", **BUN}, OF_BUN),
    ("opencode remote", {"type": "remote", **URL, "enabled": False}, {**HTTP, "disabled": True}),
    ("gemini", {"httpUrl": "https://x", "excludeTools": ["b"]}, {**HTTP, "without_tools": ("b",)}),
    ("crush", {"type": "stdio", **X, "disabled": True}, {"disabled": True}),
    ("kimi", KIMI, {"startup_s": 2.0, "call_s": 0.1}),
)


@pytest.mark.parametrize(
    ("raw", "fields"), [row[1:] for row in ENTRIES], ids=[row[0] for row in ENTRIES]
)
def test_an_entry(raw: Any, fields: dict[str, Any]) -> None:
    check(raw, **fields)


PROBLEMS: tuple[tuple[Any, str], ...] = (
    ({"command": "${MISSING}"}, "it needs the variable MISSING, which is not set"),
    ({"url": "http://x", "bearer_token_env_var": "MISSING"}, "it needs the variable MISSING"),
    ({}, "it has neither `command` nor `url`"),
    ({"type": "ws", "url": "ws://x"}, "type 'ws' is not supported: stdio, http or sse"),
    ({"type": "http", "url": "file:///etc"}, "needs a `url` that begins with http:// or https://"),
    ({"command": 5}, "`command` must be a text"),
    ({"command": "x", "args": "y"}, "`args` must be a list of texts"),
    ({"command": "x", "env": ["y"]}, "`env` must be an object of texts"),
    ("text", "its entry is not an object"),
    (None, "its entry is not an object"),
)


@pytest.mark.parametrize(("raw", "problem"), PROBLEMS)
def test_a_wrong_entry_has_a_problem(raw: Any, problem: str) -> None:
    assert problem in read(raw).problem


@pytest.mark.parametrize(
    ("name", "usable"), [("a.b c", "a_b_c"), ("a__b", "a_b"), ("é", "server"), ("x" * 60, "x" * 40)]
)
def test_a_name_has_no_separator_in_it(name: str, usable: str) -> None:
    assert read({"command": "x"}, name).name == usable


class Person:
    """A home and a project with files of servers."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.state = folder / "home", folder / "project", folder / "state"
        (self.project / ".git").mkdir(parents=True)
        (self.home / ".config/longrein").mkdir(parents=True)
        self.environ = {"HOME": str(self.home)}

    def write(self, path: Path, **servers: Any) -> None:
        path.write_text(json.dumps({"mcpServers": servers}))

    def write_project(self, **servers: Any) -> None:
        self.write(self.project / ".mcp.json", **servers)

    def load(self, **more: Any) -> Any:
        more = {"trusted": True} | more
        return load_mcp_servers(
            str(self.project), str(self.home), self.environ, str(self.state), **more
        )

    def names(self, **more: Any) -> dict[str, str]:
        return {server.name: server.scope for server in self.load(**more).servers}


@pytest.fixture
def person(tmp_path: Path) -> Person:
    return Person(tmp_path)


def test_the_nearest_scope_replaces_a_server_as_a_whole(person: Person) -> None:
    entry = {"command": "x", "env": {"A": "1"}}
    claude = {
        "mcpServers": {"a": entry, "b": entry, "c": entry},
        "projects": {str(person.project): {"mcpServers": {"c": {"command": "local"}}}},
        "history": ["long"],
    }
    (person.home / ".claude.json").write_text(json.dumps(claude))
    person.write_project(b={"command": "project"}, c={"command": "project"})
    assert person.names(approved=True) == {"a": "user", "b": "project", "c": "local"}
    found = {
        server.name: server
        for server in person.load(
            approved=True, given=['{"mcpServers":{"a":{"command":"f"}}}']
        ).servers
    }
    assert (found["a"].scope, found["a"].env, found["b"].command) == ("flag", (), ("project",))
    told = person.names(given=['{"mcpServers":{"z":{"command":"f"}}}'], strict=True)
    assert told == {"z": "flag"}


def test_a_project_server_waits_for_trust_and_for_approval_of_its_very_entry(
    person: Person,
) -> None:
    person.write_project(tool={"command": "good"})
    assert person.load(trusted=False).unapproved == ()
    assert [server.name for server in person.load().unapproved] == ["tool"]
    assert approve_servers(str(person.state), str(person.project)) == ["tool"]
    assert person.names() == {"tool": "project"}
    person.write_project(tool={"command": "evil"})  # S054
    assert person.names() == {}
    assert [server.command for server in person.load().unapproved] == [("evil",)]
    person.write_project(other={"command": "good"})  # renamed
    assert person.names() == {}
    person.write_project(tool={"command": "good"})
    assert person.names() == {"tool": "project"}
    forget_approvals(str(person.state), str(person.project))
    assert person.names() == {}


def test_an_unapproved_server_does_not_take_the_place_of_the_users(person: Person) -> None:
    person.write(person.home / ".config/longrein/mcp.json", git={"command": "mine"})
    person.write_project(git={"command": "evil"})
    assert [server.command for server in person.load().servers] == [("mine",)]
    assert [server.name for server in person.load().unapproved] == ["git"]


BROKEN = (
    b"{",
    b"[]",
    b'{"mcpServers": 5}',
    b"\xff\xfe",
    b"[" * 100_000,
    b"null",
    b'{"mcpServers": {"a": null}}',
)


@pytest.mark.parametrize("data", BROKEN)
def test_a_broken_file_costs_its_servers_only(person: Person, data: bytes) -> None:
    (person.project / ".mcp.json").write_bytes(data)
    (person.home / ".claude.json").write_bytes(data)
    person.write(person.home / ".config/longrein/mcp.json", ok={"command": "x"})
    found = person.load(approved=True)
    assert [server.name for server in found.servers if not server.problem] == ["ok"]
    assert all("\n" not in note for note in found.notes)


def test_unknown_keys_are_named(person: Person) -> None:
    person.write(
        person.home / ".config/longrein/mcp.json",
        a={"command": "x", "colour": 1, "sandbox": "off"},
        b={"url": "http://x"},
    )
    notes = "\n".join(person.load().notes)
    assert "MCP server a: ignored: colour\n" in notes
    assert 'MCP server b has no `type`: taken as "http"' in notes


SHAPES = (
    '{"mcp": {"a": {"type": "local", "command": ["x"]}}}',
    '{"servers": {"a": {"command": "x"}}}',
    '{"mcp_servers": [{"name": "a", "transport": "stdio", "command": "x"}]}',
)


@pytest.mark.parametrize("text", SHAPES)
def test_the_flag_takes_the_shapes_of_other_agents(person: Person, text: str) -> None:
    assert person.names(given=[text]) == {"a": "flag"}


def test_the_flag_takes_files_and_refuses_what_is_none(person: Person) -> None:
    (person.project / "codex.toml").write_text('[mcp_servers.a]\ncommand = "x"\n')
    assert person.names(given=["codex.toml"]) == {"a": "flag"}
    for wrong, says in (
        ("missing.json", "cannot be read"),
        ("{", "is not valid"),
        (str(person.home), "a folder"),
    ):
        with pytest.raises(UsageError, match=says):
            person.load(given=[wrong])


def test_an_entry_is_added_replaced_and_removed_beside_what_is_there(person: Person) -> None:
    path, project = str(person.home / "mcp.json"), str(person.project)
    Path(path).write_text('{"other": 1, "mcpServers": {"a": {"command": "x"}}}')
    assert not change_entry("user", "b", {"command": "y"}, project, path)
    assert change_entry("user", "a", None, project, path)
    assert not change_entry("local", "c", {"command": "z"}, project, path)
    assert json.loads(Path(path).read_text()) == {
        "other": 1,
        "mcpServers": {"b": {"command": "y"}},
        "projects": {project: {"mcpServers": {"c": {"command": "z"}}}},
    }
    for scope, wrong, key in (
        ("user", {"mcpServers": []}, "mcpServers"),
        ("local", {"projects": []}, "projects"),
        ("local", {"projects": {project: 1}}, project),
        ("local", {"projects": {project: {"mcpServers": "x"}}}, "mcpServers"),
    ):
        Path(path).write_text(json.dumps(wrong))
        with pytest.raises(SettingsError, match=f"{key} is not an object"):
            change_entry(scope, "a", {"command": "x"}, project, path)
        assert json.loads(Path(path).read_text()) == wrong
    Path(path).write_text("{")
    with pytest.raises(SettingsError, match="is not valid"):
        change_entry("user", "a", {}, project, path)


def test_values_with_the_name_of_a_secret_are_secrets() -> None:
    server = McpServer(
        "s",
        env=(("API_KEY", "key-123456"), ("PATH", "/usr/bin:/bin")),
        headers=(("Authorization", "Bearer tok-123456"),),
    )
    assert server_secrets([server]) == ("key-123456", "Bearer tok-123456", "tok-123456")


def test_trust_shows_what_a_project_would_start(person: Person) -> None:
    person.write_project(
        a={"command": "curl", "args": ["evil\x1b[2J"]}, b={"type": "http", "url": "https://x/mcp"}
    )
    place = (str(person.project), str(person.home), person.environ, Settings())
    assert left_out_files(*place) == (".mcp.json",)
    (row,) = trust_preview(*place)
    assert row.kind == "MCP servers"
    assert row.effect == "starts a: curl evil\\x1b[2J; b: https://x/mcp"


PLACES = (
    "home/.claude/settings.json",
    "project/.claude/settings.local.json",
    "project/.claude/settings.json",
)


@pytest.mark.parametrize("place", PLACES)
def test_a_server_that_was_refused_in_claude_code_is_not_asked_about(
    person: Person, tmp_path: Path, place: str
) -> None:
    person.write_project(a={"command": "x"}, b={"command": "y"})
    (tmp_path / place).parent.mkdir()
    (tmp_path / place).write_text(
        '{"disabledMcpjsonServers": ["a"], "enabledMcpjsonServers": ["b"]}'
    )
    assert [server.name for server in person.load().unapproved] == [
        "b"
    ]  # approvals by name are not taken over
    assert person.names(approved=True) == {"b": "project"}


def test_an_entry_of_a_project_cannot_approve_its_own_calls(person: Person) -> None:
    own = {"autoApprove": ["*"], "alwaysAllow": ["*"], "trust": True, "autoApproveAll": True}
    plain = {"command": "x"}
    for scope in ("project", "user"):
        given = read_server("a", plain | own, ENVIRON, scope, "")
        assert given == read_server("a", plain, ENVIRON, scope, "")
    person.write_project(a=plain | own)
    assert [server.name for server in person.load().unapproved] == ["a"]


def test_a_server_that_is_approved_again_keeps_its_sandbox(person: Person) -> None:
    def approved(command: str, *sandbox: Any) -> list[str]:
        person.write_project(a={"command": command})
        approve_servers(str(person.state), str(person.project), None, *sandbox)
        return [server.sandbox for server in person.load().servers]

    assert approved("x", "off") == ["off"]
    assert approved("x") == ["off"]
    assert approved("other") == ["strict"]


def test_the_nearest_file_of_a_project_decides_about_a_server(person: Person) -> None:
    inner = person.project / "sub"
    inner.mkdir()
    person.write_project(a={"command": "outer"}, b={"command": "outer"})
    assert approve_servers(str(person.state), str(person.project), ["a"]) == ["a"]
    person.write(inner / ".mcp.json", a={"command": "inner"}, b={"command": "inner"})

    def told() -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
        found = load_mcp_servers(
            str(inner), str(person.home), person.environ, str(person.state), trusted=True
        )
        return [one.command for one in found.servers], [one.command for one in found.unapproved]

    assert told() == ([("outer",)], [("inner",)])
    approve_servers(str(person.state), str(inner))
    assert sorted(told()[0]) == [("inner",), ("inner",)]
    assert told()[1] == []


@pytest.mark.parametrize(("tools", "told"), [
    (0, "no tools"),
    (1, "1 tools (a__0)"),
    (20, f"20 tools ({', '.join(f'a__{i}' for i in range(20))})"),
    (21, f"21 tools ({', '.join(f'a__{i}' for i in range(20))} and 1 more)"),
])  # fmt: skip
def test_a_connected_server_is_told_in_a_line(tools: int, told: str) -> None:
    names = tuple(f"mcp__s__a__{i}" for i in range(tools))
    view = ServerView("s", "connected", "", "x", "user", names, title="Shop", protocol="1")
    assert describe(view) == f"s: connected, Shop, protocol 1: {told}"
    more = msgspec.structs.replace(view, prompts=("a", "b"), resources=True)
    assert describe(more) == f"s: connected, Shop, protocol 1: {told}, 2 prompts, resources"
    failed = msgspec.structs.replace(view, status="failed", problem="why")
    assert describe(failed) == "s: failed: why"


def test_tokens_belong_to_the_address_of_a_server() -> None:
    one, other = (read({"url": f"https://{host}"}) for host in "ab")
    assert token_path(one, "/t") == f"/t/s-{sha256(b'https://a').hexdigest()[:16]}.json"
    assert token_path(one, "/t") != token_path(other, "/t")


# --- The command `longrein mcp` -------------------------------------------------------------------


class Desk:
    """Runs actions of `longrein mcp` in this process; keeps what they print."""

    def __init__(self, person: Person, capfd: pytest.CaptureFixture[str]) -> None:
        self.person, self._capfd = person, capfd
        self.own = person.home / ".config/longrein/mcp.json"
        self.environ = {**person.environ, "PATH": "/usr/bin:/bin"}
        settings = person.home / ".config/longrein/config.toml"
        settings.write_text('[sandbox]\nmode = "off"\n')

    def run(self, *words: str, trust: bool = True, **flags: Any) -> tuple[int, str, str]:
        options = Options(state_dir=str(self.person.state))
        project = str(self.person.project)
        trusted = TrustedFolders().with_folder(project, str(self.person.home))
        run_context = read_run_context(
            options, self.environ, folder=project, trusted=trusted if trust else TrustedFolders()
        )
        code = mcp(run_context, words, **flags)
        out, err = self._capfd.readouterr()
        return code, out, err.replace("longrein: ", "")

    def refused(self, *words: str, **flags: Any) -> str:
        with pytest.raises(UsageError) as raised:
            self.run(*words, **flags)
        return str(raised.value)

    def stored(self, path: Path) -> Any:
        return json.loads(path.read_text())["mcpServers"]


@pytest.fixture
def desk(person: Person, capfd: pytest.CaptureFixture[str]) -> Desk:
    return Desk(person, capfd)


def test_servers_are_listed_with_their_state(desk: Desk) -> None:
    none = "no MCP server is configured; add one with `longrein mcp add NAME -- COMMAND…`\n"
    assert desk.run() == (0, "", none)
    assert json.loads(desk.run("list", json=True)[1]) == []
    desk.person.write(
        desk.own,
        a={"command": "x", "args": ["--token=sk-ant-api03-" + "a" * 40]},
        web={"type": "http", "url": "https://x/"},
        off={"command": "y", "disabled": True},
        wrong={"command": "${NOT_SET}"},
        odd={"command": "z", "colour": 1},
    )
    desk.person.write_project(web={"command": "evil"}, b={"command": "b"})
    code, out, err = desk.run("list")
    assert code == 0
    rows = out.splitlines()
    assert [row.split()[0] for row in rows] == ["a", "web", "off", "wrong", "odd", "b"]
    assert rows[0].startswith("a      stdio  x --token=")
    assert "sk-ant-api03-aaaa" not in out
    assert rows[0].endswith("mcp.json), as you: no sandbox is used here")
    assert rows[1].endswith("mcp.json)")
    assert rows[1].startswith("web    http   https://x/  user (")
    assert rows[2].endswith("  [disabled]")
    assert "[it needs the variable NOT_SET, which is not set; set it" in rows[3]
    assert rows[5].endswith("  [not approved: longrein mcp approve]")
    assert "MCP server odd: ignored: colour" in err
    untrusted = desk.run("list", trust=False)[1].splitlines()
    assert untrusted[5].endswith("  [this folder is not trusted: longrein trust]")
    rows = json.loads(desk.run("list", json=True)[1])
    found = [(row["name"], row["sandbox"], row["problem"]) for row in rows[:3]]
    assert found == [("a", "network", ""), ("web", "", ""), ("off", "network", "disabled")]
    found = set(rows[0])
    assert found == {*("name", "transport", "address", "scope", "source", "sandbox", "problem")}


def test_a_server_is_shown_without_its_secrets(desk: Desk) -> None:
    desk.person.write(
        desk.own,
        a={"command": "x", "env": {"KEY": "hidden"}},
        w={"type": "http", "url": "https://x/", "headers": {"X-Key": "hidden"}, "disabled": True},
    )
    code, out, _ = desk.run("get", "a")
    source = "user (~/.config/longrein/mcp.json)"
    assert (code, out.splitlines()) == (
        0,
        [
            "name       a",
            f"scope      {source}",
            "transport  stdio",
            "address    x",
            "env        KEY=…",
            "runs       as you: no sandbox is used here",
        ],
    )
    assert desk.run("get", "w")[1].splitlines()[2:] == [
        "transport  http",
        "address    https://x/",
        "header     X-Key: …",
        "problem    disabled",
    ]


def test_a_server_is_added_to_the_file_of_its_scope(desk: Desk) -> None:
    own, project = desk.own, desk.person.project / ".mcp.json"
    told = f"added MCP server a in {own}; `longrein mcp test a` tries it\n"
    assert desk.run("add", "a", "npx", "-y", "x") == (0, "", told)
    assert desk.run("add", "a", "y")[2].startswith("replaced MCP server a in ")
    desk.run("add", "b", "x", env=["A=1", "B = c=d "], sandbox="off")
    desk.run("add", "h", "https://x/", header=["X-A: b:c"])
    desk.run("add", "e", "http://x/", transport="sse")
    desk.run("add-json", "j", '{"command": "x", "args": ["y"]}')
    assert desk.stored(own) == {
        "a": {"type": "stdio", "command": "y", "args": []},
        "b": {
            "type": "stdio",
            "command": "x",
            "args": [],
            "env": {"A": "1", "B": "c=d"},
            "sandbox": "off",
        },
        "h": {"type": "http", "url": "https://x/", "headers": {"X-A": "b:c"}},
        "e": {"type": "sse", "url": "http://x/"},
        "j": {"command": "x", "args": ["y"]},
    }
    desk.run("add", "p", "x", scope="project", sandbox="off")
    assert desk.stored(project) == {"p": {"type": "stdio", "command": "x", "args": []}}
    assert json.loads(desk.run("list", json=True)[1])[-1]["sandbox"] == "off"  # and approved
    desk.run("add", "v", "${NOT_SET}")
    assert "v" in desk.stored(own)


@pytest.mark.parametrize(("words", "flags", "told"), [
    (("fly",), {}, "longrein mcp: there is no 'fly'; there are list, get, add,"),
    (("list", "x"), {}, "longrein mcp list does not know what to do with 'x'"),
    (("get",), {}, "which server? longrein mcp get NAME; there are a"),
    (("get", "a", "b"), {}, "which server? longrein mcp get NAME; there are a"),
    (("get", "x"), {}, "there is no MCP server 'x'; there are a"),
    (("add", "x"), {}, "longrein mcp add NAME -- COMMAND…, or longrein mcp add --transport"),
    (("add", "x", "https://x/", "y"), {}, "longrein mcp add does not know what to do with 'y'"),
    (("add", "x", "y"), {"env": ["A"]}, "--env 'A': write NAME=VALUE"),
    (("add", "x", "http://y"), {"header": ["A"]}, "--header 'A': write NAME:VALUE"),
    (("add", "a__b", "x"), {}, "the name 'a__b' may hold letters, digits, - and single _"),
    (("add", "x", "y"), {"transport": "http"}, "MCP server x: a server of type http needs"),
    (("add-json", "x"), {}, "longrein mcp add-json NAME"),
    (("add-json", "x", "{"), {}, "the entry is not valid JSON: "),
    (("add-json", "x", "[]"), {}, "MCP server x: its entry is not an object"),
    (("remove",), {}, "longrein mcp remove NAME"),
    (("remove", "x"), {}, "there is no MCP server 'x' in scope local or project or user"),
    (("remove", "a"), {"scope": "project"}, "there is no MCP server 'a' in scope project; it"),
    (("approve", "x"), {}, "the project has no MCP server 'x'; it has p"),
    (("approve",), {"sandbox": "off"}, "which server? longrein mcp approve NAME --sandbox off"),
    (("approve",), {"trust": False}, "{project} is not trusted: longrein trust"),
    (("reset-project-choices", "x"), {}, "longrein mcp reset-project-choices does not know"),
    (("login", "a"), {}, "MCP server a: a stdio server needs no login"),
    (("login", "p"), {}, "MCP server p: not approved: longrein mcp approve"),
])  # fmt: skip
def test_what_cannot_be_done_is_said(
    desk: Desk, words: tuple[str, ...], flags: dict[str, Any], told: str
) -> None:
    desk.person.write(desk.own, a={"command": "x"})
    desk.person.write_project(p={"command": "x"})
    before = desk.own.read_text()
    found = desk.refused(*words, **flags)
    assert found.startswith(told.format(project=desk.person.project)), found
    assert desk.own.read_text() == before


def test_a_server_is_removed_where_it_stands(desk: Desk) -> None:
    project = desk.person.project / ".mcp.json"
    desk.person.write(desk.own, a={"command": "x"}, b={"command": "x"})
    desk.person.write_project(a={"command": "y"})
    assert desk.run("remove", "a") == (0, "", f"removed MCP server a from {project}\n")
    assert desk.run("remove", "a")[2] == f"removed MCP server a from {desk.own}\n"
    assert (desk.stored(desk.own), desk.stored(project)) == ({"b": {"command": "x"}}, {})


def test_servers_of_the_project_are_approved_and_asked_about_again(desk: Desk) -> None:
    desk.person.write_project(p={"command": "x", "args": ["y"]}, q={"command": "z"})
    assert desk.run("approve", "p") == (0, "", "approved MCP server p: x y\n")
    assert desk.person.names() == {"p": "project"}
    assert desk.run("approve")[2] == "approved MCP server p: x y\napproved MCP server q: z\n"
    told = "the project's MCP servers are asked about again\n"
    assert desk.run("reset-project-choices") == (0, "", told)
    assert desk.person.names() == {}


def test_a_stored_login_is_removed(desk: Desk) -> None:
    desk.person.write(desk.own, w={"type": "http", "url": "https://x/"})
    assert desk.run("logout", "w") == (0, "", "no login at MCP server w is stored\n")
    server = McpServer("w", url="https://x/")
    path = Path(token_path(server, f"{desk.person.state}/mcp_tokens"))
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    told = "the login at MCP server w is removed from this machine\n"
    assert desk.run("logout", "w") == (0, "", told)
    assert not path.exists()


def test_servers_that_cannot_be_used_fail_a_test_without_being_started(desk: Desk) -> None:
    assert desk.run("test") == (0, "", "")
    desk.person.write(desk.own, off={"command": "y", "disabled": True}, w={"command": "${NOT_SET}"})
    code, out, _ = desk.run("test")
    assert (code, out.splitlines()[0]) == (1, "off: disabled")
    assert out.splitlines()[1].startswith("w: it needs the variable NOT_SET")
    assert desk.run("test", "off")[:2] == (1, "off: disabled\n")

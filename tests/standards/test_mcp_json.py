"""A7 `.mcp.json` and `~/.claude.json`: random files read by FastMCP and OpenHands, and the
examples of servers.
"""

import json
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.extensions.mcp.server_config import McpServer
from longrein.extensions.mcp.server_files import Unset, expand, load_mcp_servers

from .peers import AGENTS, PACKAGES, ask, needs

# Names as they are here in the names of tools: single underscores, none at an end. The next test
# has others.
NAMES = st.from_regex(r"[a-z](_?[a-z0-9-]){0,6}", fullmatch=True)
VALUES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"), exclude_characters="${}"),
    max_size=12,
)
TABLES = st.dictionaries(
    st.from_regex(r"[A-Z][A-Z_-]{0,8}[A-Z]", fullmatch=True), VALUES, max_size=3
)
LOCAL = st.fixed_dictionaries(
    {"command": VALUES.filter(bool)},
    optional={"type": st.just("stdio"), "args": st.lists(VALUES, max_size=4), "env": TABLES},
)
REMOTE = st.fixed_dictionaries(
    {
        "type": st.sampled_from(["http", "sse"]),
        "url": st.from_regex(r"https?://[a-z]{1,6}\.test/[a-z]{0,5}", fullmatch=True),
    },
    optional={"headers": TABLES},
)
SERVERS = st.dictionaries(NAMES, LOCAL | REMOTE, min_size=1, max_size=4)


def shape(server: McpServer) -> list[Any]:
    """A server in the shape of `fastmcp_servers`."""
    if server.transport == "stdio":
        return ["stdio", list(server.command), dict(server.env)]
    return [server.transport, server.url, dict(server.headers)]


def load(home: Path, files: dict[str, Any]) -> tuple[McpServer, ...]:
    cwd = home / "repo"
    (cwd / ".git").mkdir(parents=True)
    for name, document in files.items():
        (home / name).write_text(json.dumps(document))
    found = load_mcp_servers(
        str(cwd), str(home), {}, str(home / "state"), trusted=True, approved=True
    )
    assert not found.notes
    assert not any(server.problem for server in found.servers)
    return found.servers


@needs(AGENTS)
@given(entries=SERVERS)
@settings(max_examples=40, deadline=None)
def test_A7_fastmcp_reads_the_same_servers_of_a_project(entries: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as made:
        document = {"mcpServers": entries}
        found = load(Path(made).resolve(), {"repo/.mcp.json": document})
        assert {server.name: shape(server) for server in found} == ask("fastmcp_servers", document)


@needs(AGENTS)
@given(user=SERVERS, local=SERVERS, other=SERVERS)
@settings(max_examples=40, deadline=None)
def test_A7_fastmcp_finds_the_same_servers_in_the_users_file(
    user: dict[str, Any], local: dict[str, Any], other: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        projects = {
            str(home / "repo"): {"mcpServers": local},
            str(home / "else"): {"mcpServers": other},
        }
        found = load(
            home, {".claude.json": {"mcpServers": user, "projects": projects, "numStartups": 3}}
        )
        theirs = ask("fastmcp_claude", str(home / "repo"), str(home))
        assert {server.name: shape(server) for server in found} == theirs


CLASHES = [
    (
        {"a": {}, "a_": {}},
        ".mcp.json: the MCP servers a and a_ are both called a here: rename the first",
    ),
    ({"my db": {}, "b": {}, "my__db": {}}, "my db and my__db are both called my_db here"),
    ({"a": {}, "b_c": {}, "b-c": {}}, ""),
]


@pytest.mark.parametrize(("entries", "note"), CLASHES)
def test_A7_two_names_that_are_one_are_told(
    entries: dict[str, Any], note: str, tmp_path: Path
) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".mcp.json").write_text(
        json.dumps({"mcpServers": {name: {"command": "x"} for name in entries}})
    )
    found = load_mcp_servers(
        str(tmp_path), "/nowhere", {}, str(tmp_path), trusted=True, approved=True
    )
    assert bool(found.notes) == bool(note)
    assert note in " ".join(found.notes)
    assert len(found.servers) == len(entries) - bool(note)


PIECES = st.sampled_from(
    [
        "$",
        "{",
        "}",
        "${A}",
        "${B}",
        "${A:-x}",
        "${NO:-y z}",
        "${NO:-}",
        "$A",
        ":-",
        "${A",
        "a",
        "\\",
    ]
)


@needs(AGENTS)
@given(pieces=st.lists(PIECES, max_size=6))
@settings(max_examples=100, deadline=None)
def test_A7_openhands_expands_the_same_variables(pieces: list[str]) -> None:
    text, environ = "".join(pieces), {"A": "one", "B": "${A}"}
    assert expand(text, environ) == ask("openhands_expand", text, environ)


def test_A7_a_variable_that_is_not_set_is_an_error() -> None:
    with pytest.raises(Unset):
        expand("${NO}", {})


def examples() -> list[Any]:
    """The examples of `.mcp.json` in the read-me files of published servers."""
    files = [
        *PACKAGES.glob("@modelcontextprotocol/server-*/README.md"),
        *Path(sys.prefix).glob("servers/lib/*/site-packages/mcp_server_*.dist-info/METADATA"),
    ]
    return [
        pytest.param(block, id=f"{file.parent.name}-{number}")
        for file in sorted(files)
        for number, block in enumerate(
            re.findall(r"```json\n(.*?)```", file.read_text(), re.DOTALL)
        )
        if '"mcpServers"' in block
    ]


@pytest.mark.parametrize("example", examples())
def test_A7_the_published_examples_of_servers_are_read_whole(example: str, tmp_path: Path) -> None:
    try:
        document = json.loads(example)
    except ValueError:
        pytest.skip("the published example is no JSON")
    entries = document["mcpServers"]
    found = {server.name: server for server in load(tmp_path, {"repo/.mcp.json": document})}
    assert {name: (entry["command"], *entry["args"]) for name, entry in entries.items()} == {
        name: server.command for name, server in found.items()
    }

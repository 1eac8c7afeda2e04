"""s19, A7 with servers that nobody here wrote: from npm and PyPI, over stdio, streamable HTTP
and SSE.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein_context.events import Image, ToolEnded
from tests.e2e.harness import BYPASS, CliHarness, Turn, calls, says
from tests.mcp_servers.harness import Entry, late, listening, one_call, program, serve

Made = Callable[[CliHarness], tuple[Entry, Turn]]
"""Returns the entry of the server `s` and the call to try."""


def everything(cli: CliHarness) -> tuple[Entry, Turn]:
    return {"command": program("mcp-server-everything")}, late("mcp__s__get-sum", a=2, b=40)


def filesystem(cli: CliHarness) -> tuple[Entry, Turn]:
    (cli.project / "note.txt").write_text("forty-two")
    entry = {"command": program("mcp-server-filesystem"), "args": [str(cli.project)]}
    return entry, late("mcp__s__read_text_file", path=str(cli.project / "note.txt"))


def memory(cli: CliHarness) -> tuple[Entry, Turn]:
    entry = {
        "command": program("mcp-server-memory"),
        "env": {"MEMORY_FILE_PATH": str(cli.folder / "memory.json")},
    }
    entity = {"name": "answer", "entityType": "number", "observations": ["42"]}
    return entry, late("mcp__s__create_entities", entities=[entity])


def thinking(cli: CliHarness) -> tuple[Entry, Turn]:
    thought = {
        "thought": "So it is 42.",
        "nextThoughtNeeded": False,
        "thoughtNumber": 1,
        "totalThoughts": 42,
    }
    return {"command": program("mcp-server-sequential-thinking")}, late(
        "mcp__s__sequentialthinking", **thought
    )


def git(cli: CliHarness) -> tuple[Entry, Turn]:
    subprocess.run(["git", "init", "-q", str(cli.project)], check=True)
    (cli.project / "file42").write_text("new")
    return {"command": program("mcp-server-git")}, late(
        "mcp__s__git_status", repo_path=str(cli.project)
    )


def clock(cli: CliHarness) -> tuple[Entry, Turn]:
    call = late("mcp__s__convert_time", source_timezone="UTC", time="12:42", target_timezone="UTC")
    return {"command": program("mcp-server-time")}, call


def fetch(cli: CliHarness) -> tuple[Entry, Turn]:
    """There is no network: the server's own error comes back."""
    return {"command": program("mcp-server-fetch")}, late(
        "mcp__s__fetch", url="http://127.0.0.1:1/42"
    )


SERVERS: tuple[tuple[Made, str, str], ...] = (
    (everything, "ok", "42"),
    (filesystem, "ok", "forty-two"),
    (memory, "ok", "42"),
    (thinking, "ok", "42"),
    (git, "ok", "file42"),
    (clock, "ok", "12:42"),
    (fetch, "failed", "127.0.0.1:1"),
)


@pytest.mark.parametrize(
    ("make", "status", "expected"), SERVERS, ids=[row[0].__name__ for row in SERVERS]
)
def test_a_reference_server_over_stdio(
    cli: CliHarness, make: Made, status: str, expected: str
) -> None:
    entry, call = make(cli)
    serve(cli, s=entry)
    found = one_call(cli, call)
    assert found[0] == status, found
    assert expected in found[1]


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    """The reference server `everything`, serving the transport of the parameter; its base URL."""
    with listening(program("mcp-server-everything"), request.param) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(("address", "kind", "path"), [
    ("streamableHttp", "http", "/mcp"),
    ("streamableHttp", "", "/mcp"),
    ("sse", "sse", "/sse"),
], indirect=["address"], ids=["streamable HTTP", "HTTP without a type", "SSE"])  # fmt: skip
def test_a_reference_server_over_http(cli: CliHarness, address: str, kind: str, path: str) -> None:
    serve(
        cli,
        s={"url": address + path, "headers": {"X-Test": "1"}} | ({"type": kind} if kind else {}),
    )
    assert one_call(cli, late("mcp__s__get-sum", a=2, b=40))[1].strip().endswith("42.")


def test_images_resources_and_prompts_of_the_reference_server(cli: CliHarness) -> None:
    serve(cli, every={"command": program("mcp-server-everything")})
    uri = "demo://resource/static/document/features.md"
    cli.plays(
        calls(
            late("mcp__every__get-tiny-image"),
            late("ListMcpResourcesTool"),
            late("ReadMcpResourceTool", server="every", uri=uri),
            late("mcp__every__get-structured-content", location="New York"),
        ),
        says("done"),
        says("again"),
    )
    assert cli.run("-p", "go", BYPASS).code == 0
    ends = [entry.event for entry in cli.entries() if isinstance(entry.event, ToolEnded)]
    assert [end.status for end in ends] == ["ok"] * 4
    assert any(
        isinstance(part, Image) and part.media == "image/png" for end in ends for part in end.parts
    )
    texts = [text for _, text in cli.results()]
    assert f"@every:{uri}" in texts[1]
    assert "Everything" in texts[2]
    assert re.search(r'"temperature"', texts[3])
    assert cli.run("-p", "-c", f"look at @every:{uri} please", BYPASS).code == 0
    log = (Path(cli.state) / "sessions").exists() and "".join(map(str, cli.entries()))
    assert f"every:{uri}" in str(log)


def test_a_prompt_of_the_reference_server_is_a_command(cli: CliHarness) -> None:
    serve(cli, every={"command": program("mcp-server-everything")})
    cli.plays(says("done"))
    assert cli.run("-p", '/mcp__every__args-prompt "New York" NY', BYPASS).code == 0
    spoken = next(
        entry.event for entry in cli.entries() if type(entry.event).__name__ == "UserSpoke"
    )
    assert "New York, NY" in str(spoken)
    missing = cli.run("-p", "/mcp__every__args-prompt", BYPASS)
    assert missing.code == 2
    assert "/mcp__every__args-prompt needs city" in missing.err

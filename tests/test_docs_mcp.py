"""The commands of docs/mcp.md run as they stand, and its JSON is read without a note."""

import json
import re
import shlex
from pathlib import Path

import pytest

from longrein.extensions.mcp.server_files import load_mcp_servers
from tests.e2e.harness import CliHarness

PAGE = (Path(__file__).parent.parent / "docs/mcp.md").read_text(encoding="utf-8")


def test_the_commands_of_the_page_run(tmp_path: Path) -> None:
    cli = CliHarness(tmp_path)
    (cli.project / ".mcp.json").write_text(
        json.dumps({"mcpServers": {"search": {"command": "search-server"}}})
    )
    assert cli.run("trust").code == 0
    lines = [
        line
        for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(lines) > 8
    for line in lines:
        words = shlex.split(line.removeprefix("$ longrein "))
        assert cli.run(*words).code == 0, line
    assert cli.run("mcp", "list").text.count("\n") == 5


def test_the_configuration_of_the_page_is_read(tmp_path: Path) -> None:
    (text,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    found = load_mcp_servers(
        str(tmp_path),
        str(tmp_path),
        {"ISSUES_TOKEN": "t"},
        str(tmp_path),
        trusted=False,
        given=[text],
    )
    assert (found.notes, [server.problem for server in found.servers]) == ((), ["", ""])
    assert [server.call_s for server in found.servers] == [60.0, 0.0]
    assert dict(found.servers[1].headers) == {"Authorization": "Bearer t"}


@pytest.mark.parametrize("word", ["Sampling", "Images", "`ws`"])
def test_the_page_says_what_is_missing(word: str) -> None:
    assert word in PAGE.partition("## Not supported")[2]

"""Tools of a first request: few and small, under the profiles' own names, and all can be called."""

import json

import anyio.to_thread
import pytest

from longrein.testing.loopback import LoopbackProvider, read_play
from longrein_context.events import ToolEnded
from tests.e2e.harness import CliHarness, call, calls, of, says

WIRES = {"anthropic": "", "openai-chat": "/v1", "openai-responses": "/v1", "gemini": "/v1beta"}


@pytest.mark.anyio
@pytest.mark.parametrize("model", ["one", "gpt-5"])
@pytest.mark.parametrize("wire", WIRES)
async def test_a_first_request_holds_few_and_small_tools(
    cli: CliHarness, wire: str, model: str
) -> None:
    """At most 12 tools in 8,000 bytes, as the provider gets them."""
    play = read_play(json.dumps({"turns": [{"text": "hi"}]}).encode())
    async with LoopbackProvider(play) as server:
        url = f"{server.url}{WIRES[wire]}"
        cli.config.write_text(
            f'model = "judge/{model}"\n[providers.judge]\nwire = "{wire}"\nbase_url = "{url}"\n'
        )
        running = cli.start("-p", "hi")
        await anyio.to_thread.run_sync(running.end)
        body = json.loads(server.requests[0].body)
    tools = body["tools"][0]["functionDeclarations"] if wire == "gemini" else body["tools"]
    assert len(tools) <= 12
    assert len(json.dumps(body["tools"], separators=(",", ":"), ensure_ascii=False)) <= 8_000
    assert ("apply_patch" in str(tools), '"Edit"' in json.dumps(tools)) == (
        model == "gpt-5", model == "one",
    )  # fmt: skip


def test_tools_that_no_request_lists_are_called_by_name_and_by_call_tool(cli: CliHarness) -> None:
    named = {"name": "CallTool", "arguments": {"name": "TaskList", "args": {}}}
    cli.plays(calls(call("TaskList"), named, call("task_list"), call("taskoutput")), says("ok"))
    listed = cli.run("--list-tools").text.splitlines()
    assert "TaskList" not in [line.split()[0] for line in listed[:-1]]
    assert "TaskList" in listed[-1].removeprefix("found by ToolSearch: ").split(", ")
    assert cli.run("-p", "go").code == 0
    assert [(end.name, end.status) for end in of(cli, ToolEnded)] == [
        ("TaskList", "ok"), ("TaskList", "ok"), ("TaskList", "ok"), ("TaskOutput", "failed"),
    ]  # fmt: skip


def test_names_of_other_agents_mean_the_tool_of_that_kind(cli: CliHarness) -> None:
    (cli.project / "a.txt").write_text("x")
    cli.plays(calls(call("bash", command="pwd"), call("read_file", file_path="a.txt")), says("ok"))
    cli.run("-p", "go", "--disallowedTools", "Bash")
    assert [(end.name, end.status) for end in of(cli, ToolEnded)] == [
        ("Bash", "denied"), ("Read", "ok"),
    ]  # fmt: skip


def test_A18_C6_under_seed_the_five_tools_of_the_documents_are_there_and_no_others(
    cli: CliHarness,
) -> None:
    """Rules and hooks know them by the usual names."""
    (cli.project / "a.txt").write_text("x")
    reads = call("read_file", file_path="a.txt")
    cli.plays(calls(reads, call("bash", command="touch b")), says("ok"))
    listed = cli.run("--list-tools", "--profile", "seed").text.splitlines()
    assert [line.split()[0] for line in listed[:-1]] == [
        "read_file", "write_file", "edit_file", "bash", "compact",
    ]  # fmt: skip
    assert listed[-1].startswith("5 tools, ")
    cli.run("-p", "--profile", "seed", "--disallowedTools", "Bash", "go")
    assert [(end.name, end.status) for end in of(cli, ToolEnded)] == [
        ("Read", "ok"), ("Bash", "denied"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ("*** Update File: a.txt\n*** Move to: secret/b.txt", "denied"),
        ("*** Delete File: secret/a.txt", "denied"),
        ("*** Update File: a.txt\n-x\n+y\n*** Add File: secret/c.txt\n+x", "denied"),
        ("*** Update File: a.txt\n-x\n+y\n*** Add File: .claude/settings.json\n+x", "denied"),
        ("*** Update File: a.txt\n-x\n+y\n*** Add File: ../c.txt\n+x", "denied"),
        ("*** Update File: a.txt\n-x\n+y\n*** Add File: link/c.txt\n+x", "denied"),
        ("*** Update File: a.txt\n*** Move to: b.txt\n-x\n+y", "ok"),
    ],
)
def test_every_path_of_a_patch_is_judged(cli: CliHarness, lines: str, status: str) -> None:
    (cli.project / "secret").mkdir()
    (cli.project / "link").symlink_to("secret")
    for name in ("a.txt", "secret/a.txt"):
        (cli.project / name).write_text("x\n")
    patch = call("apply_patch", input=f"*** Begin Patch\n{lines}\n*** End Patch")
    read = calls(call("Read", file_path="a.txt"), call("Read", file_path="secret/a.txt"))
    cli.plays(read, calls(patch), says("ok"))

    def files() -> dict[str, str]:
        return {str(path): path.read_text() for path in cli.project.rglob("*.txt")}

    before = files()
    cli.run("-p", "go", "--permission-mode", "acceptEdits", "--disallowedTools", "Edit(secret/**)")
    assert of(cli, ToolEnded)[-1].status == status
    assert (files() == before) == (status == "denied")

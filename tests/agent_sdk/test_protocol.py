"""The control protocol line by line: what a program may do wrong on stdin, and how the session
ends.
"""

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from lab.support.forked import ForkedProcess
from tests.piped_process import PipedProcess, piped
from tests.tables import cases, record, row

from .harness import CLI, NEEDS_CLI, SdkSetup, call, say, sdk_setup

pytestmark = NEEDS_CLI

INITIALIZE = record(
    type="control_request", request_id="r0", request={"subtype": "initialize", "hooks": None}
)
STREAMS = ("--output-format", "stream-json", "--input-format", "stream-json", "--verbose")
WRITE = call("Write", file_path="a.txt", content="a\n")


def user(text: str) -> dict[str, Any]:
    return {
        "type": "user",
        "message": {"role": "user", "content": text},
        "parent_tool_use_id": None,
        "session_id": "",
    }


class Host:
    """A program that runs longrein: writes lines, reads lines."""

    def __init__(self, process: PipedProcess) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def write(self, *lines: dict[str, Any] | bytes) -> None:
        for line in lines:
            self.process.stdin.write(
                line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n"
            )

    async def until(self, kind: str, subtype: str = "") -> dict[str, Any]:
        while True:
            line = json.loads(await self.process.stdout.readline())
            self.lines.append(line)
            if line["type"] == kind and subtype in row(
                "", line.get("subtype"), line.get("request", {}).get("subtype")
            ):
                return dict(line)

    async def until_any(self, *kinds: str) -> dict[str, Any]:
        """Read up to a line of one of these types."""
        while True:
            self.lines.append(json.loads(await self.process.stdout.readline()))
            if self.lines[-1]["type"] in kinds:
                return self.lines[-1]

    async def end(self) -> tuple[int, list[dict[str, Any]], list[str]]:
        """Close stdin and read to the end: exit code, all lines, stderr."""
        self.process.stdin.close()
        out, err = await asyncio.gather(self.process.stdout.read(), self.process.stderr.read())
        self.lines += [json.loads(line) for line in out.splitlines()]
        return await self.process.wait(), self.lines, err.decode().splitlines()


async def started(
    setup: SdkSetup, *flags: str, env: Mapping[str, str] = MappingProxyType({})
) -> Host:
    """Start longrein as a fork that finds the SDK of MCP imported, where it is installed."""
    process = ForkedProcess(
        "longrein",
        [str(CLI), *STREAMS, *flags],
        extensions=("mcp",) if find_spec("mcp") else (),
        cwd=setup.tree,
        env=setup.env | {"PATH": "/usr/bin:/bin"} | dict(env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        bufsize=0,
    )
    return Host(await piped(process))


ASKS = ("--permission-prompt-tool", "stdio")
NOBODY = "the program that runs longrein has closed stdin, so nobody can be asked"


def kinds(lines: Sequence[dict[str, Any]]) -> list[str]:
    return [str(line.get("subtype") or line["type"]) for line in lines]


async def test_A6_4_the_answer_to_initialize_comes_first(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("4")]) as setup:
        host = await started(setup)
        host.write(INITIALIZE, user("2 + 2?"))
        code, lines, err = await host.end()
        assert (code, kinds(lines), err) == row(
            0, ["control_response", "init", "assistant", "success"], []
        )
        assert lines[0]["response"]["subtype"] == "success"


async def test_A6_4_a_start_that_fails_is_an_error_response(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("unused")], unused=1) as setup:
        host = await started(setup, "--model", "nobody/knows")
        host.write(INITIALIZE)
        code, lines, err = await host.end()
        assert code == 1
        assert [line["response"]["subtype"] for line in lines] == ["error"]
        assert err == [f"longrein: {lines[0]['response']['error']}"]
        assert "Unknown provider 'nobody'" in err[0]


@cases(
    "request_ says",
    ({"systemPrompt": 1}, "initialize: systemPrompt must be a text"),
    ({"agents": []}, ""),
    ({"agents": [1]}, "initialize: agents must be an object of name -> fields"),
    ({"jsonSchema": {"type": "array"}}, "--json-schema must describe an object"),
    (
        {"jsonSchema": {"type": "object", "properties": {"a": {"type": "colour"}}}},
        "--json-schema is no JSON schema",
    ),
)
async def test_A6_4_wrong_initialize(request_: dict[str, Any], says: str, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("4")], unused=1) as setup:
        host = await started(setup)
        host.write(INITIALIZE | {"request": {"subtype": "initialize"} | request_})
        _, lines, _ = await host.end()
        assert lines[0]["response"].get("error", "").startswith(says)


async def test_A6_7_stdin_closed_at_a_question_denies(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [WRITE, say("I may not.")]) as setup:
        host = await started(setup, *ASKS)
        host.write(INITIALIZE, user("write"))
        await host.until("control_request", "can_use_tool")
        host.process.stdin.close()
        code, lines, _ = await host.end()
        result = lines[-1]
        assert (code, result["is_error"], result["result"]) == (3, True, "I may not.")
        assert result["subtype"] == "error_during_execution"
        assert result["errors"][0].startswith("blocked: Write needs permission (file_path: a.txt)")
        assert NOBODY in setup.sent()
        assert not list(setup.tree.iterdir())


@cases(
    "response told",
    ({}, "the answer to can_use_tool has no behavior"),
    ({"behavior": "perhaps"}, "the answer to can_use_tool has no behavior"),
    ({"behavior": "allow", "updatedInput": "all"}, "has an updatedInput that is no object"),
    ({"behavior": "deny"}, "the user denied this call"),
    ([1], "the answer to can_use_tool has no behavior"),
)
async def test_answer_that_cannot_be_read_denies(response: Any, told: str, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        host = await started(setup, *ASKS)
        host.write(INITIALIZE, user("write"))
        asked = await host.until("control_request", "can_use_tool")
        answer = {"subtype": "success", "request_id": asked["request_id"], "response": response}
        host.write({"type": "control_response", "response": answer})
        # twice: the second answers nothing
        host.write({"type": "control_response", "response": answer})
        await host.until("result")
        await host.end()
        assert told in setup.sent()
        assert not list(setup.tree.iterdir())


async def test_garbage_on_stdin_is_told_and_passed_over(tmp_path: Path) -> None:
    garbage = [
        b"}{\n",
        b"\xff\xfe\n",
        b"[]\n",
        b'{"type":"control_response"}\n',
        b'{"type":"control_request"}\n',
        b"\n",
    ]
    async with sdk_setup(tmp_path, [say("4")]) as setup:
        host = await started(setup)
        host.write(INITIALIZE, *garbage, user("2 + 2?"))
        code, lines, err = await host.end()
        assert (code, len(err)) == (2, 4), "a line that cannot be read makes the exit code 2"
        assert [line["result"] for line in lines if line["type"] == "result"] == ["4"]
        assert [
            line["response"]["subtype"] for line in lines if line["type"] == "control_response"
        ] == ["success", "error"]


HALF = json.dumps(INITIALIZE).encode()[:40]
LATIN = b'{"type":"user","message":{"role":"user","content":"caf\xe9?"}}\n'
LARGE = json.dumps(user("x" * 50_000_000)).encode() + b"\n"


@pytest.mark.parametrize(
    ("lines", "code", "results", "told"),
    [
        ([], 2, [], "stdin held no user message"),
        ([HALF], 2, [], "is no JSON"),
        ([INITIALIZE], 0, [], ""),
        ([INITIALIZE, HALF], 2, [], "is no JSON"),
        ([INITIALIZE, user("2 + 2?"), HALF], 2, ["4"], "is no JSON"),
        ([INITIALIZE, json.dumps(user("2 + 2?")).encode()], 0, ["4"], ""),
        ([INITIALIZE, LATIN, user("2 + 2?")], 2, ["4"], "is no JSON"),
        ([LARGE], 2, [], "longer than 10 MB"),
        ([INITIALIZE, LARGE, user("2 + 2?")], 2, ["4"], "longer than 10 MB"),
    ],
    ids="nothing half initialize then-half message-half no-newline latin-1 large-first large".split(),  # noqa: E501, SIM905
)
async def test_stdin_that_ends_early_or_holds_what_nobody_can_read(
    lines: list[Any], code: int, results: list[str], told: str, tmp_path: Path
) -> None:
    async with sdk_setup(tmp_path, [say("4")], unused=1 - len(results)) as setup:
        host = await started(setup)
        host.write(*lines)
        ended, out, err = await host.end()
        assert (ended, [line["result"] for line in out if line.get("subtype") == "success"]) == (
            code,
            results,
        ), err
        assert told in "\n".join(err)
        assert len(err) == bool(told)
        assert "Traceback" not in "".join(err)


async def test_A18_12_sigterm_in_a_turn_is_143_and_the_session_goes_on(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [WRITE, say("Done.")]) as setup:
        host = await started(setup, *ASKS)
        host.write(INITIALIZE, user("write"))
        await host.until("control_request", "can_use_tool")
        host.process.send_signal(signal.SIGTERM)
        result = await host.until("result")
        code, lines, _ = await host.end()
        assert (code, result["subtype"]) == (143, "error_during_execution")
        assert any(line["type"] == "control_cancel_request" for line in lines)
        again = await started(setup, "--continue")
        again.write(INITIALIZE, user("go on"))
        code, lines, _ = await again.end()
        assert (code, lines[-1]["result"]) == (0, "Done.")
        assert "write" in setup.sent()


def catches(process: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{process}/status").read_text()
    return bool(int(status.partition("SigCgt:")[2].split()[0], 16) >> (number - 1) & 1)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="waits for the signal handlers by /proc"
)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_before_the_first_line(number: signal.Signals, tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [say("unused")], unused=1) as setup:
        host = await started(setup)
        while not catches(host.process.pid, signal.SIGHUP):  # noqa: ASYNC110 - the last handler that it sets
            await asyncio.sleep(0.02)
        host.process.send_signal(number)
        code, lines, err = await host.end()
        assert (code, lines, err) == (128 + number, [], [])


async def test_a_program_that_dies_in_a_turn_loses_nothing(tmp_path: Path) -> None:
    async with sdk_setup(
        tmp_path, [WRITE, say("I may not."), say("Here again.")], unused=None
    ) as setup:
        await asyncio.to_thread(die_in_a_turn, setup)
        again = await started(setup, "--continue")
        again.write(INITIALIZE, user("go on"))
        code, lines, _ = await again.end()
        assert (code, lines[-1]["type"], lines[-1]["is_error"]) == (0, "result", False)
        assert "write" in setup.sent()


def die_in_a_turn(setup: SdkSetup) -> None:
    """Leave while a question is open: both pipes are closed at once."""
    with subprocess.Popen(
        [str(CLI), *STREAMS, *ASKS],
        cwd=setup.tree,
        env=setup.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdin
        assert process.stdout
        process.stdin.writelines(
            json.dumps(line).encode() + b"\n" for line in (INITIALIZE, user("write"))
        )
        process.stdin.flush()
        while b"can_use_tool" not in process.stdout.readline():
            pass
        process.stdout.close()


async def test_the_state_is_reported_to_a_program_that_wants_it(tmp_path: Path) -> None:
    async with sdk_setup(tmp_path, [WRITE, say("ok")]) as setup:
        host = await started(setup, *ASKS, env={"CLAUDE_CODE_SDK_READS_SESSION_STATE": "1"})
        host.write(INITIALIZE, user("write"))
        asked = await host.until("control_request", "can_use_tool")
        allow = record(
            subtype="success", request_id=asked["request_id"], response={"behavior": "allow"}
        )
        host.write({"type": "control_response", "response": allow})
        await host.until("result")
        _, lines, _ = await host.end()
        states = [line["state"] for line in lines if line.get("subtype") == "session_state_changed"]
        assert states == ["running", "requires_action", "running", "idle"]

"""The examples that come with `claude-agent-sdk`, run unchanged with longrein as the program.

They are in the source distribution, which `make library` gets; `CLAUDE_AGENT_SDK_EXAMPLES` names
another folder.
"""

import asyncio
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from .harness import CLI, EXAMPLES, SdkSetup, call, say, sdk_setup

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(find_spec("claude_agent_sdk") is None, reason="the SDK drives longrein"),
    pytest.mark.skipif(not CLI.exists(), reason="longrein is not installed as a command"),
    pytest.mark.skipif(not EXAMPLES.is_dir(), reason="`make library` gets the examples"),
]

HOOKS = [
    *(
        call("Bash", command="./foo.sh --help"),
        say("no"),
        call("Bash", command="echo 'Hello'"),
        say("yes"),
    ),
    *(say("pink"), call("Bash", command="ls /nonexistent_directory"), say("it failed")),
    *(call("Write", file_path="important_config.txt", content="x"), say("no")),
    *(
        call("Write", file_path="regular_file.txt", content="x"),
        say("ok"),
        call("Bash", command="echo CRITICAL"),
    ),
]
CASES: list[tuple[str, list[dict[str, Any]], str]] = [
    ("plugin_example.py", [say("hi")], "plugin"),
    ("agents.py", [say("reviewed")] * 3, "Claude: reviewed"),
    ("max_budget_usd.py", [say("4")] * 2, "Status: error_max_budget_usd"),
    (
        "tool_permission_callback.py",
        [
            call("Bash", command="ls"),
            call("Write", file_path="hello.py", content="print(1)\n"),
            say("done"),
        ],
        "Redirecting write from hello.py to ./safe_output/hello.py",
    ),
    ("hooks.py all", HOOKS, "Critical error detected in tool output - execution halted for safety"),
    ("streaming_mode.py all", [say("Paris")] * 24, "Interrupt sent successfully"),
]
ENDS_WITH_ITS_ERROR = "max_budget_usd.py"
"""The SDK raises `ResultError` after the result of a run whose limit was reached."""
ANY_NUMBER = "streaming_mode.py all"


@pytest.mark.parametrize(("words", "turns", "printed"), CASES, ids=[name for name, _, _ in CASES])
async def test_an_example_of_the_sdk(
    words: str, turns: list[dict[str, Any]], printed: str, tmp_path: Path
) -> None:
    async with sdk_setup(tmp_path, turns, unused=None if words == ANY_NUMBER else 0) as setup:
        code, text = await run_example(setup, words)
    assert printed in text
    assert code == 0 or (words == ENDS_WITH_ITS_ERROR and "ResultError" in text), text[-2000:]


async def run_example(setup: SdkSetup, words: str) -> tuple[int | None, str]:
    """Run an example: exit code, and everything that it printed."""
    name, *more = words.split()
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            str(Path(__file__).with_name("run_example.py")),
            str(CLI),
            str(EXAMPLES / name),
            *more,
        ),
        cwd=setup.tree,
        env=setup.env | {"PATH": os.environ["PATH"]},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    out, _ = await process.communicate()
    return process.returncode, out.decode()

"""Agents that others wrote, called by the tests: functions on PyPI and npm, and the commands of
Codex and opencode.

`make clients` installs them into `.venv`. None reaches a network: their proxy is a closed port.
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.timeouts import HANG_S

VENV = Path(sys.prefix)
PACKAGES = VENV / "node/node_modules"
CODEX, OPENCODE = PACKAGES / ".bin/codex", PACKAGES / ".bin/opencode"
HERE = Path(__file__).parent


def needs(*paths: Path | str) -> pytest.MarkDecorator:
    """Skip without the agents of others in `.venv`."""
    missing = [str(path) for path in paths if not (VENV / path).exists()]
    return pytest.mark.skipif(
        bool(missing), reason="needs agents of others, which `make clients` installs"
    )


KIMI, AGENTS = Path("kimi/bin/python"), Path("agents/bin/python")
PI, GEMINI = (
    PACKAGES / name for name in ("@earendil-works/pi-coding-agent", "@google/gemini-cli-core")
)


def environment(home: Path) -> dict[str, str]:
    """Variables of a process of others: a home of its own and no network."""
    return {
        "PATH": f"{PACKAGES / '.bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "OPENHANDS_SUPPRESS_BANNER": "1",
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    }


class AgentProcess:
    """A process that runs functions of agents: a line with a call in, a line with its result
    out.
    """

    def __init__(self, *command: str) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(Path("/nonexistent")),
        )

    def call(self, function: str, *arguments: Any) -> Any:
        """Call a function; raises `RuntimeError` with what the agent says."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, arguments]) + "\n")
        self._process.stdin.flush()
        result, error = json.loads(self._process.stdout.readline())
        if error:
            raise RuntimeError(error)
        return result


@cache
def _process(kind: str) -> AgentProcess:
    if kind == "node":
        return AgentProcess("node", str(HERE / "node_agents.mjs"), str(PACKAGES))
    return AgentProcess(str(VENV / kind / "bin/python"), str(HERE / "python_agents.py"))


def ask(function: str, *arguments: Any) -> Any:
    """Call a function of `node_agents.mjs` or `python_agents.py`; raises `RuntimeError` with
    what the agent says.
    """
    kind = {"pi": "node", "gemini": "node", "kimi": "kimi"}.get(
        function.partition("_")[0], "agents"
    )
    return _process(kind).call(function, *arguments)


def codex_request(cwd: Path, home: Path, *options: str) -> list[str]:
    """Return the texts that Codex sends to its model in a folder that is trusted."""
    trust = ", ".join(
        f'"{folder}" = {{ trust_level = "trusted" }}' for folder in (cwd, *cwd.parents)
    )
    (home / ".codex").mkdir(exist_ok=True)
    ran = subprocess.run(
        [CODEX, "debug", "prompt-input", "-c", f"projects={{ {trust} }}", *options, "go"],
        cwd=cwd,
        env=environment(home) | {"CODEX_HOME": str(home / ".codex")},
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    return [
        part.get("text", "") for item in json.loads(ran.stdout) for part in item.get("content", ())
    ]

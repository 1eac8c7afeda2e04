"""What other agents do where longrein makes a promise: `python -m lab.beside` prints
the table of the README.

Each agent runs headless in an empty folder, with an empty home and default settings apart from the
model, which is the rule-enforcing provider on loopback; its proxy is a closed port. `make clients`
installs the agents; those that are missing are left out. Measured are:

- the first request: its bytes, and the seconds from exec to its arrival (median of five);
- a kill: the process of the agent is killed with `kill -9` while a command runs, and the session is
  continued. What is the model told of the command, and does it still run?
- the same for a command in the background, of the agents that have such commands.
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import psutil

from longrein.testing.loopback import Call, Received, Turn
from tests.e2e.harness import Provider
from tests.standards.peers import CODEX, OPENCODE, PACKAGES, environment
from tests.timeouts import HANG_S, wait_until

PI = PACKAGES / ".bin/pi"
PROMPT, GO_ON = "Start the long check of this shop.", "Go on."
MARK = "check-is-held"
SETTLED_S = 1.0
"""Time after a request in which an agent writes down what it has sent: it may do so meanwhile."""
COMMAND = f"echo checked; touch begun; while [ ! -e {MARK} ]; do sleep 0.1; done"
STARTS = 5


class Agent(NamedTuple):
    """How an agent is set up and called."""

    name: str
    program: Path
    set_up: Callable[[Path, str], None]
    """Takes its home and the address of the provider."""
    first: Sequence[str]
    """Words of a run that the prompt follows."""
    again: Sequence[str]
    """Words of a run that goes on with the session."""
    call: Call
    background: Call | None
    """The same in the background; None: there is nothing like it."""


def set_up_longrein(home: Path, url: str) -> None:
    folder = home / ".config/longrein"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(
        f'model = "served/one"\n[providers.served]\nwire = "openai-chat"\nbase_url = "{url}/v1"\n'
        '[models."served/one"]\nwindow = 200000\nmax_output = 8192\n'
    )


def set_up_codex(home: Path, url: str) -> None:
    (home / ".codex").mkdir()
    (home / ".codex/config.toml").write_text(
        'model = "gpt-5"\nmodel_provider = "served"\n[model_providers.served]\nname = "served"\n'
        f'base_url = "{url}/v1"\nwire_api = "responses"\n'
    )


def set_up_pi(home: Path, url: str) -> None:
    (home / ".pi/agent").mkdir(parents=True)
    provider = {
        "baseUrl": f"{url}/v1",
        "api": "openai-completions",
        "apiKey": "none",
        "models": [{"id": "one"}],
    }
    (home / ".pi/agent/models.json").write_text(json.dumps({"providers": {"served": provider}}))


def set_up_opencode(
    home: Path, url: str, model: str = "one", window: int = 200_000, output: int = 8_192
) -> None:
    folder = home / ".config/opencode"
    folder.mkdir(parents=True)
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{url}/v1", "apiKey": "none"},
        "models": {model: {"limit": {"context": window, "output": output}}},
    }
    settings = {"provider": {"served": provider}, "autoupdate": False, "share": "disabled"}
    (folder / "opencode.json").write_text(json.dumps(settings))


LONGREIN = Path(sys.executable).parent / "longrein"
AGENTS = (
    Agent(
        "longrein",
        LONGREIN,
        set_up_longrein,
        ("--allowedTools", "Bash", "-p"),
        ("--allowedTools", "Bash", "-c", "-p"),
        Call("Bash", {"command": COMMAND}),
        Call("Bash", {"command": COMMAND, "run_in_background": True}),
    ),
    Agent(
        "Codex 0.169",
        CODEX,
        set_up_codex,
        ("exec", "--skip-git-repo-check", "-s", "danger-full-access"),
        ("exec", "resume", "--last", "--skip-git-repo-check"),
        Call("exec_command", {"cmd": COMMAND, "yield_time_ms": 30_000}),
        Call("exec_command", {"cmd": COMMAND, "yield_time_ms": 250}),
    ),
    Agent(
        "pi 0.74",
        PI,
        set_up_pi,
        ("--provider", "served", "--model", "one", "-p"),
        ("--provider", "served", "--model", "one", "-c", "-p"),
        Call("bash", {"command": COMMAND}),
        None,
    ),
    Agent(
        "opencode 1.18",
        OPENCODE,
        set_up_opencode,
        ("run", "-m", "served/one", "--auto"),
        ("run", "-m", "served/one", "--auto", "-c"),
        Call("bash", {"command": COMMAND, "description": "check the shop"}),
        None,
    ),
)


class Place:
    """An empty home and an empty folder for one agent."""

    def __init__(self, folder: Path, agent: Agent, url: str) -> None:
        self.agent, self.home, self.project = agent, folder / "home", folder / "shop"
        self.home.mkdir()
        self.project.mkdir()
        agent.set_up(self.home, url)

    def start(self, words: Sequence[str], prompt: str) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [str(self.agent.program), *words, prompt],
            cwd=self.project,
            env=environment(self.home)
            | {"NO_PROXY": "127.0.0.1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )


class AfterKill(NamedTuple):
    """What follows a kill in the middle of a command."""

    told: str
    """What the next request holds about the command; empty: nothing."""
    runs: bool
    """Whether the command still ran when the continued session had ended."""
    prompt: bool
    """Whether the next request holds the first prompt."""


def is_main(request: Received) -> bool:
    """Whether a request is one of the conversation, and not for a title."""
    return bool(request.json.get("tools"))


def still_runs(mark: str) -> bool:
    """Whether a shell of the command with `mark` is there."""
    found = psutil.process_iter(["cmdline"])
    return any(mark in " ".join(process.info["cmdline"] or ()) for process in found)


def marked(call: Call, mark: str) -> Call:
    """Return a call whose command waits for a file `mark`, which no other command has."""
    arguments = {
        name: value.replace(MARK, mark) if isinstance(value, str) else value
        for name, value in call.arguments.items()
    }
    return msgspec.structs.replace(call, arguments=arguments)


def told_of(request: Received) -> str:
    """Return the newest text of a request about a call, whatever the wire calls it."""
    body = request.json
    results = [
        item.get("content") or item.get("output")
        for item in body.get("messages") or body["input"]
        if item.get("role") == "tool" or item.get("type") == "function_call_output"
    ]
    return str(results[-1]) if results else ""


def after_kill(agent: Agent, call: Call, *held: Turn) -> AfterKill:
    """Kill an agent while the command of `call` runs, continue, and look at the next request.

    `held`: turns that never end, which the agent asks for before it is killed.
    """
    mark = f"{MARK}-{uuid.uuid4().hex}"
    turns = iter((Turn(text="I start it.", calls=(marked(call, mark),)), *held))

    def script(request: Received) -> Turn:
        return next(turns, Turn(text="Done.")) if is_main(request) else Turn(text="A check")

    with (
        tempfile.TemporaryDirectory() as name,
        Provider(script=script, lenient=True) as provider,
    ):
        place = Place(Path(name), agent, provider.url)
        try:
            killed = place.start(agent.first, PROMPT)
            wait_until((place.project / "begun").exists)
            wait_until(lambda: len([*filter(is_main, provider.requests)]) > len(held))
            before = len(provider.requests)
            time.sleep(SETTLED_S if held else 0)
            killed.kill()
            killed.wait(HANG_S)
            place.start(agent.again, GO_ON).wait(HANG_S)
            runs = still_runs(mark)
        finally:
            (place.project / mark).touch()
            wait_until(lambda: not still_runs(mark))
        request = next(filter(is_main, provider.requests[before:]))
    return AfterKill(told_of(request), runs, PROMPT in request.body.decode())


def first_request(agent: Agent, starts: int = STARTS) -> tuple[int, float]:
    """Return the bytes of the first request, and the median of the seconds until it arrives."""
    seconds: list[float] = []
    with Provider(script=lambda _: Turn(text="Hello."), lenient=True) as provider:
        for _ in range(starts):
            with tempfile.TemporaryDirectory() as name:
                place, before = Place(Path(name), agent, provider.url), len(provider.requests)
                began = time.monotonic()
                run = place.start(agent.first, "Say hello.")
                wait_until(lambda before=before: any(map(is_main, provider.requests[before:])))
                seconds.append(time.monotonic() - began)
                run.wait(HANG_S)
        first = next(filter(is_main, provider.requests))
    return first.size_bytes, statistics.median(seconds)


ROWS = (
    "the first request",
    "from start to that request",
    "`kill -9` in the middle of a command, then continue: the model reads",
    "… and the command",
    "`kill -9` while a command runs in the background, then continue: the command",
    "… and the model reads",
)


def cells(agent: Agent, starts: int = STARTS) -> tuple[str, ...]:
    """Measure an agent; return its cells of the table, in the order of `ROWS`."""
    size, seconds = first_request(agent, starts)
    cut = after_kill(agent, agent.call)
    said = cut.told.partition(":")[0].strip("[]")
    assert cut.prompt, "the conversation was lost"
    head = (
        f"{size / 1000:.0f} kB",
        f"{seconds:.1f} s",
        f'"{said}"',
        "keeps running, unsupervised" if cut.runs else "is ended",
    )
    if agent.background is None:
        return (*head, "there are none", "")
    apart = after_kill(agent, agent.background, Turn(text="I wait.", delay_s=600))
    told = "that it runs" if re.search("[Rr]unning|[Ss]tarted", apart.told) else "that it ended"
    return (*head, "runs on, looked after" if apart.runs else "is ended", told)


def table(agents: Sequence[Agent], starts: int = STARTS) -> str:
    """Measure agents; return the table in Markdown."""
    columns = [cells(agent, starts) for agent in agents]
    rows = [
        ("", *(agent.name for agent in agents)),
        ("---",) * (1 + len(agents)),
        *((name, *(column[n] for column in columns)) for n, name in enumerate(ROWS)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def main() -> int:
    print(table([agent for agent in AGENTS if agent.program.exists()]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())

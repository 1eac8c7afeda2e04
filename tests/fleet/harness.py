"""Harness of the fleet's tests: files of tasks, and fleets run by the installed command."""

import json
import subprocess
from pathlib import Path
from typing import Any

from longrein_fleet.fleet_log import read_fleet
from longrein_fleet.fleet_state import AnyEvent, FleetState, decode_events
from tests.e2e.harness import CliHarness, RunResult, Turn, call, calls, says

PRICE = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")


class FleetHarness:
    """A folder with tasks, beside the project of a `CliHarness`."""

    def __init__(self, cli: CliHarness) -> None:
        self.cli = cli
        self.folder = cli.folder / "work"
        self.plain = self.folder / "plain"
        self.plain.mkdir(parents=True)
        (self.plain / "a.txt").write_text("old\n")
        cli.without_sandbox()
        cli.settings('[permissions]\nallow = ["Bash"]\n')
        self.plays()

    def plays(self, **branches: list[Turn]) -> None:
        """Set the model's answers to a first message that holds the word."""
        branches = {"hello": [says("Hello.")], "write": [writes(), says("Written.")], **branches}
        made = [{"when": word, "turns": turns} for word, turns in branches.items()]
        self.cli.plays(price=PRICE, branches=made)

    def repository(self, name: str = "repo") -> Path:
        """Make a git repository of two commits; the file says which."""
        path = self.folder / name
        path.mkdir()
        self.git(path, "init", "-q")
        for text in ("first\n", "second\n"):
            (path / "a.txt").write_text(text)
            self.git(path, "add", "-A")
            self.git(path, "commit", "-q", "-m", text.strip())
        return path

    def git(self, path: Path, *words: str) -> str:
        """Run git in a repository."""
        done = subprocess.run(
            [*GIT, *words], cwd=path, check=True, capture_output=True, text=True, env=self.cli.env
        )
        return done.stdout.strip()

    def tasks(self, *tasks: dict[str, Any]) -> str:
        """Write the file of tasks; a prompt of `hello` and the plain folder where none is given."""
        path = self.folder / "tasks.jsonl"
        usual = {"prompt": "hello", "folder": "plain"}
        path.write_text("".join(json.dumps(usual | task) + "\n" for task in tasks))
        return str(path)

    def fleet(self, *words: str) -> RunResult:
        """Run `longrein fleet WORDS`."""
        return self.cli.run("fleet", *words)

    def results(self, name: str = "tasks", store: str = "") -> dict[str, dict[str, Any]]:
        """Result of each task. `store`: address of its store."""
        words = ("--store", store) if store else ()
        lines = self.fleet("results", name, *words).out.splitlines()
        return {one["id"]: one for one in map(json.loads, lines)}

    def causes(self, name: str = "tasks") -> dict[str, str]:
        """Cause of the end of each task."""
        return {task: one["cause"] for task, one in self.results(name).items()}

    def state(self, name: str = "tasks") -> FleetState:
        """The state, from the log."""
        return read_fleet(str(self.cli.state), name)

    def events(self, name: str = "tasks") -> list[AnyEvent]:
        """The log."""
        data = (self.cli.state / "fleets" / name / "events.jsonl").read_bytes()
        return decode_events(data)[0]


def writes(text: str = "new\n") -> Turn:
    """A reply that writes a file."""
    return calls(call("Write", file_path="b.txt", content=text))

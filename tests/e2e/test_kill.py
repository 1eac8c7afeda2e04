"""`kill -9` at any instant, then resume. R030: a session is killed at random instants until it is
done, then judged.

`make load` runs more seeds than the suite.
"""

import json
import random
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from longrein.store import latest_session
from longrein_context.events import (
    Entry,
    Replied,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    decode_entry,
    entry_uuid,
    text_of,
)
from tests.seeds import seeds

from .harness import CliHarness, bash, call, call_ids, calls, says

PROMPT = "do all twelve steps"
DONE = "all twelve steps are done"
WORDS = (
    "-p",
    "--output-format",
    "stream-json",
    "--include-partial-messages",
    "--dangerously-skip-permissions",
)
FILES = ("one.txt", "two.txt", "three.txt")
STEP_S = 0.02
"""Each reply takes about this long, so that instants fall into all parts of the walk."""
KILLS_MAX = 3


def act(number: int, before: str = "") -> dict[str, Any]:
    """A call that leaves a trace once for each time it runs."""
    return bash(f"{before}echo act-{number} >> acts.log")


def edit(name: str) -> dict[str, Any]:
    return call("Edit", file_path=name, old_string="old", new_string="new")


def twelve_steps() -> list[dict[str, Any]]:
    """A dozen steps: reads, edits, commands that append, side by side and one after the other."""
    steps = [
        calls(
            *[call("Read", file_path=name) for name in FILES],
            text="I look at all three files at once.",
        ),
        calls(act(1)),
        calls(edit("one.txt"), text="Now the first file."),
        calls(act(2, "sleep 0.05; ")),
        calls(act(3), act(4), act(5)),
        calls(bash("sleep 0.05"), bash("sleep 0.03"), bash("cat one.txt"), text="I wait and look."),
        calls(bash("sleep 77 & echo act-6 >> acts.log")),
        calls(edit("two.txt"), edit("three.txt")),
        calls(call("Write", file_path="new.txt", content="made\n" * 2_000), piece_chars=1_000),
        calls(bash("seq 1 30000"), text="A long output."),
        calls(act(7, "sleep 0.03; ")),
        calls(call("Read", file_path="two.txt"), call("Grep", pattern="new")),
        says(DONE),
    ]
    return [{"pace_s": STEP_S / 4, "piece_chars": 12, **step} for step in steps]


class Campaign:
    """One session in a folder of its own."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.cli, self.chance = CliHarness(folder), random.Random(seed)
        self.cli.plays(*twelve_steps())
        for name in FILES:
            (self.cli.project / name).write_text("old words\n")
        self.acked: list[dict[str, Any]] = []
        """Lines of the stream that a reader had before the kill, entries only."""
        self.log: list[Entry] = []
        """The log as it was after the last kill."""
        self.kills: list[str] = []

    def run(self) -> None:
        """Kill, go on, kill, go on … until it is done; then judge."""
        for _ in range(self.chance.randint(1, KILLS_MAX)):
            if self._leg(self.chance.uniform(0.05, 0.75)):
                break
        else:
            assert self._leg(None), "the last leg was not killed and did not end"
        self._judge()

    def _leg(self, kill_after_s: float | None) -> bool:
        """One start, killed after a while; whether the turn came to its end before."""
        words = self._words()
        going = self.cli.start(*words)
        if kill_after_s is not None:
            time.sleep(kill_after_s)
            going.send(signal.SIGKILL)
        ran = going.end()
        done = ran.code != -signal.SIGKILL
        assert not done or ran.code == 0, (words, ran.told()[2], ran.out[-300:])
        whole = ran.out if ran.out.endswith(b"\n") else ran.out[: ran.out.rfind(b"\n") + 1]
        self.acked += [
            line
            for line in map(json.loads, whole.splitlines())
            if line["type"] in ("assistant", "user")
        ]
        log = self.cli.entries(self.session) if self.session else []
        assert log[: len(self.log)] == self.log, (
            "an entry that had been committed is gone or has changed"
        )
        self.log = log
        self.kills.append(f"{kill_after_s} at entry {len(log)}")
        return done or bool(
            log and isinstance(log[-1].event, TurnEnded)
        )  # killed between its last entry and its exit

    @property
    def session(self) -> str:
        """Id of the session that `-c` would take; '' before the first entry is on disk."""
        return latest_session(str(self.cli.state), str(self.cli.project))

    def _words(self) -> tuple[str, ...]:
        """How a person goes on: with -c; with the prompt where the killed start had not even
        taken that in.
        """
        if not self.session:
            return (*WORDS, PROMPT)
        if any(isinstance(entry.event, UserSpoke) for entry in self.log) or self._waits():
            return (*WORDS, "-c")
        return (*WORDS, "-c", PROMPT)

    def _waits(self) -> bool:
        """Whether the prompt is in the inbox, on disk, and not yet in the log."""
        with sqlite3.connect(
            f"file:{self.cli.session_folder(self.session)}/log.sqlite?mode=ro", uri=True
        ) as database:
            return bool(database.execute("SELECT count(*) FROM inbox").fetchone()[0])

    # --- The judgement ----------------------------------------------------------------------------

    def _judge(self) -> None:
        events = [entry.event for entry in self.log]
        assert self.cli.said(self.session)[-1] == DONE
        assert [text_of(e.parts) for e in events if isinstance(e, UserSpoke)] == [PROMPT]
        self._judge_acked()
        ids = call_ids(self.log)
        assert len(ids) == len(set(ids))
        ended = [e.call for e in events if isinstance(e, ToolEnded)]
        assert sorted(ended) == sorted(ids), "each call has exactly one result"
        started = [e.call for e in events if isinstance(e, ToolStarted)]
        assert len(started) == len(set(started)), "law 8: a call was started twice"
        self._judge_world()
        assert self.cli.wait_survivors() == []
        assert list(leftovers(self.cli)) == []
        exported = self.cli.run("export", self.session)
        assert [decode_entry(line) for line in exported.out.splitlines()] == self.log

    def _judge_acked(self) -> None:
        """Law 7d: what a reader was shown is in the log, once, at its seq."""
        by_id = {entry_uuid(self.session, entry.seq): entry.event for entry in self.log}
        for line in self.acked:
            event = by_id.get(line["uuid"])
            if line["type"] == "assistant":
                assert isinstance(event, Replied), "a reply that was shown is lost"
            elif not line.get("isSynthetic"):
                assert isinstance(event, ToolEnded), "a result that was shown is lost"
                assert event.call == line["message"]["content"][0]["tool_use_id"]
        shown = [line["uuid"] for line in self.acked]
        assert len(shown) == len(set(shown)), "an entry was shown twice"

    def _judge_world(self) -> None:
        """Acts happened at most once, and those whose result says ok exactly once; files are old
        or new (P10).
        """
        path = self.cli.project / "acts.log"
        acts = path.read_text().split() if path.exists() else []
        assert len(acts) == len(set(acts)), f"law 8: {acts}"
        statuses = {
            e.event.call: e.event.status for e in self.log if isinstance(e.event, ToolEnded)
        }
        for entry in self.log:
            for part in (
                getattr(entry.event, "parts", ()) if isinstance(entry.event, Replied) else ()
            ):
                command = str((getattr(part, "arguments", None) or {}).get("command", ""))
                if "act-" in command:
                    trace = "act-" + command.partition("act-")[2].split()[0]
                    assert statuses[part.id] in ("ok", "interrupted")
                    assert trace in acts or statuses[part.id] == "interrupted", (
                        f"{trace} is said to have happened"
                    )
        assert {(self.cli.project / name).read_text() for name in FILES} <= {
            "old words\n",
            "new words\n",
        }
        made = self.cli.project / "new.txt"
        assert not made.exists() or made.read_text() == "made\n" * 2_000


def leftovers(cli: CliHarness) -> Iterator[str]:
    """Files that nobody asked for: half-written ones, in the project or the state."""
    for path in cli.project.iterdir():
        if path.name not in (*FILES, ".git", "acts.log", "new.txt"):
            yield str(path)
    for path in cli.state.rglob("*"):
        if path.is_file() and (".tmp" in path.name or path.name.endswith(".new")):
            yield str(path)


@pytest.mark.parametrize("seed", seeds(2))
def test_R030_a_killed_session_goes_on_and_loses_nothing(seed: int, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed)
    try:
        campaign.run()
    finally:
        campaign.cli.clean_up()


def cut_in_mid_edit(cli: CliHarness) -> Path:
    """A session killed while `Edit` writes: the file is the old one, the new one is half there
    beside it.
    """
    target = cli.project / "a.txt"
    target.write_text("old words\n")
    # the command's parent is the supervisor, whose parent it is
    longrein = "$(cut -d' ' -f4 /proc/$PPID/stat)"
    cli.without_sandbox()
    cli.plays(
        calls(call("Read", file_path="a.txt"), bash(f"kill -9 {longrein}")),
        calls(call("Edit", file_path="a.txt", old_string="old", new_string="new")),
        says("done"),
    )
    ran = cli.run("-p", "x", "--dangerously-skip-permissions")
    assert ran.code == -9
    half = cli.project / ".longrein-999999-1.tmp"
    half.write_text("new wo")
    return half


def test_a_command_that_kills_longrein_is_told_and_the_turn_goes_on(cli: CliHarness) -> None:
    cut_in_mid_edit(cli).unlink()
    assert cli.left().endswith(
        "Replied ToolStarted FileSeen ToolEnded:ok CheckpointTaken ToolStarted"
    )
    assert cli.run("-p", "-c", "--dangerously-skip-permissions").told() == (0, "done\n", "")
    status, text = cli.results()[1]
    assert status == "interrupted"
    assert text.startswith("interrupted; it may have run: longrein was killed, crashed or closed")
    assert (cli.project / "a.txt").read_text() == "new words\n"


def test_a_half_written_file_is_swept_when_the_session_goes_on(cli: CliHarness) -> None:
    half = cut_in_mid_edit(cli)
    assert cli.run("-p", "-c", "--dangerously-skip-permissions").code == 0
    assert not half.exists()

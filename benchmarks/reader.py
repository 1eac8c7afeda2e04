"""Read the compacted requests of recorded sessions as a model would, and count what misleads.

    python -m benchmarks.reader [--sessions DIR] [--only REGEX] [--wire NAME] [--window N] [--show]

Each session is replayed through the engine. After each change of the view a plain reader, which
sees only the text of the request, takes the shortened items apart: marker, kept lines, gaps, and
histories with their heads, outcomes and sections. What it understands is compared with the log.
`--show` prints the faults. Without --sessions a small generated set is used.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.policy import read, sessions_in
from benchmarks.replay.generated import write_sessions

from longrein.context import State
from longrein.context.clearing.text_features import readable
from longrein.context.state.command_results import code_of, may_test, read_tests
from longrein.events import ToolCall, ToolResult, text_of
from longrein.extensions.lab.replay import replay_of
from longrein.extensions.lab.replay.drive import PolicyReplay
from longrein.extensions.lab.simulate import WORST_WIRE, budget_of

HEAD = re.compile(r"(r\d+) (\S+):")
WROTE = re.compile(r"(r\d+(?:\.\d+)?) you wrote: ")
SECTION = re.compile(r"  (\w+) \((r\d+(?:\.\d+)?)\):")
GAP = re.compile(r"⋮ (\d+) lines?, (r\d+(?:\.\d+)?)")
NUMBER = re.compile(r"\s*\d+[→\t]")
COMMANDS = ("bash", "shell", "exec_command", "run")


class Entry(NamedTuple):
    """What a reader takes from the history about one call."""

    handle: str
    tool: str
    about: list[str]
    outcome: str
    sections: dict[str, list[str]]
    """Name of an argument, or `result`, -> lines that are kept of it, with gaps."""


class Log(NamedTuple):
    """What was said and done, from the events of the session."""

    calls: dict[str, ToolCall]
    """Handle of a result -> its call."""
    results: dict[str, str]
    """Handle of a result -> its text."""


class Reading(NamedTuple):
    """What a reader takes from one shortened result."""

    kept: list[str]
    """Lines of the result itself, with gaps; empty where nothing of it is kept."""
    is_cut: bool
    history: list[Entry]


def reading_of(text: str, nonce: str) -> Reading:
    """Take a shortened result apart."""
    own, *histories = text.split(f"[longrein:{nonce} history: ")
    lines = own.removesuffix("\n").split("\n")
    is_cut = lines[0].startswith(f"[longrein:{nonce} cleared: ")
    entries = [entry for one in histories for entry in _entries(one.split("\n")[1:])]
    return Reading(lines[is_cut:], is_cut, entries)


def _entries(lines: Sequence[str]) -> Iterator[Entry]:
    entry: Entry | None = None
    section: list[str] | None = None
    for line in lines:
        if match := HEAD.fullmatch(line):
            if entry:
                yield entry
            entry, section = Entry(match[1], match[2], [], "", {}), None
        elif WROTE.match(line):
            section = []
        elif entry and not entry.outcome and line.startswith("→ "):
            entry = entry._replace(outcome=line[2:])
        elif entry and not entry.outcome:
            entry.about.append(line)
        elif entry and (match := SECTION.fullmatch(line)):
            section = entry.sections.setdefault(match[1], [])
        elif entry:
            if section is None:
                section = entry.sections.setdefault("result", [])
            section.append(line)
    if entry:
        yield entry


def misplaced(kept: Sequence[str], whole: str, handle: str) -> list[str]:
    """Return the kept lines that do not stand in `whole` in this order, and wrong gaps."""
    lines, at, faults = whole.split("\n"), 0, []
    for line in kept:
        if gap := GAP.fullmatch(line):
            if not gap[2].startswith(handle):
                faults.append(f"gap of another item: {line}")
            at += int(gap[1])
        elif at < len(lines) and _same(line, lines[at]):
            at += 1
        else:
            faults.append(line)
    if not faults and kept and at != len(lines):
        faults.append(f"it looks complete after line {at} of {len(lines)}")
    return faults


def _same(shown: str, line: str) -> bool:
    return shown == line or shown == line.lstrip() or shown == NUMBER.sub("", line, count=1)


class Reader:
    """Reads the requests of one session."""

    def __init__(self, replay: PolicyReplay) -> None:
        self.replay = replay
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.log = Log({}, {})

    def remember(self) -> None:
        """Take calls and results into the log, as they are before they are shortened."""
        state = self.replay.state
        calls = {
            item.part.id: item.part
            for item in state.conversation
            if isinstance(item.part, ToolCall)
        }
        for item in state.conversation:
            if isinstance(item.part, ToolResult) and item.form == "full":
                self.log.results.setdefault(item.handle, readable(text_of((item.part,))))
                if item.part.call in calls:
                    self.log.calls.setdefault(item.handle, calls[item.part.call])

    def read(self) -> None:
        """Read the present request."""
        state = self.replay.state
        readings = {
            item.handle: reading_of(text_of((item.part,)), state.nonce)
            for item in state.conversation
            if isinstance(item.part, ToolResult) and item.form in ("trimmed", "placeholder")
        }
        entries = {entry.handle: entry for one in readings.values() for entry in one.history}
        for handle, one in readings.items():
            if one.is_cut and any(one.kept):
                self._check(misplaced(one.kept, self.log.results.get(handle, ""), handle), handle)
        for entry in entries.values():
            self._check_entry(entry)
        self._check_outcomes(state, entries)
        self._ask(entries)

    def _check(self, faults: list[str], where: str) -> None:
        self.counts["shortened texts"] += 1
        self.counts["lines under a foreign label, out of order or with a wrong gap"] += len(faults)
        self.faults += [f"{self.replay.recording.name} {where}: {fault}" for fault in faults]

    def _check_entry(self, entry: Entry) -> None:
        call = self.log.calls.get(entry.handle)
        if call is None or call.name != entry.tool:
            self._check([f"no such call: {entry.handle} {entry.tool}"], entry.handle)
            return
        for name, kept in entry.sections.items():
            if name == "result":
                whole, handle = self.log.results[entry.handle], entry.handle
            else:
                whole, handle = _text(call.arguments, name), "r"
            self._check(misplaced(kept, whole, handle), f"{entry.handle} {name}")

    def _check_outcomes(self, state: State, entries: dict[str, Entry]) -> None:
        newest: dict[str, str] = {}
        for handle, call in self.log.calls.items():
            command = _text(call.arguments, "command") or _text(call.arguments, "cmd")
            if call.name.lower() in COMMANDS and may_test(command):
                newest[command] = handle
        for handle in newest.values():
            self.counts["last test, build and lint commands"] += 1
            told = handle in entries and entries[handle].outcome != ""
            is_visible = told or handle in state.index
            self.counts["their outcome is visible"] += is_visible
            if not is_visible:
                self.faults.append(f"{self.replay.recording.name} {handle}: outcome is not visible")

    def _ask(self, entries: dict[str, Entry]) -> None:
        """Ask questions with known answers of what the reader has understood."""
        for entry in entries.values():
            call = self.log.calls.get(entry.handle)
            path = _text(call.arguments, "file_path") if call else ""
            if path and any(entry.sections.values()):
                self.counts["questions: which file does this text belong to"] += 1
                self.counts["answered: the file"] += path in entry.about
            command = _text(call.arguments, "command") if call else ""
            if call and call.name.lower() in COMMANDS and may_test(command):
                self._ask_tests(entry, command)

    def _ask_tests(self, entry: Entry, command: str) -> None:
        text = self.log.results[entry.handle]
        counts = (found := read_tests(command, text)) and found.counts
        if not counts and code_of(text, "failed") is None:
            return
        self.counts["questions: did the tests pass"] += 1
        failed = counts.failed > 0 if counts else True
        seen = "\n".join(
            (entry.outcome, *(line for kept in entry.sections.values() for line in kept))
        )
        counted = re.search(r"(\d+) failed, \d+ passed", entry.outcome)
        says_failed = re.search(r"FAIL|fail|[Ee]rror|exit code [1-9]", seen) is not None
        if counted:
            says_failed = counted[1] != "0"
        self.counts["answered: the tests"] += says_failed == failed


def _text(arguments: dict[str, Any] | None, name: str) -> str:
    value = (arguments or {}).get(name)
    return value if isinstance(value, str) else ""


def read_session(path: Path, wire: str, window: int) -> Reader:
    """Replay one session and read each request whose view has changed."""
    budget = budget_of("anthropic", window, wire)
    replay = replay_of("default", read(path), budget)
    assert isinstance(replay, PolicyReplay)
    reader = Reader(replay)
    for change in replay.changes():
        if change.show:
            reader.read()
        reader.remember()
    return reader


def main(words: Sequence[str] | None = None) -> int:
    """Print the counts of all sessions; 1 if a line misleads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--wire", default=WORST_WIRE)
    parser.add_argument("--window", type=int, default=200_000)
    parser.add_argument("--show", action="store_true")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as made:
        folder = given.sessions or write_sessions(Path(made))
        counts: Counter[str] = Counter()
        for path in sessions_in(folder):
            if re.search(given.only, path.name):
                reader = read_session(path, given.wire, given.window)
                counts += reader.counts
                counts["sessions"] += 1
                if given.show:
                    print(*reader.faults, sep="\n")
    for name, count in counts.items():
        print(f"{count:8} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

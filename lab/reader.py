"""Read the compacted requests of recorded sessions as a model would, and count what misleads.

    python -m lab.reader [--sessions DIR] [--only REGEX] [--wire NAME] [--window N] [--show]

Each session is replayed through the engine. After each change of the view a plain reader, which
sees only the text of the request, takes the shortened items apart: marker, kept lines, gaps, and
histories with their heads, outcomes and sections; of a digest or summary it reads the records.
What it understands is compared with the log, by code alone. A percentage is printed for each rule;
`--show` prints the faults. Without --sessions a small generated set is used.
"""

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from lab.policy import read, sessions_in
from lab.replay import Item, replay_of
from lab.replay.drive import FAILED, PolicyReplay
from lab.replay.generated import write_sessions
from lab.simulate import WORST_WIRE, budget_of
from longrein_context import State
from longrein_context.clearing.text_features import (
    kind_of_name,
    readable,
    strings_in,
    touched_paths,
)
from longrein_context.events import ToolCall, ToolResult, decode_object, text_of
from longrein_context.state.command_results import first_change, may_test, read_tests

HEAD = re.compile(r"(r\d+) (\S+):")
WROTE = re.compile(r"(r\d+(?:\.\d+)?) you wrote: ")
SECTION = re.compile(r"  (\w+) \((r\d+(?:\.\d+)?)\):")
GAP = re.compile(r"⋮ (\d+) lines?, (r\d+(?:\.\d+)?)")
NUMBER = re.compile(r"\s*\d+[→\t]")
COMMANDS = ("bash", "shell", "exec_command", "run")
RECORD = re.compile(r"- r(\d+) \S+ `.*→ (.+)")
CHANGED = re.compile(r"- (\S+): changed by you.* r\d+ \([+\-\d]")
CHANGE = re.compile(r", (?:[+-] |\d+ lines written)")
LIST_ITEM = re.compile(r"\s*(?:[-*]|\d+[.)]) \S")
YES = re.compile(r"(?:yes|ok|okay|sure|go|do it|please do|sounds good|y)\b.{0,40}", re.IGNORECASE)
FAILS = re.compile(r"FAIL|fail|[Ee]rror|[Ee]xit code [1-9]")
COUNTED = re.compile(r"(\d+) failed, \d+ passed")
TURNS_IN_USE = 2
"""An answer is in use in the turn that the user's reply to it begins, and in the next."""

RULES = (
    ("last test, build and lint commands", "their outcome is visible"),
    ("edited files", "their last edit and what it changed is visible"),
    ("answers in use", "they are whole"),
    ("lines of these answers that ask something", "they are visible"),
    ("open todos and running tasks", "they are visible or running"),
    ("messages of the user", "they are whole or named with their handle"),
    ("questions: which file does this text belong to", "answered: the file"),
    ("questions: did the tests pass", "answered: the tests"),
    ("questions: did the checks pass after the last edit", "answered: the checks"),
    ("questions: what did the user say yes to", "answered: the list"),
)
"""Pairs of counts: what was asked for, and how much of it the reader has found."""


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
    talk: list["Talk"]
    """Messages of the user and the answers, in order."""
    failed: dict[str, None]
    """Handles of results of calls that failed."""


class Talk(NamedTuple):
    """Message of the user, or an answer: a reply without a call."""

    seq: int
    text: str
    is_answer: bool


class Page(NamedTuple):
    """What a request shows."""

    text: str
    outcomes: dict[str, str]
    """Handle of a result -> its outcome, from histories and from the records of a digest."""
    changes: frozenset[str]
    """Handles of edits of which a history tells what they changed."""
    changed_files: frozenset[str]
    """Files of which a digest tells the last change."""


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
        self.log = Log({}, {}, [], {})
        self.page = Page("", {}, frozenset(), frozenset())
        self.told: dict[str, Item] = {}
        """Handle -> item of the recording."""
        self.calls: dict[str, ToolCall] = {}
        self.acted: set[int] = set()
        """Entries of replies with a call."""
        self.written: list[Talk] = []

    def remember(self) -> None:
        """Take what was told since the last request into the log, as it was recorded."""
        known = len(self.told)
        for handle, place in islice(self.replay.places.items(), known, None):
            item = self.replay.recording.items[place]
            self.told[handle] = item
            seq = int(handle[1:].partition(".")[0])
            if item.kind == "tool_call":
                arguments = decode_object(item.text)
                self.calls[item.call] = ToolCall(item.call, item.name, arguments, item.text)
                self.acted.add(seq)
            elif item.kind == "tool_result" and item.call in self.calls:
                self.log.results[handle] = readable(item.text)
                self.log.calls[handle] = self.calls[item.call]
                if item.text.startswith(FAILED):
                    self.log.failed[handle] = None
            elif item.kind == "user" or not (item.thinking or item.output):
                self.log.talk.append(Talk(seq, item.text.strip(), is_answer=False))
            elif not item.thinking and item.text.strip():
                self.written.append(Talk(seq, item.text.strip(), is_answer=True))
        answers = [one for one in self.written if one.seq not in self.acted]
        self.written = []
        self.log.talk.extend(answers)
        self.log.talk.sort(key=lambda one: one.seq)

    def read(self) -> None:
        """Read the present request."""
        state = self.replay.state
        readings = {
            item.handle: reading_of(text_of((item.part,)), state.nonce)
            for item in state.conversation
            if isinstance(item.part, ToolResult) and item.form in ("trimmed", "placeholder")
        }
        entries = {entry.handle: entry for one in readings.values() for entry in one.history}
        self.page = page_of(state, entries)
        for handle, one in readings.items():
            if one.is_cut and any(one.kept):
                self._check(misplaced(one.kept, self.log.results.get(handle, ""), handle), handle)
        for entry in entries.values():
            self._check_entry(entry)
        self._check_outcomes(state)
        self._check_edits(state)
        self._check_talk()
        self._check_open_work(state)
        self._ask(entries)
        self._ask_checks(state)

    def _count(self, rule: int, found: bool, fault: str) -> None:
        asked, answered = RULES[rule]
        self.counts[asked] += 1
        self.counts[answered] += found
        if not found:
            self.faults.append(f"{self.replay.recording.name} {fault}")

    def _check(self, faults: list[str], where: str) -> None:
        self.counts["shortened texts"] += 1
        self.counts["lines under a foreign label, out of order or with a wrong gap"] += len(faults)
        self.faults += [f"{self.replay.recording.name} {where}: {fault}" for fault in faults]

    def _check_entry(self, entry: Entry) -> None:
        call = self.log.calls.get(entry.handle)
        if call is None and entry.outcome.startswith("interrupted"):
            return  # no result of it was recorded
        if call is None or call.name != entry.tool:
            self._check([f"no such call: {entry.handle} {entry.tool}"], entry.handle)
            return
        for name, kept in entry.sections.items():
            if name == "result":
                whole, handle = self.log.results[entry.handle], entry.handle
            else:
                whole, handle = _text(call.arguments, name), "r"
            self._check(misplaced(kept, whole, handle), f"{entry.handle} {name}")

    def _check_outcomes(self, state: State) -> None:
        newest: dict[str, str] = {}
        for handle, call in self.log.calls.items():
            if command := check_in(call):
                newest[command] = handle
        for command, handle in newest.items():
            found = handle in self.page.outcomes or handle in state.index
            self._count(0, found, f"{handle}: no outcome of {command[:60]}")

    def _check_edits(self, state: State) -> None:
        newest: dict[str, str] = {}
        for handle, call in self.log.calls.items():
            is_edit = kind_of_name(call.name) in ("edit", "write")
            if is_edit and first_change(call.arguments or {}) and handle not in self.log.failed:
                newest[touched_paths(call.arguments)[0]] = handle
        for path, handle in newest.items():
            is_told = handle in self.page.changes or any(
                path.endswith(told) for told in self.page.changed_files
            )
            self._count(1, is_told or handle in state.index, f"{handle}: no edit of {path}")

    def _check_talk(self) -> None:
        talk, text = self.log.talk, self.page.text
        turns = [n for n in range(1, len(talk)) if talk[n - 1].is_answer and not talk[n].is_answer]
        for n in turns[-TURNS_IN_USE:]:
            answer, reply = talk[n - 1], talk[n]
            self._count(2, answer.text in text, f"r{answer.seq}: the answer is not whole")
            lines = answer.text.split("\n")
            for line in lines:
                if line.endswith("?"):
                    self._count(3, line in text, f"r{answer.seq}: the question {line[:60]}")
            if YES.fullmatch(reply.text) and any(map(LIST_ITEM.match, lines)):
                items = [line for line in lines if LIST_ITEM.match(line)]
                found = all(item in text for item in items)
                self._count(9, found, f"r{answer.seq}: the list that r{reply.seq} agrees to")
        for one in talk:
            if not one.is_answer:
                found = one.text in text or re.search(rf"\br{one.seq}\b", text) is not None
                self._count(5, found, f"r{one.seq}: the user's message")

    def _check_open_work(self, state: State) -> None:
        for todo in state.todos:
            if todo.status != "completed":
                self._count(4, todo.content in self.page.text, f"todo {todo.content[:60]}")
        for key in state.ledger.running:
            self._count(4, key in self.page.text, f"task {key}")

    def _ask_checks(self, state: State) -> None:
        """Ask whether the last check passed, if it ran after the last edit."""
        handle = ""
        for one, call in self.log.calls.items():
            if kind_of_name(call.name) in ("edit", "write"):
                handle = ""
            elif check_in(call):
                handle = one
        if not handle:
            return
        text = self.log.results[handle]
        command = _text(self.log.calls[handle].arguments, "command")
        failed = has_failed(command, text, handle in self.log.failed)
        if failed is None:
            return
        seen = self.page.outcomes.get(handle, text if handle in state.index else "")
        if handle in state.index and handle not in self.page.outcomes:
            part = state.items[state.index[handle]].part
            seen = text_of((part,))
            found = read_tests(command, seen)
            if found and found.counts:
                seen = f"{found.counts.failed} failed, {found.counts.passed} passed"
        self._count(8, says_failed(seen) == failed, f"{handle}: did {command[:60]} pass")

    def _ask(self, entries: dict[str, Entry]) -> None:
        """Ask questions with known answers of what the reader has understood."""
        for entry in entries.values():
            call = self.log.calls.get(entry.handle)
            path = _text(call.arguments, "file_path") if call else ""
            if path and any(entry.sections.values()):
                self._count(6, path in entry.about, f"{entry.handle}: which file")
            command = _text(call.arguments, "command") if call else ""
            if call and call.name.lower() in COMMANDS and may_test(command):
                self._ask_tests(entry, command)

    def _ask_tests(self, entry: Entry, command: str) -> None:
        text = self.log.results[entry.handle]
        failed = has_failed(command, text, entry.handle in self.log.failed)
        if failed is None:
            return
        lines = (line for kept in entry.sections.values() for line in kept)
        seen = "\n".join((entry.outcome, *lines))
        self._count(7, says_failed(seen) == failed, f"{entry.handle}: did the tests pass")


def has_failed(command: str, text: str, is_failure: bool) -> bool | None:
    """Return whether a test run failed, from its whole output; None where it does not tell."""
    found = read_tests(command, text)
    if found and found.counts:
        return found.counts.failed > 0
    return True if is_failure else None


def says_failed(seen: str) -> bool:
    """Return whether what is visible of a test run says that it failed."""
    if counted := COUNTED.search(seen):
        return counted[1] != "0"
    return FAILS.search(seen) is not None


def check_in(call: ToolCall) -> str:
    """Return the test, build or lint command of a call, without what it is piped into; '' for
    another call.
    """
    command = _text(call.arguments, "command") or _text(call.arguments, "cmd")
    if call.name.lower() not in COMMANDS or not may_test(command):
        return ""
    return next(
        (piece.split("|")[0].strip() for piece in re.split(r"&&|;|\n|2>&1", command)
         if may_test(piece)), command
    )  # fmt: skip


def page_of(state: State, entries: dict[str, Entry]) -> Page:
    """Return what the present request shows."""
    texts, outcomes = list[str](), {one.handle: one.outcome for one in entries.values()}
    changed = list[str]()
    for item in state.conversation:
        if isinstance(item.part, ToolCall):
            texts += strings_in(item.part.arguments)
            continue
        text = text_of((item.part,))
        texts.append(text)
        if item.kind == "summary":
            outcomes |= {f"r{seq}": told for seq, told in RECORD.findall(text)}
            changed += CHANGED.findall(text)
    changes = (
        one.handle
        for one in entries.values()
        if CHANGE.search(one.outcome) or any(one.sections.values())
    )
    return Page("\n".join(texts), outcomes, frozenset(changes), frozenset(changed))


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
        reader.remember()
        if change.show or change.summary:
            reader.read()
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
    answered = dict(RULES)
    found = set(answered.values())
    for name, count in counts.items():
        if name in answered:
            share = counts[answered[name]] / count
            print(f"{count:8} {name}: {answered[name]}: {share:.1%}")
        elif name not in found:
            print(f"{count:8} {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The scripted model of a session: it checks what it can see, repairs what it cannot, and writes
summaries.

Every policy meets the same model. When a needed line is in no text of the request, the model calls
`Recall` if the request offers it and names a handle near the file's path; else it reads the file
again.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.race.sessions import Call, Need, Script, Step, flatten
from lab.race.tokens import count_tokens
from lab.race.workspace import Workspace

TRIES_MAX = 3  # Repairs before one step
RANGE_LINES = 25
"""Lines before and after a place that the model reads again."""
RECALL_PAGE = 15_000
"""Characters of a file that one page of `Recall` shows."""
KEPT_SHARE, KEPT_ITEMS = 0.30, 0.80
"""Share of definitions, constants and errors, and of open work items, that a summary repeats."""
SUMMARY_TOKENS_MAX = 8_000
_HANDLE = re.compile(r"\br\d+(?:\.\d+)?\b")
_TELLING = re.compile(
    r"(async def|def|class|raise|[A-Z][A-Z_0-9]{3,} ?[:=]|[a-z_]+ ?[:=] ?[\"'\d(\[{])"
)
_ITEM = re.compile(r"- \[ \] \d+\.")
_NUMBER = re.compile(r"^\s{0,6}\d+\t")


@dataclass(frozen=True)
class Block:
    """Message of a request, as the model sees it."""

    role: str
    """`system`, `user`, `assistant` or `tool`."""
    text: str
    calls: tuple[tuple[str, str, dict[str, Any]], ...] = ()
    """Id, tool and arguments of each call."""
    answers: str = ""
    """Id of the call that this is the result of."""


@dataclass(frozen=True)
class Answer:
    """Text and tool calls of the model."""

    text: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()

    @property
    def tokens(self) -> int:
        """Output tokens."""
        return count_tokens(self.text) + sum(
            8 + count_tokens(json.dumps(call[1])) for call in self.calls
        )


@dataclass
class Tally:
    """Cost of a session to its model, besides tokens."""

    needed: int = 0  # Lines that steps needed
    missed: int = 0  # Lines of them that were not visible when first needed
    steps_missed: int = 0
    lost: int = 0  # Lines that no repair brought back
    recalls: int = 0
    rereads: int = 0
    summaries: int = 0
    misses: list[str] = field(default_factory=list)


class ScriptedModel:
    """Plays one script."""

    def __init__(self, script: Script, workspace: Workspace) -> None:
        self.script, self.workspace = script, workspace
        self.steps = flatten(script.turns)
        self.at = 0  # Step that is played next
        self.tries = 0
        self.tally = Tally()

    # --- Steps ------------------------------------------------------------------------------------

    def answer(self, blocks: Sequence[Block], tools: frozenset[str]) -> tuple[Answer, str]:
        """Return the answer to a request, and `step` or `repair`."""
        if self.at >= len(self.steps):
            return Answer("There is nothing left to do."), "step"
        step = self.steps[self.at]
        hidden = [found for need in step.needs if (found := self._hidden(need, blocks)).lines]
        if not self.tries:
            self._count(step, hidden)
        if hidden and self.tries < TRIES_MAX:
            self.tries += 1
            return self._repair(hidden, blocks, tools), "repair"
        self.tally.lost += sum(len(need.lines) for need in hidden)
        self.at, self.tries = self.at + 1, 0
        return Answer(step.text, tuple(self._call(call) for call in step.calls)), "step"

    def _count(self, step: Step, hidden: Sequence[Need]) -> None:
        self.tally.needed += sum(len(need.lines) for need in step.needs)
        self.tally.missed += sum(len(need.lines) for need in hidden)
        self.tally.steps_missed += bool(hidden)
        self.tally.misses += [
            f"step {self.at}: {len(need.lines)} lines of {need.path}" for need in hidden
        ]

    def _hidden(self, need: Need, blocks: Sequence[Block]) -> Need:
        """Return the part of a need that no block shows as it is now."""
        lines = self.workspace.files[need.path]
        return Need(need.path, tuple(n for n in need.lines if not _shown(lines[n].strip(), blocks)))

    def _call(self, call: Call) -> tuple[str, dict[str, Any]]:
        match call:
            case Call("read_file", path):
                return "read_file", {"path": path}
            case Call("edit_file", path, (first, last)):
                old = self.workspace.files[path][first : last + 1]
                return "edit_file", {
                    "path": path,
                    "old": "\n".join(old),
                    "new": "\n".join(_changed(old, self.at)),
                }
            case Call("search", pattern=pattern):
                return "search", {"pattern": pattern}
        return call.tool, {"path": call.path}

    # --- Repairs ----------------------------------------------------------------------------------

    def _repair(
        self, hidden: Sequence[Need], blocks: Sequence[Block], tools: frozenset[str]
    ) -> Answer:
        calls = []
        for need in hidden:
            first, last = max(need.lines[0] + 1 - RANGE_LINES, 1), need.lines[-1] + 1 + RANGE_LINES
            part = self.script.setting.repair == "range" or self.tries > 1
            handle = _handle_of(need.path, blocks) if "Recall" in tools and self.tries == 1 else ""
            if handle:
                self.tally.recalls += 1
                paged = part or self._is_long(need.path)
                calls.append(
                    (
                        "Recall",
                        {"handle": handle, **({"lines": f"{first}-{last}"} if paged else {})},
                    )
                )
            else:
                self.tally.rereads += 1
                calls.append(
                    (
                        "read_file",
                        {"path": need.path, **({"start": first, "end": last} if part else {})},
                    ),
                )
        return Answer("I need to see this again.", tuple(calls))

    def _is_long(self, path: str) -> bool:
        return sum(map(len, self.workspace.files[path])) > RECALL_PAGE

    # --- Summaries --------------------------------------------------------------------------------

    def summary(self, text: str, tokens_max: int) -> str:
        """Return a summary: the files read, and a fixed sample of the telling lines, whoever asks.

        A line that one summary keeps is kept by the next one, too.
        """
        self.tally.summaries += 1
        seen: dict[str, None] = {}
        for line in text.replace("\\n", "\n").replace('\\"', '"').splitlines():
            bare = _NUMBER.sub("", line).strip()
            if (
                10 <= len(bare) <= 200
                and (_ITEM.match(bare) or _TELLING.match(bare))
                and _is_kept(bare)
            ):
                seen[bare] = None
        kept = ["## Summary of the work so far", f"{self.at} steps are done.", ""]
        room = min(tokens_max, SUMMARY_TOKENS_MAX)
        newest: list[str] = []
        for line in reversed(seen):  # what is nearest stays when there is too much
            if (room := room - count_tokens(line) - 1) < 0:
                break
            newest.append(line)
        return "\n".join([*kept, *reversed(newest)])


def _is_kept(line: str) -> bool:
    share = KEPT_ITEMS if _ITEM.match(line) else KEPT_SHARE
    return (
        int.from_bytes(hashlib.blake2b(line.encode(), digest_size=4).digest(), "big")
        < share * 2**32
    )


def _shown(line: str, blocks: Sequence[Block]) -> bool:
    escaped = json.dumps(line)[1:-1]
    return any(
        line in block.text or (escaped != line and escaped in block.text)
        for block in reversed(blocks)
    )


def _handle_of(path: str, blocks: Sequence[Block]) -> str:
    """Return the newest handle that stands for a read of `path`: in its result, or in a line
    that names the file.
    """
    read_by: dict[str, str] = {}
    for block in blocks:
        for id_, tool, arguments in block.calls:
            if tool == "read_file" and arguments.get("path") == path and not arguments.get("start"):
                read_by[id_] = tool
    for block in reversed(blocks):
        if block.answers in read_by and (found := _HANDLE.search(block.text)):
            return found[0]
    for block in reversed(blocks):
        for line in block.text.splitlines() if path in block.text else ():
            if path in line and "read_file" in line and (found := _HANDLE.search(line)):
                return found[0]
    return ""


def _changed(old: Sequence[str], step: int) -> list[str]:
    """Return the lines after an edit: the first usable name of each line gets a suffix."""
    return [re.sub(r"([A-Za-z_][A-Za-z_0-9]{4,})", rf"\1_{step}", line, count=1) for line in old]

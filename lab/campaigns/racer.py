"""A program swaps folders and symbolic links while an agent reads, writes and searches: nothing may
leave the root.

    python -m lab.campaigns.racer [--calls 10000] [--seed 1] [--folder DIR]

The agent works in `root/sub`. The racer exchanges that folder, a folder in it, and a file in it
with links to the same names below `outside`. A call counts when its permission was given. It
escapes when the content of a file outside is in its result, its facts or its blobs, or when
anything outside has changed. Prints one line; exit code 1 for an escape.
"""

import argparse
import asyncio
import ctypes
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

from lab.support.spawner import spawner_in
from longrein.agent import Dependencies, Limits, OpenSession, UserMessage, open_session
from longrein.app.run_context import CLOCK
from longrein.models import Delta, Reply
from longrein.permissions import Rules
from longrein.store import HistoryReader, Reader, open_log
from longrein.tools import builtin_tools
from longrein.workspace import open_workspace
from longrein_context import Budget, Request
from longrein_context.events import (
    SCHEMA_VERSION,
    FileChanged,
    FileSeen,
    Opened,
    PrefixSet,
    Replied,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    Usage,
    text_of,
)

SESSION = "00000000-0000-4000-8000-0000000000ce"
CANARY = "canary"
"""Word that stands in files outside only."""
MODES_OF_NAMES = ("files_with_matches", "count")
"""Modes of Grep without content. The model looks for the canary in them: each file in a result
is one too many.
"""
SWAPS = (
    (".sub", "sub"),
    ("sub/.deep", "sub/deep"),
    ("sub/.r0.txt", "sub/r0.txt"),
    ("sub/.e0.txt", "sub/e0.txt"),
)
"""(link, place) that are exchanged."""
PAUSE_S = 0.002
"""Longest pause between two swaps."""
EXCHANGE, AT_FDCWD = 2, -100


class RacedModel:
    """A model that reads, searches, edits and creates files until enough calls were allowed."""

    provider, model, wire, name = "test", "racer", "scripted", "test/racer"
    budget = Budget(100_000_000, 10_000)

    def __init__(self, root: Path, calls: int, seed: int) -> None:
        self.root, self.calls, self.chance, self.number = root, calls, random.Random(seed), 0
        self.allowed = self.counted = 0
        self.session: OpenSession

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        if self.has_enough():
            yield [Reply((Text("done"),), "end", Usage())]
            return
        await asyncio.sleep(self.chance.random() * PAUSE_S)
        yield [Reply(tuple(self.call() for _ in range(8)), "calls", Usage())]

    def has_enough(self) -> bool:
        """Tell whether enough calls were allowed. Looks into the log now and then."""
        if self.number % 200 == 0:
            history = self.session.log.history(self.counted + 1, self.session.state.seq)
            self.allowed += sum(isinstance(entry.event, ToolStarted) for entry in history)
            self.counted = self.session.state.seq
        return self.allowed >= self.calls

    def call(self) -> ToolCall:
        """Return the next call."""
        self.number += 1
        folder = self.chance.choice(["sub", "sub/deep"])
        file = f"{folder}/{self.chance.choice('re')}{self.chance.randrange(2)}.txt"
        match self.chance.randrange(6):
            case 0:
                return ToolCall(
                    "", "Write", {"file_path": f"{folder}/new{self.number}.txt", "content": "new\n"}
                )
            case 1:
                mode = self.chance.choice(["content", *MODES_OF_NAMES])
                pattern = CANARY if mode in MODES_OF_NAMES else f"word|{CANARY}"
                return ToolCall(
                    "", "Grep", {"pattern": pattern, "path": folder, "output_mode": mode}
                )
            case 2:
                return ToolCall("", "Glob", {"pattern": "*.txt", "path": folder})
            case 3 | 4 if edit := self.edit(file):
                return edit
            case _:
                return ToolCall("", "Read", {"file_path": file})

    def edit(self, file: str) -> ToolCall | None:
        """Return an edit, or a new content, of a file that is known."""
        known = self.session.state.files.get(str(self.root / file))
        if known is None or not known.blob:
            return None
        if self.number % 2:
            return ToolCall("", "Write", {"file_path": file, "content": f"word {self.number}\n"})
        text = self.session.blobs.read_blob(known.blob).decode()
        return ToolCall(
            "",
            "Edit",
            {"file_path": file, "old_string": text, "new_string": f"word {self.number}\n"},
        )

    async def aclose(self) -> None:
        return


async def run_agent(folder: Path, calls: int, seed: int) -> None:
    """Run the agent until `calls` calls were allowed."""
    root = str(folder / "root")
    model = RacedModel(folder / "root", calls, seed)
    log = await open_log(str(folder / "state"), SESSION, create=True, wall_us=CLOCK.wall_us)
    deps = Dependencies(
        clock=CLOCK,
        jitter=lambda: 0.5,
        workspace=open_workspace((root,), spawner=spawner_in(folder), environment=dict(os.environ)),
        tools={tool.spec.name: tool for tool in builtin_tools()},
        model=model,
        open_model=lambda _name: model,
        prefix=lambda m, reason: PrefixSet(reason, m.provider, m.model, m.wire, "Edit."),
        archive=HistoryReader(str(folder / "state"), SESSION),
        rules=Rules(allow=("Write", "Edit"), base=root),
        limits=Limits(barren_steps_max=1_000_000),
    )
    model.session = open_session(
        log, deps, opened=Opened(SCHEMA_VERSION, SESSION, "n0nce", (root,), root), mode="dontAsk"
    )
    try:
        model.session.paused = False
        model.session.tell(UserMessage((Text("go"),)))
        await model.session.run(once=True)
    finally:
        await model.session.close()


# --- The racer ------------------------------------------------------------------------------------


def race(root: Path, seed: int) -> None:
    """Exchange folders, files and links without end."""
    call, chance = ctypes.CDLL(None).renameat2, random.Random(seed)
    pairs = [(os.fsencode(root / link), os.fsencode(root / place)) for link, place in SWAPS]
    while True:
        link, place = pairs[0] if chance.random() < 0.5 else chance.choice(pairs)
        call(AT_FDCWD, link, AT_FDCWD, place, EXCHANGE)
        if chance.random() < 0.7:
            time.sleep(chance.random() * PAUSE_S)


def make_world(folder: Path) -> None:
    """Make `root` and `outside`: the same names, files `r` with other content outside, files `e`
    with the same.
    """
    for top, word in (("root", "word"), ("outside", CANARY)):
        for place in ("sub", "sub/deep"):
            (folder / top / place).mkdir(parents=True, exist_ok=True)
            for number in range(2):
                (folder / top / place / f"r{number}.txt").write_text(f"{word} r\n")
                (folder / top / place / f"e{number}.txt").write_text("word e\n")
    for place in ("sub", "sub/deep"):
        (folder / "outside" / place / f"{CANARY}.txt").write_text(
            "word\n"
        )  # even its name must not be seen
    for link, place in SWAPS:
        (folder / "root" / link).symlink_to(folder / "outside" / place)


def content_of(folder: Path) -> dict[str, str]:
    """Return the hash of each file below a folder."""
    return {
        str(path): sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def leaks(folder: Path) -> Iterator[str]:
    """Yield the results and blobs that hold content or names from outside, or tell that a file
    outside matches.
    """
    reader = Reader(str(folder / "state"), SESSION)
    of_names = set[str]()
    for event in (entry.event for entry in reader.entries()):
        match event:
            case Replied():
                calls = (part for part in event.parts if isinstance(part, ToolCall))
                of_names |= {
                    call.id for call in calls if call.arguments.get("output_mode") in MODES_OF_NAMES
                }
            case ToolEnded(call=call, name=name):
                said = text_of(event.parts)
                if CANARY in said.replace(f"No match for {CANARY}", "") or (
                    call in of_names and ".txt" in said
                ):
                    yield f"{name}: {said[:200]}"
            case FileChanged() | FileSeen() if (
                event.blob and CANARY in reader.blob(event.blob).decode()
            ):
                yield f"blob of {event.path}"
            case _:
                pass
    reader.close()


def campaign(folder: Path, calls: int, seed: int) -> tuple[int, int, int, list[str]]:
    """Run agent and racer: (allowed calls, refused by a tool, denied before, escapes)."""
    folder = folder.resolve()
    make_world(folder)
    before = content_of(folder / "outside")
    words = [
        sys.executable,
        "-m",
        "lab.campaigns.racer",
        "--role",
        "racer",
        "--folder",
        str(folder),
        "--seed",
        str(seed),
    ]
    racer = subprocess.Popen(words)
    try:
        asyncio.run(run_agent(folder, calls, seed))
    finally:
        racer.terminate()
        racer.wait()
    reader = Reader(str(folder / "state"), SESSION)
    events = [entry.event for entry in reader.entries()]
    reader.close()
    allowed = sum(isinstance(event, ToolStarted) for event in events)
    ended = [event for event in events if isinstance(event, ToolEnded)]
    after = content_of(folder / "outside")
    escapes = [
        f"outside: {path}" for path in {*before, *after} if before.get(path) != after.get(path)
    ]
    changed = sum(
        event.status == "failed" and "check and the use" in text_of(event.parts) for event in ended
    )
    return (
        allowed,
        changed,
        sum(event.status == "denied" for event in ended),
        [*escapes, *leaks(folder)],
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the campaign; see the module for its arguments."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="")
    parser.add_argument("--role", default="")
    asked = parser.parse_args(argv)
    if asked.role == "racer":
        race(Path(asked.folder) / "root", asked.seed)
    with tempfile.TemporaryDirectory(prefix="racer-") as made:
        allowed, changed, denied, escapes = campaign(
            Path(asked.folder or made), asked.calls, asked.seed
        )
    print(
        f"racer: {len(escapes)} of {allowed:,} ({changed:,} refused at their use, {denied:,} "
        "denied before)"
    )
    for escape in escapes[:20]:
        print(f"  {escape}")
    return 1 if escapes or allowed < asked.calls else 0


if __name__ == "__main__":
    sys.exit(main())

"""Many writers of few files: agents in several processes and an independent editor, without lost
text.

    python -m lab.campaigns.writers --agents 8 --edits 200 --files 5 [--processes 2] [--kills 3]
    [--seed 1] [--folder DIR]

Text is lost when it was written by anyone and is neither in a file, nor in a reported conflict, nor
in a blob that a log names. Prints one line of JSON; the exit code is 1 when text is lost or
temporary files are left.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path

from lab.support.spawner import spawner_in
from longrein.agent import Dependencies, Limits, OpenSession, UserMessage, open_session
from longrein.app.run_context import CLOCK
from longrein.models import Delta, Reply
from longrein.permissions import Rules
from longrein.store import HistoryReader, Reader, open_log
from longrein.tools import builtin_tools
from longrein.workspace import open_workspace, recover_temp_files
from longrein_context import Budget, Request
from longrein_context.events import (
    SCHEMA_VERSION,
    Entry,
    FileChanged,
    FileSeen,
    Opened,
    PrefixSet,
    Text,
    ToolCall,
    ToolEnded,
    Usage,
    text_of,
)

BUDGET = Budget(100_000_000, 10_000)
NAMESPACE = uuid.UUID("00000000-0000-4000-8000-00000000feed")


class EditingModel:
    """A model that reads every file once and then changes lines that it knows."""

    provider, model, wire, name = "test", "typist", "scripted", "test/typist"
    budget = BUDGET

    def __init__(
        self, label: str, files: Sequence[Path], edits: int, chance: random.Random
    ) -> None:
        self.label, self.files, self.left, self.chance = label, files, edits, chance
        self.session: OpenSession
        self.number = 0

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        known = self.session.state.files
        unread = [
            path
            for path in self.files
            if str(path) not in known or known[str(path)].disk is not None
        ]
        await asyncio.sleep(self.chance.random() * 0.004)
        if unread:
            yield [
                Reply(
                    tuple(ToolCall("", "Read", {"file_path": str(path)}) for path in unread),
                    "calls",
                    Usage(),
                )
            ]
        elif self.left <= 0:
            yield [Reply((Text("done"),), "end", Usage())]
        else:
            self.left -= 1
            yield [Reply((self._edit(self.chance.choice(self.files)),), "calls", Usage())]

    def _edit(self, path: Path) -> ToolCall:
        text = self.session.blobs.read_blob(self.session.state.files[str(path)].blob).decode()
        lines = [line for line in text.splitlines() if line and text.count(line) == 1] or [""]
        self.number += 1
        token = f"{self.label}.{os.getpid()}.{self.number}."
        line = self.chance.choice(lines)
        kind = self.chance.random()
        if kind < 0.1:
            return ToolCall("", "Write", {"file_path": str(path), "content": f"{token}\n{text}"})
        new = token if kind < 0.2 and line.startswith(self.label) else f"{line}\n{token}"
        return ToolCall("", "Edit", {"file_path": str(path), "old_string": line, "new_string": new})

    async def aclose(self) -> None:
        return


# --- Agents of one process ------------------------------------------------------------------------


def session_id(label: str) -> str:
    """Return the session id of an agent, the same in each of its runs."""
    return str(uuid.uuid5(NAMESPACE, label))


async def run_agents(
    folder: Path, labels: Sequence[str], files: Sequence[Path], edits: int, seed: int
) -> None:
    """Run the agents of one process, which share locks and know of each other's writes, like one
    tree.
    """
    shared: list[Dependencies] = []
    for path in dict.fromkeys(path.parent for path in files):
        recover_temp_files([str(path)])
    await asyncio.gather(
        *(run_agent(folder, label, files, edits, seed, shared) for label in labels)
    )


async def run_agent(
    folder: Path,
    label: str,
    files: Sequence[Path],
    edits: int,
    seed: int,
    shared: list[Dependencies],
) -> None:
    """Run one agent to the end of its edits."""
    state, session = str(folder / "state"), session_id(label)
    fresh = not (folder / "state" / "sessions" / session).exists()
    model = EditingModel(label, files, edits, random.Random(f"{seed} {label} {os.getpid()}"))
    log = await open_log(state, session, create=fresh, wall_us=CLOCK.wall_us)
    tools = {tool.spec.name: tool for tool in builtin_tools()}
    tree = str(folder / "tree")
    deps = Dependencies(
        clock=CLOCK,
        jitter=lambda: 0.5,
        workspace=open_workspace((tree,), spawner=spawner_in(folder), environment=dict(os.environ)),
        tools=tools,
        model=model,
        open_model=lambda _name: model,
        prefix=lambda m, reason: PrefixSet(reason, m.provider, m.model, m.wire, "Edit."),
        archive=HistoryReader(state, session),
        rules=Rules(allow=("Write", "Edit"), base=tree),
        limits=Limits(barren_steps_max=1_000_000),
    )
    shared.append(deps)
    deps.locks, deps.writers = shared[0].locks, shared[0].writers
    opened = Opened(SCHEMA_VERSION, session, "n0nce", (tree,), tree, label=label)
    model.session = open_session(log, deps, opened=opened, mode="bypassPermissions")
    try:
        model.session.paused = False
        model.session.tell(UserMessage((Text("edit"),)))
        await model.session.run(once=True)
    finally:
        await model.session.close()


# --- Independent editor ---------------------------------------------------------------------------


def run_editor(files: Sequence[Path], journal: Path, seed: int, pause_s: float) -> None:
    """Write tokens by append, in place and by rename until TERM; log each in the journal once
    written.
    """
    chance = random.Random(f"editor {seed}")
    over: list[int] = []
    signal.signal(signal.SIGTERM, lambda *_: over.append(1))
    with journal.open("a") as done:
        number = 0
        while not over:
            number += 1
            token = f"editor.{os.getpid()}.{number}."
            path, way = chance.choice(files), chance.choice(["append", "truncate", "rename"])
            write_by(way, path, token)
            done.write(f"{token} {way} {path.name}\n")
            done.flush()
            time.sleep(chance.random() * 2 * pause_s)


def write_by(way: str, path: Path, token: str) -> None:
    """Add a line to a file. With truncation the file is empty for a moment."""
    if way == "append":
        with path.open("a") as file:
            file.write(f"{token}\n")
        return
    text = path.read_text() + f"{token}\n"
    if way == "truncate":
        with path.open("w") as file:
            file.flush()
            time.sleep(0.0005)
            file.write(text)
        return
    beside = path.with_name(f"{path.name}.editor")
    beside.write_text(text)
    beside.rename(path)


# --- Campaign -------------------------------------------------------------------------------------


def campaign(
    folder: Path, *, agents: int, edits: int, files: int, processes: int = 2, kills: int = 0, seed: int = 1,  # noqa: E501
    pause_s: float = 0.01,
) -> dict[str, object]:  # fmt: skip
    """Run the campaign in `folder`; return the results."""
    tree = folder / "tree"
    tree.mkdir()
    paths = [tree / f"f{n}.txt" for n in range(files)]
    for path in paths:
        path.write_text("".join(f"{path.stem} line {n}\n" for n in range(40)))
    chance, begun = random.Random(seed), time.monotonic()
    labels = [f"a{n}" for n in range(agents)]
    base = [
        sys.executable,
        "-m",
        "lab.campaigns.writers",
        "--folder",
        str(folder),
        "--files",
        str(files),
    ]
    editor = subprocess.Popen(
        [*base, "--role", "editor", "--seed", str(seed), "--pause", str(pause_s)]
    )
    try:
        parts = [labels[n::processes] for n in range(processes)]
        words = [
            [*base, "--role", "agents", "--edits", str(edits), "--labels", ",".join(part)]
            for part in parts
            if part
        ]
        live = [subprocess.Popen(one) for one in words]
        for _ in range(kills):
            time.sleep(0.3 + chance.random())
            victim = chance.randrange(len(live))
            if live[victim].poll() is None:
                live[victim].kill()
                live[victim].wait()
                live[victim] = subprocess.Popen(words[victim])
        codes = [one.wait() for one in live]
    finally:
        editor.terminate()
        editor.wait()
    recover_temp_files([str(tree)])
    return {
        **count_losses(folder, labels, paths),
        "codes": codes,
        "seconds": round(time.monotonic() - begun, 1),
    }


def count_losses(folder: Path, labels: Sequence[str], paths: Sequence[Path]) -> dict[str, object]:
    """Count the written tokens and search for each."""
    places = [path.read_text() for path in (folder / "tree").iterdir() if path.is_file()]
    tokens = [line.split()[0] for line in (folder / "journal").read_text().splitlines()]
    edits = refused = merged = 0
    kept: list[str] = []
    for label in labels:
        reader = Reader(str(folder / "state"), session_id(label))
        entries = list(reader.entries())
        for event in (entry.event for entry in entries):
            match event:
                case ToolEnded(status="failed"):
                    refused += 1
                    kept.append(text_of(event.parts))
                case FileChanged() | FileSeen():
                    merged += isinstance(event, FileChanged) and bool(event.over)
                    names = (
                        [event.blob, event.over] if isinstance(event, FileChanged) else [event.blob]
                    )
                    kept += [reader.blob(name).decode() for name in names if name]
        mine = list(confirmed_tokens(entries))
        edits += len(mine)
        tokens += mine
        reader.close()
    everywhere = set("\n".join([*places, *kept]).split())
    standing = set("\n".join(places).split())
    more = sorted(
        p.name
        for p in (folder / "tree").iterdir()
        if p not in paths and not p.name.endswith(".editor")
    )
    return {
        "edits": edits,
        "refused": refused,
        "merged": merged,
        "outside": len(tokens) - edits,
        "standing": sum(token in standing for token in tokens),
        "lost": [token for token in tokens if token not in everywhere],
        "beside": [name for name in more if ".theirs" in name],
        "debris": [name for name in more if ".theirs" not in name],
    }


def confirmed_tokens(entries: Sequence[Entry]) -> Iterator[str]:
    """Return the tokens whose writes were confirmed to an agent."""
    calls: dict[str, str] = {}
    for entry in entries:
        event = entry.event
        for part in getattr(event, "parts", ()):
            if isinstance(part, ToolCall) and part.arguments:
                words = f"{part.arguments.get('new_string', '')}\n{part.arguments.get('content', '').split(chr(10))[0]}"  # noqa: E501
                calls[part.id] = words.strip().split("\n")[-1]
        if (
            isinstance(event, ToolEnded)
            and event.status == "ok"
            and event.name in ("Edit", "Write")
        ):
            yield calls[event.call]


def main(argv: Sequence[str]) -> int:
    """Run the campaign; see the module for its arguments."""
    parser = argparse.ArgumentParser()
    for name, default in [
        ("agents", 8),
        ("edits", 200),
        ("files", 5),
        ("processes", 2),
        ("kills", 0),
        ("seed", 1),
    ]:
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--pause", type=float, default=0.01)
    for name in ("folder", "role", "labels"):
        parser.add_argument(f"--{name}", default="")
    asked = parser.parse_args(argv)
    folder = Path(asked.folder or tempfile.mkdtemp(prefix="writers-"))
    files = [folder / "tree" / f"f{n}.txt" for n in range(asked.files)]
    match asked.role:
        case "agents":
            asyncio.run(run_agents(folder, asked.labels.split(","), files, asked.edits, asked.seed))
            return 0
        case "editor":
            run_editor(files, folder / "journal", asked.seed, asked.pause)
            return 0
    told = campaign(
        folder, agents=asked.agents, edits=asked.edits, files=asked.files,
        processes=asked.processes,
        kills=asked.kills, seed=asked.seed, pause_s=asked.pause,
    )  # fmt: skip
    print(json.dumps(told))
    return 1 if told["lost"] or told["debris"] or any(told["codes"]) else 0  # type: ignore[call-overload]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

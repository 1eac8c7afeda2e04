"""Stories of an agent and a user who change the same work tree, and a rewind at the end.

The user edits at any moment: between turns, while a command in the foreground runs, while a
background task runs, after a kill. Some stories kill longrein in a command, in the rewind, or both.
Each life of the session is a process of its own. `judge` compares the tree with what both did.
"""

import asyncio
import os
import pickle
import signal
import stat
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from itertools import takewhile
from pathlib import Path
from random import Random
from shutil import rmtree

import msgspec

from lab.support.tree_operations import NAMES, operations, picture, start_tree
from longrein.agent import Rewind
from longrein.agent.rewind_trees import printable
from longrein_context.events import CheckpointTaken, Rewound, TaskEnded, TaskStarted
from tests.agent.disk_harness import DiskHarness, Script, call, says, turn
from tests.store.fixtures import kill, run_in_process, wait_status
from tests.timeouts import until, wait_until

Picture = dict[str, tuple[str, int, bytes]]
REWIND_KILL_S = 0.25
"""A kill in a rewind falls within this time after its message."""


class Step(msgspec.Struct):
    """A command of the agent."""

    command: str
    is_held: bool = False
    """True if the user edits while it runs."""
    is_cut: bool = False
    """True if longrein is killed while it runs."""


class Turn(msgspec.Struct):
    """A turn of the agent, and what happens before it."""

    steps: list[Step]
    is_edited: bool = False
    """True if the user edits before the turn."""
    task: str = ""
    """`start` or `end`: what a background task does before the turn."""


class Record(msgspec.Struct):
    """What happened, in order, and the tree then: `end` of a turn at `seq`, or `paths` that
    changed.
    """

    kind: str
    """`end`, `user` (at rest), `during` (a command in the foreground), `between` (a killed rewind
    and the next start), `task` (in the background), `unknown` (a command that was cut).
    """
    seq: int = 0
    tree: Picture = {}
    paths: frozenset[str] = frozenset()


def different(before: Picture, after: Picture) -> frozenset[str]:
    """Return the paths that two pictures show differently."""
    return frozenset(
        path for path in before.keys() | after.keys() if before.get(path) != after.get(path)
    )


class RewindStory:
    """The story of one seed in a folder."""

    def __init__(self, folder: Path, seed: int, turns: int) -> None:
        self.seed, self.random = seed, Random(seed)
        self.git = seed % 2 == 0
        self.harness = DiskHarness(folder, checkpoints=True)
        self.signals = folder / "signals"
        self.signals.mkdir()
        self.file = folder / "records"
        self.kills = 0
        self.turns = self._draw(turns)
        self.is_killed_in_rewind = self.random.random() < 0.4
        start_tree(self.harness.tree, git=self.git)

    def _draw(self, count: int) -> list[Turn]:
        draw = self.random
        commands = operations(draw, count * 3, git=self.git)
        drawn = [Turn([])]
        task = ""
        for _ in range(count):
            steps = [Step(next(commands)) for _ in range(draw.randrange(1, 4))]
            for step in steps:
                step.is_held = draw.random() < 0.3
                step.is_cut = draw.random() < 0.06
            one = Turn(steps, draw.random() < 0.6)
            if draw.random() < 0.3:
                task = one.task = "end" if task == "start" else "start"
            drawn.append(one)
        return drawn

    # --- Playing ----------------------------------------------------------------------------------

    def play(self) -> str:
        """Play the story; return what is wrong at its end, or ''."""
        at = 0
        while at < len(self.turns):
            code = _wait_status(partial(self._live, at))
            if code == 0:
                break
            assert code == signal.SIGKILL, f"a life ended with wait status {code}"
            self.kills += 1
            at = self._carry_on()
        ends = [one for one in self.records() if one.kind == "end"]
        wanted = self.random.choice(ends[:-1] or ends)
        if self.random.random() < 0.5:
            self._edit("user")
        before = picture(self.harness.tree)
        status = _wait_status(partial(self._rewind, wanted.seq))
        if status:
            assert self.is_killed_in_rewind, f"the rewind ended with wait status {status}"
            assert os.WTERMSIG(status) == signal.SIGALRM, f"wait status {status}"
            self.kills += 1
            if self.random.random() < 0.3:
                at_kill = picture(self.harness.tree)
                self._edit("between")
                now = picture(self.harness.tree)
                for path in different(at_kill, now):
                    before.pop(path, None)
                    before |= {path: now[path]} if path in now else {}
            self.is_killed_in_rewind = False
            assert _wait_status(partial(self._rewind, wanted.seq)) == 0
        return self.judge(wanted, before)

    def records(self) -> list[Record]:
        """What has happened so far."""
        return list(_load(self.file)) if self.file.exists() else []

    def _record(self, one: Record) -> None:
        with self.file.open("ab") as file:
            pickle.dump(one, file)

    async def _live(self, first: int) -> None:
        """Play turns from number `first` on; the process kills itself in a step that is cut."""
        if first:  # the turn that was cut, and a notice of the task
            rest = Script(*[says("done")] * 5)
            async with self.harness.session(rest, create=False) as session:
                await session.run(once=True)
            self._note_end(first - 1)
        script: list[object] = []
        for one in self.turns[first:]:
            script += [says(call("Bash", command=self._line(step))) for step in one.steps]
            script.append(says("done"))
        async with self.harness.session(Script(*script), create=not first) as session:
            for number, one in enumerate(self.turns[first:], first):
                if one.task == "start":
                    session.append(TaskStarted("b1", "serve"))
                elif one.task == "end":
                    self._edit("task")
                    session.append(TaskEnded("b1", "done"))
                await session.commit(flush=True)
                if one.is_edited:
                    self._edit("user")
                watch = asyncio.ensure_future(self._watch(one, number))
                played = asyncio.ensure_future(turn(session, "go on"))
                await asyncio.wait((watch, played), return_when=asyncio.FIRST_COMPLETED)
                if watch.done():
                    await watch  # an error in it would leave a command waiting
                await played
                watch.cancel()
                self._note_end(number)

    def _line(self, step: Step) -> str:
        if not step.is_held and not step.is_cut:
            return step.command
        at = self.signals
        told = f"[ -e {at}/go ] || [ ! -d {at} ]"
        wait = f"until {told}; do sleep 0.005; done; rm {at}/go"
        first = f"touch {at}/opened; {wait}; " if step.is_cut else ""
        # After a kill nobody reads the output: an error of the shell itself would end it.
        again = f"{{ {step.command}; }} >/dev/null 2>&1"
        return f"{first}{step.command}; touch {at}/begun; {wait}; {again}; touch {at}/over"

    async def _watch(self, one: Turn, number: int) -> None:
        """Edit, or kill longrein, while a held command waits."""
        for step in one.steps:
            if not step.is_held and not step.is_cut:
                continue
            if step.is_cut:
                await self._until("opened")
                (self.signals / "tree").write_bytes(pickle.dumps(picture(self.harness.tree)))
                (self.signals / "go").touch()
            await self._until("begun")
            (self.signals / "over").unlink(missing_ok=True)
            if step.is_held:
                self._edit("during")
            if step.is_cut:
                (self.signals / "cut").write_text(str(number))
                os.kill(os.getpid(), signal.SIGKILL)
            (self.signals / "go").touch()

    async def _until(self, name: str) -> None:
        """Wait for a signal of the command and take it away."""
        await until((self.signals / name).exists)
        (self.signals / name).unlink()

    def _carry_on(self) -> int:
        """Let the command that was cut end; return the turn to go on with."""
        (self.signals / "go").touch()
        wait_until(lambda: (self.signals / "over").exists() and not (self.signals / "go").exists())
        number = int((self.signals / "cut").read_text())
        self._note_unknown()
        for one in list(self.signals.iterdir()):
            one.unlink()
        if self.random.random() < 0.5:
            self._edit("unknown")
        for step in self.turns[number].steps:
            step.is_cut = False
        return number + 1

    def _note_unknown(self) -> None:
        """Note the changes since the cut command began as those of nobody known."""
        found = pickle.loads((self.signals / "tree").read_bytes())
        changed = different(found, picture(self.harness.tree))
        self._record(Record("unknown", paths=changed))

    def _note_end(self, number: int) -> None:
        seq = self.harness.ends()[-1]
        if not any(one.kind == "end" and one.seq == seq for one in self.records()):
            self._record(Record("end", seq, picture(self.harness.tree)))

    def _edit(self, kind: str) -> None:
        """Change some files as the user."""
        tree = self.harness.tree
        draw = Random(f"{self.seed} {self.file.stat().st_size if self.file.exists() else 0}")
        before = picture(tree)
        for _ in range(draw.randrange(1, 4)):
            path = tree / draw.choice([*NAMES, "mine", "sub/mine", "x/mine"])
            try:
                _change(path, draw)
            except OSError:
                continue  # a file is where a folder should be
        after = picture(tree)
        self._record(Record(kind, 0, after, different(before, after)))

    async def _rewind(self, to: int) -> None:
        async with self.harness.session(Script(says("done")), create=False) as session:
            if self.is_killed_in_rewind:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.setitimer(signal.ITIMER_REAL, self.random.random() * REWIND_KILL_S)
            await session.run(once=True)  # what a killed rewind has left
            if not any(isinstance(entry.event, Rewound) for entry in self.harness.entries()):
                await turn(session, Rewind(to, files=True))
            signal.setitimer(signal.ITIMER_REAL, 0)

    # --- Judging ----------------------------------------------------------------------------------

    def judge(self, wanted: Record, before: Picture) -> str:
        """Return what is wrong with the tree after the rewind to `wanted`, or ''."""
        after = picture(self.harness.tree)
        entries = self.harness.entries()
        (rewound,) = [entry.event for entry in entries if isinstance(entry.event, Rewound)]
        if any(isinstance(e.event, CheckpointTaken) and e.event.problem for e in entries):
            return "a checkpoint failed"
        named = {put.path: put for put in rewound.files}
        after_wanted = self._after(wanted)
        later = [one for one in after_wanted if one.kind != "end"]
        root = str(self.harness.tree)
        # what changed before the next command is part of what the agent has found
        first = [*takewhile(lambda one: one.kind in ("user", "task"), after_wanted)]
        found = [wanted, *first][-1].tree
        at_rest = {path for one in later if one.kind in ("user", "between") for path in one.paths}
        not_told = {path for one in later if one.kind == "between" for path in one.paths}
        perhaps = {path for one in later for path in one.paths}
        kept = changed_at_rest(after_wanted[len(first) :], before)
        for path in sorted(after.keys() | before.keys() | wanted.tree.keys()):
            put = named.get(printable(os.path.join(root, path)))
            changed = after.get(path) != before.get(path)
            undone = after.get(path) in (wanted.tree.get(path), found.get(path))
            is_folder = "folder" in (_kind(one, path) for one in (before, after, wanted.tree))
            if is_folder:
                continue
            wrong = ""
            if changed and put is None and path in perhaps:
                wrong = "the user's, was changed and is not named"
            elif changed and path in kept:
                wrong = "changed by the user between two commands, was put back"
            elif changed and path in at_rest and not undone:
                wrong = "neither the user's nor the old one"
            elif changed and path in at_rest and after.get(path) != found.get(path):
                wrong = "changed by the user at rest, was put back"
            elif not undone and not any(_is_related(path, one) for one in perhaps):
                wrong = "the agent's, was not undone"
            elif not undone and put is None and path not in not_told:
                wrong = "was kept and is not named"
            if wrong:
                trees = [tree.get(path) for tree in (wanted.tree, before, after)]
                kinds = [one.kind for one in later if path in one.paths]
                return f"{path!r}: {wrong}; {trees}; {kinds}; {put}"
        return ""

    def _after(self, wanted: Record) -> list[Record]:
        """Records after the end `wanted`."""
        records = self.records()
        at = next(n for n, one in enumerate(records) if one.kind == "end" and one.seq == wanted.seq)
        return records[at + 1 :]


def changed_at_rest(records: list[Record], now: Picture) -> set[str]:
    """Return the paths that a time without a command has left otherwise than it found them.

    Folders are not judged, so a removed one is no change either. What the user took back before a
    killed rewind went on is none, and neither is a file that a command has removed since: there is
    nothing of the user's to keep.
    """
    found, removed = set[str](), set[str]()
    for at, end in enumerate(records):
        if end.kind == "end":
            rest = [*takewhile(lambda one: one.kind != "end", records[at + 1 :])]
            at_rest = takewhile(lambda one: one.kind in ("user", "task"), rest)
            last = [end, *at_rest][-1].tree
            changed = different(end.tree, last)
            removed |= changed - last.keys()
            for one in rest:
                if one.kind == "between":
                    changed -= one.paths - different(end.tree, one.tree)
            found |= {path for path in changed if _kind(end.tree, path) != "folder"}
    return found & (removed | now.keys())


def _wait_status(life: Callable[[], Awaitable[None]]) -> int:
    """Run one life of the session in a process; return its wait status."""
    pid = run_in_process(life)
    try:
        return wait_status(pid)
    except BaseException:  # the limit of the story
        kill(pid)
        raise


def _load(file: Path) -> Iterator[Record]:
    with file.open("rb") as stream:
        while True:
            try:
                yield pickle.load(stream)
            except EOFError:
                return


def _change(path: Path, draw: Random) -> None:
    luck = draw.random()
    if luck < 0.2 and os.path.lexists(path):
        rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    elif luck < 0.35 and path.is_file() and not path.is_symlink():
        path.chmod(draw.choice([0o600, 0o644, 0o755, 0o400]) | stat.S_IRUSR)
    elif luck < 0.5 and path.is_file():
        with path.open("ab") as file:
            file.write(b"more of the user's\n")
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"of the user %d\n" % draw.randrange(10**6))


def _kind(tree: Picture, path: str) -> str:
    return tree.get(path, ("", 0, b""))[0]


def _is_related(path: str, other: str) -> bool:
    return path == other or path.startswith(other + "/") or other.startswith(path + "/")

"""Random commands that plant links, folders and modes for longrein, then longrein's own work:
`python -m lab.campaigns.planted [SEQUENCES] [SEED]`.

A sequence mixes confined commands with the end of a command, the next start, masks, checkpoints,
rewinds and worktrees. The trap is a set of folders outside the roots. Nobody may read or change
anything in it: a change shows in the change times, a read in the access times, which are set far
back before. A failing sequence is printed in its shortest form.
"""

import asyncio
import json
import multiprocessing
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lab.support.spawner import spawner_in
from longrein.agent.rewind_trees import carry_out, make_plan
from longrein.permissions.rules import PROTECTED
from longrein.workspace import finish_worktree, make_worktree, open_workspace
from longrein.workspace.git_worktrees import BRANCHES, Worktree, list_worktrees
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.tree_records import CheckpointError
from tests.timeouts import HANG_S
from tests.workspace.test_sandbox_planted import LEVELS, USERS, Project, as_user, make_removable, no

SHRUNK_MAX = 4
"""Failing sequences of one kind that are shortened in a run."""
GIT_NAMES = (
    *("hooks", "config", "commondir", "config.worktree", "info", "info/exclude", "index", "logs"),
    *("worktrees", "objects", "objects/info", "objects/aa", "refs", "refs/heads", "HEAD"),
    *(f"refs/heads/{BRANCHES.rstrip('/')}", f"logs/refs/heads/{BRANCHES.rstrip('/')}"),
    *("modules", "modules/m", "modules/m/config", "modules/m/hooks"),
)
PROJECT_NAMES = (
    *(".venv", ".venv/bin", "venv", "config", "config/secrets", "config/secrets/a", "sub", "sub/f"),
    *("ignored", "ignored/f", "ignored/d", ".gitignore", "a", "new", "new/d", "new/.git", "sub/d"),
)
EXPECTED_READ = ".git/info"
"""Where git itself reads through links: patterns of ignored files, of which nothing is shown. Users
keep `info/exclude` as a link, so it is not refused.
"""
LINE_S = 3
"""Limit of a command, which may wait for a pipe that it has made."""
AT_ONCE = 20
"""Sequences of one process."""
NO_LINKED_MODES = 'chmod() { [ "$(realpath -m $2)" = "$PWD/$2" ] && command chmod "$@"; }; '
"""Keeps `chmod` from following links: Landlock (ABI 1 to 7) does not restrict it."""
HARNESS = ("!end", "!start", "!find_masks", "!checkpoint", "!rewind", "!worktree", "!finish")
MODES = ("000", "555", "755", "4777", "1777")


# --- Sequences ------------------------------------------------------------------------------------


def names() -> list[str]:
    """Return the names at which commands plant."""
    protected = [one.name.replace("*", "a") for one in PROTECTED]
    above = [name.partition("/")[0] for name in protected if "/" in name]
    own = [*(f".git/{name}" for name in GIT_NAMES), *PROJECT_NAMES]
    return [*protected, *above * 3, *own * 4]


def sequence(rng: random.Random) -> list[str]:
    """Make commands and harness actions: `!name` is an action, all else a shell line."""
    known, steps = rng.sample(names(), 5), list[str]()
    for _ in range(rng.randint(2, 5)):
        line = "; ".join(operation(rng, known) for _ in range(rng.randint(1, 3)))
        steps += [line, *rng.choices(HARNESS, k=rng.randint(0, 2))]
    return [*rng.choices(HARNESS, k=rng.randint(0, 2)), *steps, *rng.sample(HARNESS, 4)]


def operation(rng: random.Random, known: Sequence[str]) -> str:
    """Make one command. `@` stands for the folder of the trap, `%` for the project's."""
    name = rng.choice([*known, rng.choice(names())])
    other = rng.choice([*known, rng.choice(names())])
    target = rng.choice(
        [
            *("@/home/.config", "@/home/.ssh", "@/outside", "@/outside/canary", "@/outside/empty"),
            *("@/home/.ssh/id", "@/home", "../" * 9 + "@/outside", f"%/{other}", "sub", "nowhere"),
            *(os.path.basename(name), "%/config/secrets/a", "@/state"),
        ]
    )
    above = f"mkdir -p $(dirname {name})"
    return rng.choice(
        [
            *(f"{above}; rm -rf {name}; ln -sn {target} {name}",) * 4,
            *(f"{above}; ln -sn {target} {name}", f"rm -rf {name}", f"mv {name} {other}"),
            *(f"mkdir -p {name}", f"mkdir -p {name}/d", f"mkdir -p {name}; echo x > {name}/f"),
            *(f"{above}; mkfifo {name}", f"{above}; rm -rf {name}; mkfifo {name}"),
            *(f"{above}; echo x > {name}", f"{above}; ln config/secrets/a {name}"),
            *(f"{above}; ln a {name}", f"chmod {rng.choice(MODES)} {name}", "chmod 555 ."),
            *(f"cp -r .git {name}", f"echo {name} >> .gitignore", "git add -A"),
            f"unshare -Urm mount --bind {target} {name}",
        ]
    )


# --- One sequence ---------------------------------------------------------------------------------


class Trapped(Project):
    """A project with a repository, a denied file, and a trap around it."""

    def __init__(self, base: Path, rung: str) -> None:
        super().__init__(base, rung)
        (base / "outside/empty").mkdir(parents=True)
        (base / "outside/canary").write_text("canary")
        for name in ("sub/f", "config/secrets/a", "a", "ignored/f", ".gitignore"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_text("ignored\n")
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.home)}
        line = "git init -q; git add .; git -c user.name=n -c user.email=e commit -qm first"
        subprocess.run(["sh", "-c", line], cwd=self.root, env=environment, check=True)
        self.environment, self.kept = environment, list[str]()
        self.store = CheckpointStore(str(base / "state/s1/checkpoints"), environment)
        root = str(self.root)
        spawner = spawner_in(base / "spool", environment, [root], grace_s=1.0)
        self.space = open_workspace([root], spawner=spawner, environment=environment)
        self.obeyed = {path for path in self.protected() if os.path.lexists(path)}
        self.settings = self.read_settings()

    def protected(self) -> list[str]:
        root = str(self.root)
        found = [f"{root}/{one.name.replace('*', 'a')}" for one in PROTECTED]
        return [*found, *(f"{root}/.git/{name}" for name in GIT_NAMES[:4])]

    def read_settings(self) -> list[str]:
        git = self.root / ".git"
        return [(git / "config").read_text(), *sorted(os.listdir(git / "hooks"))]

    def play(self, step: str) -> None:
        """Run a command or do what longrein does."""
        if not step.startswith("!"):
            line = step.replace("@", str(self.base)).replace("%", str(self.root))
            before = NO_LINKED_MODES if self.rung == "landlock" else ""
            words = f"timeout {LINE_S} bash -c {shlex.quote(before + line)} 2>/dev/null"
            self.run(words, hidden="config/secrets/a")
            return
        with suppress(CheckpointError, OSError):
            getattr(self, step[1:])()

    def end(self) -> None:
        self.sandbox.end([str(self.root)])

    def start(self) -> None:
        self.open()
        self.sandbox.begin([str(self.root)], others_run=False)
        self.end()

    def find_masks(self) -> None:
        self.masks.find([str(self.root)], lambda path, _: path.endswith("/a"), no, "x", 9.0)

    def checkpoint(self) -> None:
        self.kept.append(self.store.take([str(self.root)])[0])

    def rewind(self) -> None:
        for name in self.kept[:1]:
            _, now = self.store.take([str(self.root)])
            for plan in make_plan(self.store, name, now, (), {}):
                carry_out(plan)
        self.sandbox.accept(["/"])

    def worktree(self) -> None:
        asyncio.run(self._make_worktree())

    async def _make_worktree(self) -> None:
        folder = str(self.base / "state/worktrees")
        await make_worktree(self.space, str(self.root), folder, f"t{len(self.kept)}")

    def finish(self) -> None:
        for tree in list_worktrees(str(self.base / "state/worktrees")):
            asyncio.run(self._finish(tree))

    async def _finish(self, tree: Worktree) -> None:
        await finish_worktree(self.space, tree)

    # --- Verdict ----------------------------------------------------------------------------------

    def trap(self) -> list[str]:
        return [str(self.base / name) for name in ("home/.config", "home/.ssh", "outside")]

    def left(self) -> list[str]:
        """Return what is obeyed and was made by commands, unless commands are refused now."""
        if self.sandbox.missing.refusal():
            return []
        made = [path for path in self.protected() if os.path.lexists(path)]
        found = [f"obeyed: {path}" for path in made if path not in self.obeyed]
        if not os.path.lexists(self.root / ".git"):
            return found
        with suppress(OSError):
            if self.read_settings() == self.settings:
                return found
        return [*found, "git's settings"]


def entries(folder: str) -> Iterator[str]:
    """Yield a folder and all in it, without a change of access times."""
    yield folder
    opened = os.open(folder, os.O_RDONLY | os.O_NOATIME)
    listed = os.listdir(opened)
    os.close(opened)
    for name in sorted(listed):
        path = f"{folder}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            yield from entries(path)
        else:
            yield path


def set_trap(folders: Sequence[str]) -> dict[str, Any]:
    """Set the access times far back, so that every read shows; return the state."""
    for folder in folders:
        for path in list(entries(folder)):
            os.utime(path, ns=(0, os.lstat(path).st_mtime_ns), follow_symlinks=False)
    return state_of(folders)


def state_of(folders: Sequence[str]) -> dict[str, Any]:
    """Return what `stat` tells of each entry."""
    found = {}
    for folder in folders:
        for path in entries(folder):
            told = os.lstat(path)
            times = told.st_mtime_ns, told.st_ctime_ns, told.st_atime_ns
            found[path] = (told.st_mode, told.st_nlink, told.st_uid, told.st_size, *times)
    return found


def differences(before: dict[str, Any], after: dict[str, Any], base: str) -> list[str]:
    """Name what was made, removed, changed or read."""
    found = []
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was == now:
            continue
        what = "made" if was is None else "removed"
        if was is not None and now is not None:
            what = "read" if was[:-1] == now[:-1] else "changed"
        found.append(f"{what}: {path.removeprefix(base)}")
    return found


def faults_of(steps: Sequence[str], base: Path, rung: str) -> list[str]:
    """Play a sequence in a new project; return what went wrong."""
    base.mkdir()
    try:
        project = Trapped(base, rung)
        before = set_trap(project.trap())
        signal.signal(signal.SIGALRM, hang)
        last = ""
        try:
            for last in steps:
                signal.alarm(int(HANG_S))
                project.play(last)
            project.end()
        except TimeoutError:
            return [f"hangs: {last}"]
        except Exception as error:
            return [f"{type(error).__name__} in {last if last[0] == '!' else 'a command'}: {error}"]
        finally:
            signal.alarm(0)
            os.close(project.namespace)
        found = differences(before, state_of(project.trap()), str(base))
        if EXPECTED_READ in " ".join(steps):
            found = [one for one in found if not one.startswith("read:")]
        return [*found, *(one.replace(str(base), "") for one in project.left())]
    finally:
        shutil.rmtree(base, onerror=make_removable)


def hang(*_: object) -> None:
    raise TimeoutError


def shortest(steps: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Leave out steps, then parts of commands, as long as the sequence fails."""
    at = 0
    while at < len(steps):
        fewer = [*steps[:at], *steps[at + 1 :]]
        parts = steps[at].split("; ")
        less = ["; ".join(parts[:n] + parts[n + 1 :]) for n in range(len(parts)) if len(parts) > 1]
        tries = [fewer, *([*steps[:at], line, *steps[at + 1 :]] for line in less)]
        smaller = next((one for one in tries if fails(one)), None)
        if smaller is None:
            at += 1
        else:
            steps = smaller
    return steps


def campaign(project: Project, seeds: Sequence[int]) -> dict[str, list[Any]]:
    """Play one sequence for each seed; return fault -> [count, seed, shortest sequence]."""
    found: dict[str, list[Any]] = {}
    number = 0

    def faults(steps: Sequence[str]) -> list[str]:
        nonlocal number
        number += 1
        return faults_of(steps, project.base / str(number), project.rung)

    for seed in seeds:
        steps = sequence(random.Random(seed))
        for fault in faults(steps):
            if fault not in found:
                kind = fault.partition(":")[0]
                is_new = sum(one.startswith(kind) for one in found) < SHRUNK_MAX
                found[fault] = [0, seed, steps]
                if is_new and kind != "hangs":
                    found[fault][2] = shortest(steps, lambda few, f=fault: f in faults(few))
            found[fault][0] += 1
    return found


def play_part(part: tuple[int, str, Sequence[int]]) -> tuple[str, int, dict[str, list[Any]]]:
    """Play the sequences of one user on one level."""
    uid, rung, seeds = part
    return f"{rung}, user {uid}", len(seeds), as_user(uid, rung, lambda one: campaign(one, seeds))


def main(arguments: Sequence[str]) -> int:
    """Play sequences on all levels and as all users; return 1 when one of them failed."""
    count, first = (*map(int, arguments), *(3_000, 1)[len(arguments) :])
    levels = [str(level.values[0]) for level in LEVELS if not any(m.args[0] for m in level.marks)]
    where = [(uid, rung) for rung in levels for uid in USERS]
    seeds = range(first, first + count)
    parts = [
        (*where[n // AT_ONCE % len(where)], seeds[n : n + AT_ONCE])
        for n in range(0, count, AT_ONCE)
    ]
    played: Counter[str] = Counter()
    failed = 0
    with multiprocessing.Pool(2) as pool:
        for told, number, found in pool.imap_unordered(play_part, parts):
            played[told] += number
            print(f"{told}: {played[told]} sequences, {len(found)} faults in the last", flush=True)
            for fault, details in found.items():
                print(f"  {fault}: {json.dumps(details)}", flush=True)
            failed += len(found)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

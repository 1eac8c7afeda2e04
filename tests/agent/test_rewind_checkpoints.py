"""What a rewind leaves alone, what it tells before, and what happens when something fails in
between.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.support.tree_operations import picture, user_git
from longrein.agent import Rewind
from longrein.agent.checkpoints import SessionCheckpoints
from longrein.agent.session_part import Checkpoints
from longrein.store import fork_log
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.tree_records import CheckpointError
from longrein_context.events import (
    SCHEMA_VERSION,
    CheckpointTaken,
    Entry,
    Opened,
    PrefixSet,
    Rewound,
    TaskEnded,
    TaskStarted,
    ToolEnded,
)
from tests.agent.disk_harness import SESSION, DiskHarness, Script, call, says, turn
from tests.agent.test_rewind_commands import back, turns
from tests.tables import cases
from tests.timeouts import until

pytestmark = pytest.mark.anyio


async def test_what_somebody_else_changed_is_kept_and_named(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    (harness.tree / "old").write_text("0")
    story = turns(
        [[], ["echo 1 > mine; echo 1 > theirs; echo 1 > old"], ["chmod 600 mine", "write edited=2"]]
    )
    async with harness.session(Script(*story)) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        (harness.tree / "theirs").write_text("by the user")
        (harness.tree / "new").write_text("by the user")
        await turn(session, "go on")
        began = harness.ends()[0]
        preview = await session.preview_rewind(began)
        names = [
            [Path(path).name for path in paths] for paths in (preview.restored, preview.removed)
        ]
        assert (names, [(Path(put.path).name, put.why) for put in preview.kept]) == (
            [["old"], ["edited", "mine"]],
            [
                ("new", "it was changed since by somebody else"),
                ("theirs", "it was changed since by somebody else"),
            ],
        )
        assert (harness.tree / "mine").read_text() == "1\n", "a preview changes nothing"
        kept = await back(session, began)
        assert [line.split()[0] for line in kept] == ["new", "theirs"]
        assert sorted(path.name for path in harness.tree.iterdir()) == ["new", "old", "theirs"]
        assert (harness.tree / "old").read_text() == "0"
        assert await back(session, began, overwrite=True) == []
        assert [path.name for path in harness.tree.iterdir()] == ["old"]


@pytest.mark.parametrize("edited_after", [1, 2, 3, 4])
async def test_a_file_of_the_agent_that_somebody_changed_is_kept(
    tmp_path: Path, edited_after: int
) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    commands = [["write a=1"], ["echo 1 > b"], ["echo 2 > b"], ["write c=1"]]
    async with harness.session(Script(*turns([[], *commands]))) as session:
        await turn(session, "begin")
        for number in range(1, 5):
            await turn(session, "go on")
            if number == edited_after:
                (harness.tree / "a").write_text("of the user")
        kept = await back(session, harness.ends()[0])
        assert kept == ["a it was changed since by somebody else"]
        assert picture(harness.tree).keys() == {"a"}


async def test_edits_before_the_first_command_are_undone_with_it(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    commands = ["write a=1", "write b=1", "echo 2 > b; echo 2 > c"]
    async with harness.session(Script(*turns([[], commands]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        assert picture(harness.tree).keys() == {"a", "b", "c"}
        assert await back(session, harness.ends()[0]) == []
        assert picture(harness.tree) == {}


async def test_after_a_rewind_the_model_of_now_answers(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)

    def stated() -> list[Entry]:
        return [entry for entry in harness.entries() if isinstance(entry.event, PrefixSet)]

    async with harness.session(Script(*turns([[], [], []]))) as session:
        await turn(session, "begin")
        session.append(session.deps.prefix(session.deps.model, "model"))
        await turn(session, "go on")
        *_, last = before = stated()
        assert len(before) == 2
        await back(session, harness.ends()[0])
        assert stated() == before, "what was stated last is in force still"
        assert session.state.prefix == last.event
        assert session.state.prefix_seq == last.seq


async def test_a_rewind_of_a_rewind_gives_the_tree_from_before(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    async with harness.session(
        Script(*turns([[], ["mkdir -p a/b; echo 1 > a/b/c; ln -s c a/b/d"]]))
    ) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        before = picture(harness.tree)
        await back(session, harness.ends()[0])
        assert picture(harness.tree) == {}
        rewound = next(entry.seq for entry in harness.entries() if isinstance(entry.event, Rewound))
        assert await back(session, rewound - 1) == []
        assert picture(harness.tree) == before
        await back(session, harness.ends()[0])
        assert picture(harness.tree) == {}


async def test_only_calls_that_may_change_files_have_checkpoints(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    bash = [
        call("Bash", command=text)
        for text in ("ls", "cat none", "git status", "echo 1 > a", "echo 2 > b")
    ]
    script = Script(says(*bash[:3]), says(*bash[3:]), says("done"))
    await harness.play(script, "go on")
    events = harness.of(CheckpointTaken)
    assert [(one.when, len(one.calls)) for one in events] == [
        ("before", 2),
        ("after", 1),
        ("after", 1),
    ]
    assert not any(one.problem for one in events)


@cases(
    "command users_rules left kept",
    ("rm .gitignore", "", ".gitignore secret", "secret"),
    ("echo > .gitignore", "mine\n", ".gitignore secret", ".gitignore secret"),
    ("git add -f secret", "", ".gitignore secret", "secret"),
    ("git add -f secret; echo 2 > secret", "", ".gitignore secret", "secret"),
    ("echo new > .gitignore; echo 1 > new.c; echo 1 > new", "", ".gitignore new secret", "secret"),
)
async def test_files_that_were_ignored_then_are_not_removed(
    tmp_path: Path, command: str, users_rules: str, left: str, kept: str
) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    user_git(harness.tree, "init", "-q")
    (harness.tree / ".gitignore").write_text("secret\n")
    (harness.tree / "secret").write_text("key")
    async with harness.session(Script(*turns([[], [command, "echo 1 > a"]]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        if users_rules:
            (harness.tree / ".gitignore").write_text(users_rules)
        preview = await session.preview_rewind(harness.ends()[0])
        why = {".gitignore": "it was changed since by somebody else"}
        why["secret"] = "`.gitignore` excluded it then, so it may be older"
        named = [f"{name} {why[name]}" for name in kept.split()]
        assert [f"{Path(put.path).name} {put.why}" for put in preview.kept] == named
        assert await back(session, harness.ends()[0]) == named
        found = {path.name for path in harness.tree.iterdir()} - {".git"}
        assert found == {*left.split()}
        rules = (harness.tree / ".gitignore").read_text()
        assert rules == (users_rules or "secret\n")


async def test_a_work_tree_that_a_command_removed_comes_back(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    (harness.tree / "a/b").mkdir(parents=True)
    (harness.tree / "a/b/c").write_text("1")
    before = picture(harness.tree)
    async with harness.session(Script(*turns([[], [f"rm -r {harness.tree}"]]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        assert not harness.tree.exists()
        assert await back(session, harness.ends()[0]) == []
        assert picture(harness.tree) == before


async def test_large_files_and_repositories_inside_are_skipped_and_named(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    (harness.tree / "inner").mkdir()
    with (harness.tree / "large").open("wb") as file:
        file.truncate((50 << 20) + 1)
    user_git(harness.tree / "inner", "init", "-q")
    (harness.tree / "inner/file").write_text("0")
    async with harness.session(
        Script(*turns([[], ["rm large; echo 1 > inner/file; echo 1 > a"]]))
    ) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        assert await back(session, harness.ends()[0]) == [
            "large its old content was not kept: larger than 50 MB"
        ]
        assert [path.name for path in harness.tree.iterdir()] == ["inner"]
        assert (harness.tree / "inner/file").read_text() == "1\n"
    store = CheckpointStore(str(harness.state / "kept"), dict(os.environ))
    _, records = store.take([str(harness.tree)])
    assert records[str(harness.tree)].skipped == {"inner": "a git repository of its own"}


@cases(
    "commands named",
    (2, "`echo 1 > a`, `echo 2 > a`"),
    (3, "`echo 1 > a`, `echo 2 > a`, `echo 3 > a`"),
    (5, "`echo 1 > a`, `echo 2 > a`, `echo 3 > a` and 2 more"),
)
async def test_without_git_only_edits_are_undone(tmp_path: Path, commands: int, named: str) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)

    def opener() -> SessionCheckpoints:
        return SessionCheckpoints(CheckpointStore(str(tmp_path / "kept"), {"PATH": ""}), 1 << 20)

    harness.opener = opener  # type: ignore[method-assign]
    story = turns([[], [*(f"echo {n} > a" for n in range(1, commands + 1)), "write b=1"]])
    async with harness.session(Script(*story)) as session:
        said: list[str] = []
        session.notice = said.append  # type: ignore[method-assign]
        await turn(session, "begin")
        await turn(session, "go on")
        preview = await session.preview_rewind(harness.ends()[0])
        assert preview.notes == (
            f"{named} ran without a checkpoint: git is not installed",
            "what commands changed is not restored: git is not installed",
        )
        await back(session, harness.ends()[0])
        assert sorted(path.name for path in harness.tree.iterdir()) == ["a"]
        assert said == [
            (
                "a rewind cannot undo what commands change (git is not installed); it restores "
                "what Edit and Write did"
            )
        ]


async def test_preview_says_what_rewind_does_with_and_without_conversation(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    commands = ["echo 1 > a; echo 1 > same", "echo 2 > a; echo 2 > z", "write b=1"]
    async with harness.session(Script(*turns([[], commands]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        ended = [entry.seq for entry in harness.entries() if isinstance(entry.event, ToolEnded)]

        async def check(restored: str, removed: str, **how: bool) -> None:
            preview = await session.preview_rewind(ended[0], **how)
            shown = [
                " ".join(Path(path).name for path in paths)
                for paths in (preview.restored, preview.removed)
            ]
            assert (shown, preview.kept, preview.missing) == ([restored, removed], (), ())
            assert [note.split()[0] for note in preview.notes] == ["what"]

        await check("", "a b same z")
        await check("a", "b z", conversation=False)
        await turn(session, Rewind(ended[0], files=True, conversation=False))
        assert {path.name: path.read_text() for path in harness.tree.iterdir()} == {
            "a": "1\n",
            "same": "1\n",
        }
        session.append(TaskStarted("b1", "serve"))
        session.append(TaskStarted("b2", "serve"))
        session.append(TaskEnded("b2", "done"))
        notes = (await session.preview_rewind(ended[0])).notes
        assert [note.split()[0] for note in notes] == ["what", "b1"]


async def test_what_changed_while_a_task_ran_is_kept_and_named(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    (harness.tree / "notes").write_text("0")
    commands = [["echo 1 > mine"], ["echo 1 > later"], ["echo 2 > later"]]
    async with harness.session(Script(*turns([[], *commands]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        session.append(TaskStarted("b1", "serve"))
        (harness.tree / "notes").write_text("of the user")
        (harness.tree / "new").write_text("of the user")
        await turn(session, "go on")
        session.append(TaskEnded("b1", "done"))
        (harness.tree / "last").write_text("of the user")
        await turn(session, "go on")
        why = "it changed while b1 was running, perhaps by you"
        expected = (("last", why), ("new", why), ("notes", why))
        preview = await session.preview_rewind(harness.ends()[0])
        assert tuple((Path(put.path).name, put.why) for put in preview.kept) == expected
        kept = await back(session, harness.ends()[0])
        assert kept == [f"{name} {reason}" for name, reason in expected]
        assert sorted(path.name for path in harness.tree.iterdir()) == ["last", "new", "notes"]
        await back(session, harness.ends()[0], overwrite=True)
        assert picture(harness.tree).keys() == {"notes"}
        assert (harness.tree / "notes").read_text() == "0"


async def test_what_changed_after_a_kill_in_a_command_is_kept_and_named(tmp_path: Path) -> None:
    harness = DiskHarness(tmp_path, checkpoints=True)
    (harness.tree / "notes").write_text("0")
    held = "echo 1 > made; touch begun; while [ ! -e go ]; do sleep 0.01; done; rm go begun"
    copy = DiskHarness(tmp_path, checkpoints=True)
    copy.state = tmp_path / "copy"
    async with harness.session(Script(*turns([["echo 1 > mine"], [held]]))) as session:
        await turn(session, "begin")
        running = asyncio.create_task(turn(session, "go on"))
        await until((harness.tree / "begun").exists)
        shutil.copytree(harness.state, copy.state)  # as a kill would leave it
        (harness.tree / "go").touch()
        await running
    (harness.tree / "notes").write_text("of the user")
    script = Script(says("it was cut"), *turns([["echo 2 > mine"]]))
    async with copy.session(script, create=False) as session:
        await session.run(once=True)
        (harness.tree / "after").write_text("of the user")
        await turn(session, "go on")
        kept = await back(session, copy.ends()[0])
        why = "it changed while a command that was cut was running, perhaps by you"
        assert kept == [
            f"made {why}",
            f"notes {why}",
            "after it was changed since by somebody else",
        ]
        assert (harness.tree / "mine").read_text() == "1\n"


async def test_run_that_ends_without_call_does_not_wait_for_the_first_look(tmp_path: Path) -> None:
    """It was made in case that a command comes."""
    harness, looks = DiskHarness(tmp_path, checkpoints=True), tmp_path / "looks"
    git = tmp_path / "bin/git"
    git.parent.mkdir()
    real, sleep = shutil.which("git"), shutil.which("sleep")
    git.write_text(
        f'#!/bin/sh\ncase "$*" in *diff-files*) : > {looks}; exec {sleep} 1000;; esac\n'
        f'exec {real} "$@"\n'
    )
    git.chmod(0o755)
    environment = os.environ | {"PATH": f"{git.parent}:{os.environ['PATH']}"}
    store = CheckpointStore(str(harness.state / "kept"), environment)
    harness.opener = lambda: SessionCheckpoints(  # type: ignore[method-assign]
        store, 1 << 20, keeps_index=False
    )
    async with harness.session(Script(says("Hello."))) as session:
        session.ensure(Checkpoints).warm()
        await until(looks.exists)
        await turn(session, "hi")
    with pytest.raises(CheckpointError, match="the session has ended"):
        store.take([str(harness.tree)])


def test_the_users_repository_is_not_touched(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    user_git(tree, "init", "-q")
    for name, text in {
        "a": "1\r\n",
        ".gitattributes": "* text eol=lf filter=x ident\n",
        "$Id$": "$Id$",
    }.items():
        (tree / name).write_bytes(text.encode())
    hook = tree / ".git/hooks/post-index-change"
    hook.write_text("#!/bin/sh\ntouch hooked\n")
    hook.chmod(0o755)
    user_git(tree, "-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "-qm", "x")
    user_git(tree, "add", "a")
    (tree / "hooked").unlink(missing_ok=True)
    before = {
        path: path.read_bytes() for path in sorted((tree / ".git").rglob("*")) if path.is_file()
    }
    store = CheckpointStore(str(tmp_path / "kept"), dict(os.environ))
    _, records = store.take([str(tree)])
    assert {
        path: path.read_bytes() for path in sorted((tree / ".git").rglob("*")) if path.is_file()
    } == before
    repository = store.repository(str(tree))
    files = repository.files(records[str(tree)])
    contents = dict(repository.contents(one.blob for one in files.values()))
    assert {name: contents[one.blob] for name, one in files.items()} == {
        "a": b"1\r\n",
        ".gitattributes": b"* text eol=lf filter=x ident\n",
        "$Id$": b"$Id$",
    }


KILLED = """
import asyncio, resource, signal, sys
from pathlib import Path
from longrein.agent import Rewind
from tests.agent.disk_harness import DiskHarness, Script, turn
async def main():
    harness = DiskHarness(Path(sys.argv[1]), checkpoints=True)
    async with harness.session(Script(), create=False) as session:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # a file above the limit kills the process
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, resource.RLIM_INFINITY))
        await turn(session, Rewind(harness.ends()[0], files=True))
asyncio.run(main())
"""


@pytest.mark.parametrize("killing", [0, 2])
async def test_a_killed_rewind_is_carried_on_by_the_next_open(tmp_path: Path, killing: int) -> None:
    """The process is killed while it writes the file with the number `killing`."""
    harness = DiskHarness(tmp_path, checkpoints=True)
    contents = {f"f{n}": bytes(8 << 20) if n == killing else str(n).encode() for n in range(4)}
    for name, content in contents.items():
        (harness.tree / name).write_bytes(content)
    changes = "rm f0; for n in 1 2 3; do echo new > f$n; done; echo 1 > g"
    await harness.play(Script(*turns([[], [changes]])), "a", "b")
    words = [sys.executable, "-c", KILLED, str(tmp_path)]
    process = await asyncio.create_subprocess_exec(*words, cwd=Path(__file__).parents[2])
    assert await process.wait() == -signal.SIGXFSZ
    assert not any(isinstance(entry.event, Rewound) for entry in harness.entries())
    async with harness.session(Script(), create=False) as session:
        await session.run(once=True)
    assert {path.name: path.read_bytes() for path in harness.tree.iterdir()} == contents
    (rewound,) = harness.of(Rewound)
    named = sorted((Path(put.path).name, put.done, put.removed) for put in rewound.files)
    assert named == [*((f"f{n}", True, False) for n in range(4)), ("g", True, True)], (
        "what was done before the kill too"
    )


async def test_a_fork_has_the_checkpoints_of_its_parent_and_both_go_on(tmp_path: Path) -> None:
    harness, fork = DiskHarness(tmp_path, checkpoints=True), "11111111-1111-4111-8111-111111111111"
    tree = harness.tree
    user_git(tree, "init", "-q")
    async with harness.session(Script(says("done"))) as session:
        await turn(session, "begin")
    place = Path(session.log.folder)
    own = CheckpointStore(str(place / "checkpoints"), dict(os.environ))
    (tree / "a").write_text("1")
    name, _ = own.take([str(tree)])
    first = Entry(1, 1, Opened(SCHEMA_VERSION, fork, "n0nce", (str(tree),), str(tree)))
    await fork_log(str(harness.state), SESSION, 2, first)
    copied = CheckpointStore(str(place.parent / fork / "checkpoints"), dict(os.environ))
    (tree / "a").write_text("2")
    later, _ = copied.take([str(tree)])
    (tree / "a").write_text("3")
    own.take([str(tree)])
    assert own.shrink(1) > 0
    repository = copied.repository(str(tree))
    for one, text in ((name, b"1"), (later, b"2")):
        blob = repository.files(copied.load(one)[str(tree)])["a"].blob
        assert dict(repository.contents([blob])) == {blob: text}
    with pytest.raises(CheckpointError):
        own.load(name)


def test_change_within_second_of_the_last_look_is_seen_by_the_next_process(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    names = []
    for mode in (0o644, 0o664, 0o600):
        (tree / "a").write_text("same size")
        (tree / "a").chmod(mode)
        store = CheckpointStore(str(tmp_path / "kept"), dict(os.environ))  # as a new process
        names.append(store.take([str(tree)])[1][str(tree)].modes.get("a", 0o644))
    assert names == [0o644, 0o664, 0o600]


# --- What could not be looked at ------------------------------------------------------------------

CLOSING = """
import asyncio, os, sys
from pathlib import Path
from tests.agent.disk_harness import DiskHarness, Script, turn
from tests.agent.test_rewind_commands import back, turns
async def main():
    harness = DiskHarness(Path(sys.argv[1]), checkpoints=True)
    (harness.tree / "d").mkdir()
    (harness.tree / "d/f").write_text("old")
    lines = ["echo new >> d/f; chmod 600 d/f; chmod 000 d", "mkdir e; echo 1 > e/g; chmod 000 e"]
    async with harness.session(Script(*turns([[], lines]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        to = harness.ends()[0]
        print(await back(session, to))
        for name in os.listdir(harness.tree):
            (harness.tree / name).chmod(0o755)
        print(sorted(await back(session, to)))
        print(await back(session, to, overwrite=True))
        file = harness.tree / "d/f"
        print(sorted(os.listdir(harness.tree)), file.read_text(), oct(file.stat().st_mode)[-3:])
asyncio.run(main())
"""


@pytest.mark.parametrize("may_read_all", [True, False])
async def test_a_closed_folder_is_named_or_restored(tmp_path: Path, may_read_all: bool) -> None:
    words = [sys.executable, "-c", CLOSING, str(tmp_path)]
    if may_read_all and os.getuid():
        pytest.skip("only root reads every folder")
    if not may_read_all and os.getuid() == 0:
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv to become an ordinary user")
        without = "-dac_override,-dac_read_search"
        words = ["setpriv", f"--bounding-set={without}", f"--inh-caps={without}", *words]
    process = await asyncio.create_subprocess_exec(
        *words, cwd=Path(__file__).parents[2], stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    closed = "it was not compared: the folder cannot be read"
    unread = "it changed while it could not be read, perhaps by you"
    found = [[], []] if may_read_all else [[f"d {closed}", f"e {closed}"]]
    if not may_read_all:
        found.append([f"f {unread}", f"g {unread}"])
    assert out.decode().splitlines() == [*map(str, found), "[]", "['d'] old 644"]


class BrokenStore(CheckpointStore):
    """A store whose git fails while the file `broken` exists."""

    def __init__(self, folder: Path, broken: Path) -> None:
        super().__init__(str(folder), dict(os.environ))
        self.broken = broken

    def take(self, roots: Sequence[str], **how: Any) -> Any:
        if self.broken.exists():
            raise CheckpointError("git: exit code -9")
        return super().take(roots, **how)


UNKNOWN = "it changed while a command without a checkpoint was running"


@cases(
    "failing command kept",
    ("before", "rm {broken}", {"mine": UNKNOWN, "rest": UNKNOWN}),
    ("after", "touch {broken}", {}),
    ("before and after", "true", {"mine": UNKNOWN}),
)
async def test_what_a_call_without_a_checkpoint_changed_is_not_called_somebody_elses(
    tmp_path: Path, failing: str, command: str, kept: dict[str, str]
) -> None:
    harness, broken = DiskHarness(tmp_path, checkpoints=True), tmp_path / "broken"
    (harness.tree / "rest").write_text("0")
    store = BrokenStore(harness.state / "kept", broken)
    harness.opener = lambda: SessionCheckpoints(store, 64 << 20)  # type: ignore[method-assign]
    commands = [["echo 1 > a"], [f"echo 1 > mine; {command.format(broken=broken)}"], ["echo 1 > b"]]
    async with harness.session(Script(*turns([[], *commands]))) as session:
        await turn(session, "begin")
        await turn(session, "go on")
        if failing.startswith("before"):
            broken.touch()
        if failing == "before":
            (harness.tree / "rest").write_text("of the user")
        await turn(session, "go on")
        broken.unlink(missing_ok=True)
        await turn(session, "go on")
        told = await back(session, harness.ends()[0])
    assert {line.split()[0] for line in told} == kept.keys()
    for line in told:
        assert kept[line.split()[0]] in line

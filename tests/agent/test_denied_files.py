"""A file that `Read(.env)` forbids: what a mask decides, other names, versions in git."""

import os
import subprocess
from pathlib import Path

import pytest

from lab.campaigns.harmless_commands import TEMPLATES, harmless_commands
from longrein.agent import OpenSession
from longrein.agent.current_rules import current_rules
from longrein.testing.scripted_model import call, says
from longrein.workspace.files import find_program
from tests.agent.disk_harness import DiskHarness, Script, turn
from tests.agent.test_what_is_asked import new_harness, opened, outcome
from tests.tables import cases, row

pytestmark = pytest.mark.anyio

DENY = ("Read(.env)", "Read(secrets/**)")
MASKED = (
    "du -sh *", "ls -d */", "find . -name '*.py' -exec wc -l {} +", "wc -l *", "grep -rn x .",
    "cat *.txt .[a-z]*", "find . -type f | xargs wc -l", "tar cf - . | wc -c", "head .e*",
    "for f in *; do cat $f; done", "cat $X", "cat .e${X}v", "ls -la .??*", "make", "npm test",
    "file .*", "while read f; do cat $f; done < a.txt", "$X", "diff -r . sub", "rg -uu KEY",
)  # fmt: skip
NAMED = (
    "cat .env", "cat ./.env", "cat sub/../.env", "cat < .env", "cat link", "cat .EnV", "du .env",
    "python3 -c 1 .env", "cat secrets/a", "cat secrets/*", "bash -c 'cat .env'", "cp .env x",
    "cat $PWD/.env", "$X cat .env", "(cd sub; cat ../.env)", "cat {.env,a.txt}",
)  # fmt: skip


def new_project(folder: Path) -> DiskHarness:
    harness = new_harness(folder)
    (harness.tree / ".env").write_text("KEY=canary\n")
    (harness.tree / "secrets").mkdir()
    (harness.tree / "secrets/a").write_text("canary\n")
    (harness.tree / "link").symlink_to(".env")
    return harness


@cases(
    "where guessed named",
    ("sandbox", {"runs"}, {"refused"}),
    ("landlock", {"runs", "refused"}, {"refused"}),
)
async def test_the_mask_decides_where_a_command_only_might_read_a_denied_file(
    tmp_path: Path, where: str, guessed: set[str], named: set[str]
) -> None:
    async with opened(new_project(tmp_path), "auto", where, deny=DENY) as session:
        found = {line: outcome(session, {"command": line}) for line in (*MASKED, *NAMED)}
    assert {found[line] for line in MASKED} == guessed
    assert {found[line] for line in NAMED} == named


PATTERNS = {
    "runs": ("cat *", "wc -l sub/*", "ls -d */", "cat ?nv", "cat [0:9] [6-0]"),
    "refused": (
        "cat .*", "cat .e*", "cat sub/.*", "cat .[a-z]*", "cat {.e,a}*", "cat .[Z-e]nv",
        "cat **/*", "shopt -s dotglob; cat *", "GLOBIGNORE=x; cat *", "cat secrets/?",
    ),
}  # fmt: skip
"""Outcomes without a mask: the shell's `*` matches no dot at the beginning of a name."""


async def test_a_pattern_of_the_shell_names_no_hidden_file(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    (harness.tree / "link").unlink()
    (harness.tree / "body[6-0]").write_text("x")
    async with opened(harness, "default", "no sandbox", deny=DENY) as session:
        for wanted, lines in PATTERNS.items():
            assert {line: outcome(session, {"command": line}) for line in lines} == dict.fromkeys(
                lines, wanted
            )
        for make in (os.symlink, os.link):
            make(harness.tree / ".env", harness.tree / "plain")
            assert outcome(session, {"command": "cat *"}) == "refused"
            (harness.tree / "plain").unlink()


async def test_a_wrapper_of_the_project_asks_like_a_program_of_the_project(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    for name in ("timeout", "tool"):
        (harness.tree / name).write_text("#!/bin/sh\n")
        (harness.tree / name).chmod(0o755)
    async with opened(harness, "default", "no sandbox") as session:
        assert outcome(session, {"command": "timeout 5 cat a.txt"}) == "runs"
        session.deps.workspace.find_program = (  # type: ignore[attr-defined]
            lambda name: str(harness.tree / name) if name == "timeout" else ""
        )
        assert outcome(session, {"command": "timeout 5 cat a.txt"}) == "asks"
        assert outcome(session, {"command": "nice timeout 5 cat a.txt"}) == "asks"
        assert outcome(session, {"command": "cat a.txt"}) == "runs"


# --- Other names of a denied file -----------------------------------------------------------------


async def test_a_hard_link_of_a_denied_file_is_denied_as_the_file(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    for name in ("other", "sub/other"):
        os.link(harness.tree / ".env", harness.tree / name)
    os.link(harness.tree / "a.txt", harness.tree / "fine")
    (harness.tree / "to_other").symlink_to("sub/other")
    names = ("other", "sub/other", "to_other", f"/proc/self/root{harness.tree}/other")
    for where in ("no sandbox", "sandbox", "landlock"):
        harness.state = tmp_path / where
        async with opened(harness, "default", where, deny=DENY, allow=("Bash(*)", "Edit")) as s:
            for name in names:
                assert outcome(s, {"file_path": name}) == "refused"
                assert outcome(s, {"command": f"cat {name}"}) == "refused"
                assert outcome(s, {"command": f"./x.py -v {name}"}) == "refused"
            assert outcome(s, {"file_path": "fine"}) == "runs"
            assert outcome(s, {"command": "cat fine"}) == "runs"
            is_hidden = current_rules(s).hidden_files()  # type: ignore[arg-type]
            assert is_hidden is not None
            shown = {
                path.name
                for path in harness.tree.rglob("*")
                if path.is_file() and not is_hidden(str(path), os.path.realpath(path))
            }
            assert shown == {"a.txt", "fine"}


async def test_a_hard_link_of_a_file_that_may_not_be_changed_is_not_changed(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    os.link(harness.tree / ".env", harness.tree / "other")
    async with opened(harness, "acceptEdits", "no sandbox", deny=("Edit(.env)",)) as session:
        assert outcome(session, {"file_path": "other", "content": "x"}) == "refused"
        assert outcome(session, {"command": "echo x > other"}) == "refused"
        assert outcome(session, {"file_path": "other"}) == "runs"


async def test_tools_neither_read_nor_find_a_denied_file_by_another_name(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    os.link(harness.tree / ".env", harness.tree / "other")
    model = Script(
        says(call("Grep", pattern="canary", output_mode="content")),
        says(call("Glob", pattern="*")),
        says(call("Read", file_path="other")),
        says(call("Bash", command="cat other")),
        says("done"),
    )
    async with opened(harness, "default", "no sandbox", deny=DENY) as session:
        session.deps.model = model  # type: ignore[attr-defined]
        await turn(session, "go")
    told = str([entry.event for entry in harness.entries()])
    assert told.count("forbids this") >= 2
    assert "canary" not in told.replace('pattern": "canary', "").replace("'canary'", "")


# --- Versions in git ------------------------------------------------------------------------------


def git(tree: Path, *words: str) -> str:
    who = {
        f"GIT_{one}_{what}": "t@t" for one in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    done = subprocess.run(
        ["git", *words],
        cwd=tree,
        check=True,
        capture_output=True,
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", **who},
    )
    return done.stdout.decode().strip()


async def judged(session: OpenSession, *lines: str) -> list[str]:
    """Judge commands as the loop does, after git was asked."""
    from longrein.agent.current_rules import GitContents
    from longrein.permissions import read_command

    inner = session
    contents = inner.find(GitContents) or inner.add(GitContents())  # type: ignore[attr-defined]
    read = [read_command(line, session.state.cwd, "/home/ann") for line in lines]
    await contents.look(current_rules(inner), read)  # type: ignore[arg-type]
    return [outcome(session, {"command": line}) for line in lines]


PRINTING = (
    "git diff", "git log -p -3", "git show", "git show HEAD", "git diff HEAD~1", "git blame a.txt",
    "git stash show -p", "git -C sub diff", "cd sub && git diff", "git --no-pager diff main",
    "git grep KEY", "git cat-file -p HEAD:a.txt", "$X; git branch -a", "$X $(git rev-parse HEAD)",
)  # fmt: skip
ALWAYS = (
    "git cat-file -p 1a2b3c4d", "git show 1a2b3c4d", "git show FETCH_HEAD", "git show $X",
    "git cat-file --batch < ids", "GIT_DIR=x git log -p", "git --git-dir=x log -p", "X git show",
    "export GIT_DIR=/x; git log -p", "ls | xargs git show", "$X git show", "git unknown",
    "git show v1-2-gabcd123", "git log -p 1A2B3C4D", "git grep --recurse-submodules --cached x",
    "git grep --untracked KEY", "git grep --untr KEY", "git grep --no-index KEY",
    "git diff-tree --stdin", "git show v1-3-gdeadbee", "git blame --contents x a.txt",
    "$X; git branch; git show", "$X; g=git; $g show", "$X; git -c a=b branch", "$X; git-show x git",
    "git grep -f l a", "git archive --add-file=a.txt HEAD", "git log -p dead^{commit}",
)  # fmt: skip
"""Commands whose objects git does not list."""


@pytest.mark.skipif(not find_program("git", os.environ["PATH"], ()), reason="git is not installed")
async def test_git_asks_only_if_it_keeps_a_denied_file(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    tree = harness.tree
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "a.txt")
    git(tree, "commit", "-qm", "one")
    first = git(tree, "rev-parse", "HEAD")
    async with opened(harness, "default", "sandbox", deny=DENY) as session:
        assert await judged(session, *PRINTING) == ["runs"] * len(PRINTING)
        assert (
            await judged(session, f"git show {first[:7]}", f"git diff {first}..main")
            == ["runs"] * 2
        )
        found = dict(zip(ALWAYS, await judged(session, *ALWAYS), strict=True))
        assert {line for line in ALWAYS if found[line] != "asks"} <= {"X git show"}
        assert await judged(session, "git log -p -- .env", "git show HEAD:.env") == ["refused"] * 2
        git(tree, "commit", "-qm", "two", "--allow-empty")
        assert await judged(session, "git diff") == ["runs"]


KEEPS = {
    "index": ("git add -f .env",),
    "commit": ("git add -f .env", "git commit -qm x", "git rm -q --cached .env"),
    "earlier commit": row(
        "git add -f .env", "git commit -qm x", "git rm -qf .env", "git commit -qm y"
    ),
    "branch": row(
        "git checkout -qb b", "git add -f .env", "git commit -qm x", "git checkout -qf main"
    ),
    "reflog": ("git add -f .env", "git commit -qm x", "git reset -q --hard HEAD~1"),
    "stash": ("git add -f .env", "git stash -q"),
    "folder": ("git add -f secrets", "git commit -qm x"),
    "subfolder": ("git add -f sub", "git commit -qm x"),
}


@pytest.mark.parametrize("kept", KEEPS)
@pytest.mark.skipif(not find_program("git", os.environ["PATH"], ()), reason="git is not installed")
async def test_a_version_anywhere_in_git_asks(tmp_path: Path, kept: str) -> None:
    harness = new_project(tmp_path)
    tree = harness.tree
    git(tree, "init", "-q", "-b", "main")
    git(tree, "add", "a.txt")
    git(tree, "commit", "-qm", "one")
    async with opened(harness, "default", "sandbox", deny=DENY) as session:
        assert await judged(session, "git diff") == ["runs"]
        (tree / "sub/.env").write_text("KEY=canary\n")
        for line in KEEPS[kept]:
            git(tree, *line.split()[1:])
        assert await judged(session, "git diff", "git log -p", "git show") == ["asks"] * 3
        assert await judged(session, "git log --oneline", "git diff --stat") == ["runs"] * 2


# --- Everyday commands ----------------------------------------------------------------------------


BUILDS = (
    "make -j4", "npm test", "npm run build", "pytest -x -q", "cargo test", "go test ./...",
    "tsc --noEmit", "ruff check .", "mypy src", "tox -e py311", "python -m build",
    "cmake --build build", "gcc -o /tmp/a a.c", "mvn -o -q test", "javac -d /tmp A.java",
    "pre-commit run -a", "npx eslint src", "make test 2>&1 | tee /tmp/log", "node script.js",
    "python3 -m pytest tests/test_a.py -k x 2>&1 | tail -20", "uv run pytest", "pip list",
    "python3 - <<'E'\nprint(1)\nE",
)  # fmt: skip


@pytest.mark.skipif(not find_program("git", os.environ["PATH"], ()), reason="git is not installed")
async def test_everyday_commands_are_neither_denied_nor_asked_in_sandbox(tmp_path: Path) -> None:
    harness = new_project(tmp_path)
    git(harness.tree, "init", "-q", "-b", "main")
    for name in ("src", "lib", "tests", "docs", "cmd"):
        (harness.tree / name).mkdir()
        (harness.tree / name / "file").write_text("x\n")
        git(harness.tree, "add", name)
    git(harness.tree, "commit", "-qm", "one")
    lines = [*BUILDS, *harmless_commands(len(TEMPLATES), seed=7)]
    async with opened(harness, "default", "sandbox", deny=("Read(.env)",)) as session:
        found = zip(lines, await judged(session, *lines), strict=True)
        assert [line for line in found if line[1] != "runs"] == []

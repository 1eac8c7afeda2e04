"""Links, folders, modes and renames that confined commands plant for longrein itself.

Each story runs on both levels of the sandbox; as root and as an ordinary user in turn, and in
`make load` as both. Nothing of the home may change or be read, and nothing that programs obey may
come into being in the project.
"""

import asyncio
import ctypes
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.support.spawner import spawner_in
from longrein.agent.rewind_trees import carry_out, make_plan
from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandSpec, make_worktree, open_workspace
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.root_copies import CheckpointStore
from longrein.workspace.sandbox import MaskIndex, SessionSandbox, landlock, protected
from longrein.workspace.sandbox.rung import Rung, find_rung
from longrein.workspace.supervisor import landlock_process, mount_process, openat
from longrein.workspace.supervisor.posix_spawn import spawn
from tests.seeds import TIMES
from tests.timeouts import HANG_S, until
from tests.workspace.conftest import supervised

assert ctypes
assert landlock_process
assert mount_process
BASH = shutil.which("bash") or "bash"
NOBODY = 65534
BEST = find_rung(os.environ, ())
FOUND = BEST.name
LEVELS = [
    pytest.param("bubblewrap", marks=pytest.mark.skipif(FOUND != "bubblewrap", reason="bwrap")),
    pytest.param(
        "landlock", marks=pytest.mark.skipif(bool(landlock.available()), reason="Landlock")
    ),
]
USERS = [0, NOBODY] if os.getuid() == 0 else [os.getuid()]
CANARY = "a secret of the user"


def one_user_each(names: Iterable[Any]) -> Any:
    """Each case on both levels: as one of the users in the suite, as all of them in `make load`."""
    found = []
    for number, name in enumerate(names):
        for order, level in enumerate(LEVELS):
            first = (number + order) % len(USERS)
            users = USERS if TIMES > 1 else USERS[first : first + 1]
            found += [pytest.param(name, *level.values, uid, marks=level.marks) for uid in users]
    return found


class Project:
    """A project and a home of one user, and commands in its sandbox. Runs in a child process."""

    def __init__(self, base: Path, rung: str) -> None:
        self.root, self.home = base / "project", base / "home"
        for folder in (self.root, self.home / ".config/longrein", self.home / ".ssh"):
            folder.mkdir(parents=True)
        (self.home / ".config/longrein/config.toml").write_text("# mine")
        (self.home / ".ssh/id").write_text(CANARY)
        (base / "state/s1").mkdir(parents=True)
        self.base, self.rung, self.printed = base, rung, ""
        self.moved: list[tuple[str, str]] = []
        self.masks = MaskIndex()
        self.namespace = mount_process.open_user_namespace()
        self.sandbox = self.open()

    def open(self, options: SandboxOptions = SandboxOptions(), path: str = "") -> SessionSandbox:  # noqa: B008 - frozen
        """Start a session: what was planted before counts for it."""
        sandbox = SessionSandbox(
            options,
            folder=str(self.base / "state/s1"),
            home=str(self.home),
            state_dir=str(self.base / "state"),
            environ={"PATH": path or f"/usr/bin:/bin:{self.root}/.venv/bin"},
            roots=[str(self.root)],
        )
        sandbox.rung = Rung(self.rung, BEST.reason)
        self.sandbox = sandbox
        sandbox.confine([str(self.root)], str(self.root), ())  # makes folders in home
        return sandbox

    def end(self, *roots: str) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
        """End a command; return what was moved away, and what is new and obeyed later."""
        self.sandbox.end(roots or [str(self.root)])
        report = self.sandbox.take_report()
        return list(report.moved), list(report.new)

    def run(self, line: str, hidden: str = "") -> None:
        """Run a command; keep what it prints and what was moved away after it."""
        root = str(self.root)
        self.sandbox.begin([root], others_run=False)
        if self.sandbox.missing.refusal():
            self.printed += "refused"
            return
        masks = self.masks.find([root], lambda p, _: hidden in p and hidden != "", no, hidden, 9.0)
        confinement = self.sandbox.confine([root], root, masks.hidden)
        assert confinement is not None
        reading, writing = os.pipe()
        here, nothing = os.open("/", os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
        env = {"PATH": "/usr/bin:/bin", "HOME": str(self.home), **confinement.env}
        limits = confinement.words, confinement.filter
        pid = spawn(
            line, BASH, root, env, writing, -1, nothing, here, limits, user_namespace=self.namespace
        )
        os.close(writing)
        with open(reading, encoding="utf-8", errors="replace") as output:
            self.printed += output.read()
        os.waitpid(pid, 0)
        self.moved += self.sandbox.missing.end()


def no(_path: str, _real: str) -> bool:
    return False


def as_user(uid: int, rung: str, play: Callable[[Project], Any]) -> Any:
    """Run `play` in a child process of a user and return its result."""
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    reading, writing = os.pipe()
    try:
        if uid != os.getuid():
            os.chown(base, uid, uid)
        pid = os.fork()
        if not pid:
            os.close(reading)
            try:
                if uid != os.getuid():
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # as in a process of this user
                found = play(Project(base, rung))
            except BaseException as error:
                found = {"error": f"{type(error).__name__}: {error}"}
            os.write(writing, json.dumps(found).encode())
            os._exit(0)
        os.close(writing)
        with open(reading, "rb") as file:
            told = file.read()
        os.waitpid(pid, 0)
        return json.loads(told)
    finally:
        shutil.rmtree(base, onerror=make_removable)


def make_removable(remove: Callable[[str], object], path: str, _error: object) -> None:
    for one in (os.path.dirname(path), path):
        if not os.path.islink(one):
            os.chmod(one, 0o700)
    if os.path.isdir(path) and remove is not os.unlink:
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        remove(path)


def picture(folder: Path) -> dict[str, str]:
    """Return the files and links below a folder with their content."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if ".cache" not in path.parts and (path.is_symlink() or path.is_file()):
            found[str(path)] = os.readlink(path) if path.is_symlink() else path.read_text()
    return found


# --- What is planted at protected names -----------------------------------------------------------

OBEYED = (
    *(".config/longrein", ".config/git", ".agents/skills", ".github/workflows", ".claude"),
    *(".vscode", ".mcp.json", ".envrc", ".git/hooks/post-checkout", ".git/commondir"),
)
STORIES: dict[str, Sequence[str]] = {
    "a folder that is closed, then a link to the user's settings": (
        "mkdir .config; echo evil > evil; ln -s $PWD/evil .config/longrein; chmod 555 .config",
        "chmod 755 .config; mv .config c2; ln -s ~/.config .config",
        "ls",
    ),
    "the same for git's settings": (
        "mkdir .config evil; ln -s $PWD/evil .config/git; chmod 555 .config",
        "chmod 755 .config; mv .config c2; ln -s ~/.config .config; true",
        "ls",
    ),
    "links above protected names": (
        "mkdir -p e/skills e/workflows; ln -s e .agents; ln -s e .github; ln -s e .config",
        "ls",
    ),
    "a folder above them that becomes a link": (
        "mkdir .config; echo x > .config/other",
        "mv .config c2; mkdir -p e/longrein; ln -s e .config",
    ),
    "closed folders": (
        "mkdir .claude; echo x > .claude/settings.json; chmod 000 .claude; chmod 555 .",
        "ls",
    ),
    "a pipe, a socket and a link that leads nowhere": (
        "mkfifo .mcp.json; ln -s nowhere .envrc; mkdir .vscode; mkfifo .vscode/tasks.json",
        "mkdir nowhere; ls",
    ),
    "a folder of pipes in place of a repository": (
        "mkdir -p .git/hooks; mkfifo .git/config; echo x > .git/hooks/post-checkout",
        "ls",
    ),
    "a deep chain of links": (
        "ln -s a .agents; ln -s b a; mkdir -p b/skills",
        "rm .agents; ln -s $HOME .agents",
    ),
}


@pytest.mark.parametrize(("story", "rung", "uid"), one_user_each(STORIES))
def test_what_is_planted_is_moved_beneath_the_project(story: str, rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        before = picture(project.home)
        for line in STORIES[story]:
            project.run(line)
        there = [name for name in OBEYED if os.path.lexists(project.root / name)]
        return {
            "home": picture(project.home) == before,
            "there": there,
            "moved": len(project.moved),
            "stuck": [path for path, place in project.moved if not place],
        }

    found = as_user(uid, rung, attempt)
    assert found == {"home": True, "there": [], "moved": found.get("moved"), "stuck": []}
    assert found["moved"]


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
def test_links_of_the_user_stay_and_what_they_lead_to_is_protected(rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        (project.root / "shared").mkdir()
        (project.root / ".github").symlink_to("shared")
        (project.root / ".claude").symlink_to("notes")
        project.run("mkdir shared/workflows; mkdir notes; echo x > notes/settings.json; ls")
        return {
            "links": [os.readlink(project.root / name) for name in (".github", ".claude")],
            "there": os.path.exists(project.root / "shared/workflows"),
            "notes": os.path.exists(project.root / "notes"),
        }

    found = as_user(uid, rung, attempt)
    assert found == {"links": ["shared", "notes"], "there": False, "notes": False}


def test_what_cannot_be_moved_stops_further_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    def attempt(project: Project) -> Any:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(13, "Permission denied")

        project.sandbox.begin([str(project.root)], others_run=False)
        (project.root / ".envrc").write_text("x")
        monkeypatch.setattr("os.rename", refuse)
        moved = project.sandbox.missing.end()
        told = [moved, project.sandbox.missing.refusal()]
        (project.root / ".envrc").unlink()
        return [*told, project.sandbox.missing.refusal(), str(project.root)]

    moved, refusal, later, root = as_user(os.getuid(), FOUND, attempt)
    assert moved == [[f"{root}/.envrc", ""]]
    assert refusal == (
        f"a command made {root}/.envrc, which could not be moved away (Permission denied): remove "
        "it"
    )
    assert later == ""


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
@pytest.mark.parametrize(("lines", "leads"), [
    # a worktree of the user: its git folder lies in the project
    (("echo $PWD/evil > .git/worktrees/wt/commondir",), ".git/worktrees/wt/commondir"),
    # links of the user, one after the other
    (("rm notes; ln -s evil notes", "ls"), ".claude/config"),
    # a link in place of a folder
    (("mv .vscode v; ln -s evil .vscode; ls",), ".vscode/config"),
    (("mv .git g; cp evil/config g; ln -s g .git; ls",), ".git/config"),
    # a new repository with settings for a submodule
    (("git init -q; mkdir -p .git/modules/m; echo evil > .git/modules/m/config", "ls"), "new"),
    # a file that lies under a protected name, too
    (("rm -f .mcp.json; ln other .mcp.json; ls",), "other"),
    # the same for the link of a link, and for a command that works in git
    (("echo x > f; git add f; git commit -qm two", "rm .claude; ln -s evil .claude"), "f"),
])  # fmt: skip
def test_what_leads_to_programs_stays(
    lines: Sequence[str], leads: str, rung: str, uid: int
) -> None:
    def attempt(project: Project) -> Any:
        root = project.root
        os.system(
            f"cd {root}; git init -q; git config user.name a; git config user.email a@b;"
            "git commit -q --allow-empty -m one; git worktree add -q ../wt;"
            "mkdir evil real new .vscode; echo '[core]\nfsmonitor = false # evil' > evil/config;"
            "echo other > other; echo '{}' > .mcp.json;"
            "ln -s real notes; ln -s notes .claude"
        )
        if leads == "new":
            project.root = root / "new"
        for line in lines:
            project.run(line)
        found = [one for one in (root / leads).rglob("config") if "evil" in one.read_text()]
        path = root / leads
        return {
            "evil": [*map(str, found)] or "evil" in (path.read_text() if path.is_file() else ""),
            "other": (root / "other").read_text(),
            "git": os.system(f"cd {root}; git log --oneline | grep -q {lines[0][-3:]}") == 0,
        }

    found = as_user(uid, rung, attempt)
    assert found == {"evil": False, "other": "other\n", "git": lines[0].endswith("two")}


@pytest.mark.parametrize("uid", USERS)
def test_what_the_user_makes_outside_the_project_stays(uid: int) -> None:
    """Settings of git may name files anywhere, also by `..`."""

    def attempt(project: Project) -> Any:
        (project.root / "settings").write_text("[a]")
        (project.root / ".git/objects").mkdir(parents=True)
        hooks = project.base / "hooks"
        (project.root / ".git/config").write_text(f"path = ../settings\nhooksPath = {hooks}")
        for _ in range(openat.WALKS):  # the first opens of a process take another way
            project.sandbox.begin([str(project.root)], others_run=True)
        hooks.mkdir()
        return project.sandbox.missing.end()

    assert as_user(uid, FOUND, attempt) == []


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
def test_a_root_that_became_a_link_is_not_followed(rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        roots = [str(project.root), str(project.root / "sub")]
        project.run(f"ln -s {project.home} sub")
        policy = project.sandbox.policy(roots, ())
        rules = landlock.rules_of(policy)
        named = [*policy.roots, *(path for path in rules if rules[path] & landlock.WRITE_FILE)]
        return str(project.home) in named

    assert as_user(uid, rung, attempt) is False


# --- What is shown --------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
@pytest.mark.parametrize("planted", ["~/tools/bin", "bin"])
def test_no_changeable_folder_decides_what_is_shown(planted: str, rung: str, uid: int) -> None:
    """A folder of the search path lies in a folder that commands may change, or leads there."""

    def attempt(project: Project) -> Any:
        home = project.home
        for folder in (home / "tools/bin", home / "docs", project.root / "bin"):
            folder.mkdir(parents=True)
        (home / "docs/a").write_text(CANARY)
        (home / "programs").symlink_to(project.root / "bin")
        path = f"/usr/bin:/bin:{home}/tools/bin:{home}/programs"
        for line in (f"rmdir {planted}; ln -s ~/docs {planted}", "cat ~/docs/a"):
            project.open(SandboxOptions(home_writable=("tools",)), path)
            project.run(line.replace("~", str(home)))
        return CANARY in project.printed

    assert as_user(uid, rung, attempt) is False


@pytest.mark.parametrize(
    ("planted", "rung", "uid"),
    one_user_each(
        [
            "mkdir -p .venv; ln -s ~/.ssh .venv/bin",
            "ln -s ~/.ssh .venv; ln -s ~ venv",
            "mkdir -p .venv/bin; ln -s ~/.ssh/python3 .venv/bin/python3",
            "mkdir -p .venv/bin; ln -s ~/x/bin/python3 .venv/bin/python3",
        ]
    ),
)
def test_nothing_in_the_project_decides_what_is_shown(planted: str, rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        (project.home / "x/bin").mkdir(parents=True)
        (project.home / "x/bin/python3").write_text("")
        (project.home / "x/lib").mkdir()
        (project.home / "x/lib/key").write_text(CANARY)
        os.environ["HOME"] = str(project.home)
        project.run(planted.replace("~", str(project.home)))
        project.open()
        project.run(
            f"cat {project.home}/.ssh/id {project.home}/x/lib/key .venv/bin/id venv/.ssh/id"
        )
        return CANARY in project.printed

    assert as_user(uid, rung, attempt) is False


@pytest.mark.parametrize(
    ("lines", "rung", "uid"),
    one_user_each(
        [
            ("mv config c2; cat c2/secrets/a", "cat c2/secrets/a", "cat config/secrets/a"),
            ("mv config/secrets s; cat s/a", "cat s/a"),
            ("mkdir x; mv config x/; cat x/config/secrets/a", "cat x/*/*/a"),
            ("ln config/secrets/a b; cat b", "cat b"),
            ("mv config/secrets/a b", "cat b"),
            ("ln -s config/secrets/a b; cat b", "cat b"),
            ("cat hard",),
        ]
    ),
)
def test_denied_files_stay_hidden_under_other_names(
    lines: Sequence[str], rung: str, uid: int
) -> None:
    def attempt(project: Project) -> Any:
        (project.root / "config/secrets").mkdir(parents=True)
        (project.root / "config/secrets/a").write_text(CANARY)
        os.link(project.root / "config/secrets/a", project.root / "hard")
        for line in lines:
            project.run(line, hidden="config/secrets/a")
        return project.printed

    assert CANARY not in as_user(uid, rung, attempt)


# --- Submodules -----------------------------------------------------------------------------------


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
def test_too_many_folders_of_submodules_lock_them_all(rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        os.system(f"cd {project.root} && git init -q")
        modules = project.root / ".git/modules"
        protected.SUBMODULE_FOLDERS_MAX = 20  # this process is the test's own
        for number in range(20):
            (modules / f"many/{number}").mkdir(parents=True)
        (modules / "deep/sub").mkdir(parents=True)
        for name in ("HEAD", "config"):
            (modules / "deep/sub" / name).write_text("old")
        project.run("echo evil >> .git/modules/deep/sub/config")
        return (modules / "deep/sub/config").read_text(), project.sandbox.take_problem()

    text, problem = as_user(uid, rung, attempt)
    assert (text, "commands cannot change submodules" in problem) == ("old", True)


# --- Files that the user replaces while a command runs --------------------------------------------


@pytest.mark.anyio
@pytest.mark.skipif(FOUND != "bubblewrap", reason="bubblewrap")
async def test_masks_and_locks_are_made_anew_when_the_user_replaces_a_file(tmp_path: Path) -> None:
    """An editor saves by rename, which takes a mount away from the old file."""
    root, home = tmp_path / "project", tmp_path / "home"
    for folder in (root / "config", root / ".claude", home, tmp_path / "state"):
        folder.mkdir(parents=True)
    for name in (".env", "lock", "config/key"):
        (root / name).write_text("old")
    sandbox = SessionSandbox(
        SandboxOptions(),
        folder=str(tmp_path / "state"),
        home=str(home),
        state_dir=str(tmp_path / "state"),
        environ=os.environ,
        roots=[str(root)],
    )
    told: list[str] = []
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    spawner = supervised(tmp_path / "spool", environment, [str(root)])
    spawner.notice = told.append
    hidden, locked = [f"{root}/.env", f"{root}/config/key"], [f"{root}/lock"]
    sink = CollectingSink()
    running = asyncio.ensure_future(
        spawner.run(
            CommandSpec(
                "touch up; until [ -e go ]; do sleep 0.02; done; cat .env config/key config2/key; "
                "echo new > lock; echo x > .claude/settings.json; id -u",
                str(root),
                environment,
                sandbox.confine([str(root)], str(root), hidden, locked),
            ),
            sink=sink,
            timeout_s=HANG_S,
            output_bytes_max=1 << 20,
        )
    )
    await until((root / "up").exists)
    for name, content in ((".env", CANARY), ("lock", "by the user")):
        (root / "new").write_text(content)
        (root / "new").rename(root / name)
        await until(lambda name=name: any(f"/{name} " in line for line in told))
    for name in ("config", ".claude"):
        (root / name).rename(root / "elsewhere")
        (root / "elsewhere").rename(root / name)
        await until(lambda name=name: any(f"/{name}" in line for line in told))
    (root / "go").write_text("")
    await running
    printed = sink.data.decode()
    assert "old" not in printed
    assert CANARY not in printed
    assert (root / ".env").read_text() == CANARY
    assert (root / "lock").read_text() == "by the user"
    assert os.listdir(root / ".claude") == []
    assert str(os.getuid()) in printed
    await spawner.drain()


# --- Files that are obeyed later ------------------------------------------------------------------


@pytest.mark.parametrize("rung", LEVELS)
def test_new_files_that_are_obeyed_later_are_moved_or_reported(rung: str) -> None:
    protected = "opencode.json .devcontainer.json a.code-workspace Jenkinsfile .travis.yml"
    lines = (
        f"touch {protected}; mkdir -p .kiro .qwen .cargo; touch .cargo/config.toml .cargo/notes",
        "mkdir sub; touch AGENTS.md sub/CLAUDE.md; git init -q sub; touch notes",
        "touch again; rm sub/CLAUDE.md",
    )

    def attempt(project: Project) -> Any:
        root, told = str(project.root), []
        for line in lines:
            project.sandbox.new_files.begin([root])
            project.run(line)
            told.append(project.sandbox.new_files.end([root]))
        names = [
            [os.path.relpath(path, root) for path, _ in found] for found in (project.moved, *told)
        ]
        return [*names, sorted(os.listdir(root))]

    moved, *told, left = as_user(os.getuid(), rung, attempt)
    assert {*moved} == {*protected.split(), ".kiro", ".qwen", ".cargo/config.toml"}
    assert told == [[], ["AGENTS.md", "sub/.git", "sub/CLAUDE.md"], []]
    assert left == [".cargo", "AGENTS.md", "again", "notes", "sub"]


# --- Links that longrein's own work meets ---------------------------------------------------------


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
def test_git_works_in_the_sandbox_and_its_hooks_stay(rung: str, uid: int) -> None:
    def attempt(project: Project) -> Any:
        repository(project)
        root, author = project.root, "git -c user.name=n -c user.email=e"
        project.run(f"echo y > a; {author} commit -qam two && git log --format=%s")
        project.run("git fsck; rm -rf .git/hooks; mkdir evil; ln -sn ../evil .git/hooks")
        return project.printed[:10], os.path.islink(root / ".git/hooks"), (root / "a").read_text()

    assert as_user(uid, rung, attempt) == ["two\nfirst\n", False, "y\n"]


def repository(project: Project) -> None:
    """Make the project a repository with one commit, and a folder outside."""
    (project.base / "outside").mkdir()
    (project.root / "a").write_text("x")
    (project.root / ".gitignore").write_text("ignored\n")
    author = "-c user.name=n -c user.email=e"
    os.system(f"cd {project.root}; git init -q; git add .; git {author} commit -qm first")


@pytest.mark.parametrize("rung", LEVELS)
def test_a_rewind_makes_no_folder_through_an_ignored_link(rung: str) -> None:
    def attempt(project: Project) -> Any:
        repository(project)
        root = str(project.root)
        store = CheckpointStore(str(project.base / "state/s1/checkpoints"), dict(os.environ))
        project.run("echo > .gitignore; mkdir -p ignored/empty kept/empty")
        name, _ = store.take([root])
        project.run(f"rm -r ignored kept; ln -s {project.base}/outside ignored; git checkout -q .")
        _, now = store.take([root])
        puts = [put for plan in make_plan(store, name, now, (), {}) for put in carry_out(plan)]
        failed = [os.path.relpath(put.path, root) for put in puts if not put.done]
        return os.listdir(project.base / "outside"), failed, os.listdir(project.root / "kept")

    assert as_user(os.getuid(), rung, attempt) == [[], ["ignored/empty"], ["empty"]]


@pytest.mark.parametrize(
    "name", ["logs", "refs/heads/longrein", "worktrees", "objects/pack", "logs/refs/heads/longrein"]
)
def test_no_git_of_longrein_writes_through_links_in_the_git_folder(name: str) -> None:
    def attempt(project: Project) -> Any:
        repository(project)
        root, outside = str(project.root), project.base / "outside"
        project.run(f"mkdir -p .git/logs; rm -rf .git/{name}; ln -sn {outside} .git/{name}")
        spawner = spawner_in(project.base / "spool", os.environ, [root], grace_s=1.0)
        space = open_workspace([root], spawner=spawner, environment=os.environ)
        made = asyncio.run(make_worktree(space, root, str(project.base / "state/trees"), "t"))
        return str(made).replace(root, ""), os.listdir(outside)

    why = f"/.git/{name} leads out of the git folder: remove the link"
    assert as_user(os.getuid(), FOUND, attempt) == [f"git cannot make a worktree: fatal: {why}", []]


@pytest.mark.parametrize("planted", [
    "ln -s ~/.ssh/id .git/info/exclude",
    "mkfifo .git/info/exclude",
    "mkfifo .git/index",
    "ln -s ~/.ssh .git/info",
])  # fmt: skip
def test_checkpoints_read_no_planted_list_of_ignored_files(planted: str) -> None:
    def attempt(project: Project) -> Any:
        repository(project)
        shutil.copy(project.home / ".ssh/id", project.home / ".ssh/exclude")
        place = planted.rpartition(" ")[2]
        project.run(f"rm -rf {place}; {planted.replace('~', str(project.home))}")
        store = CheckpointStore(str(project.base / "state/s1/checkpoints"), dict(os.environ))
        signal.alarm(int(HANG_S))  # a pipe without a writer stops the reader
        return (
            CANARY
            in (Path(store.repository(str(project.root)).folder) / "info/exclude").read_text()
        )

    assert as_user(os.getuid(), FOUND, attempt) is False


@pytest.mark.parametrize("uid", USERS)
@pytest.mark.parametrize("rung", LEVELS)
def test_random_plantings_touch_nothing_outside(rung: str, uid: int) -> None:
    """A slice of `python -m lab.campaigns.planted`."""
    from lab.campaigns.planted import campaign

    assert as_user(uid, rung, lambda project: campaign(project, range(1, 1 + TIMES))) == {}


@pytest.mark.parametrize("rung", LEVELS)
@pytest.mark.parametrize("steps", [
    ("rm -rf config/secrets; ln -sn @/outside config/secrets", "!start"),
    ("rm -rf .git/logs; ln -sn @/home/.config .git/logs", "!worktree"),
    ("rm -rf .git/hooks; ln -sn @/home/.config .git/hooks",),
])  # fmt: skip
def test_sequences_that_touched_what_lies_outside(steps: Sequence[str], rung: str) -> None:
    """Found by `python -m lab.campaigns.planted`."""
    from lab.campaigns.planted import faults_of

    found = as_user(os.getuid(), rung, lambda one: faults_of(steps, one.base / "1", one.rung))
    assert found == []


@pytest.mark.parametrize("rung", LEVELS)
def test_what_came_between_two_commands_is_kept_and_told_once(rung: str) -> None:
    """A process that a command left behind acts after the look at the command's end."""

    def attempt(project: Project) -> Any:
        root = [str(project.root)]
        project.run("true")
        (project.root / ".envrc").write_text("x")
        told = []
        for _ in range(2):
            project.sandbox.begin(root, others_run=False)
            moved, new = project.end()
            told.append([moved, [os.path.basename(path) for path, _ in new]])
        project.sandbox.begin(root, others_run=False)
        (project.root / ".vimrc").write_text("of a tool")
        project.sandbox.accept(["/"])
        project.end()
        project.sandbox.begin(root, others_run=False)
        return [*told, project.end(), (project.root / ".envrc").exists()]

    first, second, third, kept = as_user(os.getuid(), rung, attempt)
    assert (first, second, third, kept) == ([[], [".envrc"]], [[], []], [[], []], True)


@pytest.mark.skipif(FOUND != "bubblewrap", reason="bwrap")
@pytest.mark.parametrize("kind", [mount_process.COVER, mount_process.CLOSED, mount_process.READ])
def test_mounts_make_no_file_in_place_of_one_that_was_moved_meanwhile(kind: str) -> None:
    def attempt(project: Project) -> Any:
        root, gone = str(project.root), f"{project.root}/.envrc"
        mounts = [
            mount_process.Mount(mount_process.WRITE, root, root),
            mount_process.Mount(kind, gone, gone if kind == mount_process.READ else os.devnull),
            mount_process.Mount(mount_process.READ, f"{gone}/deep", os.devnull),
        ]
        made = mount_process.open_mount_namespace(
            mount_process.encode_plan(mounts), project.namespace
        )
        return [made >= 0, os.listdir(root)]

    assert as_user(os.getuid(), "bubblewrap", attempt) == [True, []]


@pytest.mark.parametrize("rung", LEVELS)
@pytest.mark.parametrize(("written", "moved", "new"), [
    ([], ".envrc .vscode .vimrc", "AGENTS.md sub/CLAUDE.md"),
    (["x"], ".envrc .vscode .vimrc", "AGENTS.md sub/CLAUDE.md"),
    ([".envrc"], ".vscode .vimrc", "AGENTS.md sub/CLAUDE.md"),
    ([".vscode/tasks.json"], ".envrc .vimrc", "AGENTS.md sub/CLAUDE.md"),
    ([".vimrc"], ".envrc .vscode", "AGENTS.md sub/CLAUDE.md"),
    (["AGENTS.md"], ".envrc .vscode .vimrc", "sub/CLAUDE.md"),
    (["sub/CLAUDE.md", ".envrc"], ".vscode .vimrc", "AGENTS.md"),
    ([""], "", ""),
])  # fmt: skip
def test_what_a_process_makes_meanwhile_is_not_accepted_with_what_longrein_writes(
    written: Sequence[str], moved: str, new: str, rung: str
) -> None:
    """A process that goes on waits for an edit, then for another command."""

    def attempt(project: Project) -> Any:
        root = project.root
        for name in ("old", "sub"):
            (root / name).mkdir()
        (root / ".vimrc").write_text("of the user")
        (root / "old/AGENTS.md").write_text("of the user")
        project.sandbox.begin([str(root)], others_run=False)
        found = project.end()
        (root / ".vscode").mkdir()
        for name in (".envrc", ".vimrc", ".vscode/tasks.json", "AGENTS.md", "sub/CLAUDE.md"):
            (root / name).write_text("planted")
        project.sandbox.accept([str(root / name) for name in written])
        project.sandbox.begin([str(root)], others_run=True)
        return [
            [os.path.relpath(path, root) for path, _ in paths]
            for told in (found, *(project.end() for _ in range(2)))
            for paths in told
        ]

    if rung == "bubblewrap":  # what exists is mounted read-only there
        moved = " ".join(name for name in moved.split() if name != ".vimrc")
    assert as_user(os.getuid(), rung, attempt) == [[], [], moved.split(), new.split(), [], []]


@pytest.mark.parametrize("rung", LEVELS)
def test_commands_in_two_roots_at_once_are_told_apart(rung: str) -> None:
    """One in the project, one of a subagent in its worktree."""

    def attempt(project: Project) -> Any:
        root, tree = project.root, project.root / "trees/one"
        tree.mkdir(parents=True)
        (tree / "AGENTS.md").write_text("of the user")
        sandbox = project.sandbox
        for roots in ([str(root)], [str(tree)]):
            sandbox.begin(roots, others_run=False)
        for folder in (root, tree):
            (folder / "CLAUDE.md").touch()
            (folder / "x.code-workspace").touch()
        (root / "mine.code-workspace").touch()
        sandbox.accept([str(root / "mine.code-workspace")])
        ends = [project.end(str(one)) for one in (root, tree, root, tree)]
        return [[os.path.relpath(path, root) for path, _ in found] for one in ends for found in one]

    moved = ["trees/one/x.code-workspace", "x.code-workspace"]
    told = [moved, ["CLAUDE.md"], [], ["trees/one/CLAUDE.md"], [], [], [], []]
    assert as_user(os.getuid(), rung, attempt) == told


@pytest.mark.parametrize("rung", LEVELS[1:])
def test_what_longrein_wrote_while_a_command_ran_is_put_back(rung: str) -> None:
    names = (".envrc", ".github/notes", ".vscode/tasks.json", ".vscode/more")

    def attempt(project: Project) -> Any:
        root = project.root
        for folder in (".github", ".vscode"):
            (root / folder).mkdir()
        (root / ".vscode/tasks.json").write_text("before")
        project.sandbox.begin([str(root)], others_run=False)
        for name in names[:3]:
            (root / name).write_text("longrein")
            project.sandbox.accept([str(root / name)])
        for name in names:
            (root / name).write_text("command")
        project.sandbox.end([str(root)])
        return [(root / name).read_text() if (root / name).exists() else "" for name in names]

    assert as_user(os.getuid(), rung, attempt) == ["longrein", "command", "longrein", ""]

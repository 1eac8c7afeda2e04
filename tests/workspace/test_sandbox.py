"""The sandbox of commands: what works in it, what does not, and the choice of the rung."""

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lab.campaigns import escapes
from lab.campaigns.builds import BUILDS, run_build
from lab.support.images import make_image
from longrein.settings_schema import SandboxOptions
from longrein.workspace import CommandExit, CommandSpec
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import MaskIndex, SessionSandbox, landlock
from longrein.workspace.sandbox.protected import git_folder, is_plain_repository
from longrein.workspace.sandbox.rung import Trial, find_rung
from longrein.workspace.sandbox.tool_caches import TOOL_CACHES
from longrein.workspace.supervisor.process_tree import environment_of, processes
from tests.tables import split_words
from tests.timeouts import HANG_S
from tests.workspace.conftest import supervised

pytestmark = pytest.mark.anyio

RUNG = find_rung(os.environ, ())
needs_bubblewrap = pytest.mark.skipif(
    RUNG.name != "bubblewrap", reason=f"bubblewrap: {RUNG.reason}"
)


class Confined:
    """A project with a git repository, and commands in its sandbox."""

    def __init__(self, base: Path, options: SandboxOptions | None = None) -> None:
        self.base, self.root, self.home = base, base / "project", base / "home"
        self.session = base / "state" / "sessions" / "s1"
        for folder in (self.root, self.home, self.session):
            folder.mkdir(parents=True)
        self.git("init", "-q", ".")
        self.env = {"PATH": os.environ["PATH"], "HOME": str(self.home)}
        self.sandbox = SessionSandbox(
            options or SandboxOptions(),
            folder=str(self.session),
            home=str(self.home),
            state_dir=str(base / "state"),
            environ=os.environ,
            roots=[str(self.root)],
        )
        self.spawner = supervised(self.session, self.env, [str(self.root)])

    def git(self, *words: str) -> str:
        who = {
            f"GIT_{who}_{what}": "t@t"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        told = subprocess.run(
            ["git", *words],
            cwd=self.root,
            check=True,
            env={"PATH": os.environ["PATH"], **who},
            capture_output=True,
        )
        return told.stdout.decode()

    async def run(
        self,
        line: str,
        *,
        hidden: tuple[str, ...] = (),
        locked: tuple[str, ...] = (),
        root: Path | None = None,
    ) -> tuple[CommandExit, str]:
        cwd = str(root or self.root)
        sink = CollectingSink()
        ended = await self.spawner.run(
            CommandSpec(line, cwd, self.env, self.sandbox.confine([cwd], cwd, hidden, locked)),
            sink=sink,
            timeout_s=HANG_S,
            output_bytes_max=1 << 20,
        )
        return ended, sink.data.decode()

    async def runs(self, line: str) -> bool:
        return (await self.run(line))[0].code == 0


@pytest.fixture
async def confined(tmp_path: Path) -> AsyncIterator[Confined]:
    one = Confined(tmp_path)
    yield one
    await one.spawner.drain()


# --- What is stopped ------------------------------------------------------------------------------


@needs_bubblewrap
@pytest.mark.parametrize("name", list(escapes.PROXY_ATTEMPTS))
async def test_attempts_past_the_proxy(tmp_path: Path, name: str) -> None:
    assert await escapes.run_all(tmp_path, [name], network=["good.example"]) == {}


@needs_bubblewrap
@pytest.mark.parametrize(
    "name", dict.fromkeys((*list(escapes.ATTEMPTS)[::5], "write: kernel", "system calls: all"))
)
async def test_no_attempt_leaves_the_sandbox(tmp_path: Path, name: str) -> None:
    assert await escapes.run_all(tmp_path, [name]) == {}


@needs_bubblewrap
async def test_S093_the_project_is_writable_and_nothing_else(confined: Confined) -> None:
    stopped = ("touch /outside", "touch .git/hooks/x", "echo >> .git/config", "touch /usr/x")
    works = (
        "touch made",
        "touch .git/objects/x",
        "echo x > /tmp/x && cat /tmp/x",
        "git add . && git status",
    )
    assert {line: await confined.runs(line) for line in stopped} == dict.fromkeys(stopped, False)
    assert {line: await confined.runs(line) for line in works} == dict.fromkeys(works, True)
    await confined.run(
        f"touch ~/.bashrc; touch {confined.base}/x"
    )  # in a home and a /tmp of their own
    assert not (confined.home / ".bashrc").exists()
    assert not (confined.base / "x").exists()


@needs_bubblewrap
async def test_commands_in_an_image_see_of_this_machine_the_roots_alone(tmp_path: Path) -> None:
    image = make_image(tmp_path / "image")
    (image / "etc").chmod(0o755)
    confined = Confined(tmp_path / "here", SandboxOptions(image=str(image)))
    secret = confined.root / ".env"
    secret.write_text("token\n")
    outside = tmp_path / "here/outside"
    outside.write_text("of this machine\n")
    works = (
        "cat /etc/image-release",
        "touch made /etc/made /tmp/made && cd ~/.cache/longrein/* && touch made",
    )
    stopped = (
        "cat .env",
        "touch .git/hooks/x",
        f"cat {outside}",
        "cat /etc/passwd",
        "ls /var /sys /root",
        "ls /oldroot",
        "touch /proc/sys/kernel/x",
    )
    for line in works:
        assert (await confined.run(line, hidden=(str(secret),)))[0].code == 0, line
    for line in stopped:
        assert (await confined.run(line, hidden=(str(secret),)))[0].code != 0, line
    assert (confined.root / "made").exists()
    assert (image / "etc/made").exists()
    assert not (image / "tmp/made").exists(), "it is in the /tmp of the session"


@needs_bubblewrap
@pytest.mark.parametrize("name", ["dev", "proc", "tmp", "var", "etc", "usr"])
@pytest.mark.parametrize("way", ["{}", "/oldroot{}", "/newroot/../oldroot{}", "/proc/1/root{}"])
async def test_links_in_an_image_lead_nowhere(tmp_path: Path, name: str, way: str) -> None:
    """A command may put a link at every name of its image before the next one begins."""
    image = make_image(tmp_path / "image")
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "kept").write_text("kept\n")
    confined = Confined(tmp_path / "here", SandboxOptions(image=str(image)))
    if (image / name).exists():
        (image / name).rename(image / "was")
    (image / name).symlink_to(way.format(victim))
    said = (await confined.run(f"cat /{name}/kept {victim}/kept; touch /{name}/x {victim}/x"))[1]
    assert "kept\n" not in said
    assert os.listdir(victim) == ["kept"]


@needs_bubblewrap
@pytest.mark.parametrize("network", [(), ("*",)])
async def test_S099_an_empty_list_of_domains_is_no_network(
    tmp_path: Path, network: tuple[str, ...]
) -> None:
    confined = Confined(tmp_path, SandboxOptions(network=network))
    async with await asyncio.start_server(
        lambda _reader, writer: writer.close(), "127.0.0.1", 0
    ) as server:
        port = server.sockets[0].getsockname()[1]
        assert await confined.runs(f"exec 3<>/dev/tcp/127.0.0.1/{port}") == bool(network)


@needs_bubblewrap
async def test_new_settings_are_moved_away_and_leave_nothing(confined: Confined) -> None:
    root, missing = str(confined.root), confined.sandbox.missing
    confined.sandbox.begin([root], others_run=False)
    await confined.run(
        "echo x > .mcp.json; mkdir -p .vscode; echo ../e > .git/commondir; echo fine > notes"
    )
    moved = dict(missing.end())
    assert sorted(moved) == [f"{root}/.git/commondir", f"{root}/.mcp.json", f"{root}/.vscode"]
    assert Path(moved[f"{root}/.mcp.json"]).read_text() == "x\n"
    assert sorted(os.listdir(root)) == [".git", "notes"]


@needs_bubblewrap
async def test_installed_programs_may_be_made_and_changed(confined: Confined) -> None:
    missing = confined.sandbox.missing
    confined.sandbox.begin([str(confined.root)], others_run=False)
    await confined.run(
        "mkdir -p .venv/bin node_modules/.bin && echo x | tee .venv/bin/tool > "
        "node_modules/.bin/tool"
    )
    assert missing.end() == []
    assert await confined.runs("echo y > .venv/bin/tool && echo y > node_modules/.bin/tool")


async def test_what_longrein_itself_made_is_not_moved(tmp_path: Path) -> None:
    confined = Confined(tmp_path)
    missing = confined.sandbox.missing
    confined.sandbox.begin([str(confined.root)], others_run=False)
    (confined.root / ".envrc").write_text("x")
    missing.accept(["/"])
    assert missing.end() == []


# --- What works -----------------------------------------------------------------------------------


@needs_bubblewrap
async def test_ends_of_confined_commands_are_those_of_others(confined: Confined) -> None:
    (confined.root / "sub").mkdir()
    ends = {
        line: (await confined.run(line))[0]
        for line in ("exit 3", "kill -9 $$", "cd sub", "nope", "true")
    }
    assert {line: (end.code, end.signal) for line, end in ends.items()} == {
        "exit 3": (3, ""),
        "kill -9 $$": (None, "SIGKILL"),
        "cd sub": (0, ""),
        "nope": (127, ""),
        "true": (0, ""),
    }
    assert ends["cd sub"].cwd == f"{confined.root}/sub"
    _, printed = await confined.run("nope")
    assert printed == "bash: line 1: nope: command not found\n"
    await confined.spawner.drain()


@needs_bubblewrap
async def test_what_a_confined_command_leaves_running_goes_on_until_the_end(
    confined: Confined,
) -> None:
    ended, _ = await confined.run(
        "(while :; do echo x >> beats; sleep 0.02; done) > /dev/null 2>&1 &"
    )
    assert ended.code == 0
    beats = confined.root / "beats"
    until = time.monotonic() + HANG_S
    while not beats.exists() or beats.stat().st_size < 6:
        assert time.monotonic() < until
        await asyncio.sleep(0.01)
    await confined.spawner.drain()
    size = beats.stat().st_size
    await asyncio.sleep(0.1)
    assert beats.stat().st_size == size


@needs_bubblewrap
async def test_a_timeout_ends_the_tree_in_the_sandbox(confined: Confined) -> None:
    sink, root, mark = CollectingSink(), str(confined.root), f"71.{os.getpid()}"
    ended = await confined.spawner.run(
        CommandSpec(
            f"export LIMIT={mark}; setsid sleep {mark} & trap '' TERM; sleep {mark}",
            root,
            confined.env,
            confined.sandbox.confine([root], root, ()),
        ),
        sink=sink,
        timeout_s=0.3,
        output_bytes_max=1 << 20,
    )
    assert ended.cause == "timeout"
    await confined.spawner.drain()
    assert not [
        one
        for one in processes()
        if b"SANDBOX=" in environment_of(one) and mark.encode() in environment_of(one)
    ]


@needs_bubblewrap
async def test_git_commits_in_a_project_a_folder_of_it_and_a_worktree(confined: Confined) -> None:
    (confined.root / "sub").mkdir()
    commit = "echo x >> f && git add f && git -c user.name=t -c user.email=t@t commit -qm x"
    assert (await confined.run(commit))[0].code == 0
    assert (await confined.run(commit, root=confined.root / "sub"))[0].code == 0
    tree = confined.base / "tree"
    confined.git("worktree", "add", "-q", str(tree))
    assert (await confined.run(commit, root=tree))[0].code == 0
    ended, _ = await confined.run("git config core.pager x", root=tree)
    assert ended.code != 0
    assert len(confined.git("log", "--all", "--format=%h").split()) == 3


@needs_bubblewrap
async def test_a_new_repository_may_be_made(confined: Confined) -> None:
    root = confined.base / "new"
    root.mkdir()
    missing = confined.sandbox.missing
    confined.sandbox.begin([str(root)], others_run=False)
    ended, _ = await confined.run("git init -q", root=root)
    assert ended.code == 0
    assert missing.end() == []
    assert is_plain_repository(f"{root}/.git")
    (root / ".git/config").write_text("[core]\n\tfsmonitor = x\n")
    assert not is_plain_repository(f"{root}/.git")


async def test_a_git_file_that_names_a_foreign_folder_is_not_believed(confined: Confined) -> None:
    other = confined.base / "other"
    other.mkdir()
    (other / ".git").write_text(f"gitdir: {confined.root}/.git\n")
    assert git_folder(str(other), str(confined.home)) is None


@pytest.mark.parametrize(("inside", "made", "is_believed"), [
    ("repository/worktrees/one", "HEAD objects/", True),
    ("repository/worktrees/one", "HEAD objects", False),
    ("repository/worktrees/one", "objects/", False),
    ("repository/worktrees/one", "HEAD", False),
    ("repository/worktrees/one/deeper", "HEAD objects/", False),
    ("repository/elsewhere/one", "HEAD objects/", False),
    ("repository", "HEAD objects/", False),
    ("evil", "HEAD objects/", False),
    ("evil", "", False),
])  # fmt: skip
async def test_a_worktree_has_its_git_folder_among_those_of_a_repository(
    confined: Confined, inside: str, made: str, is_believed: bool
) -> None:
    root, folder = confined.base / "one", confined.base / inside
    repository = confined.base / "repository"
    for new in (root, folder, repository):
        new.mkdir(parents=True, exist_ok=True)
    for name in made.split():
        new = repository / name
        if name.endswith("/"):
            new.mkdir()
        else:
            new.touch()
    (root / ".git").write_text(f"gitdir: {folder}\n")
    (folder / "gitdir").write_text(f"{root}/.git\n")
    (folder / "commondir").write_text(f"{repository}\n")
    assert (git_folder(str(root), str(confined.home)) is not None) is is_believed


@needs_bubblewrap
async def test_files_that_protected_links_and_settings_lead_to_are_protected(
    confined: Confined,
) -> None:
    outside = confined.base / "outside"
    for folder in (
        confined.root / "hooks",
        confined.root / "shared",
        confined.root / ".claude",
        outside,
    ):
        folder.mkdir()
    confined.git("config", "core.hooksPath", "hooks")
    (confined.root / ".codex").symlink_to("shared")
    (confined.root / ".claude" / "skills").symlink_to(outside)
    await confined.run("touch hooks/pre-commit shared/config.toml .claude/skills/x; touch fine")
    assert sorted(os.listdir(confined.root)) == split_words(".claude .codex .git fine hooks shared")
    assert [
        os.listdir(one) for one in (confined.root / "hooks", confined.root / "shared", outside)
    ] == [[], [], []]


# --- Files that rules hide ------------------------------------------------------------------------


@needs_bubblewrap
async def test_what_took_the_place_of_a_hidden_file_is_hidden_from_the_next_command(
    confined: Confined,
) -> None:
    """Commands of one plan share their mounts; the user's editor saves by rename between them."""
    hidden, folder = confined.root / ".env", confined.root / "secrets"
    folder.mkdir()
    for number in range(8):
        saved = confined.base / "saved"
        saved.write_text(f"token {number}\n")
        saved.rename(hidden)
        if number % 2:
            folder.rename(confined.base / f"secrets-{number}")
            folder.mkdir()
        (folder / "key").write_text("token\n")
        for _ in range(2):
            masked = (str(hidden), str(folder))
            ended, said = await confined.run("cat .env secrets/key; ls -A; :> made", hidden=masked)
            assert "token" not in said
            assert (ended.code, "made" in os.listdir(confined.root)) == (0, True), said
    assert await confined.runs("cat secrets/key"), "without a mask it can be read"
    await confined.spawner.drain()


def test_masks_follow_new_files(tmp_path: Path) -> None:
    index = MaskIndex()

    def find() -> list[str]:
        masks = index.find(
            [str(tmp_path)], lambda path, _: path.endswith(".env"), lambda *_: False, "rule", HANG_S
        )
        assert masks.problem == ""
        return sorted(path.removeprefix(f"{tmp_path}/") for path in masks.hidden)

    (tmp_path / "deep/er").mkdir(parents=True)
    assert find() == []
    (tmp_path / "deep/er/.env").write_text("x")
    assert find() == ["deep/er/.env"]
    (tmp_path / "a.env").symlink_to("deep/er/file")
    (tmp_path / "deep/er/file").write_text("x")
    assert find() == ["deep/er/.env", "deep/er/file"]
    os.utime(tmp_path / "deep/er", (1, 1))
    os.link(tmp_path / "deep/er/.env", tmp_path / "other")
    assert find() == ["deep/er/.env", "deep/er/file", "other"]
    os.link(tmp_path / "deep/er/.env", tmp_path.parent / f"{tmp_path.name}-link")
    masks = index.find(
        [str(tmp_path)], lambda path, _: path.endswith(".env"), lambda *_: False, "rule", HANG_S
    )
    assert "hard link" in masks.problem


def env_files(path: str, _real: str) -> bool:
    return path.endswith("/.env")


@needs_bubblewrap
@pytest.mark.parametrize("line", [
    "mkdir new; echo canary > new/.env",
    "mv conf new",
    "touch -r . /tmp/times; mv conf new; touch -r /tmp/times .",
    "touch -r . /tmp/times; mkdir conf/in; mv sub conf/in; touch -r /tmp/times .",
    "mkdir new; mv conf/* conf/.e* new; rmdir conf; mv new conf",
    "mv conf x; mv sub conf; mv x sub",
    "cp -r conf new; ln -s conf link; ln conf/.env new/name",
])  # fmt: skip
async def test_what_a_command_moves_stays_hidden_from_the_next_one(
    confined: Confined, line: str
) -> None:
    for folder in ("conf", "sub"):
        (confined.root / folder).mkdir()
        (confined.root / folder / ".env").write_text("canary")
    index, root = MaskIndex(), str(confined.root)

    def hidden() -> tuple[str, ...]:
        return index.find([root], env_files, lambda *_: False, "rule", HANG_S).hidden

    for _ in range(3):  # until the folders are known and not read again
        assert len(hidden()) == 2
        await asyncio.sleep(0.06)
    await confined.run(line, hidden=hidden())
    _, printed = await confined.run(
        "cat .env */.env */*/.env */*/*/.env; grep -r canary .", hidden=hidden()
    )
    assert "canary" not in printed


@needs_bubblewrap
async def test_a_lock_shows_nothing_that_the_sandbox_hides(confined: Confined) -> None:
    (confined.home / "secret").write_text("canary")
    (confined.root / "a.lock").write_text("text")
    await confined.run(f"ln -s {confined.home}/secret b.lock")
    found = MaskIndex().find(
        [str(confined.root)], env_files, lambda path, _: path.endswith(".lock"), "rule", HANG_S
    )
    assert sorted(found.locked) == [str(confined.home / "secret"), str(confined.root / "a.lock")]
    _, printed = await confined.run("cat ~/secret; echo x > a.lock", locked=found.locked)
    assert "canary" not in printed
    assert (confined.root / "a.lock").read_text() == "text"


async def test_new_settings_are_found_whatever_time_their_folder_has(tmp_path: Path) -> None:
    confined = Confined(tmp_path)
    missing = confined.sandbox.missing
    for name in (".envrc", ".git/commondir"):
        for _ in range(2):  # until the folders are known
            confined.sandbox.begin([str(confined.root)], others_run=False)
            assert missing.end() == []
            await asyncio.sleep(0.06)
        confined.sandbox.begin([str(confined.root)], others_run=False)
        before = (confined.root / name).parent.stat()
        (confined.root / name).write_text("x")
        os.utime((confined.root / name).parent, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert [path for path, _ in missing.end()] == [str(confined.root / name)]
    confined.sandbox.begin([str(confined.root)], others_run=False)
    assert missing.end() == []


# --- The rung -------------------------------------------------------------------------------------


def test_S094_a_program_that_does_not_work_is_no_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(landlock, "available", lambda: "no Landlock either")
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text(
        "#!/bin/sh\necho 'bwrap: No permissions to create a new namespace' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    environ = {"PATH": f"{fake.parent}:{os.environ['PATH']}"}
    rung = find_rung(environ, ())
    assert (rung.name, rung.reason) == (
        "none",
        (
            "bubblewrap does not work here: No permissions to create a new namespace; no Landlock "
            "either"
        ),
    )
    assert find_rung(environ, (str(tmp_path),)).reason != rung.reason, (
        "a program of the project is not used"
    )
    monkeypatch.setattr(landlock, "available", lambda: "")
    assert find_rung(environ, ()).name == "landlock"


class FakeBubblewrap:
    """A program in place of bubblewrap that counts its runs."""

    def __init__(self, folder: Path) -> None:
        self.program, self.runs = folder / "bin" / "bwrap", folder / "runs"
        self.kept = str(folder / "sandbox.json")
        self.program.parent.mkdir()
        self.becomes(0)

    def becomes(self, code: int) -> None:
        self.program.write_text(f"#!/bin/sh\necho x >> {self.runs}\nexit {code}\n")
        self.program.chmod(0o755)

    def trial(self) -> Trial:
        return Trial({"PATH": f"{self.program.parent}:{os.environ['PATH']}"}, (), self.kept)

    @property
    def run_count(self) -> int:
        return len(self.runs.read_text().splitlines()) if self.runs.exists() else 0


def test_a_success_of_the_trial_counts_until_the_first_command(tmp_path: Path) -> None:
    fake = FakeBubblewrap(tmp_path)
    first = fake.trial()
    assert (first.rung.name, fake.run_count) == ("bubblewrap", 1)
    first.confirm()
    assert fake.run_count == 1, "it was made at this start"
    later = fake.trial()
    assert (later.rung.name, fake.run_count) == ("bubblewrap", 1), "nothing runs at a start"
    later.confirm()
    later.confirm()
    assert fake.run_count == 2, "the first command makes it, once"
    Path(fake.kept).write_bytes(b"\xff[")
    assert (fake.trial().rung.name, fake.run_count) == ("bubblewrap", 3), "a damaged file is none"


def test_a_sandbox_that_has_stopped_to_work_runs_no_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel's settings can change what works, without another program or kernel."""
    monkeypatch.setattr(landlock, "available", lambda: "no Landlock either")
    fake = FakeBubblewrap(tmp_path)
    assert fake.trial().rung.confines
    believed = fake.trial()
    fake.becomes(1)
    monkeypatch.setattr(Trial, "_circumstances", Path(fake.kept).read_bytes())
    assert fake.trial().rung.confines, "it cannot be told from outside"
    for _ in range(2):
        with pytest.raises(
            PermissionError, match=r"worked at the last start.*start longrein again"
        ):
            believed.confirm()
    assert not os.path.exists(fake.kept)
    assert fake.trial().rung.name == "none"


def test_another_program_is_tried_anew(tmp_path: Path) -> None:
    fake = FakeBubblewrap(tmp_path)
    assert fake.trial().rung.confines
    fake.becomes(2)
    assert fake.trial().rung.name != "bubblewrap"
    assert fake.run_count == 2


# --- What the user's own names lead to ------------------------------------------------------------


@needs_bubblewrap
async def test_links_in_home_lead_commands_to_what_they_may_read(tmp_path: Path) -> None:
    confined = Confined(tmp_path)
    kept = confined.home / "dotfiles"
    (kept / "cargo").mkdir(parents=True)
    for name in ("gitconfig", "cargo/config.toml", "cargo/credentials.toml", "private"):
        (kept / name).write_text(f"[user]\nname = {name}\n")
    for name, target in ((".gitconfig", "gitconfig"), (".cargo", "cargo"), ("other", "private")):
        (confined.home / name).symlink_to(f"dotfiles/{target}")
    assert (await confined.run("git config user.name"))[1] == "gitconfig\n"
    assert await confined.runs("cat ~/.cargo/config.toml")
    for name in (".cargo/credentials.toml", "dotfiles/cargo/credentials.toml", "other"):
        assert not await confined.runs(f"cat ~/{name}"), name
    assert not await confined.runs("ln -sf /etc ~/.gitconfig || rm ~/.gitconfig || echo > ~/new")
    assert os.readlink(confined.home / ".gitconfig") == "dotfiles/gitconfig"


@needs_bubblewrap
async def test_an_active_virtual_environment_in_home_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env, packages = tmp_path / "home/env", tmp_path / "home/npm/node_modules"
    folders = (env / "bin", packages / ".bin")
    monkeypatch.setenv("PATH", ":".join([*map(str, folders), os.environ["PATH"]]))
    confined = Confined(tmp_path)
    for folder in (env / "bin", env / "lib", env / "private", packages / ".bin", packages / "a"):
        folder.mkdir(parents=True)
    for name in ("env/pyvenv.cfg", "env/lib/x", "env/private/x", "npm/node_modules/a/x", "npm/x"):
        (tmp_path / "home" / name).write_text("x")
    for name, wanted in (
        ("env/pyvenv.cfg", True),
        ("env/lib/x", True),
        ("env/private/x", False),
        ("npm/node_modules/a/x", True),
        ("npm/x", False),
    ):
        assert await confined.runs(f"cat ~/{name}") is wanted, name


@needs_bubblewrap
async def test_commands_stay_in_the_users_control_group(tmp_path: Path) -> None:
    told = (await Confined(tmp_path).run("readlink /proc/self/ns/cgroup"))[1]
    assert told.strip() == os.readlink("/proc/self/ns/cgroup")


def test_npm_knows_its_variables() -> None:
    names = {cache.variable for cache in TOOL_CACHES if cache.variable.startswith("npm_")}
    assert names == {"npm_config_cache"}  # npm warns of any other at each call


# --- Real builds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["make", "git commit with a hook", "node --test"])
async def test_a_build_runs_without_a_setting(tmp_path: Path, name: str) -> None:
    result = await run_build(BUILDS[name], tmp_path)
    if result.state == "skipped":
        pytest.skip(result.detail)
    assert result == ("passed", "", result.seconds)

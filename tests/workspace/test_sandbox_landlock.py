"""Landlock and seccomp: no attempt to leave succeeds, as root and as another user; ordinary work
goes on.
"""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.campaigns import escapes
from lab.campaigns.escape_calls import Outside
from longrein.workspace import CommandExit, CommandSpec
from longrein.workspace.command_output import CollectingSink
from longrein.workspace.sandbox import landlock
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.protected import Listing, ProtectedPaths, RestoredPaths
from longrein.workspace.supervisor import landlock_process
from tests.timeouts import HANG_S
from tests.workspace.conftest import supervised

NOBODY = 65534
PYTHON = "/usr/bin/python3"
BASH = shutil.which("bash") or "/bin/bash"

pytestmark = pytest.mark.skipif(
    bool(landlock.available()), reason=landlock.available() or "available"
)


def as_user(uid: int, words: list[str], cwd: Path, plan: bytes) -> tuple[str, int]:
    """Run a confined command from a child of another user; return its output and exit status."""
    reading, writing = os.pipe()
    nothing = os.open(os.devnull, os.O_RDWR)
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(cwd.parent / "home")}
    pid = os.fork()
    if not pid:
        try:
            if uid >= 0:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
            started = landlock_process.landlock_start(
                plan, words[0], words, str(cwd), environment, stdin=nothing, output=writing
            )
            os._exit(os.waitstatus_to_exitcode(os.waitpid(started, 0)[1]) & 0xFF)
        except OSError as error:
            os.write(writing, f"not started: {error}".encode())
        finally:
            os._exit(126)
    os.close(writing)
    os.close(nothing)
    with open(reading, "rb") as output:
        printed = output.read().decode()
    return printed, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture
def outside(tmp_path: Path) -> Iterator[Outside]:
    made = Outside(tmp_path / "all")
    yield made
    made.close()


def policy_for(outside: Outside, **more: object) -> SandboxPolicy:
    hidden = (str(outside.project / ".env"), str(outside.project / "private"), str(outside.store))
    options = {
        "roots": (str(outside.project),),
        "home": str(outside.home),
        "hidden": hidden,
        **more,
    }
    return SandboxPolicy(**options)  # type: ignore[arg-type]


def run(outside: Outside, command: str, **more: object) -> tuple[str, int]:
    plan = landlock.plan_of(policy_for(outside, **more))
    return as_user(-1, [BASH, "-c", command], outside.project, plan)


@pytest.mark.parametrize("uid", [-1, NOBODY])
def test_no_attempt_to_leave_succeeds(uid: int) -> None:
    if uid >= 0 and os.getuid():
        pytest.skip("only root can become another user")
    if not os.path.exists(PYTHON):
        pytest.skip("no Python that every user can run")
    base = Path("/var/tmp") / f"longrein-{os.getpid()}-{uid}"
    outside = Outside(base, uid)
    try:
        plan = landlock.plan_of(policy_for(outside))
        words = [PYTHON, "-I", "escape_calls.py", outside.facts()]
        printed, status = as_user(uid, words, outside.project, plan)
        assert status == 0, printed
        told = json.loads(printed.splitlines()[-1])
        assert told["made"] > 100
        assert set(told["escaped"]) <= set(escapes.SEEN_IN_LANDLOCK)
        assert outside.changes() == []
    finally:
        outside.close()
        shutil.rmtree(base)


@pytest.mark.parametrize(("command", "printed"), [
    ("echo hello", "hello\n"),
    ("echo text > new && ls new", "new\n"),
    ("mkdir -p a/b && echo text > a/b/c && mv a/b/c a/c && ls a", "b\nc\n"),
    ("cat data", "data\n"),
    ("sort data > /dev/null; head -c 4 /dev/urandom | wc -c", "4\n"),
    ("echo x > $TMPDIR/x && cat $TMPDIR/x", "x\n"),
    ("(sleep 100 & kill $!; wait) 2> /dev/null; echo ended", "ended\n"),
    ("head -c 4 /etc/passwd", "root"),
    ("ulimit -n 100; ulimit -n", "100\n"),
])  # fmt: skip
def test_ordinary_work_goes_on(command: str, printed: str, outside: Outside) -> None:
    (outside.project / "data").write_text("data\n")
    private = outside.project.parent / "private"
    private.mkdir()
    policy = policy_for(outside, private_tmp=str(private))
    assert landlock.environment(policy) == dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(private))
    command = f"export TMPDIR={private}; {command}"
    found = as_user(-1, [BASH, "-c", command], outside.project, landlock.plan_of(policy))
    assert found == (printed, 0)


@pytest.mark.parametrize("moving", ["mv .env moved", "mv private/secret moved", "mv private moved"])
def test_a_renamed_hidden_file_stays_hidden_for_the_next_command(
    moving: str, outside: Outside
) -> None:
    assert run(outside, moving) == ("", 0)
    printed, status = run(outside, "cat moved moved/*", hidden=())
    assert outside.secret not in printed
    assert status == 1
    assert run(outside, "echo text > new; cat escape_calls.py | wc -l", hidden=())[1] == 0


def test_s099_without_network_no_socket_is_made_with_it_only_internet_sockets(
    outside: Outside,
) -> None:
    script = (
        "import socket\nfor f in 1, 2, 10:\n try: socket.socket(f); print(f)\n except OSError: pass"
    )
    for network, families in ((False, ""), (True, "2\n10\n")):
        plan = landlock.plan_of(policy_for(outside, network=network))
        assert as_user(-1, [PYTHON, "-I", "-c", script], outside.project, plan) == (families, 0)


def test_a_command_that_cannot_start_is_an_error_of_the_start(outside: Outside) -> None:
    plan, nothing = landlock.plan_of(policy_for(outside)), os.open(os.devnull, os.O_RDWR)
    for path, cwd in (
        ("/no/such/program", "/"),
        (BASH, "/no/such/folder"),
        (str(outside.home / "secret"), "/"),
    ):
        with pytest.raises(OSError, match=r"No such file|Permission denied"):
            landlock_process.landlock_start(
                plan, path, ["x"], cwd, {}, stdin=nothing, output=nothing
            )
    os.close(nothing)


def test_the_home_folder_is_a_read_only_one_with_links(outside: Outside) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    private = outside.project.parent / "home2"
    private.mkdir()
    for name in (".gitconfig", ".hidden"):
        (outside.home / name).write_text("[user]\n name = Ada\n")
    policy = policy_for(
        outside, home_visible=(str(outside.home / ".gitconfig"),), private_home=str(private)
    )
    landlock.link_visible(policy)
    assert landlock.environment(policy) == {"HOME": str(private)}
    (outside.project / "sub").mkdir()
    command = (
        f"export HOME={private}; cd sub && git init -q . && git config user.name; ls -A ~; "
        "echo x > ~/new"
    )
    printed, code = as_user(-1, [BASH, "-c", command], outside.project, landlock.plan_of(policy))
    assert (printed[:15], "Permission denied" in printed, code) == ("Ada\n.gitconfig\n", True, 1)


def test_what_stays_open_is_said(outside: Outside) -> None:
    hook = str(outside.project / ".git" / "hooks")
    said = landlock.unenforced(policy_for(outside, read_only=(hook, "/elsewhere")))
    assert any(hook in one for one in said)
    assert not any("/elsewhere" in one or str(outside.store) in one for one in said)


LINES = [name for name in escapes.ATTEMPTS if name not in escapes.OPEN_IN_LANDLOCK]


@pytest.mark.parametrize("name", dict.fromkeys((*LINES[::4], "write: kernel")))
def test_no_command_leaves_it(tmp_path: Path, name: str) -> None:
    assert asyncio.run(escapes.run_all(tmp_path, [name], rung="landlock")) == {}


@pytest.mark.parametrize("command", [
    "echo x > .git/hooks/pre-commit",
    "echo x >> .git/hooks/post-commit",
    "rm .git/hooks/post-commit",
    "rm -r .git/hooks",
    "chmod -x .git/hooks/post-commit",
    "ln -sf /etc/passwd .git/hooks/post-commit",
    "git config core.fsmonitor /bin/false",
    "rm .git/config",
    "mv .git old && mkdir .git && cp -r old/. .git && echo x >> .git/config && rm -r old",
])  # fmt: skip
def test_s093_what_git_executes_is_put_back(command: str, tmp_path: Path) -> None:
    if not shutil.which("git"):
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "-q", "project"], cwd=tmp_path, check=True)
    root = tmp_path / "project"
    hook = root / ".git" / "hooks" / "post-commit"
    hook.write_text("true")
    hook.chmod(0o755)
    paths = [str(root / ".git" / name) for name in ("hooks", "config")]

    def picture() -> dict[str, tuple[bytes, int]]:
        files = [
            one
            for path in paths
            for one in (Path(path), *Path(path).rglob("*"))
            if not one.is_dir()
        ]
        return {str(one): (one.read_bytes(), one.lstat().st_mode) for one in files}

    before, guarded = picture(), RestoredPaths(str(tmp_path / "moved"))
    guarded.begin(ProtectedPaths(paths, [str(root)], Listing()), others_run=False)
    subprocess.run(["bash", "-c", command], cwd=root, check=True)
    changed = guarded.end()
    assert picture() == before
    assert bool(changed) is (command != "chmod -x .git/hooks/post-commit")
    (root / "file").write_text("ordinary")
    guarded.begin(ProtectedPaths(paths, [str(root)], Listing()), others_run=False)
    assert guarded.end() == []


def test_nothing_is_put_back_through_a_symbolic_link(tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    path = tmp_path / "project" / ".git" / "config"
    path.write_text("ours")
    (tmp_path / "other" / "config").write_text("theirs")
    guarded = RestoredPaths(str(tmp_path / "moved"))
    project = ProtectedPaths([str(path)], [str(tmp_path / "project")], Listing())
    guarded.begin(project, others_run=False)
    path.parent.rename(tmp_path / "project" / "old")
    path.parent.symlink_to(tmp_path / "other")
    guarded.end()
    assert (tmp_path / "other" / "config").read_text() == "theirs"


@pytest.mark.anyio
async def test_a_session_runs_commands_in_it(tmp_path: Path) -> None:
    around = escapes.Surroundings(tmp_path / "all")
    around.home.joinpath(".gitconfig").write_text("[user]\n name = Ada\n")
    sandbox, environment = (
        escapes.open_sandbox(around, rung="landlock"),
        {"PATH": os.environ["PATH"]},
    )
    spawner = supervised(around.session, environment, [str(around.root)])

    async def run(command: str) -> tuple[str, CommandExit]:
        sink = CollectingSink()
        confinement = sandbox.confine([str(around.root)], str(around.root), [f"{around.root}/.env"])
        ended = await spawner.run(
            CommandSpec(
                command, str(around.root), {**environment, "HOME": str(around.home)}, confinement
            ),
            sink=sink,
            timeout_s=HANG_S,
            output_bytes_max=1 << 20,
        )
        return sink.data.decode(), ended

    try:
        printed, ended = await run(
            "cat .env; echo text > $TMPDIR/x; cat $TMPDIR/x; cd sub 2>/dev/null; exit 137"
        )
        assert "canary" not in printed
        assert printed.endswith("text\n")
        assert (ended.code, ended.signal) == (137, "")
        assert (await run("kill -9 $$"))[1].signal == "SIGKILL"
        assert (await run("nosuch"))[1].code == 127
        assert (await run("git config user.name || echo none"))[0] in {"Ada\n", "none\n"}
    finally:
        await spawner.drain()
        around.close()


DEVICE = landlock.READ_FILE | landlock.WRITE_FILE | landlock.TRUNCATE | landlock.IOCTL_DEV


@pytest.mark.parametrize(("options", "path", "rights"), [
    ({}, "{home}/shown", 0),
    ({"home_visible": ("{home}/shown",)}, "{home}/shown", landlock.READ),
    ({"home_visible": ("{home}",), "hidden": ("{home}/shown",)}, "{home}", 0),
    ({"home_visible": ("{home}",), "hidden": ("{home}/shown",)}, "{home}/shown", 0),
    ({"home_visible": ("{home}",), "hidden": ("{home}/shown",)}, "{home}/file", landlock.READ),
    ({"home_writable": ("{home}/shown",)}, "{home}/shown", landlock.READ | landlock.WRITE),
    ({"private_home": "{home}/shown"}, "{home}/shown", landlock.READ),
    ({"private_tmp": "{home}/shown"}, "{home}/shown", landlock.READ | landlock.WRITE),
    ({"home": ""}, "{project}", landlock.READ | landlock.WRITE),
    ({}, "/run/systemd/resolve", 0),
    ({"network": True}, "/run/systemd/resolve", landlock.READ),
    *(({}, f"/dev/{name}", DEVICE) for name in landlock.DEVICES),
    ({}, "/dev/sda", 0),
    ({}, "/dev/shm", 0),
])  # fmt: skip
def test_rules_of_what_a_policy_names(
    options: dict[str, object], path: str, rights: int, outside: Outside
) -> None:
    names = {"project": str(outside.project), "home": str(outside.home)}
    (outside.home / "shown").mkdir()
    (outside.home / "file").touch()

    def filled(value: object) -> object:
        if isinstance(value, tuple):
            return tuple(map(filled, value))
        return value.format(**names) if isinstance(value, str) else value

    given = {"hidden": (), **{name: filled(value) for name, value in options.items()}}
    assert landlock.rules_of(policy_for(outside, **given)).get(path.format(**names), 0) == rights


def test_the_home_folder_is_closed_wherever_it_lies(outside: Outside) -> None:
    rules = landlock.rules_of(policy_for(outside, home="/usr/lib"))
    found = {path: rules.get(path, 0) & landlock.READ for path in ("/", "/usr", "/usr/lib")}
    assert found == {"/": 0, "/usr": 0, "/usr/lib": 0}
    assert rules["/usr/bin"] == landlock.READ


@pytest.mark.parametrize(("options", "said"), [
    ({}, []),
    ({"read_only": ("{project}/.git", "/elsewhere")}, ["change {project}/.git until longrein"]),
    ({"hidden": ("{project}/.env", "/elsewhere")}, ["replace {project}/.env, which is hidden"]),
    ({"abi": landlock.ABI_SCOPES - 1}, ["end other processes of yours"]),
    ({"abi": landlock.ABI_SCOPES}, []),
    ({"abi": landlock.ABI_SCOPES + 1}, []),
])  # fmt: skip
def test_each_thing_that_stays_open_is_said(
    outside: Outside, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], said: list[str]
) -> None:
    monkeypatch.setattr(landlock, "abi", lambda: options.get("abi", landlock.ABI_SCOPES))
    project = str(outside.project)
    given = {"read_only": (), "hidden": (), **options}
    given.pop("abi", None)
    paths = {key: tuple(one.format(project=project) for one in given[key]) for key in given}
    always = "change mode|see names|see the command lines|see which processes"
    found = landlock.unenforced(policy_for(outside, **paths))
    assert [one.startswith(tuple(always.split("|"))) for one in found[:4]] == [True] * 4
    assert len(found) == 4 + len(said)
    for text, expected in zip(found[4:], said, strict=True):
        assert text.startswith(expected.format(project=project))


def test_links_in_the_private_home_are_made_once_and_lead_to_the_real_places(
    outside: Outside, tmp_path: Path
) -> None:
    private, home = tmp_path / "private", outside.home
    private.mkdir()
    (private / "own").touch()
    for name in ("shown", "deep/cache", "own"):
        (home / name).mkdir(parents=True)
    policy = policy_for(
        outside,
        home_visible=(f"{home}/shown", "/usr/lib", f"{home}/own", f"{home}-other"),
        home_writable=(f"{home}/deep/cache",),
        links=((f"{home}/alias", "/usr"), ("/somewhere/alias", "/usr")),
        private_home=str(private),
    )
    for _ in range(2):
        landlock.link_visible(policy)
        links = {
            str(path.relative_to(private)): os.readlink(path)
            for path in private.rglob("*")
            if path.is_symlink()
        }
        found = {"shown": f"{home}/shown", "deep/cache": f"{home}/deep/cache", "alias": "/usr"}
        assert links == found
    assert (private / "deep").stat().st_mode & 0o777 == 0o700
    landlock.link_visible(policy_for(outside, home_visible=(f"{home}/shown",), private_home=""))

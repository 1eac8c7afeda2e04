"""Git calls of longrein run nothing that a repository brings along."""

import os
import subprocess
from pathlib import Path

import pytest

from longrein.workspace import GIT_CUT, run_git
from tests.tables import split_words
from tests.workspace.conftest import CommandHarness

pytestmark = pytest.mark.anyio


def git(folder: Path, *args: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=n", "-c", "user.email=a@b", *args], cwd=folder, check=True
    )


def remove_object(folder: Path, name: str) -> None:
    """Remove the object of that name, as it is missing in a partial clone."""
    found = subprocess.run(
        ["git", "rev-parse", name], cwd=folder, capture_output=True, text=True, check=True
    )
    blob = found.stdout.strip()
    (folder / ".git/objects" / blob[:2] / blob[2:]).unlink()


COMMANDS = """
    core.fsmonitor core.pager core.editor core.sshCommand core.askPass diff.external diff.x.textconv
    diff.x.command filter.f.clean filter.f.smudge filter.f.process gpg.program credential.helper pager.log
    pager.status alias.status alias.log core.alternateRefsCommand uploadpack.packObjectsHook
"""  # noqa: E501
"""Settings that name a command."""


@pytest.fixture
def hostile(harness: CommandHarness) -> Path:
    """A repository in which every command that git can be made to run leaves `tripped` behind."""
    folder = harness.folder
    git(folder, "init", "-q")
    (folder / "a").write_text("one\n")
    git(folder, "add", "a")
    git(folder, "commit", "-q", "-m", "first")
    (folder / "a").write_text("two\n")
    trip = folder / ".git" / "trip"
    trip.write_text(f"#!/bin/sh\ntouch {folder}/tripped\ncat\n")
    trip.chmod(0o755)
    for key in COMMANDS.split():
        git(folder, "config", key, f"!{trip}" if key.startswith("alias") else str(trip))
    git(folder, "config", "filter.f.required", "true")
    git(folder, "config", "log.showSignature", "true")
    for hook in split_words("""
        post-index-change pre-commit post-checkout reference-transaction fsmonitor-watchman
    """):
        (folder / ".git" / "hooks" / hook).write_bytes(trip.read_bytes())
        (folder / ".git" / "hooks" / hook).chmod(0o755)
    (folder / ".gitattributes").write_text("* diff=x filter=f\n")
    return folder


@pytest.mark.parametrize(("args", "said"), [
    (["status", "--porcelain"], " M a\n?? .gitattributes\n"),
    (["diff", "--stat"], " a | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"),
    (["log", "-p", "--format=%s"], "first\n\ndiff --git a/a b/a\nnew file mode 100644\n"),
    (["ls-files", "--others", "--exclude-standard"], ".gitattributes\n"),
    (["rev-parse", "--abbrev-ref", "HEAD"], "mas"),
    (["show", "--format=%s", "HEAD"], "first\n"),
    (["stash", "list"], ""),
    (["add", "a"], ""),
    (["checkout", "-q", "--", "a"], ""),
])  # fmt: skip
async def test_S049_nothing_of_the_repository_runs(
    harness: CommandHarness, hostile: Path, args: list[str], said: str
) -> None:
    code, output = await run_git(harness.workspace, args, str(hostile))
    assert (code, output.decode()[: len(said)]) == (0, said)
    assert not (hostile / "tripped").exists()


async def test_S049_the_trap_is_armed(harness: CommandHarness, hostile: Path) -> None:
    await harness.run("git status; git diff; true")
    assert (hostile / "tripped").exists(), "without disarming it would have run"


async def test_S049_a_missing_object_is_not_fetched_by_a_program_of_the_repository(
    harness: CommandHarness, hostile: Path
) -> None:
    """Git fetches what a partial clone lacks, also in `git diff`, with the programs that its
    configuration names.
    """
    trip = f"{hostile}/.git/trip"
    settings = {
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.promisor": "true",
        "remote.origin.url": f"ext::{trip}",
        "remote.origin.uploadpack": trip,
        "protocol.ext.allow": "always",
        "protocol.file.allow": "always",
    }
    for key, value in settings.items():
        git(hostile, "config", key, value)
    remove_object(hostile, "HEAD:a")
    for url in (f"ext::{trip}", f"{hostile}/.git", f"file://{hostile}/.git"):
        git(hostile, "config", "remote.origin.url", url)
        for args in (["diff"], ["log", "-p"], ["show"], ["checkout", "-q", "--", "a"]):
            await run_git(harness.workspace, args, str(hostile))
        assert not (hostile / "tripped").exists(), url
    await harness.run("timeout 2 git -c core.fsmonitor=false show < /dev/null")
    assert (hostile / "tripped").exists(), "the trap is armed"


async def test_a_repository_cannot_point_its_work_tree_elsewhere(
    harness: CommandHarness, hostile: Path
) -> None:
    outside = hostile.parent / "outside"
    outside.mkdir()
    (outside / "private").write_text("x")
    git(hostile, "config", "core.worktree", str(outside))
    (hostile / "sub").mkdir()
    for cwd in (hostile, hostile / "sub"):
        for args in (["ls-files", "--others"], ["status", "--porcelain"]):
            _, output = await run_git(harness.workspace, args, str(cwd))
            assert b"private" not in output
    assert not (hostile / "tripped").exists()


async def test_a_configuration_that_never_ends_is_cut_off(
    harness: CommandHarness, hostile: Path
) -> None:
    os.mkfifo(hostile / ".git/pipe")
    (hostile / ".git/config").write_text(
        (hostile / ".git/config").read_text() + "[include]\n\tpath = pipe\n"
    )
    found = await run_git(harness.workspace, ["status"], str(hostile), timeout_s=0.2)
    assert found == (GIT_CUT, b"")


async def test_a_filter_that_cannot_be_switched_off_by_name_is_refused(
    harness: CommandHarness, hostile: Path
) -> None:
    git(hostile, "config", "filter.a=b.clean", "true")
    assert (await run_git(harness.workspace, ["status"], str(hostile)))[0] == 128
    assert (await run_git(harness.workspace, ["rev-parse", "HEAD"], str(hostile)))[0] == 0


async def test_R086_outside_a_repository_it_is_an_error_code(harness: CommandHarness) -> None:
    code, output = await run_git(harness.workspace, ["status"], str(harness.folder))
    assert code == 128
    assert output.startswith(b"fatal: not a git repository")
    found = (await run_git(harness.workspace, ["status"], str(harness.folder / "gone")))[0]
    assert found in (126, 127)


async def test_the_environment_cannot_point_git_elsewhere(
    harness: CommandHarness, hostile: Path
) -> None:
    harness.reopen(GIT_DIR="/nowhere")
    found = (await run_git(harness.workspace, ["rev-parse", "--show-toplevel"], str(hostile)))[1]
    assert found == f"{hostile}\n".encode()

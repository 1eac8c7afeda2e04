"""Git commands in a repository whose own configuration names programs: nothing of it runs
unasked.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from longrein.permissions import Rules
from longrein.permissions.git_config import find_risky_key
from tests.agent.disk_harness import DiskHarness, Script, call, results, says
from tests.tables import cases

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not shutil.which("git"), reason="git is not installed"),
]

TRIP = "!touch $PWD/../TRIP; true"
ARMED = [
    ("config core.fsmonitor '{trip}'", "git status"),
    ("config diff.external '{trip}'", "git diff"),
    ("config diff.x.textconv '{trip}' && echo '* diff=x' > .gitattributes", "git diff"),
    ("config diff.x.textconv '{trip}' && echo '* diff=x' > .gitattributes", "git show HEAD"),
    ("config filter.x.clean '{trip}' && echo '* filter=x' > .gitattributes", "git status"),
    ("config filter.x.clean '{trip}' && echo '* filter=x' > .gitattributes", "git diff"),
    ("config filter.x.process '{trip}' && echo '* filter=x' > .gitattributes", "git add a"),
    ("config core.hooksPath ../hooks", "git commit -qam x"),
    ("config include.path ../../evil", "git status"),
    ("config gpg.program '{trip}' && git config commit.gpgSign true", "git commit -qam x"),
    ("config log.showSignature true && git config gpg.program '{trip}'", "git log"),
    ("config alias.st '{trip}'", "git st"),
    ("config core.sshCommand '{trip}' && git remote add o ssh://localhost/x", "git fetch o"),
    ("config core.editor '{trip}'", "git commit --amend"),
    ("config sequence.editor '{trip}'", "git rebase -i HEAD"),
    ("config core.pager '{trip}' && git config pager.log true", "git log"),
    ("config core.fsmonitor '{trip}'", "cd .. && git -C tree status"),
    ("config core.fsmonitor '{trip}'", "mkdir -p sub && cd sub && git status"),
]


def arm(harness: DiskHarness, settings: str) -> None:
    """Make a repository that runs the tripwire."""
    trip = harness.tree.parent / "trip.sh"
    trip.write_text(f"#!/bin/sh\ntouch {harness.tree.parent}/TRIP\ncat 2>/dev/null\n")
    trip.chmod(0o755)
    (harness.tree.parent / "hooks").mkdir()
    shutil.copy(trip, harness.tree.parent / "hooks" / "pre-commit")
    (harness.tree.parent / "evil").write_text(f"[core]\n\tfsmonitor = {trip}\n")
    (harness.tree / "a").write_text("one\n")
    git = "git -c user.name=a -c user.email=a@b"
    script = (
        f"git init -q . && git add a && {git} commit -qm one && echo two > a && git "
        f"{settings.format(trip=trip)}"
    )
    subprocess.run(script, shell=True, cwd=harness.tree, check=True, capture_output=True)


def ran(harness: DiskHarness) -> bool:
    return (harness.tree.parent / "TRIP").exists()


@pytest.mark.parametrize(("settings", "command"), ARMED)
@pytest.mark.parametrize("allow", [(), ("Bash(git *)", "Bash(mkdir *)")])
async def test_S013_S049_what_a_repository_names_never_runs_unasked(
    harness: DiskHarness, settings: str, command: str, allow: tuple[str, ...]
) -> None:
    arm(harness, settings)
    shutil.rmtree(harness.tree / "sub", ignore_errors=True)
    (harness.tree.parent / "TRIP").unlink(missing_ok=True)  # arming runs git, too
    model = Script(says(call("Bash", command=command)), says("so"))
    await harness.play(
        model, "look", mode="dontAsk", rules=Rules(allow=allow, base=str(harness.tree))
    )
    [result] = results(model.requests[-1])
    assert result.startswith("Bash denied"), result
    assert not ran(harness)


@cases("command", "git status", "git diff", "git log -p", "git show HEAD", "git blame a")
async def test_git_in_ordinary_repository_runs_unasked(harness: DiskHarness, command: str) -> None:
    arm(harness, "config branch.master.remote origin")
    model = Script(says(call("Bash", command=command)), says("so"))
    await harness.play(model, "look", mode="dontAsk", rules=Rules(base=str(harness.tree)))
    [result] = results(model.requests[-1])
    assert result.startswith("Bash ok"), result


async def test_a_hook_that_git_status_runs_asks(harness: DiskHarness) -> None:
    arm(harness, "config branch.master.remote origin")
    shutil.copy(
        harness.tree.parent / "trip.sh", harness.tree / ".git" / "hooks" / "post-index-change"
    )
    model = Script(says(call("Bash", command="git status")), says("so"))
    await harness.play(model, "look", mode="dontAsk", rules=Rules(base=str(harness.tree)))
    assert results(model.requests[-1])[0].startswith("Bash denied")
    assert not ran(harness)


@cases(
    "text key",
    ('[core]\n\tbare = false\n[remote "origin"]\n\turl = x # [a\n\tfetch = +refs\n', ""),
    ("[core] fsmonitor = x", "core.fsmonitor"),
    ("[CORE]\nFSMonitor=x", "core.fsmonitor"),
    ("[core]\nbare = false\\\n", "bare = false\\"),
    ('[diff "a b"]\n  textconv = x', "diff.textconv"),
    ('[diff "a\\"]\n"]\n  textconv = x', '[diff "a\\"]'),
    ("[diff.a]\ncommand = x", "diff.command"),
    ("[include]\npath = x", "include.path"),
    ('[includeIf "gitdir:/"]\npath = x', "includeif.path"),
    ('[filter "x"]\n\tclean = x\n', "filter.clean"),
    ("fsmonitor = x", "fsmonitor = x"),
    ("[color]\n\tui = auto\n; comment\n# more\n", ""),
)
def test_keys_that_are_not_known_to_be_harmless(text: str, key: str) -> None:
    assert find_risky_key(text) == key


@pytest.mark.parametrize(("settings", "command"), [one for one in ARMED if "{trip}" in one[0]][:6])
def test_the_tripwires_are_real(tmp_path: Path, settings: str, command: str) -> None:
    harness = type("Folder", (), {"tree": tmp_path / "tree"})()
    harness.tree.mkdir()
    arm(harness, settings)
    (tmp_path / "TRIP").unlink(missing_ok=True)
    subprocess.run(command, shell=True, cwd=harness.tree, check=False, capture_output=True)
    assert ran(harness)

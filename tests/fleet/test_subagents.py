"""Subagents with `location: fleet`: in processes of this machine, and on the nodes of a Ray."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lab.support.postgresql import Server
from longrein.app.run_context import use_store_at
from longrein.permissions import Rules
from longrein.workspace import Worktree
from longrein_context.events import Opened, Replied, SubagentEnded, SubagentStarted, UserSpoke
from longrein_fleet.subagent_host import moved_rules
from tests.e2e.harness import RunningCommand, RunResult, Turn, bash, call, calls, says
from tests.fleet.harness import FleetHarness
from tests.fleet.ray_cluster import NODE_STATES, RayCluster, needs_ray
from tests.timeouts import wait_until

PARENT = "11111111-1111-4111-8111-111111111111"
FAR = {"description": "works elsewhere", "prompt": "You are far.", "location": "fleet"}
ACT = "echo new > a.txt; chmod 755 a.txt; ln -s a.txt link; printf 'a\\0b' > bytes; rm gone.txt"
COMMIT = "git add -A; git -c user.name=a -c user.email=a@b.c commit -qm a"
TREE = "test -x a.txt && test -L link && test ! -e gone.txt && test $(wc -c < bytes) = 3"

KILLED_AT_THE_END = """
import os
from longrein.agent.subagents import remote
remote.remote_ended = lambda *_: os.kill(os.getpid(), 9)
from longrein.__main__ import main
main()
"""


class Parent:
    """A session in a repository, whose model starts a subagent of the type `far`."""

    def __init__(self, fleet: FleetHarness) -> None:
        self.fleet, self.cli = fleet, fleet.cli
        use_store_at(str(self.cli.state), self.cli.env.get("LONGREIN_STORE", ""))
        self.repository = fleet.repository()
        (self.repository / "gone.txt").write_text("to be removed\n")
        fleet.git(self.repository, "add", "-A")
        fleet.git(self.repository, "commit", "-q", "-m", "third")

    @property
    def work(self) -> Path:
        """The copy in which the only subagent works, on this machine."""
        found = [*self.cli.state.glob("fleets/*/tasks/*/1/work"), self.cli.folder]
        return found[0]

    @property
    def child(self) -> str:
        """The session of the only subagent."""
        (child,) = {one.child for one in self.events(SubagentStarted)}
        return str(child)

    @property
    def end(self) -> SubagentEnded:
        """The end of the only subagent."""
        (ended,) = self.events(SubagentEnded)
        assert isinstance(ended, SubagentEnded)
        return ended

    def events(self, kind: type) -> list[Any]:
        return [one.event for one in self.cli.entries(PARENT) if isinstance(one.event, kind)]

    def start(
        self, *words: str, fields: dict[str, Any] | None = None, **more: Any
    ) -> RunningCommand:
        kinds = json.dumps({"far": {**FAR, **(fields or {})}})
        which = () if "--resume" in words else ("--session-id", PARENT)
        flags = ("-p", "--agents", kinds, *which)
        return self.cli.start(*flags, *words, **{"cwd": self.repository, **more})

    def run(self, *words: str, **more: Any) -> RunResult:
        done = self.start(*words, **more).end()
        assert done.code == 0, done.err
        return done

    def branch_passes(self, check: str) -> bool:
        """Whether a command succeeds in the worktree that is left."""
        folder = self.end.worktree.partition(", folder ")[2].partition(": ")[0]
        command = f"git diff --quiet HEAD && {check}"
        return subprocess.run(command, shell=True, cwd=folder, check=False).returncode == 0

    @property
    def spent_usd(self) -> float:
        """Money of the session and its subagent."""
        return sum(one.cost_usd for one in self.events(Replied)) + self.end.cost_usd


def delegates(prompt: str = "far", **more: Any) -> Turn:
    """A reply that starts the subagent."""
    return calls(delegation(prompt, **more))


def delegation(prompt: str, **more: Any) -> Turn:
    return call("Agent", description="work", prompt=prompt, subagent_type="far", **more)


def waits(fleet: FleetHarness) -> list[Turn]:
    """Turns of a subagent that does a step, waits for `fleet.cli.go` and is done."""
    go = f"echo wait >> acts.log; until [ -e {fleet.cli.project}/go ]; do sleep 0.05; done"
    return [calls(bash(f"echo first >> acts.log; {ACT}")), calls(bash(go)), says("It is a.txt.")]


def acts(folder: Path) -> list[str]:
    path = folder / "acts.log"
    return path.read_text().split() if path.exists() else []


def test_its_report_and_its_changes_come_back(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    recall = calls(call("Recall", handle="a9/r13"))
    fleet.plays(
        parent=[delegates(), recall, says("Well.")],
        far=[calls(bash(f"{ACT}; echo it said so")), says("It is a.txt.")],
    )
    parent.run("parent")
    ended, child = parent.end, parent.cli.entries(parent.child)
    assert (ended.status, ended.report.partition("\n")[0]) == ("done", "It is a.txt.")
    assert {Path(path).name for path in ended.files} == {"a.txt", "link", "bytes", "gone.txt"}
    assert parent.branch_passes(TREE)
    assert parent.fleet.git(parent.repository, "status", "--porcelain") == "", "merged by others"
    opened = child[0].event
    assert isinstance(opened, Opened)
    assert (opened.label, opened.kind) == ("a9", "far")
    assert opened.one_shot, "lists show it apart from the user's sessions"
    assert ended.steps == 2
    assert 0 < ended.cost_usd < parent.spent_usd
    assert "it said so" in parent.cli.results(PARENT)[-1][1], "Recall reads its log"
    assert list((parent.cli.state / "fleets").iterdir()) == [], "nothing stays"
    page = parent.cli.run("inspect", PARENT, "--no-open", "--out", str(fleet.folder / "page.html"))
    assert "left out" not in page.err
    text = parent.cli.run("export", PARENT, "--format", "markdown").text
    assert text.count("it said so") > 1, "its log is in exports"


@pytest.mark.parametrize(("act", "names", "message"), [
    ("echo x > kept/a; echo x > kept/b; touch $'\\xe9'", {"a", "?"}, ""),
    ("git init -q in; touch in/a; echo x > a.txt", {"a.txt"}, "does not have a commit"),
    (f"git init -q in; touch in/a; cd in; {COMMIT}; touch ../b", {"b"}, "repository inside"),
    ("rm -r .git; echo x > a.txt", set(), "bad object"),
], ids=["ignored", "begun", "inner", "unknown"])  # fmt: skip
def test_no_change_is_lost(fleet: FleetHarness, act: str, names: set[str], message: str) -> None:
    """What git ignores comes back where it was committed. What no patch can tell stays."""
    parent = Parent(fleet)
    (parent.repository / "kept").mkdir()
    (parent.repository / "kept/a").touch()
    fleet.git(parent.repository, "add", "-A")
    (parent.repository / ".gitignore").write_text("kept/\n")
    fleet.git(parent.repository, "add", "-A")
    fleet.git(parent.repository, "commit", "-q", "-m", "fourth")
    fleet.plays(parent=[delegates(), says("Well.")], far=[calls(bash(act)), says("Done.")])
    parent.run("parent")
    assert parent.end.status == ("failed" if message else "done")
    assert {Path(path).name for path in parent.end.files} == names
    _, said, folder = parent.end.message.partition("what it has changed is in ")
    assert message in parent.end.message
    assert bool(message) == bool(said) == os.path.isdir(folder)


@pytest.mark.parametrize("fleet", ["files", "postgresql"], indirect=True)
def test_a_killed_session_goes_on_with_a_subagent_that_goes_on(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well.")], far=waits(fleet))
    running = parent.start("parent")
    wait_until(lambda: acts(parent.work) == ["first", "wait"])
    running.send(signal.SIGKILL)
    running.end()
    assert parent.cli.wait_survivors() == []
    fleet.cli.go()
    parent.run("--resume", PARENT)
    assert (parent.end.status, parent.end.report.partition("\n")[0]) == ("done", "It is a.txt.")
    assert parent.branch_passes(f"{TREE} && test $(wc -l < acts.log) = 2"), "no step ran twice"
    told = [status for status, _ in parent.cli.results(parent.child)]
    assert told.count("interrupted") == 1


def test_one_whose_end_was_not_noted_is_done(fleet: FleetHarness) -> None:
    """It has changed nothing, so that its worktree is gone already."""
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well.")], far=[says("Nothing to do.")])
    command, parent.cli.command = parent.cli.command, [sys.executable, "-c", KILLED_AT_THE_END]
    assert parent.start("parent").end().code == -signal.SIGKILL
    parent.cli.command = command
    parent.run("--resume", PARENT)
    assert (parent.end.status, parent.end.report) == ("done", "Nothing to do.")
    assert parent.end.cost_usd > 0


def test_what_it_has_cost_is_known_without_its_type(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well."), says("So.")], far=waits(fleet))
    running = parent.start("parent")
    wait_until(lambda: acts(parent.work) == ["first", "wait"])
    running.send(signal.SIGKILL)
    running.end()
    done = parent.cli.run("-p", "--resume", PARENT, cwd=parent.repository)
    assert done.code == 0, done.err
    assert (parent.end.status, parent.end.message) == ("failed", "the type far is gone")
    assert parent.end.cost_usd > 0


def test_it_can_be_stopped(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well.")], far=waits(fleet))
    running = parent.start(
        "--input-format", "stream-json", "--output-format", "stream-json", stdin=-1
    )

    def write(line: dict[str, Any]) -> None:
        running.process.stdin.write(json.dumps(line).encode() + b"\n")

    write({"type": "user", "message": {"role": "user", "content": "parent"}})
    wait_until(lambda: acts(parent.work) == ["first", "wait"])
    stop = {"subtype": "stop_task", "task_id": "a9"}
    write({"type": "control_request", "request_id": "1", "request": stop})
    assert running.end(b"").code == 0
    assert parent.end.status == "interrupted"
    assert parent.end.cost_usd > 0
    folder = parent.end.message.partition("what it has changed is in ")[2]
    assert acts(Path(folder)) == ["first", "wait"], "it is told, and not removed"
    assert parent.cli.wait_survivors() == []


WRITE = call("Write", file_path="b.txt", content="x")
EDIT = call("Edit", file_path="a.txt", old_string="second", new_string="x")


@pytest.mark.parametrize(("mode", "fields", "act", "status"), [
    ("default", {}, WRITE, "ok"),
    ("plan", {}, WRITE, "denied"),
    ("default", {"permissionMode": "plan"}, WRITE, "denied"),
    ("default", {"tools": "Read, Bash"}, WRITE, "denied"),
    ("default", {}, EDIT, "denied"),
    ("default", {}, bash("rm gone.txt"), "ok"),
    ("default", {}, bash("curl localhost"), "denied"),
])  # fmt: skip
def test_it_may_do_what_its_parent_may(
    fleet: FleetHarness, mode: str, fields: dict[str, Any], act: Turn, status: str
) -> None:
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well.")], far=[calls(act), says("Done.")])
    denied = f"Edit(/{parent.repository}/a.txt),Bash(curl *)"
    parent.run("--permission-mode", mode, "--disallowedTools", denied, "parent", fields=fields)
    assert [status for status, _ in parent.cli.results(parent.child)] == [status]


@pytest.mark.parametrize("flags", [("--tools", "Agent,Read"), ("--disallowedTools", "Write(//**)")])
def test_it_has_no_tool_that_its_parent_lacks(fleet: FleetHarness, flags: tuple[str, ...]) -> None:
    parent = Parent(fleet)
    write = call("Write", file_path="b.txt", content="x")
    fleet.plays(parent=[delegates(), says("Well.")], far=[calls(write), says("Done.")])
    parent.run(*flags, "parent")
    assert [status for status, _ in parent.cli.results(parent.child)] == ["denied"]


def test_its_task_attaches_no_files(fleet: FleetHarness) -> None:
    """The parent's model has written the task, and may not read what it likes."""
    parent = Parent(fleet)
    secret = fleet.folder / "secret.txt"
    secret.write_text("It is open sesame.\n")
    fleet.plays(parent=[delegates(f"far: see @{secret}"), says("Well.")], far=[says("Done.")])
    parent.run("parent")
    spoken = [one.event for one in parent.cli.entries(parent.child)]
    (task,) = (one for one in spoken if isinstance(one, UserSpoke))
    assert f"@{secret}" in str(task.parts)
    assert "sesame" not in str(task.parts)


def test_what_it_may_spend_is_its_share(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    steps = [calls(bash(f"seq {number} 4000")) for number in range(50)]
    fleet.plays(parent=[delegates(), says("Well.")], far=[*steps, says("Done.")])
    parent.start("--max-budget-usd", "0.4", "parent").end()
    assert parent.end.status == "limit"
    assert parent.spent_usd <= 0.4


@pytest.mark.parametrize(("fields", "more", "words"), [
    ({"location": "moon"}, {}, "no extension runs subagents at 'moon'"),
    ({"prompt": "x" * 100_001}, {}, "have more than 100000 bytes"),
])  # fmt: skip
def test_one_that_cannot_run_says_why(
    fleet: FleetHarness, fields: dict[str, Any], more: dict[str, Any], words: str
) -> None:
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(**more), says("Well.")])
    parent.run("parent", fields=fields)
    assert parent.end.status == "failed"
    assert words in parent.end.message


def test_it_needs_a_repository_and_is_not_asked_again(fleet: FleetHarness) -> None:
    parent = Parent(fleet)
    again = calls(call("Agent", description="more", prompt="more", resume="a9"))
    fleet.plays(parent=[delegates(), again, says("Well.")], far=[says("Done.")])
    parent.run("parent")
    assert "a9 worked elsewhere and cannot be asked again" in parent.cli.results(PARENT)[-1][1]


@needs_ray
def test_one_on_a_node_that_dies_goes_on_on_another_one(
    fleet: FleetHarness, postgresql: Server
) -> None:
    """Nodes and parent share a store alone, and the session of the user is no task of a fleet."""
    fleet.cli.forks = False
    fleet.cli.env["LONGREIN_STORE"] = postgresql.new_schema()
    parent = Parent(fleet)
    fleet.plays(parent=[delegates(), says("Well.")], far=waits(fleet))
    states = fleet.cli.folder / "nodes"

    def works() -> list[list[str]]:
        return sorted(acts(path) for path in states.glob("*/fleets/*/nodes/*/tasks/*/1/work"))

    cluster = RayCluster({**fleet.cli.env, NODE_STATES: str(states)}, nodes=1, cpus=1)
    try:
        running = parent.start("parent", env={"RAY_ADDRESS": cluster.address})
        wait_until(lambda: works() == [["first", "wait"]])
        cluster.kill_node()
        wait_until(lambda: len(works()) == 2 or running.process.poll() is not None)
        fleet.cli.go()
        done = running.end()
        assert done.code == 0, done.err
    finally:
        cluster.close()
    assert (parent.end.status, parent.end.report.partition("\n")[0]) == ("done", "It is a.txt.")
    assert parent.branch_passes(f"{TREE} && test $(wc -l < acts.log) = 1"), "no step ran twice"
    told = [status for status, _ in parent.cli.results(parent.child)]
    assert told.count("interrupted") == 1


@needs_ray
def test_tasks_of_a_fleet_hold_no_place_that_their_subagents_need(
    fleet: FleetHarness, postgresql: Server
) -> None:
    """A Ray of one CPU, which the task has while it waits for its subagents."""
    fleet.cli.forks = False
    kinds = fleet.cli.config.parent / "agents"
    kinds.mkdir()
    (kinds / "far.md").write_text("---\ndescription: far\nlocation: fleet\n---\nYou are far.\n")
    both = calls(*(delegation("far") for _ in range(2)))
    fleet.plays(parent=[both, says("Well.")], far=[calls(bash(ACT)), says("Done.")])
    fleet.repository()
    task = fleet.tasks({"id": "one", "prompt": "parent", "folder": "repo"})
    address = postgresql.new_schema()
    done = fleet.fleet("run", task, "--engine", "ray", "--concurrency", "1", "--store", address)
    assert done.code == 0, done.err
    session = json.loads(fleet.fleet("results", "tasks", "--store", address).out)["session"]
    use_store_at(str(fleet.cli.state), address)
    ends = [one.event for one in fleet.cli.entries(session) if isinstance(one.event, SubagentEnded)]
    assert [(one.status, len(one.files)) for one in ends] == [("done", 3)] * 2
    assert fleet.cli.wait_survivors() == []


@pytest.mark.parametrize(("rule", "moved"), [
    ("Bash", "Bash"),
    ("Bash(cat /r/a)", "Bash(cat /r/a)"),
    ("Read(//r/top/secret/**)", "Read(/secret/**)"),
    ("Edit(//r/other/a)", "Edit(//r/other/a)"),
    ("Edit(//r/topmost/a)", "Edit(//r/topmost/a)"),
    ("Edit(~/top/a)", "Edit(/a)"),
    ("Edit(~/b)", "Edit(~/b)"),
    ("Edit(/a)", "Edit(/sub/a)"),
    ("Edit(a/b)", "Edit(/sub/a/b)"),
    ("Edit(./a)", "Edit(/sub/a)"),
    ("Edit(*.md)", "Edit(/sub/**/*.md)"),
    ("Edit(build/)", "Edit(/sub/**/build/)"),
    ("Edit(//*/top/a)", "Edit(/a)"),
    ("Edit(//**/sub/**)", "Edit(/**/sub/**)"),
    ("Edit(//R/Top/a)", "Edit(/a)"),
    ("Edit(//r)", "Edit(/**)"),
    ("Edit(~/**)", "Edit(/**)"),
    ("Edit (//r/top)", "Edit(/**)"),
    ("Ed*(//r/top/a)", "Ed*(/a)"),
    ("Edit(//link/a)", "Edit(/a)"),
])  # fmt: skip
def test_rules_of_paths_hold_in_the_copy(rule: str, moved: str) -> None:
    """The session works in the folder `sub` of the repository, which it calls by a link, too."""
    base = "/link/sub" if "link" in rule else "/r/top/sub"
    tree = Worktree("/state/trees/one", "longrein/one", "0" * 40, "/r/top", "sub")
    rules = Rules((rule,), (rule,), (rule,), base=base, home="/r")
    found = moved_rules(rules, tree)
    assert found == {"allow": [moved], "ask": [rule, moved], "deny": [rule, moved]}

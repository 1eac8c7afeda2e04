"""Fleets from their files to their results."""

import json
from pathlib import Path

import pytest

from longrein.models.failures import ATTEMPTS_MAX
from longrein.testing.loopback import Fault
from longrein.testing.loopback import Turn as Loopback
from longrein_fleet.fleet_state import AttemptEnded
from tests.e2e.harness import Provider, bash, call, calls, fails, needs_sandbox, says
from tests.fleet.harness import FleetHarness


def test_tasks_run_in_copies_and_their_results_have_patch_cost_and_session(
    fleet: FleetHarness,
) -> None:
    repository = fleet.repository()
    path = fleet.tasks(
        {"id": "one", "prompt": "write", "check": "grep -q new b.txt"},
        {
            "id": "two",
            "prompt": "write",
            "folder": "repo",
            "base": "HEAD~1",
            "setup": "echo made > made.txt",
            "check": "grep -q first a.txt && test -e made.txt && git log -1 --format=%s",
        },
    )
    done = fleet.fleet("run", path)
    assert done.code == 0, done.err
    assert "2 done" in done.err
    results = fleet.results()
    for one in results.values():
        assert (one["outcome"], one["cause"], one["check_code"]) == ("done", "done", 0)
        assert "+new" in one["patch"]
        assert "made.txt" not in one["patch"], "what setup made is no change of the agent"
        assert one["cost_usd"] > 0
        assert one["input_tokens"] > 0
        assert one["session"] in fleet.cli.sessions
    assert not (fleet.plain / "b.txt").exists()
    assert fleet.git(repository, "status", "--porcelain") == ""
    assert not fleet.cli.wait_survivors()
    shown = fleet.fleet("logs", "tasks", "one")
    assert results["one"]["session"] in shown.text
    assert "Written." in shown.text
    assert "2 done" in fleet.fleet("status", "tasks").text


def test_everything_wrong_in_the_file_is_told_before_anything_starts(fleet: FleetHarness) -> None:
    fleet.repository()
    lines = [
        {"id": "fine", "prompt": "hello", "folder": "plain"},
        "{broken",
        {"id": "more", "prompt": "hello", "folder": "plain", "colour": "red"},
        {"id": "fine", "prompt": "hello", "folder": "plain"},
        {"id": "gone", "prompt": "hello", "folder": "nowhere"},
        {"id": "base", "prompt": "hello", "folder": "repo", "base": "v9"},
        {"id": "limit", "prompt": "hello", "folder": "plain", "limits": {"turns": 0}},
        {"id": "usd", "prompt": "hello", "folder": "plain", "limits": {"usd": -1}},
        {"id": "empty", "prompt": " ", "folder": "plain"},
        {"id": "no base", "prompt": "hello", "folder": "plain", "base": "main"},
    ]
    path = fleet.folder / "tasks.jsonl"
    path.write_text("\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines))
    done = fleet.fleet("run", str(path))
    assert done.code == 2
    told = [line for line in done.err.splitlines() if "tasks.jsonl: line" in line]
    numbers = [int(line.split("line ")[1].split(":")[0]) for line in told]
    assert numbers == [2, 3, 4, 5, 6, 7, 8, 9, 10, 10]
    for number, words in ((3, "colour"), (4, "line 1"), (5, "nowhere"), (6, "v9"), (7, "turns")):
        assert words in told[numbers.index(number)]
    assert "nothing was started" in done.err.splitlines()[-1]
    assert fleet.cli.sessions == []


@pytest.mark.parametrize(("task", "turns", "cause"), [
    ({"check": "false"}, [says("x")], "check failed"),
    ({"setup": "exit 3"}, [says("x")], "setup failed"),
    ({}, [fails(400, "bad request")], "agent failed"),
    ({"limits": {"turns": 1}, "prompt": "write"}, [says("x")], "limit"),
    ({"limits": {"seconds": 0.5}}, [says("x", delay_s=60)], "limit"),
    ({"limits": {"usd": 0.000001}}, [says("x")], "limit"),
])  # fmt: skip
def test_a_task_that_fails_says_the_cause_and_the_exit_code_is_1(
    fleet: FleetHarness, task: dict[str, object], turns: list[dict[str, object]], cause: str
) -> None:
    fleet.plays(hello=turns)
    done = fleet.fleet("run", fleet.tasks({"id": "one", **task}), "--attempts", "1")
    assert done.code == 1, done.err
    result = fleet.results()["one"]
    assert (result["outcome"], result["cause"]) == ("failed", cause), result
    assert result["message"]


def test_failed_tasks_have_more_attempts_and_can_be_retried(fleet: FleetHarness) -> None:
    marks = fleet.folder / "marks"
    count = f"echo x >> {marks}; test $(wc -l < {marks}) -ge 4"
    path = fleet.tasks({"id": "one", "check": count}, {"id": "two"})
    assert fleet.fleet("run", path, "--attempts", "2").code == 1
    assert fleet.causes() == {"one": "check failed", "two": "done"}
    assert fleet.results()["one"]["attempts"] == 2
    done = fleet.fleet("retry", "tasks")
    assert done.code == 0, done.err
    results = fleet.results()
    assert (results["one"]["attempts"], results["two"]["attempts"]) == (4, 1)
    assert len(fleet.cli.sessions) == 5, "each attempt has a session of its own"


def test_a_cap_is_kept_and_the_tasks_for_which_no_money_is_left_end_as_budget(
    fleet: FleetHarness,
) -> None:
    fleet.fleet("run", fleet.tasks({"id": "one"}), "--name", "price")
    usd = fleet.results("price")["one"]["cost_usd"]
    tasks = [{"id": f"t{number}", "limits": {"usd": 1.0}} for number in range(20)]
    cap = 1.0 + 9.5 * usd  # the tenth task still fits, the eleventh does not
    done = fleet.fleet(
        "run", fleet.tasks(*tasks), "--max-budget-usd", f"{cap:.6f}", "--concurrency", "2"
    )
    assert done.code == 1, done.err
    causes = list(fleet.causes().values())
    assert causes.count("done") + causes.count("budget") == 20
    assert causes.count("done") == 10, causes
    assert fleet.state().budget.spent_usd <= cap
    assert fleet.state().budget.reserved == {}


def test_a_cap_can_be_raised_later_and_needs_limits_then_too(fleet: FleetHarness) -> None:
    path = fleet.tasks({"id": "one", "limits": {"usd": 1.0}})
    assert fleet.fleet("run", path, "--max-budget-usd", "0.5").code == 1
    assert fleet.causes() == {"one": "budget"}
    assert "raise --max-budget-usd" in fleet.results()["one"]["message"]
    done = fleet.fleet("retry", "tasks", "--max-budget-usd", "1")
    assert done.code == 0, done.err
    fleet.fleet("run", fleet.tasks({"id": "one"}), "--name", "free")
    done = fleet.fleet("resume", "free", "--max-budget-usd", "1")
    assert done.code == 2
    assert "limits.usd" in done.err


def test_a_folder_that_holds_the_state_folder_is_refused(fleet: FleetHarness) -> None:
    done = fleet.fleet("run", fleet.tasks({"id": "one", "folder": ".."}))
    assert done.code == 2
    assert "line 1: " in done.err
    assert "state folder" in done.err


def test_a_cap_needs_a_limit_of_each_task(fleet: FleetHarness) -> None:
    done = fleet.fleet("run", fleet.tasks({"id": "one"}), "--max-budget-usd", "1")
    assert done.code == 2
    assert "line 1: limits.usd is missing" in done.err


def test_an_outage_of_the_provider_does_not_count_as_an_attempt(fleet: FleetHarness) -> None:
    """The provider refuses as often as longrein asks; the fleet asks again in the same session."""
    body = json.dumps({"type": "error", "error": {"type": "overloaded_error", "message": "Busy"}})
    fault = Fault(status=529, headers={"retry-after": "0"}, body=body, times=ATTEMPTS_MAX)
    with Provider(Loopback(text="Hello.", fault=fault)) as provider:
        fleet.cli.settings(provider.settings("anthropic"), model="served/one")
        done = fleet.fleet("run", fleet.tasks({"id": "one"}))
        assert len(provider.requests) == ATTEMPTS_MAX + 1
        assert not provider.refused
    assert done.code == 0, done.err
    ends = [event.cause for event in fleet.events() if isinstance(event, AttemptEnded)]
    assert ends == ["outage", "done"]
    assert fleet.results()["one"]["attempts"] == 1
    assert len(fleet.cli.sessions) == 1


def test_a_quota_error_pauses_the_fleet_and_resume_goes_on_with_everything_kept(
    fleet: FleetHarness,
) -> None:
    no_money = fails(402, "insufficient_quota", times=99, pause_s=7 * 86_400)
    fleet.plays(hello=[*fleet_steps(), no_money], other=[says("Done.")])
    path = fleet.tasks({"id": "one"}, {"id": "two", "prompt": "other"})
    done = fleet.fleet("run", path, "--concurrency", "1")
    assert done.code == 75, done.err
    last = done.err.splitlines()[-1]
    assert "quota" in last
    assert "it has a quota again at 1970-01-08 00:00 UTC" in last, "the script's clock stands"
    assert "longrein fleet resume tasks" in last
    assert fleet.state().tasks["two"].number == 0, "nothing new starts"
    fleet.plays(hello=[*fleet_steps(), says("Done.")], other=[says("Done.")])
    done = fleet.fleet("resume", "tasks")
    assert done.code == 0, done.err
    assert len(fleet.cli.sessions) == 2, "the task went on in its session"
    trace = Path(fleet.cli.state / "fleets/tasks/tasks/one/1/work/acts.log").read_text()
    assert trace == "act\n", "no step ran twice"


def fleet_steps() -> list[dict[str, object]]:
    """A step that leaves a trace once for each time it runs."""
    return [calls(bash("echo act >> acts.log"))]


def test_a_fleet_of_that_name_is_not_run_twice(fleet: FleetHarness) -> None:
    path = fleet.tasks({"id": "one"})
    assert fleet.fleet("run", path).code == 0
    done = fleet.fleet("run", path)
    assert done.code == 2
    assert "longrein fleet resume tasks" in done.err
    assert fleet.fleet("run", path, "--name", "other").code == 0


@pytest.mark.parametrize(
    "words", ["nope", "run", "status", "status nobody", "resume nobody", "logs tasks", "stop ../x"]
)
def test_wrong_words_are_one_line_and_exit_code_2(fleet: FleetHarness, words: str) -> None:
    done = fleet.fleet(*words.split())
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_changes_that_the_agent_commits_binary_files_and_odd_names_are_in_the_patch(
    fleet: FleetHarness,
) -> None:
    repository = fleet.repository("a repo")
    command = (
        "printf 'a\\000b' > 'odd name.bin' && echo changed > a.txt && git add -A "
        "&& git -c user.name=a -c user.email=a@b.c commit -qm x"
    )
    fleet.plays(odd=[calls(bash(command)), says("Done.")])
    task = {"id": "one", "prompt": "--odd", "folder": "a repo", "check": "git log -1 --format=%s"}
    assert fleet.fleet("run", fleet.tasks(task)).code == 0
    patch = fleet.results()["one"]["patch"]
    assert "+changed" in patch
    assert "GIT binary patch" in patch
    (fleet.folder / "changes.patch").write_text(patch)
    fleet.git(repository, "apply", str(fleet.folder / "changes.patch"))
    assert (repository / "odd name.bin").read_bytes() == b"a\0b"


@needs_sandbox
def test_what_the_agent_wrote_runs_in_the_sandbox(fleet: FleetHarness) -> None:
    """The check runs its program, and the patch is made where git would run another."""
    del fleet.cli.env["LONGREIN_SANDBOX_MODE"]
    outside = fleet.folder / "outside.txt"
    nested = f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = touch {outside}; false\n"
    repository = fleet.repository()
    wrote = [
        calls(call("Write", file_path="prog.sh", content=f"touch {outside}; touch inside.txt\n")),
        calls(
            call(
                "Bash",
                command=f"git init -q inner && cd inner && git -c user.name=a -c user.email=b@c "
                f"commit -q --allow-empty -m x; printf '{nested}' > .git/config",
            )
        ),
        says("Done."),
    ]
    fleet.plays(nested=wrote)
    check = "sh prog.sh; git status --short; test -e inside.txt"
    task = {"id": "one", "prompt": "nested", "folder": repository.name, "check": check}
    ran = fleet.fleet("run", fleet.tasks(task))
    one = fleet.results()["one"]
    assert (ran.code, one["cause"], one["check_code"]) == (0, "done", 0), one
    assert "prog.sh" in one["patch"]
    assert not outside.exists()
    assert "prog.sh" in (fleet.cli.state / "fleets/tasks/tasks/one/1/check.log").read_text()

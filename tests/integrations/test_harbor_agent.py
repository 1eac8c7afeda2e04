"""longrein as an agent of the installed Harbor, in an environment without a container."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from longrein.testing.loopback import Call, Fault, Received, Turn
from tests.e2e.harness import Provider
from tests.fleet.test_harbor import HARBOR, harbor_task, needs_harbor
from tests.timeouts import HANG_S

ROOT = Path(__file__).parents[2]
MODEL = "anthropic/claude-haiku-4-5"
VALIDATE = """
import json, sys
from harbor.models.trajectories import Trajectory
print(Trajectory.model_validate_json(sys.stdin.read()).final_metrics.total_cost_usd)
"""
WRITES = Turn(calls=[Call("Write", {"file_path": "b.txt", "content": "new\n"})])
AGAIN = Turn(calls=[Call("Bash", {"command": "echo new > b.txt"})])
REFUSED = Turn(fault=Fault(status=401, body='{"error": {"message": "no such key"}}'))
SLOW = Turn(text="Never.", delay_s=600)


def script(request: Received) -> Turn:
    """Answer by the instruction of the task."""
    body = request.body.decode()
    results = body.count('"tool_result"')
    if "task-refused" in body:
        return REFUSED
    if "task-endless" in body:
        return AGAIN
    if not results:
        return WRITES
    return SLOW if "task-slow" in body else Turn(text="Written.")


def harbor_run(folder: Path, tasks: Path, url: str, *words: str) -> dict[str, Path]:
    """Run tasks with longrein; return the folder of each trial by the name of its task."""
    jobs = folder / "jobs"
    environ = {
        "PATH": f"{HARBOR}:{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": str(ROOT),
        "HARBOR_TELEMETRY": "off",
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "ANTHROPIC_API_KEY": "key-for-tests",
        "ANTHROPIC_BASE_URL": url,
    }
    command = [str(HARBOR / "harbor"), "run", "--path", str(tasks), "--jobs-dir", str(jobs), "-q"]
    command += ["--env", "tests.integrations.harbor_environment:LocalEnvironment", "--yes"]
    command += ["--agent", "longrein_fleet.harbor:LongreinAgent", "--model", MODEL, *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environ,
        check=False,
        capture_output=True,
        text=True,
        timeout=HANG_S,
    )
    trials = {path.parent.name.split("__")[0]: path.parent for path in jobs.glob("*/*/result.json")}
    assert trials, done.stdout + done.stderr
    return trials


def result_of(trial: Path) -> dict[str, Any]:
    """What Harbor has written of a trial."""
    result: dict[str, Any] = json.loads((trial / "result.json").read_text())
    return result


ENDS: tuple[tuple[str, float, str | None], ...] = (
    ("good", 1.0, None),
    ("endless", 1.0, None),  # a limit is no failure of the agent
    ("refused", 0.0, "NonZeroAgentExitCodeError"),
    ("slow", 1.0, "AgentTimeoutError"),
)
"""Task, its reward, the error that Harbor notes."""


@needs_harbor
def test_harbor_grades_longrein_and_gets_its_trajectory_cost_and_tokens(tmp_path: Path) -> None:
    """One job of Harbor with a task for each way in which longrein may end."""
    tasks = tmp_path / "tasks"
    for name, _, _ in ENDS:
        limit = "[agent]\ntimeout_sec = 15\n" if name == "slow" else ""
        harbor_task(tasks / name, limit, **{"instruction.md": f"task-{name}\n"})
    config = json.dumps({"models": {MODEL: {"price_output": 100_000}}})
    with Provider(script=script) as provider:
        words = ("--ak", f"config={config}", "--ak", "max_turns=3")
        trials = harbor_run(tmp_path, tasks, provider.url, *words)
        keys = {request.headers.get("x-api-key") for request in provider.requests}
    assert keys == {"key-for-tests"}
    for name, reward, error in ENDS:
        result = result_of(trials[name])
        raised = result["exception_info"]
        assert (raised and raised["exception_type"]) == error, raised
        assert result["verifier_result"]["rewards"] == {"reward": reward}, name
        assert result["agent_info"]["name"] == "longrein"
        assert (trials[name] / "agent/trajectory.json").exists(), name
    check_accounts(trials["good"])


def check_accounts(trial: Path) -> None:
    """Check tokens and cost against a trajectory that Harbor's own model accepts."""
    told = result_of(trial)["agent_result"]
    text = (trial / "agent/trajectory.json").read_text()
    metrics = json.loads(text)["final_metrics"]
    assert told["n_input_tokens"] == metrics["total_prompt_tokens"] > 1000
    assert told["n_cache_tokens"] == metrics["total_cached_tokens"]
    assert told["n_output_tokens"] == metrics["total_completion_tokens"] > 0
    assert told["cost_usd"] > 1, "the price of the settings that the agent was given"
    command = [HARBOR / "python", "-c", VALIDATE]
    environ = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    printed = subprocess.check_output(command, input=text, text=True, env=environ)
    assert float(printed) == pytest.approx(told["cost_usd"])

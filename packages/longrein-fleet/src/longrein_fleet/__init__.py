"""Many agent tasks from a file, each in its own copy of a folder, under one money limit.

From Python: `async for result in longrein_fleet.run("tasks.jsonl"): …`
"""

from typing import TYPE_CHECKING

from longrein.extension_points import HELP, STATE_DIR, Command, flag
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.agent.shared_rate_limit import Rates
    from longrein_fleet.fleet_state import Engine, TaskResult
    from longrein_fleet.fleet_tasks import Task, TaskLimits
    from longrein_fleet.runner import run

__getattr__ = names_at_first_use(
    __name__,
    {"fleet_state": "Engine Rates TaskResult", "fleet_tasks": "Task TaskLimits", "runner": "run"},
)

__version__ = "0.1.0"

__all__ = ["FLEET", "Engine", "Rates", "Task", "TaskLimits", "TaskResult", "run"]

FLEET = Command(
    "fleet",
    "run TASKS | resume NAME | retry NAME | status NAME | results NAME | compare A B | "
    "inspect NAME | logs NAME ID | stop NAME | delete NAME [FLAGS]",
    "Run many agent tasks from a JSONL file or a folder of Harbor tasks, each in its own copy of a "
    "folder, under one money limit. resume goes on with what was cut; retry runs the failed tasks "
    "anew. Exit code 0: all tasks are done and their checks passed; 1: some are not; 75: paused by "
    "the provider, resume goes on.",
    (
        flag("--name", "name of the fleet; default: that of the file", "word", "NAME"),
        flag("--concurrency", "tasks that run at once (2)", "count", "N"),
        flag("--attempts", "attempts of a task that fails (1)", "count", "N"),
        flag(
            "--max-budget-usd",
            "money of the whole fleet; each task then needs limits.usd",
            "money",
            "DOLLARS",
        ),
        flag("--watch", "status: draw it anew until nobody runs the fleet, on a terminal"),
        flag("--parquet", "results: write this file, with trajectories", "word", "FILE"),
        flag("--json", "compare: one JSON object"),
        flag("--out", "inspect: file to write", "word", "FILE"),
        flag("--no-open", "inspect: do not open a browser"),
        flag("--live", "inspect: serve the page and those of the sessions on 127.0.0.1"),
        flag("--keep-sessions", "delete: the fleet alone, not the sessions of its tasks"),
        flag("--yes", "delete without a question"),
        flag(
            "--store",
            "PostgreSQL database of the sessions, such as postgresql://HOST/DATABASE",
            "text",
            "ADDRESS",
        ),
        flag(
            "--engine",
            "local: processes of this machine (the default); ray: tasks of Ray",
            "word",
            "NAME",
            ("local", "ray"),
        ),
        flag(
            "--address",
            "Ray cluster to use; without it Ray is started on this machine",
            "word",
            "HOST:PORT",
        ),
        flag("--cpus", "CPUs that Ray reserves for a task (1)", "count", "N"),
        flag("--gpus", "GPUs that Ray reserves for a task (0)", "count", "N"),
        flag(
            "--label",
            "run tasks on nodes with this label of Ray only; may be given again",
            "words",
            "KEY=VALUE",
        ),
        flag("--requests-per-minute", "requests to a provider, of all tasks", "count", "N"),
        flag("--tokens-per-minute", "input beside the cache, and output", "count", "N"),
        flag("--input-tokens-per-minute", "input beside the cache", "count", "N"),
        flag("--output-tokens-per-minute", "output", "count", "N"),
        STATE_DIR,
        HELP,
    ),
    3,
    1,
    run="longrein_fleet.fleet_command:fleet",
    after="tasks",
)

"""Print the Harbor tasks of a folder as JSON: run by a Python that has the package `harbor`.

    python harbor_reader.py FOLDER

`harbor` needs Python 3.12 and seconds to import, so `harbor_tasks` runs this file by its path, in
the environment of Harbor. It needs nothing of longrein.
"""

import json
import sys
from pathlib import Path
from typing import Any

MARK = "harbor tasks: "
"""Start of the line that holds the tasks; Harbor's own libraries may print others."""
USED = {
    "": {"schema_version", "task", "metadata", "source", "solution"},
    "environment": {"build_timeout_sec", "cpus", "memory_mb", "storage_mb"},
    "agent": {"timeout_sec"},
    "verifier": {"timeout_sec"},
}
"""Keys of task.toml that a fleet follows, or that change nothing in what a task asks for."""
HARMLESS: tuple[Any, ...] = (None, 0, "", [], {}, "public", "shared")
"""Values of other keys that ask for nothing: no GPU, the usual network, the agent's environment."""
CONTAINERS = ("Dockerfile", "docker-compose.yaml")


def task_folders(folder: Path) -> list[Path]:
    """Return the folder if it is a task, else those in it that are."""
    if (folder / "task.toml").exists():
        return [folder]
    return sorted(one.parent for one in folder.glob("*/task.toml"))


def read_task(folder: Path) -> dict[str, Any]:
    """Return one task, or why it cannot be read."""
    from harbor.models.task.task import Task

    try:
        task = Task(folder)
    except (OSError, ValueError, RuntimeError) as error:
        return {"id": folder.name, "problems": [" ".join(str(error).split())]}
    limits = {
        "seconds": task.config.agent.timeout_sec,
        "check_seconds": task.config.verifier.timeout_sec,
    }
    return {
        "id": folder.name,
        "prompt": task.instruction,
        "folder": str(task.paths.environment_dir),
        "tests": str(task.paths.tests_dir),
        "limits": limits,
        "container": _container(task),
        "problems": _unused_keys(task.config),
    }


def _container(task: Any) -> str:
    """Return what makes the container of a task; '' if it has none."""
    image: str = task.config.environment.docker_image or ""
    found = [name for name in CONTAINERS if (task.paths.environment_dir / name).exists()]
    return image or next(iter(found), "")


def _unused_keys(config: Any) -> list[str]:
    """Name the keys that a fleet would have to follow and cannot."""
    found = list[str]()
    for section, used in USED.items():
        part = getattr(config, section) if section else config
        given = part.model_dump(mode="json", exclude_defaults=True)
        others = given.keys() - used - set(USED) - {"docker_image"}
        asked = [key for key in sorted(others) if given[key] not in HARMLESS]
        found += [f"{section}.{key}".lstrip(".") for key in asked]
    return [f"a fleet does not know {key} of task.toml" for key in found]


if __name__ == "__main__":
    tasks = [read_task(one) for one in task_folders(Path(sys.argv[1]).resolve())]
    print(MARK + json.dumps(tasks), flush=True)

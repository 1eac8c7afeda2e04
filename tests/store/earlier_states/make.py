"""Write a state folder as an earlier version leaves it, for `tests/e2e/test_upgrade.py`.

    git archive COMMIT src | tar -x -C FOLDER
    python -m tests.store.earlier_states.make FOLDER tests/store/earlier_states/DATE.tar.gz

The version's own code runs a scripted model: a reading, an edit, a todo list, an output that is
kept in a file, a subagent, a background task, two runs of one session and a second session. Beside
the sessions lies what that version exported of each.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

BASE = Path("/tmp/longrein-state")
"""The folder that the stored sessions name: the same on every machine."""
BYPASS = "--dangerously-skip-permissions"


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


EDIT = {"file_path": "app.py", "old_string": "value_7 = 7\n", "new_string": "value_7 = 8\n"}
TODO = call("TodoWrite", todos=[{"content": "test it", "status": "in_progress"}])
AGENT = {"description": "look around", "prompt": "Count the lines.", "subagent_type": "explore"}
TASK = call("Bash", command="echo begun; sleep 0.2; echo over", run_in_background=True)
READ = call("Read", file_path="app.py")
TURNS = [
    {"text": "I look.", "calls": [READ, call("Bash", command="seq 1 14000")]},
    {"text": "I change it.", "calls": [call("Edit", **EDIT), TODO]},
    {"text": "A helper looks.", "calls": [call("Agent", **AGENT)]},
    {"text": "There are 60 lines."},
    {"text": "A task runs.", "calls": [TASK]},
    {"text": "Value 7 is 8 now. 好。"},
    {"text": "The task is over."},
]


class EarlierVersion:
    """Runs the code in `source` in an empty home."""

    def __init__(self, source: Path) -> None:
        shutil.rmtree(BASE, ignore_errors=True)
        self.home, self.project, self.state = BASE / "home", BASE / "project", BASE / "state"
        (self.home / ".config/longrein").mkdir(parents=True)
        self.project.mkdir()
        (self.home / ".config/longrein/config.toml").write_text(
            f'model = "play/one"\n[providers.play]\nwire = "scripted"\nbase_url = '
            f'"{BASE}/script.json"\n'
        )
        lines = (f"value_{n} = {n}\n" for n in range(1, 61))
        (self.project / "app.py").write_text("".join(lines))
        subprocess.run(["git", "init", "-q"], cwd=self.project, check=True)
        self.environ = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            "LONGREIN_STATE_DIR": str(self.state),
            "LONGREIN_SANDBOX_MODE": "off",
            "PYTHONPATH": str(source / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def plays(self, *turns: dict[str, Any]) -> None:
        (BASE / "script.json").write_text(json.dumps({"turns": turns}))

    def run(self, *words: str) -> str:
        return subprocess.run(
            [sys.executable, "-m", "longrein", *words],
            cwd=self.project,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout


def make(source: Path, out: Path) -> None:
    """Write the state folder of the version in `source` to the archive `out`."""
    version = EarlierVersion(source)
    version.plays(*TURNS)
    version.run("-p", "Make value 7 eight.", BYPASS)
    version.plays(*TURNS[:-1], *[{"text": "It is 8."}] * 3)
    version.run("-p", "-c", "What is it now?", BYPASS)
    version.plays({"text": "A second session."})
    version.run("-p", "Say something short.")
    for folder in (version.state / "sessions").iterdir():
        exported = version.run("export", folder.name)
        (version.state / f"export-{folder.name}.jsonl").write_text(exported)
        (folder / "search.sqlite").unlink(missing_ok=True)
    with tarfile.open(out, "w:gz", compresslevel=9) as archive:
        archive.add(version.state, "state", filter=_is_kept)


def _is_kept(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if member.name.endswith(("/lock", "-shm")) else member


if __name__ == "__main__":
    make(Path(sys.argv[1]).resolve(), Path(sys.argv[2]))

"""Calls in the words of other agents, each made by a scripted model in a session of its own.

    python -m lab.foreign_calls CALLS.jsonl

A line of the file has `agent`, `name`, `arguments` and `means`. The project of each is `a.py`,
`b.ts` and `src/`; `{ROOT}` stands for its folder and `{TASK}` for a background task that runs.
Printed is for each call what it came to, and what the model was told.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PROJECT = {"a.py": "import os\nx = 1\nfoo = 3\n", "b.ts": "foo\n", "src/c.py": "", "src/d": "foo\n"}
SETTINGS = '[providers.s]\nwire = "scripted"\nbase_url = "{script}"\n'


def play(line: dict[str, Any], base: Path) -> tuple[bool, str]:
    """Make the call; return whether it ran, and what the model was told."""
    root, home = base / "project", base / "home"
    for name, text in PROJECT.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    arguments = json.loads(
        json.dumps(line["arguments"]).replace("{ROOT}", str(root)).replace("{TASK}", "b1")
    )
    calls = [{"name": "Read", "arguments": {"file_path": "a.py"}}]
    if "{TASK}" in json.dumps(line["arguments"]):
        waits = {"command": "sleep 3", "run_in_background": True}
        calls.append({"name": "Bash", "arguments": waits})
    made = {"name": line["name"], "arguments": arguments}
    turns = [*({"calls": [one]} for one in (*calls, made)), *[{"text": "done"}] * 4]
    script = base / "script.json"
    script.write_text(json.dumps({"turns": turns}))
    config = home / ".config/longrein/config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(SETTINGS.format(script=script))
    words = ["-p", "go", "--model", "s/m", "--output-format", "stream-json", "--verbose"]
    ran = subprocess.run(
        [sys.executable, "-m", "longrein", *words, "--dangerously-skip-permissions"],
        cwd=root,
        env={"HOME": str(home), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    results = []
    for row in map(json.loads, ran.stdout.splitlines()):
        content = row.get("message", {}).get("content", "") if row.get("type") == "user" else ""
        results += [one for one in content if isinstance(one, dict) and "tool_use_id" in one]
    if len(results) <= len(calls):
        return False, ran.stdout[-300:] + ran.stderr[-300:]
    told = results[len(calls)]
    return not told.get("is_error"), str(told["content"])


def main() -> None:
    """Play each call of the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("calls", type=Path)
    lines = [json.loads(line) for line in parser.parse_args().calls.read_text().splitlines()]
    ran = 0
    for line in lines:
        with tempfile.TemporaryDirectory(prefix="calls-") as base:
            is_run, told = play(line, Path(base))
        ran += is_run
        given = f"{line['agent']}: {line['name']} {json.dumps(line['arguments'])}"
        print(f"{'ran ' if is_run else 'FAILED'} {given}\n     {line['means']}: {told[:160]!r}")
    print(f"{ran} of {len(lines)} ran")


if __name__ == "__main__":
    main()

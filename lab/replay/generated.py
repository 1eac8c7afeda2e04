"""Generated sessions in the neutral format, for users without recordings: same seed, same bytes."""

import json
import random
from pathlib import Path
from typing import Any

NOUNS = (
    "order",
    "ledger",
    "packet",
    "worker",
    "branch",
    "cursor",
    "signal",
    "bucket",
    "ticket",
    "parser",
)
VERBS = ("load", "store", "merge", "split", "check", "render", "collect", "publish")


def write_sessions(folder: Path, count: int = 6, seed: int = 7) -> Path:
    """Write `count` sessions into `folder` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    for n in range(count):
        rows = session(f"generated-{n:02}", random.Random(seed * 1000 + n), 30 + 25 * n)
        (folder / f"generated-{n:02}.jsonl").write_text(
            "".join(json.dumps(row) + "\n" for row in rows)
        )
    return folder


def session(name: str, chance: random.Random, requests: int) -> list[dict[str, Any]]:
    """Return the rows of one session: an agent reads files, searches, edits and runs tests."""
    rows: list[dict[str, Any]] = [{"type": "header", "name": name, "system_tokens_est": 9000}]
    files = {
        f"src/{noun}_{n}/{noun}_store.py": source(chance, noun, n) for n, noun in enumerate(NOUNS)
    }
    read: list[str] = []
    rows.append(
        _row(
            "user",
            "user",
            0,
            text="Make every worker_store handle a ledgerTimeout, and keep the tests green.",
        )
    )
    for step in range(requests):
        path = chance.choice(list(files))
        name_of, args, result = _act(chance, path, files, read)
        rows.append(
            _row(
                "assistant",
                "assistant_text",
                step,
                name="thinking",
                text=f"Next I look at {path} again.",
            )
        )
        rows.append(
            _row(
                "assistant",
                "tool_call",
                step,
                name=name_of,
                args=json.dumps(args),
                call_id=f"c{step}",
            )
        )
        rows.append(
            _row("tool", "tool_result", step + 1, name=name_of, text=result, call_id=f"c{step}")
        )
        if chance.random() < 0.05:
            rows.append(_row("user", "user", step + 1, text=f"Good. Look at {path} as well."))
    return rows


def _act(
    chance: random.Random, path: str, files: dict[str, str], read: list[str]
) -> tuple[str, dict[str, Any], str]:
    dice = chance.random()
    if read and dice < 0.35:
        path = read[-1 - min(len(read) - 1, int(chance.expovariate(0.7)))]
        old = chance.choice([line for line in files[path].split("\n") if len(line) > 20])
        new = old + f"  # step {chance.randrange(1000)}"
        files[path] = files[path].replace(old, new, 1)
        return (
            "Edit",
            {"file_path": path, "old_string": old, "new_string": new},
            f"The file {path} has been updated.",
        )
    if dice < 0.7:
        read.append(path)
        numbered = "\n".join(f"{n + 1:6}\t{line}" for n, line in enumerate(files[path].split("\n")))
        return "Read", {"file_path": path}, numbered
    if dice < 0.85:
        passed = "\n".join(
            f"tests/test_{noun}.py::test_{noun}_{n} PASSED" for n, noun in enumerate(NOUNS * 4)
        )
        return "Bash", {"command": "pytest -v"}, f"{passed}\n40 passed in {chance.randrange(9)}.21s"
    noun = chance.choice(NOUNS)
    found = [
        f"{p}:{n}: {line}"
        for p, t in files.items()
        for n, line in enumerate(t.split("\n"))
        if noun in line
    ]
    return "Grep", {"pattern": noun}, "\n".join(found[:80])


def source(chance: random.Random, noun: str, n: int) -> str:
    """Return a generated file of code."""
    lines = [f'"""The {noun} store, part {n}."""', "", "import logging", ""]
    for k in range(chance.randrange(10, 40)):
        verb, other = chance.choice(VERBS), chance.choice(NOUNS)
        lines += [
            f"def {verb}_{noun}_{k}({other}_id: int, retries: int = {k}) -> {other.title()}{k}:",
            f'    """Handle the {noun} once it was asked to {verb}."""',
            f"    {noun}_state = {other}_table[{other}_id].{verb}(retries)",
            f'    logging.info("{verb} %s gave %s", {other}_id, {noun}_state)',
            f"    return {noun}_state",
            "",
        ]
    return "\n".join(lines)


def _row(role: str, kind: str, step: int, **fields: str) -> dict[str, Any]:
    return {"role": role, "kind": kind, "step": step, "text": "", **fields}

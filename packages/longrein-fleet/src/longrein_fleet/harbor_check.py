"""Check of a Harbor task: `tests/test.sh` decides by the reward that it writes, as in Harbor.

In Harbor the tests lie in `/tests` and write to `/logs/verifier` of a container. Without one, both
lie in the folder of the attempt, and the scripts are told so: the two paths are replaced in the
copy of their texts.
"""

import math
import os
import re
import shlex
import shutil

import msgspec

from longrein.folder_trees import remove_tree

TESTS, LOGS = "tests", "logs"
REWARD_BYTES_MAX = 100_000
SOLVED = 1.0
"""The least reward of a task that is done."""
_PATHS = re.compile(rb"(?<![\w.~*)}\]/-])/(tests|logs)(?![\w.-])")
"""`/tests` and `/logs` where they begin a path."""


def prepare_tests(tests: str, folder: str) -> str:
    """Copy the tests of a task into `folder`, ready to run; return the line that runs them."""
    remove_tests(folder)
    copy = os.path.join(folder, TESTS)
    shutil.copytree(tests, copy, symlinks=True)
    remove_tree(os.path.join(folder, LOGS), ignore_errors=True)
    os.makedirs(os.path.join(folder, LOGS, "verifier"))
    root = os.fsencode(folder)
    for above, _, names in os.walk(copy):
        for path in (os.path.join(above, name) for name in names):
            if not os.path.islink(path):
                _replace_paths(path, root)
    script = os.path.join(copy, "test.sh")
    os.chmod(script, 0o700)
    return shlex.quote(script)


def remove_tests(folder: str) -> None:
    """Remove the copy of the tests, so that no later attempt reads it. The logs stay."""
    remove_tree(os.path.join(folder, TESTS), ignore_errors=True)


def _replace_paths(path: str, root: bytes) -> None:
    with open(path, "rb") as file:
        data = file.read()
    if b"\0" in data:  # no text
        return
    changed = _PATHS.sub(lambda found: root + found[0], data)
    if changed != data:
        with open(path, "wb") as file:
            file.write(changed)


def read_reward(folder: str) -> tuple[float | None, str]:
    """Return the reward, and the problem if there is none.

    `reward.json` comes before `reward.txt`. It holds a number, or an object of numbers: the one
    called `reward`, else the least of them. `harbor.verifier.verifier` has the same rules.
    """
    logs = os.path.join(os.path.realpath(folder), LOGS, "verifier")
    for name, read in (("reward.json", _json_reward), ("reward.txt", float)):
        path = os.path.join(logs, name)
        if not os.path.lexists(path):
            continue
        if os.path.realpath(path) != path or not os.path.isfile(path):
            return None, f"{name} is no plain file"  # it may wait for ever, or show a secret
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read(REWARD_BYTES_MAX)
        except (OSError, UnicodeDecodeError) as error:
            return None, f"{name} cannot be read: {error}"
        try:
            reward = read(text)
        except (ValueError, msgspec.DecodeError):
            return None, f"{name} holds no reward: {text[:100].strip()!r}"
        if not math.isfinite(reward):
            return None, f"{name} holds no finite reward: {text[:100].strip()!r}"
        return reward, ""
    return None, "test.sh wrote no reward.txt and no reward.json in /logs/verifier"


def _json_reward(text: str) -> float:
    """Return the reward in JSON text. Raises `ValueError`, `msgspec.DecodeError`."""
    rewards: float | dict[str, float] = msgspec.json.decode(text, type=float | dict[str, float])
    if isinstance(rewards, float):
        return rewards
    if not rewards:
        raise ValueError("no reward")
    return rewards.get("reward", min(rewards.values()))

"""`spawner_in`: a spawner of real commands whose spool lies in a folder of the test."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from longrein.workspace import SupervisedSpawner, SupervisionOptions


def spawner_in(
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    roots: Sequence[str] = (),
    grace_s: float = 2.0,
) -> SupervisedSpawner:
    """Return a spawner with its spool in `folder`; its supervisor starts with the first command."""
    return SupervisedSpawner(
        str(folder / "tasks"),
        SupervisionOptions(grace_s=grace_s),
        wall_us=lambda: time.time_ns() // 1000,
        notice=print,
        environ=environment,
        roots=roots,
    )

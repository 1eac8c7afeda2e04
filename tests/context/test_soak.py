"""Slice of `python -m lab.context.soak`: a real session on a real disk that reads for
long.
"""

from pathlib import Path

import pytest

from lab.context.soak import SECRET, soak

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("steps", [12, 2])
async def test_A19_a_long_session_stays_in_its_window(
    tmp_path: Path, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    worker = await soak(tmp_path, 60, steps)
    assert not worker.stopped
    assert max(worker.views) <= worker.budget.usable_tokens
    assert SECRET in worker.recalled

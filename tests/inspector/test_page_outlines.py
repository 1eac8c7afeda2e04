"""The structure of each view, as a screen reader finds it.

After a wanted change: `python -m tests.inspector.pictures`.
"""

import re
from pathlib import Path

import pytest

from tests.inspector.chromium import Chromium
from tests.inspector.pictures import OUTLINES, PICTURED, PICTURES, ROOT, VIEWS, outline


@pytest.mark.parametrize("view", VIEWS)
def test_structure_of_the_view(browser: Chromium, tmp_path: Path, view: str) -> None:
    assert outline(browser, tmp_path, view) == (OUTLINES / f"{view}.txt").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("view", VIEWS)
def test_everything_that_can_be_used_has_a_name(view: str) -> None:
    used = r"(?m)^(?:tab|slider|button|link|searchbox|combobox|checkbox|radio|meter|figure|table|feed|article):?$"  # noqa: E501
    assert not re.findall(used, (OUTLINES / f"{view}.txt").read_text(encoding="utf-8"))


def test_pictures_of_the_docs_are_small() -> None:
    assert sorted(path.name for path in PICTURES.glob("inspect-*.png")) == sorted(
        f"inspect-{view}.png" for view in PICTURED
    )
    for view in PICTURED:
        path = PICTURES / f"inspect-{view}.png"
        assert path.stat().st_size < 150_000, path.relative_to(ROOT)

"""Outlines and pictures of the inspector's views: `python -m tests.inspector.pictures` writes both
anew.

The outlines are what a screen reader finds; tests compare them. The pictures stand in the docs;
nothing compares them.
"""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

from longrein.extensions.inspector.page import render
from tests.inspector.chromium import Chromium, Page, chromium
from tests.inspector.example import inspection

ROOT = Path(__file__).parents[2]
OUTLINES = Path(__file__).parent / "outlines"
PICTURES = ROOT / "docs" / "images"
VIEWS = ("context", "cost", "time", "items", "transcript", "subagents", "files", "compare")
PICTURED = {"context": 1100, "time": 90, "items": 1100}
"""Pictured views, and the entries of the session in the picture."""
PICTURE_SIZE = (1100, 640)
ROWS_MAX = 6


def open_view(browser: Chromium, folder: Path, view: str, entries: int) -> Page:
    """Open the page of a generated session, or of two for the comparison, at a view."""
    path = folder / f"{view}.html"
    data = inspection(entries)
    document = {"a": data, "b": inspection(entries, seed=2)} if view == "compare" else data
    path.write_bytes(render(json.dumps(document).encode()))
    page = browser.new_page()
    page.open(f"{path.as_uri()}#{view}")
    page.wait_until(
        "new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(true), 50)))"
    )
    return page


def outline(browser: Chromium, folder: Path, view: str) -> str:
    """Return the outline of a view of a short session."""
    page = open_view(browser, folder, view, 40)
    lines = page.outline()
    page.close()
    return "\n".join(first_rows(lines)) + "\n"


def first_rows(lines: list[str]) -> Iterator[str]:
    """Leave out the later rows of a feed: how many are in sight depends on the fonts."""
    rows = 0
    for line in lines:
        role = line.partition(":")[0]
        rows = rows + 1 if role == "article" else rows if role in ("link", "button") else 0
        if rows <= ROWS_MAX:
            yield line


def main() -> None:
    OUTLINES.mkdir(exist_ok=True)
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name, chromium(Path(name) / "profile") as browser:
        folder = Path(name)
        for view in VIEWS:
            (OUTLINES / f"{view}.txt").write_text(outline(browser, folder, view), encoding="utf-8")
        for view, entries in PICTURED.items():
            page = open_view(browser, folder, view, entries)
            width, height = PICTURE_SIZE
            page.call(
                "Emulation.setDeviceMetricsOverride",
                width=width,
                height=height,
                deviceScaleFactor=1,
                mobile=False,
            )
            page.wait_until(
                f"innerWidth === {width} && new Promise((done) => setTimeout(() => done(true), "
                "200))"
            )
            page.save_picture(PICTURES / f"inspect-{view}.png")
            page.close()


if __name__ == "__main__":
    main()

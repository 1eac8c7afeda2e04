"""Time of the inspector's page in headless Chromium: `python -m lab.inspector_page` for
10,000 entries.

`--json FILE` takes the data of another session, as `python -m lab.inspector --json FILE`
writes them.
"""

import argparse
import json
import statistics
import sys
import tempfile
from pathlib import Path

from lab.context.table import Row, print_table
from longrein.extensions.inspector.page import render
from tests.inspector.chromium import Chromium, Page, chromium, find_chromium
from tests.inspector.example import inspection

OPEN_MS_MAX, BYTES_MAX, FRAME_MS_MAX = 2000, 8_000_000, 16.7
OPENINGS = 5
VIEWS = ("context", "cost", "time", "items", "transcript", "subagents", "files")

SHOW = """new Promise((done) => {
    const start = performance.now();
    location.hash = "#%s";
    addEventListener("hashchange", () => {
        document.body.offsetHeight;
        done(performance.now() - start);
    }, { once: true });
})"""
SEARCH = """(() => {
    const search = document.querySelector("#transcript-search");
    search.value = "total";
    const start = performance.now();
    search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
    document.body.offsetHeight;
    return performance.now() - start;
})()"""
SCROLL = """(async () => {
    const list = document.querySelector(".list");
    const times = [];
    for (let step = 0; step < 200; step += 1) {
        const start = performance.now();
        list.scrollTop += 337;
        list.dispatchEvent(new Event("scroll"));
        document.body.offsetHeight;
        times.push(performance.now() - start);
        if (step % 20 === 0) await new Promise((done) => setTimeout(done, 0));
    }
    return times;
})()"""


def measure_page(browser: Chromium, url: str) -> list[Row]:
    """Return the rows of the table for a page."""
    opened: list[float] = []
    page: Page | None = None
    for _ in range(OPENINGS):
        if page is not None:
            page.close()
        page = browser.new_page()
        page.open(url)
        opened.append(float(page.run("document.documentElement.dataset.ready")))
    assert page is not None
    best = min(opened)
    note = f"the best of {OPENINGS}; median {statistics.median(opened):.0f} ms"
    rows = [
        Row(
            "open, until the first view can be used",
            f"{best:.0f} ms",
            "< 2 s",
            best < OPEN_MS_MAX,
            note,
        )
    ]
    views = {view: float(page.run(SHOW % view)) for view in (*VIEWS[1:], "context")}
    slowest = max(views, key=lambda view: views[view])
    note = ", ".join(f"{view} {ms:.0f}" for view, ms in views.items())
    rows.append(
        Row(
            "show a view for the first time",
            f"{views[slowest]:.0f} ms",
            "< 1 s",
            views[slowest] < 1000,
            note,
        )
    )
    page.run(SHOW % "transcript")
    search = float(page.run(SEARCH))
    rows.append(Row("search the transcript", f"{search:.0f} ms", "< 500 ms", search < 500))
    page.run(
        "document.querySelector('#transcript-search').dispatchEvent(new KeyboardEvent('keydown', "
        "{ key: 'Escape' }))"
    )
    steps = sorted(page.run(SCROLL))
    middle, late = statistics.median(steps), steps[int(0.95 * len(steps))]
    note = f"95 % of the steps below {late:.1f} ms"
    rows.append(
        Row(
            "scroll step of the transcript",
            f"{middle:.1f} ms",
            "< 16.7 ms",
            middle < FRAME_MS_MAX,
            note,
        )
    )
    heap = page.run("performance.memory?.usedJSHeapSize ?? 0") / 1e6
    rows.append(Row("memory of the scripts", f"{heap:.0f} MB", "< 200 MB", heap < 200))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--entries", type=int, default=10_000)
    parser.add_argument("--json", type=Path, help="data of a session instead of generated ones")
    given = parser.parse_args()
    if find_chromium() is None:
        print("Chromium is missing: install the package chromium.")
        return 1
    data = given.json.read_bytes() if given.json else json.dumps(inspection(given.entries)).encode()
    page = render(data)
    size = Row("size of the page", f"{len(page) / 1e6:.2f} MB", "< 8 MB", len(page) < BYTES_MAX)
    with tempfile.TemporaryDirectory() as name, chromium(Path(name) / "profile") as browser:
        path = Path(name) / "page.html"
        path.write_bytes(page)
        return print_table([size, *measure_page(browser, path.as_uri())])


if __name__ == "__main__":
    sys.exit(main())

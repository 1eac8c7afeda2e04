"""The page of a fleet: figures, failures and tasks in headless Chromium, and the breaks by which
it is filled.
"""

import json
import threading
from typing import Any

import pytest

from lab.inspector_session import SampleLogs, SampleSession
from longrein.extensions.inspector.inspection import SessionInspector
from longrein.extensions.inspector.model_requests import BREAK_EVENTS, causes_of_breaks
from longrein.extensions.inspector.page import render
from longrein.extensions.inspector.page_server import InspectorServer
from longrein_context.events.escape import escape
from tests.inspector.chromium import Chromium, Page
from tests.inspector.conftest import OpenPage
from tests.inspector.example import inspection
from tests.inspector.test_page_use import ACTIVE, HOSTILE
from tests.inspector.test_page_views import focus, table, text, texts, value
from tests.tables import cases

Json = dict[str, Any]


@pytest.mark.parametrize("entries", [60, 300, 2_000])
@pytest.mark.parametrize("window", [40_000, 200_000])
def test_breaks_without_view_are_those_of_page_of_the_session(entries: int, window: int) -> None:
    sample = SampleSession(window=window).grow(entries)
    inspector = SessionInspector(SampleLogs(sample), lambda _: sample.budget)
    inspector.read()
    few = [one for one in sample.entries if type(one.event).__name__ in BREAK_EVENTS]
    found = inspector.inspection().requests
    assert len(few) < len(sample.entries)
    assert causes_of_breaks(few, lambda _: sample.budget) == [
        request.break_.cause for request in found if request.break_
    ]


# --- The page -------------------------------------------------------------------------------------


def task(name: str, usd: float = 0.0, **more: object) -> Json:
    """A task that is done, as the page gets it."""
    session = f"session-{name}"
    figures = {"usd": usd, "seconds": 10 * usd, "input": round(1_000 * usd), "output": 7}
    given = {"id": name, "outcome": "done", "cause": "done", "attempts": 1, "session": session}
    return {**given, **figures, "cache_read": round(500 * usd), **more}


def failed(name: str, cause: str = "check failed", **more: object) -> Json:
    return task(name, 1.0, **{"outcome": "failed", "cause": cause, "message": "exit 1", **more})


def waiting(name: str) -> Json:
    return {"id": name, "outcome": "waiting"}


def fleet(*tasks: Json, **more: object) -> Json:
    return {"version": 1, "fleet": "x", "started_us": 1, "tasks": [*tasks], **more}


FIGURES, FAILURES, TASKS = (
    *("Figures of the tasks that have ended", "Failures by cause", "Tasks of the fleet"),
)


def rows(page: Page, caption: str) -> list[list[str]]:
    """Rows of a table below its head; [] without the table."""
    captions = texts(page, "caption")
    return table(page, caption)[1:] if caption in captions else []


@cases(
    "tasks figures failures",
    ([], [], []),
    ([waiting("a"), task("b", outcome="running", cause="")], [], []),
    ([failed("a", "budget", attempts=0, session="")], [], [["budget", "1", "100.0 %"]]),
    (
        [task("a", 1.0), task("b", 2.0), task("c", 6.0), waiting("d")],
        [["Money", "3", "$9.00", "$3.00", "$1.00", "$1.20", "$2.00", "$5.20", "$6.00"]],
        [],
    ),
    (
        [failed("a"), failed("b"), failed("c", "limit"), failed("d", message="")],
        [["Money", "4", "$4.00", *["$1.00"] * 6]],
        [["check failed", "3", "75.0 %"], ["limit", "1", "25.0 %"]],
    ),
)
def test_figures_and_failures_are_those_of_the_tasks(
    open_page: OpenPage, tasks: list[Json], figures: list[list[str]], failures: list[list[str]]
) -> None:
    page = open_page(fleet(*tasks))
    assert text(page, "h1") == "Fleet x"
    assert rows(page, FIGURES)[:1] == figures
    assert [row[:3] for row in rows(page, FAILURES)] == failures
    page.run("location.hash = '#tasks'")
    page.wait_until("document.querySelector('#tab-tasks').ariaSelected === 'true'")
    assert [row[0] for row in rows(page, TASKS)] == [one["id"] for one in tasks]


def test_the_tasks_are_sorted_by_a_click_and_name_the_command(open_page: OpenPage) -> None:
    page = open_page(
        fleet(
            task("a", 1.0, breaks=["cleared", "expired", "cleared"], reward=0.5),
            waiting("b"),
            task("c", 3.0, missing="not stored"),
        ),
        "tasks",
    )
    first, second, third = rows(page, TASKS)
    assert first[:3] == ["a", "done", "done"]
    assert first[7:] == [
        *("50.0 %", "3", "cleared × 2, expired", "1", "0.5"),
        "longrein inspect session-a",
    ]
    assert second[7:] == ["", "", "", "0", "", ""]
    assert third[8:] == ["", "", "1", "", "not stored (session-c)"]
    page.run(
        "[...document.querySelectorAll('th button')].find((one) => one.textContent === 'Money')"
        ".click()"
    )
    assert [row[0] for row in rows(page, TASKS)] == ["c", "a", "b"]
    assert page.run("document.querySelectorAll('td a, th a').length") == 0


def test_a_column_of_a_chart_tells_its_task_and_the_largest_is_first(open_page: OpenPage) -> None:
    page = open_page(fleet(task("a", 1.0), task("b", 3.0, breaks=["prefix"]), failed("c")))
    labels = texts(page, "figcaption")
    assert [label.partition(" ")[0] for label in labels] == ["Money", "Time", "Breaks"]
    focus(page, "[role=slider]")
    page.press("Home")
    assert value(page).startswith("Task 1, id b, outcome done, cause done, money $3.00")
    assert "breaks prefix" in value(page)


def test_a_served_page_links_the_sessions_that_are_stored(open_page: OpenPage) -> None:
    given = fleet(task("a", 1.0), task("b", missing="not stored"), waiting("c"), live=True)
    page = open_page(given, "tasks")
    assert page.run("[...document.querySelectorAll('th a')].map((one) => one.pathname)") == [
        "/session-a"
    ]


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_texts_of_tasks_run_nothing_and_are_shown(open_page: OpenPage, word: str) -> None:
    hostile = failed(word, word, message=word, session=word, breaks=[word])
    page = open_page(fleet(hostile, live=True) | {"fleet": word})
    for view in ("fleet", "tasks"):
        page.run(f"location.hash = '#{view}'")
        page.wait_until(f"document.querySelector('#tab-{view}').ariaSelected === 'true'")
        assert page.run(f"document.querySelectorAll({json.dumps(ACTIVE)}).length") == 0
        assert escape(word) in page.run("document.querySelector('#panel').textContent")
    assert page.run("window.hacked ?? null") is None
    assert page.dialogs == []
    assert [url for url in page.requests if not url.startswith("file:")] == []


class Served:
    """The pages of a fleet whose one session is the example."""

    def html(self, path: str, token: str) -> bytes | None:
        document = {"/": fleet(task("a"), live=True), "/session-a": inspection(60)}.get(path)
        return render(json.dumps(document).encode()) if document and token else None

    def live(self, path: str) -> None:
        """No page sends events."""

    def end(self) -> None:
        """Nothing waits."""


@pytest.mark.parametrize(("view", "link"), [("tasks", "th a"), ("fleet", "[role=slider]")])
def test_a_task_of_a_served_page_opens_its_session(browser: Chromium, view: str, link: str) -> None:
    server = InspectorServer(Served())
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    page = browser.new_page()
    page.open(f"{server.url}#{view}")
    focus(page, link)
    page.press("Enter")
    page.wait_until("document.querySelector('#tab-transcript') !== null")
    assert page.run("location.pathname") == "/session-a"
    page.run("history.back()")
    page.wait_until(f"document.querySelector('#tab-{view}')?.ariaSelected === 'true'")
    assert page.problems == []
    page.close()
    server.shutdown()
    server.server_close()

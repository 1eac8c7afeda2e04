"""The inspector's page in use: keys, search, long transcripts, themes, hostile texts and a
running session.
"""

import json
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from longrein.extensions.inspector.page import render
from longrein_context.events.escape import escape
from tests.inspector.chromium import Chromium, Json, Page
from tests.inspector.conftest import OpenPage
from tests.inspector.example import inspection
from tests.inspector.test_page_views import VIEWS, focus, text, texts
from tests.tables import cases, record


def active(page: Page) -> str:
    """Id, label or text of the element with the focus."""
    found: str = page.run(
        "((at) => at.id || at.getAttribute('aria-label') || at.textContent)(document.activeElement)"
    )
    return found


# --- Keys -----------------------------------------------------------------------------------------


def test_tabs_follow_the_arrows_and_the_digits(open_page: OpenPage) -> None:
    page = open_page(inspection(60))
    focus(page, "[role=tab]")
    for key, tab in (
        ("ArrowRight", "cost"),
        ("End", "files"),
        ("ArrowRight", "context"),
        ("ArrowLeft", "files"),
    ):
        page.press(key)
        page.wait_until(f"document.querySelector('#tab-{tab}').ariaSelected === 'true'")
        assert active(page) == f"tab-{tab}"
        assert page.run("document.querySelectorAll('[role=tab][tabindex=\"0\"]').length") == 1
        assert (
            page.run("document.querySelector('#panel').getAttribute('aria-labelledby')")
            == f"tab-{tab}"
        )
    for number, view in enumerate(VIEWS, 1):
        page.press(str(number))
        page.wait_until(f"document.querySelector('#tab-{view}').ariaSelected === 'true'")


def test_slash_searches_escape_leaves_and_question_mark_lists_the_keys(open_page: OpenPage) -> None:
    page = open_page(inspection(60), "context")
    page.press("/")
    page.wait_until("document.activeElement.id === 'transcript-search'")
    page.type("part 1/2?")  # keys of the page do nothing in the search
    assert page.run("document.activeElement.value") == "part 1/2?"
    page.press("Escape")
    assert page.run("document.activeElement.value") == ""
    page.press("Escape")
    assert active(page) == "tab-transcript"
    page.press("?")
    page.wait_until("document.querySelector('#keys').open")
    assert "search in the transcript" in text(page, "#keys")
    page.press("Escape")
    page.wait_until("!document.querySelector('#keys').open")


def test_back_returns_to_the_view_before(open_page: OpenPage) -> None:
    page = open_page(inspection(60), "files")
    page.run("document.querySelector('.touches a').click()")
    page.wait_until("document.querySelector('#tab-transcript').ariaSelected === 'true'")
    page.run("history.back()")
    page.wait_until("document.querySelector('#tab-files').ariaSelected === 'true'")


@cases(
    "address",
    "transcript/:999999",
    "transcript/x",
    "items/r999",
    "nothing",
    "items/%E0%A4%A",
    "transcript/",
)
def test_address_of_nothing_is_harmless(open_page: OpenPage, address: str) -> None:
    page = open_page(inspection(60), address)
    assert page.run("document.querySelectorAll('[role=tab][aria-selected=true]').length") == 1


# --- The transcript -------------------------------------------------------------------------------


def test_long_transcript_holds_only_the_rows_in_sight(open_page: OpenPage) -> None:
    data = inspection(10_000)
    page = open_page(data, "transcript")
    page.wait_until("document.querySelector('.list .row')")
    size = len(data["transcript"])
    assert text(page, "#panel .tools [role=status]") == f"{size:,} rows"
    focus(page, ".list .row")
    for key, position in (("End", size), ("ArrowUp", size - 1), ("Home", 1), ("ArrowDown", 2)):
        page.press(key)
        assert page.run("Number(document.activeElement.ariaPosInSet)") == position
        assert page.run("Number(document.activeElement.ariaSetSize)") == size
        assert page.run("document.querySelectorAll('.list .row').length") < 60
        assert in_sight(page)
    middle = data["transcript"][size // 2]
    page.run(f"location.hash = '#transcript/{middle.get('agent', '')}:{middle['seq']}'")
    page.wait_until(f"document.activeElement.ariaPosInSet === '{size // 2 + 1}'")
    assert in_sight(page)


def in_sight(page: Page) -> bool:
    """True if the row with the focus begins within its list."""
    seen: bool = page.run(
        """(() => {
            const list = document.querySelector(".list").getBoundingClientRect();
            const row = document.activeElement.getBoundingClientRect();
            return row.top >= list.top - 1 && row.top < list.bottom;
        })()"""
    )
    return seen


def test_rows_do_not_overlap_after_scrolling_and_opening(open_page: OpenPage) -> None:
    page = open_page(inspection(2000), "transcript")
    overlap = """(() => {
        const boxes = [...document.querySelectorAll(".list .row")].map((row) => row.getBoundingClientRect());
        boxes.sort((a, b) => a.top - b.top);
        return boxes.slice(1).map((box, at) => Math.abs(box.top - boxes[at].bottom)).filter((gap) => gap > 1).length;
    })()"""  # noqa: E501
    scroll = """new Promise((done) => {
        document.querySelector(".list").scrollTop += %d;
        requestAnimationFrame(() => setTimeout(done, 0));
    })"""
    for distance in (300, 5000, 40_000, -20_000, -777):
        page.run(scroll % distance)
        page.run("document.activeElement.blur()")
        assert page.run(overlap) == 0
        page.run("document.querySelector('.list .fold')?.click()")
        page.run("document.activeElement.blur()")
        page.run(scroll % 1)
        assert page.run(overlap) == 0


@pytest.mark.parametrize("words", ["price[39]", "SUM(PRICES)", "part 0 of", ".*", "One caller"])
def test_search_finds_what_the_data_hold(open_page: OpenPage, words: str) -> None:
    data = inspection(600)
    hits = [row for row in data["transcript"] if words.lower() in searched(row)]
    page = open_page(data, "transcript")
    page.press("/")
    page.type(words)
    page.press("Enter")
    assert (
        text(page, "#panel .tools [role=status]")
        == f"{len(hits):,} of {len(data['transcript']):,} rows"
    )
    if hits:
        page.wait_until("document.querySelector('.list mark')")
        assert {mark.lower() for mark in texts(page, ".list mark")} == {words.lower()}
        page.press("ArrowDown")
        assert page.run("document.activeElement.ariaPosInSet") == "1"


def searched(row: Json) -> str:
    return "\n".join(
        (row["text"], row.get("title", ""), *(line["text"] for line in row.get("diff", [])))
    ).lower()


def test_search_can_be_narrowed_by_kind_and_agent(open_page: OpenPage) -> None:
    data = inspection(300)
    page = open_page(data, "transcript")
    choose = """((at, value) => {
        const select = document.querySelectorAll("#panel select")[at];
        select.value = value;
        select.dispatchEvent(new Event("change"));
    })"""
    page.run(f"{choose}(1, 'a7')")
    assert text(page, "#panel .tools [role=status]").startswith("3 of ")
    page.run(f"{choose}(0, 'result')")
    assert text(page, "#panel .tools [role=status]").startswith("1 of ")


def test_result_is_folded_and_opens_whole(open_page: OpenPage) -> None:
    data = inspection(300)
    row = next(
        row for row in data["transcript"] if row["text"].count("\n") == 39 and "diff" not in row
    )
    page = open_page(data, f"transcript/:{row['seq']}")
    page.wait_until("document.activeElement.matches('.row')")
    shown = "document.activeElement.querySelector('pre').textContent"
    assert page.run(shown) == "\n".join(row["text"].split("\n")[:8])
    page.press("Enter")
    assert page.run(shown) == row["text"]
    assert page.run("document.activeElement.querySelector('.fold').ariaExpanded") == "true"
    page.press("Enter")
    assert page.run(shown) != row["text"]


def test_diff_marks_added_and_removed_lines(open_page: OpenPage) -> None:
    data = inspection(300)
    row = next(row for row in data["transcript"] if "diff" in row)
    page = open_page(data, f"transcript/:{row['seq']}")
    page.wait_until("document.activeElement.matches('.row')")
    spans = "[...document.activeElement.querySelectorAll('.diff > span')]"
    lines = page.run(f"{spans}.map((line) => [line.className, line.textContent.trim()])")
    assert lines == [
        ["heading", "src/app.py, line 10"],
        ["same", "def total(prices):"],
        ["removed", "-    return sum(prices) - 1"],
        ["added", "+    return sum(prices)"],
    ]


def test_what_was_left_out_is_said(open_page: OpenPage) -> None:
    data = inspection(60)
    data["transcript"][0] |= {"left_out": 5000, "bytes": 9000, "images": 2}
    data["left_out"] = {"bodies": 1, "bytes": 5000, "above_bytes": 4000, "subagents": 3}
    page = open_page(data, "transcript")
    page.wait_until("document.querySelector('.list .row')")
    assert "1 text above 4.0 kB shortened by 5.0 kB in all" in text(page, ".warning")
    assert "The logs of 3 subagents are not in this page." in text(page, ".warning")
    assert "5.0 kB left out in the middle" in text(page, ".list .row")
    assert "2 pictures or documents not shown here" in text(page, ".list .row")


# --- Appearance -----------------------------------------------------------------------------------

BACKGROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(255, 255, 255)", "rgb(20, 23, 28)"


@pytest.mark.parametrize("dark", [False, True])
def test_theme_follows_the_system_and_the_switch(open_page: OpenPage, dark: bool) -> None:
    page = open_page(inspection(60), "context", dark=dark)
    assert page.run(BACKGROUND) == (DARK if dark else LIGHT)
    for label, background in (
        ("dark", DARK),
        ("light", LIGHT),
        ("system", DARK if dark else LIGHT),
    ):
        page.press("t")
        assert text(page, "#theme") == f"Theme: {label}"
        assert page.run(BACKGROUND) == background
    page.emulate("prefers-color-scheme", "light" if dark else "dark")
    assert page.run(BACKGROUND) == (LIGHT if dark else DARK)


@pytest.mark.parametrize("dark", [False, True])
def test_texts_have_the_contrast_that_wcag_asks_for(open_page: OpenPage, dark: bool) -> None:
    page = open_page(inspection(60), "context", dark=dark)
    script = """(names) => {
        const probe = document.body.appendChild(document.createElement("p"));
        return names.map((name) => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color; });
    }"""  # noqa: E501
    names = ["back", "raised", "text", "muted", "accent", "break"]
    back, raised, *colors = (
        luminance(color) for color in page.run(f"({script})({json.dumps(names)})")
    )
    for name, color in zip(names[2:], colors, strict=True):
        for behind in (back, raised):
            light, deep = max(color, behind), min(color, behind)
            assert (light + 0.05) / (deep + 0.05) >= 4.5, name


def luminance(color: str) -> float:
    """Relative luminance of `rgb(r, g, b)` after WCAG 2."""
    parts = [int(part) / 255 for part in color.removeprefix("rgb(").removesuffix(")").split(",")]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_reduced_motion_has_no_transition(open_page: OpenPage) -> None:
    page = open_page(inspection(60))
    time = "parseFloat(getComputedStyle(document.querySelector('[role=tab]')).transitionDuration)"
    assert page.run(time) > 0
    page.emulate("prefers-reduced-motion", "reduce")
    assert page.run(time) == 0


@pytest.mark.parametrize("view", VIEWS)
def test_narrow_window_needs_no_sideways_scrolling(open_page: OpenPage, view: str) -> None:
    page = open_page(inspection(200), view)
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=420,
        height=700,
        deviceScaleFactor=1,
        mobile=False,
    )
    page.wait_until("innerWidth === 420")
    page.wait_until("document.documentElement.scrollWidth <= 420")


# --- Hostile texts --------------------------------------------------------------------------------

HOSTILE = [
    '<img src=x onerror="window.hacked=1;alert(1)">',
    "</script><script>window.hacked=1;alert(1)</script>",
    "<!--<script>window.hacked=1",
    "javascript:window.hacked=1",
    "\u202etxt.exe\u202c \u2066\u200b\x1b[31m\x00\x07\u2028",
    "'\"><svg onload=alert(1)>&lt;b&gt;",
    "__proto__",
]


ACTIVE = "img, svg, iframe, object, embed, base, [onerror], [onload], a[href^=javascript]"


def poisoned(value: Any, word: str, key: str = "") -> Any:
    """Put a text into every free text of a document; ids and closed sets stay."""
    closed = {"form", "sign", "agent", "handle", "n", "parent", "id", "live"}
    match value:
        case dict():
            return {name: poisoned(one, word, name) for name, one in value.items()}
        case list():
            return [poisoned(one, word, key) for one in value]
        case str() if key not in closed:
            return f"{word}{value}" if key == "kind" else f"{word}\n{value}"
        case _:
            return value


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_texts_run_nothing_and_are_shown(open_page: OpenPage, word: str) -> None:
    data = poisoned(inspection(120), word)
    handle = next(item["handle"] for item in data["items"] if item.get("tool"))
    page = open_page(data)
    elements = page.run("[document.scripts.length, document.styleSheets.length]")
    for view in (*VIEWS, f"items/{handle}", "transcript/:1"):
        page.run(f"location.hash = '#{view}'")
        page.wait_until(
            f"document.querySelector('#tab-{view.split('/')[0]}').ariaSelected === 'true'"
        )
        page.run("for (const one of document.querySelectorAll('summary, .fold')) one.click()")
        page.run("new Promise((done) => setTimeout(done, 30))")
        assert page.run(f"document.querySelectorAll({json.dumps(ACTIVE)}).length") == 0
    assert page.run("[document.scripts.length, document.styleSheets.length]") == elements
    assert page.run("window.hacked ?? null") is None
    assert page.dialogs == []
    assert [url for url in page.requests if not url.startswith("file:")] == []
    assert escape(word) in page.run("document.querySelector('.list').textContent")


@cases("address", "<img src=x onerror=alert(1)>", "items/<script>", "transcript/<b>:1", "__proto__")
def test_address_is_data_too(open_page: OpenPage, address: str) -> None:
    page = open_page(inspection(60), address)
    assert page.dialogs == []
    assert page.run("document.querySelectorAll('img, b:empty').length") == 0


# --- A running session ----------------------------------------------------------------------------


@contextmanager
def live_server(document: Json) -> Iterator[tuple[str, "queue.Queue[tuple[str, Json] | None]"]]:
    """Serve the page and its events on loopback. None in the queue ends the stream."""
    events: queue.Queue[tuple[str, Json] | None] = queue.Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if self.path.startswith("/events?token=abc"):
                self.send_header("Content-Type", "text/event-stream")
                self.end_headers()
                while (event := events.get()) is not None:
                    self.wfile.write(
                        f"event: {event[0]}\ndata: {json.dumps(event[1])}\n\n".encode()
                    )
                    self.wfile.flush()
            else:
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(render(json.dumps(document).encode(), live=True))

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", events
    finally:
        events.put(None)
        server.shutdown()
        thread.join()
        server.server_close()


def test_running_session_grows_by_events(browser: Chromium) -> None:
    data = inspection(60) | {"live": "/events?token=abc"}
    request = dict(data["requests"][-1]) | record(
        n=len(data["requests"]) + 1, total_usd=99.5, usd=98.0
    )
    row = {
        "seq": 9000,
        "at_us": data["session"]["ended_us"],
        "kind": "text",
        "author": "assistant",
        "text": "It is done.",
    }
    item = {**data["items"][0], "begins": "new words"}
    with live_server(data) as (url, events):
        page = browser.new_page()
        page.open(f"{url}#transcript")
        page.wait_until("document.querySelector('#live').textContent === 'live'")
        page.run("document.querySelector('.list').scrollTop = 1e9")
        update = {
            "session": data["session"] | {"title": "Renamed"},
            "transcript": [row],
            "requests": [request],
            "items": [item],
        }
        events.put(("update", update))
        page.wait_until("document.querySelector('.list').textContent.includes('It is done.')")
        assert text(page, "#title") == "Renamed"
        assert text(page, "#panel .tools [role=status]") == f"{len(data['transcript']) + 1:,} rows"
        page.press("1")
        page.wait_until(
            f"document.querySelector('.readout strong')?.textContent === 'Request {request['n']}'"
        )
        page.run(f"location.hash = '#items/{item['handle']}'")
        page.wait_until("document.querySelector('.detail p')?.textContent === 'new words'")
        events.put(
            ("update", {"session": data["session"], "requests": [request | {"total_usd": 123.0}]})
        )
        page.press("2")
        page.wait_until("document.querySelector('#tab-cost').ariaSelected === 'true'")
        page.wait_until(
            "[...document.querySelectorAll('.readout')].at(-2).textContent.includes('$123.00')"
        )
        events.put(("end", {}))
        page.wait_until(
            "document.querySelector('#live').textContent === 'longrein inspect has ended'"
        )
        assert page.problems == []
        page.close()

"""The page of the open sessions, in headless Chromium."""

import json
import threading
from typing import Any

import pytest

from longrein.extensions.inspector.page_data import OpenSessionsData
from longrein.extensions.inspector.page_server import InspectorServer, LivePage
from longrein.frontends.reports.open_sessions import OpenSessionRow
from longrein_context.events.escape import escape
from tests.inspector.chromium import Chromium
from tests.inspector.conftest import OpenPage
from tests.inspector.test_fleet_view import rows
from tests.inspector.test_page_use import ACTIVE, HOSTILE
from tests.inspector.test_page_views import text

CAPTION = "Sessions that are open"


def row(session: str, state: str = "works", **more: Any) -> OpenSessionRow:
    given = {"title": "mend", "question": "", "model": "play/one", "context_tokens": 33_000}
    return OpenSessionRow(
        **{
            "session": session,
            "cwd": "/w",
            "state": state,
            "since_us": 9,
            "usd": 2,
            **given,
            **more,
        }
    )


def test_the_table_keeps_the_order_and_follows_the_server(browser: Chromium) -> None:
    first = OpenSessionsData([row("s1", "asks", question="Bash make"), row("s2", title="")])
    live = LivePage[OpenSessionsData](first, lambda _, now: (now, now))
    server = InspectorServer(live)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    page = browser.new_page()
    page.open(server.url)
    page.wait_until("document.querySelector('#live').textContent === 'live'")
    assert text(page, "h1") == "Open sessions"
    shown = [(one[:2], one[3:]) for one in rows(page, CAPTION)]
    assert shown == [
        (["mend", "asks Bash make"], ["/w", "play/one", "33,000", "$2.00"]),
        (["s2", "works"], ["/w", "play/one", "33,000", "$2.00"]),
    ]
    links = page.run(
        "[...document.querySelectorAll('th a')].map((one) => one.pathname + one.search)"
    )
    assert links == [f"/{name}?token={server.token}" for name in ("s1", "s2")]
    live.show(OpenSessionsData([]))
    page.wait_until("document.querySelector('#panel').innerText.includes('No session is open.')")
    assert page.problems == []
    page.close()
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("word", HOSTILE)
def test_hostile_texts_of_sessions_run_nothing_and_are_shown(
    open_page: OpenPage, word: str
) -> None:
    given = {
        "session": word,
        "title": word,
        "cwd": word,
        "state": "asks",
        "question": word,
        "model": word,
    }
    page = open_page({"open_sessions": [{**given, "since_us": 9, "context_tokens": 1, "usd": 0}]})
    assert page.run(f"document.querySelectorAll({json.dumps(ACTIVE)}).length") == 0
    assert escape(word) in page.run("document.querySelector('#panel').textContent")
    assert page.run("window.hacked ?? null") is None
    assert page.dialogs == []

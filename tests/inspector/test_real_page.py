"""The page with the data of longrein itself: a session that the log gives, in headless Chromium."""

import json
from pathlib import Path

import msgspec
import pytest

from lab.inspector_session import SampleLogs, SampleSession
from longrein.extensions.inspector.inspection import SessionInspector, inspect_session
from longrein.extensions.inspector.page import render
from longrein.extensions.inspector.page_data import Inspection
from tests.inspector.chromium import Chromium
from tests.inspector.example import inspection
from tests.inspector.test_page_use import ACTIVE, HOSTILE, VIEWS
from tests.inspector.test_page_views import focus, value


def test_example_has_the_form_of_the_data() -> None:
    data = inspection(200)
    decoded = msgspec.json.decode(json.dumps(data), type=Inspection)
    complete = json.loads(msgspec.json.encode(decoded))
    assert all(key in complete for key in data)
    for name in ("requests", "lanes", "items", "transcript", "subagents", "files"):
        for given, read in zip(data[name], complete[name], strict=True):
            defaults = {key for key, one in given.items() if key not in read and one}
            assert not defaults, (name, defaults)


@pytest.mark.parametrize("word", HOSTILE[:2])
def test_a_log_is_shown_in_every_view(browser: Chromium, tmp_path: Path, word: str) -> None:
    sample = SampleSession(window=40_000, hostile=word).grow(300)
    inspector = SessionInspector(SampleLogs(sample), lambda _: sample.budget)
    inspector.read()
    found = inspect_session(inspector)
    path = tmp_path / "page.html"
    path.write_bytes(render(msgspec.json.encode(found)))
    page = browser.new_page()
    page.open(path.as_uri())
    for view in VIEWS:
        page.run(f"location.hash = '#{view}'")
        page.wait_until(f"document.querySelector('#tab-{view}').ariaSelected === 'true'")
        page.run("for (const one of document.querySelectorAll('summary, .fold')) one.click()")
        assert page.run(f"document.querySelectorAll({json.dumps(ACTIVE)}).length") == 0
    page.run("location.hash = '#context'")
    page.wait_until("document.querySelector('#tab-context').ariaSelected === 'true'")
    focus(page, "[role=slider]")
    page.press("End")
    request = found.requests[-1]
    total = sum(getattr(request.tokens, name) for name in request.tokens.__struct_fields__)
    assert value(page).startswith(f"Request {request.n}, total {total:,}")
    for item in [item for item in found.items if len(item.stages) > 2][:5]:
        page.run(f"location.hash = '#items/{item.handle}'")
        page.wait_until(
            f"document.querySelector('.detail h3').textContent.startsWith('{item.handle} ')"
        )
        assert page.run("document.querySelectorAll('.stages > li').length") == len(item.stages)
    assert (page.problems, page.dialogs) == ([], [])
    page.close()

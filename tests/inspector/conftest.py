import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from longrein.extensions.inspector.page import render
from tests.inspector.chromium import Chromium, Json, Page, chromium, find_chromium

OpenPage = Callable[..., Page]


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if find_chromium() is None:
        pytest.skip("Chromium is missing")
    with chromium(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture
def open_page(browser: Chromium, tmp_path: Path) -> Iterator[OpenPage]:
    """Open the page of a document at a view; what goes wrong in the page fails the test."""
    opened: list[Page] = []

    def open_document(document: Json, view: str = "", *, dark: bool = False) -> Page:
        path = tmp_path / f"page{len(opened)}.html"
        path.write_bytes(render(json.dumps(document).encode()))
        page = browser.new_page(dark=dark)
        opened.append(page)
        page.open(f"{path.as_uri()}#{view}")
        return page

    yield open_document
    for page in opened:
        assert page.problems == []
        page.close()

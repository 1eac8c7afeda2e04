"""The files of the inspector's page: policy, data block, licence. The behaviour is in
`test_page_views.py`.
"""

import base64
import hashlib
import json
import re
from pathlib import Path

import pytest

from longrein.extensions.inspector import page
from longrein.extensions.inspector.page import SCRIPTS, STYLES, render

FOLDER = Path(page.__file__).parent / "page"
LIBRARY = {"uPlot.iife.min.js", "uPlot.min.css"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "\u2028\u2029\x00\x1b[2J\u202e",
    "@DATA@ @SCRIPT@",
]


def parts(html: bytes) -> dict[str, str]:
    """Return the policy and the text of the page's blocks, as a browser would split them."""
    text = html.decode()
    found = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert [attributes for attributes, _ in found] == [' type="application/json" id="data"', ""]
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert style is not None
    assert policy is not None
    return {"data": found[0][1], "script": found[1][1], "style": style[1], "policy": policy[1]}


def source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("live", [False, True])
def test_policy_allows_the_one_script_and_style_and_no_network(live: bool) -> None:
    found = parts(render(b"{}", live=live))
    directives = dict(directive.split(" ", 1) for directive in found["policy"].split("; "))
    assert directives == {
        "default-src": "'none'",
        "script-src": source(found["script"]),
        "style-src": source(found["style"]),
        "connect-src": "'self'" if live else "'none'",
        "base-uri": "'none'",
        "form-action": "'none'",
    }


@pytest.mark.parametrize("text", HOSTILE)
def test_data_comes_back_whole_and_cannot_end_its_block(text: str) -> None:
    found = parts(render(json.dumps({"session": {"title": text}}).encode()))
    assert json.loads(found["data"]) == {"session": {"title": text}}
    assert "<" not in found["data"]


def test_page_names_no_address_that_a_browser_would_load() -> None:
    html = render(b"{}").decode()
    assert not re.findall(
        r"<(?:link|img|iframe|object|embed|base)\b|<script[^>]*\ssrc|@import|url\(", html
    )


def test_texts_are_never_parsed_as_html() -> None:
    forbidden = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|srcdoc"
        r"|\beval\b|new Function"
    )
    for name in (*SCRIPTS, "uPlot.iife.min.js"):
        assert not re.findall(forbidden, (FOLDER / name).read_text()), name


def test_every_file_is_in_the_page_and_is_short() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {*SCRIPTS, *STYLES, *LIBRARY, "index.html", "uPlot.LICENSE"}
    for name in names - LIBRARY:
        assert len((FOLDER / name).read_text().splitlines()) <= 600, name


def test_page_carries_the_licence_of_the_chart_library() -> None:
    html = render(b"{}").decode()
    assert (FOLDER / "uPlot.LICENSE").read_text().strip() in html
    assert "uPlot 1.6.32" in (Path(__file__).parents[2] / "NOTICE").read_text()
    assert "v1.6.32" in (FOLDER / "uPlot.iife.min.js").read_text()[:100]

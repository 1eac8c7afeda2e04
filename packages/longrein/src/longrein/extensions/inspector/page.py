"""The inspector's page: one HTML file with its data, style and scripts, which loads nothing.

The browser enforces this: the page's policy allows only the one script and the one style, by their
hashes, and no network except the server of a live page. The texts of a session stand in a data
block and become text nodes.
"""

import base64
import hashlib
from functools import cache
from importlib.resources import files

SCRIPTS = (
    "dom.js",
    "format.js",
    "session_data.js",
    "chart.js",
    "virtual_list.js",
    "context_view.js",
    "cost_view.js",
    "time_scale.js",
    "time_view.js",
    "item_view.js",
    "transcript_view.js",
    "subagent_view.js",
    "file_view.js",
    "compare_view.js",
    "fleet_view.js",
    "sessions_view.js",
    "app.js",
)
"""Files of `page/` in the order of their use. They share one function scope."""
STYLES = ("uPlot.min.css", "app.css")


def render(data: bytes, *, live: bool = False) -> bytes:
    """Return the page for the JSON of one of the documents of `page_data`.

    A `live` page may connect to its own server for events, any other page to nothing.
    """
    before, after = _frame(live)
    return before + data.replace(b"<", rb"\u003c") + after


def content_policy(live: bool) -> str:
    """Return the Content-Security-Policy of the page."""
    network = "'self'" if live else "'none'"
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_style())}; "
        f"connect-src {network}; base-uri 'none'; form-action 'none'"
    )


@cache
def _frame(live: bool) -> tuple[bytes, bytes]:
    """Return what stands before and after the data."""
    page = _read("index.html")
    for name, text in (
        ("POLICY", content_policy(live)),
        ("STYLE", _style()),
        ("LICENCE", _read("uPlot.LICENSE").strip()),
        ("SCRIPT", _script()),
    ):
        page = page.replace(f"@{name}@", text, 1)
    before, _, after = page.partition("@DATA@")
    return before.encode(), after.encode()


@cache
def _script() -> str:
    own = "\n".join(_read(name) for name in SCRIPTS)
    return f'{_read("uPlot.iife.min.js")}\n(() => {{\n"use strict";\n{own}}})();\n'


@cache
def _style() -> str:
    return "\n".join(_read(name) for name in STYLES)


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _read(name: str) -> str:
    return (files("longrein.extensions.inspector") / "page" / name).read_text(encoding="utf-8")

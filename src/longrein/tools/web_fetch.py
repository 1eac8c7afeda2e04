"""`WebFetch` tool: a web page as Markdown text."""

import re
from typing import TYPE_CHECKING

from longrein.events import ToolError
from longrein.tools.file_access import run_by_size
from longrein.tools.port import Outcome, ToolContext
from longrein.tools.registry import make_tool

if TYPE_CHECKING:
    from longrein.workspace.net import Response

REDIRECTS_MAX = 5
HTML_BYTES_MAX = 2 << 20
"""Longer HTML is converted without its layout; the converter takes some seconds for this much."""
HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPE = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|javascript|yaml|toml|x-sh|x-ndjson|sql)"
)
ACCEPT = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.1"


async def WebFetch(hands: ToolContext, url: str) -> Outcome:
    """Fetch a web page as Markdown."""
    from longrein.workspace.net import NetError

    try:
        page = await _fetch(hands, url)
    except NetError as error:
        raise ToolError(f"[not-fetched] {error}.") from None
    if page.location:
        return Outcome.of(
            f"{page.url} redirects to another host: {page.location}\nCall WebFetch with that "
            "address."
        )
    size = f"{len(page.data):,} bytes" + (", the rest is cut" if page.is_cut else "")
    head = f"{page.url} ({page.status} {page.content_type or 'no type'}, {size})"
    if not page.data:
        text = "The page is empty."
    elif not _is_text(page):
        raise ToolError(f"[no-text] {head} is no text. Download it with a command if it is needed.")
    else:
        text = await run_by_size(hands, len(page.data), lambda: page_text(page))
    body = f"{head}\n\n{text}"
    return Outcome.fail(body) if page.status >= 400 else Outcome.of(body)


async def _fetch(hands: ToolContext, url: str) -> "Response":
    """Fetch a page; follow redirects on the same host. One to another host is returned: it has
    not been allowed.
    """
    from longrein.workspace.net import NetError, parse_url, request

    options, host = hands.options, parse_url(url).hostname
    for _ in range(REDIRECTS_MAX + 1):
        page = await request(
            url,
            trusted=options.web_private_hosts,
            timeout_s=options.web_timeout_s,
            bytes_max=options.web_bytes_max,
            headers=(("Accept", ACCEPT),),
        )
        if not page.location or parse_url(page.location).hostname != host:
            return page
        url = page.location
    raise NetError(f"more than {REDIRECTS_MAX} redirects, the last to {url}")


def _is_text(page: "Response") -> bool:
    if page.content_type:
        return bool(TEXT_TYPE.fullmatch(page.content_type))
    return b"\0" not in page.data[:8_000]


def page_text(page: "Response") -> str:
    """Return the text of a page; HTML as Markdown."""
    try:
        text = page.data.decode(page.charset or "utf-8", "replace")
    except LookupError:
        text = page.data.decode("utf-8", "replace")
    if page.content_type not in HTML_TYPES:
        return text
    if len(page.data) <= HTML_BYTES_MAX:
        try:
            return _as_markdown(text)
        except RecursionError:  # nested too deeply
            pass
    return _without_tags(text)


def _as_markdown(text: str) -> str:
    from bs4 import BeautifulSoup
    from markdownify import MarkdownConverter

    soup = BeautifulSoup(text, "html.parser")
    for tag in soup(["script", "style", "noscript", "template", "svg", "iframe", "head"]):
        title = tag.title if tag.name == "head" else None
        tag.replace_with(f"{title.get_text().strip()}\n\n") if title else tag.decompose()
    markdown = MarkdownConverter(heading_style="ATX", bullets="-").convert_soup(soup)
    return re.sub(r"\n{3,}", "\n\n", markdown).strip()


def _without_tags(text: str) -> str:
    text = re.sub(r"(?is)<(script|style)\b.*?</\1\s*>|<!--.*?-->", " ", text)
    import html

    return re.sub(r"\s*\n\s*", "\n", html.unescape(re.sub(r"<[^<>]*>", " ", text))).strip()


WEB_FETCH = make_tool(
    WebFetch,
    access="read",
    together=True,
    kind="other",
    key_argument="url",
    aliases=("fetch", "fetchurl", "web_fetch"),
)

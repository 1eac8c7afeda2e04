"""`WebFetch` tool: a web page as Markdown text."""

import codecs
import re
import sys
from typing import TYPE_CHECKING

from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, ToolContext
from longrein.workspace import CommandSpec
from longrein.workspace.stream_process import run_with_input
from longrein_context.events import ToolError

if TYPE_CHECKING:
    from longrein.workspace.http import Response

REDIRECTS_MAX = 5
IN_PROCESS_BYTES_MAX = 64 << 10
"""Longer HTML is converted in a process of its own; this much takes a tenth of a second at most."""
CONVERT_S = 60.0
CONVERTED_BYTES_MAX = 64 << 20
CODECS = re.compile(
    r"utf-8(-sig)?|utf-16(-[bl]e)?|ascii|iso(8859-\d+|2022_(jp|kr)\S*)|cp(125\d|866|874|932|949|950)"
    r"|koi8-[rtu]|gb(k|2312|18030)|hz|big5(hkscs)?|euc_(jp|kr|jis_2004)|shift_jis\S*|johab"
    r"|mac-(roman|cyrillic)|tis-620"
)
"""Codecs of the charsets that web pages have."""
HTML_TYPES = ("text/html", "application/xhtml+xml")
TEXT_TYPE = re.compile(
    r"text/.*|application/(?:.*\+)?(?:json|xml|javascript|yaml|toml|x-sh|x-ndjson|sql)"
)
ACCEPT = "text/markdown, text/html;q=0.9, text/plain;q=0.8, */*;q=0.1"


async def WebFetch(context: ToolContext, url: str, prompt: str = "") -> Outcome:  # noqa: ARG001
    """Fetch a web page as Markdown.

    prompt: What to look for; the whole page comes, and you look for it there.
    """
    from longrein.workspace.http import NetError

    try:
        page = await _fetch(context, url)
    except NetError as error:
        raise ToolError(f"[not-fetched] {error}. Try another address.") from None
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
        text = await _page_text(context, page)
    body = f"{head}\n\n{text}"
    return Outcome.fail(body) if page.status >= 400 else Outcome.of(body)


async def _fetch(context: ToolContext, url: str) -> "Response":
    """Fetch a page; follow redirects on the same host. One to another host is returned: it has
    not been allowed.
    """
    from longrein.workspace.http import NetError, parse_url, request

    options, host = context.options, parse_url(url).hostname
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


async def _page_text(context: ToolContext, page: "Response") -> str:
    """Return the text of a page; HTML as Markdown. Raises `ToolError`."""
    from longrein.tools.html_to_markdown import markdown_of

    text = page.data.decode(_encoding(page.charset), "replace")
    if page.content_type not in HTML_TYPES:
        return text
    if len(page.data) <= IN_PROCESS_BYTES_MAX:
        return markdown_of(text)
    return await _convert(context, text)


def _encoding(charset: str) -> str:
    """Return the Python codec of a charset, UTF-8 for one that no page has.

    Some codecs of Python take quadratic time, or are no text encodings.
    """
    try:
        name = codecs.lookup(charset or "utf-8").name
    except (LookupError, ValueError):
        return "utf-8"
    return name if CODECS.fullmatch(name) else "utf-8"


async def _convert(context: ToolContext, text: str) -> str:
    """Convert a large page in a process of its own, so that an interrupt ends it at once."""
    from longrein.tools.html_to_markdown import __file__ as program

    words = [sys.executable, "-I", "-S", "-B", program]
    done = await run_with_input(
        context.workspace.spawner,
        CommandSpec(words, "/", context.workspace.environment("")),
        data=text.encode("utf-8", "replace"),
        timeout_s=CONVERT_S,
        output_bytes_max=CONVERTED_BYTES_MAX,
    )
    if done.exit.code != 0:
        raise ToolError(
            "[not-converted] The page could not be converted within the limits: download it with "
            "a command if it is needed."
        )
    return done.stdout.decode("utf-8", "replace")


WEB_FETCH = make_tool(
    WebFetch,
    access="read",
    together=True,
    kind="other",
    key_argument="url",
    listing="unlisted",
    aliases=("fetch", "fetchurl", "web_fetch"),
)

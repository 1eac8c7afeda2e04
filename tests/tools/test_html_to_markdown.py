"""HTML as Markdown: what a page becomes, and work proportional to its length."""

import re

import pytest

from longrein.tools.html_to_markdown import Token, markdown_of, tokens
from tests.work_counters import functions_called

TABLE = "<table><tr><th>a<th>b</tr><tr><td>1</td><td>2<br>3<table><tr><td>in</table></table>z"
MARKDOWN = [
    ("<title>T &amp; x</title><h1>Big <b>one</b></h1><p>text", "T & x\n\n# Big **one**\n\ntext"),
    ("<p>a <a href='/x?a=1&amp;b=2'>the  <i>link</i></a>, b", "a [the *link*](/x?a=1&b=2), b"),
    ("<b></b><a href=x></a>end <b> bold </b>!", "end **bold** !"),
    ("<ul><li>a<li>b<ul><li>c<p>d</ul><li>e</ul>f", "- a\n- b\n  - c\n\n    d\n- e\n\nf"),
    ("<ol><li>a</li><li>b</li></ol>", "1. a\n2. b"),
    ("<pre><code>x = 1\n  y</code></pre>z", "```\nx = 1\n  y\n```\n\nz"),
    ("a<blockquote><p>b<p>c</blockquote>d", "a\n\n> b\n>\n> c\n\nd"),
    (TABLE, "| a | b |\n| --- | --- |\n| 1 | 2 3 in |\n\nz"),
    ("a<br>b<hr>c", "a\nb\n\n---\n\nc"),
    ("<img src=a.png alt='x  y'><img src='data:image/png,1' alt=z>", "![x y](a.png)![z]()"),
    ("1 < 2 &lt; 3 & 4 <3", "1 < 2 < 3 & 4 <3"),
    ("a<!-- b --><!-->c<?d?></ e>f", "acf"),
    ("a<script>x<b></script >b<style>c", "ab"),
    ("a<svg><svg>no</svg>no</svg>b<noscript>no</noscript>c", "abc"),
    ("<a href='javascript:x()'>a</a> <p title='it's > b", "a\n\nb"),
    ("<b>one<i>two</b>three</i>", "**one*two***three"),
    ("a<![CDATA[b]]>c<!-- never ends", "ac"),
    (f"&#{'9' * 5_000};&#x{'f' * 5_000};&#65;", "\ufffd\ufffdA"),
    ("<td>no table</td></table></ul></blockquote></b>x", "no table\n\nx"),
]


@pytest.mark.parametrize(("page", "text"), MARKDOWN)
def test_a_page_becomes_markdown(page: str, text: str) -> None:
    assert markdown_of(page) == text


def test_tags_have_their_attributes() -> None:
    page = "<A href = \"a>b\" X='1' y=2/3 z HREF=c>t</a >"
    assert list(tokens(page)) == [
        Token("a", "", {"href": "a>b", "x": "1", "y": "2/3", "z": ""}),
        Token("", "t"),
        Token("/a"),
    ]


PIECES = (
    "<!--", "<", "<a ", '<a b="', "<a b='", "<div>", "<ul><li>x", "<blockquote>x", "<b>", "<b>x",
    "<b>x<i>y</b>", "</b>", "<![CDATA[", "&", "&#9", "&amp;", "<table><tr><td>", "<script>",
    "<tr><td>x</td>", "<script></script", "</script>", "<svg>", "<pre>x\n", "<li>x", "<a =", "<a/",
    "<ol><li>", "<blockquote><ul></blockquote>x", "<blockquote><pre>\n\n</pre>", "</", "<p>x", "<?",
    "&CounterClockwiseContourIntegra", "<a href=x>y", "<a\n", "<h1>", "<template></svg>", "<br>",
    " \n", "'\"",
)  # fmt: skip
"""Beginnings without an end, and what makes converters take quadratic time."""


@pytest.mark.parametrize("piece", PIECES)
def test_the_work_is_proportional_to_the_length(piece: str) -> None:
    """Functions called, and characters written, of a page ten times as long."""
    counts: list[int] = []
    sizes = []
    for length in (4_000, 40_000):
        page = piece * (length // len(piece))
        markdown_of(page[:100])  # imports
        with functions_called(counts):
            sizes.append(len(markdown_of(page)))
    assert counts[1] <= 12 * counts[0] + 100
    assert sizes[1] <= 12 * sizes[0] + 100


def test_deep_nesting_neither_recurses_nor_grows_the_lines() -> None:
    for piece in ("<div>", "<ul><li>", "<blockquote>", "<ol><li>", "<b><i>", "<table><tr><td>"):
        text = markdown_of(piece * 20_000 + "deep")
        assert re.search("deep", text)
        assert len(text) < 200_000

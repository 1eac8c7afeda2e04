"""Streaming markdown: the same blocks however the text was chunked."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.frontends.terminal.markdown_blocks import (
    BLOCK_CHARS_MAX,
    FENCE_LINES_MAX,
    LINE_CHARS_MAX,
    Block,
    Splitter,
)
from tests.terminal.scripted_terminal import MARKDOWN

TEXTS = "||  |word|# head|---|===|- item|  nested|    code|1. one|2. two|> quote|\tx|text\r|日本"
FENCES = "```|```py|~~~|````|* * *|--"
TABLES = ("a | b", "|--|--|", "| 1 | 2 |")
LINES = st.sampled_from([*TEXTS.split("|"), *FENCES.split("|"), *TABLES])


def split(text: str, cuts: list[int] | None = None) -> list[Block]:
    splitter, blocks, at = Splitter(), [], 0
    for to in [*sorted(cuts or []), len(text)]:
        blocks += splitter.feed(text[at:to])
        at = max(at, to)
    return blocks + splitter.finish()


@pytest.mark.parametrize(
    ("text", "blocks"),
    [
        ("", []),
        ("\n \n", []),
        ("one\ntwo\n\nthree", ["paragraph one\ntwo", "paragraph three"]),
        ("# head\ntext", ["heading # head", "paragraph text"]),
        ("head\n---\ntext", ["heading head\n---", "paragraph text"]),
        ("text\n\n---\n", ["paragraph text", "rule ---"]),
        ("- a\n- b\n  - c\n\n  more\n- d", ["item - a", "item - b\n  - c\n\n  more", "item - d"]),
        ("10. ten\n    below", ["item 10. ten\n    below"]),
        ("text\n10. no list", ["paragraph text\n10. no list"]),
        ("text\n- list", ["paragraph text", "item - list"]),
        ("```py\na\n\nb\n```\nafter", ["fence ```py\na\n\nb\n```", "paragraph after"]),
        ("```\nnever closed", ["fence ```\nnever closed\n```"]),
        ("~~~\n```\n~~~", ["fence ~~~\n```\n~~~"]),
        ("````\n```\n````", ["fence ````\n```\n````"]),
        ("    code\n\n    more\ntext", ["code     code\n\n    more", "paragraph text"]),
        ("a | b\n--|--\n1 | 2\n\nend", ["table a | b\n--|--\n1 | 2", "paragraph end"]),
        ("a | b\nno table", ["paragraph a | b\nno table"]),
        ("> q\nlazy\n\nend", ["quote > q\nlazy", "paragraph end"]),
        ("a\r\nb\r\n", ["paragraph a\nb"]),
    ],
)
def test_what_a_block_is(text: str, blocks: list[str]) -> None:
    assert [f"{block.kind} {block.text}" for block in split(text)] == blocks


def test_items_stand_close_and_other_blocks_apart() -> None:
    blocks = split("Some:\n- a\n- b\n\n- c\n\nend\n# head")
    assert [(block.text, block.gap) for block in blocks] == [
        ("Some:", True),
        ("- a", False),
        ("- b", False),
        ("- c", True),
        ("end", True),
        ("# head", True),
    ]


@given(st.lists(LINES, max_size=14).map("\n".join), st.lists(st.integers(0, 80), max_size=12))
def test_any_chunking_gives_the_same_blocks(text: str, cuts: list[int]) -> None:
    assert split(text, [min(cut, len(text)) for cut in cuts]) == split(text)


@given(st.lists(LINES, max_size=14))
def test_every_line_comes_out_exactly_once(lines: list[str]) -> None:
    text = "\n".join(lines)
    shown = [line for block in split(text) for line in block.text.split("\n") if line.strip()]
    said = [line.removesuffix("\r") for line in lines if line.strip()]
    # A fence that the text never closed is closed.
    assert shown == said or (shown[:-1] == said and set(shown[-1]) <= {"`", "~"})


def test_nothing_endless_is_held_back() -> None:
    splitter = Splitter()
    assert len(splitter.feed("x" * LINE_CHARS_MAX * 4)) >= 1, "a line without an end"
    splitter = Splitter()
    fence = splitter.feed("```py\n" + "a = 1\n" * (FENCE_LINES_MAX * 2 + 5))
    assert [block.text.count("a = 1") for block in fence] == [FENCE_LINES_MAX - 1] * 2
    assert all(block.text.startswith("```py\n") and block.text.endswith("\n```") for block in fence)
    assert [block.gap for block in fence] == [True, False]
    [rest] = splitter.finish()
    assert rest.text.count("a = 1") == 7
    splitter = Splitter()
    assert len(splitter.feed("word word\n" * (BLOCK_CHARS_MAX // 5))) >= 1, (
        "a paragraph without an end"
    )


def test_what_is_not_finished_can_be_looked_at() -> None:
    splitter = Splitter()
    assert splitter.feed("done\n\nfirst\nsec") == [Block("paragraph", "done")]
    assert splitter.tail(5) == "first\nsec"
    assert splitter.tail(1) == "first\nsec"
    assert splitter.gap
    splitter.feed("ond\n- item")
    assert splitter.tail(5) == "first\nsecond\n- item"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_the_same_from_any_size_of_delta(size: int) -> None:
    assert split(MARKDOWN, list(range(0, len(MARKDOWN), size))) == split(MARKDOWN)


@pytest.mark.parametrize(
    ("text", "tail"),
    [
        ("```py\na = 1\nb", "  a = 1\n  b"),
        ("```py\na = 1\n``", "  a = 1\n  ``"),
        ("```p", ""),
        ("- one\n  ```sh\n  ls\n", "- one\n  ls"),
        ("~~~\n```\nx", "  ```\n  x"),
        ("some `code` here", "some `code` here"),
    ],
)
def test_marks_of_fences_are_not_in_the_unfinished_end(text: str, tail: str) -> None:
    splitter = Splitter()
    splitter.feed(text)
    assert splitter.tail(9) == tail

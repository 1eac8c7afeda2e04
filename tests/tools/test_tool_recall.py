"""`Recall` tool: all content comes back page by page (law 4); `TodoWrite` and `Compact`."""

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.store import Content
from longrein.tools.recall_pages import parse_range, read_page
from longrein_context.events import (
    Cleared,
    Document,
    FileSeen,
    Form,
    Image,
    ModeSet,
    Recalled,
    Reminded,
    Replied,
    Summarized,
    Text,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    UserSpoke,
)

LOOKS = (
    "handles look like r412, r412.2 (its second part) or a398/r412 (in the log of the "
    "subagent of r398)"
)
TAKE = "Take handles from markers or from Recall(query=…), do not guess them"
LAST = "the last all of it as stored"
pytestmark = pytest.mark.anyio


async def recalls(harness: Any, handle: str, expected: str, **arguments: Any) -> None:
    assert await harness.call("Recall", handle=handle, **arguments) == expected


async def test_results_words_arguments_summaries(harness: Any) -> None:
    harness.add(UserSpoke((Text("Bitte 修复 it"),)))
    harness.add(ToolEnded("c1.0", "Bash", "failed", (Text("a\nb\n[exit code 1]"),)))
    call = ToolCall(
        "c1.0", "Write", {"file_path": "a.py", "content": "x = '中'\ny = 2\n", "n": [1]}
    )
    harness.add(
        Replied(
            1,
            (Text("I write."), call, ToolCall("c1.1", "Read", None, '{"file_path": '), call),
            "calls",
        )
    )
    harness.add(Summarized(1, 2, "The user wants it fixed.", "watermark"))
    harness.add(Cleared((Form("r2", "placeholder", "[cleared]"),), "watermark"))
    harness.add(ModeSet("plan"))
    await recalls(harness, "r1", "[r1: the user's words, all of it: 1 line]\nBitte 修复 it")
    await recalls(
        harness, "[r2]", "[r2: result of Bash, failed, all of it: 3 lines]\na\nb\n[exit code 1]"
    )
    written = "file_path: a.py\ncontent:\nx = '中'\ny = 2\n\nn: [1]"
    await recalls(harness, "r3.2", f"[r3.2: your reply, call Write, all of it: 6 lines]\n{written}")
    await recalls(
        harness, "r3.3", '[r3.3: your reply, call Read, all of it: 1 line]\n{"file_path": '
    )
    await recalls(
        harness, "r3",
        f"[r3: your reply, all of it: 18 lines]\n--- text ---\nI write.\n--- call Write ---\n{written}\n"  # noqa: E501
        f'--- call Read ---\n{{"file_path": \n--- call Write ---\n{written}',
    )  # fmt: skip
    await recalls(harness, "r4", "[r4: summarized, all of it: 1 line]\nThe user wants it fixed.")
    await recalls(harness, "r5", "[r5: cleared, all of it: 1 line]\n[cleared]")
    await recalls(harness, "r6", "[r6: mode set, all of it: 2 lines]\nModeSet\nmode: plan")


async def test_pages(harness: Any) -> None:
    """A long result comes page by page; following `next` gives all of it."""
    await harness.call("Bash", command="seq 1 20000; printf 中文")
    text, lines, seen = "", "", []
    while True:
        page_text = await harness.call("Recall", handle="r1", lines=lines)
        header, body = harness.last.parts[0].text, harness.last.parts[1].text
        assert page_text == f"{header}\n{body}"
        assert len(body.encode()) <= 30_000
        assert body.count("\n") < 2_000
        seen.append(header)
        text += body + "\n"
        following = re.search(r'next: Recall\(handle="r1", lines="(.+)"\)', header)
        if not following:
            break
        lines = following[1]
    assert text == "".join(f"{n}\n" for n in range(1, 20001)) + "中文\n"
    assert (
        seen[0]
        == '[r1: result of Bash, lines 1-2000 of 20001; next: Recall(handle="r1", lines="2001-")]'
    )
    assert seen[-1] == "[r1: result of Bash, lines 20001-20001 of 20001; this is the end]"
    assert harness.last.facts[0].handle == "r1"


async def test_a_page_fits_the_window(harness: Any) -> None:
    """In a small window a page is small, so that it is not cut again at birth."""
    harness.page_bytes = 19
    harness.add(
        ToolEnded("c1.0", "Bash", "ok", (Text("".join(f"line {n}\n" for n in range(1, 11))),))
    )
    await recalls(
        harness,
        "r1",
        '[r1: result of Bash, lines 1-2 of 10; next: Recall(handle="r1", lines="3-")]\nline '
        "1\nline 2",
    )


async def test_ranges(harness: Any) -> None:
    harness.add(ToolEnded("c1.0", "Bash", "ok", (Text("".join(f"{n}\n" for n in range(1, 11))),)))
    more = 'next: Recall(handle="r1", lines='
    await recalls(
        harness, "r1", f'[r1: result of Bash, lines 3-4 of 10; {more}"5-")]\n3\n4', lines="3-4"
    )
    assert harness.last.facts == (Recalled("c1.0", "r1", lines="3-4", size_bytes=3),)
    await recalls(
        harness, "r1", f'[r1: result of Bash, lines 3-3 of 10; {more}"4-")]\n3', lines="3"
    )
    await recalls(
        harness,
        "r1",
        "[r1: result of Bash, lines 9-10 of 10; this is the end]\n9\n10",
        lines="9-99",
    )
    await recalls(
        harness,
        "r1",
        "[past-end] r1 has only 10 lines: lines must begin at one of them.",
        lines="11-",
    )
    for bad in ("x", "1:", ":3", "1,2"):
        await recalls(
            harness,
            "r1",
            f'[bad-range] lines must look like "100-200", "100-" or "7:4001-8000", not {bad!r}.',
            lines=bad,
        )
    for bad in ("4-3", "0-3", "0"):
        await recalls(
            harness, "r1", "[bad-range] lines count from 1 and a range goes upwards.", lines=bad
        )


ONE_LINE = json.dumps(
    {"stdout": "".join(f'line {n} of "it" \\ é\n' for n in range(1, 40)), "code": 0},
    ensure_ascii=False,
)
AS_STORED = 'split at the line ends that it escapes; as it is: lines="1:1-"'


@pytest.mark.parametrize(
    ("text", "page", "lines", "first", "last", "head"),
    [
        pytest.param(
            ONE_LINE,
            200,
            "",
            '{"stdout": "line 1 of "it" \\ é',
            "line 9 of",
            "lines 1-9 of 40",
            id="first",
        ),
        pytest.param(
            ONE_LINE,
            200,
            "38-",
            'line 38 of "it" \\ é',
            '", "code": 0}',
            "lines 38-40 of 40",
            id="last",
        ),
        pytest.param(
            ONE_LINE,
            9_000,
            "2-3",
            'line 2 of "it" \\ é',
            "line 3 of",
            "lines 2-3 of 40",
            id="a range",
        ),
        pytest.param(
            ONE_LINE + "\n[exit code 1]",
            200,
            "41",
            "[exit code 1]",
            "[exit",
            "lines 41-41 of 41",
            id="a note",
        ),
        pytest.param(
            "x" * 300 + "a\\nb\\nc\\nd",
            99,
            "",
            "x" * 99,
            "x",
            "characters 1-99 of 301 of line 1",
            id="cut",
        ),
    ],
)
async def test_one_line_of_json_comes_by_its_escaped_lines(
    harness: Any, text: str, page: int, lines: str, first: str, last: str, head: str
) -> None:
    for content in (
        Text(text),
        Document(harness.blobs.put_blob(text.encode()), "text/plain", len(text.encode())),
    ):
        harness.page_bytes = page
        harness.add(ToolEnded("c1.0", "mcp__logs__tail", "ok", (content,)))
        await harness.call("Recall", handle=f"r{len(harness.entries)}", lines=lines)
        told, shown = (part.text for part in harness.last.parts)
        assert head in told
        assert AS_STORED in told
        assert shown.split("\n")[0] == first
        assert shown.split("\n")[-1].startswith(last)


@pytest.mark.parametrize(("text", "page", "lines"), [
    pytest.param(ONE_LINE, 9_000, "", id="it fits a page"),
    pytest.param(ONE_LINE, 9_000, "1:1-", id="characters are asked for"),
    pytest.param('print("a\\n\\n\\n")\n' * 5, 9_000, "1-5", id="source code"),
])  # fmt: skip
async def test_what_is_no_line_of_json_comes_as_it_is(
    harness: Any, text: str, page: int, lines: str
) -> None:
    harness.page_bytes = page
    harness.add(ToolEnded("c1.0", "Bash", "ok", (Text(text),)))
    await harness.call("Recall", handle="r1", lines=lines)
    assert harness.last.parts[1].text == text.rstrip("\n")


async def test_a_hit_in_one_line_of_json_opens_there(harness: Any) -> None:
    harness.add(
        ToolEnded(
            "c1.0",
            "mcp__logs__tail",
            "ok",
            (Text(ONE_LINE.replace("line 30 of", "needle_here of")),),
        )
    )
    harness.call_id = "c9.0"
    assert 'Recall(handle="r1", lines="20-40")' in await harness.call("Recall", query="needle_here")
    assert "needle_here" in await harness.call("Recall", handle="r1", lines="20-40")


async def test_one_very_long_line(harness: Any) -> None:
    """A line longer than a page comes by its characters."""
    harness.page_bytes = 16_000
    harness.add(ToolEnded("c1.0", "Bash", "ok", (Text("a\n" + "中" * 10_000 + "\nb"),)))
    more = 'next: Recall(handle="r1", lines='
    text = await harness.call("Recall", handle="r1", lines="2-")
    assert text == (
        f'[r1: result of Bash, characters 1-5333 of 10000 of line 2 (16.0 kB); {more}"2:5334-")]\n'
        + "中" * 5333
    )
    text = await harness.call("Recall", handle="r1", lines="2:9999-")
    assert (
        text == "[r1: result of Bash, characters 9999-10000 of 10000 of line 2 (6 bytes); "
        f'{more}"3-")]\n中中'
    )
    found = await harness.call("Recall", handle="r1", lines="2:10001-")
    assert found == "[past-end] line 2 of r1 has only 10,000 characters: begin at one of them."
    found = await harness.call("Recall", handle="r1", lines="9:1-")
    assert found == "[past-end] r1 has only 3 lines: lines must begin at one of them."


class Pieces:
    """A past that is only blobs, in pieces of awkward sizes."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data, self.size = data, size

    def pieces(self, blob: str) -> Any:
        return (self.data[at : at + self.size] for at in range(0, len(self.data), self.size))


@given(
    st.text(alphabet=st.sampled_from("ab中é \n😀"), max_size=400),
    st.integers(4, 40),
    st.integers(1, 60),
)
def test_pages_join_to_the_whole(text: str, size: int, piece: int) -> None:
    """Whatever the page's size and wherever the pieces are cut, inside a character too."""
    past: Any = Pieces(text.encode(), piece)
    got, lines = "", ""
    for _ in range(2000):
        one = read_page(past, [Content("output", blob="x")], parse_range(lines), "r1", size)
        assert len(one.text.encode()) <= size
        ends = ":" not in one.following or one.following.endswith(":1-")
        got += one.text + ("\n" if ends else "")
        if not one.following:
            break
        lines = one.following
    assert got.rstrip("\n") == text.rstrip("\n")


PNG = b"\x89PNG\r\n\x1a\n" + b"\0\0\0\rIHDR\0\0\0\4\0\0\0\3"
PDF = b"%PDF-1.4\nall of it"


@pytest.mark.parametrize(("name", "data"), [("a.png", PNG), ("a.pdf", PDF)])
async def test_a_picture_that_was_read_comes_back_by_its_path(
    harness: Any, name: str, data: bytes
) -> None:
    blob = harness.blobs.put_blob(data)
    path = str(harness.file(name, data))
    harness.add(FileSeen(path, blob, blob))
    for asked in ({"handle": "r1"}, {"path": name}):
        assert f"[r1: {path} as it was read]" in await harness.call("Recall", **asked)
        shown = harness.last.parts[-1]
        image = Image(blob, "image/png", len(data), 4, 3)
        assert shown == (image if name == "a.png" else Document(blob, "application/pdf", len(data)))


async def test_images_come_back_as_images(harness: Any) -> None:
    image = Image("b" * 64, "image/png", 1200, 4, 3)
    harness.add(UserSpoke((Text("look"), image)))
    found = await harness.call("Recall", handle="r1.2")
    assert found == "[r1.2: the user's words, image/png, 1200 bytes]"
    assert harness.last.parts[1] == image
    found = await harness.call("Recall", handle="r1")
    assert found == "[r1: the user's words, all of it: 1 line]\nlook"
    assert harness.last.parts[2] == image


NO_PART = f"[unknown-handle] There is no r1.9: r1 has 2 parts, {LAST}; Recall r1 for what it holds."
SEARCH = 'To look for words: Recall(query="the log").'


@pytest.mark.parametrize(("handle", "expected"), [
    ("r99", f"[unknown-handle] There is no entry r99; the newest is r1. {TAKE}."),
    ("r1.9", NO_PART),
    ("a3/r1", "[unknown-handle] a3 is no subagent; this session has started none."),
    ("1", f"[bad-handle] '1' is no handle; {LOOKS}. Did you mean r1?"),
    ("c1.0", f"[bad-handle] 'c1.0' is no handle; {LOOKS}. Did you mean r1?"),
    ("412", f"[bad-handle] '412' is no handle; {LOOKS}."),
    ("9" * 400, f"[bad-handle] {'9' * 40!r} is no handle; {LOOKS}."),
    ("the log", f"[bad-handle] 'the log' is no handle; {LOOKS}. {SEARCH}"),
])  # fmt: skip
async def test_wrong_handles(harness: Any, handle: str, expected: str) -> None:
    harness.add(UserSpoke((Text("hi"),)))
    await recalls(harness, handle, expected)
    assert harness.last.status == "failed"


async def test_a_lost_blob_is_said(harness: Any) -> None:
    await harness.call("Bash", command="seq 1 20000")
    blob = harness.last.parts[0].blob
    del harness.blobs.paths[blob]
    await recalls(
        harness,
        "r1",
        f"[lost] The blob {blob[:12]} is not in this session's folder any more. Read its "
        "source again.",
    )


async def test_todos(harness: Any) -> None:
    """s05: at most 20, at most one in progress; a refused list changes nothing."""
    todos = [
        {"content": "Look", "status": "completed"},
        {"content": "Mend", "status": "in_progress", "activeForm": "Mending"},
        {"content": "Test", "status": "pending"},
    ]
    found = await harness.call("TodoWrite", todos=todos)
    assert found == "Todo list set: 1 done, 1 in progress, 1 to do."
    assert harness.last.facts == (
        TodoSet((Todo("Look", "completed"), Todo("Mend", "in_progress", "Mending"), Todo("Test"))),
    )
    assert await harness.call("TodoWrite", todos=todos) == "The todo list is that already."
    for bad, expected in [
        (
            todos[1:2] * 2,
            (
                "[two-active] 2 todos are in_progress; at most one may be: leave the others "
                "pending. The list is unchanged."
            ),
        ),
        (
            todos[:1] * 21,
            "[too-many] 21 todos; at most 20. Join small ones. The list is unchanged.",
        ),
        (
            [{"content": " ", "status": "pending"}],
            "[empty] A todo has no content: give each one. The list is unchanged.",
        ),
    ]:
        assert await harness.call("TodoWrite", todos=bad) == expected
        assert (harness.last.status, harness.last.facts) == ("failed", ())
    assert await harness.call("TodoWrite", todos=[]) == "Todo list cleared."


async def test_compact(harness: Any) -> None:
    found = await harness.call("Compact", focus="the parser")
    assert found == "The conversation is compacted before the next request."
    assert harness.last.facts == (Reminded("compact", "", "Compact", "the parser"),)

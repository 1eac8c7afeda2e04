"""`Recall`: every byte comes back (law 4), by page, with the way to the next; and the two small tools."""

import re
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from longrein.events import (
    Cleared,
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
from longrein.tools.recall import page, read_range

pytestmark = pytest.mark.anyio


async def recalls(desk: Any, handle: str, expected: str, **arguments: Any) -> None:
    assert await desk.call("Recall", handle=handle, **arguments) == expected


async def test_results_words_arguments_summaries(desk: Any) -> None:
    desk.add(UserSpoke((Text("Bitte 修复 it"),)))
    desk.add(ToolEnded("c1.0", "Bash", "failed", (Text("a\nb\n[exit code 1]"),)))
    call = ToolCall("c1.0", "Write", {"file_path": "a.py", "content": "x = '中'\ny = 2\n", "n": [1]})
    desk.add(Replied(1, (Text("I write."), call, ToolCall("c1.1", "Read", None, '{"file_path": '), call), "calls"))
    desk.add(Summarized(1, 2, "The user wants it fixed.", "watermark"))
    desk.add(Cleared((Form("r2", "placeholder", "[cleared]"),), "watermark"))
    desk.add(ModeSet("plan"))
    await recalls(desk, "r1", "[r1: the user's words, all of it: 1 line]\nBitte 修复 it")
    await recalls(desk, "[r2]", "[[r2]: result of Bash, failed, all of it: 3 lines]\na\nb\n[exit code 1]")
    written = "file_path: a.py\ncontent:\nx = '中'\ny = 2\n\nn: [1]"
    await recalls(desk, "r3.2", f"[r3.2: your reply, call Write, all of it: 6 lines]\n{written}")
    await recalls(desk, "r3.3", '[r3.3: your reply, call Read, all of it: 1 line]\n{"file_path": ')
    await recalls(
        desk, "r3",
        f"[r3: your reply, all of it: 18 lines]\n--- text ---\nI write.\n--- call Write ---\n{written}\n"
        f'--- call Read ---\n{{"file_path": \n--- call Write ---\n{written}',
    )  # fmt: skip
    await recalls(desk, "r4", "[r4: Summarized, all of it: 1 line]\nThe user wants it fixed.")
    await recalls(desk, "r5", "[r5: Cleared, all of it: 1 line]\n[cleared]")
    await recalls(desk, "r6", '[r6: ModeSet, all of it: 4 lines]\n{\n "type": "ModeSet",\n "mode": "plan"\n}')


async def test_pages(desk: Any) -> None:
    """A long result comes page by page; following `next` gives all of it."""
    await desk.call("Bash", command="seq 1 20000; printf 中文")
    text, lines, seen = "", "", []
    while True:
        page_text = await desk.call("Recall", handle="r1", lines=lines)
        header, body = desk.last.parts[0].text, desk.last.parts[1].text
        assert page_text == f"{header}\n{body}"
        assert len(body.encode()) <= 16_000
        seen.append(header)
        text += body + "\n"
        following = re.search(r'next: lines="(.+)"', header)
        if not following:
            break
        lines = following[1]
    assert text == "".join(f"{n}\n" for n in range(1, 20001)) + "中文\n"
    assert seen[0] == '[r1: result of Bash, lines 1-3421 of 20001; next: lines="3422-"]'
    assert seen[-1] == "[r1: result of Bash, lines 19201-20001 of 20001; this is the end]" or len(seen) == 7
    assert desk.last.facts[0].handle == "r1"


async def test_ranges(desk: Any) -> None:
    desk.add(ToolEnded("c1.0", "Bash", "ok", (Text("".join(f"{n}\n" for n in range(1, 11))),)))
    await recalls(desk, "r1", '[r1: result of Bash, lines 3-4 of 10; next: lines="5-"]\n3\n4', lines="3-4")
    assert desk.last.facts == (Recalled("c1.0", "r1", lines="3-4", size_bytes=3),)
    await recalls(desk, "r1", '[r1: result of Bash, lines 3-3 of 10; next: lines="4-"]\n3', lines="3")
    await recalls(desk, "r1", "[r1: result of Bash, lines 9-10 of 10; this is the end]\n9\n10", lines="9-99")
    await recalls(desk, "r1", "[past-end] r1 has only 10 lines.", lines="11-")
    for bad in ("x", "1:", ":3", "1,2"):
        await recalls(
            desk, "r1", f'[bad-range] lines must look like "100-200", "100-" or "7:4001-8000", not {bad!r}.', lines=bad
        )
    for bad in ("4-3", "0-3", "0"):
        await recalls(desk, "r1", "[bad-range] lines count from 1 and a range goes upwards.", lines=bad)


async def test_one_very_long_line(desk: Any) -> None:
    """1 MB on one line is reachable too."""
    desk.add(ToolEnded("c1.0", "Bash", "ok", (Text("a\n" + "中" * 10_000 + "\nb"),)))
    text = await desk.call("Recall", handle="r1", lines="2-")
    assert text == (
        '[r1: result of Bash, characters 1-5333 of 10000 of line 2 (16.0 kB); next: lines="2:5334-"]\n' + "中" * 5333
    )
    text = await desk.call("Recall", handle="r1", lines="2:9999-")
    assert text == '[r1: result of Bash, characters 9999-10000 of 10000 of line 2 (6 bytes); next: lines="3-"]\n中中'
    assert await desk.call("Recall", handle="r1", lines="2:10001-") == (
        "[past-end] line 2 of r1 has only 10,000 characters."
    )


@given(st.text(alphabet=st.sampled_from("ab中é \n😀"), max_size=400), st.integers(4, 40))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_pages_join_to_the_whole(monkeypatch: Any, text: str, size: int) -> None:
    monkeypatch.setattr("longrein.tools.recall.PAGE_BYTES_MAX", size)
    got, lines = "", ""
    for _ in range(2000):
        body, _, rest = page(text, read_range(lines), "r1")
        following = re.search(r'next: lines="((\d+)(?::(\d+))?-)"', rest)
        whole_line = not following or not following[3] or following[3] == "1"
        got += body + ("\n" if whole_line else "")
        if not following:
            break
        lines = following[1]
        if int(following[2]) > len(text.removesuffix("\n").split("\n")):
            break
    assert got.rstrip("\n") == text.rstrip("\n")


async def test_images_come_back_as_images(desk: Any) -> None:
    image = Image("b" * 64, "image/png", 1200, 4, 3)
    desk.add(UserSpoke((Text("look"), image)))
    assert await desk.call("Recall", handle="r1.2") == "[r1.2: the user's words, image/png, 1.2 kB]"
    assert desk.last.parts[1] == image
    assert await desk.call("Recall", handle="r1") == "[r1: the user's words, all of it: 1 line]\nlook"
    assert desk.last.parts[2] == image


@pytest.mark.parametrize(
    ("handle", "expected"),
    [
        ("r99", "[unknown-handle] There is no entry r99; take the handle from a marker, do not guess one."),
        ("r1.9", "[unknown-handle] r1 has 1 part; there is no r1.9."),
        ("a3/r1", "[unknown-handle] a3/r1 is of another session; only handles without a/ can be recalled here."),
        ("412", "[bad-handle] '412' is no handle; handles look like r412 or r412.2."),
    ],
)
async def test_wrong_handles(desk: Any, handle: str, expected: str) -> None:
    desk.add(UserSpoke((Text("hi"),)))
    await recalls(desk, handle, expected)
    assert desk.last.status == "failed"


async def test_a_lost_blob_is_said(desk: Any) -> None:
    await desk.call("Bash", command="seq 1 20000")
    blob = desk.last.parts[0].blob
    del desk.blobs.paths[blob]
    await recalls(desk, "r1", f"[lost] The blob {blob[:12]} is not in this session's folder any more.")


async def test_todos(desk: Any) -> None:
    """s05: at most 20, at most one in progress; a refused list changes nothing."""
    todos = [
        {"content": "Look", "status": "completed"},
        {"content": "Mend", "status": "in_progress", "activeForm": "Mending"},
        {"content": "Test", "status": "pending"},
    ]
    assert await desk.call("TodoWrite", todos=todos) == "Todo list set: 1 done, 1 in progress, 1 to do."
    assert desk.last.facts == (
        TodoSet((Todo("Look", "completed"), Todo("Mend", "in_progress", "Mending"), Todo("Test"))),
    )
    assert await desk.call("TodoWrite", todos=todos) == "The todo list is that already."
    for bad, expected in [
        (todos[1:2] * 2, "[two-active] 2 todos are in_progress; at most one may be. The list is unchanged."),
        (todos[:1] * 21, "[too-many] 21 todos; at most 20. Join small ones. The list is unchanged."),
        ([{"content": " ", "status": "pending"}], "[empty] A todo has no content. The list is unchanged."),
    ]:
        assert await desk.call("TodoWrite", todos=bad) == expected
        assert (desk.last.status, desk.last.facts) == ("failed", ())
    assert await desk.call("TodoWrite", todos=[]) == "Todo list cleared."


async def test_compact(desk: Any) -> None:
    assert await desk.call("Compact", focus="the parser") == ("The conversation is compacted before the next request.")
    assert desk.last.facts == (Reminded("compact", "", "Compact", "the parser"),)

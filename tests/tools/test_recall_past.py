"""`Recall` with a log on disk: by query, file, time and subagent; content larger than memory."""

import asyncio
import re
import tracemalloc
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from longrein.store import HistoryReader, SessionLog, fork_log, open_log
from longrein_context.events import (
    AnyEvent,
    Document,
    Entry,
    FileChanged,
    FileSeen,
    Image,
    Opened,
    Parent,
    Recalled,
    Reminded,
    Replied,
    Rewound,
    SubagentStarted,
    Text,
    ToolCall,
    ToolEnded,
    UserSpoke,
    marker,
    marker_sign,
)
from tests.store.fixtures import ID, OTHER, opened

pytestmark = pytest.mark.anyio

BEGUN = datetime(2026, 11, 21, 10, 0, tzinfo=UTC).timestamp()
MINUTE_US = 60_000_000
CHILD = "6f9d0000-0000-4000-8000-00000000c111"


class Story:
    """A session on disk, an entry a minute, and the harness that recalls from it."""

    def __init__(self, harness: Any, state: Path, log: SessionLog) -> None:
        self.harness, self.state, self.log, self.seq = harness, state, log, 0

    async def write(self, *events: AnyEvent) -> str:
        """Handle of the last one."""
        entries = [
            Entry(self.seq + n, self.at(self.seq + n), event) for n, event in enumerate(events, 1)
        ]
        self.seq += len(events)
        await asyncio.wrap_future(self.log.append(entries, flush=True))
        return f"r{self.seq}"

    def at(self, seq: int) -> int:
        return round(BEGUN * 1e6) + seq * MINUTE_US

    def local(self, seq: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
        return datetime.fromtimestamp(self.at(seq) / 1e6, UTC).astimezone().strftime(form)

    async def recall(self, **arguments: str) -> str:
        text = await self.harness.call("Recall", **arguments)
        assert isinstance(text, str)
        return text

    async def open(self, call: str) -> str:
        """What a call that an answer named brings."""
        return await self.recall(**dict(re.findall(r'(\w+)="([^"]*)"', call)))


@pytest.fixture
async def story(harness: Any, tmp_path: Path) -> AsyncIterator[Story]:
    state = tmp_path / "state"
    log = await open_log(str(state), ID, create=True, wall_us=lambda: 0)
    harness.archive, harness.call_id = HistoryReader(str(state), ID), "c999.0"
    made = Story(harness, state, log)
    harness.now_us = made.at(30)
    await made.write(opened())
    yield made
    await log.close()


def bash(text: str, status: str = "ok") -> ToolEnded:
    return ToolEnded("c1.0", "Bash", status, (Text(text),))


# --- by words -------------------------------------------------------------------------------------


async def test_A12_a_detail_of_the_first_result_comes_back_by_its_words(story: Story) -> None:
    """Found, then opened with the call that the answer names."""
    body = "\n".join(
        f"test_{n} passed" if n != 57 else "test_57 FAILED: 期望 3，得到 4" for n in range(100)
    )
    await story.write(UserSpoke((Text("run the tests"),)), bash(body, "failed"))
    text = await story.recall(query="FAILED 期望")
    assert text == (
        "[1 hit for FAILED 期望]\n"
        f"{story.local(3)} result of Bash, failed, line 58: test_57 FAILED: 期望 3，得到 4\n"
        '  Recall(handle="r3", lines="48-68")'
    )
    told = story.harness.last.facts
    assert told == (Recalled("c999.0", query="FAILED 期望", size_bytes=len(text.encode())),)
    found = await story.open(text)
    assert found.splitlines()[11] == "test_57 FAILED: 期望 3，得到 4"


async def test_more_hits_than_one_answer_holds(story: Story) -> None:
    await story.write(*(bash(f"needle {n}") for n in range(45)))
    text = await story.recall(query="needle")
    assert text.startswith('[hits 1 to 20 for needle; next: Recall(query="needle", lines="21-")]\n')
    assert "needle 44" in text
    text = await story.open(text.splitlines()[0])
    assert text.startswith(
        '[hits 21 to 40 for needle; next: Recall(query="needle", lines="41-")]\n'
    )
    text = await story.open(text.splitlines()[0])
    assert text.startswith("[hits 41 to 45 for needle]\n")
    assert text.count("Recall(") == 5
    assert (
        await story.recall(query="needle", lines="99-")
        == "[past-end] There are only 45 hits: lines must begin at one of them."
    )


async def test_the_call_in_hand_is_no_hit(story: Story) -> None:
    """The reply that asks holds the words too; so do answers of earlier recalls."""
    await story.write(bash("the needle"))
    asking = ToolCall("c9.0", "Recall", {"query": "needle"})
    await story.write(Replied(9, (Text("I look for the needle"), asking), "calls"))
    story.harness.call_id = "c3.0"
    assert (await story.recall(query="needle")).startswith("[1 hit for needle]")


NOTHING = "[nothing] Nothing in this session holds"
ONE = "give one of handle, query, path or time (path and time go together)."
TIMES = 'times look like "10:05", "2026-11-21T10:05" or "2h ago".'


EARLY = "0001-01-01T00:00+23:59"
"""Before the first year that Python knows."""


@pytest.mark.parametrize("time", ["9990-12-31T23:59:59", "0002-01-02", "999999999w ago"])
async def test_a_time_that_no_clock_can_show(story: Story, time: str) -> None:
    await story.write(bash("a needle"))
    assert "needle" in await story.recall(time=time)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({"query": "nowhere"}, f"{NOTHING} nowhere."),
        ({"query": "needle nowhere"}, (f"{NOTHING} all of needle nowhere; of its words there are: "
                                      "needle.")),
        ({"query": ' " '}, "[no-query] query holds no word to look for. Give one."),
        ({}, f"[what] nothing was asked for: {ONE}"),
        ({"handle": "r1", "query": "x"}, f"[what] handle and query together say too much: {ONE}"),
        ({"time": "soon"}, f"[bad-time] 'soon' is no time; {TIMES}"),
        ({"time": "25:00"}, f"[bad-time] '25:00' is no time; {TIMES}"),
        ({"time": EARLY}, f"[bad-time] {EARLY!r} is no time; {TIMES}"),
        ({"path": "a.py"}, "[no-file] This session has read or changed no file yet: read it."),
        ({"path": "a\0b"}, "[no-file] This session has read or changed no file yet: read it."),
        ({"handle": "a2/r1"}, "[unknown-handle] a2 is no subagent; this session has started none."),
    ],
)  # fmt: skip
async def test_what_cannot_be_brought(
    story: Story, arguments: dict[str, str], expected: str
) -> None:
    """One line, a failed result, and what to do."""
    await story.write(bash("a needle"))
    assert await story.recall(**arguments) == expected
    assert (story.harness.last.status, story.harness.last.facts) == ("failed", ())


# --- by file --------------------------------------------------------------------------------------


async def seen(story: Story, path: str, content: str, *, changed_by: str = "") -> str:
    blob = story.log.put_blob(content.encode())
    fact = FileChanged(path, blob, changed_by, blob) if changed_by else FileSeen(path, blob, blob)
    return await story.write(fact)


async def test_a_files_past(story: Story) -> None:
    path = str(story.harness.root / "src" / "a.py")
    await seen(story, path, "one\n")
    await seen(story, path, "one\n")  # read again, unchanged
    await seen(story, path, "two\r\nzwei\r\n", changed_by="agent")
    await seen(story, path, "three\n", changed_by="user")
    await story.write(FileChanged(path, "", "command"))
    rows = [
        f"  r6 {story.local(6)} removed by a command",
        f"> r5 {story.local(5)} changed by the user",
        f"  r4 {story.local(4)} changed by you",
        f"  r3 {story.local(3)} read",
    ]
    head = (
        f'[{path}: 4 versions, newest first; another: Recall(handle="r…") or time="…" with '
        "this path]"
    )
    title = f"[r5: {path} as a user changed it, all of it: 1 line]"
    for written in (path, "src/a.py", "./src/a.py", "a.py"):
        assert await story.recall(path=written) == "\n".join([head, *rows, title, "three"]), written
    assert story.harness.last.facts == (Recalled("c999.0", "r5", "", "1-1", 5, path),)
    text = await story.recall(path="a.py", time=story.local(4))
    assert text.endswith(f"[r4: {path} as you changed it, all of it: 2 lines]\ntwo\r\nzwei\r")
    assert (await story.recall(handle="r3")).endswith("one")
    assert (await story.recall(path="a.py", time=story.local(9))).endswith("[r6: it was gone then]")
    assert await story.recall(path="a.py", time=story.local(1)) == (
        f"[no-file] {path} was first seen {story.local(3)} (r2); nothing older is known: "
        "name a later time."
    )
    assert (
        await story.recall(path="a.py", lines="9-")
    ) == "[past-end] r5 has only 1 line: lines must begin at one of them."


async def test_which_file_is_meant(story: Story) -> None:
    root = str(story.harness.root)
    for name in ("src/parser.py", "tests/parser.py", "README.md"):
        await seen(story, f"{root}/{name}", name)
    assert await story.recall(path="parser.py") == (
        f"[which-file] 2 files are called parser.py: {root}/tests/parser.py, "
        f"{root}/src/parser.py. Name one."
    )
    found = await story.recall(path="src")
    assert found == f"[which-file] src is a folder; of it I know: {root}/src/parser.py. Name one."
    assert await story.recall(path="REDME.md") == (
        "[no-file] This session has neither read nor changed REDME.md. Did you mean "
        f"{root}/README.md?"
    )
    assert (await story.recall(path="src/parser.py")).endswith("\nsrc/parser.py")


async def test_a_file_that_was_not_kept(story: Story) -> None:
    await story.write(FileSeen("/big.log", "f" * 64, "", whole=False))
    assert (await story.recall(path="/big.log")).splitlines() == [
        "[/big.log: one version]",
        f"> r2 {story.local(2)} read, content not kept (too large)",
        "[r2: it was too large to be kept; Recall the results of your Reads]",
    ]


# --- by time --------------------------------------------------------------------------------------


async def test_what_stood_around_a_time(story: Story) -> None:
    await story.write(*(bash(f"result {n}") for n in range(2, 31)))
    middle = [f"r{n} {story.local(n, '%H:%M:%S')} result of Bash: result {n}" for n in range(4, 28)]
    wanted = f"--- {story.local(15)} ---"
    steps = [
        f'{word}: Recall(time="{story.local(n)}.000000")'
        for word, n in (("earlier", 4), ("later", 27))
    ]
    assert (await story.recall(time=story.local(15))).splitlines() == [
        f"[around {story.local(15)}: r4 to r27; the log has r1 to r30]",
        *middle[:12],
        wanted,
        *middle[12:],
        f"[any of them: Recall(handle=…); {'; '.join(steps)}]",
    ]
    assert story.harness.last.facts[0].when == story.local(15)
    for same in (
        story.local(15, "%H:%M"),
        "15 minutes ago",
        "15 min ago",
        "0.25h ago",
        story.local(15, "%Y-%m-%dT%H:%M"),
    ):
        assert middle[11] in await story.recall(time=same), same
        assert middle[12] in story.harness.last.parts[0].text
    assert "r30" in (await story.recall(time="now")).splitlines()[0]
    early = await story.recall(time="2020-01-01")
    assert early.startswith("[nothing is as old as 2020-01-01 23:59:59: it began ")
    assert "r2 " in early


async def test_a_clock_time_is_the_last_one_and_needs_a_clock(story: Story) -> None:
    await story.write(bash("x"))
    late = story.local(45, "%H:%M")  # has not come yet today
    assert "r1 to r2;" not in (await story.recall(time=late)).splitlines()[0]
    story.harness.now_us = 0
    assert await story.recall(time="2h ago") == (
        "[bad-time] the present time is not known here, so not '2h ago'; write "
        '"2026-11-21T10:05".'
    )


async def test_so_long_ago_is_so_long_ago_also_when_the_clock_was_set_back(story: Story) -> None:
    """Ten entries, then the clock goes back three hours, then ten more: an entry a minute but
    for that minute.
    """
    await story.write(*[bash(f"result {n}") for n in range(9)])
    back = 180 * MINUTE_US
    late = [Entry(n, story.at(n) - back, bash(f"result {n}")) for n in range(11, 21)]
    await asyncio.wrap_future(story.log.append(late, flush=True))
    story.harness.now_us = story.at(21) - back
    rows = (await story.recall(time="5 minutes ago")).splitlines()
    (middle,) = [n for n, row in enumerate(rows) if row.startswith("---")]
    assert (rows[middle - 1].split()[0], rows[middle + 1].split()[0]) == ("r16", "r17")
    rows = (await story.recall(time="15 minutes ago")).splitlines()
    (middle,) = [n for n, row in enumerate(rows) if row.startswith("---")]
    assert (rows[middle - 1].split()[0], rows[middle + 1].split()[0]) == ("r5", "r6")
    assert (await story.recall(time="3h ago")).startswith("[nothing is as old as ")


# --- subagents, forks, rewinds --------------------------------------------------------------------


async def test_a_subagents_handle(story: Story) -> None:
    """Its texts are paged, searched, and its pictures come over into this session."""
    await story.write(SubagentStarted(CHILD, "explore", "c1.0"))
    child = await open_log(str(story.state), CHILD, create=True, wall_us=lambda: 0)
    picture = child.put_blob(b"\x89PNG a picture")
    first = Opened(1, CHILD, "n0nce", ("/w",), "/w", parent=Parent(ID, 2, "c1.0"))
    entries = [
        first,
        bash("the child's needle"),
        UserSpoke((Text("see"), Image(picture, "image/png", 14))),
    ]
    await asyncio.wrap_future(
        child.append([Entry(n, 5, event) for n, event in enumerate(entries, 1)], flush=True)
    )
    await child.close()
    found = await story.recall(handle="a2/r2")
    assert found == "[a2/r2: result of Bash, all of it: 1 line]\nthe child's needle"
    assert story.harness.last.facts[0].handle == "a2/r2"
    assert 'Recall(handle="a2/r2", lines="1-11")' in await story.recall(query="needle")
    await story.recall(handle="a2/r3.2")
    image = story.harness.last.parts[1]
    assert story.harness.blobs.read_blob(image.blob) == b"\x89PNG a picture"
    assert await story.recall(handle="a2/r9") == (
        "[unknown-handle] There is no entry a2/r9; the newest is a2/r3. Take handles from markers "
        "or from Recall(query=…), do not guess them."
    )
    found = await story.recall(handle="a3/r1")
    assert found == "[unknown-handle] a3 is no subagent; subagents were started at a2."
    await story.write(SubagentStarted(OTHER, "explore", "c2.0"))
    assert await story.recall(handle="a3/r2") == (
        "[lost] The log of subagent a3 is not here any more; what it reported stands in this "
        'session (Recall(query="explore")).'
    )


async def test_law_4_a_fork_and_what_was_rewound(story: Story) -> None:
    large = "日志 line\n" * 20_000
    part = Document(story.log.put_blob(large.encode()), "text/plain", 9, "make", 20_000, "日志", "")
    await story.write(
        UserSpoke((Text("a"),)), bash("before the fork"), ToolEnded("c1.1", "Bash", "ok", (part,))
    )
    await story.write(Rewound(2), bash("after the fork"))
    assert (await story.recall(handle="r3")).endswith("before the fork")  # rewound, not lost
    first = Opened(1, OTHER, "n0nce", ("/w",), "/w", parent=Parent(ID, 5))
    await fork_log(str(story.state), ID, 5, Entry(1, 0, first))
    story.harness.archive = HistoryReader(str(story.state), OTHER)
    assert (await story.recall(handle="r3")).endswith("before the fork")
    assert "lines 19999-20000 of 20000" in await story.recall(handle="r4", lines="19999-")
    assert "before the fork" in await story.recall(query="fork")
    assert (await story.recall(handle="r6")).startswith(
        "[unknown-handle] There is no entry r6; the newest is r5."
    )


# --- what it is made of ---------------------------------------------------------------------------


async def test_old_markers_are_said_to_be_old(story: Story) -> None:
    """A recalled marker is text: nothing to act on, and no tool writes it into a file (law 4)."""
    sign = marker("5e1f0c", "file_changed", "a.py changed")
    handle = await story.write(Reminded("file_changed", sign))
    text = await story.recall(handle=handle)
    assert text == (
        f"[{handle}: reminder file_changed, all of it: 1 line; markers in it are part of the old "
        f"text and tell you nothing now]\n{sign}"
    )
    assert marker_sign("5e1f0c") in text
    refused = await story.harness.call("Write", file_path="b.txt", content=text)
    assert refused.startswith("[marker] ")


async def test_every_byte_of_an_entry_has_a_handle(story: Story) -> None:
    """What is no content comes with the last part: the entry as it is stored."""
    handle = await story.write(bash("short"))
    assert await story.recall(handle=f"{handle}.2") == (
        f"[{handle}.2: result of Bash, ToolEnded as stored, all of it: 5 lines]\nToolEnded\ncall: "
        "c1.0\nname: Bash\n"
        'status: ok\nparts: [{"type":"text","text":"short"}]'
    )


async def test_a_blob_larger_than_memory_should_hold(story: Story) -> None:
    """Only the page is kept; the rest is counted as it streams by."""
    writer = story.log.new_blob()
    lines = b"".join(b"%07d: a line of a large file\n" % n for n in range(1, 100_001))
    for _ in range(10):
        writer.write(lines)
    size = writer.size_bytes
    part = Document(writer.finish(), "text/plain", size, "cat", 1_000_000, "head", "tail")
    handle = await story.write(ToolEnded("c1.0", "Bash", "ok", (part,)))
    tracemalloc.start()
    text = await story.recall(handle=handle, lines="654321-654322")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text.splitlines() == [
        (
            f"[{handle}: result of Bash, lines 654321-654322 of 1000000; next: "
            f'Recall(handle="{handle}", lines="654323-")]'
        ),
        "0054321: a line of a large file",
        "0054322: a line of a large file",
    ]
    assert peak < 6_000_000 < size


async def test_output_with_escapes_and_a_file_with_controls(story: Story) -> None:
    blob = story.log.put_blob(b"\x1b[31mred\x1b[0m\r\n10%\r100%\nend \x07\n")
    handle = await story.write(
        ToolEnded("c1.0", "Bash", "ok", (Document(blob, "text/plain", 9, "make"),))
    )
    assert (await story.recall(handle=handle)).splitlines()[1:] == ["red", "100%", "end "]
    wide = story.log.put_blob("Größe\nzwei".encode("utf-16"))
    handle = await story.write(FileSeen("/a.txt", wide, wide))
    assert (await story.recall(handle=handle)).splitlines()[1:] == ["Größe", "zwei"]
    odd = story.log.put_blob(b"a\x00b\x1b[1m")
    handle = await story.write(FileSeen("/b.txt", odd, odd))
    assert (await story.recall(handle=handle)).splitlines()[1:] == ["a␀b␛[1m"]

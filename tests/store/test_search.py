"""Search: its hits and their order, and that it finds what decoding every entry finds."""

import asyncio
import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.support.postgresql import both_stores
from longrein.store import HistoryReader, SearchResult, SessionHistory, SessionLog, fork_log
from longrein.store.entry_parts import contents_of
from longrein.store.log_search import find_match, lower_case, parse_query, scan, snippet
from longrein_context.events import (
    AnyEvent,
    AskFailed,
    Cleared,
    Document,
    Entry,
    FileSeen,
    Form,
    HookAnswered,
    Opened,
    Parent,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    StoreDamaged,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    UserSpoke,
)
from tests.store.fixtures import (
    ID,
    OTHER,
    add,
    folder,
    make,
    new_log,
    opened,
    reopen,
    run_in_process,
    stored_log,
    wait_status,
    wall_us,
)

pytestmark = pytest.mark.anyio


async def written(state: Path, *events: AnyEvent, session: str = ID) -> SessionLog:
    """Create a session of `Opened` and `events`."""
    log = await make(state, session)
    await append(log, opened(session), *events, first=1)
    return log


async def append(log: SessionLog, *events: AnyEvent, first: int = 0) -> None:
    first = first or log.reader.tail()[0] + 1
    await add(log, [Entry(first + n, wall_us(), event) for n, event in enumerate(events)])


@contextlib.contextmanager
def past_of(state: Path, session: str = ID) -> Iterator[SessionHistory]:
    past = SessionHistory(str(state), session)
    try:
        yield past
    finally:
        past.close()


def found(state: Path, query: str, limit: int = 20, session: str = ID) -> list[str]:
    with past_of(state, session) as past:
        result = past.search(query, limit)
        assert result == scan(past, query, limit)  # ruling rows out changes nothing
        return [f"{hit.handle}:{hit.line} {hit.title}: {hit.snippet}" for hit in result.hits]


def result(text: str, tool: str = "Bash") -> ToolEnded:
    return ToolEnded("c1.0", tool, "ok", (Text(text),))


ASKED = "r2.1:1 the user's words, text: Why does the Parser fail?"
ERROR = "r4:3 result of Bash: ERROR: parser_of_things failed"


@both_stores
async def test_what_is_found_and_where(tmp_path: Path) -> None:
    log = await written(
        tmp_path,
        UserSpoke((Text("Why does the Parser fail?"), Text("see 日志 below"))),
        Replied(
            1,
            (
                Thinking("maybe the tokenizer"),
                Text("I look."),
                ToolCall("c1.0", "Write", {"file_path": "a.py", "content": "x = 1\nneedle = 2\n"}),
            ),
            "calls",
        ),
        result("one\ntwo\nERROR: parser_of_things failed\nlast"),
        Reminded("file_changed", "[longrein:n0nce] src/other.py changed"),
        Summarized(2, 4, "The user wants the parser mended.", "watermark", prose="hidden prose"),
        Cleared((Form("r4", "placeholder", "ERROR: parser_of_things failed"),), "rent"),
        HookAnswered("lint", "PostToolUse", "none", text="hook said ruff"),
        TaskStarted("t1", "make watch"),
        TodoSet((Todo("修复解析器"),)),
        PrefixSet(
            "upgrade", "p", "m", "anthropic", "system words", (), ("AGENTS.md: always run mypy",)
        ),
    )
    await log.close()
    for query, expected in [
        ("parser_of", [ERROR]),
        ("PARSER fail", [ASKED, ERROR]),
        ('"parser fail"', [ASKED]),
        ("fail parser", [ERROR, ASKED]),
        ("tokenizer", ["r3.1:1 your reply, thinking: maybe the tokenizer"]),
        ("needle", ["r3.3:4 your reply, call Write: needle = 2"]),
        ("日志", ["r2.2:1 the user's words, text: see 日志 below"]),
        ("修复解析器", ["r10:2 todo set: todos: [{\"content\":\"修复解析器\"}]"]),
        ("解", ["r10:2 todo set: todos: [{\"content\":\"修复解析器\"}]"]),
        ("other.py", ["r5:1 reminder file_changed: [longrein:n0nce] src/other.py changed"]),
        ("mended", []),
        ("ruff", ["r8:1 hook answered: hook said ruff"]),
        ("make watch", ["r9:1 task t1 started: make watch"]),
        ("mypy", ["r11.1:1 prefix set, static context: AGENTS.md: always run mypy"]),
        ("hidden prose", ["r6.2:1 summarized, prose: hidden prose"]),
        ("system words", []),
        ("nowhere", []),
        ("", []),
        ('""', []),
        ("parser nowhere", []),
    ]:  # fmt: skip
        assert found(tmp_path, query) == expected, query


@both_stores
async def test_a_search_does_not_find_searches(tmp_path: Path) -> None:
    recall = ToolCall("c1.0", "Recall", {"query": "needle"})
    log = await written(
        tmp_path,
        result("a needle"),
        Replied(3, (recall,), "calls"),
        Recalled("c1.0", query="needle"),
        ToolEnded("c1.0", "Recall", "ok", (Text("[1 hit for needle]"),)),
    )
    await log.close()
    assert found(tmp_path, "needle") == ["r2:1 result of Bash: a needle"]


@both_stores
async def test_texts_in_blobs_are_found_wherever_they_lie(tmp_path: Path) -> None:
    """Small blobs in the database, large ones in files."""
    log = await written(tmp_path)
    body = "".join(f"line {n} of the output\n" for n in range(20_000))
    cut = body[:31_995] + "斜め横断の言葉" + body[32_000:]
    for text in (body[:500] + "tiny_needle", cut + "last_needle"):
        blob = log.put_blob(text.encode())
        part = Document(blob, "text/plain", len(text), "make", text.count("\n"), "head", "tail")
        await append(log, ToolEnded("c1.0", "Bash", "ok", (part,)))
    await append(
        log, ToolEnded("c1.0", "Bash", "ok", (Document("0" * 64, "text/plain", 5, "gone"),))
    )
    wide = log.put_blob("nadel im heuhaufen".encode("utf-16-le"))
    await append(log, ToolEnded("c1.0", "Bash", "ok", (Document(wide, "text/plain", 5, "wide"),)))
    await log.close()
    told = [row.split()[0] for row in found(tmp_path, "tiny_needle")]
    assert told == [f"r2:{body[:500].count(chr(10)) + 1}"]
    told = [row.split()[0] for row in found(tmp_path, "last_needle")]
    assert told == [f"r3:{cut.count(chr(10)) + 1}"]
    assert [row.split(":")[0] for row in found(tmp_path, "斜め横断の言葉")] == ["r3"]
    assert [row.split(":")[0] for row in found(tmp_path, "heuhaufen")] == ["r5"]


@both_stores
async def test_the_newest_first_and_how_many(tmp_path: Path) -> None:
    log = await written(tmp_path, *(result(f"needle number {n}") for n in range(10)))
    await log.close()
    with past_of(tmp_path) as past:
        some = past.search("needle", 3)
        assert ([hit.handle for hit in some.hits], some.more) == (["r11", "r10", "r9"], True)
        assert [hit.handle for hit in past.search("needle", 3, before=5).hits] == ["r4", "r3", "r2"]
        assert not past.search("needle", 10).more
        assert past.search("needle", 1).hits[0].count == 1


@both_stores
async def test_many_search_while_one_writes(tmp_path: Path) -> None:
    """Threads and processes at once: each search finds at least the entries that were there when
    it began.
    """
    log = await written(tmp_path, *(result(f"needle {n}") for n in range(50)))
    counts: list[int] = []

    def look() -> None:
        for _ in range(5):
            with past_of(tmp_path) as past:
                counts.append(len(past.search("needle", 500).hits))

    async def elsewhere() -> None:
        with past_of(tmp_path) as past:
            assert len(past.search("needle", 500).hits) >= 50

    await log.close()
    children = [run_in_process(elsewhere) for _ in range(2)]
    async with stored_log(tmp_path) as log:
        threads = [threading.Thread(target=look) for _ in range(4)]
        for thread in threads:
            thread.start()
        for n in range(50, 100):
            await append(log, result(f"needle {n}"))
            await asyncio.sleep(0)
        for thread in threads:
            thread.join()
        assert [wait_status(child) for child in children] == [0, 0]
        assert len(counts) == 20
        assert min(counts) >= 50
        assert len(found(tmp_path, "needle", 500)) == 100


@both_stores
async def test_a_fork_has_what_was_said_before_it(tmp_path: Path) -> None:
    log = await written(tmp_path, result("old needle"), result("later needle"))
    await log.close()
    assert len(found(tmp_path, "needle")) == 2
    first = Opened(1, OTHER, "n0nce", ("/w",), "/w", parent=Parent(ID, 2))
    await fork_log(str(tmp_path), ID, 2, Entry(1, wall_us(), first))
    assert found(tmp_path, "needle", session=OTHER) == ["r2:1 result of Bash: old needle"]


CHILD = "6f9d0000-0000-4000-8000-00000000c111"


@both_stores
async def test_only_this_sessions_tree(tmp_path: Path) -> None:
    """A subagent in its own folder names its parent; other sessions stay closed; a fork finds
    its original's subagents.
    """
    log = await written(tmp_path, SubagentStarted(CHILD, "explore", "c1.0"))
    await log.close()
    async with new_log(tmp_path, CHILD) as child:
        first = Opened(1, CHILD, "n0nce", ("/w",), "/w", parent=Parent(ID, 2, "c1.0"))
        await add(child, [Entry(1, wall_us(), first), Entry(2, wall_us(), result("child needle"))])
    stranger = await written(tmp_path, result("secret"), session=OTHER)
    await stranger.close()
    fork = "6f9d0000-0000-4000-8000-00000000f0f0"
    await fork_log(
        str(tmp_path),
        ID,
        2,
        Entry(1, wall_us(), Opened(1, fork, "n0nce", ("/w",), "/w", parent=Parent(ID, 2))),
    )
    for session in (ID, fork):
        with past_of(tmp_path, session) as past:
            assert past.child(OTHER) is None
            mine = past.child(CHILD)
            assert len(mine.search("needle", 5).hits) == 1


@both_stores
async def test_of_kind_seq_at_and_seq_ago(tmp_path: Path) -> None:
    log = await written(
        tmp_path, *(result("x" * (n % 2) * 70_000 or "small") for n in range(6)), TodoSet(())
    )
    await append(log, UserSpoke((Text("hi"),)), result("y"))
    with past_of(tmp_path) as past:
        assert [entry.seq for entry in past.of_kind("ToolEnded")] == [10, 7, 6, 5, 4, 3, 2]
        assert [entry.seq for entry in past.of_kind("UserSpoke", "TodoSet")] == [9, 8]
        assert list(past.of_kind("Interrupted")) == []
        third, now_us = past.entry(3), past.tail()[1]
        ages_us = [now_us - third.at + n for n in (-1, 0, 1)]
        assert [past.seq_ago(age_us, now_us) for age_us in (*ages_us, 10**15)] == [3, 3, 2, 0]
        assert [past.seq_at(third.at + n) for n in (-1, 0, 1)] == [2, 3, 3]
        assert past.seq_at(0) == 0
    await log.close()


@both_stores
async def test_an_archive_reads_beside_the_loop(tmp_path: Path) -> None:
    log = await written(tmp_path, result("a needle"))
    archive = HistoryReader(str(tmp_path), ID)
    names: list[str] = []

    def work(past: SessionHistory) -> SearchResult:
        names.append(threading.current_thread().name)
        return past.search("needle", 5)

    assert len((await archive.reading(work)).hits) == 1
    assert names == ["longrein-recall"]
    with pytest.raises(ZeroDivisionError):
        await archive.reading(lambda past: 1 // 0)
    await log.close()
    log = await reopen(tmp_path)
    await log.close()


# --- Queries and matches --------------------------------------------------------------------------


@pytest.mark.parametrize(("text", "words"), [
    ("two words", ("two", "words")),
    ('"two words" three', ("two words", "three")),
    ("Twice twice", ("twice",)),
    ("  ", ()),
    ('"', ()),
    ("'; DROP TABLE grams; --", ("';", "drop", "table", "grams;", "--")),
    ('say "it', ("say", "it")),
    ("ΟΔΟΣ", ("οδοσ",)),
    ("İstanbul", ("İstanbul",)),
    (" ".join(map(str, range(30))), tuple(map(str, range(16)))),
])  # fmt: skip
def test_words_of_a_query(text: str, words: tuple[str, ...]) -> None:
    assert parse_query(text).words == words


@pytest.mark.parametrize(("text", "query", "expected"), [
    ("a\nthe needle is here\nb", "needle", "the needle is here"),
    ("x" * 300 + " needle " + "y" * 300, "needle", "…" + "x" * 76 + " needle " + "y" * 76 + "…"),
    ("needle\t\x1b[31mred", "needle", "needle [31mred"),
    ("red far\n" + "-" * 500 + "\nred and blue", "blue red", "red and blue"),
    ("one\nlong query\nthree", '"one\nlong"', "one"),
])  # fmt: skip
def test_snippets(text: str, query: str, expected: str) -> None:
    place = find_match(lower_case(text), parse_query(query))
    assert place is not None
    assert snippet(text, place) == expected


SIGNS = (
    "abkAKB\N{KELVIN SIGN}\N{LATIN CAPITAL LETTER I WITH DOT ABOVE}修复ςΣé\N{GRINNING FACE}"
    "\"'\\/:,{}[] .-_1\n\t\x1b\x7f"
)
TEXT = st.text(alphabet=SIGNS, max_size=40)
VALUE = st.recursive(
    TEXT
    | st.integers(-20, 10**6)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(TEXT, VALUE, max_size=3)
EVENTS = st.lists(
    TEXT.map(result)
    | TEXT.map(lambda text: UserSpoke((Text(text),)))
    | TEXT.map(lambda text: TodoSet((Todo(text),)))
    | TEXT.map(lambda text: Reminded("note", text))
    | st.builds(
        lambda one, two: HookAnswered("h", "Stop", "none", text=one, context=two), TEXT, TEXT
    )
    | ARGUMENTS.map(lambda made: Replied(1, (ToolCall("c1.0", "Edit", made),), "calls"))
    | TEXT.map(lambda text: Replied(1, (ToolCall("c1.0", "Edit", None, text),), "calls")),
    min_size=1,
    max_size=8,
)


@given(EVENTS, st.data())
@settings(max_examples=25, deadline=None)
def test_a_search_finds_exactly_what_decoding_every_entry_finds(
    tmp_path_factory: pytest.TempPathFactory, events: list[AnyEvent], data: st.DataObject
) -> None:
    """Queries of any signs, and cuts of the stored texts."""
    state = tmp_path_factory.mktemp("search")

    async def story() -> None:
        log = await written(state, *events)
        await log.close()

    asyncio.run(story())
    with past_of(state) as past:
        entries = list(past.entries(1))
    texts = [content.text for entry in entries for content in contents_of(entry) if content.text]
    whole = "\n".join(texts)
    for _ in range(4):
        start = data.draw(st.integers(0, len(whole)))
        piece = whole[start : start + data.draw(st.integers(1, 12))]
        for query in (piece, piece.swapcase(), f'"{piece}"', data.draw(TEXT)):
            found(state, query)
            with past_of(state) as past:
                assert past.search(query, 1, 4) == scan(past, query, 1, 4)


async def test_raw_output_is_found_only_where_it_is_searched(tmp_path: Path) -> None:
    """The text of a blob that the body names in its last field, and in other fields."""
    log = await written(tmp_path)
    raw, partial, output = (log.put_blob(f"needle in {n}".encode()) for n in ("a", "b", "c"))
    await append(
        log,
        ToolEnded("c1.0", "Bash", "ok", (Text("clean"),), 5, raw),
        AskFailed(1, "overload", partial=partial, attempts_max=10**9),
        TaskEnded("b1", "done", output=output, tail="z" * 500),
        FileSeen("/w/a.py", "0" * 64, raw),
    )
    await log.close()
    assert [row.split(":")[0] for row in found(tmp_path, "needle")] == ["r4", "r3.1", "r2.2"]


async def test_a_damaged_entry_stops_a_search_that_reads_it(tmp_path: Path) -> None:
    log = await written(tmp_path, result("a needle"), result("straw"))
    await log.close()
    with contextlib.closing(sqlite3.connect(folder(tmp_path) / "log.sqlite")) as database:
        database.execute("UPDATE entries SET crc = crc + 1 WHERE key % 16 = 3")
        database.commit()
    with past_of(tmp_path) as past, pytest.raises(StoreDamaged):
        past.search("needle", 5)

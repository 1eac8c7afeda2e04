"""D1, A15, A18.16: exports to HTML, Markdown and ATIF; what a session contains stays text in
each of them.
"""

import asyncio
import importlib.util
import json
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from longrein.extensions.transcripts.atif import as_atif
from longrein.extensions.transcripts.export_steps import (
    ExportedConversation,
    StoredConversation,
    build_conversation,
    read_conversation,
)
from longrein.extensions.transcripts.html import html_pieces
from longrein.extensions.transcripts.markdown_page import as_markdown, fenced
from longrein.store import Reader, SessionLog
from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    Image,
    Opened,
    Parent,
    PrefixSet,
    Replied,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    Text,
    Thinking,
    ToolCall,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
)
from longrein_context.events.escape import escape
from tests.store.fixtures import CHILD, ID, OTHER, done, new_log, wall_us
from tests.tables import cases, row, split_words

pytestmark = pytest.mark.anyio
TOOL = ToolSpec("Agent", "start a subagent", {"type": "object", "properties": {}})
PREFIX = PrefixSet(
    "start",
    "anthropic",
    "claude-x",
    "anthropic",
    "You are an agent.",
    (TOOL,),
    ("Environment: here",),
)
USAGE = Usage(100, 50, 10, 20, 5)


def asked(seq: int, *parts: Any, purpose: str = "turn", stop: str = "end") -> list[AnyEvent]:
    """A request at entry `seq` and its reply."""
    return [
        Asked(purpose, seq - 1, 2),
        Replied(seq, parts, stop, USAGE, cost_usd=0.5, model="claude-x-1"),
    ]


async def append(log: SessionLog, first: int, events: list[AnyEvent], *beside: Any) -> None:
    entries = [Entry(seq, wall_us(), event) for seq, event in enumerate(events, first)]
    await done(log.append(entries, flush=True, beside=beside))


def child_events(session: str, seq: int, shares: int) -> list[AnyEvent]:
    opened = Opened(
        1,
        session,
        "n0nce",
        ("/w",),
        "/w",
        parent=Parent(ID, shares, f"c4.{seq}"),
        kind="explore",
        label="a8",
    )
    return [
        opened,
        UserSpoke((Text("find it"),)),
        *asked(shares + 3, Text("found")),
        TurnEnded("done"),
    ]


async def stored(state: Path) -> ExportedConversation:
    """A session with a compaction and two subagents, one of which shares the beginning of its
    parent.
    """
    async with new_log(state) as log:
        calls = (
            ToolCall("c4.0", "Agent", {"prompt": "one"}),
            ToolCall("c4.1", "Agent", {"prompt": "two"}),
        )
        start: list[AnyEvent] = [
            Opened(1, ID, "n0nce", ("/w",), "/w"),
            PREFIX,
            UserSpoke((Text("look"),)),
        ]
        await append(
            log, 1, [*start, *asked(4, Thinking("hm"), Text("I look."), *calls, stop="calls")]
        )
        for n, (session, shares) in enumerate(((CHILD, 0), (OTHER, 5))):
            seq = 6 + 2 * n
            child = log.child(session, shares)
            opening = child_events(session, n, shares)
            first = [Entry(shares + at, wall_us(), event) for at, event in enumerate(opening, 1)]
            begun: list[AnyEvent] = [
                ToolStarted(f"c4.{n}", "Agent"),
                SubagentStarted(session, "explore", f"c4.{n}"),
            ]
            await append(log, seq, begun, (child, first, ()))
        ends: list[AnyEvent] = []
        for n, session in enumerate((CHILD, OTHER)):
            ends += [
                SubagentEnded(session, "done", "found"),
                ToolEnded(f"c4.{n}", "Agent", "ok", (Text("found"),), 12),
            ]
        await append(log, 10, ends)
        await append(log, 14, asked(14, Text("They looked."), purpose="summary"))
        more: list[AnyEvent] = [
            Summarized(3, 13, "Summary: they looked.", "watermark"),
            *asked(17, Text("Done.")),
        ]
        await append(log, 16, [*more, TurnEnded("done")])
    reader = Reader(str(state), ID)
    told = read_conversation(reader)
    reader.close()
    return told


async def test_a18_16_an_atif_export_validates_without_copied_steps(tmp_path: Path) -> None:
    made = json.loads(as_atif(await stored(tmp_path)))
    assert (made["schema_version"], made["session_id"], made["agent"]["name"]) == row(
        "ATIF-v1.8", ID, "longrein"
    )
    assert made["agent"]["tool_definitions"][0]["function"]["name"] == "Agent"
    assert [step["step_id"] for step in made["steps"]] == list(range(1, len(made["steps"]) + 1))
    assert [step["source"] for step in made["steps"]] == [
        *("system", "user", "agent", "system", "system", "agent", "system", "agent")
    ]
    spawned = made["steps"][2]
    assert (spawned["reasoning_content"], spawned["metrics"]["prompt_tokens"]) == ("hm", 160)
    refs = [one["subagent_trajectory_ref"] for one in spawned["observation"]["results"]]
    assert refs == [[{"trajectory_id": CHILD}], [{"trajectory_id": OTHER}]]
    assert any(step["message"] == "Summary: they looked." for step in made["steps"])
    assert made["final_metrics"]["total_prompt_tokens"] == 3 * 160
    assert made["final_metrics"]["total_cached_tokens"] == 3 * 50
    assert made["final_metrics"]["total_cost_usd"] == 1.5
    plain, forked = made["subagent_trajectories"]
    assert [one["final_metrics"]["total_cost_usd"] for one in (plain, forked)] == [0.5, 0.5]
    copied = [step.get("is_copied_context", False) for step in forked["steps"]]
    assert copied == [False, True, True, False, False]
    assert forked["final_metrics"]["total_prompt_tokens"] == 160
    assert made["final_metrics"]["extra"]["cost_usd_with_subagents"] == 2.5


@pytest.mark.skipif(
    importlib.util.find_spec("atif") is None, reason="the package atif is not installed"
)
async def test_a15_the_models_of_the_atif_package_accept_every_export(tmp_path: Path) -> None:
    from atif import Trajectory

    for told in (await stored(tmp_path), hostile(), build_conversation([], lambda _: b"")):
        read = Trajectory.model_validate_json(as_atif(told))
        assert all(step.step_id == n for n, step in enumerate(read.steps, 1))


# --- Hostile content ------------------------------------------------------------------------------


PAYLOADS = (
    "<script>alert(1)</script>",
    "</pre></section><img src=x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "</title></style><iframe src=//evil.example>",
    "<!--><a href=javascript:alert(1)>",
    "[x](javascript:alert(1)) ![y](http://evil.example/a.png)",
    "```\n# heading\n````\n<b>bold</b>\n`````",
    "~~~\n> quote\n\x1b[31m\x00 \u202e",
)


def hostile() -> ExportedConversation:
    """A session that has the payloads in every place."""
    bad = "\n".join(PAYLOADS)
    call = ToolCall("c4.0<script>", bad, {bad: bad, "file_path": f"/tmp/{PAYLOADS[1]}"})
    prefix = PrefixSet("start", bad, bad, "anthropic", bad, (ToolSpec(bad, bad, {}),), (bad,))
    images = (
        Image("0" * 64, "image/svg+xml", 9),
        Image("1" * 64, 'image/png" onerror="alert(1)', 9),
    )
    events: list[AnyEvent] = [
        Opened(1, ID, "n0nce", (bad,), bad, kind=bad),
        prefix,
        UserSpoke((Text(bad), *images, Image("2" * 64, "image/png", 9))),
        *asked(
            4, Thinking(bad), Text(bad), call, ToolCall("c4.1", "Bash", None, bad), stop="calls"
        ),
        ToolEnded(call.id, bad, bad, (Text(bad), *images)),
        Summarized(3, 6, bad, bad),
        TurnEnded("error", bad),
    ]

    def read(blob: str) -> bytes:
        if blob[0] == "2":
            return b"png"
        raise KeyError(blob)

    return build_conversation([Entry(seq, 1, event) for seq, event in enumerate(events, 1)], read)


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str]] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {(name, value or "") for name, value in attrs}

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)


def test_nothing_in_a_session_becomes_an_element_of_the_html_page() -> None:
    page = b"".join(html_pieces(hostile())).decode()
    found = Elements()
    found.feed(page)
    assert found.tags <= {
        *("html", "head", "meta", "title", "style", "body", "h1", "h2", "dl", "dt", "dd"),
        *("section", "pre", "details", "summary", "img"),
    }
    names = {name for name, _ in found.attributes}
    assert names <= {"lang", "charset", "http-equiv", "content", "name", "class", "alt", "src"}
    assert {value for name, value in found.attributes if name == "src"} == {
        "data:image/png;base64,cG5n"
    }
    assert ("http-equiv", "Content-Security-Policy") in found.attributes
    text = "".join(found.text)
    for payload in PAYLOADS[:-1]:
        assert text.count(payload) >= 5, payload
    assert "\x1b" not in page
    assert "\0" not in page


def test_foreign_text_stays_in_its_fence_in_markdown() -> None:
    page = as_markdown(hostile()).decode()
    tokens = MarkdownIt("commonmark").parse(page)
    depth, top = 0, []
    for token in tokens:
        depth += token.type == "blockquote_open"
        depth -= token.type == "blockquote_close"
        if depth == 0:
            top.append(token)
    assert {token.type for token in top} <= {
        *("heading_open", "heading_close", "inline", "paragraph_open", "paragraph_close", "fence"),
        *split_words("""
            bullet_list_open bullet_list_close list_item_open list_item_close blockquote_close
        """),
    }
    inner = {child.type for token in top for child in token.children or ()}
    assert inner <= {"text", "strong_open", "strong_close", "code_inline", "softbreak"}, inner
    bad = escape("\n".join(PAYLOADS))
    assert [token.content for token in top if token.type == "fence"].count(bad + "\n") >= 4


@cases("text", "", "`", "```", "a\n```python\nb\n```\n", "````````", "\n\n", "x\n   ````\ny")
def test_a_fence_ends_only_where_it_should(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(fenced(text) + "\n\nafter\n")
    assert [token.type for token in tokens][:2] == ["fence", "paragraph_open"]
    assert tokens[0].content.rstrip("\n") == text.rstrip("\n")


async def test_pages_name_the_session_its_costs_and_its_subagents(tmp_path: Path) -> None:
    told = await stored(tmp_path)
    for page in (b"".join(html_pieces(told)).decode(), as_markdown(told).decode()):
        assert ID in page
        assert "480 in, 60 out" in page
        assert page.count("Subagent a8") == 2
        assert (
            page.index("look")
            < page.index("I look.")
            < page.index("Summary: they looked.")
            < page.index("Done.")
        )


STEP = st.sampled_from(["reply", "result", "user", "failure", "summary"])


@given(st.lists(st.tuples(STEP, st.integers(0, 5)), max_size=25), st.integers(0, 4))
@settings(max_examples=40, deadline=None)
def test_a_page_in_pieces_has_the_bytes_of_the_whole_page(
    tmp_path_factory: pytest.TempPathFactory, story: list[tuple[str, int]], shares: int
) -> None:
    """Results come late, twice, for no call or never; a subagent shares the beginning."""
    state = tmp_path_factory.mktemp("pages")

    async def write() -> None:
        async with new_log(state) as log:
            events: list[AnyEvent] = [Opened(1, ID, "n0nce", ("/w",), "/w"), PREFIX]
            for kind, n in story:
                events += told_by(kind, n, len(events) + 1)
            events.append(SubagentStarted(CHILD, "explore", "c3.0"))
            await append(log, 1, events)
            shared = min(shares, len(events) - 1)
            child = log.child(CHILD, shared)
            begun = [Entry(shared + at, wall_us(), event) for at, event in enumerate(
                child_events(CHILD, 0, shared), 1)]  # fmt: skip
            await append(log, len(events) + 1, [TurnEnded("done")], (child, begun, ()))

    asyncio.run(write())
    with closing(Reader(str(state), ID)) as reader:
        pieces = list(html_pieces(StoredConversation(reader)))
        assert b"".join(pieces) == b"".join(html_pieces(read_conversation(reader)))


def told_by(kind: str, n: int, seq: int) -> list[AnyEvent]:
    """Return the events of one thing that happens, of which the first has `seq`."""
    match kind:
        case "reply":
            calls = [ToolCall(f"c{seq}.{at}", "Bash", {"command": f"n{at}"}) for at in range(n)]
            return asked(seq, Text("I look."), *calls, stop="calls")
        case "result":
            return [ToolEnded(f"c{3 + n // 2}.{n % 2}", "Bash", "ok", (Text(f"at {seq}"),))]
        case "user":
            return [UserSpoke((Text(f"words {n}"),))]
        case "failure":
            return [Asked("turn", seq - 1, 2), AskFailed(seq, "overload", "busy")]
        case _:
            return [Summarized(3, max(3, seq - 1), "Summary.", "watermark")]

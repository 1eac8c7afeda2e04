"""A12: transcripts of Claude Code become sessions that can be resumed."""

from typing import Any

import pytest

from longrein.testing import results, said, story
from longrein_context import fold
from longrein_context.events import (
    Document,
    Entry,
    Image,
    Replied,
    Summarized,
    ToolEnded,
    UserSpoke,
    text_of,
)
from tests.transcripts.fixtures import PNG, ClaudeFile, Line, built, resumed, text, thinks, uses

pytestmark = pytest.mark.anyio


def conversation() -> ClaudeFile:
    """Words, thinking, parallel calls whose results hang beside the branch, a failed call, an
    image.
    """
    file = ClaudeFile()
    file.add("summary", None, summary="Fix the shop", leafUuid="x")
    file.said("why does the build fail?", parent=None)
    file.reply("m1", thinks("let me look"))
    file.reply("m1", text("I look."))
    first = file.reply("m1", uses("toolu_1", "Bash", command="make"))
    second = file.reply("m1", uses("toolu_2", "Read", file_path="/home/me/shop/a.py"))
    file.result("toolu_1", "error: no rule", parent=first, is_error=True)
    file.result(
        "toolu_2",
        [text("1\tprint()"), {"type": "image", "source": {"media_type": "image/png", "data": PNG}}],
        parent=second,
    )
    file.reply("m2", text("A rule is missing."))
    return file


def texts(entries: list[Entry]) -> list[str]:
    """Role and words of each message, reply and result."""
    told = []
    for entry in entries:
        match entry.event:
            case UserSpoke(parts):
                told.append(f"user {text_of(parts)}")
            case Replied() as event:
                told.append(f"model {text_of(event.parts)}".strip())
            case ToolEnded() as event:
                told.append(f"{event.name} {event.status} {text_of(event.parts)}")
    return told


async def test_a12_a_conversation_with_parallel_calls_is_taken_whole_and_resumed() -> None:
    entries, found, blobs = built(conversation().lines)
    assert texts(entries) == [
        "user why does the build fail?",
        "model let me look\nI look.",
        "Bash failed error: no rule",
        "Read ok 1\tprint()",
        "model A rule is missing.",
    ]
    assert story(entries) == (
        "Opened UserSpoke Asked Replied ToolStarted ToolEnded ToolStarted ToolEnded Asked Replied "
        "TurnEnded"
    )
    assert dict(found.taken) == {"message": 1, "reply": 2, "call": 2}
    assert not found.left_out
    assert entries[1].at == 1_790_848_802_000_000
    image = next(
        part
        for entry in entries
        if isinstance(entry.event, ToolEnded)
        for part in entry.event.parts[1:]
    )
    assert isinstance(image, Image)
    assert blobs[image.blob].startswith(b"\x89PNG")
    model = await resumed(entries)
    (request,) = model.requests
    assert results(request) == ["Bash failed: error: no rule", "Read ok: 1\tprint()"]
    assert "go on" in said(request)


async def check(
    file: ClaudeFile | list[Line], told: list[str], left: dict[str, int] | None = None
) -> None:
    """What is taken and left out; and the session can be resumed."""
    lines = file.lines if isinstance(file, ClaudeFile) else file
    entries, found, _ = built(lines)
    assert texts(entries) == told
    assert dict(found.left_out) == (left or {})
    await resumed(entries)


async def test_a12_the_branch_of_the_last_line_is_the_conversation() -> None:
    file = ClaudeFile()
    start = file.said("first", parent=None)
    file.reply("m1", text("one"))
    file.said("wrong way")
    file.reply("m2", text("lost"))
    file.reply("m3", text("the other answer"), parent=start)
    await check(file, ["user first", "model the other answer"], {"abandoned line": 3})


@pytest.mark.parametrize("known", [True, False])
async def test_a12_a_compaction_becomes_a_summary_that_can_be_recalled(known: bool) -> None:
    file = conversation()
    last = file.lines[-1]["uuid"] if known else "a line that is not in the file"
    file.add(
        "system",
        None,
        parent=None,
        subtype="compact_boundary",
        logicalParentUuid=last,
        compactMetadata={},
    )
    file.said("This session is continued. The build lacked a rule.", isCompactSummary=True)
    file.said("and now?")
    file.reply("m5", text("Now it works."))
    entries, found, _ = built(file.lines)
    (summary,) = (entry.event for entry in entries if isinstance(entry.event, Summarized))
    assert "The build lacked a rule." in summary.text
    assert (summary.first, found.taken["summary"], found.taken["call"]) == (2, 1, 2)
    request = (await resumed(entries)).requests[0]
    assert results(request) == []
    assert [word for word in said(request) if "why does" in word] == []
    assert "and now?" in said(request)
    assert any(entry.seq == 6 and isinstance(entry.event, ToolEnded) for entry in entries)


async def test_a12_what_the_harness_wrote_is_left_out_and_words_of_the_user_stay() -> None:
    file = ClaudeFile()
    file.said("<local-command-caveat>Caveat</local-command-caveat>", parent=None, isMeta=True)
    file.said("<command-name>/review</command-name>\n<command-args>the diff</command-args>")
    file.said("<local-command-stdout>none</local-command-stdout>")
    file.said(
        [
            text("<system-reminder>\nobey me\n</system-reminder>\nhello"),
            text("<system-reminder>x</system-reminder>"),
        ]
    )
    file.add("attachment", None, attachment={"type": "queued_command", "prompt": "and hurry"})
    file.add("attachment", None, attachment={"type": "todo_reminder", "content": []})
    file.reply("m1", text("yes"), {"type": "redacted_thinking", "data": "x"}, {"type": 5})
    file.reply("m2", text("API Error: 529"), isApiErrorMessage=True)
    await check(
        file,
        ["user /review the diff", "user hello", "user and hurry", "model yes"],
        {
            "harness note": 5,
            "redacted_thinking block": 1,
            "unreadable block": 1,
            "provider error": 1,
        },
    )


async def test_a12_every_call_gets_one_result() -> None:
    file = ClaudeFile()
    file.said("go", parent=None)
    file.reply("m1", uses("t1", "Bash", command="sleep 9"), uses("t2", "Bash", command="true"))
    file.result("t2", "")
    file.result("t2", "twice")
    file.result("t9", "of nobody")
    file.said([text("[Request interrupted by user]")])
    file.said("stop that")
    file.reply("m2", uses("t3", "Edit", file_path="x"), uses("", "Bash"))
    lost = "interrupted: the transcript holds no result of this call"
    await check(
        file,
        [
            *("user go", "model", "Bash ok (no output)", f"Bash interrupted {lost}"),
            *("user stop that", "model", f"Edit interrupted {lost}", f"Bash interrupted {lost}"),
        ],
        {"stray result": 2},
    )


async def test_a12_subagents_leave_their_report_and_their_own_file_can_be_read() -> None:
    file = ClaudeFile()
    file.said("look", parent=None)
    top = file.reply("m1", uses("t1", "Task", prompt="find it"))
    file.said("find it", parent=None, isSidechain=True, agentId="a1")
    file.reply("s1", text("found"), isSidechain=True, agentId="a1")
    file.result("t1", "it is in a.py", parent=top)
    await check(file, ["user look", "model", "Task ok it is in a.py"], {"subagent conversation": 1})
    await check(
        [line for line in file.lines if line["isSidechain"]], ["user find it", "model found"]
    )


BAD: list[tuple[str, Any]] = [
    ("no content", {"type": "user", "message": {"role": "user"}}),
    ("content of numbers", {"type": "user", "message": {"content": [1, None, [], {}]}}),
    ("content that is a number", {"type": "assistant", "message": {"content": 7, "id": 3}}),
    (
        "its own parent",
        {"type": "user", "uuid": "u1", "parentUuid": "u1", "message": {"content": "me"}},
    ),
    (
        "a parent that is gone",
        {"type": "user", "uuid": "u7", "parentUuid": "u6", "message": {"content": "me"}},
    ),
    (
        "a broken image",
        {
            "type": "user",
            "message": {
                "content": [{"type": "image", "source": {"media_type": "image/png", "data": "%%%"}}]
            },
        },
    ),
    (
        "arguments that are no object",
        {
            "type": "assistant",
            "message": {
                "content": [{"type": "tool_use", "id": "a", "name": "Bash", "input": "rm"}]
            },
        },
    ),
    (
        "a call without a name",
        {
            "type": "assistant",
            "message": {"content": [{"type": "tool_use", "id": "a", "name": "", "input": {}}]},
        },
    ),
    ("NUL and half a pair", {"type": "user", "message": {"content": "a\0b\ud800c"}}),
    (
        "a strange time",
        {"type": "user", "timestamp": "+999999-01-01", "message": {"content": "me"}},
    ),
]


@pytest.mark.parametrize(("name", "line"), BAD, ids=[name for name, _ in BAD])
async def test_a12_strange_lines_do_no_harm(name: str, line: Line) -> None:
    for lines in ([line, *conversation().lines], [*conversation().lines, line]):
        entries, _, _ = built(lines)
        await resumed(entries)
        fold(entries)


async def test_a12_secrets_are_replaced_and_long_results_become_documents() -> None:
    file, secret = ClaudeFile(), "hunter2-hunter2-hunter2"
    file.said(f"the key is {secret}", parent=None)
    file.reply("m1", thinks(f"so {secret}"), uses("t1", "Bash", command=f"curl -H {secret}"))
    file.result("t1", f"{secret}\n" + "line\n" * 40_000)
    entries, _, blobs = built(file.lines, [secret])
    stored = repr(entries).encode() + b"".join(blobs.values())
    assert secret.encode() not in stored
    document = next(
        part
        for entry in entries
        if isinstance(entry.event, ToolEnded)
        for part in entry.event.parts
    )
    assert isinstance(document, Document)
    assert document.lines == 40_002
    assert len(document.head) == len(document.tail) == 4_000
    await resumed(entries)

"""stream-json input: each line is a user message, several may come while a turn runs, the end of
stdin ends the run.
"""

import asyncio
import json
from base64 import b64encode

import pytest

from longrein.agent import Compact, InboxMessage, UserMessage
from longrein.frontends.headless.stream_json_input import InputMessage, parse_line
from longrein_context.events import Document, Image, Text, UsageError

from .harness import DONE, HANG, ScriptedSession, Step, answered, asked, play

pytestmark = pytest.mark.anyio


def user(text: str, extra: str = "") -> bytes:
    return f'{{"type":"user","message":{{"role":"user","content":"{text}"}}{extra}}}'.encode()


def turn(asked_seq: int, text: str) -> list[Step]:
    return [asked(), answered(asked_seq, text), DONE]


async def test_each_message_gets_its_turn_and_its_result() -> None:
    ran = await play(
        [turn(1, "one"), turn(4, "two")], prompt="", typed=[user("first"), user("second")]
    )
    assert ran.code == 0
    assert ran.kinds == "init assistant result assistant result"
    first, second = [line for line in ran.lines if line["type"] == "result"]
    assert (first["result"], first["num_turns"], first["total_cost_usd"]) == ("one", 1, 0.25)
    assert (second["result"], second["num_turns"], second["total_cost_usd"]) == ("two", 1, 0.5)
    assert first["uuid"] != second["uuid"]


async def test_the_prompt_comes_first() -> None:
    ran = await play([turn(1, "one"), turn(4, "two")], prompt="zero", typed=[user("first")])
    assert [word.parts[0].text for word in ran.session.said] == ["zero", "first"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("extra", "how"),
    [("", "queued"), (',"priority":"next"', "steer"), (',"priority":"later"', "queued")],
)
async def test_a_message_while_a_turn_runs_is_queued_unless_it_says_otherwise(
    extra: str, how: str
) -> None:
    session = ScriptedSession([turn(1, "one"), turn(4, "two")])
    session.busy = True
    ran = await play([], prompt="", typed=[user("a"), user("b", extra)], session=session)
    assert ran.session.said[1] == UserMessage((Text("b"),), how)  # type: ignore[arg-type]


class CompactingSession(ScriptedSession):
    """A session whose compaction lasts until another message has come, or could have."""

    async def tell(self, word: InboxMessage) -> None:
        if not isinstance(word, Compact):
            await super().tell(word)
        for _ in range(20 * isinstance(word, Compact)):
            await asyncio.sleep(0)


async def test_what_comes_while_a_command_acts_is_answered_after_it() -> None:
    session = CompactingSession([turn(1, "one")])
    ran = await play([], prompt="", typed=[user("/compact"), user("a")], session=session)
    told = [line["result"] for line in ran.lines if line["type"] == "result"]
    assert [text.split()[0] for text in told] == ["Nothing", "one"]


async def test_a_prompt_that_is_a_command_leaves_the_messages_after_it() -> None:
    ran = await play([turn(1, "one")], prompt="/cost", typed=[user("a")])
    told = [line["result"] for line in ran.lines if line["type"] == "result"]
    assert [text.split()[0] for text in told] == ["requests", "one"]


async def test_an_urgent_message_behind_a_command_interrupts_the_turn() -> None:
    session = ScriptedSession([[asked(), HANG], turn(4, "two")])
    urgent = user("b", ',"priority":"now"')
    ran = await play([], prompt="", typed=[user("a"), user("/cost"), urgent], session=session)
    ends = [line["subtype"] for line in ran.lines if line["type"] == "result"]
    assert ends == ["error_during_execution", "success", "success"]


def kept(data: bytes, media: str) -> Image | Document:
    kind = Image if media.startswith("image/") else Document
    return kind(data.decode(), media, len(data))


def b64(media: str, text: str) -> dict[str, str]:
    return {"type": "base64", "media_type": media, "data": b64encode(text.encode()).decode()}


BLOCKS: list[tuple[dict[str, object], object]] = [
    ({"type": "text", "text": "a"}, Text("a")),
    ({"type": "image", "source": b64("image/png", "p")}, Image("p", "image/png", 1)),
    (
        {"type": "document", "title": "a.pdf", "source": b64("application/pdf", "%PDF")},
        Document("%PDF", "application/pdf", 4, "a.pdf"),
    ),
    (
        {"type": "document", "source": b64("application/pdf", "%PDF")},
        Document("%PDF", "application/pdf", 4),
    ),
    (
        {"type": "document", "title": "n\n", "source": b64("text/plain", "t\0")},
        Text("[attached by the user: n\\n]\nt\ufffd\n[end of n\\n]"),
    ),
    (
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "t"}},
        Text("[attached by the user: a document]\nt\n[end of a document]"),
    ),
    ({"type": "document", "source": {"type": "url", "url": "https://a"}}, "a document by address"),
    ({"type": "image", "source": {"type": "url", "url": "https://a"}}, "an image by address"),
    ({"type": "document", "source": b64("application/zip", "z")}, "must be a PDF file or text"),
    ({"type": "document", "source": {"type": "file", "file_id": "f"}}, "must be a PDF file or"),
    ({"type": "search_result"}, "a content block of type 'search_result' cannot be taken"),
]


@pytest.mark.parametrize(("block", "part"), BLOCKS)
def test_A6_3_blocks_of_a_message(block: dict[str, object], part: object) -> None:
    """`part`: the part of the session, or words of the refusal."""
    message = {"type": "user", "message": {"role": "user", "content": [block]}}
    line = json.dumps(message).encode()
    if isinstance(part, str):
        with pytest.raises(UsageError, match=part):
            parse_line(line, kept)
    else:
        assert parse_line(line, kept) == InputMessage((part,), "queued")  # type: ignore[arg-type]


async def test_A6_4_a_composed_message_is_marked() -> None:
    ran = await play([turn(1, "one")], prompt="", typed=[user("/go @x", ',"client_composed":true')])
    assert ran.session.said[0] == UserMessage((Text("/go @x"),), verbatim=True)


async def test_now_interrupts_the_turn_that_runs() -> None:
    stuck: list[Step] = [asked(), HANG]
    ran = await play(
        [stuck, turn(4, "two")], prompt="zero", typed=[user("stop", ',"priority":"now"')]
    )
    results = [line for line in ran.lines if line["type"] == "result"]
    assert [r["subtype"] for r in results] == ["error_during_execution", "success"]
    assert ran.code == 0


async def test_blocks_of_text_are_taken_too() -> None:
    line = b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}'  # noqa: E501
    ran = await play([turn(1, "one")], prompt="", typed=[line])
    assert ran.session.said == [UserMessage((Text("a"), Text("b")))]


EXAMPLE = '{"type":"user","message":{"role":"user","content":"…"}}'


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"fix it", f"stdin: 'fix it' is no JSON; a line is {EXAMPLE}"),
        (
            b'\xff{"type":"user"',
            f"""stdin: '\ufffd{{"type":"user"' is no JSON; a line is {EXAMPLE}""",
        ),
        (b"[1]", f"stdin: '[1]' is no user message; a line is {EXAMPLE}"),
        (
            b'{"type":"assistant"}',
            f"""stdin: '{{"type":"assistant"}}' is no user message; a line is {EXAMPLE}""",
        ),
        (
            b'{"type":"user","message":1}',
            f"""stdin: '{{"type":"user","message":1}}' has no text; a line is {EXAMPLE}""",
        ),
        (
            b'{"type":"user","message":{"role":"user","content":[{"type":"text","text":" "}]}}',
            (
                """stdin: '{"type":"user","message":{"role":"user","content":[{"type":…' """
                f"has no text; a line is {EXAMPLE}"
            ),
        ),
        (
            b'{"type":"user","message":{"role":"user","content":[{"type":"video"}]}}',
            "stdin: a content block of type 'video' cannot be taken; text can",
        ),
    ],
)
async def test_a_line_that_is_no_message_is_told_and_passed_over(line: bytes, says: str) -> None:
    ran = await play(
        [turn(1, "one"), turn(10, "two")], prompt="", typed=[user("a"), line, user("b")]
    )
    assert (ran.code, ran.err) == (2, [says])
    assert [line["result"] for line in ran.lines if line["type"] == "result"] == ["one", "two"]
    assert [line["content"] for line in ran.lines if line.get("subtype") == "informational"] == [
        says
    ]


async def test_no_line_that_is_a_message_is_an_error_of_the_first() -> None:
    ran = await play([], prompt="", typed=[b"fix it", b"[1]"])
    assert ran.code == 2
    assert [said.partition(";")[0] for said in ran.err] == [
        "stdin: 'fix it' is no JSON",
        "stdin: '[1]' is no user message",
    ]
    assert ran.kinds == "init informational informational result"
    assert ran.lines[-1]["errors"] == [ran.err[0]]


async def test_no_message_at_all_is_an_empty_prompt() -> None:
    ran = await play([], prompt="", typed=[])
    assert (ran.code, ran.err) == (2, ["the prompt is empty: stdin held no user message"])
    assert ran.kinds == "init result"


REQUESTS = [
    (
        "initialize",
        {},
        "initialize must be the first line on stdin, as the session is open already",
    ),
    ("dance", {}, "longrein has no control request 'dance'; it has initialize, interrupt,"),
    ("", {}, "longrein has no control request ''"),
    ("set_permission_mode", {"mode": "wild"}, "there is no mode wild; it is one of default,"),
    ("stop_task", {"task_id": "b7"}, "no task 'b7' is known here"),
    ("rewind_files", {"user_message_id": "x"}, "no message of this session has the id 'x'"),
    ("get_context_usage", {}, ""),
    ("interrupt", {}, ""),
    ("mcp_status", {}, ""),
]


@pytest.mark.parametrize(("subtype", "fields", "error"), REQUESTS)
async def test_A6_4_each_control_request_gets_one_answer(
    subtype: str, fields: dict[str, str], error: str
) -> None:
    request = json.dumps(
        {"type": "control_request", "request_id": "r1", "request": {"subtype": subtype} | fields}
    ).encode()
    ran = await play(
        [turn(1, "one")], prompt="", typed=[request, b'{"type":"keep_alive"}', user("a")]
    )
    assert ran.kinds == "init control_response assistant result"
    response = ran.lines[1]["response"]
    assert (response["request_id"], response["subtype"]) == ("r1", "error" if error else "success")
    assert response.get("error", "").startswith(error)


async def test_A6_4_a_program_that_only_asks_questions_ends_well() -> None:
    request = b'{"type":"control_request","request_id":"r1","request":{"subtype":"mcp_status"}}'
    ran = await play([], prompt="", typed=[request])
    assert (ran.code, ran.kinds, ran.err) == (0, "init control_response", [])

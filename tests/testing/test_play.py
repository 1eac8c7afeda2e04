"""Scripts of the loopback provider on each wire, as a client sees them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from longrein.testing.loopback import (
    Call,
    Fault,
    LoopbackProvider,
    Play,
    Received,
    Turn,
    read_play,
)
from longrein.testing.loopback.server import wire_of
from tests.testing.http_client import PATHS, post
from tests.testing.loopback_requests import STOPS, WIRES, ask, reply_of
from tests.testing.test_rules_anthropic import assistant, result, text, use, user

pytestmark = pytest.mark.anyio


# --- streams -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", WIRES)
async def test_a_turn_is_streamed_in_the_wires_own_events(wire: str) -> None:
    both = (Call("Read", {"path": "a"}), Call("Bash", {"command": "ls 你好"}))
    turns = [
        Turn(text="Done."),
        Turn(text="I look.", calls=both),
        Turn(text="and", stop="length"),
        Turn(stop="refusal"),
    ]
    async with LoopbackProvider(turns) as server:
        answers = [reply_of(wire, await ask(server, wire)) for _ in turns]
    assert [words for words, _, _ in answers] == ["Done.", "I look.", "and", ""]
    assert [(name, json.loads(given)) for name, given in answers[1][1]] == [
        ("Read", {"path": "a"}),
        ("Bash", {"command": "ls 你好"}),
    ]
    assert tuple(stop for _, _, stop in answers) == STOPS[wire]


async def test_the_first_events_of_an_anthropic_stream_byte_for_byte() -> None:
    async with LoopbackProvider([Turn(text="Hi.")]) as server:
        answer = await ask(server)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    names = [line[7:] for line in answer.body.decode().split("\n") if line.startswith("event: ")]
    assert names == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    delta = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hi."}}'
    assert b"event: content_block_delta\ndata: " + delta + b"\n\n" in answer.body


async def test_gemini_ends_its_lines_as_gemini_does_and_chat_says_done() -> None:
    async with LoopbackProvider([Turn(text="Hi."), Turn(text="Hi.")]) as server:
        assert (await ask(server, "gemini")).body.endswith(b"}\r\n\r\n")
        assert (await ask(server, "openai-chat")).body.endswith(b"\n\ndata: [DONE]\n\n")


async def test_the_pieces_of_a_text_can_be_chosen() -> None:
    turns = [Turn(text="abcdef", deltas=3), Turn(deltas=("a", "bcd", "你")), Turn(text="xy", repeat=500, deltas=1_000)]
    async with LoopbackProvider(turns) as server:
        streams = [(await ask(server)).events for _ in turns]
    found = [[e["delta"]["text"] for e in events if e["type"] == "content_block_delta"] for events in streams]
    assert found[:2] == [["ab", "cd", "ef"], ["a", "bcd", "你"]]
    assert len(found[2]) == 1_000


@pytest.mark.parametrize(("batch", "writes"), [(1, 7), (3, 3), (0, 1)])
async def test_events_come_one_by_one_or_together(batch: int, writes: int) -> None:
    from longrein.testing.loopback.answer import ReplyContext
    from longrein.testing.loopback.http import plan_delivery
    from longrein.testing.loopback.prompt_cache import CacheUsage

    found = wire_of(PATHS["anthropic"])
    assert found is not None
    turn = Turn(text="Hi.", batch=batch)
    events = found[0].events(turn, ReplyContext("m", 1, CacheUsage(1, 0, 0), 1, 0))
    assert len(plan_delivery(turn, None, events, b"").writes) == writes


# --- scripts -----------------------------------------------------------------------------------------------------


async def test_turns_are_played_once_each_to_whom_they_fit() -> None:
    """What was said since the last reply decides; a turn that waits for its words is overtaken."""
    script = [
        Turn(match="print(1)", text="A result."),
        Turn(when="count", text="Of the other conversation."),
        Turn(text="First."),
        Turn(match=lambda request: request.parsed.replies == 2, text="By a function."),
    ]
    talk = [user(text("fix it")), assistant(use()), user(result())]
    async with LoopbackProvider(script) as server:
        words = []
        for body in (
            [user(text("fix it"))],
            [user(text("count them"))],
            talk,
            [*talk, assistant(text("x")), user(text("y"))],
        ):
            answer = await post(server, PATHS["anthropic"], {"model": "m", "max_tokens": 9, "messages": body})
            words.append(reply_of("anthropic", answer)[0])
        assert words == ["First.", "Of the other conversation.", "A result.", "By a function."]
        assert [request.turn for request in server.requests] == [2, 1, 0, 3]
        assert server.unused() == []


async def test_a_turn_with_a_fault_comes_again_until_a_request_holds_its_reply() -> None:
    """A client may survive a garbled line, or not: the next request tells."""
    script = [Turn(text="First.", fault=Fault(kind="garbage", body=": hm\n\n", times=9)), Turn(text="Second.")]
    begun, taken = [user(text("a"))], [user(text("a")), assistant(text("First.")), user(text("b"))]
    async with LoopbackProvider(script) as server:
        assert server.unused() == ["turn 0: 'First.'", "turn 1: 'Second.'"]
        words = []
        for talk in (begun, begun, taken):
            body = {"model": "m", "max_tokens": 9, "messages": talk}
            words.append(reply_of("anthropic", await post(server, PATHS["anthropic"], body))[0])
        assert words == ["First.", "First.", "Second."]
        assert server.unused() == []
    async with LoopbackProvider(script[:1]) as server:
        await ask(server)
        assert server.unused() == [], "written whole, and nobody asked again"


async def test_summaries_are_matched_apart_and_the_last_one_repeats() -> None:
    async with LoopbackProvider([Turn(text="Turn.")], summaries=[Turn(match="SUMMARISE", text="So far.")]) as server:
        words = [
            reply_of("anthropic", await ask(server, said=said))[0] for said in ("SUMMARISE", "go", "SUMMARISE now")
        ]
    assert words == ["So far.", "Turn.", "So far."]
    several = [Turn(match="SUM", text=text) for text in ("one", "two")]
    async with LoopbackProvider([], summaries=several) as server:
        assert server.unused() == ["summary 0: 'one' (waits for 'SUM')", "summary 1: 'two' (waits for 'SUM')"]
        assert [reply_of("anthropic", await ask(server, said="SUM"))[0] for _ in range(3)] == [
            "one",
            "two",
            "two",
        ]
        assert server.unused() == []


async def test_a_function_may_answer_one_request_or_all() -> None:
    async def slow(request: Received) -> Turn:
        await asyncio.sleep(0)
        return Turn(text=f"You said {request.said!r}.")

    async with LoopbackProvider([slow, lambda request: Turn(text=request.model)]) as server:
        assert reply_of("anthropic", await ask(server))[0] == "You said 'fix it'."
        assert reply_of("gemini", await ask(server, "gemini"))[0] == "gemini-2.5-pro"
    async with LoopbackProvider(lambda request: Turn(text=str(request.number))) as server:
        assert [reply_of("openai-chat", await ask(server, "openai-chat"))[0] for _ in range(3)] == [
            "1",
            "2",
            "3",
        ]


async def test_by_position_the_same_request_gets_the_same_turn() -> None:
    """For a session that is killed: what it asks again is answered again."""
    play = Play(turns=(Turn(text="First."), Turn(text="Second.")), order="position")
    talk = [user(text("a")), assistant(text("First.")), user(text("b"))]
    async with LoopbackProvider(play) as server:
        for _ in range(2):
            assert reply_of("anthropic", await ask(server))[0] == "First."
            body = {"model": "m", "max_tokens": 9, "messages": talk}
            assert reply_of("anthropic", await post(server, PATHS["anthropic"], body))[0] == "Second."
        assert server.unused() == []


async def test_what_is_left_over_and_what_goes_beyond_is_said() -> None:
    script = [Turn(text="First."), Turn(match="never said", text="Second.", calls=(Call("Read"),))]
    async with LoopbackProvider(script, summaries=[Turn(match="SUM", text="Sum.")]) as server:
        await ask(server)
        answer = await ask(server, said="what now?")
        assert answer.status == 500
        assert answer.said == "the loopback script has no turn for request 2; said since the last reply: 'what now?'"
        assert server.unused() == ["turn 1: 'Second.' (waits for 'never said')", "summary 0: 'Sum.' (waits for 'SUM')"]
        assert server.refused == ["request 2: 500 beyond the script"]


async def test_what_was_said_is_without_the_system_text() -> None:
    talk = [{"role": "system", "content": "Be good."}, {"role": "user", "content": "hi"}]
    async with LoopbackProvider([Turn(match="good", text="no"), Turn(text="yes")]) as server:
        answer = await post(server, PATHS["openai-chat"], {"model": "m", "messages": talk})
        assert reply_of("openai-chat", answer)[0] == "yes"
        assert (server.requests[0].said, server.requests[0].opening) == ("hi", "hi")


async def test_each_request_is_kept_byte_for_byte(tmp_path: Path) -> None:
    body = b'{ "model":"m","max_tokens" : 9, "messages":[{"role":"user","content":"h\\u00e9 \xe4\xbd\xa0"}]}'
    async with LoopbackProvider(lambda _: Turn(text="ok"), folder=tmp_path, keep=2) as server:
        await post(server, "/v1/messages", body, {"x-api-key": "k-1"})
        first = server.requests[0]
        assert (first.body, first.path, first.wire, first.status) == (body, "/v1/messages", "anthropic", 200)
        assert first.headers["x-api-key"] == "k-1"
        assert first.json["messages"][0]["content"] == "hé 你"
        assert (first.said, first.opening, first.size_bytes) == ("hé 你", "hé 你", len(body))
        for _ in range(2):
            await ask(server)
        assert [len(request.body) > 0 for request in server.requests] == [False, True, True]
    assert (tmp_path / "0001-anthropic.json").read_bytes() == body
    assert "x-api-key: k-1" in (tmp_path / "0001-anthropic.head").read_text()


async def test_a_test_can_wait_for_a_request_and_for_its_answer() -> None:
    async with LoopbackProvider([Turn(text="slow", fault=Fault(kind="stall", at=10))]) as server:
        parsed = asyncio.create_task(ask(server, patience_s=5))
        request = await server.wait_requests(1)
        assert request.done is not None
        assert not request.done.is_set()
        parsed.cancel()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ('{"turns": [{"txt": "x"}]}', "Object contains unknown field `txt` - at `$.turns[0]`"),
        ('{"turns": [', "Input data was truncated"),
    ],
)
async def test_a_script_that_is_none_says_where(script: str, said: str) -> None:
    with pytest.raises(ValueError, match="this is no script for the loopback provider: ") as caught:
        read_play(script.encode())
    assert str(caught.value).endswith(said)


async def test_words_that_are_none_of_the_scripts_are_named() -> None:
    with pytest.raises(ValueError, match="unknown kind 'explode'; kinds are status, cut, "):
        read_play(b'{"turns": [{"fault": {"kind": "explode"}}]}')
    with pytest.raises(ValueError, match="stops with 'done'; words are end, calls, length, refusal"):
        LoopbackProvider([Turn(stop="done")])


async def test_an_answer_may_be_late_and_slow() -> None:
    turn = Turn(text="Hi.", delay_s=0.02, pace_s=0.002)
    async with LoopbackProvider([turn], now_s=asyncio.get_running_loop().time) as server:
        await ask(server)
        request = server.requests[0]
        assert request.done is not None
        await request.done.wait()
        assert request.finished_s - request.at_s >= 0.02 + 6 * 0.002


async def test_who_hangs_up_while_the_answer_is_late_is_noticed() -> None:
    async with LoopbackProvider([Turn(text="Hi.", delay_s=60)]) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        request = await server.wait_requests(1)
        assert request.body == body
        writer.close()
        assert request.done is not None
        await request.done.wait()
        assert request.gone


async def test_several_requests_go_over_one_connection() -> None:
    async with LoopbackProvider(lambda r: Turn(text=str(r.number))) as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
        for number in (1, 2, 3):
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
            answer = await reader.readuntil(b"\r\n0\r\n\r\n")
            assert b'"content":"%d"' % number in answer
        writer.write(b"GET /v1/models HTTP/1.1\r\n\r\n")
        assert b'{"id":"loopback","object":"model","owned_by":"loopback"}' in await reader.readuntil(b"]}")
        writer.write(b"GET /_loopback/report HTTP/1.1\r\nconnection: close\r\n\r\n")
        assert b'{"requests":3,"unused":[],"refused":[],' in await reader.read()


# --- its own process ---------------------------------------------------------------------------------------------


async def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"turns": [{"text": "Hello."}, {"text": "Left over."}], "note": "two turns"}')
    arguments = ["-m", "longrein.testing.loopback", "--script", str(script), "--until-eof", "--check"]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    server = LoopbackProvider([])
    server.port = json.loads(await process.stdout.readline())["port"]
    assert reply_of("gemini", await ask(server, "gemini"))[0] == "Hello."
    out, _ = await process.communicate(b"")
    report = json.loads(out)
    assert (report["requests"], report["unused"], process.returncode) == (1, ["turn 1: 'Left over.'"], 1)


def test_it_needs_nothing_but_the_standard_library_and_msgspec() -> None:
    """A bench's provider must not share the cost of what it measures; importing the room imports nothing."""
    code = "import sys, longrein.testing; print(*sys.modules); import longrein.testing.loopback; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    light, full = (line.split() for line in out.splitlines())
    assert not {"asyncio", "msgspec", "longrein.events"} & set(light)
    assert [n for n in full if n.startswith("longrein") and not n.startswith("longrein.testing")] == ["longrein"]
    assert "httpx2" not in full


async def test_a_script_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "longrein.testing.loopback", "--script", str(tmp_path / "none.json")),
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert err.decode().count("\n") == 1


def test_nobody_left_to_read_the_report_is_no_error(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('{"turns": []}')
    command = [sys.executable, "-m", "longrein.testing.loopback", "--script", str(script), "--until-eof"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        process.stdin.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)

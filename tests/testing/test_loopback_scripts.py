"""Scripts of the loopback provider, as longrein's own models see them."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from longrein.models import Failure, Reply, TextDelta
from longrein.testing.loopback import Call, Fault, LoopbackProvider, Play, Received, Turn, read_play
from longrein_context import Item
from longrein_context.events import Text
from tests.models.http_server import answer_of, item, open_wire_model, request
from tests.tables import cases, row, split_words
from tests.testing.http_client import PATHS, post

pytestmark = pytest.mark.anyio
COMMAND = [sys.executable, "-m", "longrein.testing.loopback", "--script"]


def talk(*said: str) -> list[Item]:
    """Text of the user and of the assistant in turn."""
    return [item(n, Text(text), "text" if n % 2 else "user") for n, text in enumerate(said)]


async def ask(server: LoopbackProvider, *said: str, wire: str = "anthropic") -> str:
    """Send a conversation, and return the text of the answer or of the failure."""
    model = open_wire_model(wire, server.url)
    end = (await answer_of(model, request(*talk(*(said or ("fix it",))), wire=wire)))[-1]
    await model.aclose()
    assert isinstance(end, Reply | Failure)
    return (
        end.message
        if isinstance(end, Failure)
        else "".join(p.text for p in end.parts if isinstance(p, Text))
    )


async def test_the_pieces_of_a_text_can_be_chosen() -> None:
    turns = [
        Turn(text="abcdef", deltas=3),
        Turn(deltas=("a", "bcd", "你")),
        Turn(text="xy", repeat=500, deltas=1_000),
    ]
    async with LoopbackProvider(turns) as server:
        model = open_wire_model("anthropic", server.url)
        answers = [await answer_of(model, request(*talk("go"))) for _ in turns]
        await model.aclose()
    found = [[delta.text for delta in deltas if isinstance(delta, TextDelta)] for deltas in answers]
    assert found[:2] == [["ab", "cd", "ef"], ["a", "bcd", "你"]]
    assert len(found[2]) == 1_000


async def test_turns_are_played_once_each_to_whom_they_fit() -> None:
    """The text since the last reply decides; a later turn overtakes one that waits for its text."""
    script = [
        Turn(match="a result", text="A result."),
        Turn(when="count", text="Of the other conversation."),
        Turn(text="First."),
        Turn(match=lambda request: request.parsed.replies == 2, text="By a function."),
    ]
    begun = ("fix it", "I look.", "a result")
    async with LoopbackProvider(script) as server:
        said = [
            await ask(server, *one)
            for one in (("fix it",), ("count them",), begun, (*begun, "x", "y"))
        ]
        assert said == ["First.", "Of the other conversation.", "A result.", "By a function."]
        assert [received.turn for received in server.requests] == [2, 1, 0, 3]
        assert server.unused() == []


async def test_a_turn_with_a_fault_comes_again_until_a_request_holds_its_reply() -> None:
    script = [
        Turn(text="First.", fault=Fault(kind="garbage", body=": hm\n\n", times=9)),
        Turn(text="Second."),
    ]
    async with LoopbackProvider(script) as server:
        assert server.unused() == ["turn 0: 'First.'", "turn 1: 'Second.'"]
        said = [await ask(server, *one) for one in (("a",), ("a",), ("a", "First.", "b"))]
        assert (said, server.unused()) == (["First.", "First.", "Second."], [])
    async with LoopbackProvider(script[:1]) as server:
        await ask(server)
        assert server.unused() == [], "it was written whole, and no request followed"
    async with LoopbackProvider([Turn(fault=Fault(status=500)), Turn(text="ok")]) as server:
        await ask(server)
        assert await ask(server) == "ok", "a turn that is nothing but its fault is used up by it"


async def test_summaries_are_matched_first_and_the_last_one_repeats() -> None:
    several = [Turn(match="SUM", text=text) for text in ("one", "two")]
    async with LoopbackProvider([Turn(text="Turn.")], summaries=several) as server:
        assert [await ask(server, said) for said in ("SUM", "go", "SUM", "SUM")] == split_words(
            "one Turn. two two"
        )
        assert server.unused() == []


async def test_a_function_may_answer_one_request_or_all() -> None:
    async def slow(received: Received) -> Turn:
        await asyncio.sleep(0)
        return Turn(text=f"You said {received.said!r}.")

    async with LoopbackProvider([slow, lambda received: Turn(text=received.model)]) as server:
        assert [await ask(server, wire="openai-chat"), await ask(server)] == [
            "You said 'fix it'.",
            "test-model",
        ]
    async with LoopbackProvider(lambda received: Turn(text=str(received.number))) as server:
        assert [await ask(server) for _ in range(3)] == ["1", "2", "3"]


async def test_by_position_the_same_request_gets_the_same_turn() -> None:
    """For a session that is killed: what it asks again is answered again."""
    play = Play(turns=(Turn(text="First."), Turn(text="Second.")), order="position")
    async with LoopbackProvider(play) as server:
        for _ in range(2):
            assert [await ask(server, "a"), await ask(server, "a", "First.", "b")] == [
                "First.",
                "Second.",
            ]
        assert server.unused() == []


async def test_what_is_left_over_and_what_goes_beyond_is_said() -> None:
    script = [Turn(text="First."), Turn(match="never said", text="Second.", calls=(Call("Read"),))]
    async with LoopbackProvider(script, summaries=[Turn(match="SUM", text="Sum.")]) as server:
        await ask(server)
        told = (
            "the loopback script has no turn for request 2; said since the last reply: 'what now?'"
        )
        assert told in await ask(server, "what now?")
        assert server.unused() == [
            "turn 1: 'Second.' (waits for 'never said')",
            "summary 0: 'Sum.' (waits for 'SUM')",
        ]
        assert server.refused == ["request 2: 500 beyond the script"]


async def test_each_request_is_kept_byte_for_byte(tmp_path: Path) -> None:
    body = (
        b'{ "model":"m","max_tokens" : 9, "messages":[{"role":"user","content":"h\\u00e9 '
        b'\xe4\xbd\xa0"}]}'
    )
    async with LoopbackProvider(lambda _: Turn(text="ok"), folder=tmp_path, keep=2) as server:
        await post(server, PATHS["anthropic"], body, {"x-api-key": "k-1"})
        first = server.requests[0]
        assert (first.body, first.path, first.wire, first.status) == row(
            body, "/v1/messages", "anthropic", 200
        )
        assert first.headers["x-api-key"] == "k-1"
        assert (first.said, first.opening, first.size_bytes) == ("hé 你", "hé 你", len(body))
        for _ in range(2):
            await ask(server)
        assert [len(received.body) > 0 for received in server.requests] == [False, True, True]
    assert (tmp_path / "0001-anthropic.json").read_bytes() == body
    assert "x-api-key: k-1" in (tmp_path / "0001-anthropic.head").read_text()


async def test_who_hangs_up_while_the_answer_is_late_is_noticed() -> None:
    async with LoopbackProvider([Turn(text="Hi.", delay_s=60)]) as server:
        asking = asyncio.create_task(ask(server))
        received = await server.wait_requests(1)
        assert not received.done.is_set()
        asking.cancel()
        await received.done.wait()
        assert received.gone


@cases(
    "script said",
    (
        '{"turns": [{"txt": "x"}]}',
        r"this is no script .*: Object contains unknown field `txt` - at `\$.turns\[0\]`",
    ),
    ('{"turns": [', "this is no script for the loopback provider: Input data was truncated"),
    (
        '{"turns": [{"fault": {"kind": "explode"}}]}',
        "unknown kind 'explode'; kinds are status, cut, ",
    ),
    ('{"turns": [{"stop": "done"}]}', "stops with 'done'; words are end, calls, length, refusal"),
)
async def test_a_script_that_is_none_says_where(script: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        read_play(script.encode())


async def test_it_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text(
        '{"turns": [{"text": "Hello."}, {"text": "Left over."}], "note": "two turns"}'
    )
    pipe = asyncio.subprocess.PIPE
    command = [*COMMAND, str(script), "--until-eof", "--check"]
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdout is not None
    server = LoopbackProvider([])
    server.url = json.loads(await process.stdout.readline())["url"]
    assert await ask(server, wire="gemini") == "Hello."
    report = json.loads((await process.communicate(b""))[0])
    assert (report["requests"], report["unused"], process.returncode) == row(
        1, ["turn 1: 'Left over.'"], 1
    )


def test_a_script_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    process = subprocess.run(
        [*COMMAND, str(tmp_path / "none.json")], capture_output=True, text=True, check=False
    )
    assert (process.returncode, process.stderr.count("\n")) == (2, 1)

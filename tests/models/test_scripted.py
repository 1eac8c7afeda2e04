"""Scripted model: plays by the request alone, so it survives kill, resume, rewind and
compaction.
"""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from longrein.models import (
    CallDelta,
    Failure,
    Model,
    ModelOptions,
    Reply,
    TextDelta,
    ThinkingDelta,
    open_model,
)
from longrein_context import Item, Price, Request
from longrein_context.events import ProviderBlock, SettingsError, Text, Thinking, ToolCall, Usage
from tests.models.http_server import BLOBS, FixedClock, answer_of, item, request, result

SCRIPT = {
    "price": {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75},
    "turns": [
        {
            "expect": "fix",
            "thinking": "hm",
            "text": "I look.",
            "calls": [{"name": "Read", "arguments": {"path": "a"}}],
        },
        {
            "find": {"h": r"Recall\((r\d+)\)"},
            "calls": [{"name": "Recall", "arguments": {"handle": "{{h}}"}}],
        },
        {"text": "Done."},
    ],
    "summaries": [{"text": "first summary"}, {"text": "later summary"}],
    "branches": [{"when": "count the files", "turns": [{"text": "42"}]}],
}


def scripted(tmp_path: Path, script: Any = SCRIPT, clock: FixedClock | None = None) -> Model:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(script), encoding="utf-8")
    options = ModelOptions("demo", "script", "scripted", str(path))
    return open_model(options, BLOBS.__getitem__, clock or FixedClock())


async def end(model: Model, asked: Request) -> Reply | Failure:
    final = (await answer_of(model, asked))[-1]
    assert isinstance(final, Reply | Failure)
    return final


def replied(seq: int, reply: Reply) -> list[Item]:
    """Return the items of a reply in the view."""
    blocks = {block.part: block.raw for block in reply.blocks}
    return [
        item(seq, msgspec.structs.replace(part, id=f"c{seq}.0") if isinstance(part,
        ToolCall) else part,
             "text" if isinstance(part, Text) else "", n, blocks[n], "scripted")
        for n, part in enumerate(reply.parts)
    ]  # fmt: skip


@pytest.mark.anyio
async def test_a_whole_script_from_any_process(tmp_path: Path) -> None:
    items = [item(1, Text("please fix it"), "user")]
    first = await end(scripted(tmp_path), request(*items))
    assert first.parts == (Thinking("hm"), Text("I look."), ToolCall("", "Read", {"path": "a"}))
    assert first.stop == "calls"
    assert first.blocks[0] == ProviderBlock(0, "scripted", "script", "0")
    items += [
        *replied(2, first),
        item(3, result("c2.0", Text("[cleared: Recall(r9) brings it back]"))),
    ]
    second = await end(
        scripted(tmp_path), request(*items)
    )  # another process: nothing but the request tells where we are
    assert second.parts == (ToolCall("", "Recall", {"handle": "r9"}),)
    items += [*replied(4, second), item(5, result("c4.0", Text("A")))]
    assert (await end(scripted(tmp_path), request(*items))).parts == (Text("Done."),)  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_the_place_is_kept_when_early_replies_were_summarised_away(tmp_path: Path) -> None:
    reply = Reply(
        (Text("I look."),), "end", Usage(), (ProviderBlock(0, "scripted", "script", "1"),)
    )
    summary = item(9, Text("summary of all that"), "summary")
    asked = request(summary, *replied(10, reply), item(11, Text("go on"), "user"))
    assert (await end(scripted(tmp_path), asked)).parts == (Text("Done."),)  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_a_reply_that_was_cut_counts_as_one(tmp_path: Path) -> None:
    cut = item(2, Text("I lo"), "text")
    asked = request(item(1, Text("fix"), "user"), cut, item(3, Text("no: Recall(r1)"), "user"))
    assert (await end(scripted(tmp_path), asked)).parts == (
        ToolCall("", "Recall", {"handle": "r1"}),
    )  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_summaries_and_other_conversations_have_turns_of_their_own(tmp_path: Path) -> None:
    model = scripted(tmp_path)
    asked = msgspec.structs.replace(request(item(1, Text("fix"), "user")), purpose="summary")
    assert (await end(model, asked)).parts == (Text("first summary"),)  # type: ignore[union-attr]
    asked = msgspec.structs.replace(
        asked, items=(item(4, Text("s"), "summary"), item(5, Text("s"), "summary"))
    )
    assert (await end(model, asked)).parts == (Text("later summary"),)  # type: ignore[union-attr]
    child = request(item(1, Text("count the files here"), "user"))
    assert (await end(model, child)).parts == (Text("42"),)  # type: ignore[union-attr]


@pytest.mark.anyio
async def test_it_complains_of_what_it_does_not_expect_and_of_a_script_that_is_over(
    tmp_path: Path,
) -> None:
    model = scripted(tmp_path)
    wrong = await end(model, request(item(1, Text("sing"), "user")))
    found = Failure("invalid", "turn 1 of the script expects 'fix', but what was said is 'sing'")
    assert wrong == found
    reply = Reply((Text("Done."),), "end", Usage(), (ProviderBlock(0, "scripted", "script", "2"),))
    over = await end(
        model,
        request(item(1, Text("fix"), "user"), *replied(2, reply), item(3, Text("more"), "user")),
    )
    found = Failure("invalid", "the script has no turn 4: it has ended and the session goes on")
    assert over == found


@pytest.mark.anyio
async def test_faults_come_as_often_as_told_and_then_the_turn(tmp_path: Path) -> None:
    script = {
        "turns": [
            {
                "text": "at last",
                "fault": {"status": 529, "message": "Overloaded", "times": 2, "retry_after_s": 1},
            },
            {
                "text": "a long text in pieces",
                "piece_chars": 5,
                "fault": {"kind": "truncated", "after": 2},
            },
        ]
    }
    model = scripted(tmp_path, script)
    asked = request(item(1, Text("q"), "user"))
    ends = [await end(model, asked) for _ in range(3)]
    assert ends[:2] == [Failure("overload", "Overloaded (HTTP 529)", 529, 1.0)] * 2
    assert isinstance(ends[2], Reply)
    deltas = await answer_of(
        model, request(*asked.items, *replied(2, ends[2]), item(3, Text("go"), "user"))
    )
    found = [TextDelta("a lon"), TextDelta("g tex"), Failure("truncated", "scripted fault")]
    assert deltas == found


@pytest.mark.anyio
async def test_pace_raw_arguments_and_the_order_of_deltas(tmp_path: Path) -> None:
    turn = {
        "thinking": "t",
        "text": "abcdef",
        "piece_chars": 3,
        "calls": [{"name": "Read", "raw": '{"path": '}],
        "delay_s": 1.5,
        "pace_s": 0.5,
        "stop": "length",
    }
    clock = FixedClock()
    *deltas, reply = await answer_of(
        scripted(tmp_path, {"turns": [turn]}, clock), request(item(1, Text("q"), "user"))
    )
    assert deltas == [
        ThinkingDelta("t"),
        TextDelta("abc"),
        TextDelta("def"),
        CallDelta(0, "Read"),
        CallDelta(0, json='{"path": '),
    ]
    assert (reply.parts[-1], reply.stop) == (ToolCall("", "Read", None, '{"path": '), "length")
    assert clock.slept == [1.5, 0.5, 0.5, 0.5, 0.5, 0.5]


@pytest.mark.anyio
async def test_usage_counts_like_a_provider_with_a_prompt_cache(tmp_path: Path) -> None:
    model = scripted(tmp_path)
    assert model.budget.price == Price(3, 15, 0.3, 3.75)
    sized = [
        msgspec.structs.replace(item(1, Text("instructions"), "context"), tokens=2000),
        msgspec.structs.replace(item(2, Text("fix"), "user"), tokens=100),
    ]
    first = (await end(model, request(*sized, marks=(0, 1)))).usage
    assert (first.cache_read_tokens, first.input_tokens) == (0, 0)
    assert first.cache_write_tokens > 2100
    reply = Reply((Text("x"),), "end", Usage(), (ProviderBlock(0, "scripted", "script", "0"),))
    more = [
        *replied(3, reply),
        msgspec.structs.replace(item(4, Text("Recall(r1)"), "user"), tokens=50),
    ]
    second = (await end(model, request(*sized, *more, marks=(0, 1, 3)))).usage
    assert second.cache_read_tokens == first.cache_write_tokens, "what was written is read"
    assert 50 <= second.cache_write_tokens < 60


@pytest.mark.parametrize(("text", "said"), [
    ("[1]", "is no script for a scripted model: Expected `object`, got `array`"),
    ('{"turns": [{"txt": "x"}]}', "Object contains unknown field `txt` - at `$.turns[0]`"),
    ("{", "Input data was truncated"),
])  # fmt: skip
def test_a_script_that_is_wrong_is_an_error_of_the_settings(
    tmp_path: Path, text: str, said: str
) -> None:
    path = tmp_path / "wrong.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"wrong\.json") as raised:
        open_model(
            ModelOptions("demo", "s", "scripted", str(path)), BLOBS.__getitem__, FixedClock()
        )
    assert said in str(raised.value)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    options = ModelOptions("demo", "s", "scripted", str(tmp_path / "none.json"))
    with pytest.raises(SettingsError, match="cannot be read: No such file or directory"):
        open_model(options, BLOBS.__getitem__, FixedClock())

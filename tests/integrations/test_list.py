"""C1, C2, C4, C5: the engine under a plain list of messages."""

import asyncio
import json
from typing import Any

import pytest

from longrein.integrations import did_not_fit
from longrein_context import Engine
from longrein_context.events import ToolEnded, ToolError, UsageError
from tests.integrations.message_lists import WIRES, Chat, Wire, big, check_paired, tokens
from tests.tables import cases, record, row

WINDOW, OUTPUT = 12_000, 1_000
USABLE = WINDOW - OUTPUT


GREETING: Chat = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello."}]


def name_of(wire: object) -> str:
    return type(wire).__name__


def opening(wire: Wire) -> Chat:
    return [{"role": "system", "content": "You are terse."}, *wire.user("Read all the files.")]


def grow(wire: Wire, chat: Chat, number: int, *, text: str = "") -> None:
    """One more call with its result, under an id that an earlier call had too, as small
    providers deal them.
    """
    id_ = f"call_{number % 3}"
    chat += wire.calls((id_, f"src/f{number}.py"))
    chat += wire.results((id_, text or big(f"file{number}")))


@pytest.mark.parametrize("wire", WIRES, ids=name_of)
def test_C1_one_turn_of_forty_calls_never_overflows(wire: Wire) -> None:
    engine, chat, before = Engine(WINDOW, OUTPUT), opening(wire), []
    for number in range(40):
        breaks = engine.state.breaks
        view = engine.prepare(chat)
        check_paired(wire, view)
        assert tokens(view) <= USABLE
        assert view[0] == chat[0], "the system text stands"
        if engine.state.breaks == breaks:
            assert view[: len(before)] == before, (
                "between two breaks a request begins with the one before (law 2)"
            )
        before = view
        grow(wire, chat, number)
    assert tokens(chat) > 2 * WINDOW
    assert 1 <= engine.state.breaks <= 8


@pytest.mark.parametrize("wire", WIRES, ids=name_of)
def test_C2_every_original_comes_back_byte_for_byte(wire: Wire) -> None:
    engine, chat = Engine(WINDOW, OUTPUT), opening(wire)
    for number in range(40):
        engine.prepare(chat)
        grow(wire, chat, number)
    engine.prepare(chat)
    results = [f"r{e.seq}" for e in engine.entries if isinstance(e.event, ToolEnded)]
    assert [engine.original(h) for h in results] == [big(f"file{n}") for n in range(40)]


def test_C1_at_message_boundaries_only() -> None:
    """Degraded mode: nothing can be done inside the turn, so it must fit; the next boundary
    makes room for the next.
    """
    wire, engine = WIRES[0], Engine(WINDOW, OUTPUT)
    chat = opening(wire)
    for turn in range(6):
        view = engine.prepare(chat)  # before each message of the user, never inside the turn
        assert tokens(view) <= USABLE
        assert engine.room > 0.05 * USABLE, "what the turn may grow by before it overflows"
        for number in range(6):
            grow(wire, chat, 6 * turn + number)
        chat += [{"role": "assistant", "content": f"Turn {turn} is done."}, *wire.user("Go on.")]
    assert tokens(chat) > 2 * WINDOW


def test_C1_a_turn_too_long_for_degraded_mode_is_brought_back_at_the_next_boundary() -> None:
    wire, engine = WIRES[0], Engine(WINDOW, OUTPUT)
    chat = opening(wire)
    engine.prepare(chat)
    for number in range(40):
        grow(wire, chat, number)
    assert tokens(chat) > WINDOW, "inside the turn the provider would have refused this"
    chat += [{"role": "assistant", "content": "Done."}, *wire.user("And now?")]
    assert tokens(engine.prepare(chat)) <= USABLE


@pytest.mark.parametrize("wire", WIRES, ids=name_of)
def test_one_giant_result_is_born_with_its_two_ends_and_a_handle(wire: Wire) -> None:
    engine, chat = Engine(WINDOW, OUTPUT), opening(wire)
    engine.prepare(chat)
    grow(wire, chat, 1, text=big("giant", 20_000))
    view = engine.prepare(chat)
    assert tokens(view) <= USABLE
    assert "giant_0(" in str(view)
    assert "giant_19999(" in str(view)
    assert engine.prepare(chat) == view, "asking again changes nothing"


# --- the list changes behind the engine's back ----------------------------------------------------


def long_list(engine: Engine, wire: Wire, calls: int) -> Chat:
    chat = opening(wire)
    for number in range(calls):
        engine.prepare(chat)
        grow(wire, chat, number)
    engine.prepare(chat)
    return chat


CHANGES: dict[str, tuple[Any, str]] = {
    "cut at the end": (lambda chat: chat[:-4], "message 47 of the list is not the one seen before"),
    "the first words edited": (
        lambda chat: [chat[0], {"role": "user", "content": "Read only one."}, *chat[2:]],
        "is not the one seen before (edited, cut or reordered); the engine went back to message 1",
    ),
    "another list": (
        lambda chat: [{"role": "user", "content": "Hello."}],
        "began anew with the whole list",
    ),
    "cut at the front": (lambda chat: chat[20:], "began anew with the whole list"),
    "a result edited in place": (
        lambda chat: edited(chat, 7),
        "message 8 of the list is not the one seen before",
    ),
    "empty": (lambda chat: [], "began anew"),
}


def edited(chat: Chat, at: int) -> Chat:
    chat[at]["content"] = "edited"
    return chat


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_a_list_that_was_changed_is_noticed_and_the_engine_goes_on(change: tuple[Any, str]) -> None:
    wire, engine = WIRES[0], Engine(WINDOW, OUTPUT)
    chat = change[0](long_list(engine, wire, 24))
    view = engine.prepare(chat)
    assert change[1] in engine.notes[0]
    assert tokens(view) <= USABLE
    if chat:
        grow(wire, chat, 99)
        assert len(engine.prepare(chat)) == len(view) + 2


def test_an_answer_that_is_asked_for_again_keeps_the_cache() -> None:
    wire, engine = WIRES[0], Engine(WINDOW, OUTPUT)
    chat = [*opening(wire), {"role": "assistant", "content": "No."}, *wire.user("Why?")]
    before = engine.prepare(chat)
    chat.append({"role": "assistant", "content": "Because."})
    engine.prepare(chat)
    del chat[-1]
    assert engine.prepare(chat) == before


# --- what is odd in a list ------------------------------------------------------------------------


def test_what_only_the_caller_knows_of_a_message_is_handed_through() -> None:
    one = {"role": "user", "content": "Hi.", "name": "ann", "cache_control": {"type": "ephemeral"}}
    assert Engine(WINDOW, OUTPUT).prepare([one])[0] is one


def test_objects_of_vendors_are_read_as_what_they_dump_to() -> None:
    class Message:
        def model_dump(self, exclude_none: bool) -> dict[str, Any]:
            return {"role": "assistant", "content": "Hello."}

    one, engine = Message(), Engine(WINDOW, OUTPUT)
    assert engine.prepare([{"role": "user", "content": "Hi."}, one])[1] is one
    assert engine.original("r6.1") == "Hello." or "Hello." in str(engine.entries)


def test_pictures_are_counted_and_stay_in_the_list() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 500_000}}
    engine = Engine(200_000, OUTPUT)
    chat = [{"role": "user", "content": [{"type": "text", "text": "Look."}, picture]}]
    assert engine.prepare(chat)[0] is chat[0]
    assert 1_000 < engine.tokens < 3_000
    assert "AAAA" * 100 not in str(engine.entries)


def test_a_shortened_result_keeps_its_picture() -> None:
    picture = {
        "type": "image",
        "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"},
    }
    result = [{"type": "text", "text": big("shot", 5_000)}, picture]
    block = {"type": "tool_result", "tool_use_id": "t1", "content": result}
    chat = [
        *WIRES[1].user("Look."),
        *WIRES[1].calls(("t1", "a.png")),
        {"role": "user", "content": [block]},
    ]
    shown = Engine(WINDOW, OUTPUT).prepare(chat)[-1]["content"][0]["content"]
    assert shown[1] is picture
    assert "shot_0(" in shown[0]["text"]
    assert len(shown[0]["text"]) < 20_000


def test_a_result_without_a_call_is_left_and_said() -> None:
    engine = Engine(WINDOW, OUTPUT)
    chat = [
        {"role": "user", "content": "Hi."},
        {"role": "tool", "tool_call_id": "x", "content": "lost"},
    ]
    assert engine.prepare(chat) == chat
    assert engine.notes == [
        "the result of call 'x' answers no waiting call of the list; it is left as it is"
    ]


@cases(
    "one line",
    ("hello", "a message of the list is a str; give dicts, or the shape that reads them"),
    (
        {"role": "robot"},
        "a message of the list has the role 'robot'; roles are system, user, assistant, tool",
    ),
)
def test_what_is_no_message_is_refused_in_one_line(one: Any, line: str) -> None:
    with pytest.raises(UsageError) as caught:
        Engine(WINDOW, OUTPUT).prepare([one])
    assert str(caught.value) == line


# --- summaries ------------------------------------------------------------------------------------


def talk(engine: Engine, turns: int = 60) -> tuple[Chat, Chat]:
    """A conversation of words alone: nothing can be cleared, only summed up."""
    chat: Chat = []
    view: Chat = []
    for n in range(turns):
        chat.append({"role": "user", "content": f"Question {n}? " + "word " * 150})
        view = engine.prepare(chat)
        assert tokens(view) <= USABLE
        engine.observe({"prompt_tokens": tokens(view)})
        chat.append({"role": "assistant", "content": f"Answer {n}. " + "thing " * 150})
    return chat, view


def fails(_: Chat) -> str:
    raise TimeoutError("no answer in 60 s")


SUMMARISERS: dict[str, tuple[Any, str, str]] = {
    "a good one": (lambda chat: "## 1. Request and intent\nWe talked.", "We talked.", ""),
    "one that fails": (fails, "", "no summary: TimeoutError: no answer in 60 s"),
    "one that says nothing": (lambda chat: "  ", "", ""),
    "one that says too much": (lambda chat: "blah " * 40_000, "", ""),
    "none": (None, "", ""),
}


@pytest.mark.parametrize("case", SUMMARISERS.values(), ids=SUMMARISERS.keys())
def test_C4_long_talk_is_summed_up_whatever_the_summariser_does(case: tuple[Any, str, str]) -> None:
    summarise, prose, note = case
    engine = Engine(WINDOW, OUTPUT, summarise=summarise)
    _, view = talk(engine)
    assert "summary: entries" in view[0]["content"]
    assert prose in view[0]["content"]
    assert (note in engine.notes) is bool(note)


def test_C5_the_focus_reaches_the_summariser_behind_the_live_list() -> None:
    heard: list[Chat] = []
    engine = Engine(WINDOW, OUTPUT, summarise=lambda chat: heard.append(chat) or "Short.")
    chat = list(GREETING)
    before = engine.prepare(chat)
    engine.compact("the greeting")
    chat += [{"role": "user", "content": "Go on."}]
    view = engine.prepare(chat)
    assert heard[0][: len(before)] == before
    assert "the greeting" in heard[0][-1]["content"]
    assert "Short." in view[0]["content"]
    assert view[-1] == chat[-1]


@pytest.mark.anyio
async def test_a_summariser_may_be_awaited() -> None:
    async def summarise(chat: Chat) -> str:
        return "Awaited."

    engine = Engine(WINDOW, OUTPUT, summarise=summarise)
    chat = list(GREETING)
    await engine.aprepare(chat)
    engine.compact()
    assert "Awaited." in (await engine.aprepare(chat))[0]["content"]


@pytest.mark.anyio
async def test_a_summary_that_is_cancelled_is_a_failed_attempt_and_the_engine_goes_on() -> None:
    begun = asyncio.Event()

    async def summarise(chat: Chat) -> str:
        if begun.is_set():
            raise RuntimeError("no second summary")
        begun.set()
        await asyncio.Event().wait()
        return ""

    engine = Engine(WINDOW, OUTPUT, summarise=summarise)
    chat = list(GREETING)
    await engine.aprepare(chat)
    engine.compact()
    work = asyncio.ensure_future(engine.aprepare(chat))
    await begun.wait()
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert engine.state.summarising is None
    assert "summary: entries" in (await engine.aprepare(chat))[0]["content"]


def test_an_awaitable_needs_the_async_call() -> None:
    engine = Engine(
        WINDOW, OUTPUT, summarise=lambda chat: asyncio.Future(loop=asyncio.new_event_loop())
    )
    chat = list(GREETING)
    engine.prepare(chat)
    engine.compact()
    with pytest.raises(UsageError, match=r"call `await engine.aprepare\(\.\.\.\)`"):
        engine.prepare(chat)


# --- the provider speaks back ---------------------------------------------------------------------


def test_a_list_that_the_provider_refuses_is_shorter_the_next_time() -> None:
    wire, engine = WIRES[0], Engine(200_000, 8_000)
    chat = long_list(engine, wire, 24)
    before = engine.prepare(chat)
    assert before == chat
    engine.refused("maximum context length is 8000 tokens", window=8_000)
    view = engine.prepare(chat)
    assert tokens(view) <= 7_000
    assert engine.budget.window_tokens == 200_000, (
        "what was learned is in the log, not in the options"
    )


class StatusError(Exception):
    def __init__(self, status_code: int, text: str) -> None:
        super().__init__(text)
        self.status_code = status_code


ERRORS = [
    (
        StatusError(
            400, "This model's maximum context length is 8192 tokens. However, you requested 9000"
        ),
        True,
        8_192,
    ),
    (StatusError(413, "Request Entity Too Large"), True, 0),
    (StatusError(429, "rate limit: maximum context length"), False, 0),
    (ValueError("no such model"), False, 0),
    (TimeoutError(), False, 0),
    (ValueError("prompt is too long: 210000 tokens > 200000 maximum"), True, 200_000),
]


@pytest.mark.parametrize(("error", "overflow", "window"), ERRORS)
def test_errors_of_any_library_are_read(error: Exception, overflow: bool, window: int) -> None:
    engine = Engine(300_000, OUTPUT)
    engine.prepare([{"role": "user", "content": "Hi."}])
    assert did_not_fit(engine, error) is overflow
    assert engine.state.window_learned == window


USAGES: dict[str, tuple[Any, tuple[int, int, int, int]]] = {
    "openai chat": (
        {
            "usage": record(
                prompt_tokens=900, completion_tokens=9, prompt_tokens_details={"cached_tokens": 400}
            )
        },
        (500, 400, 0, 9),
    ),
    "openai responses": (
        {
            "usage": record(
                input_tokens=900, output_tokens=9, input_tokens_details={"cached_tokens": 400}
            )
        },
        (500, 400, 0, 9),
    ),
    "anthropic": (
        {
            "usage": {
                "input_tokens": 100,
                "cache_read_input_tokens": 600,
                "cache_creation_input_tokens": 200,
                "output_tokens": 9,
            }
        },
        (100, 600, 200, 9),
    ),
    "langchain": (
        {
            "usage_metadata": {
                "input_tokens": 900,
                "output_tokens": 9,
                "input_token_details": {"cache_read": 400, "cache_creation": 100},
            }
        },
        (400, 400, 100, 9),
    ),
    "usage alone": ({"prompt_tokens": 900, "completion_tokens": 9}, (900, 0, 0, 9)),
}


@pytest.mark.parametrize("case", USAGES.values(), ids=USAGES.keys())
def test_usage_is_understood_in_every_spelling(case: tuple[Any, tuple[int, int, int, int]]) -> None:
    engine, chat = Engine(200_000, OUTPUT), [{"role": "user", "content": "word " * 800}]
    engine.prepare(chat)
    engine.observe(case[0])
    chat.append({"role": "assistant", "content": "Yes."})
    engine.prepare(chat)
    used = engine.state.last_usage
    assert (
        row(used.input_tokens, used.cache_read_tokens, used.cache_write_tokens, used.output_tokens)
        == case[1]
    )
    assert 900 <= engine.tokens < 930


# --- recall ---------------------------------------------------------------------------------------

DO_NOT_GUESS = "take the handle from a marker, do not guess one."
RECALLS = [
    ("r9", "", "[r9: lines 1-60 of 60]\ndef file0_0("),
    ("r9", "10-11", '[r9: lines 10-11 of 60; next: lines="12-"]\ndef file0_9('),
    ('"r9"', "60", '["r9": lines 60-60 of 60]\ndef file0_59('),
    ("r9", "61-", "[bad-range] there are lines 1 to 60; '61-' is none of them."),
    ("r9", "all", '[bad-range] lines must look like "100-200" or "100-", not \'all\'.'),
    ("r4", "", "[r4: lines 1-1 of 1]\nRead all the files."),
    ("r999", "", f"[unknown-handle] There is no entry r999; {DO_NOT_GUESS}"),
    ("r2", "", f"[unknown-handle] r2 holds no text; {DO_NOT_GUESS}"),
    ("the file", "", "[bad-handle] 'the file' is no handle of this conversation; handles look"),
]


@pytest.mark.parametrize(("handle", "lines", "begins"), RECALLS)
def test_recall_gives_pages_and_says_what_it_cannot(handle: str, lines: str, begins: str) -> None:
    engine = Engine(WINDOW, OUTPUT)
    long_list(engine, WIRES[0], 2)
    assert engine.recall(handle, lines).startswith(begins)


LOG = json.dumps({"stdout": "".join(f"line {n} of a log\n" for n in range(1, 2001))})


PAGES = {
    # what is recalled: (window, text, lines, beginning of the page, its longest)
    "16k": (16_000, LOG, "", '[r3: lines 1-238 of 2001; next: lines="239-"]\n{"std', 4_300),
    "200k": (200_000, LOG, "", '[r3: lines 1-894 of 2001; next: lines="895-"]\n', 16_100),
    "a note": (16_000, f"{LOG}\n[exit 1]", "2001-", '[r3: lines 2001-2002 of 2002]\n"}', 100),
    "a range": (16_000, LOG[:100], "2-3", '[r3: lines 2-3 of 6; next: lines="4-"]\nline 2', 100),
    "short": (16_000, LOG[:100], "", '[r3: lines 1-1 of 1]\n{"stdout": "line 1 of a log\\n', 130),
    "source code": (16_000, 'print("\\n\\n")\n' * 9, "2", "[r3: lines 2-2 of 10; next:", 100),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_window_and_one_line_of_json_has_lines(name: str) -> None:
    window, text, lines, begins, chars_max = PAGES[name]
    engine = Engine(window, window // 8)
    engine.prepare([{"role": "user", "content": text}])
    page = engine.recall("r3", lines)
    assert page.startswith(begins)
    assert len(page) <= chars_max


def test_an_original_that_is_none_is_an_error_for_code() -> None:
    with pytest.raises(ToolError):
        Engine(WINDOW, OUTPUT).original("r9")


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses", "anthropic"])
def test_the_tool_is_spelled_as_the_wire_wants_it(wire: str) -> None:
    tool = Engine(WINDOW, OUTPUT).recall_tool(wire)
    assert tool.get("name", tool.get("function", {}).get("name")) == "Recall"


# --- speed ----------------------------------------------------------------------------------------

"""Damaged logs can be opened and continued: entries missing, mangled, reordered or extreme."""

import random
from collections.abc import Sequence
from typing import Any, get_args, get_origin, get_type_hints

import msgspec
import pytest

from longrein.models.wire_content import make_call
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import memory_dependencies, open_test_session
from longrein.testing.store import MemoryDisk, MemoryWrite
from longrein.tools import malformed_arguments_message
from longrein_context import Budget, Price, decide, fold, render
from longrein_context.clear_items import squeeze
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    Cleared,
    Entry,
    Form,
    Opened,
    PermissionAsked,
    PrefixSet,
    Replied,
    Restored,
    Rewound,
    Summarized,
    Text,
    ToolCall,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    TurnEnded,
    UserSpoke,
    decode_event,
    decode_json,
    encode_event,
)
from tests.agent.disk_harness import UncheckedModel, says, turn
from tests.context.random_session import SESSION, RandomSession
from tests.tables import cases, row

DEEP: Any = "bottom"
for _ in range(300):
    DEEP = [DEEP]
PRICES = (
    None,
    Price(3, 15, 0.3, 3.75),
    Price(3, 15, 0, 0),
    Price(0, 0, 0, 0),
    Price(1e300, 1e300),
    Price(1e-300, 0, 1e300),
)
EXTREMES: dict[object, Sequence[Any]] = {
    str: (
        "",
        "x",
        "\n",
        "r1",
        "c3.0",
        "r4.1",
        "c7.0",
        "[longrein:n0nce",
        "中" * 9_000,
        '{"a": [',
        "ok",
        "turn",
        "summary",
    ),
    int: (0, 1, -1, 2, 7, 40, 10**6, 2**62, -(2**62)),
    float: (0.0, -1.0, 1e300, 1e-300),
    bool: (False, True),
    dict: row(
        {}, {"a": DEEP}, {"file_path": 3, "command": None}, {"name": "Read", "args": {"name": 1}}
    ),
}


def strange(kind: Any, luck: random.Random, depth: int = 0) -> Any:
    """Any value of type `kind`."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return luck.choice(["x", 1, None, [DEEP], {}])
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind)
        return kind(
            **{name: strange(hints[name], luck, depth + 1) for name in kind.__struct_fields__}
        )
    if origin is tuple:
        return tuple(
            strange(inner[0], luck, depth + 1)
            for _ in range(luck.choice([0, 1, 3]) if depth < 4 else 0)
        )
    if origin is dict:
        return luck.choice(EXTREMES[dict])
    if inner:  # a union
        plain = [one for one in inner if depth < 4 or one in (type(None), Text)] or inner[:1]
        return strange(luck.choice(plain), luck, depth)
    return None if kind is type(None) else luck.choice(EXTREMES[kind])


def mangled(event: AnyEvent, luck: random.Random) -> AnyEvent:
    """`event` with one field of another value, or another event altogether."""
    if luck.random() < 0.3:
        return strange(luck.choice(get_args(AnyEvent)), luck)
    names = type(event).__struct_fields__
    if not names:
        return event
    name = luck.choice(names)
    return msgspec.structs.replace(
        event, **{name: strange(get_type_hints(type(event))[name], luck)}
    )


def damaged(events: list[AnyEvent], luck: random.Random) -> list[AnyEvent]:
    """`events` with some of them missing, twice, exchanged or mangled."""
    events = list(events)
    for _ in range(luck.choice([1, 1, 2, 5, 20])):
        at, other = (
            min(len(events) - 1, int(luck.expovariate(0.05)))
            if luck.random() < 0.4
            else luck.randrange(len(events))
            for _ in "ab"
        )
        match luck.randrange(5):
            case 0 if len(events) > 3:
                del events[at]
            case 1:
                events[at], events[other] = events[other], events[at]
            case 2:
                events.insert(other, events[at])
            case 3 if len(events) > 30:
                del events[luck.randrange(20, len(events)) :]
            case _:
                events[at] = mangled(events[at], luck)
    return events


async def answered(entries: list[Entry], price: Price | None) -> str:
    """Return the answer to a message in the session with the log `entries`."""
    disk = MemoryDisk(SESSION)
    disk.writes = [MemoryWrite(tuple(entries))]
    disk.commit()
    model = UncheckedModel(*[says("here I am")] * 9, budget=Budget(20_000, 4_000, price))
    deps = memory_dependencies(model, disk)
    session = open_test_session(model, disk=disk, deps=deps)
    await turn(session, "are you there?")
    await session.close()
    asked = any(
        "are you there?" in str(item.part) for sent in model.requests for item in sent.items
    )
    last = disk.entries()[-1].event
    # a marker or system text of 9,000 signs
    told = isinstance(last, TurnEnded) and "does not fit" in last.message
    # `seed` sums up all of it
    into = any(isinstance(one.event, Summarized) for one in disk.entries()[len(entries) :])
    asked = asked or (into and isinstance(last, TurnEnded) and last.reason == "done")
    return "answered" if asked or told else f"not asked: {last}"


def check(seed: int) -> None:
    luck = random.Random(seed)
    walk = RandomSession(seed, profile=luck.choice(["default", "default", "seed"])).run(
        luck.choice([5, 40, 80])
    )
    events = damaged([entry.event for entry in walk.entries], luck)
    entries = [Entry(n, 1_000_000 * n, event) for n, event in enumerate(events, 1)]
    assert (
        run_virtual(answered(entries, luck.choice(PRICES)), clock=VirtualClock(), seed=seed)
        == "answered"
    )


@pytest.mark.parametrize("seed", [*range(10), 362, 1_145])
def test_any_damaged_log_leads_to_a_prompt_and_an_answer(seed: int) -> None:
    check(seed)


def answered_with(*events: AnyEvent, price: Price | None = None) -> str:
    """Return the outcome of a message in a log of `events`."""
    entries = [Entry(n, 1_000_000 * n, event) for n, event in enumerate(events, 1)]
    return run_virtual(answered(entries, price), clock=VirtualClock(), seed=1)


OPENED = Opened(SCHEMA_VERSION, SESSION, "n0nce", ("/w",), "/w")
PREFIX = PrefixSet(
    "start", "mock", "small", "anthropic", "Be good.", (ToolSpec("Read", "read", {}),), ("# env",)
)
HELLO = UserSpoke((Text("hello"),))
ASKED = Asked("turn", 3, 2)


HI = Replied(3, (Text("hi"),), "end")
WAITS = Replied(4, (ToolCall("c4.0", "Read", {"a": DEEP}),), "calls")
CALLED = Replied(4, (ToolCall("c4.0", "Read", {}),), "calls")
RAN = (ToolStarted("c4.0", "Read"), ToolEnded("c4.0", "Read", "ok", ()))
START = (OPENED, PREFIX, HELLO)
NO_JSON = Cleared((Form("r5.1", "trimmed", "{oops"),), "rent")


@cases(
    "what events",
    ("only the first entry was kept", (OPENED,)),
    ("nothing was kept", ()),
    ("the first entry is gone", (PREFIX, HELLO, Asked("turn", 2, 1), HI)),
    ("the prefix is gone", (OPENED, HELLO, Asked("turn", 2, 2), HI, TurnEnded("done"))),
    ("a result without its call", (*START, *RAN)),
    ("an approval without its call", (*START, PermissionAsked("c4.0", "Bash", "ls", "why"))),
    ("a call that waits, nested deep", (*START, ASKED, WAITS)),
    ("a rewind to nowhere", (*START, Rewound(99), Rewound(0), Restored(77))),
    ("arguments cleared to no JSON", (*START, ASKED, CALLED, NO_JSON)),
)
def test_what_is_left_of_a_damaged_log(what: str, events: tuple[AnyEvent, ...]) -> None:
    assert answered_with(*events) == "answered", what


def test_a_log_with_an_infinite_sum_of_money_is_read() -> None:
    asked = msgspec.structs.replace(ASKED, reserved_usd=float("inf"))
    assert decode_event(encode_event(asked)) == ASKED


def deep(levels: int) -> str:
    return '{"a":' + "[" * levels + "]" * levels + "}"


@pytest.mark.parametrize("levels", [3, 90, 101, 900, 990, 1_100, 10_000])
def test_a_log_with_arguments_nested_deep_is_read(levels: int) -> None:
    """An older longrein wrote them down as they came."""
    line = b'{"type":"Replied","asked":4,"parts":[{"type":"text","text":"]}[{"},{"type":"tool_call","id":"c4.0",'  # noqa: E501
    line += (
        b'"name":"Read","arguments":%b}],"stop":"calls","usage":{"input_tokens":7}}'
        % deep(levels).encode()
    )
    event = decode_event(line)
    assert isinstance(event, Replied)
    assert (event.parts[0], event.usage.input_tokens) == (Text("]}[{"), 7)
    call = event.parts[1]
    assert isinstance(call, ToolCall)
    if levels < 100:
        assert (call.arguments, call.received) == (decode_json(deep(levels)), "")
    else:
        assert (call.arguments, call.received) == (None, deep(levels))
    assert decode_event(encode_event(event)) == event


@pytest.mark.parametrize("levels", [900, 1_100, 10_000])
def test_a_reply_nested_deep_is_told_to_the_model_and_never_runs(levels: int) -> None:
    assert make_call("Read", deep(levels)) == ToolCall("", "Read", None, deep(levels))
    assert "nested deeper than 100 levels" in malformed_arguments_message("Read", deep(levels))


@pytest.mark.parametrize("price", PRICES)
def test_any_price_lets_a_full_view_be_cleared(price: Price | None) -> None:
    log, budget = RandomSession(3).run(60).entries, Budget(20_000, 4_000, price)
    for seq in (30, 90, len(log)):
        state = fold(log[:seq])
        decide(state, budget, state.at + 1)
        squeeze(state, budget, 100, "watermark")
        render(state, budget, usd_left=1.0)

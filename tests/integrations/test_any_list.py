"""Random callers: any list stays paired, fits the window, and has a stable prefix."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import longrein
from longrein_context import Engine
from longrein_context.message_list import CLEARS
from tests.integrations.message_lists import WIRES, Chat, Wire, big, check_paired, tokens
from tests.tables import record

WINDOW, OUTPUT = 8_000, 1_000

ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 400)),
        st.tuples(st.just("call"), st.integers(1, 3)),
        st.tuples(st.just("answer"), st.integers(1, 200)),
        st.tuples(st.just("take back"), st.integers(1, 12)),
        st.tuples(st.just("edit"), st.integers(0, 40)),
        st.tuples(st.just("compact"), st.just(0)),
        st.tuples(st.just("keep the view"), st.just(0)),
    ),
    max_size=40,
)


def act(wire: Wire, engine: Engine, chat: Chat, what: str, size: int, n: int) -> Chat:
    match what:
        case "say":
            return [*chat, *wire.user(f"{n} " + "word " * size)]
        case "call":
            ids = [f"id{n}.{k}" for k in range(size)]
            results = [(id_, big(f"r{n}_{k}", 20 * (k + 1))) for k, id_ in enumerate(ids)]
            return [
                *chat,
                *wire.calls(*((id_, f"f{n}.py") for id_ in ids)),
                *wire.results(*results),
            ]
        case "answer":
            return [
                *chat,
                {"role": "assistant", "content": f"{n} " + "so " * size},
                *wire.user("Go on."),
            ]
        case "take back":
            return whole(wire, chat[: max(1, len(chat) - size)])
        case "edit":
            at = size % len(chat)
            return (
                [*chat[:at], *wire.user(f"edited {n}"), *chat[at + 1 :]]
                if chat[at].get("role") == "user"
                else chat
            )
        case "compact":
            engine.compact("all")
            return chat
        case _:
            return engine.prepare(chat)


def whole(wire: Wire, chat: Chat) -> Chat:
    """Without calls at the end that are not answered: no caller sends those."""
    while chat and (wire.asked(chat[-1]) or chat[-1].get("type") == "reasoning"):
        chat = chat[:-1]
    if not chat:
        return chat
    return (
        chat if not wire.answered(chat[-1]) or unpaired(wire, chat) == 0 else whole(wire, chat[:-1])
    )


def unpaired(wire: Wire, chat: Chat) -> int:
    return sum(len(wire.asked(one)) - len(wire.answered(one)) for one in chat)


def sane(wire: Wire, chat: Chat) -> bool:
    try:
        check_paired(wire, chat)
    except AssertionError:
        return False
    return True


@given(st.sampled_from(WIRES), ACTS, st.sampled_from([("result",), CLEARS, (*CLEARS, "thinking")]))
def test_what_is_sent_is_paired_fits_and_begins_with_what_was_sent(
    wire: Wire, acts: list[tuple[str, int]], clears: tuple[str, ...]
) -> None:
    engine, chat, before = Engine(WINDOW, OUTPUT, clears=clears), wire.user("Begin."), Chat()
    for n, (what, size) in enumerate(acts):
        changed = act(wire, engine, chat, what, size, n)
        if not changed or not sane(wire, changed):
            continue
        chat, breaks = changed, engine.state.breaks
        view = engine.prepare(chat)
        check_paired(wire, view)
        assert tokens(view) <= WINDOW
        if engine.state.breaks == breaks and what in ("say", "call", "answer"):
            assert view[: len(before)] == before
        assert engine.prepare(chat) == view
        before = view


@pytest.mark.parametrize("text", ["caf\udce9 x", "\ud83d", "plain"])
def test_a_text_that_json_cannot_hold_is_taken(text: str) -> None:
    """A program's tool that reads bytes with `surrogateescape` raised in each later `prepare`."""
    deep: dict[str, Any] = {}
    for _ in range(2_000):
        deep = {"a": deep}
    chat: list[Any] = [{"role": "user", "content": text}]
    for number in range(40):
        call = record(type="tool_use", id=f"c{number}", name="Read", input={"n": text, "d": deep})
        result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": f"{text}\n" * 300}
        chat += [{"role": "assistant", "content": [call]}, {"role": "user", "content": [result]}]
    engine = longrein.engine(window=12_000, max_output=1_000)
    for end in range(1, len(chat) + 1, 2):
        view = engine.prepare(chat[:end])
    assert view[0] is chat[0]
    assert view[-1] is chat[-1]
    assert any(sent is not one for sent, one in zip(view, chat, strict=False)), "it was shortened"

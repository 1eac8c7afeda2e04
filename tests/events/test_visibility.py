"""Every event appears exactly where its `visibility` says. What fails here names the file to
change.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from longrein.frontends.headless.run_state import RunState
from longrein.frontends.headless.stream_json import draw
from longrein.frontends.terminal.view_model import ViewModel
from longrein.steps import Projection
from longrein.store.entry_parts import contents_of
from longrein_context import events
from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Cleared,
    Entry,
    PrefixSet,
    Reminded,
    ToolEnded,
    TurnEnded,
    decode_entry,
    encode_entry,
)
from longrein_context.events.events import Event
from longrein_context.state.ledger import Ledger, record_event
from tests.tables import split_words

GOLDEN = Path(__file__).parent.parent / "store" / "golden_v1.jsonl"
EVENTS: Sequence[type[Event]] = get_args(AnyEvent)


def entries() -> list[Entry]:
    """Entries of the golden log, and those that a frontend draws only with certain fields."""
    log = [decode_entry(line) for line in GOLDEN.read_bytes().splitlines()]
    end = log[-1].seq
    more = (
        PrefixSet("model", "mock", "large", "anthropic", ""),
        Asked("summary", end, 2, reason="watermark"),
        AskFailed(end + 2, "overload"),
        Cleared((), "request"),
        AskFailed(end + 99, "overload"),
        TurnEnded("error"),
        Reminded("wake", "A task has ended.", "bg_done"),
    )
    return [*log, *(Entry(end + n, log[-1].at + n, event) for n, event in enumerate(more, 1))]


def content(value: object) -> object:
    """State of an object, to compare."""
    if isinstance(value, dict):
        return {repr(key): content(one) for key, one in value.items()}
    is_plain = isinstance(value, msgspec.Struct) or not hasattr(value, "__dict__")
    return (
        repr(value)
        if is_plain
        else {
            name: content(one)
            for name, one in vars(value).items()
            if name not in ("_now_s", "heard_s", "_work")  # sums for the end of the turn
        }
    )


def drawn_by_terminal() -> set[type]:
    """Events that print a line or change what the live area shows."""
    model, drawn = ViewModel(), set()
    for entry in entries():
        before = content(model)
        if model.apply(entry, 1.0) or content(model) != before:
            drawn.add(type(entry.event))
    return drawn


def drawn_by_headless() -> set[type]:
    """Events that write a line of stream-json."""
    state, drawn = RunState("0b5e4f6a-1c2d-4e3f-8a9b-0c1d2e3f4a5b", "mock/small"), set()
    projection = Projection()
    for entry in entries():
        for step in projection.read(entry):
            if draw(step, state):
                drawn.add(type(entry.event))
            state.step(step)
    return drawn


def searched() -> set[type]:
    """Events with a text that a search looks into."""
    return {
        type(entry.event)
        for entry in entries()
        if any(part.searchable and (part.text or part.blob) for part in contents_of(entry))
    }


def recorded() -> set[type]:
    """Events that change the record of what was done."""
    # the record takes a result with its call, and a reminder only in place of an earlier one
    ledger, found = Ledger(), {ToolEnded, Reminded}
    for entry in entries():
        before = repr(ledger)
        record_event(ledger, entry.seq, entry.event)
        if repr(ledger) != before:
            found.add(type(entry.event))
    return found


def differences(declared: set[type[Event]], found: set[type], file: str) -> list[str]:
    missing = [
        f"{kind.__name__} is declared, but not handled in {file}" for kind in declared - found
    ]
    return missing + [
        f"{kind.__name__} is handled in {file}, but not declared" for kind in found - declared
    ]


def test_every_event_is_in_the_union_and_exported() -> None:
    declared = {kind for kind in Event.__subclasses__() if "visibility" in vars(kind)}
    assert declared == set(EVENTS), "add the event to `AnyEvent` in events/events.py"
    hidden = [kind.__name__ for kind in EVENTS if not hasattr(events, kind.__name__)]
    assert not hidden, f"export in events/__init__.py: {hidden}"


def test_every_event_is_in_the_golden_log() -> None:
    missing = {kind.__name__ for kind in EVENTS} - {
        type(entry.event).__name__ for entry in entries()
    }
    assert not missing, f"add a line for each to tests/store/golden_v1.jsonl: {missing}"


def test_every_event_appears_where_it_is_declared() -> None:
    in_terminal = {kind for kind in EVENTS if kind.visibility.shown in ("both", "terminal")}
    in_headless = {kind for kind in EVENTS if kind.visibility.shown in ("both", "headless")}
    searchable = {kind for kind in EVENTS if kind.visibility.searchable}
    in_ledger = {kind for kind in EVENTS if kind.visibility.in_ledger}
    wrong = [
        *differences(
            in_terminal, drawn_by_terminal(), "frontends/terminal/event_lines.py (or view_model.py)"
        ),
        *differences(in_headless, drawn_by_headless(), "frontends/headless/stream_json.py"),
        *differences(searchable, searched(), "store/entry_parts.py"),
        *differences(in_ledger, recorded(), "context/state/ledger.py"),
    ]
    assert not wrong, "\n".join(wrong)


def test_an_event_without_visibility_is_refused() -> None:
    with pytest.raises(TypeError, match="declare where the event appears"):
        type("Undeclared", (Event,), {})


EVIL = "a\x1b]52;c;aGk=\x07\x1b[2J\u202e\u200b\U000e0041z"


def with_hostile_texts(value: Any) -> Any:
    """The same JSON with `EVIL` behind every text but names of types and ids."""
    if isinstance(value, dict):
        keep = split_words("type kind purpose status state reason stop how mode verdict id call")
        return {
            name: one if name in keep else with_hostile_texts(one) for name, one in value.items()
        }
    if isinstance(value, list):
        return [with_hostile_texts(one) for one in value]
    return value + EVIL if isinstance(value, str) else value


def test_S074_no_text_of_any_event_reaches_the_terminal_raw() -> None:
    model, checked = ViewModel(), 0
    for entry in entries():
        data = msgspec.json.decode(encode_entry(entry))
        try:
            hostile = decode_entry(
                msgspec.json.encode({**data, "event": with_hostile_texts(data["event"])})
            )
        except msgspec.ValidationError:  # a text of this event is one of a closed list
            hostile = entry
        lines = [
            piece for piece in model.apply(hostile, 1.0) if isinstance(piece, tuple)
        ]  # the painter escapes markdown
        drawn = "".join(text for line in lines for _, text in line)
        assert not set(drawn) & set("\x1b\x07\u202e\u200b\U000e0041"), type(entry.event).__name__
        checked += hostile is not entry
    assert checked >= 20

"""Wires and validation agree: valid conversations are accepted, broken ones are refused."""

from random import Random

import pytest

from longrein.testing.loopback import Limits, Rules
from longrein.testing.loopback.loopback_provider import wire_of
from longrein.testing.loopback.validation import Refused, parse_body
from longrein_context import Item
from longrein_context.events import Text, ToolCall, ToolResult
from tests.models.http_server import item, open_wire_model, request
from tests.testing.http_client import PATHS

WIRES = tuple(PATHS)


def conversation(random: Random) -> list[Item]:
    """Draw a conversation: user text, then steps of one to four calls with results, sometimes
    user text between.
    """
    items = [item(1, Text("go"), "user")]
    seq = 2
    for _ in range(random.randint(1, 5)):
        if random.random() < 0.6:
            items.append(item(seq, Text("I look."), "text"))
        count = random.randint(1, 4)
        names = [random.choice(("Read", "Bash", "Gone")) for _ in range(count)]
        items += [
            item(seq, ToolCall(f"c{seq}.{n}", names[n], {"path": "a"}), n=n + 1)
            for n in range(count)
        ]
        items += [
            item(seq + 1 + n, ToolResult(f"c{seq}.{n}", names[n], "ok", (Text("x"),)))
            for n in range(count)
        ]
        seq += count + 1
        if random.random() < 0.4:
            items.append(item(seq, Text("hurry"), "user"))
            seq += 1
    return items


def verdict(wire: str, items: list[Item]) -> str:
    """Return the refusal of the conversation as longrein writes it; empty if accepted."""
    model = open_wire_model(wire, "http://127.0.0.1:1")
    body = model.body(request(*items, wire=wire))  # type: ignore[attr-defined]
    found = wire_of(PATHS[wire])
    assert found is not None
    rules, limits = Rules(), Limits()
    try:
        found[0].parse_request(parse_body(body, limits, rules), limits, rules, {}, found[1])
    except Refused as refused:
        return refused.message
    return ""


def results(items: list[Item]) -> list[int]:
    return [n for n, one in enumerate(items) if isinstance(one.part, ToolResult)]


def lost(items: list[Item], random: Random) -> None:
    del items[random.choice(results(items))]


def doubled(items: list[Item], random: Random) -> None:
    at = random.choice(results(items))
    items.insert(at, items[at])


def early(items: list[Item], random: Random) -> None:
    """Move a result before its call."""
    items.insert(0, items.pop(random.choice(results(items))))


def late(items: list[Item], random: Random) -> None:
    """Move a result one step later."""
    moved = items.pop(random.choice(results(items)))
    items += [item(900, Text("I wait."), "text"), item(901, Text("and?"), "user"), moved]


def orphan(items: list[Item], random: Random) -> None:
    at = random.choice(results(items))
    items.insert(at, item(900, ToolResult("c900.0", "Read", "ok", (Text("x"),))))


def cut_short(items: list[Item], _: Random) -> None:
    """Drop the results of the last calls."""
    while isinstance(items[-1].part, ToolResult | Text):
        items.pop()


BREAKS = (lost, doubled, early, late, orphan, cut_short)


@pytest.mark.parametrize("wire", WIRES)
def test_sound_conversations_are_accepted(wire: str) -> None:
    for seed in range(60):
        assert verdict(wire, conversation(Random(seed))) == "", f"seed {seed}"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("broken", BREAKS, ids=lambda change: change.__name__)
def test_R029_no_broken_pairing_gets_past_the_judge(wire: str, broken: object) -> None:
    for seed in range(30):
        random = Random(seed)
        items = conversation(random)
        assert callable(broken)
        broken(items, random)
        said = verdict(wire, items)
        # this provider takes an output anywhere after its call
        accepted = wire == "openai-responses" and broken is late
        assert (said == "") == accepted, f"seed {seed}: {said}"

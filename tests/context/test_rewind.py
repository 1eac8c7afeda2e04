"""Rewinds: the token estimate after them, and states equal to those of a fold that begins anew for
each of them.
"""

import random
from collections.abc import Callable, Sequence

import msgspec
import pytest

from longrein_context import (
    Budget,
    KeptStates,
    State,
    advance,
    decode_state,
    encode_state,
    fold,
    render,
    state_at,
    step,
    window_of,
)
from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    Opened,
    PrefixSet,
    Restored,
    Rewound,
    Text,
    ToolSpec,
    UserSpoke,
)
from longrein_context.state_fold import rejoin, rejoin_restored
from tests.context.random_session import RandomSession, content
from tests.seeds import seeds


def weight(*events: AnyEvent) -> int:
    return fold([Entry(n, n, event) for n, event in enumerate(events, 1)]).view_tokens


def test_the_prefix_counts_after_a_rewind_to_before_it() -> None:
    opened = Opened(1, "s", "n0nce", ("/w",), "/w")
    tool = ToolSpec("Read", "Reads a file. " * 50, {"type": "object"})
    prefix = PrefixSet(
        "start", "test", "big", "scripted", "Be good. " * 50, (tool,), ("# here " * 50,)
    )
    begun = weight(opened, prefix)
    assert begun > 300
    assert weight(opened, prefix, UserSpoke((Text("word " * 100),)), Rewound(1)) == begun
    assert weight(opened, prefix, UserSpoke((Text("word " * 100),)), Rewound(2)) == begun


def test_a_window_that_was_learned_is_of_one_model_and_outlives_a_rewind() -> None:
    big, opened = Budget(200_000, 8_000), Opened(1, "s", "n0nce", ("/w",), "/w")
    small = PrefixSet("start", "test", "small", "scripted", "")
    asked = UserSpoke((Text("go"),)), Asked("turn", 3, 2)
    refused = AskFailed(4, "overflow", "16001 > 16000", limit_tokens=16_000)
    state = fold(
        [Entry(n, n, event) for n, event in enumerate((opened, small, *asked, refused), 1)]
    )
    assert window_of(state, big).window_tokens == 16_000
    state.gauge.ceiling = 12_000  # the provider's count grew no further
    before = KeptStates(lambda *_: [Entry(1, 1, opened), Entry(2, 2, small)])
    state = advance(state, Entry(6, 6, Rewound(2)), before)
    assert window_of(state, big).window_tokens == 12_000
    state = step(state, Entry(7, 7, PrefixSet("tools", "test", "small", "scripted", "")))
    assert window_of(state, big).window_tokens == 12_000
    state = step(state, Entry(8, 8, PrefixSet("model", "test", "large", "scripted", "")))
    assert window_of(state, big).window_tokens == 200_000


def reference(entries: Sequence[Entry]) -> State:
    """Fold a log; begin anew for each entry that goes back, and for those inside it again."""
    state = State()
    for at, entry in enumerate(entries):
        before = entries[:at]
        match entry.event:
            case Rewound(to=to):
                state = rejoin(reference([one for one in before if one.seq <= to]), state, entry)
            case Restored(undone=undone):
                then = reference([one for one in before if one.seq != undone])
                gone = next((one.event for one in before if one.seq == undone), None)
                state = rejoin_restored(then, state, entry, gone)
            case _:
                state = step(state, entry)
    return state


def encoded(state: State) -> bytes:
    """`state` as bytes, without what the reference has no use for."""
    return msgspec.json.encode(msgspec.structs.replace(state, undone={}, worth=None))


def wander(
    walk: RandomSession, luck: random.Random, rounds: int, target: Callable[[int], int]
) -> None:
    """Let a session run on, go back and take compactions back at random. `target` returns the entry
    that a rewind goes to.
    """
    for _ in range(rounds):
        walk.run(luck.randrange(3, 30))
        for _ in range(luck.choice([0, 1, 1, 2])):
            if walk.state.compactions and luck.random() < 0.5:
                walk.add(Restored(luck.choice(walk.state.compactions)))
            elif not walk.state.calls:
                walk.add(Rewound(target(luck.randrange(2, walk.state.seq + 1))))


class LogWithStates:
    """A log, and the states that a session has stored now and then (`StoredLog`)."""

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = entries
        self.states: dict[int, bytes | bytearray] = {}

    def history(self, first: int, last: int, /) -> Sequence[Entry]:
        return [entry for entry in self.entries if first <= entry.seq <= last]

    def state_before(self, seq: int, /) -> State | None:
        nearest = max((one for one in self.states if one <= seq), default=0)
        return decode_state(self.states[nearest]) if nearest else None


@pytest.mark.parametrize("seed", seeds(4))
def test_stored_states_spare_the_fold_and_change_nothing(seed: int) -> None:
    """After each entry the state, and the next request, are those of a fold of the whole log."""
    luck = random.Random(100 + seed)
    walk = RandomSession(seed, profile=["default", "default", "seed"][seed % 3])
    wander(walk, luck, 10, lambda seq: seq)
    log, state = LogWithStates(walk.entries), State()
    for entry in walk.entries:
        state = advance(state, entry, log)
        if isinstance(entry.event, Rewound | Restored):
            assert state == fold(walk.entries[: entry.seq])
        if luck.random() < 0.05:
            log.states[entry.seq] = encode_state(state)
    assert encoded(state) == encoded(reference(walk.entries))
    budget = walk.budget
    assert content(render(state, budget)) == content(render(fold(walk.entries), budget))
    for seq in (walk.state.seq, *(luck.randrange(1, walk.state.seq) for _ in range(10))):
        assert state_at(log, seq) == fold(walk.entries[:seq])
    for undone in walk.state.compactions:
        without = [entry for entry in walk.entries if entry.seq != undone]
        assert state_at(log, walk.state.seq, undone) == fold(without)

"""Rewind to before the prefix was set: the token estimate counts the present prefix and keeps
the learned window.
"""

from longrein.context import Budget, advance, fold, step, window_of
from longrein.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    Opened,
    PrefixSet,
    Rewound,
    Text,
    ToolSpec,
    UserSpoke,
)


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
    state = advance(
        state, Entry(6, 6, Rewound(2)), lambda _: [Entry(1, 1, opened), Entry(2, 2, small)]
    )
    assert window_of(state, big).window_tokens == 12_000
    state = step(state, Entry(7, 7, PrefixSet("tools", "test", "small", "scripted", "")))
    assert window_of(state, big).window_tokens == 12_000
    state = step(state, Entry(8, 8, PrefixSet("model", "test", "large", "scripted", "")))
    assert window_of(state, big).window_tokens == 200_000

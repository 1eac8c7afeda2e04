"""Going back to before the prefix was set: what stands before the conversation is weighed as it is now."""

from longrein.context import fold
from longrein.events import AnyEvent, Entry, Opened, PrefixSet, Rewound, Text, ToolSpec, UserSpoke


def weight(*events: AnyEvent) -> int:
    return fold([Entry(n, n, event) for n, event in enumerate(events, 1)]).view_tokens


def test_the_prefix_counts_after_a_rewind_to_before_it() -> None:
    opened = Opened(1, "s", "n0nce", ("/w",), "/w")
    tool = ToolSpec("Read", "Reads a file. " * 50, {"type": "object"})
    prefix = PrefixSet("start", "test", "big", "scripted", "Be good. " * 50, (tool,), ("# here " * 50,))
    begun = weight(opened, prefix)
    assert begun > 300
    assert weight(opened, prefix, UserSpoke((Text("word " * 100),)), Rewound(1)) == begun
    assert weight(opened, prefix, UserSpoke((Text("word " * 100),)), Rewound(2)) == begun

"""Session that each framework plays: read thirty big files, then recall one by its handle."""

import re

from longrein.testing.loopback import (
    Call,
    Limits,
    LoopbackProvider,
    Received,
    Rules,
    Turn,
    common_blocks,
)
from longrein.testing.loopback.validation import strings
from longrein_context import Engine

WINDOW, OUTPUT = 12_000, 1_000
FILES = 30
LIMITS = Limits(window_tokens=WINDOW)
RULES = Rules()


def read_file(path: str) -> str:
    """Return the content of a file: about a thousand tokens, with one unique name."""
    number = int(re.findall(r"\d+", path)[0])
    lines = [f"def step_{number}_{n}(value): return value + {n}" for n in range(80)]
    lines[40] = f"NEEDLE_{number} = {number * 7919}"
    return "\n".join(lines)


def answer(request: Received) -> Turn:
    """Play the model: read the files in turn, recall the first one that is no longer shown,
    report it.
    """
    assert request.parsed is not None
    if "NEEDLE_0 = 0" in request.said and "lines 1-" in request.said:
        return Turn(text="NEEDLE_0 is back.")
    number = next_file(request)
    if number < FILES:
        return Turn(
            text=f"I read file {number}.", calls=(Call("read_file", {"path": f"src/f{number}.py"}),)
        )
    return Turn(calls=(Call("Recall", {"handle": handle_of_the_first(text_of(request))}),))


def handle_of_the_first(seen: str) -> str:
    """Return the handle of the first file, from a placeholder or the ledger of a summary."""
    listed = re.search(r"\b(r\d+)\W+read_file\W+src/f0\.py", seen)
    cleared = re.search(r"src/f0\.py.*?\b(r\d+)\b", seen, re.DOTALL)
    found = listed or cleared
    return found[1] if found else "r0"


def text_of(request: Received) -> str:
    """Return all text that the model sees."""
    return "\n".join(strings(request.json))


def next_file(request: Received) -> int:
    """Return the number after the last file that was read."""
    found = re.findall(rb"src/f(\d+)\.py", request.body)
    return max(map(int, found), default=-1) + 1


SMALLER = Limits(window_tokens=9_000)
"""Model whose window is smaller than the engine was told."""


def check_learned(server: LoopbackProvider, engine: Engine, final: str) -> None:
    """Check one refusal, after which the engine knows the window from the error."""
    assert "is back" in final
    assert len(server.refused) == 1
    assert engine.state.window_learned == SMALLER.window_tokens


def check(server: LoopbackProvider, engine: Engine, final: str) -> None:
    """Check that no request was refused and that only the engine's own breaks broke the cache."""
    assert not server.refused
    assert "is back" in final
    assert len(server.requests) == FILES + 2
    breaks = 0
    for one, other in zip(server.requests, server.requests[1:], strict=False):
        breaks += common_blocks(one, other) < len(one.blocks)
    assert 1 <= breaks == engine.state.breaks <= 6
    read = sum(request.usage["cache_read"] for request in server.requests)
    assert read > 0.6 * sum(
        request.usage["input"] + request.usage["cache_read"] for request in server.requests
    )
    assert 0.5 < engine.state.gauge.ratio < 2

"""The session that each framework plays: thirty big files are read, then one is asked for again by its handle."""

import re

from longrein.context import Engine
from longrein.testing.loopback import Call, Limits, LoopbackProvider, Received, Rules, Turn, common_blocks
from longrein.testing.loopback.validation import strings

WINDOW, OUTPUT = 12_000, 1_000
FILES = 30
LIMITS = Limits(window_tokens=WINDOW)
RULES = Rules()


def read_file(path: str) -> str:
    """What is in the file: about a thousand tokens, with one name that occurs nowhere else."""
    number = int(re.findall(r"\d+", path)[0])
    lines = [f"def step_{number}_{n}(value): return value + {n}" for n in range(80)]
    lines[40] = f"NEEDLE_{number} = {number * 7919}"
    return "\n".join(lines)


def answer(request: Received) -> Turn:
    """The model: reads one file after the other, then recalls the first it no longer sees, then says so."""
    assert request.parsed is not None
    if "NEEDLE_0 = 0" in request.said and "lines 1-" in request.said:
        return Turn(text="NEEDLE_0 is back.")
    number = next_file(request)
    if number < FILES:
        return Turn(text=f"I read file {number}.", calls=(Call("read_file", {"path": f"src/f{number}.py"}),))
    return Turn(calls=(Call("Recall", {"handle": handle_of_the_first(text_of(request))}),))


def handle_of_the_first(seen: str) -> str:
    """Where a placeholder, or the ledger of a summary, says the first file can be had."""
    listed = re.search(r"\b(r\d+)\W+read_file\W+src/f0\.py", seen)
    cleared = re.search(r"src/f0\.py.*?\b(r\d+)\b", seen, re.DOTALL)
    found = listed or cleared
    return found[1] if found else "r0"


def text_of(request: Received) -> str:
    """All that the model sees."""
    return "\n".join(strings(request.json))


def next_file(request: Received) -> int:
    """One more than the last that was read."""
    found = re.findall(rb"src/f(\d+)\.py", request.body)
    return max(map(int, found), default=-1) + 1


SMALLER = Limits(window_tokens=9_000)
"""A model whose window is smaller than the engine was told."""


def check_learned(server: LoopbackProvider, engine: Engine, final: str) -> None:
    """It went through, with one refusal, and the engine has learned the window from the words of the error."""
    assert "is back" in final
    assert len(server.refused) == 1
    assert engine.state.window_learned == SMALLER.window_tokens


def check(server: LoopbackProvider, engine: Engine, final: str) -> None:
    """It went through, no request was refused, and the cache was broken only where the engine meant to."""
    assert not server.refused
    assert "is back" in final
    assert len(server.requests) == FILES + 2
    breaks = 0
    for one, other in zip(server.requests, server.requests[1:], strict=False):
        breaks += common_blocks(one, other) < len(one.blocks)
    assert 1 <= breaks == engine.state.breaks <= 6
    read = sum(request.usage["cache_read"] for request in server.requests)
    assert read > 0.6 * sum(request.usage["input"] + request.usage["cache_read"] for request in server.requests)
    assert 0.5 < engine.state.gauge.ratio < 2

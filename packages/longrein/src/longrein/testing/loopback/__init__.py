"""A local HTTP provider for tests: speaks four wires, enforces their rules and plays scripts with
faults.

In the test's process, on any free port:

    async with LoopbackProvider([Turn(text="Hello.")]) as server:
        ...  # point a model at server.url
    assert server.unused() == []

As a process: `python -m longrein.testing.loopback --script FILE --port 0` prints its port as one
JSON line.
"""

from longrein.testing.loopback.loopback_provider import LoopbackProvider
from longrein.testing.loopback.overflow_errors import OVERFLOWS, overflow
from longrein.testing.loopback.player import Received, common_blocks
from longrein.testing.loopback.script import (
    Call,
    Count,
    Fault,
    Limits,
    Play,
    Rules,
    Turn,
    read_play,
)

__all__ = [
    "OVERFLOWS",
    "Call",
    "Count",
    "Fault",
    "Limits",
    "LoopbackProvider",
    "Play",
    "Received",
    "Rules",
    "Turn",
    "common_blocks",
    "overflow",
    "read_play",
]

"""Test doubles for a user's tools and agents: a scripted model, a session in memory, a local
provider.

`ScriptedModel` plays replies made with `says` and `call`. `open_test_session` runs a whole session
in memory with such a model, `Approver` answers its permission requests, and `run_virtual` lets an
hour of waiting pass in a millisecond. `LoopbackProvider` is an HTTP server that speaks the four
wires, enforces their rules and plays a script with faults.
"""

from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import (
    Approver,
    memory_dependencies,
    open_test_session,
    results,
    said,
    story,
)
from longrein.testing.loopback import (
    Call,
    Count,
    Fault,
    Limits,
    LoopbackProvider,
    Play,
    Received,
    Rules,
    Turn,
)
from longrein.testing.scripted_model import ScriptedModel, call, check_rules, says
from longrein.testing.store import MemoryDisk
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace, Ran

__all__ = [
    "Approver",
    "Call",
    "Count",
    "Fault",
    "Limits",
    "LoopbackProvider",
    "MemoryDisk",
    "MemorySpawner",
    "MemoryWorkspace",
    "Play",
    "Ran",
    "Received",
    "Rules",
    "ScriptedModel",
    "Turn",
    "VirtualClock",
    "call",
    "check_rules",
    "memory_dependencies",
    "open_test_session",
    "results",
    "run_virtual",
    "said",
    "says",
    "story",
]

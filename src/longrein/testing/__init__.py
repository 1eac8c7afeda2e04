"""Doubles that behave like the real thing, shipped for our own tests and for users'. Importing this imports nothing.

`longrein.testing.loopback`   a provider on loopback: four wires, their rules enforced, scripts, faults, its own process
`longrein.testing.model`      `ScriptedModel`, `ChaosModel`, and `StrictRules`, which judges neutral requests
`longrein.testing.clock`      `VirtualClock`, and `run_virtual`: an event loop that jumps to the next timer
`longrein.testing.store`      `MemoryDisk` and `MemoryLog`: a log that can be killed after any entry
`longrein.testing.workspace`  `MemoryWorkspace` and `MemorySpawner`: files in a dict, commands from a table
`longrein.testing.approver`   `Approver`: a frontend that answers permission requests by a table
`longrein.testing.faults`     `FaultPlan`: which faults a seed chooses
"""

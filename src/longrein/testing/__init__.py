"""Doubles that behave like the real thing, shipped for our own tests and for users'. Importing this imports nothing.

`longrein.testing.loopback`   a provider on loopback: four wires, their rules enforced, scripts, faults, its own process
`longrein.testing.harness`      `open_test_session`: a whole session in memory, put together from the parts below
`longrein.testing.scripted_model`      `ScriptedModel` with `says` and `call`
`longrein.testing.chaos`      `ChaosModel`: everything a model may do, drawn from a seed
`longrein.testing.scripted_model`      `check_rules`: what every provider demands, checked on the neutral request
`longrein.testing.clock`      `VirtualClock`, and `run_virtual`: an event loop that jumps to the next timer
`longrein.testing.store`      `MemoryDisk` and `MemoryLog`: a log that can be killed after any transaction
`longrein.testing.workspace`  `MemoryWorkspace` and `MemorySpawner`: files in a dict, commands from a table
`longrein.testing.harness`   `Approver`: a frontend that answers permission requests by a table
`longrein.testing.chaos`     `FaultPlan`: what goes wrong between longrein and its provider, drawn from a seed
"""

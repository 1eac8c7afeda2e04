"""Test doubles for longrein's tests and for users' tests. Importing this package imports no module of it.

`longrein.testing.harness`         `open_test_session`: a whole session in memory, built from the doubles below.
                                   `Approver`: a frontend that answers permission requests from a table
`longrein.testing.scripted_model`  `ScriptedModel` with `says` and `call`. `check_rules`: rules of every provider
`longrein.testing.chaos`           `ChaosModel`: random valid model behaviour. `FaultPlan`: random provider faults
`longrein.testing.clock`           `VirtualClock`, and `run_virtual`: an event loop that jumps to the next timer
`longrein.testing.store`           `MemoryDisk` and `MemoryLog`: a log that can be killed after any transaction
`longrein.testing.workspace`       `MemoryWorkspace` and `MemorySpawner`: files in a dict, commands from a table
`longrein.testing.supervisor`      `MemorySupervision`: background commands without processes
`longrein.testing.loopback`        a local HTTP provider: four wires, their rules enforced, scripts and faults
"""

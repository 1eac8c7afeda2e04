"""The supervisor: one small process per session, the parent of all its commands.

It outlives longrein, so a background task runs on and its exit code is known. The kernel tells it of longrein's death,
so nothing else runs on. It uses the standard library only and starts in some 25 ms, beside other work.

`_signal` and `_socket` replace `signal` and `socket`, whose enums are slow to build: a start takes 19.4 ms of CPU
instead of 25.7 (Python 3.11, median of 25). The supervisor imports only its own modules and
`longrein.atomic_file`, so no other code meets the private ones.

Processes are found by a mark in their environment, by their session, and as children of the sub-reaper. A PID namespace
would be stricter and is not used: many machines withhold the rights for it, and commands would see other process
numbers, another /proc and another pid 1 than the user (`kill`, `gdb -p`, pid files, locks).
"""

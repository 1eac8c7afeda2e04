"""The supervisor: one small process per session that is the parent of every command.

It outlives longrein, so that a kept task goes on and its true exit code is known; and it is told of longrein's death by
the kernel, so that nothing else goes on. Standard library only: it starts in some 25 ms beside whatever goes on.

`_signal` and `_socket` stand for `signal` and `socket`, whose enums are what is dear: 19.4 ms of CPU for a start in
place of 25.7 (Python 3.11, median of 25). The supervisor is a process of its own that imports nothing but its own
modules, so nobody else meets the private ones.

What holds its processes together is a mark in their environment, the session of each, and its being their sub-reaper.
A PID namespace would hold them tighter and is not used: it needs rights that many machines withhold, and commands would
see other process numbers, another /proc and another pid 1 than the user does (`kill`, `gdb -p`, pid files, locks).
"""

"""The supervisor: one small process per session that is the parent of every command.

It outlives longrein, so that a kept task goes on and its true exit code is known; and it is told of longrein's death by
the kernel, so that nothing else goes on. Standard library only: it starts in some 25 ms beside whatever goes on.

What holds its processes together is a mark in their environment, the session of each, and its being their sub-reaper.
A PID namespace would hold them tighter and is not used: it needs rights that many machines withhold, and commands would
see other process numbers, another /proc and another pid 1 than the user does (`kill`, `gdb -p`, pid files, locks).
"""

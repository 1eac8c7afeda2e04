"""The supervisor: one small process per session, the parent of all its commands.

It outlives longrein, so a background task runs on and its exit code is known. The kernel tells it
of longrein's death, so nothing else runs on. It uses the standard library only and starts in some
25 ms, beside other work.

It imports only its own modules and `longrein.atomic_file`.

Processes are found by a mark in their environment, by their session, and as children of the
sub-reaper. A PID namespace would be stricter and is not used: many machines withhold the rights for
it, and commands would see other process numbers, another /proc and another pid 1 than the user
(`kill`, `gdb -p`, pid files, locks).
"""

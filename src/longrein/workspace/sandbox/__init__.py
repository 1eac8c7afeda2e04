"""Sandbox of commands, best rung first: bubblewrap, Landlock with seccomp, none."""

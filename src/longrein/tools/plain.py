"""Which commands plainly only read, so that they may run side by side. For scheduling; permission never asks this."""

READERS = frozenset(
    (
        "ls",
        "cat",
        "head",
        "tail",
        "wc",
        "grep",
        "rg",
        "sleep",
        "true",
        "echo",
        "pwd",
        "date",
        "stat",
        "which",
        "du",
        "df",
    )
)
"""Commands that change nothing, whatever their plain arguments (but for `CHANGERS`)."""
GIT_READERS = frozenset(("status", "log", "diff", "show"))
"""Subcommands of git that change nothing."""
CHANGERS = ("--output", "--pre", "--ext-diff", "--textconv", "--set", "date -s", "--hostname-bin")
"""What makes a reader write, or run something else."""
SPECIAL = frozenset(';&|<>$(){}*?[]~#!\\`\n\r\0"')
"""Characters that make a shell do more than pass words on."""


def reads_only(command: str) -> bool:
    """Whether `command` is plain words, or words in single quotes, and its program stands in the table."""
    pieces = command.split("'")
    if len(pieces) % 2 == 0 or not SPECIAL.isdisjoint("".join(pieces[::2])):
        return False
    words = command.split()
    if not words or any(changer in command for changer in CHANGERS):
        return False
    return words[0] in READERS or (words[0] == "git" and not GIT_READERS.isdisjoint(words[1:2]))

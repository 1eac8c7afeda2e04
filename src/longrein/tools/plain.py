"""Which commands of one reply may run side by side, and which plainly only read. For scheduling; permission never
asks this.

A command is looked at as words, wherever they stand: a word in quotes that is called like a program that writes makes
the command wait for its turn, which costs time and nothing else.
"""

import re

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


LENGTH_MAX = 20_000
"""Characters of a command that is looked at; a longer one runs alone."""
WRITERS = frozenset(
    (
        "mv", "rm", "mkdir", "rmdir", "cp", "ln", "touch", "tee", "dd", "install", "truncate", "shred", "unlink",
        "chmod", "chown", "chgrp", "patch", "rsync", "scp", "wget", "tar", "zip", "unzip", "gzip", "gunzip", "venv",
        "virtualenv", "sponge", "mktemp", "mkfifo", "kill", "pkill", "killall", "dpkg", "rpm", "pacman", "-delete",
    )
)  # fmt: skip
"""Programs that change files or end processes, so that the commands around them must keep their order."""
PACKAGERS = frozenset(
    (
        "pip", "pip3", "pipx", "uv", "poetry", "pdm", "conda", "mamba", "npm", "yarn", "pnpm", "bun", "npx", "cargo",
        "go", "gem", "bundle", "composer", "apt", "apt-get", "dnf", "yum", "apk", "zypper", "brew", "snap", "nix",
        "mix", "dotnet", "mvn", "gradle",
    )
)  # fmt: skip
"""Package managers: they write unless they only run, build, test or list."""
INSTALLING = frozenset(
    (
        "install", "i", "ci", "add", "remove", "rm", "uninstall", "update", "upgrade", "sync", "lock", "get", "fetch",
        "mod", "tidy", "init", "new", "create", "link", "publish", "restore", "dedupe", "prune", "clean", "autoremove",
        "purge", "download", "vendor", "deps.get",
    )
)  # fmt: skip
"""What a package manager is told when it writes; `yarn` alone installs."""
GIT_LOOKS = GIT_READERS | frozenset(
    (
        "blame", "grep", "ls-files", "ls-tree", "ls-remote", "rev-parse", "rev-list", "describe", "shortlog",
        "cat-file", "merge-base", "name-rev", "for-each-ref", "show-ref", "check-ignore", "count-objects", "help",
    )
)  # fmt: skip
"""Further subcommands of git that change nothing."""
GIT_VALUED = frozenset(("-C", "-c", "--git-dir", "--work-tree", "--namespace"))
"""Options before git's subcommand that take the next word."""
IN_PLACE = {
    "sed": r"-[a-zA-Z]*i|--in-place",
    "gsed": r"-[a-zA-Z]*i|--in-place",
    "perl": r"-[a-zA-Z0]*i",
    "sort": r"-o|--output",
    "curl": r"-[a-zA-Z]*[oO]|--output|--remote-name",
}
"""Option with which a program writes a file that else only prints."""
SHELLS = frozenset(
    ("sh", "bash", "zsh", "dash", "ksh", "eval", "xargs", "ssh", "su", "sudo", "watch", "env", "timeout")
)
"""What may run its quoted words as a command."""
_WORDS = r"[^\s;&|()<>{}\"'`$\\]+"
_HARMLESS = r"(?:\d*|&)>{1,2}\s*(?:&\s*(?:\d+|-)|/dev/(?:null|stdout|stderr|tty)(?![\w/.-]))"
"""Redirects that write no file."""
_QUOTED = r"\\.|'[^']*'|\"(?:[^\"\\$`]|\\.)*\""
"""Text that a shell passes on as it is."""
_MOVES = r"(?:^|[^\w./-])(?:cd|pushd|popd)(?![\w.=-])"
_GOES = r"\s*cd\s+[\"']?[/~]"


def runs_beside(command: str) -> bool:
    """Whether other commands of the same reply may run beside it: it neither writes by git, a package manager, a
    program such as `mv` or a redirect, nor ends processes, as far as its words tell."""
    if len(command) > LENGTH_MAX:
        return False
    words = [word.rpartition("/")[2] for word in re.findall(_WORDS, command)]
    return not (_redirects(command, words) or _writes(words))


def _redirects(command: str, words: list[str]) -> bool:
    if ">" not in command:
        return False
    plain = command if not SHELLS.isdisjoint(words) else re.sub(_QUOTED, "", command)
    return ">" in re.sub(_HARMLESS, "", plain)


def _writes(words: list[str]) -> bool:
    there = set(words)
    if not there.isdisjoint(WRITERS) or any(word.startswith(CHANGERS) for word in there):
        return True
    if not there.isdisjoint(PACKAGERS) and (words[-1] == "yarn" or not there.isdisjoint(INSTALLING)):
        return True
    if any(name in there and any(re.match(option, word) for word in there) for name, option in IN_PLACE.items()):
        return True
    return any(word == "git" and _git_writes(words[at + 1 :]) for at, word in enumerate(words))


def _git_writes(words: list[str]) -> bool:
    before = ""
    for word in words:
        if not word.startswith("-") and before not in GIT_VALUED:
            return word not in GIT_LOOKS
        before = word
    return False


def leaves_folder(command: str) -> bool:
    """Whether the shell may end in another folder than it began in, where later commands then begin."""
    return re.search(_MOVES, command) is not None


def chooses_folder(command: str) -> bool:
    """Whether it goes to an absolute folder first, so that it does not matter where it begins."""
    return re.match(_GOES, command) is not None


def reads_only(command: str) -> bool:
    """Whether `command` is plain words, or words in single quotes, and its program stands in the table."""
    pieces = command.split("'")
    if len(pieces) % 2 == 0 or not SPECIAL.isdisjoint("".join(pieces[::2])):
        return False
    words = command.split()
    if not words or any(changer in command for changer in CHANGERS):
        return False
    return words[0] in READERS or (words[0] == "git" and not GIT_READERS.isdisjoint(words[1:2]))

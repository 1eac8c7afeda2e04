"""Who of a tree of agents wrote what: names the writer of a change, so that nobody's own work is told as a stranger's.

It is known in this process only; what it does not know, or no longer, is somebody else's.
"""

import msgspec

PATHS_MAX = 4_000
CONTENTS_MAX = 16
"""Contents of one path that are remembered, the latest."""
WORDS_CHARS_MAX = 48
"""Of a command's line, to name it."""


class Writer(msgspec.Struct, frozen=True):
    """An agent, or a command of one."""

    label: str
    """Of the subagent; '' for the session of the user."""
    command: str = ""
    """First words of the command that did it; '' when the agent did it by itself."""

    def seen_by(self, label: str) -> tuple[str, str]:
        """(`by`, `who`) of a `FileChanged` in the log of agent `label`."""
        if self.label == label:
            return ("command", self.command) if self.command else ("agent", "")
        name = self.label or "main"
        return "subagent", f"{name} ({self.command})" if self.command else name

    def words(self, label: str) -> str:
        """How agent `label` is told of it."""
        if self.label == label:
            return f"your command ({self.command})" if self.command else "an edit of yours"
        agent = f"subagent {self.label}" if self.label else "the main agent"
        return f"a command of {agent} ({self.command})" if self.command else agent


class Writers:
    """What the agents of a tree wrote, and which commands of theirs run now."""

    def __init__(self) -> None:
        self._wrote: dict[str, dict[str, Writer]] = {}
        self._running: dict[str, Writer] = {}

    def note(self, path: str, digest: str, writer: Writer) -> None:
        """`path` (real) got this content from `writer`."""
        contents = self._wrote.pop(path, {})
        contents.pop(digest, None)
        contents[digest] = writer
        self._wrote[path] = contents
        if len(contents) > CONTENTS_MAX:
            del contents[next(iter(contents))]
        if len(self._wrote) > PATHS_MAX:
            del self._wrote[next(iter(self._wrote))]

    def of(self, path: str, digest: str) -> Writer | None:
        """Who wrote this content there; None when it was no agent of this tree, as far as is known."""
        return self._wrote.get(path, {}).get(digest)

    def begin(self, call: str, writer: Writer) -> None:
        """A command begins to run that may change files."""
        self._running[f"{writer.label} {call}"] = writer

    def end(self, call: str, label: str) -> None:
        """It has ended."""
        self._running.pop(f"{label} {call}", None)

    def running(self, label: str) -> tuple[Writer, ...]:
        """Commands of other agents than `label` that run now."""
        return tuple(writer for writer in self._running.values() if writer.label != label)


def first_words(command: str) -> str:
    """A command's line, short enough to name it."""
    line = " ".join(command.split())
    return line if len(line) <= WORDS_CHARS_MAX else line[: WORDS_CHARS_MAX - 1] + "…"

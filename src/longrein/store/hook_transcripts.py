"""Files beside the log for hooks: a readable copy of the conversation, and files into which
hooks write variables.
"""

import os
from contextlib import suppress
from itertools import count


class HookFiles:
    """The files of one session and its subagents."""

    def __init__(self, folder: str) -> None:
        """`folder`: that of the session."""
        self._folder = folder
        self.env_folder = os.path.join(os.path.realpath(folder), "hook-env")
        """Folder of the files for variables, which confined hooks may change."""
        self._numbers = count(1)

    def append(self, label: str, data: bytes, anew: bool) -> str:
        """Append lines to the transcript of the session or, by its label, of a subagent; `anew`
        begins it again.

        Return its path, or '' where it cannot be written.
        """
        path = os.path.join(
            self._folder, f"transcript-{label}.jsonl" if label else "transcript.jsonl"
        )
        return path if _write(path, data, os.O_TRUNC if anew else os.O_APPEND) else ""

    def new_env_file(self) -> str:
        """Make an empty file for the variables of one hook; return its path, '' where it cannot
        be made.
        """
        with suppress(OSError):
            os.makedirs(self.env_folder, 0o700, exist_ok=True)
        path = os.path.join(self.env_folder, f"{os.getpid()}-{next(self._numbers)}.sh")
        return path if _write(path, b"", os.O_TRUNC) else ""

    def has_content(self, path: str) -> bool:
        """Return True if a hook has written into the file."""
        try:
            return os.lstat(path).st_size > 0
        except OSError:
            return False

    def remove(self, path: str) -> None:
        """Remove a file for variables."""
        with suppress(OSError):
            os.unlink(path)


def _write(path: str, data: bytes, how: int) -> bool:
    try:
        descriptor = os.open(
            path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | how, 0o600
        )
        with open(descriptor, "wb") as file:
            file.write(data)
    except OSError:
        return False
    return True

"""The file `transcript.jsonl` beside the log: a readable copy of the conversation for hooks."""

import os
from collections.abc import Callable


def transcript_in(folder: str) -> Callable[[str, bytes, bool], str]:
    """Return a function that appends lines to the transcript of a session or, by its label, of a subagent.

    It returns the path, or '' where the file cannot be written.
    """

    def append(label: str, data: bytes, anew: bool) -> str:
        path = os.path.join(folder, f"transcript-{label}.jsonl" if label else "transcript.jsonl")
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_TRUNC if anew else os.O_APPEND)
        try:
            descriptor = os.open(path, flags, 0o600)
        except OSError:
            return ""
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
        except OSError:
            return ""
        return path

    return append

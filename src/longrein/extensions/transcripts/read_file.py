"""Read the transcript file of another agent, line by line, within limits."""

import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.events import LongreinError, decode_json, is_too_deep
from longrein.extensions.transcripts import claude_code, codex
from longrein.extensions.transcripts.log_builder import LogBuilder, Transcript

FILE_BYTES_MAX = 1024 * 1024 * 1024
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is skipped and counted."""


class Format(Protocol):
    """A module that reads the transcripts of one agent."""

    AGENT: str

    def is_transcript(self, lines: Sequence[Mapping[str, Any]], /) -> bool: ...

    def describe(self, lines: Sequence[Mapping[str, Any]], /) -> tuple[str, str]: ...

    def read(
        self, lines: Sequence[Mapping[str, Any]], builder: LogBuilder, found: Transcript, /
    ) -> None: ...


FORMATS: tuple[Format, ...] = (codex, claude_code)


class TranscriptUnknown(LongreinError):
    """The file is no transcript that longrein can read."""


def read_lines(path: str) -> tuple[list[dict[str, Any]], int]:
    """Return the JSON objects in a file, one a line, and the number of lines that are none.

    Raises `LongreinError` when the file cannot be read.
    """
    lines: list[dict[str, Any]] = []
    bad = 0
    try:
        with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise LongreinError(f"{path} is not a file; name a transcript or a bundle")
            if status.st_size > FILE_BYTES_MAX:
                raise LongreinError(
                    f"{path} has {status.st_size:,} bytes; {FILE_BYTES_MAX:,} is the limit"
                )
            while raw := file.readline(LINE_BYTES_MAX):
                whole = raw.endswith(b"\n") or len(raw) < LINE_BYTES_MAX
                while not raw.endswith(b"\n") and (more := file.readline(LINE_BYTES_MAX)):
                    raw = more
                line = _decoded(raw) if whole else None
                if line is not None:
                    lines.append(line)
                elif raw.strip():
                    bad += 1
    except OSError as error:
        raise LongreinError(f"{path} cannot be read: {error.strerror}") from None
    return lines, bad


def _decoded(raw: bytes) -> dict[str, Any] | None:
    try:
        value = decode_json(raw)
    except msgspec.DecodeError:
        value = _decoded_loosely(raw)
    return value if isinstance(value, dict) else None


def _decoded_loosely(raw: bytes) -> Any:
    """Decode JSON with halves of surrogate pairs or bytes that are not UTF-8; None where that
    fails too.
    """
    import json

    try:
        value = json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    return None if is_too_deep(value) else value


def find_format(lines: Sequence[Mapping[str, Any]], path: str) -> Format:
    """Return the module that reads these lines. Raises `TranscriptUnknown`."""
    if not lines:
        raise TranscriptUnknown(
            f"{path} is empty, or holds no JSON object: it is no transcript and no bundle"
        )
    found = next((one for one in FORMATS if one.is_transcript(lines)), None)
    if found is None:
        raise TranscriptUnknown(
            f"{path} is no bundle of longrein (`longrein export ID --whole`) and no transcript of "
            "Claude Code or Codex"
        )
    return found

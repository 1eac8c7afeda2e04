"""Take over a session from a transcript of Claude Code or Codex."""

import asyncio
import os
import stat
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from longrein.agent import store_snapshot
from longrein.app.run_context import CLOCK, RunContext, kept_keys, new_nonce
from longrein.commands.import_session import imported_line
from longrein.config import known_secrets
from longrein.extensions.transcripts import claude_code, codex
from longrein.extensions.transcripts.log_builder import LogBuilder, Transcript
from longrein.steps.human_text import counted
from longrein.store import discard_empty, open_log
from longrein_context import fold
from longrein_context.events import (
    SCHEMA_VERSION,
    LongreinError,
    Opened,
    decode_json,
    is_too_deep,
    redactor,
)

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


NAMESPACE = uuid.UUID("a4f6d1b2-5c0e-4f43-9a55-3d6f0c1e7b90")
"""Names sessions whose transcript has no UUID."""


async def import_transcript(run_context: RunContext, path: str) -> str:
    """Import a transcript as a session; return the line about it. Raises `LongreinError`."""
    lines, bad = read_lines(path)
    form = find_format(lines, path)
    theirs, cwd = form.describe(lines)
    found = Transcript(form.AGENT, theirs, cwd, bad_lines=bad)
    session = _session_id(theirs, path)
    nonce = new_nonce()
    clean = redactor(
        (*known_secrets(run_context.environ, run_context.settings), *kept_keys(run_context)),
        nonce,
        run_context.settings.redact.patterns,
    )
    opened = Opened(SCHEMA_VERSION, session, nonce, tuple(run_context.roots), run_context.cwd)
    log = await open_log(run_context.state_dir, session, create=True, wall_us=CLOCK.wall_us)
    try:
        builder = LogBuilder(opened, log.put_blob, clean, found.taken)
        form.read(lines, builder, found)
        builder.end_turn()
        if not found.taken["message"] and not found.taken["reply"]:
            raise LongreinError(f"{path} holds no conversation")
        await asyncio.wrap_future(log.append(builder.entries, flush=True))
        await store_snapshot(log, fold(builder.entries))
    finally:
        await log.close()
        await discard_empty(run_context.state_dir, session, wall_us=CLOCK.wall_us)
    return imported_line(session, _what(found, path), run_context, cwd)


def _session_id(theirs: str, path: str) -> str:
    """Return the id of the new session: that of the transcript if it is a UUID, so that a second
    import is noticed.
    """
    try:
        return str(uuid.UUID(theirs))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, theirs or os.path.realpath(path)))


def _what(found: Transcript, path: str) -> str:
    taken = ", ".join(counted(number, what) for what, number in found.taken.items() if number)
    told = f"{taken} from {path} ({found.agent})"
    left = [counted(number, what) for what, number in found.left_out.items() if number]
    told += f". Not taken over: {', '.join([*left, 'token counts', 'signatures of thinking'])}"
    if found.bad_lines:
        told += f". Skipped: {counted(found.bad_lines, 'line')} that cannot be read"
    return told

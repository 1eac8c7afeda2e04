"""Take over a session from a transcript of Claude Code or Codex."""

import asyncio
import os
import uuid

from longrein.app.run_context import CLOCK, RunContext, kept_keys, new_nonce
from longrein.commands.import_session import imported_line
from longrein.config import known_secrets
from longrein.events import SCHEMA_VERSION, LongreinError, Opened, redactor
from longrein.extensions.transcripts.log_builder import LogBuilder, Transcript
from longrein.extensions.transcripts.read_file import find_format, read_lines
from longrein.steps.human_text import counted
from longrein.store import discard_empty, open_log

NAMESPACE = uuid.UUID("a4f6d1b2-5c0e-4f43-9a55-3d6f0c1e7b90")
"""Names sessions whose transcript has no UUID."""


async def import_transcript(place: RunContext, path: str) -> str:
    """Import a transcript as a session; return the line about it. Raises `LongreinError`."""
    lines, bad = read_lines(path)
    form = find_format(lines, path)
    theirs, cwd = form.describe(lines)
    found = Transcript(form.AGENT, theirs, cwd, bad_lines=bad)
    session = _session_id(theirs, path)
    nonce = new_nonce()
    clean = redactor(
        (*known_secrets(place.environ, place.settings), *kept_keys(place)),
        nonce,
        place.settings.redact.patterns,
    )
    opened = Opened(SCHEMA_VERSION, session, nonce, tuple(place.roots), place.cwd)
    log = await open_log(place.state_dir, session, create=True, wall_us=CLOCK.wall_us)
    try:
        builder = LogBuilder(opened, log.put_blob, clean, found.taken)
        form.read(lines, builder, found)
        builder.end_turn()
        if not found.taken["message"] and not found.taken["reply"]:
            raise LongreinError(f"{path} holds no conversation")
        await asyncio.wrap_future(log.append(builder.entries, flush=True))
    finally:
        await log.close()
        await discard_empty(place.state_dir, session, wall_us=CLOCK.wall_us)
    return imported_line(session, _what(found, path), place, cwd)


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

"""`longrein import FILE...`: take over a session from a bundle, or from a transcript of Claude
Code or Codex.
"""

import asyncio
import os
import stat
import uuid
from collections.abc import Sequence

from longrein.agent import resumed_state
from longrein.config import known_secrets
from longrein.context import neutralize_markers
from longrein.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Entry,
    LongreinError,
    ModeSet,
    Opened,
    Reminded,
    UsageError,
    marker,
    redactor,
)
from longrein.frontends.human_text import counted, escape_line
from longrein.frontends.stdio import say, show
from longrein.run_context import CLOCK, RunContext, kept_keys, new_nonce
from longrein.store import BundleReport, discard_empty, is_bundle, open_log, read_bundle
from longrein.transcripts.log_builder import LogBuilder, Transcript
from longrein.transcripts.read_file import find_format, read_lines

NAMESPACE = uuid.UUID("a4f6d1b2-5c0e-4f43-9a55-3d6f0c1e7b90")
"""Names sessions whose transcript has no UUID."""
SAFE_MODES = ("default", "plan", "dontAsk")
"""Permission modes that an imported session keeps; a bundle may come from anybody."""


def import_session(place: RunContext, words: Sequence[str]) -> int:
    """Import each file as a session that works in the current folder; 1 when one could not be."""
    code = 0
    for path in words:
        try:
            show(asyncio.run(_import(place, path)) + "\n")
        except UsageError:
            raise
        except LongreinError as error:
            say(str(error))
            code = 1
    return code


async def _import(place: RunContext, path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise LongreinError(f"{path} is not a file: name a bundle or a transcript")
        bundle = is_bundle(path)
    except OSError as error:
        raise LongreinError(f"{path} cannot be read: {error.strerror}") from None
    return await (_import_bundle if bundle else _import_transcript)(place, path)


# --- Bundles --------------------------------------------------------------------------------------


async def _import_bundle(place: RunContext, path: str) -> str:
    report = read_bundle(place.state_dir, path, place.roots)
    await _settle_in(place, report)
    parts = [counted(report.entries, "entry"), counted(report.blobs, "blob")]
    parts += [counted(report.subagents, "subagent")] * bool(report.subagents)
    return _done(report.session, f"{', '.join(parts)} from {path}", place, report.cwd)


async def _settle_in(place: RunContext, report: BundleReport) -> None:
    """Tell the model where the session works now, and take back a mode that lets calls run
    unasked.
    """
    log = await open_log(place.state_dir, report.session, create=False, wall_us=CLOCK.wall_us)
    try:
        state = resumed_state(log)
        told: list[AnyEvent] = [ModeSet("default")] if state.mode not in SAFE_MODES else []
        if report.cwd != place.cwd:
            head = (
                "this session was moved here from another machine or folder; it worked in the "
                "first folder below and "
                "works in the second one now. Files may differ: read again what you need"
            )
            was = neutralize_markers(" ".join(report.cwd.split()), state.nonce)
            text = f"{marker(state.nonce, 'session_moved', head)}\n{was}\n{place.cwd}"
            told.append(Reminded("session_moved", text, "import"))
        entries = [Entry(state.seq + n, CLOCK.wall_us(), event) for n, event in enumerate(told, 1)]
        if entries:
            await asyncio.wrap_future(log.append(entries, flush=True))
    finally:
        await log.close()


# --- Transcripts ----------------------------------------------------------------------------------


async def _import_transcript(place: RunContext, path: str) -> str:
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
    return _done(session, _what(found, path), place, cwd)


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


def _done(session: str, what: str, place: RunContext, cwd: str) -> str:
    elsewhere = f", not in {escape_line(cwd)} where it was" if cwd and cwd != place.cwd else ""
    return (
        f"imported {session}: {what}. It works in {place.cwd}{elsewhere}; go on with `longrein "
        f"-r {session}`"
    )

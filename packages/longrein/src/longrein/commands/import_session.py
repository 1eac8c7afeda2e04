"""`longrein import FILE...`: take over a session from a bundle, or by an importer of an extension
from a file of another program.
"""

import asyncio
import os
import stat
from collections.abc import Sequence

from longrein.agent import resumed_state, store_snapshot
from longrein.app.run_context import CLOCK, RunContext
from longrein.config import door_points
from longrein.extension_points import IMPORTERS_DOOR, absent_extensions
from longrein.frontends.stdio import say, show
from longrein.steps.human_text import counted, escape_line
from longrein.store import BundleReport, is_bundle, open_log, read_bundle
from longrein_context import neutralize_markers, step
from longrein_context.events import (
    AnyEvent,
    Entry,
    LongreinError,
    ModeSet,
    Reminded,
    UsageError,
    marker,
)

SAFE_MODES = ("default", "plan", "dontAsk")
"""Permission modes that an imported session keeps; a bundle may come from anybody."""


def import_session(run_context: RunContext, words: Sequence[str]) -> int:
    """Import each file as a session that works in the current folder; 1 when one could not be."""
    code = 0
    for path in words:
        try:
            show(asyncio.run(_import(run_context, path)) + "\n")
        except UsageError:
            raise
        except LongreinError as error:
            say(str(error))
            code = 1
    return code


async def _import(run_context: RunContext, path: str) -> str:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise LongreinError(f"{path} is not a file: name a bundle or a transcript")
        bundle = is_bundle(path)
    except OSError as error:
        raise LongreinError(f"{path} cannot be read: {error.strerror}") from None
    return await (_import_bundle if bundle else _import_foreign)(run_context, path)


async def _import_foreign(run_context: RunContext, path: str) -> str:
    """Import a file of another program by the first importer that can, those of plugins first."""
    problem: LongreinError | None = None
    for point in reversed(door_points(IMPORTERS_DOOR, run_context.settings.plugins)):
        try:
            told: str = await point.load()(run_context, path)
        except LongreinError as error:
            problem = problem or error
            continue
        if told:
            return told
    if problem is not None:
        raise problem
    why = "; the extension transcripts, which reads those of other agents, is not installed here"
    absent = why if "transcripts" in absent_extensions() else ""
    raise LongreinError(f"{path} is no bundle of longrein (`longrein export ID --whole`){absent}")


# --- Bundles --------------------------------------------------------------------------------------


async def _import_bundle(run_context: RunContext, path: str) -> str:
    report = read_bundle(run_context.state_dir, path, run_context.roots)
    await _settle_in(run_context, report)
    parts = [counted(report.entries, "entry"), counted(report.blobs, "blob")]
    parts += [counted(report.subagents, "subagent")] * bool(report.subagents)
    return imported_line(report.session, f"{', '.join(parts)} from {path}", run_context, report.cwd)


async def _settle_in(run_context: RunContext, report: BundleReport) -> None:
    """Tell the model where the session works now, and take back a mode that lets calls run
    unasked.
    """
    log = await open_log(run_context.state_dir, report.session, create=False, wall_us=CLOCK.wall_us)
    try:
        state = resumed_state(log)
        told: list[AnyEvent] = [ModeSet("default")] if state.mode not in SAFE_MODES else []
        if report.cwd != run_context.cwd:
            head = (
                "this session was moved here from another machine or folder; it worked in the "
                "first folder below and "
                "works in the second one now. Files may differ: read again what you need"
            )
            was = neutralize_markers(" ".join(report.cwd.split()), state.nonce)
            text = f"{marker(state.nonce, 'session_moved', head)}\n{was}\n{run_context.cwd}"
            told.append(Reminded("session_moved", text, "import"))
        entries = [Entry(state.seq + n, CLOCK.wall_us(), event) for n, event in enumerate(told, 1)]
        if entries:
            await asyncio.wrap_future(log.append(entries, flush=True))
        for entry in entries:
            state = step(state, entry)
        await store_snapshot(log, state)
    finally:
        await log.close()


def imported_line(session: str, what: str, run_context: RunContext, cwd: str) -> str:
    """Return the line about an imported session, which worked in the folder `cwd`."""
    elsewhere = (
        f", not in {escape_line(cwd)} where it was" if cwd and cwd != run_context.cwd else ""
    )
    return (
        f"imported {session}: {what}. It works in {run_context.cwd}{elsewhere}; go on with "
        f"`longrein -r {session}`"
    )

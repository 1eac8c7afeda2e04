"""`longrein acp`: serve an editor by the Agent Client Protocol."""

import asyncio
import os
from collections.abc import Sequence
from importlib.util import find_spec

from longrein import __version__
from longrein.agent.extension_part import AskUser
from longrein.app import Additions, Composition, build
from longrein.app.run_context import (
    CLOCK,
    RunContext,
    chosen_model,
    discard_unused,
    fork,
    model_names,
    read_run_context,
)
from longrein.commands.doctor import doctor as run_doctor
from longrein.context import next_compacted, report
from longrein.events import Image, SessionBusy, UsageError
from longrein.extensions.acp.host_port import (
    CustomCommand,
    SessionFacts,
    SessionRequest,
    StoredSession,
)
from longrein.extensions.acp.json_lines import take_standard_streams
from longrein.frontends.reports.context import as_text
from longrein.frontends.stdio import say
from longrein.options import Options
from longrein.store import delete_session, list_sessions
from longrein.tools.editor_services import Editor
from longrein.workspace import spooled_tasks

FILE_BYTES_MAX = 1_000_000
"""Part of a file that is read for a diff in the editor."""


def acp(place: RunContext, _words: Sequence[str] = (), *, doctor: bool = False) -> int:
    """Serve the editor on stdin and stdout until it closes them; return the exit code."""
    if doctor:
        return run_doctor(place)
    if find_spec("acp") is None:
        raise UsageError(
            "`longrein acp` needs the package agent-client-protocol: install longrein with it, "
            "such as pip install 'longrein[acp]'"
        )
    if os.isatty(0):
        say(
            "`longrein acp` is started by an editor (docs/editors.md); it waits for one here, "
            "Ctrl-C ends it"
        )
    incoming, outgoing = take_standard_streams()
    from longrein.extensions.acp.agent_methods import serve

    return asyncio.run(serve(SessionHost(place), incoming, outgoing))


class SessionHost:
    """Opens, finds, copies and deletes sessions for the editor (see `host.Host`)."""

    version = __version__
    mcp_transports: Sequence[str] = ("http", "sse")

    def __init__(self, place: RunContext) -> None:
        self._place = place

    async def open(self, request: SessionRequest, session: str, editor: Editor) -> SessionFacts:
        options = Options(state_dir=self._place.state_dir, add_dirs=request.folders)
        place = read_run_context(options, folder=request.cwd)
        additions = Additions(
            editor=editor,
            mcp_servers=request.mcp_servers,
            servers_source="editor",
            asks_user=True,
            answers_permissions=True,
        )
        built = await build(place, session, fresh=not session, additions=additions)
        return _facts(place, built)

    def stored(self) -> Sequence[StoredSession]:
        infos = [info for info in list_sessions(self._place.state_dir) if info.title]
        return [
            StoredSession(info.session, info.cwd, info.title, info.updated_at) for info in infos
        ]

    async def fork(self, session: str) -> str:
        return await fork(self._place, session)

    async def delete(self, session: str) -> None:
        info = next(
            (info for info in list_sessions(self._place.state_dir) if info.session == session), None
        )
        if info is not None and any(task.state == "running" for task in spooled_tasks(info.folder)):
            raise SessionBusy(
                f"session {session} has background tasks that still run; stop them first"
            )
        await delete_session(self._place.state_dir, session, wall_us=CLOCK.wall_us)

    def check_model(self) -> None:
        """See `Host.check_model`: settings are read anew, as the user may just have changed
        them.
        """
        chosen_model(read_run_context(self._place.options, folder=self._place.cwd))


def _facts(place: RunContext, built: Composition) -> SessionFacts:
    deps = built.deps
    session = built.session
    log = built.log

    def file_text(path: str) -> str | None:
        try:
            found = deps.workspace.resolve(path, session.state.cwd)
            data = deps.workspace.read(found.real, FILE_BYTES_MAX) if found.kind == "file" else None
        except OSError:
            return None
        return None if data is None else data.decode("utf-8", "replace")

    def context_lines() -> Sequence[str]:
        budget = deps.model.budget
        return as_text(
            report(session.state, budget, next_compacted(session.state, budget))
        ).splitlines()

    def custom_commands() -> Sequence[CustomCommand]:
        found = session.skills.all() if session.skills is not None else ()
        return [(one.name, one.description, one.argument_hint) for one in found if one.for_user]

    def elicit(ask: AskUser) -> None:
        for part in deps.extension_parts:
            part.let_user_answer(ask)

    async def after_close() -> None:
        await built.finish()
        await discard_unused(place, session.id, said=bool(session.state.words or session.pending))

    return SessionFacts(
        port=session,
        model=lambda: deps.model.name,
        models=lambda: model_names(place, deps.model.name),
        window_tokens=lambda: deps.model.budget.window_tokens,
        notes=built.notes,
        keep_image=lambda data, media: Image(log.put_blob(data), media, len(data)),
        keep_blob=log.put_blob,
        read_blob=log.read_blob,
        file_text=file_text,
        context_lines=context_lines,
        custom_commands=custom_commands,
        elicit=elicit,
        after_close=after_close,
    )

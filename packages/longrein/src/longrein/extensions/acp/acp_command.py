"""`longrein acp`: serve an editor by the Agent Client Protocol."""

import asyncio
import os
from collections.abc import Sequence
from importlib.util import find_spec

import msgspec

from longrein.app import App
from longrein.app.run_context import RunContext
from longrein.commands.doctor import doctor as run_doctor
from longrein.extensions.acp.json_lines import take_standard_streams
from longrein.frontends.stdio import say
from longrein_context.events import UsageError


def acp(run_context: RunContext, _words: Sequence[str] = (), *, doctor: bool = False) -> int:
    """Serve the editor on stdin and stdout until it closes them; return the exit code."""
    if doctor:
        return run_doctor(run_context)
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

    app = App(msgspec.structs.replace(run_context, is_interactive=True), say)
    return asyncio.run(serve(app, incoming, outgoing))

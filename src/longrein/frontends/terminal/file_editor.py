"""Open a file in the user's editor, with the terminal handed over to it."""

import os
import shlex
from subprocess import call

from prompt_toolkit.application import run_in_terminal

from longrein.frontends.terminal.conversation import Conversation

DEFAULT_EDITOR = "vi"


async def open_in_editor(conversation: Conversation, path: str) -> None:
    """Run `$VISUAL`, `$EDITOR` or vi on `path`; the session goes on meanwhile. A failure becomes a notice."""
    environ = conversation.facts.commands.environ
    words = shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or DEFAULT_EDITOR)
    failed: list[str] = []

    def run() -> None:
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            call([*words, path])
        except OSError as error:
            failed.append(f"{words[0]} cannot be started ({error.strerror}): set $EDITOR; the file is {path}")

    app = conversation.screen.app
    if app.is_running and app.context is not None:
        await app.context.copy().run(run_in_terminal, run, False, True)
    for text in failed:
        conversation.notice(text)
    conversation.request_redraw()

"""The user's editor, with the terminal handed over to it."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from prompt_toolkit.application import run_in_terminal

from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.external_editor import EditorError, edit_file, editor_command

T = TypeVar("T")


async def with_editor(conversation: Conversation, act: Callable[[Sequence[str]], T]) -> T | None:
    """Call `act` with the words of the editor while the terminal is its own; the session goes on
    meanwhile.

    A failure becomes a notice, and None is returned.
    """
    app = conversation.screen.app
    if not app.is_running or app.context is None:
        return None
    try:
        command = editor_command(conversation.opened.app.context.environ)

        def run() -> T:
            with conversation.keyboard_paused():
                return act(command)

        return await app.context.copy().run(run_in_terminal, run, False, True)
    except EditorError as error:
        conversation.notice(str(error))
        return None


async def open_in_editor(conversation: Conversation, path: str) -> None:
    """Let the user edit the file `path`, which need not exist yet."""
    await with_editor(conversation, lambda command: edit_file(command, path))
    conversation.request_redraw()

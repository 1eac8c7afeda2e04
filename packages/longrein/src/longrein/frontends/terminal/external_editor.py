"""Edit the input (Ctrl-G) or a file in the user's editor."""

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from prompt_toolkit.application import run_in_terminal

from longrein.frontends.terminal.conversation import Conversation

USUAL = ("sensible-editor", "editor", "nano", "vim", "vi", "emacs")
"""Editors to look for where no variable names one."""


class EditorError(Exception):
    """Reason why the input could not be edited, in one line."""


def editor_command(environ: Mapping[str, str]) -> Sequence[str]:
    """Return the words of `$VISUAL`, `$EDITOR` or the first usual editor. Raises `EditorError`."""
    for name in ("VISUAL", "EDITOR"):
        if value := environ.get(name, "").strip():
            try:
                words = shlex.split(value)
            except ValueError:
                raise EditorError(f"${name} cannot be read as a command: {value}") from None
            if words and shutil.which(words[0], path=environ.get("PATH")) is None:
                raise EditorError(f"${name} names {words[0]}, which is not there")
            if words:
                return words
    found = next((name for name in USUAL if shutil.which(name, path=environ.get("PATH"))), "")
    if not found:
        raise EditorError("no editor was found; set $EDITOR, such as EDITOR=nano")
    return (found,)


def edit_file(command: Sequence[str], path: str) -> None:
    """Let the user edit a file, which need not exist yet. Blocks; raises `EditorError`."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.call([*command, path])
    except OSError as error:
        why = error.strerror or error
        raise EditorError(
            f"{command[0]} cannot be started ({why}): set $EDITOR; the file is {path}"
        ) from None


def edit_text(command: Sequence[str], text: str) -> str:
    """Let the user edit `text` in a file that only they can read. Blocks; raises `EditorError`."""
    path = ""
    try:
        handle, path = tempfile.mkstemp(prefix="longrein-", suffix=".md")
        with open(handle, "wb") as file:
            file.write(text.encode("utf-8", "replace"))
        code = subprocess.call([*command, path])
        if code:
            raise EditorError(f"{command[0]} ended with code {code}; the input is as it was")
        with open(path, "rb") as file:
            return file.read().decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
    except OSError as error:
        raise EditorError(f"the input could not be edited: {error.strerror or error}") from None
    finally:
        with suppress(OSError):
            os.unlink(path)


# --- The terminal handed over ---------------------------------------------------------------------


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

"""Inputs with a prefix: `#TEXT` adds a line to a file of instructions, which later sessions read
at their start; `!COMMAND` runs a command of the user.
"""

import asyncio
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein.agent import CommandRun
from longrein.atomic_file import replace_file
from longrein.frontends.argv import find_command
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import Line, line, notice_line, user_command_lines
from longrein.frontends.terminal.view_model import CallRow
from longrein.steps.human_text import escape_line
from longrein_context.events import LongreinError, UsageError

if TYPE_CHECKING:
    from longrein.frontends.terminal.conversation import Conversation

FILE_BYTES_MAX = 1024 * 1024
TEXT_CHARS_MAX = 4_000
NAMES = ("project", "user")
"""Names of the files on the plain terminal, in the order in which they are given."""


def is_memory_line(text: str) -> bool:
    """Return True for `#` and text in one line; `## heading`, `#123` and several lines are a
    message.
    """
    words = text[1:].strip()
    return (
        text.startswith("#")
        and bool(words)
        and text[1] != "#"
        and not text[1].isdigit()
        and "\n" not in words
    )


def is_command_line(text: str) -> bool:
    """Return True for a command line of longrein, such as `longrein sessions`."""
    words = text.split()
    if words[:1] != ["longrein"] or "\n" in text.strip():
        return False
    if len(words) == 1 or words[1].startswith("-"):
        return True
    try:
        return find_command(words[1]) is not None
    except UsageError:  # of an installed package that cannot be loaded
        return True


def memory_rows(files: Sequence[tuple[str, str]]) -> list[Row]:
    """Return a row for each (label, path) that a text can be added to."""
    return [
        Row(path, label, path if os.path.exists(path) else f"{path} (new)") for label, path in files
    ]


def remember(path: str, text: str) -> str:
    """Add `text` as an item at the end of the file and return the line that says so. Raises
    `UsageError`.
    """
    text = text.removeprefix("#").strip()[:TEXT_CHARS_MAX].encode("utf-8", "replace").decode()
    try:
        real = os.path.realpath(path)
        old = b""
        if os.path.exists(real):
            if not os.path.isfile(real) or os.path.getsize(real) > FILE_BYTES_MAX:
                raise UsageError(f"nothing was added: {path} is no file of instructions")
            with open(real, "rb") as file:
                old = file.read()
        mode = os.stat(real).st_mode & 0o777 if old else 0o644
        os.makedirs(os.path.dirname(real), exist_ok=True)
        gap = b"" if not old or old.endswith(b"\n") else b"\n"
        replace_file(real, [old, gap, f"- {text}\n".encode()], durable=True, mode=mode)
    except OSError as error:
        raise UsageError(f"nothing was added to {path}: {error.strerror or error}") from None
    return f"added to {path}: {text}; sessions read it at their start"


def note_lines(files: Sequence[tuple[str, str]], text: str) -> list[Line]:
    """Answer `#TEXT` on the plain terminal: the choices as lines to type; for `#project: TEXT`
    what was added where.
    """
    rows = dict(zip(NAMES, memory_rows(files), strict=False))
    name, colon, note = text[1:].strip().partition(":")
    if colon and name in rows and note.strip():
        try:
            return [notice_line(remember(rows[name].value, note), done=True)]
        except UsageError as error:
            return [notice_line(str(error))]
    if not rows:
        return [notice_line("there is no file of instructions that this could be added to")]
    return [
        line(
            f"#{name}: {escape_line(text[1:].strip())}",
            ("dim", f"  {row.label}: {escape_line(row.note)}"),
        )
        for name, row in rows.items()
    ]


def is_user_command(text: str) -> bool:
    """Return True for `!` and a command."""
    return text.startswith("!") and bool(text[1:].strip())


class UserCommands:
    """Commands of the user that run now."""

    def __init__(self, conversation: "Conversation") -> None:
        self._conversation = conversation
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._last = 0

    def run(self, command: str) -> None:
        """Start `command` in the session."""
        conversation = self._conversation
        self._last += 1
        call = f"user-{self._last}"
        conversation.view.user_commands[call] = CallRow(
            "!", command, None, [], status="running", since_s=conversation.mono_s()
        )
        conversation.view.commands_shown.append(command)
        task = asyncio.get_running_loop().create_task(self._run(command, call))
        self._tasks[call] = task
        conversation.request_redraw()

    async def _run(self, command: str, call: str) -> None:
        conversation = self._conversation
        shown: Sequence[Line] = ()
        try:
            ran: CommandRun = await conversation.session.run_command(command, call)
            shown = user_command_lines(command, ran.output, ran.status)
        except LongreinError as error:
            conversation.view.commands_shown.remove(command)
            conversation.notice(f"!{escape_line(command)}: {error}")
        finally:
            conversation.view.user_commands.pop(call, None)
            self._tasks.pop(call, None)
        conversation.show(conversation.view.spaced("answer", shown))

    def stop(self) -> bool:
        """Stop the newest command; False when none runs."""
        if not self._tasks:
            return False
        self._tasks[list(self._tasks)[-1]].cancel()
        return True

"""Commands that the user runs with `!` on the screen: their rows while they run, and Esc, which
stops the newest.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from longrein.agent import CommandRun
from longrein.events import LongreinError
from longrein.frontends.terminal.event_lines import Line, user_command_lines
from longrein.frontends.terminal.view_model import CallRow
from longrein.steps.human_text import escape_line

if TYPE_CHECKING:
    from longrein.frontends.terminal.conversation import Conversation


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

    async def stop_all(self) -> None:
        """Stop every command and wait for their ends."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)

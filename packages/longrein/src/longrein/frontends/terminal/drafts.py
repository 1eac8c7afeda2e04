"""The unsent input, kept in a file so that a crash or an exit does not lose it.

Each process has a file of its own, beside those of other processes in the same folder. A start
takes over the newest file whose process is gone.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from longrein.atomic_file import replace_file
from longrein_context.events import AnyPart, Text
from longrein_context.events.escape import whole_number

if TYPE_CHECKING:
    from longrein.frontends.terminal.conversation import Conversation

SAVE_S = 1.0
"""Seconds between two writes at least."""
DRAFT_BYTES_MAX = 4 * 1024 * 1024


class Draft(msgspec.Struct, frozen=True):
    """Text of the input, and the long pastes that it names."""

    text: str = ""
    pastes: tuple[str, ...] = ()


class DraftFile:
    """The file of one process."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        """`path`: name for the folder that is worked in; the files are `PATH.PID`. '' keeps
        nothing.
        """
        self._base = path
        self._path = f"{path}.{pid or os.getpid()}" if path else ""
        self._saved = Draft()

    def save(self, draft: Draft) -> None:
        """Write the draft, with mode 0600; an empty one removes the file. Errors of the disk are
        ignored.
        """
        if not self._path or draft == self._saved:
            return
        self._saved = draft
        with suppress(OSError):
            if draft.text.strip():
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                replace_file(self._path, [msgspec.json.encode(_encodable(draft))], durable=False)
            else:
                os.unlink(self._path)

    def take_over(self, is_alive: Callable[[int], bool] | None = None) -> Draft:
        """Return the newest draft of a process that is gone, as this process's own; an empty one
        without any.
        """
        if not self._base:
            return Draft()
        alive = is_alive or _is_alive
        folder, name = os.path.split(self._base)
        left: list[tuple[float, str]] = []
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                start, _, pid = entry.name.rpartition(".")
                owner = whole_number(pid)
                if start == name and owner and entry.path != self._path and not alive(owner):
                    left.append((entry.stat(follow_symlinks=False).st_mtime, entry.path))
        for _, path in sorted(left, reverse=True)[:1]:
            draft = _read(path)
            self.save(draft)
            with suppress(OSError):
                os.unlink(path)
            return draft
        return Draft()


def _encodable(draft: Draft) -> Draft:
    def clean(text: str) -> str:
        return text.encode("utf-8", "replace").decode()

    return Draft(clean(draft.text), tuple(map(clean, draft.pastes)))


def _read(path: str) -> Draft:
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(DRAFT_BYTES_MAX), type=Draft)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return Draft()


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


ESCAPE_AGAIN = "Esc again goes back to an earlier prompt"
"""Hint after an Esc that did nothing."""


def message_parts(conversation: "Conversation", text: str) -> Sequence[AnyPart]:
    """Return a message with the files and pictures that it names; files that cannot be attached
    are said.
    """
    attached = conversation.opened.attachments().read(text)
    for note in attached.notes:
        conversation.notice(note)
    return (Text(text), *attached.parts, *conversation.pictures.named_in(text))


def restore_draft(conversation: "Conversation") -> None:
    """Put the draft that an earlier process left into the input; it stays on disk when something
    is typed already.
    """
    if conversation.buffer.text:
        return
    draft = conversation.drafts.take_over()
    if draft.text:
        conversation.pastes.restore(draft.pastes)
        conversation.buffer.insert_text(draft.text)
        conversation.warn("what you had typed is back")


def save_draft_later(conversation: "Conversation") -> None:
    """Write the draft within a second; calls until then add nothing."""
    if conversation.draft_timer is None:
        conversation.draft_timer = asyncio.get_running_loop().call_later(
            SAVE_S, save_draft, conversation
        )


def save_draft(conversation: "Conversation") -> None:
    """Write the draft now."""
    if conversation.draft_timer is not None:
        conversation.draft_timer.cancel()
        conversation.draft_timer = None
    conversation.drafts.save(
        Draft(conversation.draft_text, conversation.pastes.named_in(conversation.draft_text))
    )

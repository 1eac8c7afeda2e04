"""The unsent message of a conversation: what goes with it when it is sent, and its draft on
disk.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from longrein.events import AnyPart, Text
from longrein.frontends.terminal.drafts import SAVE_S, Draft

if TYPE_CHECKING:
    from longrein.frontends.terminal.conversation import Conversation

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

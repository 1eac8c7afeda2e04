"""Actions of the input: search, editor, rewind list, pictures, commands and notes of the user,
drafts.
"""

import os
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from longrein.frontends.localization import translate
from longrein.frontends.terminal import external_editor
from longrein.frontends.terminal.choice_list import Chooser, Row
from longrein.frontends.terminal.clipboard import clipboard_image
from longrein.frontends.terminal.command_actions import run_command
from longrein.frontends.terminal.command_table import BY_NAME, ParsedCommand
from longrein.frontends.terminal.drafts import ESCAPE_AGAIN
from longrein.frontends.terminal.event_lines import Line, crop, line
from longrein.frontends.terminal.external_editor import with_editor
from longrein.frontends.terminal.input_completion import Pastes, ProjectHistory
from longrein.frontends.terminal.input_prefixes import memory_rows, remember
from longrein.steps.human_text import escape_line
from longrein_context.events import UsageError
from longrein_context.events.escape import one_line

if TYPE_CHECKING:
    from longrein.frontends.terminal.conversation import Conversation

# --- History --------------------------------------------------------------------------------------


FILES_MAX = 50
"""Other folders whose newest messages are searched."""
ROWS_MAX = 5_000


def sent_messages(history: str) -> list[Row]:
    """Return the messages of the file `history`, newest first, then those of the other files in
    its folder.
    """
    rows: dict[str, Row] = {}
    for path, folder in _files(history):
        for text in ProjectHistory(path).load_history_strings():
            if len(rows) >= ROWS_MAX:
                return list(rows.values())
            if text.strip():
                rows.setdefault(text, Row(text, one_line(text), folder))
    return list(rows.values())


def _files(history: str) -> Iterator[tuple[str, str]]:
    """Yield the files of messages with a word for their folder; '' for this one."""
    if not history:
        return
    yield history, ""
    folder, others = os.path.dirname(history), []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.path != history and entry.is_file(follow_symlinks=False):
                others.append((entry.stat().st_mtime, entry.path))
    for _, path in sorted(others, reverse=True)[:FILES_MAX]:
        yield path, os.path.basename(path)[-40:]


class HistorySearch(Chooser):
    """A list of messages that what is typed narrows: each word must occur."""

    def __init__(self, rows: list[Row], typed: str = "") -> None:
        super().__init__("search what was sent", rows)
        self.type(typed)

    def searched_text(self, row: Row) -> str:
        return row.label

    def draw(self, width: int, height: int) -> list[Line]:
        """The search line, then the list in at most `height` rows."""
        title = translate(self.title)
        head = line(("bold", f"{title}: "), ("you", escape_line(self.query)), ("dim", "▏"))
        if not self.rows:
            none = (
                "nothing that was sent matches; Esc leaves"
                if self.every
                else "nothing was sent yet; Esc leaves"
            )
            return [crop(head, width), crop(line(("dim", f"  {translate(none)}")), width)]
        return [crop(head, width), *super().draw(width, height)[1:]]


def search_history(conversation: "Conversation") -> None:
    """Ctrl-R: search what was sent; what is typed already is searched first."""
    if isinstance(conversation.chooser, HistorySearch):
        conversation.chooser.move(1)
    if conversation.chooser is not None or conversation.feedback is not None:
        return
    rows = sent_messages(conversation.history_file)
    conversation.open_chooser(
        HistorySearch(rows, conversation.buffer.text), lambda text: _take(conversation, text)
    )


def _take(conversation: "Conversation", text: str) -> None:
    if text:
        conversation.buffer.reset()
        conversation.edit(text)
        conversation.buffer.cursor_position = len(conversation.buffer.text)


# --- Editor ---------------------------------------------------------------------------------------


def open_editor(conversation: "Conversation") -> None:
    """Ctrl-G: edit the input in the user's editor."""
    if conversation.chooser is None:
        conversation.spawn(_edit(conversation))


async def _edit(conversation: "Conversation") -> None:
    buffer = conversation.buffer
    text = conversation.pastes.expand(buffer.text)
    edited = await with_editor(
        conversation, lambda command: external_editor.edit_text(command, text)
    )
    if edited is not None and edited != text:
        buffer.text = edited
        buffer.cursor_position = len(edited)
    conversation.request_redraw()


# --- Rewind ---------------------------------------------------------------------------------------


def rewind_on_second_escape(conversation: "Conversation") -> None:
    """Esc Esc on an idle screen without text: open the list of prompts to go back to."""
    if conversation.session.busy or conversation.buffer.text or not conversation.view.prompts:
        return
    if conversation.escaped:
        conversation.flash = ""
        run_command(conversation, ParsedCommand(BY_NAME["rewind"], "rewind", ""))
    else:
        conversation.warn(ESCAPE_AGAIN)


# --- Pictures and pastes --------------------------------------------------------------------------


def paste(conversation: "Conversation", text: str) -> None:
    """Insert a paste: of pictures' paths their marks, of a long text its mark."""
    marks = conversation.pictures.fold(text)
    conversation.buffer.insert_text(f"{marks} " if marks else conversation.pastes.fold(text))


def paste_image(conversation: "Conversation") -> None:
    """Ctrl-V: insert the picture that the clipboard holds."""
    conversation.spawn(_paste_image(conversation))


async def _paste_image(conversation: "Conversation") -> None:
    opened = conversation.opened
    environ = opened.app.context.environ
    data, problem = await opened.in_thread(lambda: clipboard_image(environ))
    image = opened.attachments().image_of(data) if data else None
    if image is None:
        conversation.warn(problem or "the clipboard holds no picture that a model can view")
        return
    conversation.buffer.insert_text(conversation.pictures.add("clipboard.png", image) + " ")
    conversation.request_redraw()


def mark_before(conversation: "Conversation") -> int:
    """Return the length of the mark before the cursor, which Backspace deletes as a whole; 0
    without one.
    """
    text = conversation.buffer.document.text_before_cursor
    return Pastes.token_before(text) or conversation.pictures.mark_before(text)


# --- Notes to remember ----------------------------------------------------------------------------


def choose_memory_file(conversation: "Conversation", text: str) -> None:
    """Let the user choose the file of instructions that `#TEXT` is added to. The input keeps the
    text until then.
    """
    rows = memory_rows(conversation.opened.app.note_files())
    if not rows:
        conversation.notice("there is no file of instructions that this could be added to")
        return

    def chosen(path: str) -> None:
        try:
            said = remember(path, text)
        except UsageError as error:
            conversation.notice(str(error))
            return
        conversation.buffer.history.append_string(text)
        conversation.buffer.reset()
        conversation.notice(said, done=True)

    conversation.choose("remember this in which file?", rows, chosen)

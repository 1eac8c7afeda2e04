"""Open pages from the conversation: the last results, an entry, a whole question; and pin the
todo list.
"""

import asyncio
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from prompt_toolkit.application import in_terminal
from prompt_toolkit.input.typeahead import get_typeahead

from longrein.frontends.localization import translate
from longrein.frontends.terminal.approvals import Approval
from longrein.frontends.terminal.command_types import Outcome
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.event_lines import Line, line
from longrein.frontends.terminal.page_view import Page, PageView
from longrein.frontends.terminal.terminal_input import TerminalInput
from longrein.steps.human_text import counted
from longrein_context.events import LongreinError

if TYPE_CHECKING:
    from longrein.frontends.terminal.pager import Pager

HANGUP_CODE = 129
Answering = Callable[[Conversation, str], None]
"""Answers the question on the screen with a key."""


def open_last(conversation: Conversation, answer: Answering) -> None:
    """Ctrl-O: open the question on the screen, else the last results, thinking and diffs."""
    if (
        conversation.approval is not None
        and conversation.screen.panel_has_focus
        and conversation.chooser is None
    ):
        open_question(conversation, answer)
    else:
        from longrein.frontends.terminal.entry_pages import last_page

        conversation.spawn(_open_read(conversation, last_page))


async def _open_read(
    conversation: Conversation, read: Callable[[Any], Page | str], above: "Pager | None" = None
) -> None:
    """Read a page from the log and open it, above the page of `above` if that is still open;
    else say why not.
    """
    try:
        found = await conversation.opened.read_history(read)
    except LongreinError as error:
        conversation.warn(str(error))
        return
    if isinstance(found, str):
        conversation.warn(found)
    elif above is not None and conversation.pager is above:
        above.push(found)
    elif above is None:
        open_page(conversation, found)


def open_page(conversation: Conversation, page: Page) -> None:
    """Show `page` on the whole screen. Enter on a subagent opens its transcript."""
    from longrein.frontends.terminal.pager import Pager

    def open_handle(handle: str) -> None:
        from longrein.frontends.terminal.entry_pages import shown_page

        conversation.spawn(_open_read(conversation, lambda past: shown_page(past, handle), pager))

    pager = Pager(
        PageView(page),
        answers=lambda: _waiting(conversation),
        open_handle=open_handle,
    )
    _show(conversation, pager)


def _waiting(conversation: Conversation) -> Line:
    """A hint for the last row while a question waits below the page."""
    return (
        line(("warn", translate("a question waits; q goes back to it")))
        if conversation.view.questions
        else ()
    )


def open_question(conversation: Conversation, answer: Answering) -> None:
    """Show the whole question with its answers. They count once the page has been visible for a
    while, and a yes once all that it allows was drawn.
    """
    from longrein.frontends.terminal.pager import Pager

    approval = conversation.approval
    if approval is None or approval.form is not None:
        return
    opened_s = conversation.mono_s()

    def is_ready() -> bool:
        return conversation.mono_s() - opened_s >= conversation.guard.quiet_s

    def take(key: str) -> bool:
        if key != " " and conversation.swallows(key):
            conversation.swallow(key)
            return True
        row = approval.answers.by_key(key)
        if row is None:
            return False
        unseen = approval.lines_unseen(row.value)
        if unseen:
            lines = translate(counted(unseen, "line"))
            view.message = translate(f"not shown yet: {lines}; Space goes on")
            pager.update()
        elif is_ready() and conversation.approval is approval:
            pager.close()
            conversation.guard.released()
            answer(conversation, key)
        return True

    view = PageView(approval.whole, approval.drawn, approval.lines_above)
    pager = Pager(
        view,
        answers=lambda: _answers(approval, is_ready()),
        answer=take,
    )
    _show(conversation, pager, approval)


def _answers(approval: Approval, ready: bool) -> Line:
    style = "you" if ready else "dim"
    spans = [
        (style, choice.value + " ", translate(choice.short or choice.label))
        for choice in approval.answers.rows
    ]
    return line(*(span for key, name, label in spans for span in ((key, f" {name}"), label + " ")))


def _show(conversation: Conversation, pager: "Pager", approval: Approval | None = None) -> None:
    app = conversation.screen.app
    if conversation.pager is not None or not app.is_running or app.context is None:
        return
    conversation.pager, conversation.paged_approval = pager, approval
    app.context.copy().run(conversation.spawn, _run(conversation, pager, approval))


async def _run(conversation: Conversation, pager: "Pager", approval: Approval | None) -> None:
    app, screen = conversation.screen.app, conversation.screen
    ready = asyncio.get_running_loop().call_later(
        conversation.guard.quiet_s, pager.update
    )  # the keys of a question count from then on
    try:
        lent = app.input.lent() if isinstance(app.input, TerminalInput) else nullcontext()
        with lent:
            async with in_terminal():
                await pager.run(app.output, screen.style, colour=conversation.colour)
        app.key_processor.feed_multiple(get_typeahead(app.input))  # read along with the last key
        app.key_processor.process_keys()
    except (EOFError, OSError):  # the terminal is gone
        conversation.leave(Outcome("exit", code=HANGUP_CODE))
    finally:
        ready.cancel()
        conversation.pager = conversation.paged_approval = None
        if approval is not None:
            conversation.guard.released()
        else:  # a question that came up meanwhile has not been seen
            conversation.guard.typed(conversation.buffer.text, conversation.mono_s())
        conversation.redraw()


# --- The todo list --------------------------------------------------------------------------------


def toggle_todos(conversation: Conversation) -> None:
    """Ctrl-T: pin the todo list above the input, or unpin it."""
    conversation.todos_pinned = not conversation.todos_pinned
    if conversation.todos_pinned and not conversation.session.state.todos:
        conversation.warn(
            "the todo list is empty; it is shown here as soon as the model writes one"
        )
    conversation.redraw()

"""Key bindings of the input and of the panel (questions and lists), and job control."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition, FilterOrBool
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

from longrein.agent import Continue, SetMode
from longrein.frontends.terminal import input_actions
from longrein.frontends.terminal.answering import ENTER, begins_word
from longrein.frontends.terminal.approvals import ALL_EDITS, form_answer
from longrein.frontends.terminal.approvals import answer as answer_for
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.command_actions import (
    background,
    edit_last_queued,
    request_exit,
    run_command,
)
from longrein.frontends.terminal.command_table import next_mode, parse
from longrein.frontends.terminal.command_types import KEEP, Outcome
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.input_prefixes import (
    is_command_line,
    is_memory_line,
    is_user_command,
)
from longrein.frontends.terminal.keymap import chosen_keys, keymap
from longrein.frontends.terminal.page_openers import open_last, open_question, toggle_todos
from longrein.frontends.terminal.view_model import EMPTY
from longrein.steps.human_text import escape_line
from longrein_context.events.escape import one_line

Action = Callable[[Conversation], None]


def bind_keys(conversation: Conversation) -> KeyBindings:
    """Global keys and keys of the input."""
    keys = KeyBindings()
    buffer = conversation.buffer
    completing = Condition(
        lambda: bool(buffer.complete_state and buffer.complete_state.current_completion)
    )
    waiting = Condition(lambda: not buffer.text and any(conversation.session.pending))
    vim_normal = Condition(
        lambda: conversation.screen.vim_mode == "NORMAL" and not conversation.screen.panel_has_focus
    )
    vim_insert = Condition(
        lambda: conversation.screen.vim_mode not in ("", "NORMAL") and _types(conversation)
    )
    swallowing = Condition(lambda: conversation.swallows(_key_at_hand(conversation)))
    keys.add(Keys.Any, filter=swallowing, eager=True)(
        lambda _: conversation.swallow(_key_at_hand(conversation))
    )
    add = partial(_bind, keys, conversation)
    add(stop, "c-c")
    add(stop, "<sigint>")
    add(_escape, "escape", when=~vim_insert)
    add(_ctrl_d, "c-d")
    add(_take_completion, "enter", when=completing)
    add(enter, "enter", when=~completing)
    add(_complete, "tab")
    add(_backspace, "backspace", when=~vim_normal)
    add(edit_last_queued, "up", when=waiting)
    keys.add(Keys.BracketedPaste)(lambda event: input_actions.paste(conversation, event.data))
    actions: dict[str, tuple[Action, FilterOrBool]] = {
        "steer": (partial(enter, into_turn=True), True),
        "background": (background, True),
        "new_line": (lambda conversation: conversation.buffer.insert_text("\n"), True),
        "next_mode": (_next_mode, True),
        "history_search": (input_actions.search_history, ~vim_normal),
        "editor": (input_actions.open_editor, True),
        "paste_image": (input_actions.paste_image, ~vim_normal),
        "open_results": (partial(open_last, answer=press), True),
        "pin_todos": (toggle_todos, True),
        "redraw": (lambda conversation: conversation.screen.app.renderer.clear(), True),
        "suspend": (suspend, True),
    }
    for name, sequences in keymap(chosen_keys(conversation.opened.app.context.settings))[0].items():
        for sequence in sequences:
            add(actions[name][0], *sequence, when=actions[name][1])
    return keys


def _key_at_hand(conversation: Conversation) -> str:
    """Return the key that is being handled, as a letter or Enter; '' for any other."""
    waiting = conversation.screen.app.key_processor.key_buffer
    key = waiting[-1].key if waiting else ""
    return ENTER if key == Keys.ControlM else str(key)


def _types(conversation: Conversation) -> bool:
    """Return True if keys go into the text of the input."""
    return not conversation.screen.panel_has_focus and not conversation.buffer.complete_state


def bind_panel_keys(conversation: Conversation) -> KeyBindings:
    """Keys of a question or a list, active while the panel has the focus."""
    keys = KeyBindings()
    choosing = Condition(lambda: conversation.chooser is not None)
    add = partial(_bind, keys, conversation)
    ready = ~choosing & Condition(lambda: conversation.question_is_ready)
    alone = ready & Condition(lambda: not conversation.guard.held)
    add(_print_question, "e", when=alone)
    add(partial(open_question, answer=press), "v", when=alone)
    asking = ready & Condition(
        lambda: conversation.approval is not None and conversation.approval.form is not None
    )
    add(_take_marked, "enter", when=ready)
    keys.add(Keys.Any, filter=~choosing)(lambda event: press(conversation, event.data))
    add(lambda conversation: conversation.close_chooser(chosen=True), "enter", when=choosing)
    keeping = Condition(lambda: conversation.chooser is not None and conversation.chooser.keeps)
    add(
        lambda conversation: conversation.close_chooser(chosen=True, word=KEEP), "c-s", when=keeping
    )
    _bind_search_keys(conversation, keys)
    for key, rows, pages in (("up", -1, 0), ("down", 1, 0), ("pageup", 0, -1), ("pagedown", 0, 1)):
        add(partial(_move, rows=rows, pages=pages), key)
    for key, rows in (("left", -1), ("right", 1)):
        add(partial(_move, rows=rows, pages=0), key, when=~choosing)
    add(partial(_move, rows=0, pages=1), " ", when=alone)
    add(_toggle_option, " ", when=asking & alone)
    return keys


def _bind_search_keys(conversation: Conversation, keys: KeyBindings) -> None:
    """Add the keys that narrow a list."""
    choosing = Condition(lambda: conversation.chooser is not None)

    def type_text(text: str) -> None:
        if conversation.chooser is not None and text.isprintable():
            conversation.chooser.type(text)
            conversation.redraw()

    def erase() -> None:
        if conversation.chooser is not None:
            conversation.chooser.erase()
            conversation.redraw()

    keys.add(Keys.Any, filter=choosing)(lambda event: type_text(event.data))
    keys.add(" ", filter=choosing)(lambda _: type_text(" "))
    keys.add("backspace", filter=choosing)(lambda _: erase())
    keys.add(Keys.BracketedPaste, filter=choosing)(lambda event: type_text(one_line(event.data)))


def _bind(
    keys: KeyBindings,
    conversation: Conversation,
    act: Action,
    *names: str,
    when: FilterOrBool = True,
) -> None:
    keys.add(*names, filter=when)(lambda event: act(conversation))  # noqa: ARG005 - the event is not needed


# --- Questions and lists --------------------------------------------------------------------------


def press(conversation: Conversation, key: str) -> None:
    """Handle a key at the question: an answer or an option, else the beginning of a text."""
    approval = conversation.approval
    if approval is None or not key.isprintable():
        return
    guard = conversation.guard
    guard.other_key()
    text = guard.take_held() + key
    row = approval.row_by_key(text[0])
    is_answer = len(text) == 1 or begins_word(text)
    if row is None or not is_answer or not conversation.question_is_ready:
        _start_typing(conversation, text)
    elif guard.hold_s:
        guard.held = text
        asyncio.get_running_loop().call_later(guard.hold_s, _take_held, conversation, text)
    else:
        take_row(conversation, row, key)


def _take_held(conversation: Conversation, held: str) -> None:
    """Answer with the first of the keys `held`, if the guard still holds just them."""
    approval = conversation.approval
    if not held or held != conversation.guard.held or approval is None:
        return
    key = conversation.guard.take_held()[0]
    if (row := approval.row_by_key(key)) is not None:
        take_row(conversation, row, key)


def take_row(conversation: Conversation, row: Row, pressed: str = "") -> None:
    """Answer with `row`. One that allows more than this call is only marked by a key; Enter takes
    it. `pressed`: the key; '' for Enter.
    """
    approval = conversation.approval
    if approval is None:
        return
    if approval.form is not None and row in approval.form.options.rows:
        approval.form.choose(row)
        submit_form(conversation, pressed)
    elif approval.form is not None and row.value == "o":
        answer_in_words(conversation)
    elif row.widens and pressed:
        approval.answers.mark(row)
        conversation.redraw()
    else:
        answer(conversation, row.value, pressed)


def _take_marked(conversation: Conversation) -> None:
    """Enter: answer with the marked row, or with all marked options."""
    if held := conversation.guard.held:
        _take_held(conversation, held)
        return
    approval = conversation.approval
    if approval is not None and approval.form is not None:
        approval.form.confirm()
        submit_form(conversation)
    elif approval is not None and (row := approval.answers.marked) is not None:
        take_row(conversation, row)


def answer(conversation: Conversation, key: str, pressed: str = "") -> None:
    """Answer the question with the row `key`; `f` lets the user type a reason.

    A yes to what was not drawn whole opens the question first.
    """
    if conversation.approval is None:
        return
    if conversation.approval.lines_unseen(key):
        conversation.guard.answered(pressed, conversation.mono_s())
        open_question(conversation, press)
        return
    question = conversation.approval.question
    if key == "f":
        conversation.begin_denial_reason(question)
    elif message := answer_for(question, key):
        if key == ALL_EDITS:
            conversation.tell(SetMode("acceptEdits"))
        conversation.submit_answer(question, message, pressed)
    conversation.redraw()


def _toggle_option(conversation: Conversation) -> None:
    """Mark or unmark the option that the arrows are at, where several may be chosen."""
    if (approval := conversation.approval) is not None and (form := approval.form) is not None:
        form.toggle()
        conversation.redraw()


def submit_form(conversation: Conversation, pressed: str = "") -> None:
    """Send the answers once all questions have one. `pressed`: the key that has answered."""
    approval = conversation.approval
    if approval is None or approval.form is None:
        return
    if approval.form.is_done:
        message = form_answer(approval.question, approval.form)
        conversation.submit_answer(approval.question, message, pressed)
    elif not approval.form.takes_several:
        conversation.guard.answered(pressed, conversation.mono_s())
    conversation.redraw()


def answer_in_words(conversation: Conversation) -> None:
    """Let the user write an answer to the model's question."""
    approval = conversation.approval
    if approval is not None and approval.form is not None:
        approval.form.writing = True
        conversation.begin_denial_reason(approval.question)
        conversation.redraw()


def _start_typing(conversation: Conversation, text: str) -> None:
    """Move a key that is no answer, and the focus, to the input."""
    if text.isprintable():
        conversation.guard.typed(conversation.buffer.text, conversation.mono_s())
        if not conversation.buffer.text:
            conversation.guard.begun = "ready"
        conversation.buffer.insert_text(text)
        conversation.screen.focus(panel=False)
        conversation.redraw()  # the keys of the question no longer look as if they counted


def _print_question(conversation: Conversation) -> None:
    """Print the whole question into the scrollback, for the terminal's own scrolling."""
    if conversation.approval is not None:
        conversation.show([EMPTY, *conversation.approval.content])
        conversation.redraw()


def send_denial_reason(conversation: Conversation, text: str) -> None:
    """Deny with the reason `text`, or answer the model's question in these words."""
    question, approval = conversation.feedback, conversation.approval
    conversation.end_denial_reason()
    if approval is not None and approval.form is not None and approval.form.writing:
        approval.form.writing = False
        if text:
            approval.form.say(text)
        submit_form(conversation)
        return
    if question is not None and (message := answer_for(question, "f", text)):
        conversation.submit_answer(question, message)
    conversation.redraw()


def _cancel_denial_reason(conversation: Conversation) -> None:
    """Return to the question, which can be answered at once."""
    if conversation.approval is not None and conversation.approval.form is not None:
        conversation.approval.form.writing = False
    conversation.end_denial_reason()
    conversation.guard.released()
    conversation.redraw()


def _move(conversation: Conversation, rows: int, pages: int) -> None:
    if conversation.chooser is not None:
        conversation.chooser.move(rows + 10 * pages)
    elif conversation.approval is not None and conversation.approval.form is not None:
        conversation.approval.choice_list.move(rows + pages)
    elif conversation.approval is not None:
        conversation.approval.answers.move(rows)
        conversation.approval.scroll(conversation.approval.page * pages)


# --- Stopping -------------------------------------------------------------------------------------


def stop(conversation: Conversation) -> None:
    """Ctrl-C: stop what runs; a second one leaves.

    At the question about running tasks it leaves too, and each task's own policy applies.
    """
    in_panel = conversation.chooser is not None or conversation.feedback is not None
    if conversation.leaving is not None:
        conversation.leave(conversation.leaving)
    elif conversation.warned and not in_panel and not conversation.buffer.text:
        request_exit(conversation, Outcome("exit"))
    else:
        if not cancel_current(conversation):
            conversation.buffer.reset()
        conversation.warn("Ctrl-C again leaves; the session is kept")


def cancel_current(conversation: Conversation) -> bool:
    """Close the list or question, or interrupt; False when there was nothing to do."""
    conversation.guard.take_held()
    if conversation.chooser is not None:
        conversation.close_chooser(chosen=False)
    elif conversation.feedback is not None:
        _cancel_denial_reason(conversation)
    elif conversation.user_commands.stop():
        pass
    elif conversation.session.busy:
        conversation.session.interrupt()
    elif conversation.subagent_question_has_focus:
        answer(conversation, "n")
    else:
        return False
    return True


def _escape(conversation: Conversation) -> None:
    if conversation.buffer.complete_state:
        conversation.buffer.cancel_completion()
    elif conversation.give_keys():
        pass
    elif (
        conversation.subagent_question_has_focus
        and conversation.feedback is None
        and conversation.chooser is None
    ):
        answer(conversation, "n")  # denies this call only; the subagent and the turn continue
    elif not cancel_current(conversation):
        input_actions.rewind_on_second_escape(conversation)


def _ctrl_d(conversation: Conversation) -> None:
    if conversation.buffer.text:
        conversation.buffer.delete()
    else:
        request_exit(conversation, Outcome("exit"))


# --- Sending and editing --------------------------------------------------------------------------


def enter(conversation: Conversation, *, into_turn: bool = False) -> None:
    """Send the input, run it as a command, or use it as the reason of a denial.

    `into_turn`: send it with the next request of the running turn.
    """
    buffer = conversation.buffer
    text = buffer.text
    if conversation.feedback is not None:
        send_denial_reason(conversation, conversation.pastes.expand(text).strip())
    elif text.endswith("\\") and not into_turn:
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif is_memory_line(text):
        input_actions.choose_memory_file(conversation, text.strip())
    elif conversation.guard.ends_answer(text.strip()):
        buffer.reset()
    elif text.strip() and _is_for_question(conversation, text):
        pass
    elif text.strip():
        buffer.reset()
        conversation.screen.reset_vim_mode()
        send(conversation, text.strip("\n").rstrip(), into_turn=into_turn)
    elif conversation.session.state.turn_open and not conversation.session.busy:
        conversation.tell(Continue())


def _is_for_question(conversation: Conversation, text: str) -> bool:
    """Take a line that was begun at the question, or reads as an answer: as the answer, or ask
    back. False for one that is to be sent.
    """
    approval, guard = conversation.approval, conversation.guard
    opened = conversation.opened
    if approval is None or conversation.asked_back == text or is_user_command(text):
        return False
    if parse(text, opened.known_skills(), opened.slash_commands()):
        return False
    begun, conversation.asked_back = guard.begun, text
    row = approval.row_by_line(text)
    if row is not None and begun == "ready":
        conversation.buffer.reset()
        take_row(conversation, row)
    elif row is not None or begun:
        answers = approval.answers_text()
        conversation.warn(f"Enter again sends this; the question takes {answers}")
    else:
        return False
    return True


def send(conversation: Conversation, text: str, *, into_turn: bool = False) -> None:
    """Run a text as a command, else send it to the model."""
    opened = conversation.opened
    if typed := parse(text, opened.known_skills(), opened.slash_commands()):
        conversation.buffer.history.append_string(text)
        run_command(conversation, typed)
    elif is_user_command(text):
        conversation.buffer.history.append_string(text)
        conversation.user_commands.run(conversation.pastes.expand(text)[1:].strip())
    elif is_command_line(text) and conversation.asked_back != text:
        conversation.asked_back = text
        conversation.notice(
            f"this is a command line: `!{escape_line(text)}` runs it here; the same line again "
            "goes to the model"
        )
        if not conversation.reads_lines:
            conversation.edit(text)
    else:
        conversation.say(text, steer=into_turn)


def _next_mode(conversation: Conversation) -> None:
    if conversation.buffer.complete_state:
        conversation.buffer.complete_previous()
    else:
        view = conversation.view
        view.mode_wanted = next_mode(view.mode_wanted or conversation.session.state.mode)
        view.silent_modes.add(view.mode_wanted)
        conversation.tell(SetMode(view.mode_wanted))
        conversation.request_redraw()


def _complete(conversation: Conversation) -> None:
    """Tab: take the marked row of the menu, else the first one; nothing is sent."""
    buffer = conversation.buffer
    state = buffer.complete_state
    if state and state.completions:
        if state.current_completion is None:
            buffer.go_to_completion(0)
        buffer.complete_state = None
    else:
        conversation.spawn(_complete_first(conversation.buffer))


async def _complete_first(buffer: Buffer) -> None:
    """Take the first completion, also while the completions of the last key are not there yet."""
    document = buffer.document
    event = CompleteEvent(completion_requested=True)
    found = [
        completion async for completion in buffer.completer.get_completions_async(document, event)
    ]
    if found and buffer.document == document:
        buffer.complete_state = CompletionState(document, found)
        buffer.go_to_completion(0)
        buffer.complete_state = None


def _take_completion(conversation: Conversation) -> None:
    """Enter: take the marked row of the menu; send where the word was whole before."""
    buffer = conversation.buffer
    state, buffer.complete_state = buffer.complete_state, None
    taken = state.current_completion if state else None
    is_whole = state is not None and state.original_document.text.rstrip() == buffer.text.rstrip()
    if taken is not None and taken.text and is_whole:
        enter(conversation)


def _backspace(conversation: Conversation) -> None:
    buffer = conversation.buffer
    buffer.delete_before_cursor(input_actions.mark_before(conversation) or 1)
    if buffer.text.startswith("/") or "@" in buffer.text:
        buffer.start_completion()


# --- Job control ----------------------------------------------------------------------------------
#
# Only this process stops. Commands continue: they and their supervisor are in process sessions of
# their own.


def suspend(conversation: Conversation) -> None:
    """Restore the terminal and stop the job of this process until `fg`."""
    app = conversation.screen.app
    if os.getsid(0) == os.getpid():
        conversation.warn("Ctrl-Z: longrein was not started from a shell that could bring it back")
    elif app.is_running and app.context is not None:
        app.context.copy().run(run_in_terminal, partial(_stop_job, conversation))


def _stop_job(conversation: Conversation) -> None:
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        with conversation.keyboard_paused():
            os.kill(0, signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


def enter_raw_mode(conversation: Conversation) -> None:
    """Enter raw mode again after a stop that could not be caught, as the shell has changed the
    terminal.
    """
    app = conversation.screen.app
    with suppress(termios.error, OSError):  # the terminal is gone
        if app.is_running and termios.tcgetattr(sys.stdin.fileno())[3] & termios.ICANON:
            # the exit of the raw mode that `app` entered restores the terminal
            app.input.raw_mode().__enter__()
            app.renderer.reset()
            conversation.request_redraw()

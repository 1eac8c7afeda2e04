"""What each key does, at the input and at a question or list."""

import asyncio
import os
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from longrein.agent import GoOn, SetMode
from longrein.frontends.terminal.approvals import answer as answer_for
from longrein.frontends.terminal.command_actions import background, edit_last_queued, request_exit, run_command
from longrein.frontends.terminal.commands import next_mode, parse
from longrein.frontends.terminal.conversation import Conversation
from longrein.frontends.terminal.input import Pastes
from longrein.frontends.terminal.interface import Outcome
from longrein.frontends.terminal.view_model import EMPTY

# --- What is done at a question: a key that answers it, a reason for a no, a line that is begun instead --------------


def answer(talk: Conversation, key: str) -> None:
    """A key was pressed on the question."""
    if talk.approval is None:
        return
    question = talk.approval.question
    if key == "f":
        talk.begin_feedback(question)
    elif word := answer_for(question, key):
        talk.answered(question, word)
    talk.flush()


def start_typing(talk: Conversation, text: str) -> None:
    """What is no answer was typed at the question: it begins a line, the rest of which answers nothing."""
    if text.isprintable():
        talk.last_key_s = talk.mono_s()
        talk.buffer.insert_text(text)
        talk.screen.give_keys(panel=False)
        talk.flush()


def print_question(talk: Conversation) -> None:
    """The whole question goes into the scrollback, where the terminal's own scrolling reaches it."""
    if talk.approval is not None:
        talk.put([EMPTY, *talk.approval.content])
        talk.flush()


def send_denial_reason(talk: Conversation, text: str) -> None:
    """The text that goes with a no."""
    question = talk.feedback
    talk.end_feedback()
    if question is not None and (word := answer_for(question, "f", text)):
        talk.answered(question, word)
    talk.flush()


def leave_feedback(talk: Conversation) -> None:
    """Back to the question, which may be answered at once."""
    talk.end_feedback()
    talk.hurry()
    talk.flush()


# ---------------------------------------------------------------------------------------------------------------------
#
# Job control: stopped, the terminal is the shell's again; continued, it is ours, and what stood there is drawn anew.
#
# Only this process stops. Commands go on: they and their supervisor are in sessions of their own.


def suspend(talk: Conversation) -> None:
    """Give the terminal back as it was and stop, with whatever was started beside us in one job, until `fg`."""
    app = talk.screen.app
    if os.getsid(0) == os.getpid():
        talk.warn("Ctrl-Z: longrein was not started from a shell that could bring it back")
    elif app.is_running and app.context is not None:
        app.context.copy().run(run_in_terminal, _stop)


def _stop() -> None:
    before = signal.signal(signal.SIGTSTP, signal.SIG_DFL)
    try:
        os.kill(0, signal.SIGTSTP)
    finally:
        signal.signal(signal.SIGTSTP, before)


def _resume(talk: Conversation) -> None:
    """Continued after a stop that could not be caught: the shell has had the terminal and leaves it as it likes it."""
    app = talk.screen.app
    with suppress(termios.error, OSError):  # the terminal is gone
        if app.is_running and termios.tcgetattr(sys.stdin.fileno())[3] & termios.ICANON:
            app.input.raw_mode().__enter__()  # left by the one that `app` has entered
            app.renderer.reset()
            talk.kick()


@contextmanager
def job_control(loop: asyncio.AbstractEventLoop, talk: Conversation) -> Iterator[None]:
    """Obey stops from outside like Ctrl-Z."""
    loop.add_signal_handler(signal.SIGTSTP, suspend, talk)
    loop.add_signal_handler(signal.SIGCONT, _resume, talk)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTSTP)
        loop.remove_signal_handler(signal.SIGCONT)


# --- keys ------------------------------------------------------------------------------------------------------------


Act = Callable[[Conversation], None]
Add = Callable[..., None]


def bind_keys(talk: Conversation) -> KeyBindings:
    """Keys that count everywhere, and those of the input."""
    keys = KeyBindings()
    buffer = talk.buffer
    completing = Condition(lambda: bool(buffer.complete_state and buffer.complete_state.current_completion))
    waiting = Condition(lambda: not buffer.text and any(talk.session.pending))
    add = _adder(keys, talk)
    add(stop, "c-c")
    add(stop, "<sigint>")
    add(_escape, "escape")
    add(_ctrl_d, "c-d")
    add(_close_menu, "enter", when=completing)
    add(enter, "enter", when=~completing)
    add(steer, "c-s")
    add(background, "c-b")
    add(_new_line, "escape", "enter")
    add(_new_line, "c-j")
    add(_next_mode, "s-tab")
    add(_complete, "tab")
    add(_backspace, "backspace")
    add(edit_last_queued, "up", when=waiting)
    add(suspend, "c-z")
    keys.add("c-l")(lambda event: event.app.renderer.clear())
    keys.add(Keys.BracketedPaste)(lambda event: buffer.insert_text(talk.pastes.fold(event.data)))
    return keys


def bind_panel_keys(talk: Conversation) -> KeyBindings:
    """Keys of a question or a list; they count only while it has the keys."""
    keys = KeyBindings()
    choosing = Condition(lambda: talk.chooser is not None)
    add = _adder(keys, talk)
    for key in "ysanfYSANF":
        keys.add(key, filter=~choosing)(lambda event: answer(talk, event.data.lower()))
    add(print_question, "e", when=~choosing)
    keys.add(Keys.Any, filter=~choosing)(lambda event: start_typing(talk, event.data))
    add(_choose, "enter", when=choosing)
    for key, rows, pages in (("up", -1, 0), ("down", 1, 0), ("pageup", 0, -1), ("pagedown", 0, 1), (" ", 0, 1)):
        keys.add(key)(_mover(talk, rows, pages))
    return keys


def _adder(keys: KeyBindings, talk: Conversation) -> Add:
    def add(act: Act, *names: str, when: Condition | bool = True) -> None:
        keys.add(*names, filter=when)(lambda event: act(talk))  # noqa: ARG005 - what a key does depends on the talk

    return add


# --- stopping ----------------------------------------------------------------------------------------------------


def stop(talk: Conversation) -> None:
    """Ctrl-C: what is going on is stopped; with nothing left to stop, the second one leaves.

    At the question what becomes of running tasks it leaves too: then each task's own policy holds.
    """
    if talk.leaving is not None:
        talk.leave(talk.leaving)
        return
    if talk.warned and talk.chooser is None and talk.feedback is None and not talk.buffer.text:
        request_exit(talk, Outcome("exit"))
        return
    if not _cancel_current(talk):
        talk.buffer.reset()
    talk.warn("Ctrl-C again leaves; the session is kept")


def _cancel_current(talk: Conversation) -> bool:
    """Leave what is open, or interrupt; False when there was nothing to do."""
    if talk.chooser is not None:
        talk.close_chooser(chosen=False)
    elif talk.feedback is not None:
        leave_feedback(talk)
    elif talk.session.busy:
        talk.session.interrupt()
    elif talk.child_asks:
        answer(talk, "n")
    else:
        return False
    return True


def _escape(talk: Conversation) -> None:
    if talk.buffer.complete_state:
        talk.buffer.cancel_completion()
    elif talk.child_asks and talk.feedback is None and talk.chooser is None:
        answer(talk, "n")  # that one call only: neither its subagent nor the turn is stopped
    else:
        _cancel_current(talk)


def _ctrl_d(talk: Conversation) -> None:
    if talk.buffer.text:
        talk.buffer.delete()
    else:
        request_exit(talk, Outcome("exit"))


# --- sending -----------------------------------------------------------------------------------------------------


def enter(talk: Conversation, *, into_turn: bool = False) -> None:
    """What was typed is sent, obeyed, or the answer to why not."""
    buffer = talk.buffer
    text = buffer.text
    if talk.feedback is not None:
        send_denial_reason(talk, talk.pastes.expand(text).strip())
    elif text.endswith("\\") and not into_turn:
        buffer.delete_before_cursor()
        buffer.insert_text("\n")
    elif text.strip():
        buffer.reset()
        _send(talk, text.strip("\n").rstrip(), into_turn=into_turn)
    elif talk.session.state.turn_open and not talk.session.busy:
        talk.tell(GoOn())


def _send(talk: Conversation, text: str, *, into_turn: bool) -> None:
    typed = parse(text)
    if typed is None:
        talk.say(text, steer=into_turn)
    else:
        talk.buffer.history.append_string(text)
        run_command(talk, typed)


def steer(talk: Conversation) -> None:
    """What was typed goes with the next request of the turn that goes on."""
    enter(talk, into_turn=True)


# --- editing -----------------------------------------------------------------------------------------------------


def _new_line(talk: Conversation) -> None:
    talk.buffer.insert_text("\n")


def _next_mode(talk: Conversation) -> None:
    if talk.buffer.complete_state:
        talk.buffer.complete_previous()
    else:
        talk.tell(SetMode(next_mode(talk.session.state.mode)))


def _complete(talk: Conversation) -> None:
    state = talk.buffer.complete_state
    if state and state.completions:
        talk.buffer.complete_next()
    else:
        talk.spawn(_complete_first(talk.buffer))


async def _complete_first(buffer: Buffer) -> None:
    """Take the first completion, also while those of the last key are still looked for."""
    document = buffer.document
    event = CompleteEvent(completion_requested=True)
    found = [completion async for completion in buffer.completer.get_completions_async(document, event)]
    if found and buffer.document == document:
        buffer.complete_state = CompletionState(document, found)
        buffer.go_to_completion(0)
        if len(found) == 1:
            buffer.complete_state = None


def _close_menu(talk: Conversation) -> None:
    talk.buffer.complete_state = None


def _backspace(talk: Conversation) -> None:
    talk.buffer.delete_before_cursor(Pastes.token_before(talk.buffer.document.text_before_cursor) or 1)
    if talk.buffer.text.startswith("/") or "@" in talk.buffer.text:
        talk.buffer.start_completion()


# --- the panel ---------------------------------------------------------------------------------------------------


def _choose(talk: Conversation) -> None:
    talk.close_chooser(chosen=True)


def _mover(talk: Conversation, rows: int, pages: int) -> Callable[[KeyPressEvent], None]:
    def move(_: KeyPressEvent) -> None:
        if talk.chooser is not None:
            talk.chooser.move(rows + 10 * pages)
        elif talk.approval is not None:
            talk.approval.scroll(rows + talk.approval.page * pages)

    return move

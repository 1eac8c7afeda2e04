"""What is done at a question: a key that answers it, a reason for a no, a line that is begun instead."""

from longrein.frontends.terminal.approvals import answer as answer_for
from longrein.frontends.terminal.scene import EMPTY
from longrein.frontends.terminal.talk import Talk


def answer(talk: Talk, key: str) -> None:
    """A key was pressed on the question."""
    if talk.approval is None:
        return
    question = talk.approval.question
    if key == "f":
        talk.begin_feedback(question)
    elif word := answer_for(question, key):
        talk.answered(question, word)
    talk.flush()


def begin_line(talk: Talk, text: str) -> None:
    """What is no answer was typed at the question: it begins a line, the rest of which answers nothing."""
    if text.isprintable():
        talk.last_key_s = talk.mono_s()
        talk.buffer.insert_text(text)
        talk.screen.give_keys(panel=False)
        talk.flush()


def print_question(talk: Talk) -> None:
    """The whole question goes into the scrollback, where the terminal's own scrolling reaches it."""
    if talk.approval is not None:
        talk.put([EMPTY, *talk.approval.content])
        talk.flush()


def say_why_not(talk: Talk, text: str) -> None:
    """The text that goes with a no."""
    question = talk.feedback
    talk.end_feedback()
    if question is not None and (word := answer_for(question, "f", text)):
        talk.answered(question, word)
    talk.flush()


def leave_feedback(talk: Talk) -> None:
    """Back to the question, which may be answered at once."""
    talk.end_feedback()
    talk.hurry()
    talk.flush()

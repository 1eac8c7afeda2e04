"""Which keys may answer a question. Pure: the time is passed in.

A key answers only if it was typed at the question: the question has been drawn for a while, no key
came meanwhile, and the input holds no text. What follows an answer in one go belongs to it.
"""

from longrein.frontends.terminal.choice_list import WORDS

QUIET_S = 0.7
"""Seconds that a question is drawn, and seconds without a key, before keys answer it. Keys that
follow an answer, each within this time, belong to the answer.
"""
TAIL_S = 10.0
"""Seconds in which Enter still ends a word whose first letter has answered."""
HOLD_S = 0.25
"""Seconds after which a letter alone is an answer: a sentence goes on sooner."""
ENTER = "\r"


def begins_word(text: str) -> bool:
    """Return True if `text` is a word that answers, or the beginning of one."""
    return any(word.startswith(text.lower()) for word in WORDS)


class KeyGuard:
    """Decides which keys answer the question on the screen. Times are monotonic seconds."""

    def __init__(self, quiet_s: float = QUIET_S) -> None:
        self.quiet_s = quiet_s
        self.hold_s = min(HOLD_S, quiet_s)
        self.held = ""
        """Keys at the question that are an answer, or begin a sentence if another follows."""
        self.drawn_s: float | None = None
        """Time at which the present question was drawn first; None before."""
        self.begun = ""
        """How the text of the input began: `ready` as an answer, `shown` below a question that
        could not be answered yet, '' elsewhere.
        """
        self._key_s = self._answer_s = float("-inf")
        self._given: str | None = None
        """Text of the input with which Esc has given the question the keys."""
        self._is_held = False
        """True if a message was sent past the question: the next sentence may follow."""
        self._rests: tuple[str, ...] = ()
        """What may follow the letter that has answered, to the end of a word."""

    # --- The question -----------------------------------------------------------------------------

    def appeared(self) -> None:
        """Take note that another question is to be drawn."""
        self.drawn_s, self._given, self._is_held = None, None, False
        self.held = ""

    def drawn(self, now_s: float) -> None:
        """Take note that the question stands on the screen."""
        if self.drawn_s is None:
            self.drawn_s = now_s

    def blocks(self, draft: str) -> bool:
        """Return True if what the user writes keeps the keys, until Esc."""
        if self._given is not None:
            return draft != self._given
        return bool(draft) or self._is_held

    def is_ready(self, draft: str, now_s: float) -> bool:
        """Return True if keys answer the question now. `draft`: text of the input."""
        if self.drawn_s is None or self.blocks(draft):
            return False
        return now_s - max(self.drawn_s, self._key_s, self._answer_s) >= self.quiet_s

    def give(self, draft: str) -> bool:
        """Esc: give the question the keys; the draft stays. False if it needs no Esc."""
        if self.drawn_s is None or not self.blocks(draft):
            return False
        self._given = draft
        return True

    # --- Keys -------------------------------------------------------------------------------------

    def typed(self, draft: str, now_s: float) -> None:
        """Take note of a key of the input, which holds `draft` before it."""
        self._key_s = now_s
        if not draft:
            self.begun = "shown" if self.drawn_s is not None else ""

    def sent(self) -> None:
        """Take note that a message was sent past the question."""
        self._is_held, self._given = True, None

    def released(self) -> None:
        """Let the question have the keys at once, as the user comes back to it."""
        self._key_s = float("-inf")
        self._is_held = False

    def take_held(self) -> str:
        """Return the keys that were held, once."""
        held, self.held = self.held, ""
        return held

    # --- After an answer --------------------------------------------------------------------------

    def answered(self, key: str, now_s: float) -> None:
        """Take note of an answer by `key`; '' for one that Enter has ended."""
        self._answer_s = now_s
        words = [word for word, value in WORDS.items() if key in (value, word)]
        self._rests = tuple(word[1:] for word in words if word[0] == key) or ("",) * bool(key)

    def swallows(self, key: str, now_s: float, draft: str | None) -> bool:
        """Return True if `key` belongs to the last answer: it comes in one go with it, or goes on
        with the word. `draft`: text of the input that would take the key; None at a question.
        """
        if now_s - self._answer_s < self.quiet_s:
            return True
        if not self._rests or now_s - self._answer_s >= TAIL_S:
            return False
        if key == ENTER:
            return not draft
        return draft is None and any(rest[:1] == key for rest in self._rests)

    def swallow(self, key: str, now_s: float) -> None:
        """Take note of a key that `swallows` has named."""
        self._answer_s = now_s
        if key == ENTER:
            self._rests = ()
        else:
            self._rests = tuple(rest[1:] for rest in self._rests if rest[:1] == key)

    def other_key(self) -> None:
        """Take note of a key at a question that does not go on with the word."""
        self._rests = ()

    def ends_answer(self, text: str) -> bool:
        """Return True if the line `text` is the rest of the word that has answered, once."""
        rests, self._rests = self._rests, ()
        return bool(text) and any(rest.startswith(text) for rest in rests)

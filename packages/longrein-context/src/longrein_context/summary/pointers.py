"""Pointers in a summary's prose: the entry that shows what a sentence says, and how it ended.

Outcomes ("the tests pass") and intentions ("the user wants …") are claims of the summariser. A
claim counts only if it points to an entry of the log, in any language:

    The suite passes (r412 ok).       a result, with the outcome that its record has
    Keep the old API (r7: "the old API stays").       words that a message of the user holds

A sentence that points nowhere is unchecked. One that gives a call another outcome than its record
is refuted. Where a sentence cites a call without its outcome, the outcome is written there.
"""

import re
from functools import cached_property
from typing import Literal

from longrein_context.events import ToolResult
from longrein_context.events.escape import one_line
from longrein_context.state.command_results import may_test
from longrein_context.state.ledger import CallRecord
from longrein_context.state.state import State

POINTER = re.compile(r"\br(\d{1,9})(?:\.\d{1,6})?\b(?: (ok|failed)\b)?")
"""Handle of an entry, and the outcome that the sentence gives it."""
QUOTE = re.compile(r"\"([^\"\n]+)\"|“([^”\n]+)”|「([^」\n]+)」|«([^»\n]+)»")
"""Words in quotation marks."""
QUOTE_WORDS_MIN = 2
"""Words of a quotation, unless it is a whole message. Scripts without blanks have no such limit."""
NOT_ENDED = ("running", "denied", "not_run", "interrupted")
"""Status of calls that have no outcome."""

Verdict = Literal["points", "unchecked", "refuted"]


class Pointers:
    """Entries up to `last` that prose may point to."""

    def __init__(self, state: State, last: int) -> None:
        self._state = state
        self._last = last

    def check(self, sentence: str, *, of_user: bool = False) -> tuple[Verdict, str]:
        """Return the verdict on a sentence, and the sentence with the outcomes of what it cites.

        `of_user`: it says what the user wants, so that only words and decisions of the user count.
        """
        quotes = [next(filter(None, match.groups())) for match in QUOTE.finditer(sentence)]
        points = any(map(self._is_said, quotes))
        for match in POINTER.finditer(sentence):
            seq, named = int(match[1]), match[2]
            outcome, _ = self._outcomes.get(seq, ("", ""))
            if named and outcome and named != outcome:
                return "refuted", sentence
            known = seq in self._decisions if of_user else seq in self._evidence
            points = points or (known and (outcome != "" or not named))
        told = POINTER.sub(self._with_outcome, sentence)
        return ("points" if points else "unchecked"), told

    @cached_property
    def _outcomes(self) -> dict[int, tuple[str, str]]:
        """Entry of a result, or of the end of background work -> `ok` or `failed`, and a note."""
        found: dict[int, tuple[str, str]] = {}
        for item in self._state.items:
            if isinstance(item.part, ToolResult) and item.part.status in ("ok", "failed"):
                found[item.seqs[0]] = item.part.status, ""
        for ran in self._state.ledger.ran.values():
            found.pop(ran.seq, None)
            if ran.status not in NOT_ENDED:
                found[ran.seq] = found[ran.ended or ran.seq] = _outcome(ran), self._note(ran)
        return {seq: told for seq, told in found.items() if seq <= self._last}

    def _note(self, ran: CallRecord) -> str:
        """Tell of a change after a test, build or lint command: its outcome may be another now."""
        end = max(ran.seq, ran.ended)
        later = [seq for seq, _ in self._state.ledger.edits if seq > end]
        return f", before the change r{later[0]}" if later and may_test(ran.argument) else ""

    @cached_property
    def _decisions(self) -> frozenset[int]:
        """Entries with an answer or a setting of the user."""
        ledger = self._state.ledger
        decided = (seq for decision in ledger.decisions for seq in decision.seqs)
        return frozenset(seq for seq in (*decided, *ledger.proofs.values()) if seq <= self._last)

    @cached_property
    def _evidence(self) -> frozenset[int]:
        """Entries that show something: results, changes, decisions, background work."""
        ledger = self._state.ledger
        work = (
            seq for run in (*ledger.running.values(), *ledger.over) for seq in (run.seq, run.ended)
        )
        files = (seq for use in ledger.files.values() for seq in (use.seq, use.changed))
        edits = (seq for seq, _ in ledger.edits)
        found = {*self._outcomes, *self._decisions, *work, *files, *edits}
        return frozenset(seq for seq in found if 0 < seq <= self._last)

    @cached_property
    def _messages(self) -> tuple[str, ...]:
        words = self._state.ledger.words
        return tuple(_folded(word.text) for word in words if word.seq <= self._last)

    def _is_said(self, quote: str) -> bool:
        text = _folded(quote)
        if text.isascii() and len(text.split()) < QUOTE_WORDS_MIN:
            return text in self._messages
        return any(text in message for message in self._messages)

    def _with_outcome(self, match: re.Match[str]) -> str:
        outcome, note = self._outcomes.get(int(match[1]), ("", ""))
        told = match[0] if match[2] or not outcome else f"{match[0]} {outcome}"
        return told if match.string.startswith(note, match.end()) else told + note


def _outcome(ran: CallRecord) -> str:
    went_well = ran.status in ("ok", "done") and ran.code in (0, None)
    return "ok" if went_well and not (ran.tests and ran.tests.failed) else "failed"


def _folded(text: str) -> str:
    return one_line(text).casefold().strip(" .,;:!?…。！？")

"""Permission questions: the complete escaped content of a call, and the possible answers."""

from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.agent import Answer, approval_digest
from longrein.events import PermissionAsked
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import FileText, Line, cells, change_lines, counts, line, wrap
from longrein.frontends.terminal.user_questions import QuestionForm
from longrein.frontends.text_format import escape, escape_line
from longrein.frontends.translation import translate
from longrein.permissions import unseen_note

_PARTS_OF_A_CHANGE = {"Edit": ("old_string", "new_string"), "Write": ("content",)}


class Question(msgspec.Struct, frozen=True):
    """A call that waits for permission, of this session or of a subagent."""

    asked: PermissionAsked
    arguments: dict[str, Any] | None = None
    """Arguments of the call; None when unknown."""
    session: str = ""
    """Session of the subagent that asks; '' for this session."""
    who: str = ""
    """Label and type of the subagent, such as `a398 explore`, escaped."""

    @property
    def key(self) -> tuple[str, str]:
        """(session, call): call ids are unique only within a session."""
        return self.session, self.asked.call

    @property
    def title(self) -> str:
        """The tool, after the subagent that asks, if any."""
        name = escape_line(self.asked.name)
        return f"{self.who} asks: {name}" if self.who else name


def choices(question: Question) -> list[Row]:
    """The keys of the possible answers, with the exact rule that would be granted; without one only single answers.

    Several rules are listed by `rule_lines`.
    """
    if question.asked.name == "ExitPlanMode":
        edits = Row("a", "yes, and accept all edits")
        return [Row("y", "yes, start"), edits, Row("n", "no, keep planning"), Row("f", "no, and say why")]
    if question.asked.name == "AskUserQuestion":
        return [Row("o", "answer in words"), Row("n", "no answer"), Row("f", "no, and say why")]
    rules = question.asked.suggestion.splitlines()
    what = escape_line(rules[0]) if len(rules) == 1 else f"these {len(rules)} rules"
    lasting = [Row("s", f"yes, for this session: {what}"), Row("a", f"always: {what}")] if rules else []
    return [Row("y", "yes, once"), *lasting, Row("n", "no"), Row("f", "no, and say why")]


def question_form(question: Question) -> QuestionForm | None:
    """The form for questions of the model to the user; None for other calls."""
    if question.asked.name != "AskUserQuestion" or not question.arguments:
        return None
    form = QuestionForm(question.arguments)
    return None if form.is_done else form


def rule_lines(question: Question) -> list[Line]:
    """The rules that the lasting answers grant, where there are several."""
    rules = question.asked.suggestion.splitlines()
    return [line(("dim", "  rule: "), escape_line(rule)) for rule in rules] if len(rules) > 1 else []


def answer(question: Question, key: str, message: str = "") -> Answer | None:
    """The `Answer` for `key`; None when `key` is not an answer to this question."""
    if key not in [choice.value for choice in choices(question)]:
        return None
    call, rule, session = question.asked.call, question.asked.suggestion, question.session
    digest = approval_digest(question.asked)
    if question.asked.name == "ExitPlanMode" and key == "a":
        arguments = {**(question.arguments or {}), "mode": "acceptEdits"}
        return Answer(call, "allow", session=session, digest=digest, arguments=arguments)
    if key in ("s", "a"):
        return Answer(call, "allow", "session" if key == "s" else "always", rule, session=session, digest=digest)
    return Answer(call, "allow" if key == "y" else "deny", message=message, session=session, digest=digest)


def form_answer(question: Question, form: QuestionForm) -> Answer:
    """The `Answer` that carries the user's answers to the model's questions."""
    digest = approval_digest(question.asked)
    return Answer(question.asked.call, "allow", session=question.session, digest=digest, arguments=form.arguments())


def content_lines(question: Question, file_text: FileText | None = None) -> list[Line]:
    """Everything that an approval covers: for an edit the diff and other arguments, else the recorded text."""
    asked, arguments = question.asked, question.arguments
    change = change_lines(asked.name, arguments, file_text)
    if not change:
        return [line(row) for row in escape(asked.shown).expandtabs(4).split("\n")]
    drawn = _PARTS_OF_A_CHANGE[asked.name]
    rest = [(name, value) for name, value in (arguments or {}).items() if name not in drawn]
    head = [line(("dim", f"{escape_line(name)}: "), escape_line(str(value))) for name, value in rest]
    note = unseen_note(arguments or {})
    return [*([line(("warn", note))] if note else []), *head, *change]


class Approval:
    """A question on the screen, with a scrollable window on its content."""

    def __init__(self, question: Question, content: Sequence[Line], waiting: int = 0) -> None:
        """`waiting` is the number of questions that follow."""
        self.question, self.content, self.waiting = question, content, waiting
        self.ready = True
        """True if keys answer the question now; shown by their colour."""
        self.explaining = False
        """True while the user types the reason of a denial."""
        self.form = question_form(question)
        """Answers so far, where the model asks the user."""
        self.top = 0
        self._rows: tuple[int, list[Line]] = (0, [])
        self._shown = 1

    def rows(self, width: int) -> list[Line]:
        """The content wrapped to `width`; never cropped, so that nothing is hidden."""
        if self.form is not None:
            self._rows = (width, [row for full in self.form.lines() for row in wrap(full, width)])
        elif self._rows[0] != width:
            self._rows = (width, [row for full in self.content for row in wrap(full, width)])
        return self._rows[1]

    def scroll(self, by: int) -> None:
        last = max(len(self._rows[1]) - self._shown, 0)
        self.top = min(max(self.top + by, 0), last)

    @property
    def page(self) -> int:
        return max(self._shown - 1, 1)

    def draw(self, width: int, height: int) -> list[Line]:
        """The question in at most `height` rows of `width` columns; the rest can be scrolled to."""
        rows = self.rows(max(width - 2, 8))
        head = self._head(width)
        keys = [] if self.explaining else self._keys(width)
        room = max(height - len(head) - len(keys), 1)
        folded = len(rows) > room
        self._shown = max(room - 1, 1) if folded else len(rows)
        self.scroll(0)
        body = [line(("warn", "│ "), *row) for row in rows[self.top : self.top + self._shown]]
        return [*head, *body, *([self._where(len(rows))] if folded else []), *keys]

    def _head(self, width: int) -> list[Line]:
        more = translate(f"  (and {self.waiting} more)") if self.waiting else ""
        reason = escape_line(translate(self.question.asked.reason))
        return wrap(line(("warn", "? "), ("bold", f"{translate(self.question.title)}: "), reason + more), width, "  ")

    def _where(self, total: int) -> Line:
        last = min(self.top + self._shown, total)
        is_change = any(row and row[0][0] in ("add", "del") for row in self.content)
        change = f", {counts(self.content)}" if is_change else ""
        where = f"lines {self.top + 1}-{last} of {total}{change}; PgDn PgUp ↓ ↑ scroll, e prints all"
        return line(("warn", "└ "), ("dim", translate(where)))

    def _keys(self, width: int) -> list[Line]:
        rows: list[Line] = [()]
        used = 0
        style = "you" if self.ready else "dim"
        for choice in [Row(one.value, translate(one.label)) for one in choices(self.question)]:
            size = cells(choice.label) + 7
            if rows[-1] and used + size > width:
                rows.append(())
                used = 0
            rows[-1] += ((style, f" {choice.value} "), ("", f"{choice.label}   "))
            used += size
        rules = [part for rule in rule_lines(self.question) for part in wrap(rule, width, "   ")]
        return [*rules, *(part for row in rows for part in wrap(row, width, "   "))]

"""Permission questions: the complete escaped content of a call, and the possible answers."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from longrein.agent import Answer, approval_digest
from longrein.frontends.localization import translate
from longrein.frontends.terminal.choice_list import ChoiceList, Row
from longrein.frontends.terminal.drawn_lines import DrawnLines
from longrein.frontends.terminal.event_lines import (
    FileText,
    Line,
    cells,
    change_lines,
    counts,
    crop,
    diff_lines,
    line,
    new_file_lines,
    wrap,
)
from longrein.frontends.terminal.page_view import Page, Section
from longrein.frontends.terminal.shell_syntax import shell_lines
from longrein.permissions import unseen_note
from longrein.steps.human_text import escape, escape_line, file_patches, key_argument
from longrein_context.events import PermissionAsked

OPTION_LETTERS = "abcdghijk"
"""Letters of the options, at most nine; those that answer a question otherwise are left out."""


def letters_text(count: int) -> str:
    """Return the letters of `count` options for display: `a-d`, `a-d, g, h`."""
    in_a_row = f"a-{OPTION_LETTERS[min(count, 4) - 1]}"
    return ", ".join((in_a_row, *OPTION_LETTERS[4:count]))


class QuestionForm:
    """Answers to the questions of one `AskUserQuestion` call, as they are given."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        found = arguments.get("questions")
        self._questions = (
            [asked for asked in found if isinstance(asked, dict)] if isinstance(found, list) else []
        )
        self._answers: dict[str, str] = {}
        self._marked: list[Row] = []
        """Chosen options of the present question, where several may be."""
        self.options = self._options()
        """Options of the present question, named by letters."""
        self.writing = False
        """True while the user types an answer in words."""

    @property
    def is_done(self) -> bool:
        return len(self._answers) >= len({self._text(asked) for asked in self._questions})

    @property
    def _asked(self) -> dict[str, Any]:
        return next(
            (asked for asked in self._questions if self._text(asked) not in self._answers), {}
        )

    @staticmethod
    def _text(asked: dict[str, Any]) -> str:
        return str(asked.get("question", ""))

    def _options(self) -> ChoiceList:
        options = self._asked.get("options")
        options = options if isinstance(options, list) else []
        found = [one for one in options if isinstance(one, dict)]
        return ChoiceList(
            [
                Row(letter, str(one.get("label", "")), str(one.get("description") or ""))
                for letter, one in zip(OPTION_LETTERS, found, strict=False)
            ]
        )

    @property
    def takes_several(self) -> bool:
        return self._asked.get("multiSelect") is True

    def choose(self, row: Row) -> None:
        """Choose an option; where several may be chosen, mark or unmark it."""
        if not self.takes_several:
            self.say(row.label)
        elif row in self._marked:
            self._marked.remove(row)
        else:
            self._marked.append(row)

    def toggle(self) -> None:
        """Mark or unmark the option that the arrows are at, where several may be chosen."""
        if self.takes_several and (row := self.options.marked):
            self.choose(row)

    def confirm(self) -> None:
        """Answer with the marked options, else with the one that the arrows are at."""
        if (row := self.options.marked) is not None:
            self._say_rows(self._marked or [row])

    def _say_rows(self, chosen: Sequence[Row]) -> None:
        self.say(", ".join(row.label for row in self.options.rows if row in chosen))

    def say(self, text: str) -> None:
        self._answers[self._text(self._asked)] = text
        self._marked, self.writing = [], False
        self.options = self._options()

    def take(self, text: str) -> bool:
        """Answer with a typed line of options such as `2`, `a,c` or `red`; False for another."""
        words = text.replace(",", " ").split()
        rows = [row for word in words if (row := self.options.by_line(word)) is not None]
        if not words:
            self.confirm()
        elif len(rows) == len(words):
            self._say_rows(rows if self.takes_several else rows[:1])
        return len(rows) == len(words)

    def arguments(self) -> dict[str, Any]:
        return {**self._arguments, "answers": dict(self._answers)}

    def lines(self, *, keys: bool = False) -> list[Line]:
        """The present question with its options; with `keys`, the marked one and a line about the
        keys.
        """
        options = self.options.rows
        total = len(self._questions)
        head = translate(f"({len(self._answers) + 1} of {total})") + " " if total > 1 else ""
        rows = [line(("dim", head), ("bold", escape_line(self._text(self._asked))))]
        for n, option in enumerate(options):
            mark = ""
            if self.takes_several:
                mark = "[x] " if option in self._marked else "[ ] "
            note = escape_line(option.note)
            label = escape_line(option.label)
            is_at = keys and n == self.options.at
            rows.append(
                line(
                    ("you", f"{'›' if is_at else ' ' * keys} {n + 1} "),
                    ("bold" if is_at else "", mark + label),
                    ("dim", f"  {note}" if note else ""),
                )
            )
        if not keys or not options:
            return rows
        last = f"1-{len(options)}, {letters_text(len(options))}"
        how = (
            f"{last} or Space mark, ↑ ↓ move, Enter sends"
            if self.takes_several
            else f"{last} or Enter choose, ↑ ↓ move"
        )
        return [*rows, line(("dim", f" {translate(how)}"))]

    def row_of_option(self, width: int) -> int:
        """Return the index of the row of the option that the arrows are at, wrapped to `width`."""
        return sum(len(wrap(row, width)) for row in self.lines(keys=True)[: self.options.at + 1])


# --- Change that an approval covers ---------------------------------------------------------------


AROUND = 3
"""Unchanged lines shown before and after a change."""
TEXT_BYTES_MAX = 1_000_000
"""A file this large may have been read in part, so that its lines cannot be numbered."""


def change_view(
    tool: str, arguments: dict[str, Any] | None, file_text: FileText | None
) -> list[Line]:
    """Every changed line of an `Edit` or `Write` with its number, and of an `apply_patch` without;
    [] for other calls and malformed arguments.

    Where the file's text is unknown, or `Edit` would refuse, the two texts of the call are
    compared, without numbers.
    """
    path = (arguments or {}).get("file_path")
    known = file_text(path) if file_text is not None and isinstance(path, str) else None
    match tool, arguments:
        case "Edit", {"old_string": str(old), "new_string": str(new)}:
            if not old:
                return new_file_lines(new, numbered=True)
            after = (
                _edited(known, old, new, every=(arguments or {}).get("replace_all") is True)
                if known
                else None
            )
            return (
                diff_lines(old, new)
                if known is None or after is None
                else numbered_diff(known, after)
            )
        case "Write", {"content": str(new)}:
            return numbered_diff(known, new) if known else new_file_lines(new, numbered=True)
        case _:
            return change_lines(tool, arguments, file_text)


def _edited(text: str, old: str, new: str, *, every: bool) -> str | None:
    """The file's text after an `Edit`; None where the tool would refuse or the text may be cut."""
    from longrein.tools.find_replace import apply_replacements, find_replacements
    from longrein.tools.loose_match import find_loose_matches

    if len(text.encode("utf-8", "replace")) >= TEXT_BYTES_MAX:
        return None
    eol = "\r\n" if "\r\n" in text else "\n"
    found = find_replacements(text, old, new, eol)
    if not found:
        loose = find_loose_matches(text, old, new, eol)
        return apply_replacements(text, [loose[0].replacement]) if len(loose) == 1 else None
    return apply_replacements(text, found) if every or len(found) == 1 else None


def numbered_diff(old: str, new: str) -> list[Line]:
    """The changes between two texts, with numbers and three lines of context."""
    return diff_lines(*_plain_ends(old, new), around=AROUND)


def _plain_ends(old: str, new: str) -> tuple[str, str]:
    """Two texts without the line ends, and the final one, that both have."""
    if all(text.count("\r\n") == text.count("\n") > 0 for text in (old, new)):
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    if old.endswith("\n") and new.endswith("\n"):
        old, new = old[:-1], new[:-1]
    return old, new


# --- Questions for permission ---------------------------------------------------------------------


_PARTS_OF_A_CHANGE = {
    "Edit": ("old_string", "new_string"),
    "Write": ("content",),
    "apply_patch": ("input",),
}


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


_NO = (Row("n", "no"), Row("f", "no, and say why", short="why not"))


def choices(question: Question) -> list[Row]:
    """The possible answers by their keys, with the exact rule that would be granted; without one
    only single answers.

    Several rules are listed by `rule_lines`.
    """
    asked = question.asked
    if asked.name == "ExitPlanMode":
        return [
            Row("y", "yes, start", short="start"),
            Row("a", "yes, and accept all edits", short="all edits", widens=True),
            Row("n", "no, keep planning", short="no"),
            _NO[1],
        ]
    if asked.name == "AskUserQuestion":
        return [Row("o", "answer in words", short="words"), Row("n", "no answer"), _NO[1]]
    rules = asked.suggestion.splitlines()
    what = rule_text(rules[0]) if len(rules) == 1 else translate(f"these {len(rules)} rules")
    found = [Row("y", "yes, once", short="yes")]
    if rules:
        from longrein.permissions.rule_evaluation import suggested_folder

        is_local = any(map(suggested_folder, rules))
        always = f"always in this folder: {what}" if is_local else f"always: {what}"
        session = f"yes, for this session: {what}"
        found.append(Row("s", session, short="session", widens=True))
        found.append(Row("a", always, short="always", widens=True))
    if asked.exact:
        exact = f"always exactly this: {escape_line(asked.exact)}"
        found.append(Row("x", exact, short="exactly this", widens=True))
    if asked.edits:
        edits = "yes, and all edits of this session"
        found.append(Row(ALL_EDITS, edits, short="all edits", widens=True))
    return [*found, *_NO]


ALL_EDITS = "m"
"""Key that allows the edit and changes the mode to `acceptEdits`."""


def rule_text(rule: str) -> str:
    """Return a rule, escaped, with what it covers where the rule alone does not say it all."""
    from longrein.permissions.rule_evaluation import suggested_folder

    shown, folder = escape_line(rule), escape_line(suggested_folder(rule))
    if not folder:
        return shown
    covers = translate(f"all files below {folder}/ but dotfiles and protected ones")
    return f"{shown}, {covers}"


def question_form(question: Question) -> QuestionForm | None:
    """The form for questions of the model to the user; None for other calls."""
    if question.asked.name != "AskUserQuestion" or not question.arguments:
        return None
    form = QuestionForm(question.arguments)
    return None if form.is_done else form


def rule_lines(question: Question) -> list[Line]:
    """The rules that the lasting answers grant, where there are several."""
    rules = question.asked.suggestion.splitlines()
    return (
        [line(("dim", translate("  rule: ")), rule_text(rule)) for rule in rules]
        if len(rules) > 1
        else []
    )


def answer(question: Question, key: str, message: str = "") -> Answer | None:
    """The `Answer` for `key`; None when `key` is not an answer to this question.

    The caller of `ALL_EDITS` also changes the mode.
    """
    if key not in [choice.value for choice in choices(question)]:
        return None
    call = question.asked.call
    rule = question.asked.suggestion
    session = question.session
    digest = approval_digest(question.asked)
    if question.asked.name == "ExitPlanMode" and key == "a":
        arguments = {**(question.arguments or {}), "mode": "acceptEdits"}
        return Answer(call, "allow", session=session, digest=digest, arguments=arguments)
    if key in ("s", "a", "x"):
        rule = question.asked.exact if key == "x" else rule
        return Answer(
            call,
            "allow",
            "session" if key == "s" else "always",
            rule,
            session=session,
            digest=digest,
        )
    is_yes = key in ("y", ALL_EDITS)
    return Answer(
        call, "allow" if is_yes else "deny", message=message, session=session, digest=digest
    )


def form_answer(question: Question, form: QuestionForm) -> Answer:
    """The `Answer` that carries the user's answers to the model's questions."""
    digest = approval_digest(question.asked)
    return Answer(
        question.asked.call,
        "allow",
        session=question.session,
        digest=digest,
        arguments=form.arguments(),
    )


_HEADING = re.compile(r"#{1,6} +(.*)")
_BULLET = re.compile(r"( *)[-*+] (?=\S)")
_MARKED = re.compile(r"\*\*(.+?)\*\*|`([^`]+)`")


def plan_lines(text: str) -> list[Line]:
    """A plan in Markdown: headings and strong words bold, code in colour, bullets; each line stands
    where it stood.
    """
    rows: list[Line] = []
    in_code = False
    for row in escape(text).expandtabs(4).split("\n"):
        is_fence = row.lstrip().startswith("```")
        in_code ^= is_fence
        if is_fence or in_code:
            rows.append(line(("dim" if is_fence else "run", row)))
        elif heading := _HEADING.fullmatch(row):
            rows.append(line(("bold", heading[1])))
        else:
            words = _MARKED.split(_BULLET.sub(r"\1• ", row))
            styles = ("", "bold", "run") * len(words)
            spans = [(style, word) for style, word in zip(styles, words, strict=False) if word]
            rows.append(line(*spans))
    return rows


def content_lines(question: Question, file_text: FileText | None = None) -> list[Line]:
    """Everything that an approval covers: for an edit the diff and other arguments, else the
    recorded text.
    """
    asked, arguments = question.asked, question.arguments
    if asked.name == "ExitPlanMode" and isinstance(plan := (arguments or {}).get("plan"), str):
        note = unseen_note(arguments or {})
        return [*([line(("warn", note))] if note else []), *plan_lines(plan)]
    change = change_view(asked.name, arguments, file_text)
    if not change and asked.name == "Bash":
        return list(shell_lines(escape(asked.shown).expandtabs(4)))
    if not change:
        return [line(row) for row in escape(asked.shown).expandtabs(4).split("\n")]
    drawn = _PARTS_OF_A_CHANGE[asked.name]
    rest = [(name, value) for name, value in (arguments or {}).items() if name not in drawn]
    head = [
        line(("dim", f"{escape_line(name)}: "), escape_line(str(value))) for name, value in rest
    ]
    note = unseen_note(arguments or {})
    return [*([line(("warn", note))] if note else []), *head, *change]


def question_page(question: Question, content: Sequence[Line]) -> Page:
    """The whole question: the reason, every answer with its rules, then the content."""
    asked = question.asked
    keys = [
        line(("you", f" {choice.value} "), translate(choice.label)) for choice in choices(question)
    ]
    subject = key_argument(question.arguments) or escape_line(asked.shown.partition("\n")[0])
    head = Section(
        line(("warn", escape_line(translate(asked.reason)))), [*rule_lines(question), *keys, ()]
    )
    return Page(
        f"? {question.title}: {subject}",
        (head, Section(line(("dim", translate("it covers:"))), content)),
    )


class Approval:
    """A question on the screen, with a scrollable window on its content."""

    def __init__(self, question: Question, content: Sequence[Line], waiting: int = 0) -> None:
        """`waiting` is the number of questions that follow."""
        self.question = question
        self.content = content
        self.waiting = waiting
        self.ready = True
        """True if keys answer the question now; shown by their colour."""
        self.explaining = False
        """True while the user types the reason of a denial."""
        self.form = question_form(question)
        """Answers so far, where the model asks the user."""
        self.answers = ChoiceList(choices(question))
        """The possible answers, of which Enter takes the marked one."""
        self.top = 0
        self.whole = question_page(question, content)
        """Page with the whole question."""
        self._lines = DrawnLines(content)
        self.drawn = self._lines.drawn
        """Lines that were drawn, also on the page: those of the content from 0 on, those of the
        page above it below 0.
        """
        self._labels_seen = False
        """True if the answers were drawn with their rules."""
        self._label_rows = 0
        """Rows of the last drawing up to the answers with their rules; 0 without these."""
        self._rows: Sequence[Line] = ()
        self.rows_above = 0
        """Empty rows above the question."""
        self._body = (0, 0)
        """Row of the last drawing with the first row of the content, and number of such rows."""
        self._is_cropped = False
        """True if the window is too narrow for whole rows."""
        self._shown = 1

    def rows(self, width: int) -> Sequence[Line]:
        """The content wrapped to `width`; never cropped, so that nothing is hidden."""
        if self.form is not None:
            full_rows = self.form.lines(keys=True)
            self._rows = [row for full in full_rows for row in wrap(full, width)]
        else:
            self._lines.wrap(width)
            self._rows = self._lines.rows
        return self._rows

    @property
    def lines_above(self) -> int:
        """Number of lines of the page above the content."""
        return len(self.whole.lines()) - len(self.content)

    @property
    def choice_list(self) -> ChoiceList:
        """The list that the arrows move in: options of the model's question, else the answers."""
        return self.form.options if self.form is not None else self.answers

    def row_by_key(self, text: str) -> Row | None:
        """Return the option or the answer that one key names; digits name options first."""
        found = self.choice_list.by_key(text)
        return found if found or text.isdigit() else self.answers.by_key(text)

    def row_by_line(self, text: str) -> Row | None:
        """Return the option or the answer that a typed line names."""
        found = self.choice_list.by_line(text)
        return found if found or text.isdigit() else self.answers.by_line(text)

    def answers_text(self) -> str:
        """Say what can be answered."""
        options = f"1-{len(self.form.options.rows)}, " if self.form is not None else ""
        return options + self.answers.answers_text()

    def lines_unseen(self, key: str) -> int:
        """Number of lines that `key` allows and that were not drawn yet (see `drawn_lines`)."""
        choice = self.answers.by_key(key)
        if choice is None or self.form is not None or key in ("n", "f"):
            return 0
        unseen = set(range(len(self.content))) - self.drawn
        if choice.widens and not self._labels_seen:
            unseen |= set(range(-self.lines_above, 0)) - self.drawn
        return len(unseen)

    def mark_drawn(self, rows: int) -> None:
        """Count what stands in the first `rows` rows as drawn, empty ones above included."""
        first, count = self._body
        first += self.rows_above
        if not self._is_cropped:
            self._lines.mark(self.top, min(count, max(rows - first, 0)))
        self._labels_seen = 0 < self._label_rows <= rows - self.rows_above

    def scroll(self, by: int) -> None:
        last = max(len(self._rows) - self._shown, 0)
        self.top = min(max(self.top + by, 0), last)

    @property
    def page(self) -> int:
        return max(self._shown - 1, 1)

    def draw(self, width: int, height: int) -> list[Line]:
        """The question in at most `height` rows of `width` columns; the rest can be scrolled to.

        The title with its path is always drawn, and one row of keys where there are two rows. A
        small window has short labels.
        """
        rows = self.rows(max(width - 2, 8))
        self._is_cropped = width < 10
        head, keys = self._head(width), [] if self.explaining else self._keys(width)
        has_labels = bool(keys)
        least = len(rows) if self.form is not None else min(len(rows), 3)
        if len(head) + len(keys) + least > height:
            head = [self._title(width)]
            if keys and len(head) + len(keys) + least > height:
                has_labels = False
                keys = self._short_keys(width)[: max((height - 1) // 2, 1)] if height > 1 else []
        room = height - len(head) - len(keys)
        folded = len(rows) > room
        says_where = folded and room > 1
        self._shown = max(room - says_where, 0) if folded else len(rows)
        if self.form is not None:
            at = self.form.row_of_option(max(width - 2, 8))
            self.top = min(max(self.top, at - self._shown + 1), at)
        self.scroll(0)
        body = [line(("warn", "│ "), *row) for row in rows[self.top : self.top + self._shown]]
        self._body = len(head), len(body)
        where = [self._where(width, len(rows))] if says_where else []
        drawn = [*head, *body, *where, *keys]
        self._label_rows = len(drawn) if has_labels else 0
        return drawn

    @property
    def _number(self) -> str:
        return f"  (1 of {self.waiting + 1})" if self.waiting else ""

    def _head(self, width: int) -> list[Line]:
        """Title, path and reason."""
        path, reason = self._path, escape_line(translate(self.question.asked.reason))
        about = reason if path in reason else f"{path}: {reason}"
        title = f"{translate(self.question.title)}: "
        return wrap(line(("warn", "? "), ("bold", title), about + self._number), width, "  ")

    @property
    def _path(self) -> str:
        """The files that the call is about, escaped; '' for other calls."""
        arguments = self.question.arguments or {}
        if self.question.asked.name == "apply_patch" and file_patches(arguments):
            return key_argument(arguments)
        return next(
            (
                escape_line(str(arguments[key]))
                for key in ("file_path", "path")
                if arguments.get(key)
            ),
            "",
        )

    def _title(self, width: int) -> Line:
        """Build the row with the tool and what the call is about: the end of a path, else the
        beginning.
        """
        asked = self.question.asked
        about = ""
        if self.form is None:
            known = self._path or key_argument(self.question.arguments)
            about = known or escape_line(asked.shown.partition("\n")[0])
        title = crop(line(("warn", "? "), ("bold", f"{self.question.title} ")), max(width // 2, 8))
        left = max(width - sum(cells(text) for _, text in title) - cells(self._number), 4)
        if self._path and cells(about) > left:
            while cells(about) > left - 1:
                about = about[1:]
            about = "…" + about
        return crop((*title, *crop(line(about), left), ("dim", self._number)), width)

    def _where(self, width: int, total: int) -> Line:
        last = min(self.top + self._shown, total)
        is_change = any(row and row[0][0] in ("add", "del") for row in self.content)
        change = f", {counts(self.content)}" if is_change else ""
        where = translate(f"lines {self.top + 1}-{last} of {total}") + change
        if self.form is not None:
            return crop(line(("warn", "└ "), ("dim", where + translate("; ↑ ↓ move"))), width)
        for keys in (
            "; PgDn PgUp scroll, v shows and e prints all",
            "; PgDn PgUp scroll, v shows all",
            "; v all",
        ):
            if cells(where + translate(keys)) + 2 <= width:
                where += translate(keys)
                break
        return crop(line(("warn", "└ "), ("dim", where)), width)

    def _keys(self, width: int) -> list[Line]:
        labels = [(choice.value, translate(choice.label)) for choice in self.answers.rows]
        rules = [part for rule in rule_lines(self.question) for part in wrap(rule, width, "   ")]
        return [
            *rules,
            *(part for row in self._key_rows(labels, width, 3) for part in wrap(row, width, "   ")),
        ]

    def _short_keys(self, width: int) -> list[Line]:
        """Keys with short labels; where they do not fit into one row, yes, no and the key that
        shows all are first.
        """
        labels = [
            (choice.value, translate(choice.short or choice.label)) for choice in self.answers.rows
        ]
        first = [label for label in labels if label[0] in "yno"]
        rest = [label for label in labels if label not in first]
        whole = [] if self.form is not None else [("v", translate("all"))]
        return [crop(row, width) for row in self._key_rows([*first, *whole, *rest], width, 1)]

    def _key_rows(self, labels: Sequence[tuple[str, str]], width: int, gap: int) -> list[Line]:
        rows: list[Line] = [()]
        used = 0
        style = "you" if self.ready else "dim"
        marked = "" if self.form is not None else self.answers.chosen
        for key, label in labels:
            bar = "›" if key == marked else " "
            size = cells(label) + 3 + gap
            if rows[-1] and used + size - gap > width:
                rows.append(())
                used = 0
            rows[-1] += (
                (style, f"{bar}{key} "),
                ("bold" if key == marked else "", label + " " * gap),
            )
            used += size
        return rows

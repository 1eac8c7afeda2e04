"""Questions of the model to the user: choices by number, or words of one's own, one question
after the other.
"""

from typing import Any

from longrein.frontends.terminal.event_lines import Line, line
from longrein.steps.human_text import escape_line

OPTIONS_MAX = 9


class QuestionForm:
    """Answers to the questions of one `AskUserQuestion` call, as they are given."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments
        found = arguments.get("questions")
        self._questions = (
            [asked for asked in found if isinstance(asked, dict)] if isinstance(found, list) else []
        )
        self._answers: dict[str, str] = {}
        self._marked: list[int] = []
        """Chosen options of the present question, where several may be."""
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

    @property
    def _labels(self) -> list[str]:
        options = self._asked.get("options")
        options = options if isinstance(options, list) else []
        return [str(one.get("label", "")) for one in options if isinstance(one, dict)][:OPTIONS_MAX]

    @property
    def takes_several(self) -> bool:
        return self._asked.get("multiSelect") is True

    def choose(self, number: int) -> None:
        """Choose an option by its number, from 1; where several may be chosen, mark or unmark
        it.
        """
        if not 0 < number <= len(self._labels):
            return
        if not self.takes_several:
            self.say(self._labels[number - 1])
        elif number in self._marked:
            self._marked.remove(number)
        else:
            self._marked.append(number)

    def confirm(self) -> None:
        """Answer with the marked options."""
        if self._marked:
            self.say(", ".join(self._labels[number - 1] for number in sorted(self._marked)))

    def say(self, text: str) -> None:
        """Answer the present question with `text`."""
        self._answers[self._text(self._asked)] = text
        self._marked, self.writing = [], False

    def take(self, text: str) -> None:
        """Answer with a typed line: numbers of options such as `2` or `1,3`, or words."""
        numbers = text.replace(",", " ").split()
        if numbers and all(
            one.isdecimal() and 0 < int(one) <= len(self._labels) for one in numbers
        ):
            chosen = numbers if self.takes_several else numbers[:1]
            self.say(", ".join(self._labels[int(one) - 1] for one in chosen))
        elif text.strip():
            self.say(text.strip())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of the call with the answers."""
        return {**self._arguments, "answers": dict(self._answers)}

    def lines(self) -> list[Line]:
        """The present question with its numbered options."""
        options = [one for one in self._asked.get("options") or () if isinstance(one, dict)][
            :OPTIONS_MAX
        ]
        head = (
            f"({len(self._answers) + 1} of {len(self._questions)}) "
            if len(self._questions) > 1
            else ""
        )
        rows = [line(("dim", head), ("bold", escape_line(self._text(self._asked))))]
        for number, option in enumerate(options, 1):
            mark = ""
            if self.takes_several:
                mark = "[x] " if number in self._marked else "[ ] "
            note = escape_line(str(option.get("description") or ""))
            label = escape_line(str(option.get("label", "")))
            rows.append(
                line(("you", f" {number} "), mark + label, ("dim", f"  {note}" if note else ""))
            )
        return rows

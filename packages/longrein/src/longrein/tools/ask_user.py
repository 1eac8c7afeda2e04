"""`AskUserQuestion` tool: the model asks, the frontend shows the choices, the user's answer is
the result.
"""

from typing import NotRequired, TypedDict

from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, UserAnswer
from longrein_context.events import ToolError

QUESTIONS_MAX = 4
OPTIONS_MAX = 9
"""Maximum number of options, each with a key of its own."""


class AnswerChoice(TypedDict):
    """A possible answer."""

    label: str
    description: NotRequired[str]


class UserQuestion(TypedDict):
    """A question with choices; the user may always answer in words of their own."""

    question: str
    header: NotRequired[str]
    options: list[AnswerChoice]
    multiSelect: NotRequired[bool]


async def AskUserQuestion(
    questions: list[UserQuestion], answers: dict[str, str] | None = None
) -> Outcome:
    """Ask the user to decide what you cannot: up to 4 questions."""
    if not 0 < len(questions) <= QUESTIONS_MAX:
        raise ToolError(
            f"[questions] {len(questions)} questions; from 1 to {QUESTIONS_MAX} can be asked at "
            "once."
        )
    said = answers if isinstance(answers, dict) else {}
    rows = [
        f"{asked['question']}\n{said.get(asked['question']) or '(not answered)'}"
        for asked in questions
    ]
    return Outcome.of("The user answered:\n\n" + "\n\n".join(rows))


ASK_USER = make_tool(
    AskUserQuestion,
    access="none",
    listing="unlisted",
    user=UserAnswer("it waits for your answer", ("answers",)),
)

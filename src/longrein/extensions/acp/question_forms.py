"""Questions of the model to the user: one form where the editor has forms, else permission
questions in turn.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent import Answer, approval_digest
from longrein.events.escape import shortened
from longrein.extensions.acp.permissions import GONE, STOP, Question, chosen, option, tool_call
from longrein.extensions.acp.tool_calls import Update, text_content
from longrein.steps.human_text import escape, escape_line

Send = Callable[[str, Update], Awaitable[Any]]
"""(method, params without the session) -> the editor's answer."""
UNANSWERED = "the user has not answered"
TITLE_CHARS_MAX = 60


class UserQuestion(msgspec.Struct, frozen=True):
    """Question of a call of `AskUserQuestion`."""

    text: str
    header: str
    choices: tuple[tuple[str, str], ...]
    """(label, description)"""
    many: bool
    """True if several choices can be taken."""


def questions_of(question: Question) -> tuple[UserQuestion, ...]:
    """Return the questions that a call asks the user; () for any other call."""
    asked = (
        (question.arguments or {}).get("questions")
        if question.asked.name == "AskUserQuestion"
        else None
    )
    return (
        tuple(_read(one) for one in asked if isinstance(one, dict))
        if isinstance(asked, list)
        else ()
    )


def _read(asked: Mapping[str, Any]) -> UserQuestion:
    text, options = str(asked.get("question", "")), asked.get("options")
    choices = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    return UserQuestion(
        text,
        str(asked.get("header") or shortened(escape_line(text), TITLE_CHARS_MAX)),
        tuple((str(one.get("label", "")), str(one.get("description") or "")) for one in choices),
        bool(asked.get("multiSelect")),
    )


async def ask(question: Question, send: Send, *, forms: bool) -> tuple[Answer, bool]:
    """Ask the user; return the answer for the session, and whether the turn is to stop.

    Without any answer the call is denied. `forms`: whether the editor can show a form.
    """
    asked = questions_of(question)
    call = question.asked.call
    session = question.session
    digest = approval_digest(question.asked)
    found, end = await (_by_form if forms else _one_by_one)(question, asked, send)
    if not found or end in ("stop", "gone"):
        told = {"gone": GONE, "stop": ""}.get(end, UNANSWERED)
        return Answer(call, "deny", message=told, session=session, digest=digest), end == "stop"
    changed = {**(question.arguments or {}), "answers": found}
    return Answer(call, "allow", session=session, digest=digest, arguments=changed), False


# --- One form -------------------------------------------------------------------------------------


async def _by_form(
    question: Question, asked: Sequence[UserQuestion], send: Send
) -> tuple[dict[str, str], str]:
    schema = {
        "type": "object",
        "properties": {f"q{n}": _field(one) for n, one in enumerate(asked, 1)},
    }
    message = "\n".join(escape_line(one.text) for one in asked)
    params = {
        "toolCallId": question.qualified,
        "mode": "form",
        "message": message,
        "requestedSchema": schema,
    }
    match await send("elicitation/create", params):
        case {"action": "accept", "content": dict(content)}:
            given = ((one, content.get(f"q{n}")) for n, one in enumerate(asked, 1))
            return {one.text: text for one, value in given if (text := _joined(value))}, ""
        case {"action": "decline"}:
            return {}, ""
        case _:
            return {}, "gone"


def _field(asked: UserQuestion) -> Update:
    named = {"title": asked.header, "description": asked.text}
    listed = [
        {"const": label, "title": label, **({"description": d} if d else {})}
        for label, d in asked.choices
    ]
    if asked.many:
        return {"type": "array", **named, "items": {"anyOf": listed}}
    return {"type": "string", **named, "oneOf": listed}


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(one for one in value if isinstance(one, str))
    return value if isinstance(value, str) else ""


# --- One permission question after the other ------------------------------------------------------


async def _one_by_one(
    question: Question, asked: Sequence[UserQuestion], send: Send
) -> tuple[dict[str, str], str]:
    found: dict[str, str] = {}
    for one in asked:
        taken: list[str] = []
        end = "more"
        while end == "more":
            end = _step(
                one, taken, await send("session/request_permission", _params(question, one, taken))
            )
        if end in ("stop", "gone"):
            return found, end
        if taken:
            found[one.text] = ", ".join(taken)
    return found, ""


def _step(asked: UserQuestion, taken: list[str], response: Any) -> str:
    """Take one answer; return `more`, `done`, `stop` or `gone`."""
    word = chosen(response)
    number = word.removeprefix("choice ")
    if word != number and number.isdecimal() and 0 < int(number) <= len(asked.choices):
        label = asked.choices[int(number) - 1][0]
        taken += [label] if label not in taken else []
        return "more" if asked.many and len(taken) < len(asked.choices) else "done"
    return {"no": "done", "stop": "stop"}.get(word, "gone")


def _params(question: Question, asked: UserQuestion, taken: Sequence[str]) -> Update:
    """Return the question with the choices that are left."""
    lines = [f"- {label}: {told}" if told else f"- {label}" for label, told in asked.choices]
    shown = [text_content(escape("\n".join((asked.text, "", *lines))))]
    left = [
        option(f"choice {n}", f"{label}, and more" if asked.many else label, "allow_once")
        for n, (label, _) in enumerate(asked.choices, 1)
        if label not in taken
    ]
    end = option(
        "no",
        f"Done: {', '.join(taken)}" if taken else "No answer",
        "allow_once" if taken else "reject_once",
    )
    return {"toolCall": tool_call(question) | {"content": shown}, "options": [*left, end, STOP]}

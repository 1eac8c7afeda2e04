"""Permission questions in the editor: what is shown, the possible answers, and what each means.
Pure.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.agent import Answer, approval_digest
from longrein.extensions.acp.tool_calls import CallView, Update, fence, text_content
from longrein.permissions import unseen_note
from longrein.permissions.rule_evaluation import flag_rule
from longrein.steps.human_text import escape, escape_line
from longrein_context.events import PermissionAsked
from longrein_context.events.escape import shortened, whole_number

NAME_CHARS_MAX = 120
"""Longest label of an answer."""
GONE = "the editor has not answered: nobody allowed it"
"""Message to the model when the editor has gone or cancelled the question."""
ALL_EDITS = "all_edits"
"""Option that allows the call; its caller also changes the mode to `acceptEdits`."""
_DRAWN = ("file_path", "old_string", "new_string", "content")
"""Arguments that a diff shows."""


class Question(msgspec.Struct, frozen=True):
    """A call that waits for permission."""

    asked: PermissionAsked
    view: CallView | None
    """The call as it was announced; None when it was not."""
    qualified: str
    """Id of the call in the protocol."""
    session: str = ""
    """Session of the subagent that asks; '' for the session itself."""
    who: str = ""
    """Label and type of that subagent."""

    @property
    def arguments(self) -> dict[str, Any] | None:
        return self.view.call.arguments if self.view is not None else None


def options(question: Question) -> list[Update]:
    """Return the answers: once; for the session and always, where rules are proposed; no; no and
    stop.
    """
    rules = [flag_rule(rule) for rule in question.asked.suggestion.splitlines()]
    what = shortened(
        escape_line(rules[0]) if len(rules) == 1 else f"these {len(rules)} rules", NAME_CHARS_MAX
    )
    once = [option("once", "Yes, once", "allow_once")]
    no = [option("no", "No", "reject_once")]
    if question.asked.name == "ExitPlanMode":
        edits = option("edits", "Yes, and accept all edits", "allow_once")
        return [
            option("once", "Yes, start", "allow_once"),
            edits,
            option("no", "No, keep planning", "reject_once"),
            STOP,
        ]
    lasting = []
    if rules:
        lasting.append(option("session", f"Yes, for this session: {what}", "allow_always"))
        lasting.append(option("always", f"Always: {what}", "allow_always"))
    if question.asked.edits:
        lasting.append(option(ALL_EDITS, "Yes, and all edits of this session", "allow_always"))
    return [*once, *lasting, *no, *([] if lasting else [STOP])]


def tool_call(question: Question) -> Update:
    """Return the call with everything that an approval covers: the diff of an edit, else the
    exact text.
    """
    asked, view = question.asked, question.view
    reason = [text_content(escape(asked.reason))] if asked.reason else []
    shown = _diff(view) if view and view.content else [_text(asked)]
    rules = asked.suggestion.splitlines()
    listed = (
        [text_content("Rules:\n" + fence("\n".join(map(escape_line, rules))))]
        if len(rules) > 1
        else []
    )
    title = view.title if view else escape_line(f"{question.who} {asked.name}".strip())
    return {
        "toolCallId": question.qualified,
        "title": title,
        "kind": view.kind if view else "other",
        "status": "pending",
        "content": [*reason, *shown, *listed],
        **({"rawInput": view.call.arguments} if view and view.call.arguments is not None else {}),
    }


def _text(asked: PermissionAsked) -> Update:
    """Return the exact text of a call; a plan is Markdown."""
    text = escape(asked.shown)
    return text_content(text if asked.name == "ExitPlanMode" else fence(text))


def _diff(view: CallView) -> list[Update]:
    """Return the diff with the arguments that it does not show, and characters that nobody sees
    written out.
    """
    arguments = view.call.arguments or {}
    note = unseen_note(arguments)
    if note:
        return [
            text_content(note + "\n" + fence(escape(f"{k}: {v}"))) for k, v in arguments.items()
        ]
    rest = [f"{name}: {value}" for name, value in arguments.items() if name not in _DRAWN]
    return [*view.content, *(text_content(fence(escape(line))) for line in rest)]


def answer(question: Question, word: str) -> Answer:
    """Return the answer for the option `word`; any other text denies."""
    asked, session = question.asked, question.session
    digest = approval_digest(asked)
    match word:
        case "once":
            return Answer(asked.call, "allow", session=session, digest=digest)
        case "all_edits" if asked.edits:
            return Answer(asked.call, "allow", session=session, digest=digest)
        case "edits" if question.arguments:
            changed = {**question.arguments, "mode": "acceptEdits"}
            return Answer(asked.call, "allow", session=session, digest=digest, arguments=changed)
        case "session" | "always" if asked.suggestion:
            scope: Any = word
            return Answer(
                asked.call, "allow", scope, asked.suggestion, session=session, digest=digest
            )
        case "no" | "stop":
            return Answer(asked.call, "deny", session=session, digest=digest)
        case _:
            return Answer(asked.call, "deny", message=GONE, session=session, digest=digest)


def chosen(response: Any) -> str:
    """Return the id of the option that the editor has chosen; '' for anything else."""
    match response:
        case {"outcome": {"outcome": "selected", "optionId": str(word)}}:
            return word
        case _:
            return ""


def option(word: str, name: str, kind: str) -> Update:
    """Return one answer with its id."""
    return {"optionId": word, "name": name, "kind": kind}


STOP = option("stop", "No, and stop", "reject_once")

# --- Questions of the model to the user -----------------------------------------------------------


Send = Callable[[str, Update], Awaitable[Any]]
"""(method, params without the session) -> the editor's answer."""
UNANSWERED = "the user has not answered"
TITLE_CHARS_MAX = 60


class EditorUserQuestion(msgspec.Struct, frozen=True):
    """Question of a call of `AskUserQuestion`."""

    text: str
    header: str
    choices: tuple[tuple[str, str], ...]
    """(label, description)"""
    many: bool
    """True if several choices can be taken."""


def questions_of(question: Question) -> tuple[EditorUserQuestion, ...]:
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


def _read(asked: Mapping[str, Any]) -> EditorUserQuestion:
    text, options = str(asked.get("question", "")), asked.get("options")
    choices = [one for one in options if isinstance(one, dict)] if isinstance(options, list) else []
    return EditorUserQuestion(
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
    question: Question, asked: Sequence[EditorUserQuestion], send: Send
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


def _field(asked: EditorUserQuestion) -> Update:
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
    question: Question, asked: Sequence[EditorUserQuestion], send: Send
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


def _step(asked: EditorUserQuestion, taken: list[str], response: Any) -> str:
    """Take one answer; return `more`, `done`, `stop` or `gone`."""
    word = chosen(response)
    number = whole_number(word.removeprefix("choice ")) if word.startswith("choice ") else 0
    if 0 < number <= len(asked.choices):
        label = asked.choices[number - 1][0]
        taken += [label] if label not in taken else []
        return "more" if asked.many and len(taken) < len(asked.choices) else "done"
    return {"no": "done", "stop": "stop"}.get(word, "gone")


def _params(question: Question, asked: EditorUserQuestion, taken: Sequence[str]) -> Update:
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

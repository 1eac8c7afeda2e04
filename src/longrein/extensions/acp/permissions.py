"""Permission questions in the editor: what is shown, the possible answers, and what each means.
Pure.
"""

from typing import Any

import msgspec

from longrein.agent import Answer, approval_digest
from longrein.events import PermissionAsked
from longrein.events.escape import shortened
from longrein.extensions.acp.tool_calls import CallView, Update, fence, text_content
from longrein.permissions import unseen_note
from longrein.steps.human_text import escape, escape_line

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
        """Arguments of the call; None when they are not known."""
        return self.view.call.arguments if self.view is not None else None


def options(question: Question) -> list[Update]:
    """Return the answers: once; for the session and always, where rules are proposed; no; no and
    stop.
    """
    rules = question.asked.suggestion.splitlines()
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

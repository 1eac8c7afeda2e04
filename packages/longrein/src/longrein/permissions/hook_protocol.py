"""Hooks: which ones an event concerns, what one has answered, and how several answers are merged.
Pure.

A hook is a command or an address that is told of an event. A hook can only narrow: the merged
answer of a tool call is the strictest of all, and what it allows is still judged by the rules.
"""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import msgspec

from longrein_context.events import decode_json
from longrein_context.events.escape import regular_expression

# --- Hooks ----------------------------------------------------------------------------------------

TOOL_EVENTS = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
"""Events of one call; the matcher is compared with the name of the tool."""
UNMATCHED_EVENTS = ("UserPromptSubmit", "Stop", "PostToolBatch", "CwdChanged")
"""Events without a matcher."""
EVENTS = (
    *TOOL_EVENTS,
    *UNMATCHED_EVENTS,
    *("SessionStart", "SessionEnd", "Notification", "SubagentStart", "SubagentStop", "StopFailure"),
    *("PreCompact", "PostCompact"),
)
"""Events that longrein has."""
OTHER_EVENTS = (
    *(
        "Setup",
        "UserPromptExpansion",
        "PermissionDenied",
        "TaskCreated",
        "TaskCompleted",
        "TeammateIdle",
    ),
    *(
        "InstructionsLoaded",
        "ConfigChange",
        "DirectoryAdded",
        "FileChanged",
        "WorktreeCreate",
        "WorktreeRemove",
    ),
    *("Elicitation", "ElicitationResult", "MessageDisplay", "PreModelSwitch", "PostModelSwitch"),
)
"""Events that other agents have and longrein has not."""
ENV_EVENTS = ("SessionStart", "CwdChanged")
"""Events whose commands may set variables for later commands."""
TIMEOUT_S = 60.0
"""Limit of a hook that names none."""
SESSION_END_S = 1.5
"""Limit of all hooks of the end of a session together."""


class Hook(msgspec.Struct, frozen=True):
    """A configured hook."""

    event: str
    name: str
    """The command, the address, the prompt, `mcp__server__tool`, or what a program calls it: as
    in the log.
    """
    source: str
    """File that it comes from, for display; or the program that has registered it."""
    matcher: str = ""
    condition: str = ""
    """Permission rule that the call must match, for events of a tool; '' for every call."""
    timeout_s: float = 0.0
    """Limit in seconds; 0 for the one of the settings."""
    in_background: bool = False
    """True if longrein does not wait for the hook's answer."""
    kind: Literal["command", "http", "prompt", "agent", "mcp_tool", "callback"] = "command"
    words: tuple[str, ...] = ()
    """Program and arguments, started without a shell; () where `name` is a line for the shell."""
    headers: tuple[tuple[str, str], ...] = ()
    allowed_env: tuple[str, ...] = ()
    """Variables that `headers` may name."""
    files: tuple[tuple[str, str], ...] = ()
    """Scripts inside the project that it runs: (path, hash of the content when it was read)."""
    is_own: bool = False
    """True if the hook comes from the user's own files, not from a project."""
    shown: tuple[str, ...] = ()
    """Files and folders outside the project that it needs in the sandbox: its own scripts."""
    model: str = ""
    """Model of a `prompt` or `agent` hook; '' for the session's."""
    input: dict[str, Any] = {}
    """Arguments of an `mcp_tool` hook; texts in them may hold `${path.in.event}`."""
    once: bool = False
    """True if the hook runs only once in a session."""


_EXACT = r"[\w\-, |]*"


@lru_cache(maxsize=512)
def _compiled(matcher: str) -> frozenset[str] | re.Pattern[str] | None:
    """Return the names or the expression of a matcher; None for one that is no valid expression."""
    if re.fullmatch(_EXACT, matcher, re.ASCII):
        return frozenset(name.strip() for name in re.split(r"[|,]", matcher) if name.strip())
    try:
        return regular_expression(matcher)
    except re.error:
        return None


def matcher_problem(matcher: str) -> str:
    """Return why a matcher is invalid; '' for a valid one."""
    if matcher in ("", "*") or _compiled(matcher) is not None:
        return ""
    return f"the matcher {matcher!r} is no regular expression"


def matches(hook: Hook, event: str, subjects: Sequence[str]) -> bool:
    """Return True if a hook is about an event of one of `subjects`, the names of a tool or a
    source.
    """
    if hook.event != event:
        return False
    if event in UNMATCHED_EVENTS or hook.matcher in ("", "*"):
        return True
    wanted = _compiled(hook.matcher)
    if isinstance(wanted, frozenset):
        return any(subject in wanted for subject in subjects)
    return wanted is not None and any(wanted.search(subject) for subject in subjects)


def hook_line(hook: Hook) -> str:
    """Describe a hook in one line: `PreToolUse Bash: ./guard.sh`."""
    name = " ".join(hook.words) or hook.name
    name = f"{hook.kind}: {name}" if hook.kind in ("prompt", "agent") else name
    about = f"{hook.event} {hook.matcher}" if hook.matcher else hook.event
    return f"{about} if {hook.condition}: {name}" if hook.condition else f"{about}: {name}"


# --- Answers --------------------------------------------------------------------------------------


class HookAnswer(msgspec.Struct, frozen=True):
    """Answer of one hook, or of several merged."""

    decision: Literal["none", "allow", "ask", "deny", "block", "stop"] = "none"
    """`allow`, `ask`, `deny` for a call; `block` refuses a prompt, an end or a compaction, and
    gives feedback after a call; `stop` ends the turn.
    """
    reason: str = ""
    """Reason for the decision, for the refused party."""
    context: str = ""
    """Text for the model."""
    message: str = ""
    """Line for the user."""
    problem: str = ""
    """Problem with the hook or its answer, for the user."""
    updated_input: dict[str, Any] | None = None
    updated_output: Any = None


NO_REASON = "the hook gave no reason"
PLAIN_TEXT = ("SessionStart", "UserPromptSubmit", "UserPromptExpansion")
"""Events in which plain output is text for the model."""
_REFUSES: dict[str, Literal["deny", "block", "stop"]] = {
    "PreToolUse": "deny",
    "UserPromptSubmit": "block",
    "PostToolUse": "block",
    "PostToolUseFailure": "block",
    "PostToolBatch": "stop",
    "Stop": "block",
    "SubagentStop": "block",
    "PreCompact": "block",
}
"""Event -> decision of exit code 2. In the others the text goes to the user."""
_DECISIONS: dict[str, Literal["allow", "ask", "deny"]] = {
    "allow": "allow",
    "approve": "allow",
    "deny": "deny",
    "block": "deny",
    "ask": "ask",
    "defer": "ask",
}
"""Words for decisions on a call; longrein cannot defer one, so the user is asked."""
_CONTEXT_CHARS_MAX = 200_000
"""Longer text of a hook is cut."""


def read_answer(event: str, code: int, stdout: str, stderr: str) -> HookAnswer:
    """Read the exit code and the output of a hook. Never raises: what is wrong is in `problem`."""
    said = stderr.strip()
    if code == 2:
        if event in _REFUSES:
            return HookAnswer(_REFUSES[event], _cut(said) or NO_REASON)
        return HookAnswer(message=_cut(said) or f"exit code 2, which means nothing for {event}")
    if code != 0:
        first = said.partition("\n")[0][:500]
        return HookAnswer(
            problem=f"exit code {code}{f': {first}' if first else ', without a text'}"
        )
    text = stdout.strip()
    if not text.startswith("{"):
        return HookAnswer(context=_cut(text) if event in PLAIN_TEXT else "")
    try:
        answer = decode_json(text.encode("utf-8", "replace"))
    except msgspec.DecodeError as error:
        return HookAnswer(
            problem=f"its output begins with {{ but is no JSON ({str(error)[:200]}); it was ignored"
        )
    return read_json_answer(event, answer)


def read_json_answer(event: str, answer: dict[str, Any]) -> HookAnswer:
    """Read the JSON of a hook."""
    problems: list[str] = []
    extra = answer.get("hookSpecificOutput")
    if extra is not None and not isinstance(extra, dict):
        problems.append("hookSpecificOutput is no object")
    extra = extra if isinstance(extra, dict) else {}
    named = extra.get("hookEventName", event)
    if named != event:
        problems.append(f"hookSpecificOutput is for {named!r}, not for {event}")
        extra = {}
    fields = _Fields(answer, extra, problems)
    found = _decide(event, fields)
    if answer.get("continue") is False or answer.get("halt") is True:
        found = msgspec.structs.replace(
            found, decision="stop", reason=fields.text(answer, "stopReason") or found.reason
        )
    return msgspec.structs.replace(
        found,
        context=_cut(fields.text(extra, "additionalContext") or fields.text(answer, "context")),
        message=_cut(fields.text(answer, "systemMessage")),
        problem="; ".join(problems),
    )


class _Fields:
    """Checked access to the fields of an answer."""

    def __init__(self, answer: dict[str, Any], extra: dict[str, Any], problems: list[str]) -> None:
        self.answer = answer
        self.extra = extra
        self.problems = problems

    def text(self, where: dict[str, Any], name: str) -> str:
        """Return a text; '' where it is missing or something else."""
        value = where.get(name)
        if value is None or isinstance(value, str):
            return value or ""
        self.problems.append(f"{name} is no text")
        return ""

    def table(self, where: dict[str, Any], name: str) -> dict[str, Any] | None:
        """Return an object; None where it is missing or something else."""
        value = where.get(name)
        if value is None or isinstance(value, dict):
            return value
        self.problems.append(f"{name} is no object")
        return None


def _decide(event: str, fields: _Fields) -> HookAnswer:
    """Read the decision of an answer."""
    if event == "PreToolUse":
        return _decide_call(fields)
    if event == "PermissionRequest":
        return _decide_question(fields)
    said = fields.text(fields.answer, "decision")
    reason = fields.text(fields.answer, "reason")
    output = fields.extra.get("updatedToolOutput", fields.extra.get("updatedMCPToolOutput"))
    if event not in _REFUSES or said in ("", "approve", "allow", "none"):
        return HookAnswer(updated_output=output)
    if said not in ("block", "deny"):
        fields.problems.append(f"{said!r} is no decision for {event}")
        return HookAnswer(updated_output=output)
    return HookAnswer(_REFUSES[event], _cut(reason) or NO_REASON, updated_output=output)


def _decide_call(fields: _Fields) -> HookAnswer:
    said = fields.text(fields.extra, "permissionDecision") or fields.text(fields.answer, "decision")
    reason = fields.text(fields.extra, "permissionDecisionReason") or fields.text(
        fields.answer, "reason"
    )
    changed = fields.table(fields.extra, "updatedInput") or fields.table(
        fields.answer, "updated_input"
    )
    if said in ("", "none"):
        return HookAnswer(updated_input=changed)
    if said not in _DECISIONS:  # it wanted to say something about the call: the user decides
        fields.problems.append(f"{said!r} is no decision on a call, so the user is asked")
        return HookAnswer(
            "ask", f"a hook answered {said[:60]!r}, which is no decision", updated_input=changed
        )
    decision = _DECISIONS[said]
    return HookAnswer(
        decision, _cut(reason) or NO_REASON * (decision != "allow"), updated_input=changed
    )


def _decide_question(fields: _Fields) -> HookAnswer:
    said = fields.table(fields.extra, "decision") or {}
    behaviour = said.get("behavior")
    if behaviour == "deny":
        reason = _cut(fields.text(said, "message")) or NO_REASON
        return HookAnswer("stop" if said.get("interrupt") is True else "deny", reason)
    if behaviour == "allow":
        return HookAnswer("allow", updated_input=fields.table(said, "updatedInput"))
    if behaviour is not None:
        fields.problems.append(f"{behaviour!r} is no behavior")
    return HookAnswer()


def _cut(text: str) -> str:
    return text if len(text) <= _CONTEXT_CHARS_MAX else f"{text[:_CONTEXT_CHARS_MAX]}\n… (cut)"


_RANK = ("none", "allow", "ask", "block", "deny", "stop")
"""Decisions, weakest first."""


def merge_answers(answers: Sequence[HookAnswer]) -> HookAnswer:
    """Merge the answers of the hooks of one event: the strictest decides, texts are joined.

    Of several changed inputs the last one counts; none of a hook that refuses.
    """
    if not answers:
        return HookAnswer()
    decision = max((one.decision for one in answers), key=_RANK.index)
    inputs = [one.updated_input for one in answers if one.updated_input is not None]
    outputs = [one.updated_output for one in answers if one.updated_output is not None]
    return HookAnswer(
        decision,
        _joined(one.reason for one in answers if one.decision == decision),
        _joined(one.context for one in answers),
        _joined(one.message for one in answers),
        _joined(one.problem for one in answers),
        inputs[-1] if inputs and decision not in ("deny", "stop") else None,
        outputs[-1] if outputs else None,
    )


def _joined(texts: Any) -> str:
    return "\n".join(dict.fromkeys(filter(None, texts)))

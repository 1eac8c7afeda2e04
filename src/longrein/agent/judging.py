"""What may become of a call: does it exist, are its arguments whole, and do the rules allow it?"""

from collections.abc import Callable

import msgspec

from longrein.agent.moves import Judgement
from longrein.agent.session import Session
from longrein.agent.sweeping import is_hidden, swept
from longrein.context import OpenCall
from longrein.events import PermissionAsked
from longrein.permissions import Call, Touched, Verdict, judge, shown_call
from longrein.tools import (
    Tool,
    chooses_folder,
    fit_arguments,
    leaves_folder,
    malformed_arguments,
    misfit_call,
    unknown_call,
)

CUT = "not run: the answer was cut by the output limit inside this call; send it again in smaller pieces"


def judged(session: Session) -> dict[str, Judgement]:
    """A judgement for each open call."""
    return {call: _judge(session, open_call) for call, open_call in session.state.calls.items()}


def _judge(session: Session, open_call: OpenCall) -> Judgement:
    call = session.as_said(open_call.call)
    tool = session.crew.tools.get(call.name)
    deferred = session.state.prefix.deferred if session.state.prefix else ()
    if open_call.cut:
        return Judgement("not_run", CUT)
    if tool is None:
        return Judgement("refuse", unknown_call(call.name, tuple(session.crew.tools), deferred))
    if call.arguments is None:
        return Judgement("refuse", malformed_arguments(call.name, call.received))
    arguments, problem = fit_arguments(tool, call.arguments)
    if problem:
        return Judgement("refuse", misfit_call(tool, problem, deferred))
    if open_call.started:  # its subagents were started before a crash: it goes on with them
        return Judgement("run", together=True)
    return _permitted(session, open_call, tool, arguments)


def _permitted(session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]) -> Judgement:
    state, call = session.state, session.as_said(open_call.call)
    allowed = _beside(tool, arguments)
    if open_call.answer is not None and open_call.answer.verdict == "allow":
        return allowed
    made = Call(call.name, arguments, tool.access, _touched(session, tool, arguments))
    verdict = judge(made, session.rules, session.mode, state.cwd)
    above = session.crew.above
    for there in above.elsewhere(made, state.cwd) if above is not None else ():
        verdict = denied if (denied := judge(there[0], there[1], session.mode, there[2])).kind == "deny" else verdict
    verdict = _narrowed(session, made, verdict)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    question = PermissionAsked(call.id, call.name, verdict.shown, verdict.reason, verdict.suggestion)
    return msgspec.structs.replace(allowed, kind="ask", text=verdict.reason, question=question)


def _beside(tool: Tool, arguments: dict[str, object]) -> Judgement:
    """That a call may run, and what may run beside it."""
    together, command = tool.together(arguments), arguments.get("command")
    if tool.access == "command" and isinstance(command, str):
        return Judgement("run", "", together, leaves_folder(command), chooses_folder(command))
    return Judgement("run", "", together, placed=all(path.startswith("/") for path, _ in tool.paths(arguments)))


def _narrowed(session: Session, made: Call, verdict: Verdict) -> Verdict:
    """The verdict after a look at what a command goes through without naming it."""
    command = made.arguments.get("command")
    if made.access != "command" or verdict.kind == "deny" or not isinstance(command, str):
        return verdict
    kind, reason = swept(session, command)
    if kind == "deny":
        return Verdict("deny", reason)
    if kind == "ask" and verdict.kind == "allow" and session.mode != "bypassPermissions":
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    return verdict


def hidden_files(session: Session) -> Callable[[str, str], bool] | None:
    """(path, real path) of a file -> whether a rule forbids to read it, here or where this place stands for another;
    None where no rule forbids anything."""
    if not session.rules.deny and session.crew.above is None:
        return None
    return lambda path, real: is_hidden(session, path, real)


def _touched(session: Session, tool: Tool, arguments: dict[str, object]) -> tuple[Touched, ...]:
    looked = []
    for path, writes in tool.paths(arguments):
        place = session.crew.workspace.look(path, session.state.cwd)
        looked.append(Touched(path, place.path, place.real, place.inside, writes))
    return tuple(looked)

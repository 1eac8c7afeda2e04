"""Judge open calls: check that the tool exists, that the arguments fit, and that the rules allow it."""

from collections.abc import Callable, Iterator

import msgspec

from longrein.agent.moves import Judgement
from longrein.agent.session import Session
from longrein.context import OpenCall
from longrein.events import PermissionAsked
from longrein.permissions import (
    Call,
    RecursiveRead,
    Rules,
    Touched,
    Verdict,
    find_recursive_reads,
    is_read_denied,
    judge,
    read_deny_rule,
    reads_file_name,
    shown_call,
    visible,
)
from longrein.tools import (
    Tool,
    bad_arguments_message,
    begins_with_absolute_cd,
    fit_arguments,
    malformed_arguments_message,
    may_change_folder,
    unknown_call_message,
)
from longrein.workspace import ResolvedPath

# --- Commands that read folders --------------------------------------------------------------------------------------
#
# Before a command runs, its folders are searched for files that a rule forbids to read.


LOOK_S = 0.5
"""Limit of the search for one command; a tree of 50,000 files takes about as long."""


def policy_views(session: Session, path: str, real: str) -> Iterator[tuple[str, str, Rules, str]]:
    """Yield (path, real path, rules, current folder) of a file: here, and in folders a worktree stands for."""
    rules, cwd, above = session.rules, session.state.cwd, session.deps.parent_policy
    yield path, real, rules, cwd
    made = Call("Read", {}, "read", (Touched(path, path, real, True, False),))
    for call, others, folder in above.elsewhere(made, cwd) if above is not None else ():
        for touched in call.touched:
            yield touched.path, touched.real, others, folder


def check_swept_folders(session: Session, command: str) -> tuple[str, str]:
    """Check the folders that a command reads for forbidden files.

    Returns ("deny", reason) when there is one, ("ask", reason) when there was too much to search, else ("", "").
    """
    cwd = session.state.cwd
    if not any(
        rule.lstrip().startswith("Read") for _, _, rules, _ in policy_views(session, cwd, cwd) for rule in rules.deny
    ):
        return "", ""
    kind, reason = "", ""
    for sweep in find_recursive_reads(command, cwd, session.rules.home):
        for start in _starts(session, sweep):
            path, rule, whole = _first(session, sweep, start)
            if rule:
                return "deny", (
                    f"this command reads what lies below {visible(start.path)}, and the user's rule {visible(rule)} "
                    f"forbids {visible(path)} there. Use Grep or Glob, which leave it out, or name the files to read"
                )
            if not whole:
                below = visible(start.path)
                kind, reason = "ask", f"it reads what lies below {below}, too much to see whether a rule forbids some"
    return kind, reason


def _starts(session: Session, sweep: RecursiveRead) -> list[ResolvedPath]:
    look, cwd = session.deps.workspace.resolve, session.state.cwd
    there = [place for place in (look(path, cwd) for path in sweep.paths) if place.kind]
    return [place for place in there or (look(path, cwd) for path in sweep.otherwise) if place.kind == "folder"]


def _first(session: Session, sweep: RecursiveRead, start: ResolvedPath) -> tuple[str, str, bool]:
    """Return (path, rule) of the first forbidden file, and True if the search was complete."""
    found: list[tuple[str, str]] = []

    def note(path: str, real: str) -> None:
        rule = next((rule for place in policy_views(session, path, real) if (rule := read_deny_rule(*place))), "")
        if rule:
            found.append((path, rule))

    def visit(real: str, is_folder: bool) -> bool:
        name = real.rpartition("/")[2]
        if found or (name.startswith(".") and not sweep.dotted):
            return False
        if reads_file_name(sweep, name) and not (is_folder and sweep.names):
            note(start.path.rstrip("/") + real[len(start.real.rstrip("/")) :], real)
        return not found

    if not sweep.names:
        note(start.path, start.real)
    whole = bool(found) or session.deps.workspace.walk(start.real, visit, LOOK_S, ignored=sweep.ignored)
    return (*found[0], True) if found else ("", "", whole)


# --- Judgements ------------------------------------------------------------------------------------------------------


CUT = "not run: the answer was cut by the output limit inside this call; send it again in smaller pieces"


def judge_calls(session: Session) -> dict[str, Judgement]:
    """Return a judgement for each open call."""
    return {call: _judge(session, open_call) for call, open_call in session.state.calls.items()}


def _judge(session: Session, open_call: OpenCall) -> Judgement:
    call = session.original_call(open_call.call)
    tool = session.deps.tools.get(call.name)
    deferred = session.state.prefix.deferred if session.state.prefix else ()
    if open_call.cut:
        return Judgement("not_run", CUT)
    if tool is None:
        return Judgement("refuse", unknown_call_message(call.name, tuple(session.deps.tools), deferred))
    if call.arguments is None:
        return Judgement("refuse", malformed_arguments_message(call.name, call.received))
    arguments, problem = fit_arguments(tool, call.arguments)
    if problem:
        return Judgement("refuse", bad_arguments_message(tool, problem, deferred))
    if open_call.started:  # its subagents were started before a crash and continue
        return Judgement("run", together=True)
    return _permitted(session, open_call, tool, arguments)


def _permitted(session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]) -> Judgement:
    state, call = session.state, session.original_call(open_call.call)
    allowed = _runnable(tool, arguments)
    if open_call.answer is not None and open_call.answer.verdict == "allow":
        return allowed
    made = Call(call.name, arguments, tool.access, _touched(session, tool, arguments), tool.rule_name)
    verdict = judge(made, session.rules, session.mode, state.cwd)
    above = session.deps.parent_policy
    for there in above.elsewhere(made, state.cwd) if above is not None else ():
        verdict = denied if (denied := judge(there[0], there[1], session.mode, there[2])).kind == "deny" else verdict
    verdict = _narrowed(session, made, verdict)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    question = PermissionAsked(call.id, call.name, verdict.shown, verdict.reason, verdict.suggestion)
    return msgspec.structs.replace(allowed, kind="ask", text=verdict.reason, question=question)


def _runnable(tool: Tool, arguments: dict[str, object]) -> Judgement:
    """Return the judgement of an allowed call, with how it may run in parallel."""
    together, command = tool.together(arguments), arguments.get("command")
    if tool.access == "command" and isinstance(command, str):
        return Judgement("run", "", together, may_change_folder(command), begins_with_absolute_cd(command))
    return Judgement("run", "", together, placed=all(path.startswith("/") for path, _ in tool.paths(arguments)))


def _narrowed(session: Session, made: Call, verdict: Verdict) -> Verdict:
    """Narrow a verdict after a search of the folders that the command reads without naming files."""
    command = made.arguments.get("command")
    if made.access != "command" or verdict.kind == "deny" or not isinstance(command, str):
        return verdict
    kind, reason = check_swept_folders(session, command)
    if kind == "deny":
        return Verdict("deny", reason)
    if kind == "ask" and verdict.kind == "allow" and session.mode != "bypassPermissions":
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    return verdict


def hidden_files(session: Session) -> Callable[[str, str], bool] | None:
    """Return a test (path, real path) for forbidden files; None where no rule forbids any."""
    if not session.rules.deny and session.deps.parent_policy is None:
        return None
    return lambda path, real: any(is_read_denied(*place) for place in policy_views(session, path, real))


def _touched(session: Session, tool: Tool, arguments: dict[str, object]) -> tuple[Touched, ...]:
    looked = []
    for path, writes in tool.paths(arguments):
        place = session.deps.workspace.resolve(path, session.state.cwd)
        looked.append(Touched(path, place.path, place.real, place.inside, writes))
    return tuple(looked)

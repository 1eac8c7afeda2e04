"""Judge open calls: check that the tool exists, that the arguments fit, and that the rules allow it."""

from collections.abc import Callable

import msgspec

from longrein.agent.confinement import LOOK_S, confines, find_masks, policy_views
from longrein.agent.moves import Judgement
from longrein.agent.session import Session
from longrein.context import OpenCall
from longrein.events import PermissionAsked
from longrein.permissions import (
    Call,
    Command,
    Effect,
    Part,
    PartFacts,
    Touched,
    Verdict,
    glob_base,
    is_read_denied,
    judge,
    read_command,
    read_deny_rule,
    read_folders,
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
# Before a command runs without a sandbox, its folders are searched for files that a rule forbids to read.


def check_folders_read(session: Session, command: Command) -> tuple[str, str]:
    """Check the folders that a command reads for forbidden files.

    Returns ("deny", reason) when there is one, ("ask", reason) when there was too much to search, else ("", "").
    """
    cwd = session.state.cwd
    if not any(
        rule.lstrip().startswith("Read") for _, _, rules, _ in policy_views(session, cwd, cwd) for rule in rules.deny
    ):
        return "", ""
    kind, reason = "", ""
    for folder in read_folders(command, cwd):
        start = session.deps.workspace.resolve(folder, cwd)
        if start.kind != "folder":
            continue
        path, rule, whole = _first_forbidden(session, start)
        if rule:
            return "deny", _denial(start.path, path, rule)
        if not whole:
            below = visible(start.path)
            kind, reason = "ask", f"it reads what lies below {below}, too much to see whether a rule forbids some"
    return kind, reason


def _denial(start: str, path: str, rule: str) -> str:
    return (
        f"this command reads what lies below {visible(start)}, and the user's rule {visible(rule)} forbids "
        f"{visible(path)} there. Use Grep or Glob, which leave it out, or name the files to read"
    )


def _first_forbidden(session: Session, start: ResolvedPath) -> tuple[str, str, bool]:
    """Return (path, rule) of the first forbidden file below a folder, and True if the search was complete."""
    found: list[tuple[str, str]] = []

    def visit(real: str, _: bool) -> bool:
        path = start.path.rstrip("/") + real[len(start.real.rstrip("/")) :]
        rule = next((rule for place in policy_views(session, path, real) if (rule := read_deny_rule(*place))), "")
        if rule:
            found.append((path, rule))
        return not found

    whole = session.deps.workspace.walk(start.real, visit, LOOK_S, ignored=True)
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
    made = _call(session, call.name, tool, arguments)
    verdict = judge(made, session.rules, session.mode, state.cwd)
    above = session.deps.parent_policy
    for there in above.elsewhere(made, state.cwd) if above is not None else ():
        verdict = denied if (denied := judge(there[0], there[1], session.mode, there[2])).kind == "deny" else verdict
    verdict = _narrowed(session, made, verdict)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    question = PermissionAsked(call.id, call.name, verdict.shown, verdict.reason, "\n".join(verdict.suggestions))
    return msgspec.structs.replace(allowed, kind="ask", text=verdict.reason, question=question)


def _runnable(tool: Tool, arguments: dict[str, object]) -> Judgement:
    """Return the judgement of an allowed call, with how it may run in parallel."""
    together, command = tool.together(arguments), arguments.get("command")
    if tool.access == "command" and isinstance(command, str):
        return Judgement("run", "", together, may_change_folder(command), begins_with_absolute_cd(command))
    return Judgement("run", "", together, placed=all(path.startswith("/") for path, _ in tool.paths(arguments)))


def _narrowed(session: Session, made: Call, verdict: Verdict) -> Verdict:
    """Narrow a verdict: leaving the sandbox asks; without one, the folders that the command reads are searched."""
    if made.command is None or verdict.kind == "deny":
        return verdict
    if _leaves_sandbox(session, made.arguments):
        return _outside(session, made, verdict)
    if made.confined:
        return verdict
    kind, reason = check_folders_read(session, made.command)
    if kind == "deny":
        return Verdict("deny", reason)
    if kind == "ask" and verdict.kind == "allow" and session.mode != "bypassPermissions":
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    return verdict


def _leaves_sandbox(session: Session, arguments: dict[str, object]) -> bool:
    """Return True if a command that would be confined is to run outside the sandbox."""
    return bool(arguments.get("outside_sandbox")) and confines(session)


def _outside(session: Session, made: Call, verdict: Verdict) -> Verdict:
    """Return the verdict on a command outside the sandbox: the user is asked each time, whatever the mode."""
    why = visible(str(made.arguments["outside_sandbox"]))[:200]
    reason = f"it is to run outside the sandbox: {why}"
    if session.mode == "plan":
        return Verdict("deny", "plan mode runs no command outside the sandbox")
    if session.mode == "dontAsk":
        return Verdict("deny", f"{reason}; nobody is asked in this mode")
    return Verdict("ask", reason, verdict.rule, shown=shown_call(made.arguments))


def hidden_files(session: Session) -> Callable[[str, str], bool] | None:
    """Return a test (path, real path) for forbidden files; None where no rule forbids any."""
    if not session.rules.deny and session.deps.parent_policy is None:
        return None
    return lambda path, real: any(is_read_denied(*place) for place in policy_views(session, path, real))


def _call(session: Session, name: str, tool: Tool, arguments: dict[str, object]) -> Call:
    """Return a call with what it touches; a command is read, and its files are looked up."""
    text = arguments.get("command")
    if tool.access != "command" or not isinstance(text, str):
        return Call(name, arguments, tool.access, _touched(session, tool, arguments), tool.rule_name)
    command = read_command(text, session.state.cwd, session.rules.home)
    facts = tuple(
        PartFacts(_touched_by_part(session, part, effect), _foreign(session, part))
        for part, effect in zip(command.script.parts, command.effects, strict=True)
    )
    confined = confines(session) and not arguments.get("outside_sandbox") and not find_masks(session).problem
    touched = _touched(session, tool, arguments)
    return Call(name, arguments, tool.access, touched, tool.rule_name, command, facts, confined)


def _touched_by_part(session: Session, part: Part, effect: Effect) -> tuple[Touched, ...]:
    """Look up the files of one part, for each folder in which it may run."""
    if effect.problem and part.words:
        return ()
    found = []
    for words, writes in ((effect.reads, False), (effect.writes, True)):
        for word in words:
            path = glob_base(word.text) if word.kind == "glob" else word.text
            folders = ("/",) if path.startswith("/") else part.folders
            if word.kind == "open" or not folders:
                found.append(Touched(word.text, word.text or "?", word.text or "?", False, writes))
            for folder in folders if word.kind != "open" else ():
                place = session.deps.workspace.resolve(path, folder)
                found.append(Touched(path, place.path, place.real, place.inside, writes))
    if effect.folder is not None and not effect.problem:
        place = session.deps.workspace.resolve(effect.folder.text, session.state.cwd)
        found.append(Touched(effect.folder.text, place.path, place.real, place.inside, False))
    return tuple(found)


def _foreign(session: Session, part: Part) -> str:
    """Return the place of a program that the project itself brings along; '' for one of the system."""
    path = session.deps.workspace.find_program(part.program) if part.program else ""
    place = session.deps.workspace.resolve(path, session.state.cwd) if path else None
    return f"{place.path} is a program of this project" if place is not None and place.inside else ""


def _touched(session: Session, tool: Tool, arguments: dict[str, object]) -> tuple[Touched, ...]:
    looked = []
    for path, writes in tool.paths(arguments):
        place = session.deps.workspace.resolve(path, session.state.cwd)
        looked.append(Touched(path, place.path, place.real, place.inside, writes))
    return tuple(looked)

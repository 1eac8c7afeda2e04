"""Judge open calls: check that the tool exists, that the arguments fit, and that the rules allow it."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

import msgspec

from longrein.agent.call_conflicts import Footprint, command_footprint, paths_footprint
from longrein.agent.confinement import LOOK_S, confines, policy_views, unconfined_reason
from longrein.agent.git_repository import find_armed_setting
from longrein.agent.messages import approval_digest
from longrein.agent.moves import Judgement
from longrein.agent.ports import narrower
from longrein.agent.redaction import redacted
from longrein.agent.session import Session
from longrein.context import OpenCall
from longrein.events import PermissionAsked
from longrein.permissions import (
    Call,
    Command,
    Effect,
    Part,
    PartFacts,
    Rules,
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
    EXIT_PLAN_MODE,
    Tool,
    bad_arguments_message,
    fit_arguments,
    malformed_arguments_message,
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


_read = lru_cache(maxsize=64)(read_command)
"""Commands that wait are judged before each move; each is read once."""
NOT_PLANNING = "[not-planning] ExitPlanMode is for plan mode, and for the agent that the user speaks with."
CUT = "not run: the answer was cut by the output limit inside this call; send it again in smaller pieces"


def judge_calls(session: Session) -> dict[str, Judgement]:
    """Return a judgement for each open call."""
    for call in [call for call in session.judged_paths if call not in session.state.calls]:
        del session.judged_paths[call]
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
    if tool is EXIT_PLAN_MODE and (session.mode != "plan" or session.deps.parent_policy is not None):
        return Judgement("refuse", NOT_PLANNING)
    arguments, problem = fit_arguments(tool, call.arguments)
    if problem:
        return Judgement("refuse", bad_arguments_message(tool, problem, deferred))
    if open_call.started and tool.traits.kind == "agent":  # its subagents were started before a crash and continue
        return Judgement("run", together=True)
    return _permitted(session, open_call, tool, arguments)


def _permitted(session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]) -> Judgement:
    state, call = session.state, session.original_call(open_call.call)
    allowed = _runnable(session, tool, arguments)
    made = _call(session, call.name, tool, arguments)
    if open_call.asked is None or call.id not in session.judged_paths:  # else the user answers for what was shown
        session.judged_paths[call.id] = {touched.given: touched.real for touched in made.touched}
    mode = narrower(session.mode, "default") if call.id in session.approvals.earlier_calls else session.mode
    verdict = judge(made, session.rules, mode, state.cwd)
    above = session.deps.parent_policy
    for there in above.elsewhere(made, state.cwd) if above is not None else ():
        verdict = denied if (denied := judge(there[0], there[1], mode, there[2])).kind == "deny" else verdict
    verdict = _narrowed(session, made, verdict)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    question = PermissionAsked(call.id, call.name, verdict.shown, verdict.reason, "\n".join(verdict.suggestions))
    approved = session.approvals.digests.get(call.id)
    if approved and approved == approval_digest(redacted(question, session.deps.redact)):
        return allowed
    return msgspec.structs.replace(allowed, kind="ask", text=verdict.reason, question=question)


def is_command_allowed(session: Session, command: str, cwd: str) -> bool:
    """Return True if a command that the log names may start in `cwd` without a question."""
    return "Bash" in session.deps.tools and command_verdict(session, command, cwd).kind == "allow"


def command_verdict(session: Session, command: str, cwd: str, allowed: tuple[str, ...] = ()) -> Verdict:
    """Return the verdict on a command that is no call of the model. `allowed`: further allow rules."""
    made = _call(session, "Bash", session.deps.tools["Bash"], {"command": command}, cwd)
    rules = msgspec.structs.replace(session.rules, allow=(*session.rules.allow, *allowed)) if allowed else session.rules
    return _judged_in_tree(session, made, rules, cwd)


def is_read_allowed(session: Session, path: str) -> bool:
    """Return True if a file may be read without a question."""
    place, cwd = session.deps.workspace.resolve(path, session.state.cwd), session.state.cwd
    touched = (Touched(path, place.path, place.real, place.inside, False),)
    made = Call("Read", {"file_path": path}, "read", touched, "Read")
    return _judged_in_tree(session, made, session.rules, cwd).kind == "allow"


def _judged_in_tree(session: Session, made: Call, rules: Rules, cwd: str) -> Verdict:
    """Judge a call with `rules`; what the rules of a parent's folder deny is denied here too."""
    verdict, above = judge(made, rules, session.mode, cwd), session.deps.parent_policy
    for there in above.elsewhere(made, cwd) if above is not None else ():
        verdict = denied if (denied := judge(there[0], there[1], session.mode, there[2])).kind == "deny" else verdict
    return _narrowed(session, made, verdict)


def _runnable(session: Session, tool: Tool, arguments: dict[str, object]) -> Judgement:
    """Return the judgement of an allowed call, with what it touches where other calls wait beside it."""
    if not session.deps.options.parallel_calls or not tool.together(arguments):
        return Judgement("run")
    touches = footprint_of(session, tool, arguments) if len(session.state.calls) > 1 else Footprint()
    return Judgement("run", together=True, touches=touches)


def footprint_of(session: Session, tool: Tool, arguments: Mapping[str, object]) -> Footprint:
    """Return what a call reads and writes."""
    cwd, command = session.state.cwd, arguments.get("command")

    def real(path: str, folder: str) -> str:
        return session.deps.workspace.resolve(path, folder).real

    if tool.access == "command" and isinstance(command, str):
        return command_footprint(_read(command, cwd, session.rules.home), cwd, real)
    if tool.access == "command":
        return Footprint(reads_anything=True, unknown=not tool.together(arguments))
    if tool.traits.kind == "agent":  # subagents read what they like
        return Footprint(reads_anything=True)
    paths = tool.paths(arguments)
    if tool.access == "read" and not paths:
        return Footprint(reads_anything=True, placed=False)
    return paths_footprint(paths, cwd, real)


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


def _call(session: Session, name: str, tool: Tool, arguments: dict[str, object], cwd: str = "") -> Call:
    """Return a call with what it touches; a command is read, and its files are looked up."""
    cwd = cwd or session.state.cwd
    text = arguments.get("command")
    if tool.access != "command" or not isinstance(text, str):
        return Call(name, arguments, tool.access, _touched(session, tool, arguments), tool.rule_name)
    command = _read(text, cwd, session.rules.home)
    facts = tuple(
        PartFacts(_touched_by_part(session, part, effect), _foreign(session, part), _armed(session, part, effect))
        for part, effect in zip(command.script.parts, command.effects, strict=True)
    )
    confined = not arguments.get("outside_sandbox") and not unconfined_reason(session)
    touched = _touched(session, tool, arguments)
    return Call(name, arguments, tool.access, touched, tool.rule_name, command, facts, confined)


def _touched_by_part(session: Session, part: Part, effect: Effect) -> tuple[Touched, ...]:
    """Look up the files of one part, for each folder in which it may run."""
    if effect.problem and part.words:
        return ()
    workspace = session.deps.workspace
    found = []
    for words, writes in ((effect.reads, False), (effect.writes, True)):
        for word in words:
            path = glob_base(word.text) if word.kind == "glob" else word.text
            folders = ("/",) if path.startswith("/") else part.folders
            if word.kind == "open" or not folders:
                found.append(Touched(word.text, word.text or "?", word.text or "?", False, writes))
            for folder in folders if word.kind != "open" else ():
                place = workspace.resolve(path, folder)
                found.append(Touched(path, place.path, place.real, place.inside, writes))
                if place.inside and (word.kind == "glob" or effect.follows):
                    pattern = word.text[len(path) :] if word.text.startswith(path) else word.text
                    found += _links_outside(session, place, pattern if word.kind == "glob" else "**", writes)
    if effect.folder is not None and not effect.problem:
        for folder in part.folders or (session.state.cwd,):
            place = workspace.resolve(effect.folder.text, folder)
            found.append(Touched(effect.folder.text, place.path, place.real, place.inside, False))
    return tuple(found)


LINKS_S = 0.1
"""Limit of the search for links that a glob may follow."""


def _links_outside(session: Session, base: ResolvedPath, pattern: str, writes: bool) -> list[Touched]:
    """Return what a glob below `base` reaches outside the roots by symbolic links."""
    if base.kind != "folder":
        return []
    names = ["*" if set(name) & set("[\\(") else name for name in pattern.split("/") if name not in ("", ".")]
    deep = "**" in names or ".." in names
    start = len(base.real.rstrip("/")) + 1
    found: list[Touched] = []

    def visit(path: str, is_folder: bool) -> bool:
        below = path[start:].split("/")
        if not deep and not all(map(fnmatchcase, below, names)):
            return False
        place = session.deps.workspace.resolve(path, "/") if not is_folder else None
        if place is not None and not place.inside:
            found.append(Touched(path, place.path, place.real, False, writes))
        return deep or len(below) < len(names)

    if not session.deps.workspace.walk(base.real, visit, LINKS_S, ignored=True):
        found.append(Touched(pattern, base.path, "a file behind a link, too many to look at", False, writes))
    return found


def _armed(session: Session, part: Part, effect: Effect) -> str:
    """Return what the repository would make a git command run; '' for nothing."""
    if part.program.rpartition("/")[2] != "git" or (effect.problem and not session.rules.allow):
        return ""
    if not part.folders or (effect.folder is not None and effect.folder.kind != "literal"):
        return "the folder of git is not known, nor what its configuration runs"
    workspace = session.deps.workspace
    folders = [workspace.resolve(effect.folder.text if effect.folder else ".", folder).path for folder in part.folders]
    found = (find_armed_setting(workspace, folder, reads_only=not effect.problem) for folder in folders)
    return next(filter(None, found), "")


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

"""Judge open calls: check that the tool exists, that the arguments fit, and that the rules allow
it.
"""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from hashlib import sha256

import msgspec

from longrein.agent.call_conflicts import Footprint, command_footprint, paths_footprint
from longrein.agent.confinement import (
    LOOK_S,
    confines,
    find_masks,
    forbidden_names,
    masks_reads,
    policy_views,
    unconfined_reason,
)
from longrein.agent.git_contents import GitContents
from longrein.agent.git_repository import find_armed_setting
from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import approval_digest
from longrein.agent.moves import Judgement
from longrein.agent.ports import narrower
from longrein.agent.redaction import redacted
from longrein.agent.session import Session
from longrein.context import OpenCall
from longrein.events import PermissionAsked, ToolCall
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
    protected_name,
    read_command,
    read_deny_rule,
    read_folders,
    shown_call,
    visible,
)
from longrein.tools import (
    EDITORS,
    EXIT_PLAN_MODE,
    Tool,
    bad_arguments_message,
    fit_arguments,
    is_foreign,
    malformed_arguments_message,
    unknown_call_message,
)
from longrein.workspace import ResolvedPath, Workspace
from longrein.workspace.sandbox import SessionSandbox

# --- Commands that read folders -------------------------------------------------------------------
#
# Before a command runs without a sandbox, its folders are searched for files that a rule forbids to
# read.


def check_folders_read(session: Session, command: Command) -> tuple[str, str]:
    """Check the folders that a command reads for forbidden files.

    Returns ("deny", reason) when there is one, ("ask", reason) when there was too much to search,
    else ("", "").
    """
    cwd = session.state.cwd
    if not any(
        rule.lstrip().startswith("Read")
        for _, _, rules, _ in policy_views(session, cwd, cwd)
        for rule in rules.deny
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
            kind, reason = (
                "ask",
                f"it reads what lies below {below}, too much to see whether a rule forbids some",
            )
    return kind, reason


def _denial(start: str, path: str, rule: str) -> str:
    return (
        f"this command reads what lies below {visible(start)}, and the user's rule "
        f"{visible(rule)} forbids "
        f"{visible(path)} there. Use Grep or Glob, which leave it out, or name the files to read"
    )


def _first_forbidden(session: Session, start: ResolvedPath) -> tuple[str, str, bool]:
    """Return (path, rule) of the first forbidden file below a folder, and True if the search was
    complete.
    """
    found: list[tuple[str, str]] = []

    def visit(real: str, _: bool) -> bool:
        path = start.path.rstrip("/") + real[len(start.real.rstrip("/")) :]
        rule = next(
            (
                rule
                for place in policy_views(session, path, real)
                if (rule := read_deny_rule(*place))
            ),
            "",
        )
        if rule:
            found.append((path, rule))
        return not found

    whole = session.deps.workspace.walk(start.real, visit, LOOK_S, ignored=True)
    return (*found[0], True) if found else ("", "", whole)


# --- Judgements -----------------------------------------------------------------------------------


_read = lru_cache(maxsize=64)(read_command)
"""Commands that wait are judged before each move; each is read once."""
NOT_PLANNING = (
    "[not-planning] ExitPlanMode is for plan mode, and for the agent that the user speaks with."
)
CUT = (
    "not run: the answer was cut by the output limit inside this call; send it again in smaller "
    "pieces"
)


async def look_at_history(session: Session) -> None:
    """Look what git keeps, for open commands that may print it: `judge_calls` waits for nothing."""
    waiting = [one.call for one in session.state.calls.values() if not one.started]
    calls = [session.original_call(call) for call in waiting]
    given = [session.approvals.arguments.get(call.id, call.arguments) or {} for call in calls]
    texts = [one["command"] for one in given if isinstance(one.get("command"), str)]
    cwd, home = session.state.cwd, session.rules.home
    contents = session.find(GitContents) or session.add(GitContents())
    await contents.look(session, [_read(text, cwd, home) for text in texts])


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
        return Judgement(
            "refuse", unknown_call_message(call.name, tuple(session.deps.tools), deferred)
        )
    if call.arguments is None:
        return Judgement("refuse", malformed_arguments_message(call.name, call.received))
    if tool.spec.name == EXIT_PLAN_MODE.spec.name and (
        session.mode != "plan" or session.deps.parent_policy is not None
    ):
        return Judgement("refuse", NOT_PLANNING)
    arguments, problem = fit_arguments(
        tool, call.arguments, from_answer=call.id in session.approvals.arguments
    )
    if problem:
        by_hook = "a hook has changed the input to what the tool cannot take: " * (
            call.id in session.approvals.hook_inputs
        )
        return Judgement("refuse", by_hook + bad_arguments_message(tool, problem, deferred))
    if (
        open_call.started and tool.traits.kind == "agent"
    ):  # its subagents were started before a crash and continue
        return Judgement("run", together=True)
    if call.id not in session.part(SessionHooks).seen and session.part(SessionHooks).concern(
        "PreToolUse", tool_names(tool)
    ):
        return msgspec.structs.replace(_runnable(session, tool, arguments), kind="hooks")
    return _permitted(session, open_call, tool, arguments)


def _permitted(
    session: Session, open_call: OpenCall, tool: Tool, arguments: dict[str, object]
) -> Judgement:
    state, call = session.state, session.original_call(open_call.call)
    allowed = _runnable(session, tool, arguments)
    made = _call(session, call.name, tool, arguments)
    session.judged_paths[call.id] = {touched.given: touched.real for touched in made.touched}
    mode = (
        narrower(session.mode, "default")
        if call.id in session.approvals.earlier_calls
        else session.mode
    )
    verdict = _after_hooks(session, call.id, made, _verdict(session, made, mode, state.cwd), mode)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    places = _places(made, state.cwd)
    question = PermissionAsked(
        call.id,
        call.name,
        verdict.shown,
        verdict.reason,
        "\n".join(verdict.suggestions),
        places,
        verdict.exact,
        verdict.edits,
    )
    approved = session.approvals.digests.get(call.id)
    if approved and approved == approval_digest(redacted(question, session.deps.redact)):
        return allowed
    first = call.id not in session.part(SessionHooks).questions and session.part(
        SessionHooks
    ).concern("PermissionRequest", tool_names(tool))
    return msgspec.structs.replace(
        allowed, kind="ask", text=verdict.reason, question=question, hooks_first=first
    )


def tool_names(tool: Tool) -> tuple[str, ...]:
    """Return the names by which matchers of hooks may mean a tool: its own, and the one it has
    in older hooks.
    """
    if tool.traits.kind == "agent":
        return (tool.spec.name, "Task")
    return (tool.spec.name, *EDITORS[:1]) if tool.spec.name in EDITORS else (tool.spec.name,)


def _after_hooks(session: Session, call: str, made: Call, verdict: Verdict, mode: str) -> Verdict:
    """Narrow a verdict by what hooks have answered.

    What they allow counts as the rules that the user could have stored: it passes no rule that asks
    or denies.
    """
    answer = session.part(SessionHooks).seen.get(call)
    if answer is None or verdict.kind == "deny":
        return verdict
    if answer.decision == "deny":
        return Verdict("deny", f"a hook refused this call: {answer.reason}")
    if answer.decision == "ask":
        why = f"a hook asks: {visible(answer.reason)}"
        if mode == "dontAsk":
            return Verdict("deny", f"{why}; nobody is asked in this mode")
        reason = why if verdict.kind == "allow" else f"{verdict.reason}; {why}"
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    if (
        answer.decision == "allow"
        and verdict.kind == "ask"
        and _may_hook_allow(session, made, verdict, mode)
    ):
        return Verdict("allow", "a hook allows it")
    return verdict


def _may_hook_allow(session: Session, made: Call, verdict: Verdict, mode: str) -> bool:
    """Return True if no rule, protected path or sandbox asks, but only the lack of a rule that
    allows the call.
    """
    if verdict.rule or _leaves_sandbox(session.deps.sandbox, made.arguments):
        return False
    if verdict.suggestions:
        rules = msgspec.structs.replace(
            session.rules, allow=(*session.rules.allow, *verdict.suggestions)
        )
        return _narrowed(session, made, judge(made, rules, mode, session.state.cwd)).kind == "allow"
    if (
        made.command is None
        or made.command.script.problem
        or any(fact.armed for fact in made.parts)
    ):
        return False
    touched = (*made.touched, *(one for fact in made.parts for one in fact.touched))
    if any(one.writes and protected_name(one, session.rules.base) for one in touched):
        return False
    return _narrowed(session, made, Verdict("allow", "")).kind == "allow"


def matches_condition(session: Session, call: ToolCall, rule: str) -> bool:
    """Return True if a call matches the permission rule that is the condition of a hook."""
    tool = session.deps.tools[call.name]
    arguments, problem = fit_arguments(tool, call.arguments or {})
    made = _call(session, call.name, tool, call.arguments or {} if problem else arguments)
    rules = msgspec.structs.replace(session.rules, deny=(rule,), ask=(), allow=())
    return judge(made, rules, "default", session.state.cwd).kind == "deny"


def approve_changed_call(
    session: Session, open_call: OpenCall, arguments: dict[str, object]
) -> None:
    """Let an open call run with other arguments: what it would ask about counts as shown. Rules
    still deny it.
    """
    call = open_call.call.id
    session.approvals.arguments[call] = arguments
    session.judged_paths.pop(call, None)
    question = _judge(session, open_call).question
    if question is not None:
        session.approvals.digests[call] = approval_digest(redacted(question, session.deps.redact))


def _verdict(
    session: Session, made: Call, mode: str, cwd: str, allowed: tuple[str, ...] = ()
) -> Verdict:
    """Return the verdict on a call, by the rules here and in the folders that a worktree stands
    for.

    `allowed`: further allow rules.
    """
    rules = (
        msgspec.structs.replace(session.rules, allow=(*session.rules.allow, *allowed))
        if allowed
        else session.rules
    )
    verdict = judge(made, rules, mode, cwd)
    above = session.deps.parent_policy
    for there in above.elsewhere(made, cwd) if above is not None else ():
        verdict = (
            denied
            if (denied := judge(there[0], there[1], mode, there[2])).kind == "deny"
            else verdict
        )
    return _narrowed(session, made, verdict)


PLACES_MAX = 20
"""Places of one question that are stored; more are stored as one hash."""


def _places(made: Call, cwd: str) -> tuple[str, ...]:
    """Return what a verdict was based on: real paths of a call; of a command the current folder and
    links.

    A name that is not UTF-8 is written with escapes, since the log is UTF-8.
    """
    if made.command is None:
        return tuple(
            touched.real.encode("utf-8", "backslashreplace").decode() for touched in made.touched
        )
    links = (
        f"{t.path} -> {t.real}" for part in made.parts for t in part.touched if t.real != t.path
    )
    places = tuple(
        p.encode("utf-8", "backslashreplace").decode() for p in (cwd, *dict.fromkeys(links))
    )
    if len(places) <= PLACES_MAX:
        return places
    rest = "\0".join(places[PLACES_MAX:]).encode("utf-8", "surrogatepass")
    return (*places[:PLACES_MAX], f"{len(places) - PLACES_MAX} more: {sha256(rest).hexdigest()}")


def command_places(session: Session, command: str, cwd: str) -> tuple[str, ...]:
    """Return the places on which the verdict on a command depends, as they are now."""
    tool = session.deps.tools.get("Bash")
    return (
        _places(_call(session, "Bash", tool, {"command": command}, cwd), cwd)
        if tool is not None
        else ()
    )


def command_verdict(
    session: Session, command: str, cwd: str, allowed: tuple[str, ...] = ()
) -> Verdict:
    """Return the verdict on a command that is no call of the model. `allowed`: further allow
    rules.
    """
    made = _call(session, "Bash", session.deps.tools["Bash"], {"command": command}, cwd)
    return _verdict(session, made, session.mode, cwd, allowed)


def call_verdict(session: Session, tool: Tool, arguments: dict[str, object]) -> Verdict:
    """Return the verdict on a call that is none of the model's conversation."""
    made = _call(session, tool.spec.name, tool, arguments)
    return _verdict(session, made, session.mode, session.state.cwd)


def is_read_allowed(session: Session, path: str) -> bool:
    """Return True if a file may be read without a question."""
    cwd = session.state.cwd
    touched = _looked_up(session, path, cwd, writes=False)
    made = Call("Read", {"file_path": path}, "read", (touched,), "Read")
    return _verdict(session, made, session.mode, cwd).kind == "allow"


def is_command_allowed(session: Session, command: str, cwd: str, *, outside: bool = False) -> bool:
    """Return True if a command that the log names may start in `cwd` without a question.

    `outside`: it is to run outside the sandbox, which always asks.
    """
    tool = session.deps.tools.get("Bash")
    if tool is None or (outside and confines(session.deps.sandbox)):
        return False
    made = _call(session, "Bash", tool, {"command": command}, cwd)
    mode = narrower(session.mode, "default") if session.approvals.mode_restored else session.mode
    return _verdict(session, made, mode, cwd).kind == "allow"


def _runnable(session: Session, tool: Tool, arguments: dict[str, object]) -> Judgement:
    """Return the judgement of an allowed call, with what it touches where other calls wait
    beside it.
    """
    if not session.deps.options.parallel_calls or not tool.together(arguments):
        return Judgement("run")
    touches = (
        footprint_of(session, tool, arguments) if len(session.state.calls) > 1 else Footprint()
    )
    return Judgement("run", together=True, touches=touches)


def footprint_of(session: Session, tool: Tool, arguments: Mapping[str, object]) -> Footprint:
    """Return what a call reads and writes."""
    cwd, command = session.state.cwd, arguments.get("command")

    def real(path: str, folder: str) -> str:
        return session.deps.workspace.resolve(path, folder).real

    if tool.access == "command" and isinstance(command, str) and not is_foreign(tool):
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
    """Narrow a verdict: leaving the sandbox asks; without one, the folders that the command
    reads are searched.
    """
    if made.command is None or verdict.kind == "deny":
        return verdict
    if _leaves_sandbox(session.deps.sandbox, made.arguments):
        return _outside(session, made, verdict)
    if made.confined:
        return verdict
    kind, reason = check_folders_read(session, made.command)
    if kind == "deny":
        return Verdict("deny", reason)
    if kind == "ask" and verdict.kind == "allow" and session.mode != "bypassPermissions":
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    return verdict


def _leaves_sandbox(sandbox: SessionSandbox | None, arguments: dict[str, object]) -> bool:
    """Return True if a command that would be confined is to run outside the sandbox."""
    return bool(arguments.get("outside_sandbox")) and confines(sandbox)


def _outside(session: Session, made: Call, verdict: Verdict) -> Verdict:
    """Return the verdict on a command outside the sandbox: the user is asked each time, whatever
    the mode.
    """
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
    look = session.deps.workspace.resolve
    linked = lru_cache(lambda: find_masks(session).linked)

    def is_hidden(path: str, real: str) -> bool:
        if any(is_read_denied(*place) for place in policy_views(session, path, real)):
            return True
        identity = look(real, "/").identity if linked() else None
        names = linked().get(identity, ()) if identity else ()
        views = (view for name in names for view in policy_views(session, name, name))
        return any(is_read_denied(*view) for view in views)

    return is_hidden


def _call(
    session: Session, name: str, tool: Tool, arguments: dict[str, object], cwd: str = ""
) -> Call:
    """Return a call with what it touches; a command is read, and its files are looked up."""
    cwd = cwd or session.state.cwd
    text = arguments.get("command")
    touched = _touched(session, tool, arguments)
    make_call = partial(Call, name, arguments, tool.access, touched, tool.rule_name)
    if tool.access != "command" or not isinstance(text, str) or is_foreign(tool):
        return make_call(asks=tool.user.reason if tool.user else "")
    rules = session.rules
    command = _read(text, cwd, rules.home)
    confined = not arguments.get("outside_sandbox") and not unconfined_reason(session)
    masked = confined and masks_reads(session.deps.sandbox)
    facts = tuple(
        PartFacts(
            _touched_by_part(session, part, effect, masked),
            _foreign(session.deps.workspace, session.state.cwd, part),
            _armed(session.deps.workspace, rules, part, effect),
            effect.history and _is_history_clean(session, command, part, effect),
        )
        for part, effect in zip(command.script.parts, command.effects, strict=True)
    )
    return make_call(
        command=command, parts=facts, confined=confined, masked=masked, gated=session.deps.gated
    )


def _is_history_clean(session: Session, command: Command, part: Part, effect: Effect) -> bool:
    contents = session.find(GitContents)
    return contents is not None and contents.is_clean(session, command, part, effect)


def _touched_by_part(
    session: Session, part: Part, effect: Effect, masked: bool
) -> tuple[Touched, ...]:
    """Look up the files of one part, for each folder in which it may run."""
    if effect.problem and part.words:
        return _other_names(session, part)
    workspace = session.deps.workspace
    found = []
    for words, writes in ((effect.reads, False), (effect.writes, True)):
        for word in words:
            path = glob_base(word.text) if word.kind == "glob" else word.text
            folders = ("/",) if path.startswith("/") else part.folders
            if word.kind == "open" or not folders:
                name = word.text or "a file whose name is not known"
                found.append(Touched(word.text, name, name, False, writes))
            for folder in folders if word.kind != "open" else ():
                place = workspace.resolve(path, folder)
                found.append(_touch(session, place, writes=writes))
                if place.inside and (word.kind == "glob" or effect.follows):
                    pattern = word.text[len(path) :] if word.text.startswith(path) else word.text
                    found += _files_behind_links(
                        session, place, pattern if word.kind == "glob" else "**", writes, masked
                    )
    if effect.folder is not None and not effect.problem:
        for folder in part.folders or (session.state.cwd,):
            found.append(_looked_up(session, effect.folder.text, folder, writes=False))
    return tuple(found)


def _other_names(session: Session, part: Part) -> tuple[Touched, ...]:
    """Look up the words of an unknown program that are links, for rules that forbid the file."""
    if not session.rules.deny and session.deps.parent_policy is None:
        return ()
    words = [word.text for word in part.words[1:] if word.kind == "literal" and word.text]
    look = session.deps.workspace.resolve
    places = [look(word, folder) for folder in part.folders for word in words]
    links = [place for place in places if place.identity or place.real != place.path]
    return tuple(_touch(session, place, writes=False) for place in links if place.kind)


LINKS_S = 0.1
"""Limit of the search for links that a glob may follow."""


def _files_behind_links(
    session: Session, base: ResolvedPath, pattern: str, writes: bool, masked: bool
) -> list[Touched]:
    """Return what a glob below `base` reaches by links: files outside the roots and, unless
    forbidden files are masked, files that have another name.
    """
    if base.kind != "folder":
        return []
    names = [
        "*" if set(name) & set("[\\(") else name
        for name in pattern.split("/")
        if name not in ("", ".")
    ]
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
        elif place is not None and not masked and (place.real != place.path or place.identity):
            found.append(_touch(session, place, writes=writes))
        return deep or len(below) < len(names)

    if not session.deps.workspace.walk(base.real, visit, LINKS_S, ignored=True):
        found.append(
            Touched(pattern, base.path, "a file behind a link, too many to look at", False, writes)
        )
    return found


def _armed(workspace: Workspace, rules: Rules, part: Part, effect: Effect) -> str:
    """Return what the repository would make a git command run; '' for nothing."""
    if part.program.rpartition("/")[2] != "git" or (effect.problem and not rules.allow):
        return ""
    if not part.folders or (effect.folder is not None and effect.folder.kind != "literal"):
        return "the folder of git is not known, nor what its configuration runs"
    folders = [
        workspace.resolve(effect.folder.text if effect.folder else ".", folder).path
        for folder in part.folders
    ]
    found = (
        find_armed_setting(workspace, folder, reads_only=not effect.problem) for folder in folders
    )
    return next(filter(None, found), "")


def _foreign(workspace: Workspace, cwd: str, part: Part) -> str:
    """Return the place of a program that the project itself brings along, also of one that starts
    it, such as `timeout`; '' where all are of the system.
    """
    paths = [workspace.find_program(name) for name in (*part.wrappers, part.program) if name]
    places = [workspace.resolve(path, cwd) for path in paths if path]
    inside = (place.path for place in places if place.inside)
    return next((f"{path} is a program of this project" for path in inside), "")


def _touched(session: Session, tool: Tool, arguments: dict[str, object]) -> tuple[Touched, ...]:
    cwd, paths = session.state.cwd, tool.paths(arguments)
    return tuple(_looked_up(session, path, cwd, writes=writes) for path, writes in paths)


def _looked_up(session: Session, path: str, folder: str, *, writes: bool) -> Touched:
    return _touch(session, session.deps.workspace.resolve(path, folder), writes=writes)


def _touch(session: Session, place: ResolvedPath, *, writes: bool) -> Touched:
    """Return a place as a call touches it, with other names of the same file, if one is
    forbidden.
    """
    names = forbidden_names(session, place)
    return Touched(
        place.given, place.path, place.real, place.inside, writes, place.is_scratch, names
    )

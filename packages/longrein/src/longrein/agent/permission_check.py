"""Judge open calls: check that the tool exists, that the arguments fit, and that the rules allow
it.
"""

from hashlib import sha256

import msgspec

from longrein.agent.call_conflicts import Footprint
from longrein.agent.call_footprint import (
    check_folders_read,
    footprint_of,
    look_up,
    make_call,
    read_once,
)
from longrein.agent.confinement import named_paths
from longrein.agent.current_rules import CurrentRules, GitContents, confines, current_rules
from longrein.agent.dependencies import narrower
from longrein.agent.hooks import SessionHooks
from longrein.agent.messages import approval_digest
from longrein.agent.moves import Judgement
from longrein.agent.redaction import redacted
from longrein.agent.session import Session
from longrein.permissions import (
    Call,
    HookAnswer,
    Verdict,
    judge,
    protected_name,
    shown_call,
    visible,
)
from longrein.tools import (
    EDITORS,
    EXIT_PLAN_MODE,
    Tool,
    bad_arguments_message,
    fit_arguments,
    malformed_arguments_message,
    unknown_call_message,
)
from longrein.workspace.sandbox import SessionSandbox
from longrein_context import OpenCall
from longrein_context.events import PermissionAsked, ToolCall

# --- Judgements -----------------------------------------------------------------------------------


NOT_PLANNING = (
    "[not-planning] ExitPlanMode is for plan mode, and for the agent that the user speaks with: go "
    "on without it."
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
    contents = session.ensure(GitContents)
    now = current_rules(session)
    await contents.look(now, [read_once(text, now.cwd, now.rules.home) for text in texts])


def judge_calls(session: Session) -> dict[str, Judgement]:
    """Return a judgement for each open call."""
    for call in [call for call in session.judged_paths if call not in session.state.calls]:
        del session.judged_paths[call]
    if (sandbox := session.deps.sandbox) is not None:
        sandbox.show_named(named_paths(session.state))
    now = current_rules(session)
    open_calls = session.state.calls.items()
    return {call: _judge(session, now, open_call) for call, open_call in open_calls}


def _judge(session: Session, now: CurrentRules, open_call: OpenCall) -> Judgement:
    call = session.original_call(open_call.call)
    tool = session.deps.tools.get(call.name)
    deferred = session.state.prefix.deferred if session.state.prefix else ()
    if open_call.cut:
        return Judgement("not_run", CUT)
    if tool is None:
        why = "".join(part.why_missing(call) for part in session.deps.extension_parts)
        return Judgement(
            "refuse", why or unknown_call_message(call.name, tuple(session.deps.tools), deferred)
        )
    if call.arguments is None:
        return Judgement("refuse", malformed_arguments_message(call.name, call.received))
    if tool.spec.name == EXIT_PLAN_MODE.spec.name and (now.mode != "plan" or now.above is not None):
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
    hooks = session.part(SessionHooks)
    runnable = _runnable(
        now,
        tool,
        arguments,
        is_parallel=session.deps.options.parallel_calls,
        beside=len(session.state.calls) > 1,
    )
    if call.id not in hooks.seen and hooks.concern("PreToolUse", tool_names(tool)):
        return msgspec.structs.replace(runnable, kind="hooks")
    return _permitted(session, now, call, tool, arguments, runnable)


def _permitted(
    session: Session,
    now: CurrentRules,
    call: ToolCall,
    tool: Tool,
    arguments: dict[str, object],
    allowed: Judgement,
) -> Judgement:
    """Return the judgement of a call; `allowed` is the one of a call that may run."""
    hooks = session.part(SessionHooks)
    made = make_call(now, call.name, tool, arguments)
    session.judged_paths[call.id] = {touched.given: touched.real for touched in made.touched}
    is_earlier = call.id in session.approvals.earlier_calls
    mode = narrower(now.mode, "default") if is_earlier else now.mode
    verdict = _verdict(now, made, mode, now.cwd)
    verdict = _after_hooks(now, hooks.seen.get(call.id), made, verdict, mode)
    if verdict.kind == "allow":
        return allowed
    if verdict.kind == "deny":
        return msgspec.structs.replace(allowed, kind="deny", text=f"Denied: {verdict.reason}")
    places = _places(made, now.cwd)
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
    is_first = call.id not in hooks.questions
    first = is_first and hooks.concern("PermissionRequest", tool_names(tool))
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


def _after_hooks(
    now: CurrentRules, answer: HookAnswer | None, made: Call, verdict: Verdict, mode: str
) -> Verdict:
    """Narrow a verdict by what hooks have answered.

    What they allow counts as the rules that the user could have stored: it passes no rule that asks
    or denies.
    """
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
        and _may_hook_allow(now, made, verdict, mode)
    ):
        return Verdict("allow", "a hook allows it")
    return verdict


def _may_hook_allow(now: CurrentRules, made: Call, verdict: Verdict, mode: str) -> bool:
    """Return True if no rule, protected path or sandbox asks, but only the lack of a rule that
    allows the call.
    """
    if verdict.rule or _leaves_sandbox(now.sandbox, made.arguments):
        return False
    if verdict.suggestions:
        rules = msgspec.structs.replace(now.rules, allow=(*now.rules.allow, *verdict.suggestions))
        return _narrowed(now, made, judge(made, rules, mode, now.cwd)).kind == "allow"
    if (
        made.command is None
        or made.command.script.problem
        or any(fact.armed for fact in made.parts)
    ):
        return False
    touched = (*made.touched, *(one for fact in made.parts for one in fact.touched))
    if any(one.writes and protected_name(one, now.rules.base) for one in touched):
        return False
    return _narrowed(now, made, Verdict("allow", "")).kind == "allow"


def matches_condition(now: CurrentRules, tool: Tool, call: ToolCall, rule: str) -> bool:
    """Return True if a call matches the permission rule that is the condition of a hook."""
    arguments, problem = fit_arguments(tool, call.arguments or {})
    made = make_call(now, call.name, tool, call.arguments or {} if problem else arguments)
    rules = msgspec.structs.replace(now.rules, deny=(rule,), ask=(), allow=())
    return judge(made, rules, "default", now.cwd).kind == "deny"


def approve_changed_call(
    session: Session, open_call: OpenCall, arguments: dict[str, object]
) -> None:
    """Let an open call run with other arguments: what it would ask about counts as shown. Rules
    still deny it.
    """
    call = open_call.call.id
    session.approvals.arguments[call] = arguments
    session.judged_paths.pop(call, None)
    question = _judge(session, current_rules(session), open_call).question
    if question is not None:
        session.approvals.digests[call] = approval_digest(redacted(question, session.deps.redact))


def _verdict(
    now: CurrentRules, made: Call, mode: str, cwd: str, allowed: tuple[str, ...] = ()
) -> Verdict:
    """Return the verdict on a call, by the rules here and in the folders that a worktree stands
    for.

    `allowed`: further allow rules.
    """
    rules = (
        msgspec.structs.replace(now.rules, allow=(*now.rules.allow, *allowed))
        if allowed
        else now.rules
    )
    verdict = judge(made, rules, mode, cwd)
    above = now.above
    for there in above.elsewhere(made, cwd) if above is not None else ():
        verdict = (
            denied
            if (denied := judge(there[0], there[1], mode, there[2])).kind == "deny"
            else verdict
        )
    return _narrowed(now, made, verdict)


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


def command_places(now: CurrentRules, bash: Tool | None, command: str, cwd: str) -> tuple[str, ...]:
    """Return the places on which the verdict on a command depends, as they are now."""
    if bash is None:
        return ()
    return _places(make_call(now, "Bash", bash, {"command": command}, cwd), cwd)


def command_verdict(
    now: CurrentRules, bash: Tool, command: str, cwd: str, allowed: tuple[str, ...] = ()
) -> Verdict:
    """Return the verdict on a command that is no call of the model. `allowed`: further allow
    rules.
    """
    made = make_call(now, "Bash", bash, {"command": command}, cwd)
    return _verdict(now, made, now.mode, cwd, allowed)


def call_verdict(now: CurrentRules, tool: Tool, arguments: dict[str, object]) -> Verdict:
    """Return the verdict on a call that is none of the model's conversation."""
    made = make_call(now, tool.spec.name, tool, arguments)
    return _verdict(now, made, now.mode, now.cwd)


def is_read_allowed(now: CurrentRules, path: str) -> bool:
    """Return True if a file may be read without a question."""
    touched = look_up(now, path, now.cwd, writes=False)
    made = Call("Read", {"file_path": path}, "read", (touched,), "Read")
    return _verdict(now, made, now.mode, now.cwd).kind == "allow"


def is_command_allowed(
    now: CurrentRules, bash: Tool | None, command: str, cwd: str, *, outside: bool = False
) -> bool:
    """Return True if a command that the log names may start in `cwd` without a question.

    `outside`: it is to run outside the sandbox, which always asks.
    """
    if bash is None or (outside and confines(now.sandbox)):
        return False
    return command_verdict(now, bash, command, cwd).kind == "allow"


def _runnable(
    now: CurrentRules, tool: Tool, arguments: dict[str, object], *, is_parallel: bool, beside: bool
) -> Judgement:
    """Return the judgement of an allowed call, with what it touches where other calls wait
    `beside` it.
    """
    if not is_parallel or not tool.together(arguments):
        return Judgement("run")
    touches = footprint_of(now, tool, arguments) if beside else Footprint()
    return Judgement("run", together=True, touches=touches)


def _narrowed(now: CurrentRules, made: Call, verdict: Verdict) -> Verdict:
    """Narrow a verdict: leaving the sandbox asks; without one, the folders that the command
    reads are searched.
    """
    if made.command is None or verdict.kind == "deny":
        return verdict
    if _leaves_sandbox(now.sandbox, made.arguments):
        return _outside(now.mode, made, verdict)
    if made.confined:
        return verdict
    kind, reason = check_folders_read(now, made.command)
    if kind == "deny":
        return Verdict("deny", reason)
    if kind == "ask" and verdict.kind == "allow" and now.mode != "bypassPermissions":
        return Verdict("ask", reason, shown=shown_call(made.arguments))
    return verdict


def _leaves_sandbox(sandbox: SessionSandbox | None, arguments: dict[str, object]) -> bool:
    """Return True if a command that would be confined is to run outside the sandbox."""
    return bool(arguments.get("outside_sandbox")) and confines(sandbox)


def _outside(mode: str, made: Call, verdict: Verdict) -> Verdict:
    """Return the verdict on a command outside the sandbox: the user is asked each time, whatever
    the mode.
    """
    why = visible(str(made.arguments["outside_sandbox"]))[:200]
    reason = f"it is to run outside the sandbox: {why}"
    if mode == "plan":
        return Verdict("deny", "plan mode runs no command outside the sandbox")
    if mode == "dontAsk":
        return Verdict("deny", f"{reason}; nobody is asked in this mode")
    return Verdict("ask", reason, verdict.rule, shown=shown_call(made.arguments))

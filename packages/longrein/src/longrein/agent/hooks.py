"""Hooks of a session: run the handlers of an event in parallel, merge what they answer, record each
answer.

A handler is a command, an address or a function of another program; `HookTable.add` takes any. What
an event means for the loop is in `hook_points`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from longrein.agent.hook_transcript import HookTranscript
from longrein.agent.session_part import SessionPart, Skills
from longrein.permissions import Call, Hook, HookAnswer, visible
from longrein.permissions.hook_protocol import (
    ENV_EVENTS,
    SESSION_END_S,
    TIMEOUT_S,
    matches,
    merge_answers,
    read_answer,
)
from longrein.workspace import CommandSpec, Confinement, PipedResult, run_with_input
from longrein_context.events import HookAnswered, Usage, marker_sign

if TYPE_CHECKING:
    from longrein.agent.confinement import SessionConfinement
    from longrein.agent.session import Session

OUTPUT_BYTES_MAX = 1_000_000
"""Output of a hook; one that prints more is ended."""
KILL_S = 5.0
"""Time beyond the limit in which a handler must have ended what it started."""
NAME_CHARS = 80
IDLE_S = 60.0
"""Time after a turn until hooks are told that the user's input is awaited."""
MODEL_TIMEOUT_S = {"prompt": 30.0, "agent": 60.0}
"""Limits of hooks that ask a model and name no limit."""
READ_VARIABLES = 'set -a; . "$CLAUDE_ENV_FILE" >/dev/null 2>&1; env -0'
"""Command that prints the variables after what a hook has written into its file for variables."""
SANDBOXED = (
    "it ran in the sandbox",
    (
        "it ran in the sandbox; hooks.outside_sandbox = true in your config.toml runs your own "
        "hooks "
        "outside"
    ),
)
"""Note on a broken hook: of a project, of the user."""
SHELL_VARIABLES = ("_", "SHLVL", "PWD", "OLDPWD", "CLAUDE_ENV_FILE")
VARIABLES_BYTES_MAX = 64_000
"""Size of all variables that one hook sets."""

# --- Handlers -------------------------------------------------------------------------------------


class HookPlace(msgspec.Struct, frozen=True):
    """Session, environment, time limit and confinement of a handler's run."""

    session: "Session"
    env: Mapping[str, str]
    limit_s: float
    confinement: Confinement | None = None
    """Confinement of a command; None where it runs as the user."""

    @property
    def clean(self) -> Callable[[str], str]:
        """Replaces secrets in what leaves this machine."""
        return self.session.deps.redact

    async def run(self, command: str | Sequence[str], data: bytes) -> PipedResult:
        """Run a command with `data` on its standard input."""
        return await run_with_input(
            self.session.deps.workspace.spawner,
            CommandSpec(command, self.session.state.cwd, self.env, self.confinement),
            data=data,
            timeout_s=self.limit_s,
            output_bytes_max=OUTPUT_BYTES_MAX,
        )


class HookOutput(msgspec.Struct, frozen=True):
    """Result of a handler: exit code and output as of a command. A JSON answer is in `stdout`."""

    code: int = 0
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    """Reason for a missing answer, for the user."""
    usage: Usage = Usage()
    """Tokens of a model that was asked."""
    cost_usd: float = 0.0
    variables: dict[str, str] = {}
    """Variables for later commands."""


class HookHandler(Protocol):
    """A hook that can be run."""

    @property
    def hook(self) -> Hook:
        """Its description."""

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        """Tell it of an event, as JSON, and return its answer. Cancelled, it ends what it has
        started.
        """


class CommandHandler(msgspec.Struct, frozen=True):
    """A hook that is a command: the event comes on its standard input."""

    hook: Hook

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        ran = await place.run(self.hook.words or self.hook.name, data)
        said, error = (text.decode("utf-8", "replace") for text in (ran.stdout, ran.stderr))
        match ran.exit.cause:
            case "exit" if ran.exit.code is not None:
                return HookOutput(ran.exit.code, said, error)
            case "timeout":
                return HookOutput(problem=f"no answer within {place.limit_s:g} s; it was ended")
            case "flood":
                return HookOutput(
                    problem=f"it printed more than {OUTPUT_BYTES_MAX:,} bytes and was ended"
                )
            case _:
                return HookOutput(
                    problem=ran.exit.message
                    or f"it was ended by {ran.exit.signal or ran.exit.cause}"
                )


class HttpHandler(msgspec.Struct, frozen=True):
    """A hook that is an address: the event is posted to it."""

    hook: Hook
    headers: tuple[tuple[str, str], ...] = ()

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        """See `HookHandler.run`. An answer other than 2xx blocks nothing."""
        from longrein.workspace.http import NetError, host_of, request

        text, url = place.clean(data.decode("utf-8", "surrogateescape")), self.hook.name
        try:
            answer = await request(
                url,
                method="POST",
                content=text.encode("utf-8", "surrogateescape"),
                trusted=(host_of(url),),
                timeout_s=place.limit_s,
                bytes_max=OUTPUT_BYTES_MAX,
                headers=(("content-type", "application/json"), *self.headers),
            )
        except NetError as error:
            return HookOutput(problem=str(error))
        if not 200 <= answer.status < 300 or answer.is_cut:
            much = f"with more than {OUTPUT_BYTES_MAX:,} bytes"
            return HookOutput(
                problem=f"it answered {much if answer.is_cut else f'with status {answer.status}'}"
            )
        return HookOutput(stdout=answer.data.decode("utf-8", "replace"))


# --- Table of hooks -------------------------------------------------------------------------------


class HookTable:
    """All hooks of a tree of sessions."""

    def __init__(
        self,
        handlers: Sequence[HookHandler] = (),
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        may_allow: bool = False,
        outside_sandbox: bool = False,
        make: Callable[[Hook, str], HookHandler | None] | None = None,
    ) -> None:
        """`env`: further variables of commands.

        `may_allow`: whether the user's own hooks may answer a question. `outside_sandbox`: whether
        their commands run outside it. `make` returns the handler of a hook of a skill or subagent
        type for an event, None for one that may not run; without it none does.
        """
        self.make = make
        self.handlers: list[HookHandler] = list(handlers)
        self.env = dict(env or {})
        self.may_allow = may_allow
        self.outside_sandbox = outside_sandbox
        self._timeout_s = timeout_s

    def add(self, handler: HookHandler) -> None:
        """Add a handler, such as a function of the program that drives longrein."""
        self.handlers.append(handler)

    def limit_s(self, hook: Hook) -> float:
        """Return the time limit of a hook, in seconds."""
        return hook.timeout_s or MODEL_TIMEOUT_S.get(hook.kind, self._timeout_s)


NO_HOOKS = HookTable()


def matching(
    handlers: Sequence[HookHandler], event: str, subjects: Sequence[str] = ()
) -> list[HookHandler]:
    """Return the hooks of an event, each command or address once."""
    found: dict[tuple[str, ...], HookHandler] = {}
    for one in handlers:
        if matches(one.hook, event, subjects):
            same = (
                one.hook.kind,
                one.hook.name,
                one.hook.condition,
                one.hook.model,
                str(one.hook.input),
            )
            found.setdefault(same, one)
    return list(found.values())


# --- Hooks of one session -------------------------------------------------------------------------


Condition = Callable[[str], bool]
"""Returns True if the call of an event matches a permission rule."""


class SessionHooks(SessionPart):
    """Runs the hooks of one session; what they decided about calls holds for this run only."""

    rank = 30

    def __init__(self, table: HookTable = NO_HOOKS) -> None:
        """`table`: all hooks of the tree."""
        self.table = table
        self.seen: dict[str, HookAnswer] = {}
        """Open call -> merged answer of its hooks in this run."""
        self.questions: dict[str, None] = {}
        """Open calls whose question was told to hooks."""
        self.told_questions: dict[str, None] = {}
        """Open calls whose question was announced."""
        self.began = False
        """True once the hooks of the session's start have run."""
        self.source = "resume"
        """Way in which the session was opened: `startup`, `resume`, `clear` or `fork`."""
        self._of_type: list[HookHandler] = []
        self._of_skills: dict[tuple[str, int], list[HookHandler]] = {}
        """(skill, entry that loaded it) -> its hooks."""
        self._ran_once: list[HookHandler] = []
        self._running: set[asyncio.Task[None]] = set()
        self._told_once = False
        self._variables: dict[str, str] = {}
        """Variables that hooks of this run have set, secrets included."""

    def opened(self) -> None:
        files = self.session.deps.hook_files
        self._files = files
        self._transcript = HookTranscript(files.append if files else None, self.session.state.label)

    @property
    def transcript_path(self) -> str:
        """File with the conversation so far; '' for none."""
        return self._transcript.path

    @property
    def handlers(self) -> Sequence[HookHandler]:
        """The hooks of the tree, of the subagent's type and of the skills that are loaded."""
        skills = self.session.state.skills
        if not skills and not self._of_type:
            return self.table.handlers
        for key in [(name, skill.seq) for name, skill in skills.items()]:
            if key not in self._of_skills:
                library = self.session.find(Skills)
                self._of_skills[key] = (
                    self._made(library.hooks_of(key[0]), key[0]) if library is not None else []
                )
        loaded = [one for name, skill in skills.items() for one in self._of_skills[name, skill.seq]]
        return [*self.table.handlers, *self._of_type, *loaded]

    def add_of_type(self, hooks: Sequence[Hook]) -> None:
        """Run the hooks of a subagent's type as long as the subagent works."""
        self._of_type = self._made(hooks, self.session.state.kind)

    def _made(self, hooks: Sequence[Hook], owner: str) -> list[HookHandler]:
        """Return the handlers of hooks in the head of a file. `Stop` in a subagent is its own
        end.
        """
        is_subagent, make = self.session.deps.parent_policy is not None, self.table.make
        found: list[HookHandler] = []
        if make is None:
            return found
        for hook in hooks:
            event = "SubagentStop" if is_subagent and hook.event == "Stop" else hook.event
            handler = make(hook, event)
            if handler is not None:
                found.append(handler)
        if left := len(hooks) - len(found):
            self.session.notice(
                f"{left} hooks of {visible(owner)} do not run: confirm them with `longrein trust`"
            )
        return found

    def concern(self, event: str, subjects: Sequence[str] = ()) -> bool:
        """Return True if a hook is about an event."""
        handlers = self.handlers
        return bool(handlers) and any(matches(one.hook, event, subjects) for one in handlers)

    @property
    def compaction_concerns(self) -> bool:
        """True if a hook is about a compaction."""
        triggers = ("manual", "auto")
        return (
            self.concern("PreCompact", triggers)
            or self.concern("PostCompact", triggers)
            or (
                self.session.deps.parent_policy is None
                and self.concern("SessionStart", ("compact",))
            )
        )

    @property
    def end_concerns(self) -> bool:
        """True if a hook is about the end of this session's turns."""
        if self.session.deps.parent_policy is None:
            return self.concern("Stop")
        return self.concern("SubagentStop", (self.session.state.kind,))

    async def collect(self) -> None:
        """Forget the calls that have ended."""
        open_calls = self.session.state.calls
        self.seen = {call: one for call, one in self.seen.items() if call in open_calls}
        for known in (self.questions, self.told_questions):
            for call in [call for call in known if call not in open_calls]:
                del known[call]

    def payload(self, event: str, **more: Any) -> dict[str, Any]:
        """Build what hooks are told of an event."""
        session, transcript = self.session, ""
        if any(one.hook.event == event for one in self.handlers):
            transcript = self._transcript.update(
                session.entries_from, session.process_session, session.state.cwd
            )
        told = {
            "session_id": session.process_session,
            "transcript_path": transcript,
            "cwd": session.state.cwd,
            "permission_mode": session.mode,
            "hook_event_name": event,
        }
        if session.deps.parent_policy is not None:
            told |= {"agent_id": session.state.label, "agent_type": session.state.kind}
        return {**told, **more}

    async def ask(
        self,
        event: str,
        told: Mapping[str, Any],
        *,
        subjects: Sequence[str] = (),
        call: str = "",
        condition: Condition | None = None,
        limit_s: float = 0.0,
    ) -> tuple[HookAnswer, list[HookAnswered]]:
        """Run the hooks of an event; return their merged answer, and the entries to append.

        `limit_s` lowers the limit of each hook. Warnings are shown at once.
        """
        chosen = [
            one
            for one in matching(self.handlers, event, subjects)
            if not one.hook.condition or (condition is not None and condition(one.hook.condition))
            if not (one.hook.once and one in self._ran_once)
        ]
        self._ran_once += [one for one in chosen if one.hook.once]
        if not chosen:
            return HookAnswer(), []
        data = msgspec.json.encode(told, enc_hook=str)
        for one in [one for one in chosen if one.hook.in_background]:
            chosen.remove(one)
            self._start(self._run_aside(one, event, data, call))
        timed = await asyncio.gather(
            *(self._run(one, event, data, limit_s, call) for one in chosen)
        )
        answers = [answer for answer, _ in timed]
        merged = merge_answers(answers)
        if merged.decision == "stop" and event in (
            "Stop",
            "SubagentStop",
        ):  # it beats those that want to go on
            answers = [
                one if one.decision == "stop" else HookAnswer(message=one.message)
                for one in answers
            ]
        entries = [
            msgspec.structs.replace(entry, **_decided(answer))
            for answer, (_, entry) in zip(answers, timed, strict=True)
        ]
        return merged, entries

    async def _run(
        self, handler: HookHandler, event: str, data: bytes, limit_s: float, call: str
    ) -> tuple[HookAnswer, HookAnswered]:
        """Run one hook: (its answer, the entry of it)."""
        session = self.session
        hook = handler.hook
        output = HookOutput()
        began_s = session.deps.clock.mono_s()
        if changed := self._changed_script(hook):
            reason = (
                f"{visible(changed)} has changed since this hook was read, so the hook was not run"
            )
            answer = HookAnswer("ask" if event == "PreToolUse" else "none", reason, problem=reason)
        elif rule := self._denying_rule(hook):
            answer = HookAnswer(problem=f"the rule {visible(rule)} forbids it, so nothing was sent")
        else:
            limit_s = min(limit_s or float("inf"), self.table.limit_s(hook))
            output = await self.run_handler(handler, event, data, limit_s)
            answer = HookAnswer(problem=output.problem)
            if not output.problem:
                answer = read_answer(event, output.code, output.stdout, output.stderr)
        answer = self._without_allowing(hook, answer)
        name = visible(hook.name)[:NAME_CHARS]
        if answer.problem and hook.kind == "command" and self._is_confined(hook):
            answer = msgspec.structs.replace(
                answer, problem=f"{answer.problem} ({SANDBOXED[hook.is_own]})"
            )
        if answer.problem:
            session.notice(f"{event} hook `{name}`: {answer.problem}")
        if answer.message:
            session.notice(f"{event} hook: {answer.message}")
        self._variables |= output.variables
        elapsed_ms = round((session.deps.clock.mono_s() - began_s) * 1000)
        entry = HookAnswered(
            hook.name, event, "none", call, source=hook.source, elapsed_ms=elapsed_ms
        )
        spent = {"usage": output.usage, "cost_usd": output.cost_usd, "variables": output.variables}
        return answer, msgspec.structs.replace(entry, **spent, **_decided(answer))

    async def run_handler(
        self, handler: HookHandler, event: str, data: bytes, limit_s: float
    ) -> HookOutput:
        """Run a hook, or a command of the user that is none, under the rules of hooks; return what
        it printed, which decides nothing yet.
        """
        session = self.session
        env = {**session.deps.workspace.environment(session.process_session), **self.table.env}
        place = HookPlace(session, env, limit_s)
        try:
            async with asyncio.timeout(limit_s + KILL_S):
                if handler.hook.kind != "command":
                    return await handler.run(data, place)
                return await self._output_of_command(handler, event, data, place)
        except TimeoutError:
            return HookOutput(problem=f"no answer within {limit_s:g} s")
        except Exception as error:
            return HookOutput(problem=f"it failed: {type(error).__name__}: {error}")

    # --- Commands ---------------------------------------------------------------------------------

    async def _output_of_command(
        self, handler: HookHandler, event: str, data: bytes, place: HookPlace
    ) -> HookOutput:
        """Run a command, in the sandbox where there is one, with a file for variables where the
        event has one.
        """
        files = self._files if event in ENV_EVENTS else None
        env_file = files.new_env_file() if files is not None else ""
        if env_file:
            place = msgspec.structs.replace(place, env={**place.env, "CLAUDE_ENV_FILE": env_file})
        try:
            sandbox = self._sandbox(handler.hook, env_file)
            if sandbox is None:
                output = await handler.run(data, place)
                return await self._with_variables(output, place, env_file)
            sandbox.begin()
            try:
                confined = msgspec.structs.replace(
                    place, confinement=sandbox.confine(self.session.state.cwd)
                )
                output = await self._with_variables(
                    await handler.run(data, confined), confined, env_file
                )
            except OSError as error:
                output = HookOutput(
                    problem=f"the sandbox could not be set up: {error.strerror or error}"
                )
            finally:
                sandbox.end()
        finally:
            if files is not None:
                files.remove(env_file)
        for line in sandbox.take_report().lines():
            self.session.notice(f"after a hook: {line}")
        return output

    def _is_confined(self, hook: Hook) -> bool:
        from longrein.agent.current_rules import confines

        if hook.is_own and self.table.outside_sandbox:
            return False
        return confines(self.session.deps.sandbox)

    def _sandbox(self, hook: Hook, env_file: str) -> "SessionConfinement | None":
        """Return the sandbox of a hook; None where it runs as the user.

        The hook sees the transcript and its scripts, and can change its file for variables.
        """
        session = self.session
        if not self._is_confined(hook):
            return None
        project = self.table.env.get("CLAUDE_PROJECT_DIR", "")
        shown = [path for path in (self.transcript_path, project, *hook.shown) if path]
        resolve = session.deps.workspace.resolve
        found = [place.real for path in shown if (place := resolve(path, "/")).kind]
        writable = (self._files.env_folder,) if env_file and self._files is not None else ()
        from longrein.agent.confinement import SessionConfinement

        return SessionConfinement(session, found, writable)

    async def _with_variables(
        self, output: HookOutput, place: HookPlace, env_file: str
    ) -> HookOutput:
        """Add the variables that a hook has written into its file."""
        if not env_file or self._files is None or not self._files.has_content(env_file):
            return output
        ran = await place.run(READ_VARIABLES, b"")
        given = place.confinement.env if place.confinement is not None else {}
        known = {**place.env, **given}
        pairs = (
            pair.partition("=")
            for pair in ran.stdout.decode("utf-8", "replace").split("\0")
            if "=" in pair
        )
        found = {
            name: value
            for name, _, value in pairs
            if known.get(name) != value
            and name not in SHELL_VARIABLES
            and not name.startswith(("BASH", "LONGREIN_"))
        }
        if ran.exit.code != 0 or sum(map(len, (*found, *found.values()))) > VARIABLES_BYTES_MAX:
            why = (
                f"its CLAUDE_ENV_FILE cannot be read, or sets more than {VARIABLES_BYTES_MAX:,} "
                "bytes"
            )
            return msgspec.structs.replace(output, problem=output.problem or why)
        return msgspec.structs.replace(output, variables=found)

    @property
    def variables(self) -> dict[str, str]:
        """Variables that hooks have set for commands: those of this run, and of earlier ones but
        for secrets.

        The log, which may come from elsewhere, counts only for hooks that the user still has.
        """
        state, redact = self.session.state, self.session.deps.redact
        if not state.variables:
            return {}
        sign = marker_sign(state.nonce)
        hooks = {redact(one.hook.name) for one in self.handlers if one.hook.event in ENV_EVENTS}
        stored = {
            name: value
            for name, (value, hook) in state.variables.items()
            if hook in hooks and sign not in value
        }
        return stored | self._variables

    @property
    def all_variables(self) -> dict[str, str]:
        """Variables that hooks have set for commands, for this session and above it."""
        above = self.session.deps.parent_policy
        return self.variables if above is None else above.variables | self.variables

    def _changed_script(self, hook: Hook) -> str:
        """Return the first script of a hook that is not what it was when the hook was read; ''
        for none.
        """
        workspace = self.session.deps.workspace
        return next(
            (
                path
                for path, digest in hook.files
                if workspace.hash(workspace.resolve(path, "/").real) != digest
            ),
            "",
        )

    def _denying_rule(self, hook: Hook) -> str:
        """Return the deny rule that covers the address of a hook (as of `WebFetch`) or its MCP
        tool; '' for none.
        """
        from longrein.permissions.rule_evaluation import judge

        rules = self.session.rules
        if hook.kind not in ("http", "mcp_tool") or not rules.deny:
            return ""
        call = Call("WebFetch", {"url": hook.name}, "read")
        if hook.kind == "mcp_tool":
            call = Call(hook.name, hook.input, "command")
        verdict = judge(call, rules, "default", self.session.state.cwd)
        return verdict.rule if verdict.kind == "deny" else ""

    def _without_allowing(self, hook: Hook, answer: HookAnswer) -> HookAnswer:
        """Drop an `allow` of a hook that may only narrow."""
        may = hook.kind == "callback" or (self.table.may_allow and hook.is_own)
        if answer.decision != "allow" or may:
            return answer
        if not self._told_once:
            self._told_once = True
            why = "hooks.may_allow = true in your config.toml lets your own hooks answer questions"
            self.session.notice(
                f"the hook `{visible(hook.name)[:NAME_CHARS]}` allows calls; they are asked as "
                f"usual: {why}"
            )
        return msgspec.structs.replace(answer, decision="none")

    # --- Hooks that nothing waits for -------------------------------------------------------------

    def inform(self, event: str, subject: str = "", **more: Any) -> None:
        """Run the hooks of an event without waiting for them; their answers are recorded when
        they come.
        """
        if not self.session.closed and self.concern(event, (subject,)):
            told = self.payload(event, **more)
            self._start(self._inform(event, told, subject))

    async def _inform(self, event: str, told: Mapping[str, Any], subject: str) -> None:
        _, entries = await self.ask(event, told, subjects=(subject,))
        self._record(entries)

    async def _run_aside(self, handler: HookHandler, event: str, data: bytes, call: str) -> None:
        """Run one hook in the background: it can tell the model something, and decides nothing."""
        answer, entry = await self._run(handler, event, data, 0.0, call)
        reason = answer.reason if answer.decision in ("block", "deny") else ""
        told = HookAnswer(
            context="\n".join(filter(None, (reason, answer.context))), message=answer.message
        )
        self._record([msgspec.structs.replace(entry, **_decided(told))])

    def _record(self, entries: Sequence[HookAnswered]) -> None:
        if entries and not self.session.closed:
            self.session.append(*entries)
            self.session.commit(flush=False)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def tell_question(self, call: str) -> None:
        """Announce a permission question, once."""
        open_call = self.session.state.calls.get(call)
        if open_call is None or open_call.asked is None or call in self.told_questions:
            return
        self.told_questions[call] = None
        above = self.session.deps.parent_policy
        in_background = above is not None and above.in_background
        kind = "agent_needs_input" if in_background else "permission_prompt"
        self.notify(kind, f"longrein needs your permission to use {open_call.asked.name}")

    def notify(self, kind: str, message: str) -> None:
        """Run the hooks of `Notification`. `kind`: one of the notification types."""
        self.inform("Notification", kind, message=message, title="longrein", notification_type=kind)

    async def _notify_idle(self, turn: int) -> None:
        """Tell hooks that nobody has written for a while since the end of the turn that began at
        `turn`.
        """
        await self.session.deps.clock.sleep(IDLE_S)
        if self.session.state.began_at == turn and not self.session.state.turn_open:
            self.notify("idle_prompt", "longrein is waiting for your input")

    def tell_end(self, reason: str, message: str) -> None:
        """Announce that a turn has ended by an error, and after a while that nobody has written
        since.
        """
        if reason == "error":
            self.inform("StopFailure", "error", error=message, last_assistant_message="")
        if self.session.deps.parent_policy is None and self.concern(
            "Notification", ("idle_prompt",)
        ):
            self._start(self._notify_idle(self.session.state.began_at))

    async def close(self) -> None:
        """Run the hooks of the session's end, for a moment only; end those that nothing waits
        for.
        """
        reason = self.session.end_reason
        if (
            self.began
            and self.session.deps.parent_policy is None
            and self.concern("SessionEnd", (reason,))
        ):
            told = self.payload("SessionEnd", reason=reason)
            _, entries = await self.ask(
                "SessionEnd", told, subjects=(reason,), limit_s=SESSION_END_S
            )
            self.session.append(*entries)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


def _decided(answer: HookAnswer) -> dict[str, Any]:
    """Return the fields of an entry that say what a hook has answered."""
    return {
        "decision": answer.decision,
        "text": answer.reason if answer.decision not in ("none", "allow") else "",
        "context": answer.context,
        "message": "; ".join(filter(None, (answer.message, answer.problem))),
        "arguments": answer.updated_input,
        "failed": bool(answer.problem),
    }

"""Hooks of a session: run the handlers of an event in parallel, merge what they answer, record each answer.

A handler is a command, an address or a function of another program; `HookTable.add` takes any. What an event means for
the loop is in `hook_events`.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from longrein.agent.hook_transcript import HookTranscript
from longrein.events import HookAnswered
from longrein.permissions import Call, Hook, HookAnswer, visible
from longrein.permissions.hooks import SESSION_END_S, TIMEOUT_S, matches, merge_answers, read_answer
from longrein.workspace import Spawner, post_json, run_with_input

if TYPE_CHECKING:
    from longrein.agent.session import Session

OUTPUT_BYTES_MAX = 1_000_000
"""Output of a hook; one that prints more is ended."""
KILL_S = 5.0
"""Time beyond the limit in which a handler must have ended what it started."""
NAME_CHARS = 80

# --- Handlers --------------------------------------------------------------------------------------------------------


class HookPlace(msgspec.Struct, frozen=True):
    """Where a handler runs."""

    cwd: str
    env: Mapping[str, str]
    spawner: Spawner
    limit_s: float
    clean: Callable[[str], str]
    """Replaces secrets in what leaves this machine."""


class HookOutput(msgspec.Struct, frozen=True):
    """What a handler gave back: exit code and output as of a command. A JSON answer is in `stdout`."""

    code: int = 0
    stdout: str = ""
    stderr: str = ""
    problem: str = ""
    """Why there is no answer, for the user."""


class HookHandler(Protocol):
    """A hook that can be run."""

    @property
    def hook(self) -> Hook:
        """Its description."""

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        """Tell it of an event, as JSON, and return its answer. Cancelled, it ends what it has started."""


class CommandHandler(msgspec.Struct, frozen=True):
    """A hook that is a command: the event comes on its standard input."""

    hook: Hook

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        """See `HookHandler.run`."""
        ran = await run_with_input(
            place.spawner,
            self.hook.words or self.hook.name,
            data=data,
            cwd=place.cwd,
            env=place.env,
            timeout_s=place.limit_s,
            output_bytes_max=OUTPUT_BYTES_MAX,
        )
        said, error = (text.decode("utf-8", "replace") for text in (ran.stdout, ran.stderr))
        match ran.exit.cause:
            case "exit" if ran.exit.code is not None:
                return HookOutput(ran.exit.code, said, error)
            case "timeout":
                return HookOutput(problem=f"no answer within {place.limit_s:g} s; it was ended")
            case "flood":
                return HookOutput(problem=f"it printed more than {OUTPUT_BYTES_MAX:,} bytes and was ended")
            case _:
                return HookOutput(problem=ran.exit.message or f"it was ended by {ran.exit.signal or ran.exit.cause}")


class HttpHandler(msgspec.Struct, frozen=True):
    """A hook that is an address: the event is posted to it."""

    hook: Hook
    headers: tuple[tuple[str, str], ...] = ()

    async def run(self, data: bytes, place: HookPlace) -> HookOutput:
        """See `HookHandler.run`. An answer other than 2xx blocks nothing."""
        text = place.clean(data.decode("utf-8", "surrogateescape"))
        sent = text.encode("utf-8", "surrogateescape")
        status, said, problem = await post_json(self.hook.name, sent, self.headers, place.limit_s, OUTPUT_BYTES_MAX)
        if problem or not 200 <= status < 300:
            return HookOutput(problem=problem or f"it answered with status {status}")
        return HookOutput(stdout=said.decode("utf-8", "replace"))


# --- Table of hooks --------------------------------------------------------------------------------------------------


class HookTable:
    """All hooks of a tree of sessions."""

    def __init__(
        self,
        handlers: Sequence[HookHandler] = (),
        *,
        env: Mapping[str, str] | None = None,
        timeout_s: float = TIMEOUT_S,
        may_allow: bool = False,
    ) -> None:
        """`env`: further variables of commands. `may_allow`: whether the user's own hooks may answer a question."""
        self.handlers: list[HookHandler] = list(handlers)
        self.env, self.may_allow = dict(env or {}), may_allow
        self._timeout_s = timeout_s

    def add(self, handler: HookHandler) -> None:
        """Add a handler, such as a function of the program that drives longrein."""
        self.handlers.append(handler)

    def has(self, event: str) -> bool:
        """Return True if any hook is about `event`."""
        return any(one.hook.event == event for one in self.handlers)

    def matching(self, event: str, subjects: Sequence[str] = ()) -> list[HookHandler]:
        """Return the hooks of an event, each command or address once."""
        found: dict[tuple[str, ...], HookHandler] = {}
        for one in self.handlers:
            if matches(one.hook, event, subjects):
                found.setdefault((one.hook.kind, one.hook.name, one.hook.condition), one)
        return list(found.values())

    def limit_s(self, hook: Hook) -> float:
        """Return the time limit of a hook, in seconds."""
        return hook.timeout_s or self._timeout_s


NO_HOOKS = HookTable()


# --- Hooks of one session --------------------------------------------------------------------------------------------


Condition = Callable[[str], bool]
"""Returns True if the call of an event matches a permission rule."""


class SessionHooks:
    """Runs the hooks of one session; what they decided about calls holds for this run only."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self.seen: dict[str, HookAnswer] = {}
        """Open call -> merged answer of its hooks in this run."""
        self.inputs: dict[str, dict[str, Any]] = {}
        """Open call -> input that a hook has put in place of the model's."""
        self.questions: dict[str, None] = {}
        """Open calls whose question was told to hooks."""
        self.told_questions: dict[str, None] = {}
        """Open calls whose question was announced."""
        self.began = False
        """True once the hooks of the session's start have run."""
        self.source = "resume"
        """How the session was opened: `startup`, `resume` or `fork`."""
        self._running: set[asyncio.Task[None]] = set()
        self._told_once = False
        self._transcript = HookTranscript(session.deps.transcript, session.state.label)

    @property
    def transcript_path(self) -> str:
        """File with the conversation so far; '' for none."""
        return self._transcript.path

    @property
    def table(self) -> HookTable:
        """All hooks."""
        return self._session.deps.hooks or NO_HOOKS

    def concern(self, event: str, subjects: Sequence[str] = ()) -> bool:
        """Return True if a hook is about an event."""
        handlers = self.table.handlers
        return bool(handlers) and any(matches(one.hook, event, subjects) for one in handlers)

    @property
    def end_concerns(self) -> bool:
        """True if a hook is about the end of this session's turns."""
        if self._session.deps.parent_policy is None:
            return self.concern("Stop")
        return self.concern("SubagentStop", (self._session.state.kind,))

    def forget(self, call: str) -> None:
        """Forget a call that has ended."""
        for known in (self.seen, self.inputs, self.questions, self.told_questions):
            known.pop(call, None)

    def payload(self, event: str, **more: Any) -> dict[str, Any]:
        """Build what hooks are told of an event."""
        session, transcript = self._session, ""
        if self.table.has(event):
            transcript = self._transcript.update(session.entries_from, session.process_session, session.state.cwd)
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
            for one in self.table.matching(event, subjects)
            if not one.hook.condition or (condition is not None and condition(one.hook.condition))
        ]
        if not chosen:
            return HookAnswer(), []
        data = msgspec.json.encode(told, enc_hook=str)
        for one in [one for one in chosen if one.hook.in_background]:
            chosen.remove(one)
            self._start(self._run_aside(one, event, data, call))
        timed = await asyncio.gather(*(self._run(one, event, data, limit_s) for one in chosen))
        answers = [answer for answer, _ in timed]
        merged = merge_answers(answers)
        if merged.decision == "stop" and event in ("Stop", "SubagentStop"):  # it beats those that want to go on
            answers = [one if one.decision == "stop" else HookAnswer(message=one.message) for one in answers]
        entries = [
            _entry(one.hook, event, call, answer, elapsed_ms)
            for one, answer, (_, elapsed_ms) in zip(chosen, answers, timed, strict=True)
        ]
        return merged, entries

    async def _run(self, handler: HookHandler, event: str, data: bytes, limit_s: float) -> tuple[HookAnswer, int]:
        """Run one hook: (its answer, milliseconds)."""
        session, hook = self._session, handler.hook
        began_s = session.deps.clock.mono_s()
        if changed := self._changed_script(hook):
            reason = f"{visible(changed)} has changed since this hook was read, so the hook was not run"
            answer = HookAnswer("ask" if event == "PreToolUse" else "none", reason, problem=reason)
        elif rule := self._denying_rule(hook):
            answer = HookAnswer(problem=f"the rule {visible(rule)} forbids this address, so nothing was sent to it")
        else:
            limit_s = min(limit_s or float("inf"), self.table.limit_s(hook))
            output = await self._output(handler, data, limit_s)
            answer = HookAnswer(problem=output.problem)
            if not output.problem:
                answer = read_answer(event, output.code, output.stdout, output.stderr)
        answer = self._without_allowing(hook, answer)
        name = visible(hook.name)[:NAME_CHARS]
        if answer.problem:
            session.notice(f"{event} hook `{name}`: {answer.problem}")
        if answer.message:
            session.notice(f"{event} hook: {answer.message}")
        return answer, round((session.deps.clock.mono_s() - began_s) * 1000)

    async def _output(self, handler: HookHandler, data: bytes, limit_s: float) -> HookOutput:
        session = self._session
        env = {**session.deps.workspace.environment(session.process_session), **self.table.env}
        place = HookPlace(session.state.cwd, env, session.deps.workspace.spawner, limit_s, session.deps.redact)
        try:
            async with asyncio.timeout(limit_s + KILL_S):
                return await handler.run(data, place)
        except TimeoutError:
            return HookOutput(problem=f"no answer within {limit_s:g} s")
        except Exception as error:
            return HookOutput(problem=f"it failed: {type(error).__name__}: {error}")

    def _changed_script(self, hook: Hook) -> str:
        """Return the first script of a hook that is not what it was when the hook was read; '' for none."""
        workspace = self._session.deps.workspace
        return next(
            (path for path, digest in hook.files if workspace.hash(workspace.resolve(path, "/").real) != digest), ""
        )

    def _denying_rule(self, hook: Hook) -> str:
        """Return the deny rule for `WebFetch` that covers the address of a hook; '' for none."""
        from longrein.permissions.verdict import judge

        rules = self._session.rules
        if hook.kind != "http" or not rules.deny:
            return ""
        call = Call("WebFetch", {"url": hook.name}, "read")
        verdict = judge(call, rules, "default", self._session.state.cwd)
        return verdict.rule if verdict.kind == "deny" else ""

    def _without_allowing(self, hook: Hook, answer: HookAnswer) -> HookAnswer:
        """Drop an `allow` of a hook that may only narrow."""
        may = hook.kind == "callback" or (self.table.may_allow and hook.is_own)
        if answer.decision != "allow" or may:
            return answer
        if not self._told_once:
            self._told_once = True
            why = "hooks.may_allow = true in your config.toml lets your own hooks answer questions"
            self._session.notice(
                f"the hook `{visible(hook.name)[:NAME_CHARS]}` allows calls; they are asked as usual: {why}"
            )
        return msgspec.structs.replace(answer, decision="none")

    # --- Hooks that nothing waits for ----------------------------------------------------------------------------

    def inform(self, event: str, subject: str = "", **more: Any) -> None:
        """Run the hooks of an event without waiting for them; their answers are recorded when they come."""
        if not self._session.closed and self.concern(event, (subject,)):
            told = self.payload(event, **more)
            self._start(self._inform(event, told, subject))

    async def _inform(self, event: str, told: Mapping[str, Any], subject: str) -> None:
        _, entries = await self.ask(event, told, subjects=(subject,))
        self._record(entries)

    async def _run_aside(self, handler: HookHandler, event: str, data: bytes, call: str) -> None:
        """Run one hook in the background: it can tell the model something, and decides nothing."""
        answer, elapsed_ms = await self._run(handler, event, data, 0.0)
        reason = answer.reason if answer.decision in ("block", "deny") else ""
        told = HookAnswer(context="\n".join(filter(None, (reason, answer.context))), message=answer.message)
        self._record([_entry(handler.hook, event, call, told, elapsed_ms)])

    def _record(self, entries: Sequence[HookAnswered]) -> None:
        if entries and not self._session.closed:
            self._session.append(*entries)
            self._session.commit(flush=False)

    def _start(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def tell_question(self, call: str) -> None:
        """Announce a permission question, once."""
        open_call = self._session.state.calls.get(call)
        if open_call is None or open_call.asked is None or call in self.told_questions:
            return
        self.told_questions[call] = None
        said = f"longrein needs your permission to use {open_call.asked.name}"
        kind = "permission_prompt"
        self.inform("Notification", kind, message=said, title="longrein", notification_type=kind)

    def tell_end(self, reason: str, message: str) -> None:
        """Announce that a turn ended by an error."""
        if reason == "error":
            self.inform("StopFailure", "error", error=message, last_assistant_message="")

    async def end(self) -> None:
        """Run the hooks of the session's end, for a moment only; end those that nothing waits for."""
        if self.began and self._session.deps.parent_policy is None and self.concern("SessionEnd", ("other",)):
            told = self.payload("SessionEnd", reason="other")
            _, entries = await self.ask("SessionEnd", told, subjects=("other",), limit_s=SESSION_END_S)
            self._session.append(*entries)
        for task in self._running:
            task.cancel()
        if self._running:
            await asyncio.wait(self._running)


def _entry(hook: Hook, event: str, call: str, answer: HookAnswer, elapsed_ms: int) -> HookAnswered:
    """Build the log entry of an answer."""
    return HookAnswered(
        hook.name,
        event,
        answer.decision,
        call,
        answer.reason if answer.decision not in ("none", "allow") else "",
        answer.context,
        "; ".join(filter(None, (answer.message, answer.problem))),
        answer.updated_input,
        hook.source,
        elapsed_ms,
    )

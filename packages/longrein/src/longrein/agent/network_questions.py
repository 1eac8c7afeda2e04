"""Questions about hosts that confined commands of one session want to reach.

A command waits at the proxy while its host is asked for. The loop is busy with that command
meanwhile, or with a request while a background task asks. So question and answer go into the log
here, beside the current move.
"""

import asyncio
from collections.abc import Awaitable

from longrein.agent.messages import NETWORK_CALL, Answer, InboxMessage, approval_digest
from longrein.agent.redaction import redacted
from longrein.agent.session_part import SessionPart
from longrein.permissions import Verdict
from longrein.permissions.network_hosts import NETWORK, Target, judge_host
from longrein_context.events import PermissionAnswered, PermissionAsked

LOOK_S = 0.5
"""Interval in which an open question is compared with the commands that still run."""
QUESTIONS_MAX = 200
"""Questions of one run; more hosts are refused unasked, so that a command cannot flood the user
and the log.
"""
REFUSALS_MAX = 1_000
"""Reasons that are remembered for the results of commands."""
ENDED = "the session that started this command has ended"


class NetworkQuestions(SessionPart):
    """Decide on hosts: by the settings, by the rules, by the user."""

    rank = 35

    def __init__(self) -> None:
        self._one_at_a_time = asyncio.Lock()
        self._open: dict[str, tuple[PermissionAsked, asyncio.Future[Answer]]] = {}
        self._single: dict[Target, tuple[Verdict, frozenset[str]]] = {}
        """Answers for once, with the commands that ran then: they hold until those have ended."""
        self._asked = 0
        self._refusals: dict[str, int] = {}
        """Reason -> number of its last refusal, oldest first."""
        self.refused_count = 0
        """Refusals so far."""

    async def decide(self, target: Target) -> str:
        """Return why a command may not reach a host; '' if it may. Waits for the user's answer
        where one is needed.
        """
        verdict = self._judge(target)
        if verdict.kind == "ask":
            async with self._one_at_a_time:
                verdict = self._judge(target)  # the answer before may hold for this one too
                if verdict.kind == "ask":
                    verdict = await self._ask(target, verdict)
        return "" if verdict.kind == "allow" else verdict.reason

    def refused(self, reason: str) -> None:
        """Remember a refusal for the results of the commands that run now; tell the user where
        only tasks run.
        """
        if not self.session.running and reason not in self._refusals and not self.session.closed:
            self.session.notice(f"the sandbox refused a host to a background task: {reason}")
        self.refused_count += 1
        self._refusals.pop(reason, None)
        self._refusals[reason] = self.refused_count
        if len(self._refusals) > REFUSALS_MAX:
            del self._refusals[next(iter(self._refusals))]

    def refusals_since(self, count: int) -> list[str]:
        """Return the reasons of the refusals after the first `count`, each once."""
        return [reason for reason, number in self._refusals.items() if number > count]

    def is_open(self, call: str) -> bool:
        """Return True if `call` is the id of a question that waits."""
        return call in self._open

    def answer(self, answer: Answer) -> Awaitable[None]:
        """Take an answer into the log and let the commands go on; the awaitable is done when it
        is on disk.
        """
        session, (question, answered) = self.session, self._open.pop(answer.call)
        if answer.verdict == "allow" and answer.digest not in ("", approval_digest(question)):
            answer = Answer(
                answer.call, "deny", message="the answer was for another question", by=answer.by
            )
        answer = session.grant(answer, question)
        session.append(
            PermissionAnswered(
                answer.call,
                answer.verdict,
                answer.by,
                answer.scope,
                answer.rule,
                answer.message,
            )
        )
        if not answered.done():
            answered.set_result(answer)
        return session.commit(flush=True)

    def tell(self, message: InboxMessage) -> Awaitable[None] | None:
        if isinstance(message, Answer) and self.is_open(message.call):
            return self.answer(message)
        return None

    async def close(self) -> None:
        """Withdraw all questions: the session ends."""
        for call in list(self._open):
            self._withdraw(call)

    def _judge(self, target: Target) -> Verdict:
        session = self.session
        sandbox = session.deps.sandbox
        entries = sandbox.entries if sandbox is not None else ()
        verdict = judge_host(target, entries, session.rules, session.mode)
        if verdict.kind != "ask":
            return verdict
        if session.closed:
            return Verdict("deny", f"{target.entry} is not allowed, and {ENDED}")
        single, work = self._single.get(target, (verdict, frozenset()))
        if work & self._work():
            return single
        if self._asked >= QUESTIONS_MAX:
            return Verdict(
                "deny",
                f"{target.entry} is not allowed, and {QUESTIONS_MAX} hosts were asked for already",
            )
        return verdict

    def _work(self) -> frozenset[str]:
        """Return the calls and background tasks that run."""
        tasks = self.session.state.tasks
        return frozenset(
            (*self.session.running, *(name for name, task in tasks.items() if task.ended is None))
        )

    async def _ask(self, target: Target, verdict: Verdict) -> Verdict:
        """Ask the user; the question is withdrawn when the commands that ran at its start have
        ended.
        """
        session, work = self.session, self._work()
        self._asked += 1
        call = f"{NETWORK_CALL}{session.state.seq + 1}"
        question = PermissionAsked(
            call, NETWORK, verdict.shown, verdict.reason, "\n".join(verdict.suggestions)
        )
        session.append(question)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[call] = redacted(question, session.deps.redact), answered
        session.commit(flush=False)
        try:
            while not answered.done():
                await asyncio.wait((answered,), timeout=LOOK_S)
                if not answered.done() and work and not work & self._work():
                    self._withdraw(call)
        finally:
            if call in self._open:
                self._withdraw(call)
        answer = answered.result()
        if answer.verdict == "allow":
            found = Verdict("allow", "the user allowed it")
        else:
            found = Verdict("deny", f"{target.entry} is not allowed: {_said(answer, target)}")
        self._single[target] = found, work
        return found

    def _withdraw(self, call: str) -> None:
        _, answered = self._open.pop(call)
        self.session.append(PermissionAnswered(call, "deny", "interrupt"))
        self.session.commit(flush=False)
        if not answered.done():
            answered.set_result(Answer(call, "deny", by="interrupt"))


def _said(answer: Answer, target: Target) -> str:
    """Return why an answer was no."""
    if answer.by == "headless":
        return f'nobody could be asked; add "{target.entry}" to sandbox.network to allow it'
    if answer.by == "interrupt":
        return "it was asked for, and the command ended before an answer came"
    return "the user said no" + (f": {answer.message}" if answer.message else "")

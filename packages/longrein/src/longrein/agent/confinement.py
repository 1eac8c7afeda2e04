"""The sandbox of one session's commands: what its rules hide, what a command changed that it
must not.
"""

import errno
import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.current_rules import current_rules
from longrein.agent.network_questions import NetworkQuestions
from longrein.workspace import Confinement
from longrein.workspace.sandbox import SandboxReport, SessionSandbox
from longrein_context import State
from longrein_context.events import TaskStarted

if TYPE_CHECKING:
    from longrein.agent.session import Session


class SessionConfinement(msgspec.Struct):
    """Implement `tools.SandboxPort` for a session in which a sandbox works."""

    session: "Session"
    shown: Sequence[str] = ()
    """Further paths that the commands may read."""
    writable: Sequence[str] = ()
    """Further paths that the commands may change."""
    refused_before: int = 0
    """Refusals of hosts before the command began."""

    @property
    def network(self) -> str:
        sandbox = self.session.deps.sandbox
        if sandbox is None or sandbox.network:
            return "all"
        return "proxy" if sandbox.entries else "none"

    @property
    def refused_hosts(self) -> Sequence[str]:
        questions = self.session.find(NetworkQuestions)
        return questions.refusals_since(self.refused_before) if questions is not None else ()

    def confine(self, cwd: str) -> Confinement | None:
        return confine(self.session, cwd, self.shown, self.writable)

    def begin(self) -> None:
        deps, tasks = self.session.deps, self.session.state.tasks.values()
        questions = self.session.find(NetworkQuestions)
        self.refused_before = questions.refused_count if questions is not None else 0
        if deps.sandbox is not None:
            others_run = any(now.ended is None for now in tasks)
            deps.sandbox.begin(deps.workspace.roots, others_run=others_run)

    def end(self) -> None:
        deps = self.session.deps
        if deps.sandbox is not None:
            deps.sandbox.end(deps.workspace.roots)

    def take_report(self) -> SandboxReport:
        sandbox = self.session.deps.sandbox
        return sandbox.take_report() if sandbox is not None else SandboxReport()


def report_of_task(
    sandbox: SessionSandbox | None, roots: Sequence[str], started: TaskStarted
) -> str:
    """Return what the sandbox finds at the end of a background command; '' for nothing."""
    if sandbox is None or not sandbox.rung.confines or started.outside_sandbox:
        return ""
    sandbox.look(roots)
    return "; ".join(sandbox.take_report().lines())


_PATH = re.compile(r"""(?<![\w.~/-])(?:"(/[^"\n]+)"|'(/[^'\n]+)'|(/[^\s"'`,;:()<>|*?]+))""")
"""An absolute path in the words of a user, in quotes where it holds a blank."""


def named_paths(state: State) -> Iterable[str]:
    """Return the real paths that file tools have read or written, and those in the user's words."""
    return chain(state.files, *(_paths_in(word.text) for word in state.words))


@lru_cache(maxsize=64)
def _paths_in(text: str) -> Sequence[str]:
    named = ("".join(one.groups("")) for one in _PATH.finditer(text))
    return [os.path.realpath(one.rstrip(".!")) for one in named if "\0" not in one]


def confine(
    session: "Session",
    cwd: str,
    shown: Sequence[str] = (),
    writable: Sequence[str] = (),
    *,
    sandbox: SessionSandbox | None = None,
) -> Confinement | None:
    """Return how to confine a command; None without a sandbox. Raises OSError where it cannot be
    set up.

    `shown`, `writable`: further existing real paths that the command may read and change.
    `sandbox`: another one than that of the session's commands.
    """
    sandbox = sandbox or session.deps.sandbox
    if sandbox is None or not sandbox.rung.confines:
        return None
    sandbox.show_named(named_paths(session.state))
    if refusal := sandbox.missing.refusal():
        raise PermissionError(errno.EPERM, refusal)
    masks = current_rules(session).find_masks()
    proxy = ""
    if sandbox.entries:
        questions = session.ensure(NetworkQuestions)
        proxy = sandbox.open_proxy(session.id, questions.decide, questions.refused)
    elif problem := sandbox.take_problem():
        session.notice(problem)
    roots = (*session.deps.workspace.roots, *writable)
    return sandbox.confine(roots, cwd, masks.hidden, masks.locked, proxy, shown)

"""The sandbox of one session's commands: what its rules hide, what a command changed that it
must not.
"""

import errno
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.network_questions import NetworkQuestions
from longrein.permissions import Call, Rules, Touched, glob_base, read_deny_rule, visible
from longrein.permissions.rules import parse_rule
from longrein.workspace import Confinement, ResolvedPath
from longrein.workspace.sandbox import Masks, SessionSandbox

if TYPE_CHECKING:
    from longrein.agent.session import Session

LOOK_S = 0.5
"""Limit of the search for forbidden files; a tree of 50,000 files takes about as long the first
time.
"""


def policy_views(session: "Session", path: str, real: str) -> Iterator[tuple[str, str, Rules, str]]:
    """Yield (path, real path, rules, current folder) of a file: here, and in folders a worktree
    stands for.
    """
    rules, cwd, above = session.rules, session.state.cwd, session.deps.parent_policy
    yield path, real, rules, cwd
    made = Call("Read", {}, "read", (Touched(path, path, real, True, False),))
    for call, others, folder in above.elsewhere(made, cwd) if above is not None else ():
        for touched in call.touched:
            yield touched.path, touched.real, others, folder


def find_masks(session: "Session") -> Masks:
    """Return the existing files and folders that rules forbid to read or to change."""
    unreadable, unchangeable = deny_rules(session, "Read"), deny_rules(session, "Edit")
    if not unreadable and not unchangeable:
        return Masks()
    elsewhere = [base for rule in unreadable if (base := _base_outside(session, rule))]
    if "/" in elsewhere:
        return Masks(
            problem=f"the rule {visible(unreadable[0])} forbids files anywhere on this machine"
        )
    places = (*session.deps.workspace.roots, *_visible_places(session.deps.sandbox, elsewhere))
    tests = (_forbidden(session, "Read", unreadable), _forbidden(session, "Edit", unchangeable))
    return session.masks.find(places, *tests, (unreadable, unchangeable, session.state.cwd), LOOK_S)


def forbidden_names(session: "Session", place: ResolvedPath) -> tuple[str, ...]:
    """Return the paths of the same file by names of which a rule forbids one; () for none.

    Only a file with further names (hard links) is looked up: forbidden files are searched then.
    """
    if place.identity is None:
        return ()
    return find_masks(session).linked.get(place.identity, ())


def deny_rules(session: "Session", tool: str) -> tuple[str, ...]:
    """Return the rules with a path that forbid a tool, here and where a worktree stands for."""
    cwd = session.state.cwd
    views = policy_views(session, cwd, cwd)
    return tuple(
        rule
        for _, _, rules, _ in views
        for rule in rules.deny
        if rule.lstrip().startswith(f"{tool}(")
    )


def _forbidden(session: "Session", tool: str, deny: Sequence[str]) -> Callable[[str, str], bool]:
    """Return a test (path, real path) whether a rule forbids `tool`; `deny` are all rules for
    it.
    """
    if not deny:
        return lambda _path, _real: False
    if session.deps.parent_policy is None:
        rules, cwd = msgspec.structs.replace(session.rules, deny=tuple(deny)), session.state.cwd
        return lambda path, real: bool(read_deny_rule(path, real, rules, cwd, tool))
    return lambda path, real: any(
        read_deny_rule(*place, tool) for place in policy_views(session, path, real)
    )


def _base_outside(session: "Session", text: str) -> str:
    """Return the existing folder or file outside the roots below which a rule forbids reading;
    '' for none.
    """
    rule, look = parse_rule(text), session.deps.workspace.resolve
    spec = rule.spec.strip()
    if rule.problem or not spec.startswith(("//", "~/", "../")):
        return ""
    path = look(spec[1:] if spec.startswith("//") else spec, session.rules.base or "/").path
    if path != glob_base(f"{path}/*"):
        path = glob_base(path)
    place = look(path.removesuffix("/**"), "/")
    return "" if place.inside or not place.kind else place.real


def _visible_places(sandbox: SessionSandbox | None, places: Sequence[str]) -> list[str]:
    """Return the places with home replaced by what commands see of it."""
    home = sandbox.home if sandbox is not None else ""
    shown = sandbox.visible_home if sandbox is not None else ()
    return [one for place in places for one in (shown if place == home else (place,))]


class SessionConfinement:
    """Implement `tools.SandboxPort` for a session in which a sandbox works."""

    def __init__(
        self, session: "Session", shown: Sequence[str] = (), writable: Sequence[str] = ()
    ) -> None:
        """`shown`, `writable`: further paths that the commands may read and change."""
        self._session, self._shown, self._writable = session, shown, writable
        self._refused_before = 0

    @property
    def network(self) -> str:
        sandbox = self._session.deps.sandbox
        if sandbox is None or sandbox.network:
            return "all"
        return "proxy" if sandbox.entries else "none"

    @property
    def refused_hosts(self) -> Sequence[str]:
        questions = self._session.find(NetworkQuestions)
        return questions.refusals_since(self._refused_before) if questions is not None else ()

    def confine(self, cwd: str) -> Confinement | None:
        return confine(self._session, cwd, self._shown, self._writable)

    def begin(self) -> None:
        deps, tasks = self._session.deps, self._session.state.tasks.values()
        questions = self._session.find(NetworkQuestions)
        self._refused_before = questions.refused_count if questions is not None else 0
        if deps.sandbox is not None:
            others_run = any(now.ended is None for now in tasks)
            deps.sandbox.begin(deps.workspace.roots, others_run=others_run)

    def end(self) -> tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]:
        deps = self._session.deps
        return deps.sandbox.end(deps.workspace.roots) if deps.sandbox is not None else ((), ())


def confines(sandbox: SessionSandbox | None) -> bool:
    """Return True if a sandbox works, so that commands run in it."""
    return sandbox is not None and sandbox.rung.confines


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
    if refusal := sandbox.missing.refusal():
        raise PermissionError(errno.EPERM, refusal)
    masks = find_masks(session)
    proxy = ""
    if sandbox.entries:
        questions = session.find(NetworkQuestions) or session.add(NetworkQuestions(session))
        proxy = sandbox.open_proxy(session.id, questions.decide, questions.refused)
    elif problem := sandbox.take_problem():
        session.notice(problem)
    roots = (*session.deps.workspace.roots, *writable)
    return sandbox.confine(roots, cwd, masks.hidden, masks.locked, proxy, shown)


def masks_reads(sandbox: SessionSandbox | None) -> bool:
    """Return True if the sandbox hides each forbidden file from a command, by its mount.

    Landlock grants the siblings of a forbidden file one by one, and a command may rename or
    replace that file: there the reading of a command stays the first line of defence.
    """
    return sandbox is not None and sandbox.rung.name == "bubblewrap"


def unconfined_reason(session: "Session") -> str:
    """Return why the sandbox does not confine commands as the rules demand; '' if it does."""
    sandbox = session.deps.sandbox
    if sandbox is None or not confines(sandbox):
        return "there is no sandbox"
    masks = find_masks(session)
    if masks.locked and sandbox.rung.name == "landlock":
        return "Landlock cannot lock single files that a rule forbids to change"
    return masks.problem


def accept_present(sandbox: SessionSandbox | None) -> None:
    """Accept the protected files that exist now: longrein itself or an approved command has made
    them.
    """
    if sandbox is not None:
        sandbox.missing.accept()

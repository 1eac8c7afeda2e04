"""Permission rules of a session as they are now, and the files that they forbid."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.git_history_check import GitContents
from longrein.agent.session_part import ParentPolicy
from longrein.permissions import (
    Call,
    Rules,
    Touched,
    glob_base,
    is_read_denied,
    read_deny_rule,
    visible,
)
from longrein.permissions.rules import parse_rule
from longrein.workspace import ResolvedPath, Workspace
from longrein.workspace.sandbox import MaskIndex, Masks, SessionSandbox

if TYPE_CHECKING:
    from longrein.agent.session import Session

LOOK_S = 0.5
"""Limit of the search for forbidden files; a tree of 50,000 files takes about as long the first
time.
"""


class CurrentRules(msgspec.Struct, frozen=True):
    """Rules, mode and folder of a session, and what the rules are compared with."""

    rules: Rules
    mode: str
    """Permission mode, never wider than the parent's."""
    cwd: str
    workspace: Workspace
    sandbox: SessionSandbox | None
    above: ParentPolicy | None
    """Policy of the parent of a subagent."""
    masks: MaskIndex
    """Index of the forbidden files, kept for the session."""
    contents: GitContents | None
    """Files that git keeps, as far as they were looked at."""
    gated: bool = False
    """True if what the sandbox confines is asked about too."""

    def views(self, path: str, real: str) -> Iterator[tuple[str, str, Rules, str]]:
        """Yield (path, real path, rules, current folder) of a file: here, and in folders a worktree
        stands for.
        """
        rules = self.rules
        cwd = self.cwd
        above = self.above
        yield path, real, rules, cwd
        made = Call("Read", {}, "read", (Touched(path, path, real, True, False),))
        for call, others, folder in above.elsewhere(made, cwd) if above is not None else ():
            for touched in call.touched:
                yield touched.path, touched.real, others, folder

    def deny_rules(self, tool: str) -> tuple[str, ...]:
        """Return the rules with a path that forbid a tool, here and where a worktree stands for."""
        cwd = self.cwd
        views = self.views(cwd, cwd)
        return tuple(
            rule
            for _, _, rules, _ in views
            for rule in rules.deny
            if rule.lstrip().startswith(f"{tool}(")
        )

    def find_masks(self) -> Masks:
        """Return the existing files and folders that rules forbid to read or to change."""
        unreadable, unchangeable = self.deny_rules("Read"), self.deny_rules("Edit")
        if not unreadable and not unchangeable:
            return Masks()
        elsewhere = [base for rule in unreadable if (base := self._base_outside(rule))]
        if "/" in elsewhere:
            return Masks(
                problem=f"the rule {visible(unreadable[0])} forbids files anywhere on this machine"
            )
        places = (*self.workspace.roots, *_visible_places(self.sandbox, elsewhere))
        tests = (self._forbidden("Read", unreadable), self._forbidden("Edit", unchangeable))
        return self.masks.find(places, *tests, (unreadable, unchangeable, self.cwd), LOOK_S)

    def _forbidden(self, tool: str, deny: Sequence[str]) -> Callable[[str, str], bool]:
        """Return a test (path, real path) whether a rule forbids `tool`; `deny` are all rules for
        it.
        """
        if not deny:
            return lambda _path, _real: False
        if self.above is None:
            rules, cwd = msgspec.structs.replace(self.rules, deny=tuple(deny)), self.cwd
            return lambda path, real: bool(read_deny_rule(path, real, rules, cwd, tool))
        return lambda path, real: any(
            read_deny_rule(*place, tool) for place in self.views(path, real)
        )

    def _base_outside(self, text: str) -> str:
        """Return the existing folder or file outside the roots below which a rule forbids reading;
        '' for none.
        """
        rule, look = parse_rule(text), self.workspace.resolve
        spec = rule.spec.strip()
        if rule.problem or not spec.startswith(("//", "~/", "../")):
            return ""
        path = look(spec[1:] if spec.startswith("//") else spec, self.rules.base or "/").path
        if path != glob_base(f"{path}/*"):
            path = glob_base(path)
        place = look(path.removesuffix("/**"), "/")
        return "" if place.inside or not place.kind else place.real

    def forbidden_names(self, place: ResolvedPath) -> tuple[str, ...]:
        """Return the paths of the same file by names of which a rule forbids one; () for none.

        Only a file with further names (hard links) is looked up: forbidden files are searched then.
        """
        if place.identity is None:
            return ()
        return self.find_masks().linked.get(place.identity, ())

    def unconfined_reason(self) -> str:
        """Return why the sandbox does not confine commands as the rules demand; '' if it does."""
        sandbox = self.sandbox
        if sandbox is None or not confines(sandbox):
            return "there is no sandbox"
        masks = self.find_masks()
        if masks.locked and sandbox.rung.name == "landlock":
            return "Landlock cannot lock single files that a rule forbids to change"
        return masks.problem

    def hidden_files(self) -> Callable[[str, str], bool] | None:
        """Return a test (path, real path) for forbidden files; None where no rule forbids any."""
        if not self.rules.deny and self.above is None:
            return None
        look = self.workspace.resolve
        linked = lru_cache(lambda: self.find_masks().linked)

        def is_hidden(path: str, real: str) -> bool:
            if any(is_read_denied(*place) for place in self.views(path, real)):
                return True
            identity = look(real, "/").identity if linked() else None
            names = linked().get(identity, ()) if identity else ()
            views = (view for name in names for view in self.views(name, name))
            return any(is_read_denied(*view) for view in views)

        return is_hidden


def current_rules(session: "Session") -> CurrentRules:
    """Return the rules of a session as they are now."""
    deps = session.deps
    return CurrentRules(
        rules=session.rules,
        mode=session.mode,
        cwd=session.state.cwd,
        workspace=deps.workspace,
        sandbox=deps.sandbox,
        above=deps.parent_policy,
        masks=session.masks,
        contents=session.find(GitContents),
        gated=deps.gated,
    )


def _visible_places(sandbox: SessionSandbox | None, places: Sequence[str]) -> list[str]:
    """Return the places with home replaced by what commands see of it."""
    home = sandbox.home if sandbox is not None else ""
    shown = sandbox.visible_home if sandbox is not None else ()
    return [one for place in places for one in (shown if place == home else (place,))]


def confines(sandbox: SessionSandbox | None) -> bool:
    """Return True if a sandbox works, so that commands run in it."""
    return sandbox is not None and sandbox.rung.confines


def masks_reads(sandbox: SessionSandbox | None) -> bool:
    """Return True if the sandbox hides each forbidden file from a command, by its mount.

    Landlock grants the siblings of a forbidden file one by one, and a command may rename or
    replace that file: there the reading of a command stays the first line of defence.
    """
    return sandbox is not None and sandbox.rung.name == "bubblewrap"

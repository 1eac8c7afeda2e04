"""Permission rules of a session as they are now, the files that they forbid, and whether git keeps
versions of these.

No sandbox masks the history of git. A command that prints from it may run unasked if no commit, no
entry of the index and no stash holds a path that a rule forbids. Git lists all paths once; after
that it lists what is new since then.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import msgspec

from longrein.agent.git_metadata import find_work_tree
from longrein.agent.session_part import ParentPolicy, SessionPart
from longrein.permissions import (
    Call,
    Effect,
    KnownCommand,
    Rules,
    Touched,
    WordPart,
    glob_base,
    is_read_denied,
    read_deny_rule,
    visible,
)
from longrein.permissions.bash_parser import word_set
from longrein.permissions.rules import parse_rule
from longrein.workspace import ResolvedPath, Workspace
from longrein.workspace.git import run_git
from longrein.workspace.sandbox import MaskIndex, Masks, SessionSandbox

if TYPE_CHECKING:
    from longrein.agent.session import Session

LIST_S = 5.0
"""Limit of one listing by git, in seconds; a repository of 200,000 objects takes about 2."""
_VERBS = word_set(
    "diff show log blame annotate grep stash whatchanged diff-tree diff-index diff-files reflog "
    "format-patch shortlog archive status commit add describe cat-file"
)
"""Subcommands that print only what refs, reflogs and the index reach."""
_UNLISTED = re.compile(
    r"--(?:std|ba|rec|sub|unt|no-i|no-ex|add|cont|fil).*"
    r"|-[a-zA-Z]*f.*|.*_HEAD\b.*"
)
"""Options, also shortened ones, and names by which git prints what is not listed: other objects,
and files of the work tree.
"""
_OBJECT_ID = re.compile(r"(?:.*-g)?([0-9a-fA-F]{4,64})")
"""Beginning of an object's id, or the name that `git describe` gives a commit."""
TIPS_MAX = 2_000
"""Refs of a repository that are excluded from the next listing; with more, all is listed again."""


class _Repository:
    """Knowledge of one repository."""

    def __init__(self) -> None:
        self.tips: tuple[str, ...] = ()
        """Commits of refs and HEAD below which all paths were looked at."""
        self.ids = set[bytes]()
        """Ids of all objects that were looked at."""
        self.is_clean = False
        """True if no rule forbids to read any of it."""
        self.is_closed = False
        """True if a forbidden path was found, or git took too long: it is not listed again."""

    def holds(self, beginnings: list[bytes]) -> bool:
        """Return True if each of these begins the id of an object that was looked at."""
        return all(any(one.startswith(start) for one in self.ids) for start in beginnings)


class GitContents(SessionPart):
    """The repositories of one session, for one set of rules at a time."""

    def __init__(self) -> None:
        self._rules: object = None
        self._repositories: dict[str, _Repository] = {}

    async def look(self, now: "CurrentRules", commands: Iterable[KnownCommand]) -> None:
        """Bring what is known up to date for commands that may print from the history."""
        rules = now.deny_rules("Read")
        if (rules, now.cwd) != self._rules:
            self._rules, self._repositories = (rules, now.cwd), {}
        if not rules:
            return
        folders = dict[str, None]()
        for command in commands:
            for part, effect in zip(command.script.parts, command.effects, strict=True):
                if effect.history:
                    folders |= dict.fromkeys(_work_trees(now.workspace, part, effect))
        for folder in filter(None, folders):
            repository = self._repositories.setdefault(folder, _Repository())
            if not repository.is_closed:
                await _look(now, self.session.id, folder, repository)

    def is_clean(
        self, workspace: Workspace, command: KnownCommand, part: WordPart, effect: Effect
    ) -> bool:
        """Return True if a git command can print no file that a rule forbids to read."""
        if "GIT_" in command.text or not _prints_listed_objects(part, effect):
            return False
        folders = _work_trees(workspace, part, effect)
        found = [self._repositories.get(folder) for folder in folders]
        ids = _object_ids(part)
        return all(one is not None and one.is_clean and one.holds(ids) for one in found)


def _object_ids(part: WordPart) -> list[bytes]:
    """Return what may be the beginnings of objects' ids in a git command."""
    pieces = [piece for word in part.words for piece in re.split(r"\.{2,}|[\^~:@]", word.text)]
    found = [_OBJECT_ID.fullmatch(piece) for piece in pieces]
    return [match[1].lower().encode() for match in found if match is not None]


def _prints_listed_objects(part: WordPart, effect: Effect) -> bool:
    """Return True if a git command prints only what revisions and paths in its words name."""
    words = [word.text for word in part.words[1:]]
    if effect.folder is not None and words[:2] == ["-C", effect.folder.text]:
        words = words[2:]
    words = [word for word in words if word not in ("--no-pager", "-P")]
    return (
        bool(words)
        and words[0] in _VERBS
        and "xargs" not in part.wrappers
        and all(word.kind == "literal" for word in part.words)
        and not any(map(_UNLISTED.fullmatch, words))
    )


def git_folders(workspace: Workspace, part: WordPart, effect: Effect) -> list[str]:
    """Return the folders in which a git command may run; [] where they are not known."""
    folder = effect.folder
    if folder is not None and folder.kind != "literal":
        return []
    path = folder.text if folder is not None else "."
    return [workspace.resolve(path, at).path for at in part.folders]


def _work_trees(workspace: Workspace, part: WordPart, effect: Effect) -> list[str]:
    """Return the work trees in which a git command may run; '' for an unknown one."""
    folders = git_folders(workspace, part, effect)
    return [find_work_tree(workspace, folder) for folder in folders] or [""]


async def _look(now: "CurrentRules", owner: str, folder: str, repository: _Repository) -> None:
    """List what is new in a repository and look whether a rule forbids some of it."""
    workspace = now.workspace

    async def listed(*words: str) -> bytes | None:
        code, output = await run_git(workspace, words, folder, owner, timeout_s=LIST_S)
        return output if code == 0 else None

    refs = await listed("for-each-ref", "--format=%(objectname)")
    head = await listed("rev-parse", "--verify", "--quiet", "HEAD")
    known = [f"^{tip}" for tip in repository.tips]
    output = await listed(*_LISTING, *known) if refs is not None else None
    repository.is_closed = True
    repository.is_clean = False
    if refs is None or output is None:
        return
    lines = [line for line in output.split(b"\n") if line]
    paths = {path for _, _, path in (line.partition(b" ") for line in lines) if path}
    is_denied = _denied_below(now, folder)
    if await workspace.run_in_thread(lambda: any(map(is_denied, paths))):
        return
    tips = (refs + (head or b"")).decode().split()
    repository.tips = tuple(dict.fromkeys(tips)) if len(tips) <= TIPS_MAX else ()
    repository.ids |= {line.partition(b" ")[0] for line in lines}
    repository.is_clean, repository.is_closed = True, False


_LISTING = ("rev-list", "--objects", "--all", "--reflog", "--indexed-objects")
"""Lists commits, folders and files with their ids, one a line: from refs, reflogs and the index."""


def _denied_below(now: "CurrentRules", folder: str) -> Callable[[bytes], bool]:
    """Return a test whether a rule forbids to read a path of a repository."""

    def is_denied(name: bytes) -> bool:
        path = f"{folder.rstrip('/')}/{name.decode('utf-8', 'surrogateescape')}"
        return any(read_deny_rule(*view) for view in now.views(path, path))

    return is_denied


# --- Current rules --------------------------------------------------------------------------------

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

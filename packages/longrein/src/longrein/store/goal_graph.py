"""The graph of goals during one change of its file: blockers, claims and checks of changes.

A change of a goal never removes an edge. Whether a blocker blocks is computed from its status, so
completing, deleting and reopening a goal need no repair of edges.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from longrein.store.store_port import LEASE_US, USER
from longrein_context.events import Goal, ToolError
from longrein_context.events.escape import shortened

OPEN = ("pending", "in_progress")
"""Statuses of open goals; open goals block those that depend on them."""
STATUSES = (*OPEN, "completed", "deleted")
TITLE_CHARS_MAX = 200
BODY_CHARS_MAX = 20_000
BLOCKERS_MAX = 50
OPEN_MAX = 500
SHOWN_CHARS = 2_000
"""Characters of a body that an error shows."""
NAMED_MAX = 20
"""Most goals that an error names."""
LAYOUT = 1


class StoredGoals(msgspec.Struct):
    """Content of the file: all goals ever added. Whether a goal blocks is computed."""

    layout: int = LAYOUT
    last: int = 0
    """Id of the newest goal; ids are never reused."""
    goals: dict[int, Goal] = {}
    """Goals by id, in order; deleted ones too."""
    changed_by: dict[int, str] = {}
    """Goal -> owner of its last change."""


class Change(NamedTuple):
    """Wanted changes of a goal; None leaves a field as it is."""

    status: str | None = None
    title: str | None = None
    body: str | None = None
    blocked_by: tuple[int, ...] | None = None
    claim: bool | None = None
    """True claims the goal for the caller, False releases it."""


class GoalGraph:
    """All goals of a project, as one agent sees them."""

    def __init__(self, stored: StoredGoals, owner: str, now_us: int) -> None:
        self.stored = stored
        self.owner = owner
        self.now_us = now_us
        self.goals: dict[int, Goal] = {}
        """Goals by id, in order. An expired claim counts only for its holder, until another
        agent takes the goal.
        """
        self.changed_by = stored.changed_by
        latest = now_us + LEASE_US  # a later end dates from before the clock was set back
        for number, goal in stored.goals.items():
            stored.goals[number] = replace(goal, lease_until=min(goal.lease_until, latest))
            held = goal.lease_until > now_us or goal.owner == owner
            self.goals[number] = (
                stored.goals[number] if held else replace(goal, owner="", lease_until=0)
            )

    def goal(self, number: int) -> Goal:
        """Return goal `number`. Raises `ToolError` that names the open goals."""
        if number not in self.goals:
            raise ToolError(f"[unknown-goal] There is no goal {number}; {self._open_goals_text()}.")
        return self.goals[number]

    def _open_goals_text(self) -> str:
        found = [
            f"{goal.id} ({shortened(goal.title, 60)})"
            for goal in self.goals.values()
            if goal.status in OPEN
        ]
        more = f" and {len(found) - NAMED_MAX} more" if len(found) > NAMED_MAX else ""
        return f"open are {', '.join(found[:NAMED_MAX])}{more}" if found else "none is open"

    def open_blockers(self, goal: Goal) -> list[int]:
        """Return ids of the open goals that block `goal`."""
        return [
            one for one in goal.blocked_by if one in self.goals and self.goals[one].status in OPEN
        ]

    def blocked(self) -> set[int]:
        """Return ids of open goals that are blocked."""
        return {
            goal.id
            for goal in self.goals.values()
            if goal.status in OPEN and self.open_blockers(goal)
        }

    def store(self, goal: Goal) -> None:
        """Keep a new or changed goal."""
        self.stored.last = max(self.stored.last, goal.id)
        self.changed_by[goal.id] = self.owner
        self.goals[goal.id] = self.stored.goals[goal.id] = goal

    def path(self, start: int, target: int) -> list[int]:
        """Return goals from `start` to `target`, each blocked by the next; empty when there is no
        such path.

        Edges of finished goals count too, because those goals may be reopened.
        """
        reached_from: dict[int, int] = {start: 0}
        pending = [start]
        while pending:
            here = pending.pop()
            if here == target:
                found = [here]
                while reached_from[found[-1]]:
                    found.append(reached_from[found[-1]])
                return found[::-1]
            for one in self.goals[here].blocked_by if here in self.goals else ():
                if one not in reached_from:
                    reached_from[one] = here
                    pending.append(one)
        return []


def list_goals(graph: GoalGraph, every: bool) -> Sequence[Goal]:
    """Return open goals by id, with `every` also completed and deleted ones; renew the caller's
    claims.
    """
    renew_claims(graph)
    return [goal for goal in graph.goals.values() if every or goal.status in OPEN]


def add_goal(graph: GoalGraph, title: str, body: str, blocked_by: tuple[int, ...]) -> Goal:
    """Add a goal and return it. Raises `ToolError`."""
    if sum(goal.status in OPEN for goal in graph.goals.values()) >= OPEN_MAX:
        raise ToolError(
            f"[too-many] {OPEN_MAX} goals are open; complete or delete some first. Nothing was "
            "added."
        )
    _check_texts(title, body)
    blockers = _blockers(graph, 0, blocked_by)
    number = max(graph.stored.last, *graph.goals, 0) + 1
    goal = Goal(number, title, "pending", blockers, body, revision=1)
    graph.store(goal)
    return goal


def update_goal(
    graph: GoalGraph, number: int, change: Change, seen: Mapping[int, int]
) -> tuple[Goal, Sequence[Goal]]:
    """Change a goal; return it and the goals that this has unblocked. Raises `ToolError`.

    `seen`: goal id -> revision that the caller knows.
    """
    goal, blocked_before = graph.goal(number), graph.blocked()
    _check_seen(graph, goal, change, seen)
    title = goal.title if change.title is None else change.title
    body = goal.body if change.body is None else change.body
    _check_texts(title, body)
    blockers = (
        goal.blocked_by
        if change.blocked_by is None
        else _blockers(graph, number, change.blocked_by)
    )
    now = _apply_claim(graph, replace(goal, title=title, body=body, blocked_by=blockers), change)
    if now == goal:
        return goal, ()
    graph.store(replace(now, revision=goal.revision + 1))
    renew_claims(graph)
    free = sorted(blocked_before - graph.blocked())
    return graph.goals[number], [
        graph.goals[one] for one in free if graph.goals[one].status in OPEN
    ]


def renew_claims(graph: GoalGraph) -> None:
    """Renew the caller's claims."""
    until = graph.now_us + LEASE_US
    for goal in list(graph.goals.values()):
        if goal.owner == graph.owner and goal.lease_until < until:
            renewed = replace(goal, lease_until=until)
            graph.goals[goal.id] = graph.stored.goals[goal.id] = renewed


def release_claims(graph: GoalGraph) -> None:
    """Release the caller's claims and change nothing else."""
    for number, goal in graph.stored.goals.items():
        if goal.owner == graph.owner:
            graph.stored.goals[number] = replace(goal, owner="", lease_until=0)


# --- Checks ---------------------------------------------------------------------------------------


def _check_texts(title: str, body: str) -> None:
    if not title.strip():
        raise ToolError("[empty] A goal needs a title: give one. Nothing was changed.")
    if len(title) > TITLE_CHARS_MAX or "\n" in title:
        raise ToolError(
            f"[title] A title is one line of at most {TITLE_CHARS_MAX} characters; the rest goes "
            "into body."
        )
    if len(body) > BODY_CHARS_MAX:
        raise ToolError(
            f"[too-long] A body has at most {BODY_CHARS_MAX} characters, this one {len(body)}; "
            "shorten it."
        )


def _blockers(graph: GoalGraph, number: int, wanted: Iterable[int]) -> tuple[int, ...]:
    """Return `wanted` sorted and unique. Raises `ToolError` for unknown, deleted or too many
    goals, or a cycle.
    """
    blockers = tuple(sorted(set(wanted)))
    present = graph.goals[number].blocked_by if number in graph.goals else ()
    if len(blockers) > BLOCKERS_MAX:
        raise ToolError(
            f"[too-many] A goal waits for at most {BLOCKERS_MAX} others: name fewer. "
            "Nothing was changed."
        )
    for one in blockers:
        if one == number:
            raise ToolError(
                f"[cycle] Goal {number} cannot wait for itself: leave it out of blocked_by. "
                "Nothing was changed."
            )
        if graph.goal(one).status == "deleted" and one not in present:
            raise ToolError(
                f"[deleted] Goal {one} was deleted: leave it out of blocked_by. Nothing was "
                "changed."
            )
        if path := graph.path(one, number):
            chain = ", ".join(f"{a} waits for {b}" for a, b in pairwise(path))
            raise ToolError(
                f"[cycle] Goal {number} cannot wait for {one}: {chain}. Leave {one} out of "
                "blocked_by. Nothing was changed."
            )
    return blockers


def _check_seen(graph: GoalGraph, goal: Goal, change: Change, seen: Mapping[int, int]) -> None:
    """Refuse changes of texts by a caller that has not seen the last change."""
    fields = ("title", "body", "blocked_by")
    written = any(getattr(change, name) not in (None, getattr(goal, name)) for name in fields)
    known = graph.owner in (USER, graph.changed_by[goal.id])
    if written and not known and seen.get(goal.id) != goal.revision:
        waits = f", blocked_by {list(goal.blocked_by)}" if goal.blocked_by else ""
        raise ToolError(
            f"[changed] {_owner_name(graph.changed_by[goal.id])} has changed goal {goal.id} since "
            "you read it. It is "
            f"now: {goal.status}, {goal.title}{waits}\n{shortened(goal.body, SHOWN_CHARS)}\n"
            "Nothing was changed; list the goals, then send what it should be now."
        )


def _apply_claim(graph: GoalGraph, goal: Goal, change: Change) -> Goal:
    """Return `goal` with the status and claim that `change` wants."""
    status = change.status or goal.status
    if status not in STATUSES:
        raise ToolError(
            f"[status] {status!r} is no status; use {', '.join(STATUSES)}. Nothing was changed."
        )
    claim = change.claim
    if claim is None and change.status == "in_progress":
        claim = True
    if claim is None and status == goal.status:
        return goal
    _check_claim(graph, goal)
    if claim:
        if status not in OPEN:
            why = (
                f"[over] Goal {goal.id} is {status}; set it to pending before you claim it. "
                "Nothing was changed."
            )
            raise ToolError(why)
        _check_unblocked(graph, goal)
        return replace(
            goal, status="in_progress", owner=graph.owner, lease_until=graph.now_us + LEASE_US
        )
    if status == "completed" != goal.status:
        _check_unblocked(graph, goal)
    status = "pending" if status == "in_progress" else status
    return replace(goal, status=status, owner="", lease_until=0)


def _check_unblocked(graph: GoalGraph, goal: Goal) -> None:
    """Refuse to claim or complete a blocked goal."""
    if open_ones := graph.open_blockers(goal):
        named = ", ".join(f"{one} ({shortened(graph.goals[one].title, 60)})" for one in open_ones)
        raise ToolError(
            f"[blocked] Goal {goal.id} waits for {named}. Reach those first, or change its "
            "blocked_by. "
            "Nothing was changed."
        )


def _check_claim(graph: GoalGraph, goal: Goal) -> None:
    if goal.owner in ("", graph.owner) or graph.owner == USER:
        return
    minutes = max(1, round((goal.lease_until - graph.now_us) / 60_000_000))
    raise ToolError(
        f"[claimed] {_owner_name(goal.owner)} works on goal {goal.id} and holds it for {minutes} "
        "more min, longer if "
        "it goes on. Nothing was changed; take another goal."
    )


def _owner_name(owner: str) -> str:
    """Return an owner name for messages."""
    session, _, label = owner.partition("/")
    if owner == USER:
        return "The user"
    return f"Subagent {label} of session {session[:8]}" if label else f"Session {session[:8]}"

"""Tools for plans: `TodoWrite`, `ExitPlanMode`, and the project's goals (`GoalAdd`, `GoalUpdate`,
`GoalList`).

The todo list is kept in the log and through every compaction. Goals outlive sessions and are shared
by them. Each change that a session makes or sees is also logged as `GoalChanged`.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NotRequired, TypedDict

from longrein.store import Goals
from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, Tool, ToolContext, UserAnswer
from longrein_context.events import (
    Goal,
    GoalChanged,
    ModeSet,
    Todo,
    TodoSet,
    ToolError,
    marker_sign,
)

# --- Todo list ------------------------------------------------------------------------------------

TODOS_MAX = 20
"""Maximum number of todos."""


class TodoItem(TypedDict):
    """A task."""

    content: str
    status: Literal["pending", "in_progress", "completed"]
    activeForm: NotRequired[str]


async def TodoWrite(context: ToolContext, todos: list[TodoItem]) -> Outcome:
    """Replace the todo list, which the user sees. For three steps or more. One is in_progress; mark
    each completed once done and checked. Send the whole list, at most 20.
    """
    if len(todos) > TODOS_MAX:
        raise ToolError(
            f"[too-many] {len(todos)} todos; at most {TODOS_MAX}. Join small ones. The list is "
            "unchanged."
        )
    if any(not item["content"].strip() for item in todos):
        raise ToolError("[empty] A todo has no content: give each one. The list is unchanged.")
    new = tuple(Todo(item["content"], item["status"], item.get("activeForm", "")) for item in todos)
    active = [todo.content for todo in new if todo.status == "in_progress"]
    if len(active) > 1:
        raise ToolError(
            f"[two-active] {len(active)} todos are in_progress; at most one may be: leave "
            "the others pending. The list is "
            "unchanged."
        )
    if new == context.todos:
        return Outcome.of("The todo list is that already.")
    return Outcome.of(counts_by_status(new), TodoSet(new))


def counts_by_status(todos: tuple[Todo, ...]) -> str:
    """Return a result such as `Todo list set: 1 done, 1 in progress, 3 to do.`"""
    if not todos:
        return "Todo list cleared."
    words = {"completed": "done", "in_progress": "in progress", "pending": "to do"}
    counts = {status: sum(todo.status == status for todo in todos) for status in words}
    said = ", ".join(f"{count} {words[status]}" for status, count in counts.items() if count)
    return f"Todo list set: {said}."


TODO_WRITE = make_tool(
    TodoWrite, access="none", aliases=("write_todos", "settodolist", "update_plan"), quiet=True
)


# --- Plan mode ------------------------------------------------------------------------------------


async def ExitPlanMode(plan: str, mode: str = "default") -> Outcome:  # noqa: ARG001 - the question shows the plan
    """In plan mode: show your plan (Markdown). The user's yes ends it."""
    then = "acceptEdits" if mode == "acceptEdits" else "default"
    return Outcome.of("The user agreed: plan mode is over. Do what the plan says.", ModeSet(then))


EXIT_PLAN_MODE = make_tool(
    ExitPlanMode,
    access="none",
    listing="unlisted",
    user=UserAnswer("the plan is ready; yes ends plan mode", ("mode",)),
)


# --- Goals ----------------------------------------------------------------------------------------

BODY_CHARS = 300
"""Characters of a body in a list that would be too long with whole bodies."""


async def GoalAdd(
    context: ToolContext, title: str, body: str = "", blocked_by: list[int] | None = None
) -> Outcome:
    """Add a goal of the project: work that outlives this conversation, shared by all sessions and
    subagents. Your present steps go into TodoWrite.

    body: When it is reached, what is known.
    """
    goals = _goals(context, title, body)
    goal = await goals.add(title, body, blocked_by or ())
    return Outcome.of(f"Added goal {goal.id}{_waits_words(goal.blocked_by)}.", GoalChanged(goal))


async def GoalUpdate(
    context: ToolContext,
    id: int,  # noqa: A002 - the name that the model is told
    status: Literal["pending", "in_progress", "completed", "deleted"] | None = None,
    title: str | None = None,
    body: str | None = None,
    blocked_by: list[int] | None = None,
    claim: bool | None = None,
) -> Outcome:
    """Change a goal; what is left out stays. Claim it before you work on it; completed only when
    checked. With id alone: shows it whole.

    """
    goals = _goals(context, title or "", body or "")
    if title is not None and not title.strip():
        raise ToolError("[empty] A goal needs a title: give one. Nothing was changed.")
    goal, freed = await goals.update(
        id, status=status or "", title=title or "", body=body, blocked_by=blocked_by, claim=claim
    )
    facts = [GoalChanged(one) for one in (goal, *freed)]
    if (status, title, body, blocked_by, claim) == (None,) * 5:
        still = {one.id: one for one in await goals.goals()}
        return Outcome.of(
            _goal_row(goal, goals.owner, still) + _full_body(goal),
            *map(GoalChanged, goals.unseen([goal])),
        )
    free = [f"{one.id} ({one.title})" for one in freed]
    told = f" Nothing blocks now: {', '.join(free)}." if free else ""
    return Outcome.of(f"Goal {goal.id} is {_status_words(goal, goals.owner)}.{told}", *facts)


async def GoalList(context: ToolContext, all: bool = False) -> Outcome:  # noqa: A002 - the name that the model is told
    """The project's open goals: which are ready, whose they are, what they wait for.

    all: Also those that are over.
    """
    goals = _goals(context)
    found = await goals.goals(every=all)
    if not found:
        return Outcome.of("The project has no goals." if all else "The project has no open goals.")
    still = {goal.id: goal for goal in found if goal.status in ("pending", "in_progress")}
    rows = [_goal_row(goal, goals.owner, still) for goal in found]
    text = "\n".join(row + _full_body(goal) for row, goal in zip(rows, found, strict=True))
    if len(text.encode()) > context.page_bytes:
        text = "\n".join(row + _short_body(goal) for row, goal in zip(rows, found, strict=True))
        text += "\n\nLong bodies are cut; GoalUpdate with an id alone shows a goal whole."
    return Outcome.of(text, *map(GoalChanged, goals.unseen(found)))


def _goals(context: ToolContext, *written: str) -> Goals:
    """Return the goals of the project. Raises `ToolError` when there are none, or when a text
    contains a longrein marker.
    """
    if context.services.goals is None:
        raise ToolError(
            "[no-goals] There is no place here where goals could be kept; use TodoWrite."
        )
    if any(marker_sign(context.nonce) in text for text in written):
        raise ToolError(
            "[marker] The text holds a marker of a cleared or hidden part in place of its "
            "content; write what is meant "
            "(Recall brings a cleared part back). Nothing was changed."
        )
    return context.services.goals


def _goal_row(goal: Goal, me: str, still: Mapping[int, Goal]) -> str:
    waits = [one for one in goal.blocked_by if one in still]
    state = _status_words(goal, me)
    if goal.status in ("pending", "in_progress"):
        state += _waits_words(waits) or (", ready" if not goal.owner else "")
    return f"{goal.id}. {goal.title} [{state}]"


def _status_words(goal: Goal, me: str) -> str:
    """`in progress, yours`."""
    status = goal.status.replace("_", " ")
    if not goal.owner:
        return status
    session, _, label = goal.owner.partition("/")
    other = f"held by {label} of {session[:8]}" if label else f"held by {session[:8]}"
    return f"{status}, {'yours' if goal.owner == me else other}"


def _waits_words(blockers: Sequence[int]) -> str:
    return f", waits for {', '.join(map(str, blockers))}" if blockers else ""


def _full_body(goal: Goal) -> str:
    return "".join(f"\n   {line}" for line in goal.body.splitlines())


def _short_body(goal: Goal) -> str:
    first = " ".join(goal.body[: 4 * BODY_CHARS].split())
    return (
        f"\n   {first if len(first) <= BODY_CHARS else first[: BODY_CHARS - 1] + '…'}"
        if first
        else ""
    )


GOAL_ADD = make_tool(GoalAdd, access="none", listing="unlisted")
GOAL_UPDATE = make_tool(GoalUpdate, access="none", listing="unlisted")
GOAL_LIST = make_tool(GoalList, access="none", listing="unlisted", together=True, polls=True)


def goal_tools() -> tuple[Tool, ...]:
    """Return the goal tools, always in the same order."""
    return (GOAL_ADD, GOAL_UPDATE, GOAL_LIST)

"""The `/goals` command: list and change goals of the project in `store.Goals`."""

from collections.abc import Sequence

from longrein.frontends.localization import translate
from longrein.steps.human_text import escape, escape_line, joined
from longrein.store import Goals
from longrein_context.events import Goal, LongreinError
from longrein_context.events.escape import whole_number

USAGE = (
    "/goals [all | N | add TITLE [after N,N] | start N | done N | open N | drop N | title N TEXT]"
)
MARKS = {"completed": "[x]", "in_progress": "[>]", "deleted": "[-]"}
_STATUSES = {"start": "in_progress", "done": "completed", "open": "pending", "drop": "deleted"}


async def goal_rows(goals: Goals, argument: str) -> Sequence[str]:
    """Run `/goals ARGUMENT`; return escaped lines. A `LongreinError` becomes a line."""
    word, _, rest = argument.strip().partition(" ")
    try:
        return await _rows(goals, word, rest.strip())
    except LongreinError as error:
        return [escape_line(str(error))]


async def _rows(goals: Goals, word: str, rest: str) -> Sequence[str]:
    if word in ("", "all", "list"):
        found = await goals.goals(every=word == "all")
        return [goal_line(goal) for goal in found] or [
            translate("no goals yet; /goals add TITLE makes one")
        ]
    if word == "add" and rest:
        title, blocked_by = _after(rest)
        return [goal_line(await goals.add(title, "", blocked_by))]
    if word in _STATUSES and _number(rest):
        goal, freed = await goals.update(_number(rest), status=_STATUSES[word])
        return [
            goal_line(goal),
            *(translate(f"can begin now: {goal_line(goal)}") for goal in freed),
        ]
    number, _, text = rest.partition(" ")
    if word == "title" and _number(number) and text.strip():
        goal, _ = await goals.update(_number(number), title=text.strip())
        return [goal_line(goal)]
    if not _number(word) or rest:
        return [USAGE]
    for goal in await goals.goals(every=True):
        if goal.id == _number(word):
            return [
                goal_line(goal),
                *(f"  {row}" for row in escape(goal.body).expandtabs(4).splitlines()),
            ]
    return [translate(f"there is no goal {escape_line(word)}; /goals all lists them")]


def _after(rest: str) -> tuple[str, list[int]]:
    """Split `TITLE after 1,2` into the title and the ids of the goals that block it."""
    title, after, numbers = rest.rpartition(" after ")
    found = [_number(part) for part in numbers.replace(",", " ").split()]
    return (
        (title.strip(), found) if after and title.strip() and found and all(found) else (rest, [])
    )


def _number(text: str) -> int:
    """Goal id in `3` or `#3`; 0 for other text."""
    return whole_number(text.removeprefix("#"))


def goal_line(goal: Goal) -> str:
    """Line of a goal: mark, id, title, owner, blocking goals."""
    owner = translate(f"by {escape_line(goal.owner)}") if goal.owner else ""
    goals = ", ".join(f"#{number}" for number in goal.blocked_by)
    after = translate(f"after {goals}") if goals else ""
    details = joined(owner, after, by="; ")
    head = f"{MARKS.get(goal.status, '[ ]')} #{goal.id} {escape_line(goal.title)}"
    return f"{head}  ({details})" if details else head

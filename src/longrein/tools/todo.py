"""`TodoWrite` tool: replaces the whole todo list, which is kept in the log and through every
compaction.
"""

from typing import Literal, NotRequired, TypedDict

from longrein.events import Todo, TodoSet, ToolError
from longrein.tools.registry import make_tool
from longrein.tools.tool_port import Outcome, ToolContext

TODOS_MAX = 20
"""Maximum number of todos."""


class TodoItem(TypedDict):
    """A task.

    activeForm: As it runs (Running tests).
    """

    content: str
    status: Literal["pending", "in_progress", "completed"]
    activeForm: NotRequired[str]


async def TodoWrite(context: ToolContext, todos: list[TodoItem]) -> Outcome:
    """Replace the todo list, which the user sees; for work of three steps or more. One task is
    in_progress; mark each completed once done and checked, not in batches. Send the whole list, at
    most 20.
    """
    if len(todos) > TODOS_MAX:
        raise ToolError(
            f"[too-many] {len(todos)} todos; at most {TODOS_MAX}. Join small ones. The list is "
            "unchanged."
        )
    if any(not item["content"].strip() for item in todos):
        raise ToolError("[empty] A todo has no content. The list is unchanged.")
    new = tuple(Todo(item["content"], item["status"], item.get("activeForm", "")) for item in todos)
    active = [todo.content for todo in new if todo.status == "in_progress"]
    if len(active) > 1:
        raise ToolError(
            f"[two-active] {len(active)} todos are in_progress; at most one may be. The list is "
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


TODO_WRITE = make_tool(TodoWrite, access="none", aliases=("write_todos", "settodolist"), quiet=True)

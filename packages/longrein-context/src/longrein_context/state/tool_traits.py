"""Traits of tools by name, as the log states them."""

from collections.abc import Mapping

from longrein_context.events import PrefixSet, ToolTraits

QUIET = (
    "Read",
    "Edit",
    "Write",
    "Grep",
    "Glob",
    "TodoWrite",
    "Recall",
    "Compact",
    "ToolSearch",
    "Skill",
)
UNSTATED: Mapping[str, ToolTraits] = {
    **dict.fromkeys(QUIET, ToolTraits(quiet=True)),
    **dict.fromkeys(("TaskList", "GoalList"), ToolTraits(polls=True)),
    "TaskOutput": ToolTraits(polls=True, task_argument="task_id"),
    "TaskStop": ToolTraits(task_argument="task_id"),
}
"""Traits where the log states none. Only for logs of older versions and of other programs: a new
tool states its own traits, so nothing is added here.
"""


def with_traits(known: dict[str, ToolTraits], prefix: PrefixSet) -> dict[str, ToolTraits]:
    """Return `known` with the traits that `prefix` states."""
    return known | {
        spec.name: spec.traits for spec in prefix.callable_tools if spec.traits is not None
    }

"""System prompts: text files in this package, composed by pure functions.

`system.md` is the prompt of a session of the user. A subagent's prompt is the text of its type,
then `subagent.md` (its place and how it reports), then the section of `system.md` on what the
harness says. Nothing changes during a session.
"""

import os.path
from collections.abc import Collection
from functools import cache

from longrein.tools import SubagentType, builtin_tools, for_offered

BASE_PROMPT = "${base_prompt}"
"""Placeholder in the text of a custom type for longrein's own subagent text."""
HARNESS = "# What the harness tells you"
"""Heading of the section that every agent gets."""

_HERE = os.path.dirname(__file__)


@cache
def prompt(name: str) -> str:
    """Read a text of the package."""
    with open(os.path.join(_HERE, f"{name}.md"), encoding="utf-8") as file:
        return file.read()


def compose_system(
    offered: Collection[str],
    *,
    model: str = "",
    small: bool = False,
    replaced: str | None = None,
    appended: str = "",
) -> str:
    """Return the system text of a session: longrein's or the user's own (may be ''), and the
    user's addition. Longrein's names no tool but those `offered`.
    """
    text = replaced
    if text is None:
        text = for_offered(prompt("system_small" if small else "system"), offered)
        text += f"\nYou run on the model {model}.\n" * bool(model)
    return f"{text.rstrip()}\n\n{appended.strip()}\n".lstrip("\n") if appended.strip() else text


def subagent_system(kind: SubagentType, offered: Collection[str]) -> str:
    """Return the system text of a subagent that begins with an empty conversation and is `offered`
    these tools.
    """
    own = kind.system or prompt(kind.name if kind.name in BUILT_IN else "general")
    own = own.replace(BASE_PROMPT, prompt("general").strip()).strip()
    harness = for_offered(section(prompt("system"), HARNESS), offered)
    return f"{own}\n\n{prompt('subagent').strip()}\n\n{harness}\n"


def fork_task(kind: SubagentType, task: str) -> str:
    """Return the last message to a forked subagent, which has no system text of its own."""
    own = kind.system.replace(BASE_PROMPT, prompt("general").strip()) if kind.system else ""
    own = own or (prompt(kind.name) if kind.name in BUILT_IN else "")
    return (
        f"{prompt('fork').strip()}\n\n{own.strip()}\n\n{prompt('subagent').strip()}\n\n# Your "
        f"task\n{task.strip()}\n"
    )


def section(text: str, heading: str) -> str:
    """Return `heading` and the text below it, up to the next heading of its level."""
    _, _, after = text.partition(f"{heading}\n")
    return f"{heading}\n{after.partition(f'{chr(10)}# ')[0].strip()}"


BUILT_IN = ("general", "explore", "plan", "synthesis")
"""Types whose text stands here."""
READING = tuple(
    tool.spec.name for tool in builtin_tools() if tool.traits.kind in ("read", "search")
)
"""Tools that only look. No `Bash`: what a command does cannot be told from its words, so the one
mode in which it would be safe, `plan`, refuses every command, and a tool that is always refused
only costs steps. Nor is that mode set: these tools change nothing, and what they may read is for
the parent's mode to say.
"""


def builtin_kinds() -> tuple[SubagentType, ...]:
    """Return the types that are there without any file, in the order in which the model is told
    of them.
    """
    general = "All your tools: a change, many steps."
    explore = "Only reads: how things stand. Say how thorough."
    plan = "Only reads: how to make a change."
    synthesis = (
        "Makes one answer of several reports: names what contradicts, checks it, decides by the "
        "goal. Started by the "
        "argument synthesis."
    )
    return (
        SubagentType("general", general, spawns=("*",)),
        SubagentType("explore", explore, tools=READING),
        SubagentType("plan", plan, tools=READING),
        SubagentType("synthesis", synthesis, tools=READING),
    )

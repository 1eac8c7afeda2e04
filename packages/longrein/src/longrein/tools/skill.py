"""Skills and custom commands: texts in files that the model loads with `Skill` and the user with
`/name`.
"""

import os
from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from longrein.permissions import Hook
from longrein.tools.arguments import nearest
from longrein.tools.registry import make_tool
from longrein.tools.subagent import start_subagents
from longrein.tools.text_encoding import rows_within
from longrein.tools.tool_port import Outcome, ToolContext
from longrein_context.events import ToolError
from longrein_context.events.escape import shortened

Style = Literal["claude", "opencode", "codex", "gemini"]
"""Agents whose placeholders the text of a skill or command can have."""


# --- What the files bring -------------------------------------------------------------------------


class SkillInfo(msgspec.Struct, frozen=True):
    """A skill or custom command, without its text."""

    name: str
    """Name after the slash."""
    description: str
    path: str
    """Absolute path of `SKILL.md` or of the command's file."""
    source: str
    """The path for display."""
    kind: Literal["skill", "command"] = "skill"
    style: Style = "claude"
    """Agent whose placeholders the text has."""
    argument_hint: str = ""
    argument_names: tuple[str, ...] = ()
    allowed_tools: tuple[str, ...] = ()
    """Permission rules that hold in the turn that loads it."""
    disallowed_tools: tuple[str, ...] = ()
    """Tools that are refused in that turn."""
    for_model: bool = True
    """True if the model may load the skill."""
    for_user: bool = True
    """True if the skill is a command of the user."""
    fork: bool = False
    """True if a subagent does what the text says."""
    agent: str = ""
    """Type of that subagent; '' for `general`."""
    paths: tuple[str, ...] = ()
    """Globs of files: the model is told of the skill when a tool touches one of them; () for at
    the start.
    """
    variables: tuple[tuple[str, str], ...] = ()
    """(name, value) of further `${NAME}`, such as the folder of its plugin."""
    hooks: tuple[Hook, ...] = ()
    """Hooks that run while it is loaded."""

    @property
    def folder(self) -> str:
        """Folder of the file, to which relative paths in a skill refer."""
        return os.path.dirname(self.path)


class SkillBody(msgspec.Struct, frozen=True):
    """The text of a skill or custom command."""

    text: str
    files: tuple[str, ...] = ()
    """Paths that the text mentions as `@path`."""
    resources: tuple[str, ...] = ()
    """Files of the skill's folder, relative to it."""
    more_resources: bool = False
    """True if the folder holds further files."""


class SkillLibrary(Protocol):
    """Skills and commands on disk. Implemented by `config`."""

    def all(self) -> Sequence[SkillInfo]:
        """Return those of the folder and of the user, as they are on disk now, ordered by name."""
        ...

    def nested(self, folder: str) -> Sequence[SkillInfo]:
        """Return skills that only count once a tool touches `folder`, below the current folder."""
        ...

    def body(self, skill: SkillInfo) -> SkillBody:
        """Read the text. Raises `ToolError`, one line."""
        ...


# --- Catalogue in the first message ---------------------------------------------------------------


CATALOGUE_CHARS_MAX = 12_000
"""Characters of the catalogue, which is part of every request."""
ENTRY_CHARS_MAX = 1_536
"""Characters of one description in it, as in other agents."""
CUT_CHARS_MIN = 40
"""A description is cut to no less; below that, the last skills are only counted."""
HEAD = (
    "Skills are instructions for a kind of task. When the task at hand matches a description, "
    "call Skill with the name "
    "before you begin; a skill that is loaded already is followed, not loaded again."
)


def catalogue(skills: Sequence[SkillInfo]) -> str:
    """Return the list of the skills that the model may load; '' for none.

    Descriptions are cut evenly where all together are too long.
    """
    told = [skill for skill in skills if skill.for_model and not skill.paths]
    if not told:
        return ""
    room = (CUT_CHARS_MIN, ENTRY_CHARS_MAX)
    kept = rows_within(told, entry, room, CATALOGUE_CHARS_MAX)
    more = [f"{len(told) - len(kept)} more skills are not listed; the user can name them."] * (
        len(kept) < len(told)
    )
    return "\n".join([HEAD, "<available_skills>", *kept, "</available_skills>", *more])


def entry(skill: SkillInfo, room: int = ENTRY_CHARS_MAX) -> str:
    """Return the entry of one skill, its description cut to `room` characters."""
    shown = shortened(skill.description, room).replace("&", "&amp;").replace("<", "&lt;")
    return f"<skill><name>{skill.name}</name><description>{shown}</description><location>{skill.path}</location></skill>"  # noqa: E501


# --- Loaded text ----------------------------------------------------------------------------------


def skill_content(skill: SkillInfo, text: str, body: SkillBody) -> str:
    """Return the text for the model: for a skill with its folder and the names of its files."""
    lines = [f'<skill_content name="{skill.name}">', text.strip("\n")]
    if skill.kind == "skill":
        lines += ["", f"Skill folder: {skill.folder}", "Relative paths in this skill start there."]
    if body.resources:
        lines.append("<skill_resources>")
        lines += [f"<file>{name}</file>" for name in body.resources]
        lines += ["<!-- more files are in the folder -->"] * body.more_resources
        lines.append("</skill_resources>")
    return "\n".join([*lines, "</skill_content>"])


def find_skill(skills: Sequence[SkillInfo], name: str) -> SkillInfo:
    """Return the skill or command of that name. Raises `ToolError` with the nearest name."""
    wanted = name.strip().lstrip("/$")
    found = next((skill for skill in skills if skill.name == wanted), None)
    if found is not None:
        return found
    near = nearest(wanted, [skill.name for skill in skills])
    hint = f" Did you mean {near}?" if near else ""
    raise ToolError(f"[no-skill] There is no skill {wanted[:80]!r}.{hint}")


# --- The tool -------------------------------------------------------------------------------------


async def Skill(context: ToolContext, skill: str, args: str = "") -> Outcome:
    """Load a skill: instructions for a kind of task, listed as available_skills.

    skill: Its name.
    args: Arguments, where it takes some.
    """
    if context.services.skills is None:
        raise ToolError("[no-skills] There are no skills here: do the task without one.")
    loaded = await context.services.skills.load(skill, args, call=context.call)
    if not loaded.fork:
        return Outcome.of(loaded.text)
    kinds = (
        {kind.name.lower(): kind.name for kind in context.services.agents.kinds()}
        if context.services.agents is not None
        else {}
    )
    wanted = loaded.agent.lower()
    task = {
        "description": f"skill {loaded.name}",
        "prompt": loaded.text,
        "subagent_type": kinds.get(
            wanted, loaded.agent if wanted not in ("", "general-purpose") else "general"
        ),
        "model": "",
        "context": "",
        "isolation": "",
    }
    return await start_subagents(
        context, task, tasks=(), samples=1, synthesis="", resume="", background=False
    )


SKILL = make_tool(
    Skill, access="none", quiet=True, key_argument="skill", aliases=("skill", "slashcommand")
)

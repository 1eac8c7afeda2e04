"""`Agent`: work handed to subagents, each with a context of its own. `agent_call` does it, at first use."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from longrein.tools.agent_port import Kind
from longrein.tools.port import Hands, Outcome, Tool
from longrein.tools.registry import make_tool

SYNTHESIS = "synthesis"
"""The type that reads the reports of others. It is started by the argument of that name."""


class AgentTask(TypedDict):
    """One of several tasks.

    description: Three to five words.
    prompt: Its own part of the task.
    """

    description: str
    prompt: str
    subagent_type: NotRequired[str]
    model: NotRequired[str]
    isolation: NotRequired[Literal["worktree"]]
    context: NotRequired[Literal["empty", "fork"]]


async def Agent(  # noqa: PLR0913, PLR0917 - the arguments are those that models know
    hands: Hands,
    description: str,
    prompt: str = "",
    subagent_type: str = "general",
    model: str = "",
    run_in_background: bool = False,
    isolation: Literal["worktree"] | None = None,
    context: Literal["empty", "fork"] = "empty",
    tasks: list[AgentTask] | None = None,
    samples: int = 1,
    synthesis: str = "",
    resume: str = "",
) -> Outcome:
    """Give work to a subagent: another agent with a context of its own, which works alone and hands back one report.
    Worth it when
    - finding something out would fill your context with pages you need not keep: you get the answer alone;
    - parts of the work do not depend on each other: start them in one call (tasks), they run side by side;
    - fresh eyes help: a review of what you wrote, a hard question asked several times over (samples).

    Not worth it for a few calls you could make yourself, for steps that hang on each other, or for what you already
    hold. Do not start one and do the same work beside it.

    It sees nothing of this conversation, neither the user's words nor what you read, and can ask nobody. So its prompt
    says all: the goal and what it is for; where to begin (absolute paths, names); what is known and what was ruled out;
    the user's limits; whether to change files or only look; what to report, and when it is done. Two that write never
    share a file: divide the files, or use isolation.

    The report comes back to you, not to the user, and is a claim, not a fact: before you build on it, look at the lines
    it names or run the check yourself. Recall("a398/r12") shows entry r12 of the log of subagent a398, its evidence.

    description: Three to five words that the user sees.
    prompt: The whole task. With tasks: what all of them must know, put before each one's own part.
    subagent_type: A type of the list; each has its own tools.
    model: Another model, as provider/model or a name such as haiku; only when the user wants it.
    run_in_background: Do not wait: the report comes later as a note. Until then say nothing of what it found.
    isolation: "worktree": it works on a git branch in a folder of its own, from the last commit, without uncommitted
        changes; kept for you to merge if it changed anything.
    context: "fork": it begins with this whole conversation, for side work that needs most of it. Else "empty".
    tasks: Different tasks, reported in this order; what one leaves out is taken from the call.
    samples: How many subagents get this same task.
    synthesis: The goal. One more subagent then reads all reports, names what contradicts, checks it and decides.
    resume: Label of one that has ended, such as a398: it is asked again and still knows what it did.
    """
    call: Any = importlib.import_module("longrein.tools.agent_call")
    started: Outcome = await call.start(
        hands,
        call.Wanted(description, prompt, subagent_type, model, isolation or "", context),
        tasks=tasks or [],
        samples=samples,
        synthesis=synthesis.strip(),
        resume=resume,
        background=run_in_background,
    )
    return started


AGENT = make_tool(Agent, access="none", together=True)


def agent_tool(kinds: Sequence[Kind]) -> Tool:
    """`Agent` as the model is told of it where there are these types, in this order."""
    offered = [kind for kind in kinds if kind.name != SYNTHESIS]
    lines = "\n".join(f"- {kind.name}: {' '.join(kind.description.split())}" for kind in offered)
    spec = AGENT.spec
    described = msgspec.structs.replace(
        spec,
        description=f"{spec.description}\n\nTypes:\n{lines}",
        schema=with_types(spec.schema, [kind.name for kind in offered]),
    )
    return msgspec.structs.replace(AGENT, spec=described)


def with_types(schema: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """`schema` in which a type can only be one of `names`."""
    properties = dict(schema["properties"])
    task = properties["tasks"]["items"]
    own = {**task["properties"], "subagent_type": {**task["properties"]["subagent_type"], "enum": list(names)}}
    properties["subagent_type"] = {**properties["subagent_type"], "enum": list(names)}
    properties["tasks"] = {**properties["tasks"], "items": {**task, "properties": own}}
    return {**schema, "properties": properties}

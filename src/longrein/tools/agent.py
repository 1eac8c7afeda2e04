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
    """One of several tasks: fields as the arguments of the call, `prompt` its own part."""

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
    """Give work to a subagent, which works alone in a context of its own and hands back one report. Worth it when
    - finding something out would fill your context with pages you need not keep;
    - parts are independent: one call (tasks) runs them side by side;
    - fresh eyes help: a review, a hard question asked several times (samples).

    Not for a few calls of your own, steps that hang on each other, or what you already hold. Do not do its work too.

    Unless forked it sees nothing of this conversation and can ask nobody, so its prompt says all: goal and purpose;
    where to begin (absolute paths); what is known and ruled out; the user's limits; whether to change files; what to
    report. Two that write never share a file: divide them, or use isolation.

    The report is for you, and a claim, not a fact: look at the lines it names or run the check before you build on it.

    prompt: The whole task. With tasks: what all must know.
    model: Such as haiku; only when the user wants it.
    run_in_background: The report comes later, as a note.
    isolation: Its own git branch and folder, from the last commit, kept for you to merge.
    context: fork begins with this whole conversation.
    tasks: What one leaves out is taken from the call.
    samples: How many get this task.
    synthesis: The goal: one more subagent reads all reports, checks what contradicts, decides.
    resume: One that has ended (a398); it still knows what it did.
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

"""`Agent`: work handed to subagents, each with a context of its own, and their reports, quoted, in the order asked."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict

import msgspec

from longrein.events import ToolError
from longrein.tools.agent_port import AgentPort, Job, Kind
from longrein.tools.agent_report import reported
from longrein.tools.port import Hands, Outcome, Tool
from longrein.tools.registry import make_tool

TASKS_MAX = 32
"""Subagents of one call; more is a runaway or wants a smaller question."""
DESCRIPTION_CHARS_MAX = 120
SYNTHESIS = "synthesis"
"""The type that reads the reports of others. It is started by the argument of that name."""
LABEL = r"a[1-9]\d{0,17}"


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
    model: provider/model; only when the user asks for another one.
    run_in_background: Do not wait: the report comes later as a note. Until then say nothing of what it found.
    isolation: "worktree": it works on a git branch in a folder of its own, from the last commit, without uncommitted
        changes; kept for you to merge if it changed anything.
    context: "fork": it begins with this whole conversation, for side work that needs most of it. Else "empty".
    tasks: Different tasks, reported in this order; what one leaves out is taken from the call.
    samples: How many subagents get this same task.
    synthesis: The goal. One more subagent then reads all reports, names what contradicts, checks it and decides.
    resume: Label of one that has ended, such as a398: it is asked again and still knows what it did.
    """
    port = hands.agents
    if port is None:
        raise ToolError("[no-subagents] No subagent can be started here; do the work yourself.")
    call = {"type": subagent_type, "model": model, "isolation": isolation or "", "context": context}
    jobs = jobs_of(description, prompt, call, tasks, samples, resume)
    check_synthesis(synthesis, jobs)
    background = run_in_background or always_background(port, jobs)
    reports, facts = await port.run(jobs, call=hands.call, background=background, synthesis=synthesis.strip())
    return reported(reports, facts, hands.nonce, hands.page_bytes)


def jobs_of(
    description: str,
    prompt: str,
    call: Mapping[str, str],
    tasks: list[AgentTask] | None,
    samples: int,
    resume: str,
) -> list[Job]:
    """What each subagent of a call is to do. Raises `ToolError` where the arguments contradict each other."""
    if [bool(tasks), samples != 1, bool(resume)].count(True) > 1:
        raise ToolError("[contradiction] Give one of tasks, samples and resume. Nothing was started.")
    if tasks:
        check_count("tasks", len(tasks))
        return [task_job(task, prompt, call) for task in tasks]
    if not prompt.strip():
        raise ToolError("[empty] The prompt is empty: a subagent knows nothing but it. Nothing was started.")
    check_count("samples", samples)
    one = job(description, prompt, call)
    return [msgspec.structs.replace(one, again=label_of(resume, call))] if resume else [one] * samples


def task_job(task: AgentTask, shared: str, call: Mapping[str, str]) -> Job:
    """One of several tasks: what it leaves out is taken from the call."""
    if not task["prompt"].strip():
        raise ToolError(f"[empty] The task {task['description'][:40]!r} has no prompt. Nothing was started.")
    names = {"type": "subagent_type", "model": "model", "isolation": "isolation", "context": "context"}
    own = {name: str(task.get(key) or call[name]) for name, key in names.items()}
    return job(task["description"], "\n\n".join(filter(str.strip, (shared, task["prompt"]))), own)


def job(description: str, prompt: str, given: Mapping[str, str]) -> Job:
    """A job in the words of the port."""
    short = " ".join(description.split())[:DESCRIPTION_CHARS_MAX]
    return Job(short, prompt, given["type"], given["model"], given["context"], given["isolation"] == "worktree")


def check_count(name: str, count: int) -> None:
    """Refuse none and more than one call may start."""
    if not 1 <= count <= TASKS_MAX:
        raise ToolError(f"[bad-count] {name}: {count}; from 1 to {TASKS_MAX} may be started. Nothing was started.")


def label_of(resume: str, call: Mapping[str, str]) -> str:
    """The label of the one that is asked again. Raises `ToolError` for what is none."""
    import re

    label = resume.strip(" \t\n[]()'\"`").partition("/")[0]
    if not re.fullmatch(LABEL, label):
        raise ToolError(f"[bad-label] {resume[:40]!r} is no subagent of yours; labels look like a398.")
    if call["context"] == "fork" or call["isolation"]:
        raise ToolError("[contradiction] One that is asked again keeps its context and its folder. Nothing was done.")
    return label


def check_synthesis(goal: str, jobs: Sequence[Job]) -> None:
    """Refuse a synthesis of one report."""
    if goal.strip() and len(jobs) < 2:
        raise ToolError(
            "[one-report] A synthesis needs two reports or more: use tasks or samples. Nothing was started."
        )


def always_background(port: AgentPort, jobs: Sequence[Job]) -> bool:
    """Whether a type among them always works in the background."""
    kinds = {kind.name: kind for kind in port.kinds() if kind.background}
    return any(one.kind in kinds for one in jobs if not one.again)


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

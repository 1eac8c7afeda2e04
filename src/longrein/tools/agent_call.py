"""What a call of `Agent` asks for, as jobs: checked before anything is started, so a contradiction starts nothing."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from longrein.events import ToolError
from longrein.tools.agent_port import AgentPort, Job
from longrein.tools.agent_report import reported
from longrein.tools.port import Hands, Outcome

TASKS_MAX = 32
"""Subagents of one call; more is a runaway or wants a smaller question."""
DESCRIPTION_CHARS_MAX = 120
LABEL = r"a[1-9]\d{0,17}"


class Wanted(msgspec.Struct, frozen=True):
    """What a call says of one subagent, and one of its tasks where it says it too."""

    description: str
    prompt: str
    subagent_type: str
    model: str
    isolation: str
    context: str

    def job(self) -> Job:
        """In the words of the port."""
        short = " ".join(self.description.split())[:DESCRIPTION_CHARS_MAX]
        worktree = self.isolation == "worktree"
        return Job(short, self.prompt, self.subagent_type, self.model.strip(), self.context, worktree)


async def start(
    hands: Hands,
    wanted: Wanted,
    *,
    tasks: Sequence[Mapping[str, Any]],
    samples: int,
    synthesis: str,
    resume: str,
    background: bool,
) -> Outcome:
    """Start what was asked for; gives the reports. Raises `ToolError`, then nothing was started."""
    port = hands.agents
    if port is None:
        raise ToolError("[no-subagents] No subagent can be started here; do the work yourself.")
    if [bool(tasks), samples != 1, bool(resume)].count(True) > 1:
        raise ToolError("[contradiction] Give one of tasks, samples and resume. Nothing was started.")
    jobs = task_jobs(tasks, wanted) if tasks else same_jobs(wanted, samples, resume)
    if synthesis and len(jobs) < 2:
        raise ToolError(
            "[one-report] A synthesis needs two reports or more: use tasks or samples. Nothing was started."
        )
    behind = background or always_background(port, jobs)
    if synthesis and behind:
        raise ToolError(
            "[contradiction] A synthesis waits for its reports, so nothing here may work in the background."
        )
    reports, facts = await port.run(jobs, call=hands.call, background=behind, synthesis=synthesis)
    return reported(reports, facts, hands.nonce, hands.page_bytes, synthesis=bool(synthesis))


def same_jobs(wanted: Wanted, samples: int, resume: str) -> list[Job]:
    """The one task, as often as wanted, or to one that is asked again."""
    if not wanted.prompt.strip():
        raise ToolError("[empty] The prompt is empty: a subagent knows nothing but it. Nothing was started.")
    check_count("samples", samples)
    if not resume:
        return [wanted.job()] * samples
    return [msgspec.structs.replace(wanted.job(), again=label_of(resume, wanted))]


def task_jobs(tasks: Sequence[Mapping[str, Any]], call: Wanted) -> list[Job]:
    """Different tasks: what one leaves out is taken from the call, whose prompt stands before each one's own."""
    check_count("tasks", len(tasks))
    jobs = []
    for task in tasks:
        if not str(task["prompt"]).strip():
            raise ToolError(f"[empty] The task {task['description'][:40]!r} has no prompt. Nothing was started.")
        prompt = "\n\n".join(filter(str.strip, (call.prompt, str(task["prompt"]))))
        said = {name: str(value) for name, value in task.items() if value}
        jobs.append(msgspec.structs.replace(call, **{**said, "prompt": prompt}).job())
    return jobs


def check_count(name: str, count: int) -> None:
    """Refuse none and more than one call may start."""
    if not 1 <= count <= TASKS_MAX:
        raise ToolError(f"[bad-count] {name}: {count}; from 1 to {TASKS_MAX} may be started. Nothing was started.")


def label_of(resume: str, wanted: Wanted) -> str:
    """The label of the one that is asked again. Raises `ToolError` for what is none."""
    label = resume.strip(" \t\n[]()'\"`").partition("/")[0]
    if not re.fullmatch(LABEL, label):
        raise ToolError(f"[bad-label] {resume[:40]!r} is no subagent of yours; labels look like a398.")
    if wanted.context == "fork" or wanted.isolation:
        raise ToolError("[contradiction] One that is asked again keeps its context and its folder. Nothing was done.")
    return label


def always_background(port: AgentPort, jobs: Sequence[Job]) -> bool:
    """Whether a type among them always works in the background."""
    behind = {kind.name: kind for kind in port.kinds() if kind.background}
    return any(one.kind in behind for one in jobs if not one.again)

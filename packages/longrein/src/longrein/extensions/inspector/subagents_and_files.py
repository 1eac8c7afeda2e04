"""Subagents with their budgets, and files with those who read and changed them."""

import msgspec

from longrein.extensions.inspector.page_data import FileData, SpentData, SubagentData, Touch
from longrein.steps import CallStep, FileStep, QuestionStep, RequestStep, Step
from longrein_context.events import Grant, SubagentEnded, SubagentStarted, counts_of


class Child(msgspec.Struct):
    """A subagent while the logs are read."""

    label: str
    parent: str
    seq: int
    at: int
    started: SubagentStarted
    ends: list[tuple[int, SubagentEnded]] = []
    requests: int = 0
    tokens: int = 0
    usd: float = 0.0
    asking: set[str] = set()
    last_at: int = 0

    @property
    def is_over(self) -> bool:
        """True if its newest task has ended."""
        return bool(self.ends) and self.ends[-1][0] >= self.at

    def hear(self, step: Step) -> None:
        """Take in a step of its own log."""
        self.last_at = step.at
        self.usd += step.usd
        match step:
            case RequestStep(reply=reply) if reply:
                self.requests += 1
                self.tokens += counts_of(reply.usage).total_tokens
            case QuestionStep(answer=None):
                self.asking = {*self.asking, step.id}
            case QuestionStep(id=call) | CallStep(phase="ended", id=call):
                self.asking = self.asking - {call}

    def shown(self, *, is_open: bool) -> SubagentData:
        """Return the subagent as the page gets it. `is_open`: whether the session is open."""
        end = self.ends[-1][1] if self.is_over else None
        started = self.started
        return SubagentData(
            self.label,
            started.child,
            started.kind,
            started.description,
            end.status if end else self._state(is_open=is_open),
            self.at,
            _limit(started.grant),
            self._spent(),
            parent=self.parent,
            seq=self.seq,
            ended_us=self.ends[-1][0] if end else 0,
            model=started.model,
            task=started.task,
            report=end.report if end else "",
            message=end.message if end else "",
            worktree=end.worktree if end else started.worktree,
            files=list(end.files) if end else [],
        )

    def _state(self, *, is_open: bool) -> str:
        if not is_open:
            return "left"
        if self.asking:
            return "asking"
        if self.last_at > self.at:
            return "running"
        return "queued"

    def _spent(self) -> SpentData:
        """Sum of its ended tasks, with its own subagents; while it works what its own log tells."""
        if not self.is_over:
            seconds = max(0, self.last_at - self.at) / 1e6
            return SpentData(round(self.usd, 8), self.tokens, self.requests, 0, round(seconds, 3))
        ends = [end for _, end in self.ends]
        return SpentData(
            round(sum(end.cost_usd for end in ends), 8),
            sum(end.usage.total_tokens for end in ends),
            sum(end.steps for end in ends),
            sum(end.spawned for end in ends),
            round(sum(end.elapsed_ms for end in ends) / 1000, 3),
        )


def _limit(grant: Grant | None) -> SpentData:
    if grant is None:
        return SpentData()
    return SpentData(grant.usd, grant.tokens, grant.turns, grant.spawns, grant.seconds)


class FileTracker:
    """Collects what the agents read and changed."""

    def __init__(self) -> None:
        self._touches: dict[str, list[Touch]] = {}
        self._by_agents: set[tuple[str, str]] = set()
        """(path, hash) of each change in the log of the agent that made it."""
        self._reported: list[tuple[Touch, str, str]] = []
        """Changes by subagents, as their parents' logs tell of them, with (path, hash)."""

    def hear(self, step: Step, agent: str) -> None:
        """Take in a step of `agent`."""
        if not isinstance(step, FileStep):
            return
        changed, path = step.changed, step.path
        if changed is None:
            self._touch(path, Touch(step.seq, "read", agent or "agent", step.at, agent))
        elif changed.by == "subagent":
            touch = Touch(step.seq, "change", changed.who or "subagent", step.at, agent)
            self._reported.append((touch, path, step.hash))
        else:
            self._by_agents.add((path, step.hash))
            name = agent if agent and changed.by == "agent" else changed.who or changed.by
            self._touch(path, Touch(step.seq, "change", name, step.at, agent))

    def _touch(self, path: str, touch: Touch) -> None:
        self._touches.setdefault(path, []).append(touch)

    def files(self) -> list[FileData]:
        """Return the files, those with most changes first."""
        touched = {path: list(touches) for path, touches in self._touches.items()}
        for touch, path, digest in self._reported:
            if (path, digest) not in self._by_agents:
                touched.setdefault(path, []).append(touch)
        found = [_file(path, touches) for path, touches in touched.items()]
        return sorted(found, key=lambda file: (-file.changes, -file.reads, file.path))


def _file(path: str, touches: list[Touch]) -> FileData:
    touches = sorted(touches, key=lambda touch: touch.at_us)
    changes = [touch for touch in touches if touch.kind == "change"]
    by = list(dict.fromkeys(touch.by for touch in changes))
    return FileData(path, len(touches) - len(changes), len(changes), by, touches)

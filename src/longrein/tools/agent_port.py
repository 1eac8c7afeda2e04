"""Subagents, as the tool `Agent` sees them; `agent` implements it."""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from longrein.events import AnyEvent


class Job(msgspec.Struct, frozen=True):
    """What one subagent is to do."""

    description: str
    """Three to five words, for the screen."""
    prompt: str
    """The whole task."""
    kind: str = "general"
    """Subagent type."""
    model: str = ""
    """As the call has it, `provider/model` or an alias; '' as the type says, else the parent's."""
    form: str = ""
    """`empty` or `fork`; '' for `empty`."""
    worktree: bool = False
    """Whether it works in a git worktree of its own."""
    again: str = ""
    """`a<seq>` of a finished subagent that is asked again, in the conversation it has; '' for a new one."""


class Report(msgspec.Struct, frozen=True):
    """What came of one subagent."""

    label: str
    """`a<seq>`: `Recall` with `a<seq>/r<n>` reads its log."""
    job: Job
    status: str
    """`done`, `failed`, `limit`, `interrupted`; `refused` when it was never started; `running` in the background."""
    text: str
    """The report; of one that did not finish, what it had."""
    message: str = ""
    """Why it did not finish, or what was granted otherwise than asked for."""
    steps: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    elapsed_s: float = 0.0
    files: tuple[str, ...] = ()
    """Files it changed, absolute."""
    worktree: str = ""
    """What was kept of its worktree."""
    handle: str = ""
    """`a<seq>/r<n>` of the reply that `text` is, where there is one: what brings all of it back."""


class Kind(msgspec.Struct, frozen=True):
    """One subagent type."""

    name: str
    description: str
    """When to use it, as the model is told."""
    system: str = ""
    """System text as it was written; '' for one that stands in the package (see `agent.child_system`)."""
    tools: tuple[str, ...] | None = None
    """Names of the tools it may use, `*` at the end of a name for any; None for all of the parent's."""
    without: tuple[str, ...] = ()
    """Names that are taken off after that."""
    model: str = ""
    """As it was written: `provider/model`, an alias such as `haiku`, or '' for the parent's."""
    mode: str = ""
    """Permission mode; '' for the parent's. It can only narrow what the parent may."""
    turns_max: int = 0
    """Requests; 0 for the default."""
    spawns: tuple[str, ...] = ()
    """Types it may start itself, within the depth that is granted; `*` for any. Without one it has no `Agent`."""
    background: bool = False
    """Whether it always runs in the background."""
    worktree: bool = False
    """Whether it always gets a git worktree."""
    source: str = "built in"
    """File it came from."""


class AgentPort(Protocol):
    """Subagents of one session."""

    def kinds(self) -> Sequence[Kind]:
        """Types that may be started here, in a fixed order."""
        ...

    async def run(
        self, jobs: Sequence[Job], *, call: str, background: bool, synthesis: str = ""
    ) -> tuple[Sequence[Report], tuple[AnyEvent, ...]]:
        """Run `jobs` side by side; gives reports in the order of `jobs` and the facts that belong with the result.

        A job that may not be started is a report with status `refused`. With `background` they are started and
        reported `running`; the reports come later as notices. With `synthesis` (the goal) one more subagent of type
        `synthesis` reads all reports, and its report is the last. Called again for the same `call` after a crash it
        goes on with the subagents that were started. Cancellation interrupts them; each keeps what it had.
        """
        ...

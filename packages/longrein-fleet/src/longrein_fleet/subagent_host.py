"""Subagents of a session as attempts of a fleet: `location: fleet` in their type.

With `RAY_ADDRESS` they run on the nodes of that Ray, else in processes of this machine. A node
clones the commit that the worktree was made from; what it changed comes back as a patch.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec

from longrein.agent.shared_rate_limit import SharedRates
from longrein.agent.subagent_host import SubagentOrder, SubagentOutcome
from longrein.app.prefix_offer import built_in
from longrein.app.run_context import CLOCK, RunContext
from longrein.atomic_file import replace_file
from longrein.folder_trees import remove_tree
from longrein.permissions import Rules
from longrein.permissions.patterns_below import patterns_below
from longrein.permissions.rules import PATH_RULES, parse_rule
from longrein.store import HistoryReader, open_log
from longrein.store.daemon_threads import run_in_thread
from longrein.tools.tool_search import MCP_PREFIX
from longrein.workspace import Worktree
from longrein_context.events import Entry, LongreinError, SessionUnknown
from longrein_fleet.attempt_folder import PATCH, READY, WORK
from longrein_fleet.executor import Attempt, Executor
from longrein_fleet.fleet_log import fleet_folder
from longrein_fleet.fleet_state import (
    OUTAGES,
    OUTAGES_MAX,
    UNCOUNTED,
    AttemptEnded,
    Cause,
    Engine,
)
from longrein_fleet.fleet_tasks import PROMPT_BYTES_MAX, Task, TaskLimits
from longrein_fleet.local_executor import RATES, STORE, LocalExecutor

OUTAGE_S = 2.0
"""Wait after the first outage, doubled with each further one."""
UNPATCHED: tuple[Cause, ...] = (*UNCOUNTED, "setup failed")
"""Causes of ends without a patch."""
MODES = ("plan", "dontAsk")
"""Modes of the parent that a subagent keeps. In any other it edits its copy without asking."""


class FleetHost:
    """A `SubagentHost` of the executors of fleets."""

    def __init__(self, run_context: RunContext, session: str) -> None:
        """`session`: that of the user."""
        store = run_context.settings.sessions.store
        environ = {**run_context.environ, STORE: store} if store else run_context.environ
        self._place = msgspec.structs.replace(run_context, environ=environ)
        self._folder = fleet_folder(run_context.state_dir, f"subagents-{session}")
        self._executor: Executor | None = None
        self._opening = asyncio.Lock()

    async def run(self, order: SubagentOrder, halt: asyncio.Event) -> SubagentOutcome:
        """See `SubagentHost.run`."""
        attempt = self._attempt(order)
        await self._make_session(order)
        end = None if halt.is_set() else await self._run_until(attempt, halt)
        outcome = SubagentOutcome(kept=self._kept(attempt))
        if end is None:
            return outcome
        if end.cause not in UNPATCHED and not end.is_incomplete:
            outcome = msgspec.structs.replace(outcome, kept="")
        patch = os.path.join(self._folder, attempt.path, PATCH)
        if end.patch and os.path.exists(patch):
            outcome = msgspec.structs.replace(outcome, patch=patch)
        if end.cause == "done":
            return msgspec.structs.replace(outcome, message=end.message)
        status: Literal["limit", "failed"] = "limit" if end.cause == "limit" else "failed"
        return msgspec.structs.replace(outcome, status=status, message=end.message or end.cause)

    def _kept(self, attempt: Attempt) -> str:
        """Return the folder on this machine in which an attempt has begun its work; '' for none."""
        folder = os.path.join(self._folder, attempt.path)
        begun = os.path.exists(os.path.join(folder, READY))
        return os.path.join(folder, WORK) if begun else ""

    async def entries(self, session: str) -> Sequence[Entry]:
        """See `SubagentHost.entries`."""
        reader = HistoryReader(self._place.state_dir, session)
        return await reader.reading(lambda history: list(history.entries()))

    async def forget(self, session: str) -> None:
        """See `SubagentHost.forget`."""
        folder = os.path.join(self._folder, "tasks", session)
        gone = run_in_thread(partial(remove_tree, folder, ignore_errors=True), "forget")
        await asyncio.wrap_future(gone)

    async def close(self) -> None:
        """See `SubagentHost.close`."""
        if self._executor is not None:
            await self._executor.close()
        tasks = os.path.join(self._folder, "tasks")
        with suppress(OSError):
            os.rmdir(tasks)
        if not os.path.exists(tasks):
            remove_tree(self._folder, ignore_errors=True)

    # --- One subagent -----------------------------------------------------------------------------

    def _attempt(self, order: SubagentOrder) -> Attempt:
        """Return the attempt of an order. Raises `LongreinError` for one that is too long."""
        session, grant = order.opened.session, order.opened.grant
        limits = TaskLimits(seconds=(grant and grant.seconds) or None)
        mode = order.mode if order.mode in MODES else "acceptEdits"
        rules = msgspec.json.encode({"permissions": moved_rules(order.rules, order.tree)}).decode()
        flags = ["--system-prompt", order.system, "--settings", rules]
        flags += ["--disallowedTools", ",".join(_refused_tools(order))]
        if max(len(word.encode()) for word in (order.prompt, *flags)) > PROMPT_BYTES_MAX:
            raise LongreinError(
                f"its task, system text or rules have more than {PROMPT_BYTES_MAX} bytes"
            )
        tree = order.tree
        task = Task(session, order.prompt, tree.root, tree.start, order.model, limits)
        return Attempt(task, 1, session, mode=mode, flags=tuple(flags), is_typed=False)

    async def _make_session(self, order: SubagentOrder) -> None:
        """Make the session of a subagent, unless it was begun before."""
        state_dir, session = self._place.state_dir, order.opened.session
        reader = HistoryReader(state_dir, session)
        with suppress(SessionUnknown):
            if await reader.reading(lambda history: history.opening_entry()):
                return
        log = await open_log(state_dir, session, create=True, wall_us=CLOCK.wall_us)
        try:
            first = Entry(1, CLOCK.wall_us(), order.opened)
            await asyncio.wrap_future(log.append([first], flush=True))
        finally:
            await log.close()

    async def _run_until(self, attempt: Attempt, halt: asyncio.Event) -> AttemptEnded | None:
        """Run an attempt; return its end, None if it was stopped."""
        running = asyncio.ensure_future(self._run(attempt))
        halted = asyncio.ensure_future(halt.wait())
        try:
            await asyncio.wait((running, halted), return_when=asyncio.FIRST_COMPLETED)
            return running.result() if running.done() else None
        finally:
            halted.cancel()
            if running.cancel():
                await asyncio.wait((running,))

    async def _run(self, attempt: Attempt) -> AttemptEnded:
        executor = await self._open()
        for outages in range(OUTAGES_MAX):
            end = await executor.run_attempt(attempt)
            if end.cause not in OUTAGES:
                return end
            await asyncio.sleep(OUTAGE_S * 2**outages)
        return await executor.run_attempt(attempt)

    async def _open(self) -> Executor:
        async with self._opening:
            if self._executor is None:
                self._executor = await self._open_executor()
            return self._executor

    async def _open_executor(self) -> Executor:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        environ = self._place.environ
        rates = environ.get("LONGREIN_RATES", "")
        if address := environ.get("RAY_ADDRESS", ""):
            from longrein_fleet.ray_executor import open_ray

            data = msgspec.json.encode(SharedRates())
            replace_file(os.path.join(self._folder, RATES), [data], durable=False)
            # the task of a fleet waits for its subagents with a CPU of its own
            engine = Engine("ray", address, cpus=0 if rates else 1)
            named = rates or os.path.basename(self._folder)
            return await open_ray(
                self._place, self._folder, engine, named, inherits_rates=bool(rates)
            )
        executor = LocalExecutor(self._place, self._folder, rates=rates)
        await executor.wait_for_earlier()
        return executor


def _refused_tools(order: SubagentOrder) -> Iterator[str]:
    """Yield the tools that a subagent may not use of those that a node can have."""
    yield from order.refused
    for name in (tool.spec.name for tool in built_in((), None)):
        if name not in order.tools and name not in order.refused:
            yield name
    if not any(name.startswith(MCP_PREFIX) for name in order.tools):
        yield f"{MCP_PREFIX}*"


# --- Rules ----------------------------------------------------------------------------------------


def moved_rules(rules: Rules, tree: Worktree) -> dict[str, list[str]]:
    """Return rules for a copy of the repository: what is refused or asked of a path here is so
    there, and as it is written, too.
    """
    allow, ask, deny = (
        [moved for rule in some for moved in _moved(rule, rules, tree) or [rule]]
        for some in (rules.allow, rules.ask, rules.deny)
    )
    return {"allow": allow, "ask": [*rules.ask, *ask], "deny": [*rules.deny, *deny]}


def _moved(text: str, rules: Rules, tree: Worktree) -> list[str]:
    """Return the rules that hold below `tree.root`, seen from there; none for a rule that names no
    path there.
    """
    rule = parse_rule(text)
    is_of_path = rule.tool in PATH_RULES or rule.tool.endswith("*")
    if rule.problem or not rule.spec or not is_of_path:
        return []
    as_written = rules.base.removesuffix(f"/{tree.prefix}") if tree.prefix else rules.base
    found = [
        pattern
        for folder in dict.fromkeys((tree.root, as_written))
        for pattern in patterns_below(rule.spec, folder, rules.base, rules.home)
    ]
    return [f"{rule.tool}({pattern})" for pattern in dict.fromkeys(found)]

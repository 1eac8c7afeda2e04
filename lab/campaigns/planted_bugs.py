"""Bugs that are planted in longrein to see how soon the campaigns find them: `make planted`.

    python -m lab.campaigns.planted_bugs [--bugs NAME …] [--seeds 500] [--seconds 3600]

Each bug is one small change of a source file, made as the module is imported in a process of its
own. The campaign then plays seeds until one fails. The same seeds pass without the bug.
"""

import argparse
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from lab.source_tree import ROOT, module_file


class PlantedBug(NamedTuple):
    """A bug: `old` becomes `new` in `module`, which breaks `promise`."""

    name: str
    module: str
    old: str
    new: str
    promise: str
    campaign: str = "simulation"


BUGS = (
    # --- store
    PlantedBug(
        "acknowledge before flush",
        "longrein.store.writer",
        "        if flush:\n            return self._sync(database)\n        now_us",
        "        if flush:\n            return None\n        now_us",
        "what is acknowledged survives a power cut",
    ),
    PlantedBug(
        "name of the log not flushed",
        "longrein.store.database",
        "        self._is_durable = False\n",
        "        self._is_durable = not self._is_new\n",
        "what is acknowledged survives a power cut",
    ),
    PlantedBug(
        "mark ahead of the log",
        "longrein.store.database",
        "        self._update_mark(writes)\n",
        "        self._update_mark(writes)\n        write_mark(self.folder, self.mark)\n",
        "nothing is told as lost that never counted",
    ),
    PlantedBug(
        "last taken message stays in the inbox",
        "longrein.store.database",
        "[(message,) for message in write.take])",
        "[(message,) for message in write.take[1:]])",
        "a message is taken once",
    ),
    # --- inbox
    PlantedBug(
        "message acknowledged before it is on disk",
        "longrein.agent.inbox",
        "redacted(message, self._redact)), flush=True)",
        "redacted(message, self._redact)), flush=False)",
        "no acknowledged message is lost",
    ),
    PlantedBug(
        "message not taken from the store",
        "longrein.agent.between_moves",
        "        session.take(number)\n        if for_subagent",
        "        if for_subagent",
        "a message is taken once",
    ),
    # --- agent
    PlantedBug(
        "act before its start is on disk",
        "longrein.agent.tool_runner",
        "    await session.commit(flush=True)\n    beside",
        "    await session.commit(flush=False)\n    beside",
        "an act is in the log before it happens",
    ),
    PlantedBug(
        "retry of an effect",
        "longrein.agent.moves",
        "if call.started and call.call.id not in joined]",
        "if call.answer is not None and call.started and call.call.id not in joined]",
        "what may have run is not run again",
    ),
    PlantedBug(
        "request of a killed run is free",
        "longrein.agent.moves",
        "            assumed_usd=asked.reserved_usd,\n        )\n        for seq",
        "        )\n        for seq",
        "money is what may have been spent",
    ),
    PlantedBug(
        "partial answer is free",
        "longrein.agent.model_request",
        'assumed = reserved_usd if failure.partial or failure.kind in ("truncated", "stalled") '
        "else 0.0",
        "assumed = 0.0",
        "money is what may have been spent",
    ),
    PlantedBug(
        "budget after the call",
        "longrein.agent.model_request",
        "reserved_usd=reserve_usd(state, budget, probe.max_output_tokens),",
        "reserved_usd=0.0,",
        "the money limit holds",
    ),
    PlantedBug(
        "request in another form than the log says",
        "longrein.agent.model_request",
        "        msgspec.structs.replace(probe, items=render(session.state, budget).items)\n",
        "        probe\n",
        "a request begins with the one before",
    ),
    # --- context
    PlantedBug(
        "message lost in a summary",
        "longrein_context.summary.summary_text",
        "    return list(words[1:cut]), ",
        "    return list(words[2:cut]), ",
        "the user's words stand",
    ),
    PlantedBug(
        "report told by result and notice",
        "longrein_context.fold_notices",
        "    if told or (child is not None and child.ended is not None):",
        "    if child is not None and child.ended is not None:",
        "each end is told once",
    ),
    # --- tasks
    PlantedBug(
        "task kept before it is on disk",
        "longrein.agent.background.start",
        "        await tasks.host.commit(flush=True)\n        return await started.keep(keeping)",
        "        return await started.keep(keeping)",
        "a task is in the log before it outlives longrein",
    ),
    PlantedBug(
        "end of a task logged twice",
        "longrein.agent.background.session_tasks",
        "        taken = [self._ends.pop(task) for task",
        "        taken = [self._ends[task] for task",
        "each end is told once",
    ),
    PlantedBug(
        "spool emptied before the end is on disk",
        "longrein.agent.background.session_tasks",
        "            self.host.commit(flush=True).add_done_callback(\n                lambda done: "
        "self._settled(done, settling)\n            )\n",
        "            for task in settling:\n                self.pool.supervision.settle(task)\n",
        "each end of a task is kept",
    ),
    # --- subagents
    PlantedBug(
        "start and opening in two transactions",
        "longrein.agent.subagents.runner",
        "                flush=True, beside=new\n",
        "                flush=True\n",
        "a subagent is there with what started it or not at all",
    ),
    PlantedBug(
        "subagent cut by a crash",
        "longrein.agent.moves",
        "if call.started and call.call.id not in joined]",
        "if call.started]",
        "a subagent goes on after a crash",
    ),
    PlantedBug(
        "slot freed twice",
        "longrein.agent.subagents.runner",
        "        watching.cancel()\n        slots.leave()\n",
        "        watching.cancel()\n        slots.leave()\n        slots.leave()\n",
        "no more subagents work at once than may",
    ),
    PlantedBug(
        "all grants from one pot",
        "longrein.agent.subagents.budget",
        "            remaining = _without(remaining, one.grant, again=request.again)\n",
        "            pass\n",
        "the money limit holds",
    ),
    # --- checkpoints and rewind
    PlantedBug(
        "edits right before a rewind not looked at",
        "longrein.agent.rewind_log",
        "                if last and not busy and name != last:\n",
        '                if last and not busy and name != last and when != "rewind":\n',
        "nothing of the user's changes unnamed",
        "rewind",
    ),
    PlantedBug(
        "permissions not restored",
        "longrein.workspace.tree_restore",
        "                folder.set_mode(name, target.then.permissions)\n",
        "                pass\n",
        "a rewind restores bytes and mode",
        "rewind",
    ),
)


# --- Planting -------------------------------------------------------------------------------------


class _PlantedLoader(importlib.machinery.SourceFileLoader):
    def __init__(self, bug: PlantedBug, path: str) -> None:
        super().__init__(bug.module, path)
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        """Compile the source with the bug in it; never from a cache."""
        return compile(planted_source(self._bug), self.path, "exec")


class _PlantingFinder(importlib.abc.MetaPathFinder):
    def __init__(self, bug: PlantedBug) -> None:
        self._bug = bug

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._bug.module:
            return None
        place = str(source_file(self._bug))
        return importlib.util.spec_from_file_location(
            fullname, place, loader=_PlantedLoader(self._bug, place)
        )


def source_file(bug: PlantedBug) -> Path:
    """Return the file that the bug is planted in."""
    return module_file(bug.module)


def planted_source(bug: PlantedBug) -> str:
    """Return the source with the bug. Raises AssertionError when its place is not there once."""
    source = source_file(bug).read_text(encoding="utf-8")
    times = source.count(bug.old)
    assert times == 1, f"{bug.name}: its place is {times} times in {bug.module}"
    return source.replace(bug.old, bug.new)


def find(bug: PlantedBug, seeds: int, seconds: float) -> tuple[int, str]:
    """Plant the bug in this process and play seeds; return how many were needed and what failed,
    0 when none did. No module of longrein may be imported yet.
    """
    assert bug.module not in sys.modules
    sys.meta_path.insert(0, _PlantingFinder(bug))
    logging.disable()
    module = "rewind_campaign" if bug.campaign == "rewind" else "simulation"
    play = importlib.import_module(f"lab.campaigns.{module}").play
    until = time.monotonic() + seconds
    for seed in range(seeds):
        try:
            play(seed)
        except (AssertionError, ValueError) as error:
            return seed + 1, str(error)
        if time.monotonic() > until:
            break
    return 0, "not found"


def find_in_process(bug: PlantedBug, seeds: int, seconds: float) -> tuple[PlantedBug, int, str]:
    """Do the same in a new interpreter."""
    words = ["--find", bug.name, "--seeds", str(seeds), "--seconds", str(seconds)]
    command = [sys.executable, "-m", "lab.campaigns.planted_bugs", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    needed, _, why = ran.stdout.partition(" ")
    return bug, int(needed or 0), (why or ran.stderr[-300:]).strip()


def main(words: Sequence[str]) -> int:
    """Look for every bug; return 1 when one was not found."""
    parser = argparse.ArgumentParser(description="Count the seeds until planted bugs are found.")
    parser.add_argument("--bugs", nargs="*", help="names; all by default")
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=1200, help="limit for each bug")
    parser.add_argument("--parallel", type=int, default=2)
    parser.add_argument("--find", help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.find:
        (bug,) = (one for one in BUGS if one.name == given.find)
        needed, why = find(bug, given.seeds, given.seconds)
        print(needed, why)
        return int(not needed)
    bugs = [one for one in BUGS if not given.bugs or one.name in given.bugs]
    begun, found = time.monotonic(), []
    with ThreadPoolExecutor(given.parallel) as threads:
        looking = threads.map(lambda bug: find_in_process(bug, given.seeds, given.seconds), bugs)
        for bug, needed, why in looking:
            found += [needed] if needed else []
            print(f"{needed or 'none':>5}  {bug.name:<42} {why[:160]}", flush=True)
    worst = max(found, default=0)
    seconds = time.monotonic() - begun
    print(f"planted: {len(found)} of {len(bugs)} found, worst {worst} seeds, {seconds:.0f} s")
    return int(len(found) < len(bugs))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Random simulation of session trees: subagents, background tasks, user, faults, killed process.

`SEEDS_TIMES=50 pytest tests/testing/test_tree_simulation.py` plays seeds 0 to 799; `simulate(77)`
plays seed 77 alone. Each seed is one root session of several lives on one disk, with everything
that works beside it. After every request and every life the laws are checked; in the end the model
answers plainly, nothing fails any more, and the whole tree must come to rest with everything told
once.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import msgspec

from lab.campaigns.storm import MORE, expand_names
from lab.support.chaos import ChaosModel
from lab.support.simulate import (
    MODES,
    TOOLS,
    BaseSimulation,
    check_assumed,
    check_words_stand,
    difference,
    key_of,
    play,
    raise_first,
)
from lab.support.simulate import bash as run
from lab.support.supervision import MemorySupervision
from lab.support.torn_disk import Broken, hold
from longrein.agent import (
    Answer,
    Continue,
    FromSubagent,
    Limits,
    OpenSession,
    Rewind,
    SetMode,
    StopSubagent,
    StopTask,
    UserMessage,
    builtin_kinds,
)
from longrein.agent.background.task_control import BackgroundControl
from longrein.agent.dependencies import TaskOptions
from longrein.agent.session_part import BackgroundTasks, Subagents
from longrein.agent.subagents.budget import limits_under, spent
from longrein.agent.task_slots import TaskPool
from longrein.models import Delta
from longrein.permissions import Rules
from longrein.testing.harness import memory_dependencies, memory_tools, open_test_session
from longrein.testing.workspace import MemoryWorkspace, Ran
from longrein.tools import ToolOptions, agent_tool
from longrein.workspace import BackgroundOptions
from longrein_context import Item, Request, State, fold
from longrein_context.events import (
    Asked,
    AskFailed,
    Entry,
    Interrupted,
    Opened,
    PermissionAsked,
    Reminded,
    Replied,
    Rewound,
    StoreFull,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    UserSpoke,
    text_of,
)

REST_S = 3_600 * 3
"""A tree without faults comes to rest within so much virtual time."""
WEIGHTS = {"Agent": 5, "Bash": 4, "TaskOutput": 2, "TaskStop": 2, "TaskList": 1}
KINDS = ("general", "general", "explore", "plan", "nobody")
REPORTED = re.compile(r"^\* (a\d+)(?: \(.*\))?: (done|failed|limit|interrupted)\b", re.MULTILINE)
"""How the end of a subagent is told by a notice."""
OVER = re.compile(
    r"^\* ((?:a\d+\.)*b\d+)\b.*?: (done|failed|timed out|killed|lost)\b", re.MULTILINE
)
"""How the end of a task is told by a notice."""


# --- the arguments of a foolish agent -------------------------------------------------------------


def labels(request: Request) -> list[str]:
    """Return labels of subagents in the request."""
    shown = " ".join(
        text_of((item.part,)) for item in request.items if item.kind in ("result", "reminder")
    )
    return list(dict.fromkeys(re.findall(r"\ba\d+\b", shown))) or ["a1"]


def task_ids(request: Request) -> list[str]:
    """Return ids of tasks in the request."""
    shown = " ".join(
        text_of((item.part,)) for item in request.items if item.kind in ("result", "reminder")
    )
    return list(dict.fromkeys(re.findall(r"\b(?:a\d+\.)*b\d+\b", shown))) or ["b1"]


def agent(model: ChaosModel, request: Request) -> dict[str, Any]:
    draw = model.random
    common: dict[str, Any] = {
        "description": f"job {model.serial()}",
        "subagent_type": draw.choice(KINDS),
    }
    common |= {"run_in_background": True} if model.chance(0.35) else {}
    common |= {"context": "fork"} if model.chance(0.35) else {}
    luck = draw.random()
    if luck < 0.4:
        jobs = [
            {"description": f"part {n}", "prompt": f"job<{model.serial()}> {model.text(20)}"}
            for n in range(draw.choice([1, 2, 2, 3, 5]))
        ]
        more = {"synthesis": "decide"} if len(jobs) > 1 and model.chance(0.3) else {}
        return {**common, "tasks": jobs, **more}
    if luck < 0.5:
        return {**common, "prompt": f"job<{model.serial()}> {model.text(20)}", "samples": 2}
    if luck < 0.6:
        common.pop("context", None)
        return {
            **common,
            "prompt": f"job<{model.serial()}> again",
            "resume": draw.choice(labels(request)),
        }
    return {**common, "prompt": f"job<{model.serial()}> {model.text(40)}"}


def bash(model: ChaosModel, request: Request) -> dict[str, Any]:
    made = run(model, request)
    if model.chance(0.35):
        made["run_in_background"] = True
    return made


def task_output(model: ChaosModel, request: Request) -> dict[str, Any]:
    how: dict[str, Any] = model.random.choice(
        [{}, {"tail": 5}, {"since": 0}, {"grep": "line"}, {"wait": 20}]
    )
    return {"task_id": model.random.choice(task_ids(request)), **how}


COMPANY: dict[str, Callable[[ChaosModel, Request], dict[str, Any]]] = {
    **cast("Any", TOOLS),
    "Agent": agent,
    "Bash": bash,
    "TaskOutput": task_output,
    "TaskStop": lambda m, r: {"task_id": m.random.choice(task_ids(r))},
    "TaskList": lambda m, r: {},
    "TaskInput": lambda m, r: {"task_id": m.random.choice(task_ids(r)), "text": "y\n"},
}


class TreeModel(ChaosModel):
    """Chaos model that counts its open streams by session."""

    open: Counter[str]
    tell: Callable[[BaseException], None]
    """Called with what is wrong with a request: a subagent that fails by it says no more than
    that it failed.
    """

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        self.open[request.session] += 1
        try:
            async for batch in super().stream(request):
                yield batch
        except (Broken, Exception) as error:
            self.tell(error)
            raise
        finally:
            self.open[request.session] -= 1


class Sent(msgspec.Struct):
    """Last turn request of one session."""

    items: tuple[Item, ...]
    prefix: int
    asked: Entry | None
    breaks: int


class TreeSimulation(BaseSimulation):
    """Simulation of one seed."""

    model: TreeModel

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        draw = self.random.choice
        self.model = TreeModel(
            seed, COMPANY, rest=self._stream_s, faults=draw([0, 0.1, 0.25]), weights=WEIGHTS
        )
        self.model.open = Counter()
        self.model.tell = self._wrong
        self.model.watch = self._on_request
        self.broken: BaseException | None = None
        """A law that did not hold inside a subagent, whose walk cannot say so."""
        self.supervision = MemorySupervision(self._command, self.clock)
        self.supervision.watch = self._on_keep
        self.disk.spool = self.supervision.files
        self.space = MemoryWorkspace(
            {"/w/a.py": "a = 1\n" * 5, "/w/src/b.py": "b\n" * 300, "/w/big.txt": "line\n" * 4_000},
            spawner=self.supervision,
        )
        self.limits = Limits(
            turns_max=draw([0, 0, 12]),
            usd_max=draw([0.0, 0.0, 0.15, 0.4, 2.0]),
            tokens_max=draw([0, 0, 0, 150_000]),
            parallel_max=draw([2, 32]),
            agents_max=draw([1, 3, 20]),
            depth_max=draw([1, 1, 2, 3]),
            spawns_max=draw([4, 12, 40]),
        )
        self.tasks_max = draw([1, 3, 32])
        self.sent: dict[str, Sent] = {}
        self.roots_items: dict[tuple[str, int], tuple[Item, ...]] = {}
        """(session, `Asked`) -> what was sent."""
        self.below: dict[str, str] = {}
        """Subagents that were heard of, by session: their label."""
        self.dearest_usd = 0.0
        """What one call was thought to cost at most."""
        self.failed: list[str] = []
        """Subagents that something went wrong with: their logs may end anywhere."""
        self.seen: Counter[str] = Counter()
        """What the seeds visited."""

    # --- the world --------------------------------------------------------------------------------

    def _command(self, line: str) -> Ran:
        self._on_command(line)
        kind = line.split()[1] if len(line.split()) > 1 else ""
        long = "".join(f"{line} {n}\n" for n in range(self.random.choice([40, 900])))
        table = {
            "slow": Ran("slow\n", delay_s=self.random.choice([2, 20, 400])),
            "hang": Ran("begun\n", hang=True),
            "fail": Ran("error: no\n", self.random.choice([1, 2, -1])),
            "long": Ran(long, delay_s=0.5),
        }
        return table.get(kind, Ran(f"{line}\n", delay_s=self.random.choice([0, 0.1, 3])))

    def _open(self) -> OpenSession:
        tools = (*memory_tools(), agent_tool(builtin_kinds()))
        deps = memory_dependencies(
            self.model,
            self.disk,
            workspace=self.space,
            clock=self.clock,
            tools=tools,
            rules=Rules(allow=("Bash(run *)", "Read"), ask=("Bash(run slow *)",), base="/w"),
        )
        deps.limits, deps.kinds, deps.jitter = self.limits, builtin_kinds(), self.random.random
        deps.options = ToolOptions(
            output_inline_bytes=4_000, head_bytes=500, tail_bytes=900, output_bytes_max=100_000
        )
        pool = TaskPool(self.supervision, self.tasks_max)
        deps.parts[BackgroundTasks] = lambda: BackgroundControl(pool)
        deps.task_options = TaskOptions(timeout_s=self.random.choice([0.0, 0.0, 3_000.0]))
        return open_test_session(self.model, disk=self.disk, deps=deps)

    @property
    def states(self) -> dict[str, State]:
        """Return the states of all running sessions."""
        company = self.session.find(Subagents) if self.session is not None else None
        states = dict(company.tree.states) if company is not None else {}
        return {self.disk.session: self.session.state, **states}

    # --- what is checked while it goes ------------------------------------------------------------

    def _on_command(self, line: str) -> None:
        if line.startswith(("run ", "echo ")):
            hold("law 8: a command runs at most once", line not in self.supervision.started, line)

    def _on_keep(self, keeping: BackgroundOptions) -> None:
        """Check that `TaskStarted` is on disk before a command is kept."""
        safe = self.disk.writes[: self.disk.flushed]
        every = [
            e.event
            for write in safe
            for part in (write.entries, *write.below.values())
            for e in part
        ]
        if not any(isinstance(e, TaskStarted) and e.task == keeping.task for e in every):
            self.broken = self.broken or Broken(
                f"law 7a: a task is on disk before it is kept: {keeping.task}"
            )

    def _wrong(self, error: BaseException) -> None:
        self.broken = self.broken or error

    def _look(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Raise the first recorded error."""
        if self.broken is not None:
            raise self.broken
        raise_first(list(tasks))

    def _on_request(self, request: Request) -> None:
        self.requests += 1
        states = self.states
        state = states.get(request.session)
        hold("only those who work ask", state is not None, request.session)
        assert state is not None
        self._check_money(states)
        hold(
            "law 6: no request is wasted on a full window",
            self.model.nothing_fits <= 200,
            self.model.nothing_fits,
        )
        if request.purpose != "turn":
            return
        check_words_stand(request, state)
        old = self.sent.get(request.session)
        self.sent[request.session] = new = Sent(
            request.items, request.prefix_seq, None, state.breaks
        )
        if old is not None and old.breaks == state.breaks:
            same = request.items[: len(old.items)] == old.items and old.prefix == request.prefix_seq
            same = same or not self._stored(
                request.session, old.asked
            )  # the disk was full: it was never asked
            hold(
                "law 2: a request begins with the one before",
                same,
                difference(old.items, request.items),
            )
        new.asked = Entry(state.asked_seq, 0, state.asked) if state.asked else None
        self.roots_items[request.session, state.asked_seq] = request.items
        if old is None and state.label:
            self._check_fork(request, state)

    def _check_fork(self, request: Request, state: State) -> None:
        """The first request of a fork begins with the request of its parent that it forks."""
        opened = next(
            e.event
            for e in self.disk.entries(request.session)
            if isinstance(e.event, Opened) and e.event.parent and e.event.session == request.session
        )
        assert opened.parent is not None
        if not opened.parent.seq:
            return
        shared = fold(self.disk.entries(request.session)[: opened.parent.seq])
        if shared.breaks != state.breaks:
            return  # with its task it was too large for the window
        self.seen["fork"] += 1
        point = self.disk.entries(request.session)[opened.parent.seq - 1].event
        hold("a fork begins at a request of its parent", isinstance(point, Asked), point)
        parents = self.roots_items.get((opened.parent.session, opened.parent.seq))
        if parents is None:  # asked before a kill that took it back, or in a life before
            return
        same = request.items[: len(parents)] == parents
        hold("a fork begins with its parent's request", same, difference(parents, request.items))
        hold(
            "a fork has its parent's prefix",
            request.prefix == self.session.state.prefix or state.label.count("."),
        )

    def _check_money(self, states: dict[str, State]) -> None:
        """I5: no ancestor passes its cap by more than one call's cost; counted from the logs,
        not from the fold.
        """
        root = states[self.disk.session]
        self.dearest_usd = max(
            self.dearest_usd, *(s.asked.reserved_usd for s in states.values() if s.asked), 0.0
        )
        most = self.dearest_usd
        used = spent(root, states)
        if self.limits.usd_max:
            fine = used.usd <= self.limits.usd_max + most + 1e-9
            hold("I5: spent and reserved stay below the cap", fine, (used, self.limits, most))
        if self.limits.spawns_max:
            hold(
                "I5: so many subagents and no more",
                root.spawned <= self.limits.spawns_max,
                root.spawned,
            )
        for session, state in states.items():
            hold("I5: depth", state.label.count("a") <= self.limits.depth_max, state.label)
            grant = self._grant(session)
            if grant is not None and grant.usd:
                limits = limits_under(self.limits, grant, state)
                mine = spent(state, states)
                hold(
                    "I5: no subagent passes its grant",
                    mine.usd <= limits.usd_max + most + 1e-9,
                    (state.label, mine),
                )
        at_once = sum(
            count > 0 for session, count in self.model.open.items() if session != self.disk.session
        )
        hold("no more work at once than may", at_once <= self.limits.agents_max, at_once)

    def _grant(self, session: str) -> Any:
        company = self.session.find(Subagents)
        one = company.tree.working.get(session) if company is not None else None  # type: ignore[attr-defined]
        return one.started.grant if one is not None else None

    # --- the user ---------------------------------------------------------------------------------

    def _say(self, to: str = "") -> None:
        self.words += 1
        how = self.random.choice(["prompt", "prompt", "steer", "queued"])
        text = f"word<{self.words}> {self.model.text(self.random.choice([5, 5, 300]))}"
        self._tell(UserMessage((Text(text),), how, to), "" if to else key_of(text))  # type: ignore[arg-type]

    def act(self) -> None:
        """Do one random outside action."""
        session, luck = self.session, self.random.random()
        working = [
            view.child for view in session.agents() if view.state in ("queued", "running", "asking")
        ]
        if luck < 0.40:
            self._say()
        elif luck < 0.50:
            session.interrupt()
        elif luck < 0.58 and working:
            self._say(self.random.choice(working))
        elif luck < 0.64 and working:
            self._tell(StopSubagent(self.random.choice(working)))
        elif luck < 0.68:
            session.background()
        elif luck < 0.72:
            running = [view.id for view in session.tasks()]
            self._tell(StopTask(self.random.choice(running or ["b1"])))
        elif luck < 0.75:
            self.supervision.die()
            self.seen["supervisor died"] += 1
        elif luck < 0.79:
            self._tell(Rewind(self.random.randrange(session.state.seq + 2)))
        elif luck < 0.86:
            self._tell(SetMode(self.random.choice(MODES)))
        elif luck < 0.90:
            self._tell(Continue())
        elif luck < 0.93:
            self.disk.full = True
            asyncio.get_running_loop().call_later(1.0, self._room_again)
        elif luck < 0.96:
            self.space.files["/w/a.py"] = b"changed by somebody else\n"
        else:
            session.unqueue()

    def _room_again(self) -> None:
        self.disk.full = False

    async def _approve(self, session: OpenSession) -> None:
        """Answer most permission questions of all sessions."""
        async for heard in session.follow(0, streaming=False):
            inner, child = (
                (heard.heard, heard.child) if isinstance(heard, FromSubagent) else (heard, "")
            )
            if child and isinstance(heard, FromSubagent):
                self.below[child] = heard.label
            if not isinstance(inner, Entry) or not isinstance(inner.event, PermissionAsked):
                continue
            call, luck = inner.event.call, self.random.random()
            state = self.states.get(child or self.disk.session)
            if state is None or call not in state.calls or state.calls[call].answer is not None:
                continue
            self.seen["question of a subagent" if child else "question"] += 1
            if luck < 0.1 and not self.model.quiet:
                continue
            verdict = self.random.choice(["allow", "allow", "deny"])
            self._tell(Answer(call, verdict, session=child))  # type: ignore[arg-type]

    # --- lives ------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run the whole simulation."""
        for _ in range(self.random.randrange(1, 5)):
            self.life += 1
            await self._live(acts=self.random.randrange(2, 14))
        self.model.quiet, self.model.faults = True, 0.0
        self.life += 1
        await self._live(acts=0)
        self._check_logs(over=True)

    async def _live(self, acts: int) -> None:
        self.disk.full = False
        await self.disk.begin(self.clock.wall_us)
        before, begun_us = self.disk.entries(), self.clock.wall_us()
        self.session = session = self._open()
        if self.life == 1:
            self._tell(SetMode(self.random.choice(MODES)))
        self.heard = []
        walk = asyncio.ensure_future(self._walk(session))
        tasks = [
            walk,
            *(
                asyncio.ensure_future(work)
                for work in (self._follow(session), self._approve(session))
            ),
        ]
        for _ in range(acts):
            await asyncio.sleep(self.random.choice([0, 0, 0.05, 1, 7, 60]))
            self._look(tasks)
            if walk.done():
                break
            self.act()
        if not acts:
            await self._rest(tasks)
            self._check_resumed(begun_us)
        self._look(tasks)
        hold("law 7d: what readers heard stays", self.disk.entries()[: len(before)] == before)
        if walk.done() or (acts and self.random.random() < 0.8):
            await self._kill(tasks)
        else:
            await self._close(tasks)
        await asyncio.sleep(0.5)
        self.tellers = []

    async def _walk(self, session: OpenSession) -> None:
        try:
            await session.run(once=False)
        except StoreFull:
            self.seen["full"] += 1

    async def _rest(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Wait until all requested work is done."""
        session = self.session
        self._tell(Continue())
        limit = self.clock.mono_s() + REST_S
        calm, asked = 0, False
        while calm < 3:
            await asyncio.sleep(10)
            self._look(tasks)
            hold("a walk without faults goes on", not tasks[0].done(), "it is over")
            calm = calm + 1 if not self._busy() else 0
            if calm == 2 and not asked:
                asked, calm = True, 0
                self._tell(
                    UserMessage((Text("what has come of it?"),))
                )  # what waited for a word is told now
            if self.clock.mono_s() < limit:
                continue
            state = session.state
            what = (
                f"{state.turn_open=} {session.busy=} {session.pending=} {list(state.calls)=} "
                f"{session.agents()}"
            )
            hold("I12: the tree comes to rest", False, what)

    def _check_resumed(self, since_us: int) -> None:
        """Law 10: nobody stops anything in the last life, so whoever worked before goes on to
        its end.
        """
        if any(isinstance(e.event, Rewound) and e.at >= since_us for e in self.disk.entries()):
            return
        for child in self.disk.children():
            entries = self.disk.entries(child)
            cut = [e for e in entries if isinstance(e.event, Interrupted) and e.at >= since_us]
            hold("law 10: a subagent goes on after a crash", not cut, (child, cut))

    def _busy(self) -> bool:
        session = self.session
        running = any(child.ended is None for child in session.state.children.values())
        return session.busy or session.inbox.waiting or not session.quiet or running

    async def _kill(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        """Kill the process or cut the power."""
        disk, power = self.disk, self.random.random() < 0.4
        await self._reach_instant()
        company = self.session.find(Subagents)
        subagents = (
            [one.task for one in company.tree.working.values() if one.task is not None]
            if company
            else []
        )  # type: ignore[attr-defined]
        for one in company.tree.working.values() if company else ():  # type: ignore[attr-defined]
            one.session.closed = True
        self.supervision.leave()
        disk.kill()
        self.session.closed = True
        for task in (every := [*tasks, *self.tellers, *subagents]):
            task.cancel()
        await asyncio.wait(every, timeout=0.1)  # what waits for a disk that is gone never ends
        self.seen["power" if power else "kill"] += 1
        disk.full = False
        await disk.crash(power=power)
        if power:  # the supervisor goes too
            self.supervision.die()
        self._check_logs(over=False)
        if not power:
            hold(
                "law 7d: kill -9 takes back nothing",
                disk.entries()[: len(self.heard)] == self.heard,
            )
        self._forget()
        await asyncio.sleep(self.random.choice([0.5, 1, 5, 100]))

    def _forget(self) -> None:
        """Forget requests that are not on disk."""
        for session, sent in list(self.sent.items()):
            if not self._stored(session, sent.asked):
                del self.sent[session]

    def _stored(self, session: str, asked: Entry | None) -> bool:
        entries = self.disk.entries("" if session == self.disk.session else session)
        return asked is not None and any(
            e.seq == asked.seq and e.event == asked.event for e in entries
        )

    async def _close(self, tasks: Sequence[asyncio.Future[None]]) -> None:
        self.seen["close"] += 1
        company = self.session.find(Subagents)
        working = (
            [one.session for one in company.tree.working.values()] if company is not None else []
        )  # type: ignore[attr-defined]
        try:
            await self.session.leave(self.random.choice(["keep", "stop"]))
            await self.session.close()
        except StoreFull:
            await self._kill(tasks)
            return
        await asyncio.wait(tasks, timeout=60)
        self._look(tasks)
        hold("close ends the walk and its readers", all(task.done() for task in tasks), tasks)
        loose = [one.line for one in self.supervision.running if one.kept is None]
        hold("law 11: nothing runs on that was not asked to stay", not loose, loose)
        self.supervision.leave()
        kept = [one for one in working if one.failure is None]
        lost = [one.state.label for one in kept if one.state.seq != len(self.disk.entries(one.id))]
        hold("what a subagent did is on disk when all is closed", not lost, lost)
        for one in kept:
            self._check_fold(one.state, self.disk.entries(one.id))
        self._forget()
        await asyncio.wait(self.tellers, timeout=60) if self.tellers else None
        self._check_logs(over=False)

    def _check_fold(self, live: State, entries: list[Entry]) -> None:
        again = fold(entries)
        for name in State.__struct_fields__:
            old, new = getattr(live, name), getattr(again, name)
            if name == "spent_usd":
                old, new = round(old, 9), round(new, 9)
            told = f"{live.label} {name}: {old!r:.300} live, {new!r:.300} folded"
            hold("law 1, 10: the log alone gives the state", old == new, told)

    # --- what is checked at a life's end ----------------------------------------------------------

    def _check_logs(self, *, over: bool) -> None:
        root = self.disk.entries()
        self._check_words(root)
        hold("seqs are contiguous", [e.seq for e in root] == list(range(1, len(root) + 1)))
        sessions = ("", *self.disk.children())
        every = [
            entry.event
            for session in sessions
            for entry in self.disk.entries(session)[self.disk.shares.get(session, ("", 0))[1] :]
        ]
        last = {event.child: event.status for event in every if isinstance(event, SubagentEnded)}
        self.failed = [child for child, status in last.items() if status == "failed"]
        for event in every:
            if (
                isinstance(event, Opened)
                and event.parent is not None
                and event.parent.session in self.failed
            ):
                self.failed.append(event.session)
        self._check_spent(every)
        for session in sessions:
            entries = self.disk.entries(session)
            hold(
                "seqs are contiguous",
                [e.seq for e in entries] == list(range(1, len(entries) + 1)),
                session,
            )
            shares = self.disk.shares.get(session, ("", 0))[1]
            self._check_session(session, entries, shares, over=over)

    def _check_spent(self, every: list[Any]) -> None:
        """I5 once more, by the logs alone: what was answered, what is assumed, what is held back
        for what is asked.
        """
        answered = [e.asked for e in every if isinstance(e, Replied | AskFailed)]
        usd = sum(e.cost_usd for e in every if isinstance(e, Replied))
        usd += sum(e.assumed_usd for e in every if isinstance(e, AskFailed))
        asks = [e for e in every if isinstance(e, Asked)]
        check_assumed(every)
        dearest = max((e.reserved_usd for e in asks), default=0.0)
        fine = not self.limits.usd_max or usd <= self.limits.usd_max + dearest + 1e-9
        hold(
            "I5: the logs stay below the cap",
            fine,
            (usd, self.limits.usd_max, dearest, len(asks), len(answered)),
        )

    def _check_session(
        self, session: str, entries: list[Entry], shares: int, *, over: bool
    ) -> None:
        own = entries[shares:]
        state = fold(entries)
        over = over and session not in self.failed
        self._check_calls(entries, own, over=over)
        self._check_children(own, state, over=over)
        self._check_tasks(own, state, over=over)
        if not any(isinstance(e.event, Rewound) for e in own):
            self._check_told(own, state, over=over)
        again = fold(entries)
        hold("law 1: the same log, the same state", again.items == state.items, session)

    def _check_calls(self, entries: list[Entry], own: list[Entry], *, over: bool) -> None:
        by_seq = {e.seq: e.event for e in entries}
        made = [
            part.id
            for e in own
            if isinstance(e.event, Replied) and e.event.stop != "interrupted"
            if not _summary(by_seq.get(e.event.asked))
            for part in e.event.parts
            if isinstance(part, ToolCall)
        ]
        started = Counter(e.event.call for e in own if isinstance(e.event, ToolStarted))
        ended = Counter(e.event.call for e in own if isinstance(e.event, ToolEnded))
        hold("call ids are unique", len(dict.fromkeys(made)) == len(made), made)
        hold(
            "law 8: a call starts at most once",
            all(n == 1 for n in started.values()),
            started.most_common(3),
        )
        hold("a call ends at most once", all(n == 1 for n in ended.values()), ended.most_common(3))
        strays = [call for call in (*started, *ended) if call not in made]
        hold("only calls that were made start and end", not strays, strays)
        if over:
            hold("law 3: every call ends", all(call in ended for call in made), (own[0], own[-1]))

    def _check_children(self, own: list[Entry], state: State, *, over: bool) -> None:
        """Check that each started subagent has a log and ends once per request."""
        begun = Counter(e.event.child for e in own if isinstance(e.event, SubagentStarted))
        ended = Counter(e.event.child for e in own if isinstance(e.event, SubagentEnded))
        for child, times in begun.items():
            hold("start and opening are one transaction", self.disk.entries(child), child)
            hold(
                "a subagent ends at most once for each task",
                ended[child] <= times,
                (child, ended[child], times),
            )
            self.seen["subagent"] += 1
            if over:
                hold(
                    "I12: every subagent ends",
                    ended[child] == times,
                    (child, state.children.get(child)),
                )
        hold("only what began ends", not [child for child in ended if child not in begun], ended)

    def _check_tasks(self, own: list[Entry], state: State, *, over: bool) -> None:
        ended = Counter(e.event.task for e in own if isinstance(e.event, TaskEnded))
        hold(
            "I4: a task ends at most once",
            all(n == 1 for n in ended.values()),
            ended.most_common(3),
        )
        begun = [e.event.task for e in own if isinstance(e.event, TaskStarted)]
        hold("only what began ends", all(task in begun for task in ended), (begun, ended))
        self.seen["task"] += len(ended)
        for e in own:
            if isinstance(e.event, TaskEnded) and e.event.state == "lost":
                known = e.event.task in self.supervision.ends
                hold("I4: an end that was kept is not lost", not known, e.event)
        lives = {one.kept.task for one in self.supervision.running if one.kept is not None}
        if over and not state.label:
            lost = [
                task for task, now in state.tasks.items() if now.ended is None and task not in lives
            ]
            lost = [task for task in lost if state.tasks[task].started.state == "running"]
            hold("I12: what runs no more has an end", not lost, lost)

    def _check_told(self, own: list[Entry], state: State, *, over: bool) -> None:
        """Law 9: each end reaches the model once: in the result of its call, or by one notice."""
        answered = max(
            (_reach(e.event, own) for e in own if isinstance(e.event, Replied)), default=0
        )
        notices = [e for e in own if isinstance(e.event, Reminded) and e.event.text]
        texts = [e.event.text for e in notices if isinstance(e.event, Reminded)]
        more = [
            name for text in texts for line in MORE.findall(text) for name in expand_names(line)
        ]
        tasks = Counter(name for text in texts for name, _ in OVER.findall(text))
        tasks.update(name for name in more if "b" in name)
        hold(
            "law 9: a task's end is told once",
            all(n == 1 for n in tasks.values()),
            tasks.most_common(3),
        )
        reports = Counter(name for text in texts for name, _ in REPORTED.findall(text))
        reports.update(name for name in more if "b" not in name)
        results = {e.event.call: e for e in own if isinstance(e.event, ToolEnded)}
        begun: Counter[str] = Counter()
        noticed: Counter[str] = Counter()
        due: Counter[str] = Counter()
        last: SubagentStarted | None = None
        by_child: dict[str, SubagentStarted] = {}
        firsts = {now.started.child: now.seq for now in state.children.values()}
        for entry in own:
            match entry.event:
                case SubagentStarted() as last:
                    by_child[last.child] = last
                    begun[last.child] += 1
                case SubagentEnded(child=child):
                    result = results.get(by_child[child].call)
                    by_result = (
                        not by_child[child].background
                        and result is not None
                        and result.seq > entry.seq
                    )
                    noticed[f"a{firsts[child]}"] += not by_result
                    due[f"a{firsts[child]}"] += not by_result and (
                        (over and not state.label) or entry.seq < answered
                    )
                case _:
                    pass
        for name, times in noticed.items():
            hold(
                "law 9: a report is told once", reports[name] <= times, (name, reports[name], times)
            )
            hold(
                "law 9: every report is told",
                reports[name] >= due[name],
                (name, reports[name], due[name], answered),
            )
        more = [name for name in reports if name not in noticed]
        hold("law 9: a report that is a result has no notice", not more, more)
        self.seen["report by notice"] += sum(reports.values())
        self.seen["end by notice"] += sum(tasks.values())

    def _check_words(self, entries: list[Entry]) -> None:
        spoken = Counter(
            key_of(text_of(e.event.parts)) for e in entries if isinstance(e.event, UserSpoke)
        )
        spoken.pop("", None)
        waiting = Counter(
            key_of(str(message.body)) for message in self.disk.inbox() if b"word<" in message.body
        )
        both = Counter(
            {word: n for word, n in (spoken + waiting).items() if word.startswith("word<")}
        )
        hold(
            "law 9: no word is taken twice", all(n == 1 for n in both.values()), both.most_common(3)
        )


def _summary(event: object) -> bool:
    return isinstance(event, Asked) and event.purpose == "summary"


def _reach(reply: object, own: list[Entry]) -> int:
    """Return how far the answered request reached."""
    assert isinstance(reply, Replied)
    asked = next((e.event for e in own if e.seq == reply.asked), None)
    return asked.reach if isinstance(asked, Asked) and asked.purpose == "turn" else 0


def simulate(seed: int) -> TreeSimulation:
    """Play one seed. Raises AssertionError, naming it."""
    return play(TreeSimulation(seed))

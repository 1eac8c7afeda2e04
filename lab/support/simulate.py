"""Random simulation of sessions: chaos model, impatient user, slow disk, killed process.

`SEEDS_TIMES=50 pytest tests/testing/test_simulation.py` plays seeds 0 to 999; `simulate(77)` plays
seed 77 alone. Each seed is a session of several lives on one disk. After every request and every
life the laws are checked; at the end the model answers plainly, and the session must come to rest.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable
from random import Random
from typing import Any, TypeVar

import msgspec

from lab.support.chaos import ChaosModel
from lab.support.torn_disk import Broken, TornDisk, hold
from longrein.agent import (
    Answer,
    Compact,
    Continue,
    Dependencies,
    Limits,
    OpenSession,
    Rewind,
    SetMode,
    SetModel,
    UserMessage,
)
from longrein.permissions import Rules
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import NONCE, Approver, kill, memory_dependencies, open_test_session
from longrein.testing.workspace import MemorySpawner, MemoryWorkspace, Ran
from longrein.tools import ToolOptions
from longrein_context import Item, Request, State, fold
from longrein_context.events import (
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    PermissionAsked,
    Replied,
    StoreFull,
    Text,
    ToolCall,
    ToolEnded,
    ToolStarted,
    UserSpoke,
    marker_sign,
    text_of,
)
from tests.tables import split_words

PATHS = split_words("""
    a.py src/b.py src/deep/c.txt big.txt bin.dat link.py ../out.txt /etc/passwd src new.md
""")
MODES = ["default", "acceptEdits", "plan", "bypassPermissions"]
RULES = Rules(
    allow=("Bash(run *)", "Read"),
    ask=("Bash(run slow *)",),
    deny=("Write(/src/deep/*)",),
    base="/w",
)
PERHAPS_PAID = ("lost", "truncated", "stalled")
"""Failures of requests that the provider may have answered."""
REST_S = 3_600 * 6
"""A session without faults comes to rest within so much virtual time."""


# --- the arguments of a foolish agent -------------------------------------------------------------


def path(model: ChaosModel) -> str:
    return model.random.choice(PATHS)


def written(model: ChaosModel, request: Request) -> str:
    return (
        model.quoted(request) if model.chance(0.3) else "\n".join(model.text(30) for _ in range(8))
    )


def bash(model: ChaosModel, request: Request) -> dict[str, Any]:
    kind = model.random.choice(["fast", "fast", "slow", "hang", "fail", "long", "cd"])
    more = {"timeout": model.random.choice([1_000, 90_000])} if model.chance(0.3) else {}
    word = (
        "echo" if model.chance(0.3) else "run"
    )  # `echo` is plainly reading and may run beside others
    return {"command": f"{word} {kind} {model.model}{model.serial()}", **more}


def edit(model: ChaosModel, request: Request) -> dict[str, Any]:
    return {
        "file_path": path(model),
        "old_string": model.random.choice(["a = 1", "line 1\n", "b"]),
        "new_string": written(model, request)[:400],
    }


def recall(model: ChaosModel, request: Request) -> dict[str, Any]:
    handles = [item.handle for item in request.items if item.handle] + ["r99999", "r1.7", "x"]
    return {
        "handle": model.random.choice(handles),
        **({"lines": "1-20"} if model.chance(0.3) else {}),
    }


def todos(model: ChaosModel, request: Request) -> dict[str, Any]:
    return {
        "todos": [
            {
                "content": f"do {model.text(4)} it",
                "status": model.random.choice(["pending", "completed"]),
            }
            for _ in range(3)
        ]
    }


TOOLS = {
    "Read": lambda m, r: {"file_path": path(m)},
    "Write": lambda m, r: {"file_path": path(m), "content": written(m, r)},
    "Edit": edit,
    "Bash": bash,
    "TodoWrite": todos,
    "Recall": recall,
    "Compact": lambda m, r: {"focus": m.text(5)},
}


class Sent(msgspec.Struct):
    """A turn request and its origin."""

    items: tuple[Item, ...]
    prefix: int
    asked: Entry | None
    breaks: int
    life: int


class BaseSimulation:
    """World and checks of one seed that both simulations share."""

    session: OpenSession
    model: ChaosModel

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.clock = VirtualClock()
        self.disk = TornDisk(Random(f"disk {seed}"))
        self.disk.delay = lambda: self.random.choice([0.0, 0.001, 0.02, 0.3])
        self.life = 0
        self.words = 0
        self.acked: dict[str, None] = {}
        """Words whose `tell` was acknowledged."""
        self.heard: list[Entry] = []
        """What readers were given of the log, in this life."""
        self.tellers: list[asyncio.Task[None]] = []
        self.requests = 0

    async def play(self) -> None:
        """Run the whole simulation."""
        raise NotImplementedError

    async def _reach_instant(self) -> None:
        """Wait for the instant of a crash: as often as not, when a write was just acknowledged."""
        if self.random.random() < 0.5:
            self.disk.acknowledged.clear()
            await asyncio.wait([asyncio.ensure_future(self.disk.acknowledged.wait())], timeout=5)

    async def _stream_s(self) -> None:
        await asyncio.sleep(self.random.choice([0.0, 0.01, 0.4, 3.0]))

    def _tell(self, word: Any, key: str = "") -> None:
        async def told(written: Any) -> None:
            try:
                await written
            except StoreFull:
                return
            if key:
                self.acked[key] = None

        self.tellers.append(asyncio.ensure_future(told(self.session.tell(word))))

    async def _follow(self, session: OpenSession) -> None:
        last = 0
        async for heard in session.follow(0, streaming=self.random.random() < 0.5):
            if isinstance(heard, Entry):
                hold(
                    "readers get seqs without a gap",
                    heard.seq == last + 1,
                    f"{heard.seq} after {last}",
                )
                hold(
                    "law 7d: readers get what is committed",
                    self.disk.history(heard.seq, heard.seq) == [heard],
                    heard,
                )
                last = heard.seq
                self.heard.append(heard)


class Simulation(BaseSimulation):
    """Simulation of one seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.model = ChaosModel(
            seed, TOOLS, rest=self._stream_s, faults=self.random.choice([0, 0.1, 0.25])
        )
        self.model.watch = self._on_request
        self.other = ChaosModel(seed + 1, TOOLS, rest=self._stream_s, name="test/other", faults=0.1)
        self.other.watch = self._on_request
        self.spawner = MemorySpawner(self._command, self.clock)
        self.space = MemoryWorkspace(
            {
                "/w/a.py": "a = 1\n" * 5,
                "/w/src/b.py": "b\n" * 300,
                "/w/big.txt": "".join(f"line {n}\n" for n in range(4_000)),
                "/w/bin.dat": bytes(range(256)),
                "/w/src/deep/c.txt": "中文\n" * 200,
                "/etc/passwd": "root\n",
            },
            spawner=self.spawner,
            links={"/w/link.py": "/w/a.py"},
        )
        self.limits = Limits(
            turns_max=self.random.choice([0, 0, 12]),
            usd_max=self.random.choice([0.0, 0.0, 0.0, 2.0]),
            parallel_max=self.random.choice([2, 32]),
        )
        self.padding = self.random.choice([(5, 5, 300), (300, 300, 2_000)])
        """Words of a message of the user: whoever writes much fills the summaries."""
        self.said_at_once = 12 if seed % 5 == 4 else 1
        """Messages that the user sends one after the other: a summary cannot show very many."""
        self.profile = "seed" if self.random.random() < 0.15 else "default"
        self.sent: Sent | None = None
        self.unqueued: dict[str, None] = {}
        self.lives: Counter[str] = Counter()

    # --- the world --------------------------------------------------------------------------------

    def _command(self, line: str) -> Ran:
        self._on_command(line)
        kind = line.split()[1] if len(line.split()) > 1 else ""
        long = "".join(f"{line} {n}\n" for n in range(self.random.choice([40, 900, 5_000])))
        table = {
            "slow": Ran("slow\n", delay_s=self.random.choice([2, 20, 400])),
            "hang": Ran("begun\n", hang=True),
            "fail": Ran("error: no\n", self.random.choice([1, 2, 127])),
            "long": Ran(long, delay_s=0.5),
            "cd": Ran(cwd=self.random.choice(["/w/src", "/w", "/etc", "/gone"])),
        }
        return table.get(kind, Ran(f"{line}\n", delay_s=self.random.choice([0, 0.1])))

    def _dependencies(self) -> Dependencies:
        deps = memory_dependencies(
            self.model,
            self.disk,
            workspace=self.space,
            clock=self.clock,
            models=[self.other],
            rules=RULES,
        )
        deps.limits = self.limits
        deps.options = ToolOptions(
            output_inline_bytes=4_000, head_bytes=500, tail_bytes=900, output_bytes_max=100_000
        )
        deps.jitter = self.random.random
        deps.fallback = "test/other" if self.seed % 3 == 0 else ""
        return deps

    # --- what is checked while it goes ------------------------------------------------------------

    def _on_command(self, line: str) -> None:
        if not line.startswith(("run ", "echo ")):  # a wild argument, which may come twice
            return
        hold("law 8: a command runs at most once", self.spawner.started.count(line) == 1, line)
        safe = [entry for write in self.disk.writes[: self.disk.flushed] for entry in write.entries]
        calls = [
            part.id
            for entry in safe
            if isinstance(entry.event, Replied)
            for part in entry.event.parts
            if isinstance(part, ToolCall)
            and part.arguments
            and part.arguments.get("command") == line
        ]
        started = {entry.event.call for entry in safe if isinstance(entry.event, ToolStarted)}
        hold(
            "law 7a: an act starts when its ToolStarted is on disk",
            any(call in started for call in calls),
            line,
        )

    def _on_request(self, request: Request) -> None:
        self.requests += 1
        state = self.session.state
        hold(
            "law 6: no request is wasted on a full window",
            self.model.nothing_fits <= 60,
            self.model.nothing_fits,
        )
        if request.purpose != "turn":
            return
        if self.profile != "seed":
            check_words_stand(request, state)
        old, self.sent = (
            self.sent,
            Sent(request.items, request.prefix_seq, None, state.breaks, self.life),
        )
        if old is not None and old.breaks == state.breaks and self.profile != "seed":
            same = request.items[: len(old.items)] == old.items and old.prefix == request.prefix_seq
            hold(
                "law 2: a request begins with the one before",
                same,
                difference(old.items, request.items),
            )
        self.sent.asked = Entry(state.asked_seq, 0, state.asked) if state.asked else None

    # --- the user ---------------------------------------------------------------------------------

    def _say(self) -> UserMessage:
        self.words += 1
        how = self.random.choice(["prompt", "prompt", "steer", "queued", "command"])
        padding = self.model.text(self.random.choice(self.padding))
        return UserMessage((Text(f"word<{self.words}> {padding}"),), how)  # type: ignore[arg-type]

    def act(self) -> None:
        """Do one random user action."""
        session, luck = self.session, self.random.random()
        if luck < 0.45:
            for _ in range(self.said_at_once):
                said = self._say()
                self._tell(said, key_of(text_of(said.parts)))
        elif luck < 0.57:
            session.interrupt()
        elif luck < 0.63:
            self._tell(Compact(self.model.text(3)))
        elif luck < 0.70:
            self._tell(
                Rewind(
                    self.random.randrange(session.state.seq + 2), files=self.random.random() < 0.5
                )
            )
        elif luck < 0.77:
            self._tell(SetMode(self.random.choice(MODES)))
        elif luck < 0.80:
            self._tell(SetModel(self.random.choice(["test/other", "test/chaos", "test/none"])))
        elif luck < 0.86:
            self._tell(Continue())
        elif luck < 0.90:
            taken = session.unqueue()
            if taken:
                self.unqueued[key_of(taken)] = None
        elif luck < 0.94:
            said = self._say()
            self.disk.leave(msgspec.json.encode(said))
        elif luck < 0.97:
            self._tell(Answer(f"c{self.random.randrange(40)}.0", "allow"))
        else:
            name = self.random.choice(["/w/a.py", "/w/new.md"])
            self.space.files[name] = b"changed by somebody else\n"

    def _answer(self, question: PermissionAsked) -> str | None:
        luck = self.random.random()
        if luck < 0.15 and not self.model.quiet:
            return None
        return self.random.choice(["allow", "allow", "session", "always", "deny"])

    # --- lives ------------------------------------------------------------------------------------

    async def play(self) -> None:
        """Run the whole simulation."""
        for _ in range(self.random.randrange(1, 6)):
            self.life += 1
            await self._live(acts=self.random.randrange(2, 16))
        self.model.quiet = self.other.quiet = True
        self.life += 1
        await self._live(acts=0)
        self._check_log(self.disk.entries(), over=True)

    async def _live(self, acts: int) -> None:
        await self.disk.begin(self.clock.wall_us)
        before = self.disk.entries()
        self.session = session = open_test_session(
            self.model, disk=self.disk, deps=self._dependencies(), profile=self.profile
        )
        if self.life == 1:
            self._tell(SetMode(self.random.choice(MODES)))
        self.heard = []
        walk = asyncio.ensure_future(session.run(once=False))
        tasks = [
            walk,
            *(
                asyncio.ensure_future(work)
                for work in (self._follow(session), Approver(self._answer).watch(session))
            ),
        ]
        for _ in range(acts):
            await asyncio.sleep(self.random.choice([0, 0, 0.05, 1, 7, 60]))
            raise_first(tasks)
            self.act()
        if not acts:
            await self._rest(tasks)
        raise_first(tasks)
        hold("law 7d: what readers heard stays", self.disk.entries()[: len(before)] == before)
        if acts and self.random.random() < 0.8:
            await self._kill(tasks)
        else:
            await self._close(tasks)
        self.tellers = []

    async def _rest(self, tasks: list[asyncio.Future[None]]) -> None:
        """Wait until all requested work is done."""
        session = self.session
        self._tell(Continue())
        limit = self.clock.mono_s() + REST_S
        calm = 0
        while calm < 3:
            await asyncio.sleep(10)
            raise_first(tasks)
            calm = (
                calm + 1 if not session.busy and not session.inbox.waiting and session.quiet else 0
            )
            state = session.state
            what = (
                f"{state.turn_open=} {session.busy=} {session.pending=} {list(state.calls)=} "
                f"{state.failure}"
            )
            hold("the session comes to rest", self.clock.mono_s() < limit, what)

    async def _kill(self, tasks: list[asyncio.Future[None]]) -> None:
        """Kill the process or cut the power."""
        disk, power = self.disk, self.random.random() < 0.4
        await self._reach_instant()
        await kill(self.session, disk, *tasks, *self.tellers)
        self.lives["power" if power else "kill"] += 1
        await disk.crash(power=power)
        entries = disk.entries()
        self._check_log(entries, over=False)
        if not power:
            hold("law 7d: kill -9 takes back nothing", entries[: len(self.heard)] == self.heard)
        asked = self.sent.asked if self.sent else None
        known = [e for e in entries if asked and e.seq == asked.seq and e.event == asked.event]
        if not known:  # the last request was never made, as far as anybody can know
            self.sent = None

    async def _close(self, tasks: list[asyncio.Future[None]]) -> None:
        self.lives["close"] += 1
        await self.session.close()
        await asyncio.wait(tasks, timeout=60)
        raise_first(tasks)
        hold("close ends the walk and its readers", all(task.done() for task in tasks), tasks)
        hold("law 11: nothing runs on", not self.spawner.running, self.spawner.running)
        await asyncio.wait(self.tellers, timeout=60) if self.tellers else None
        entries = self.disk.entries()
        self._check_log(entries, over=False)
        if self.session.state.seq == len(
            entries
        ):  # a walk that close met between two moves may have begun another
            self._check_fold(entries, self.session.state)

    # --- what is checked at a life's end ----------------------------------------------------------

    def _check_log(self, entries: list[Entry], *, over: bool) -> None:
        hold("seqs are contiguous", [e.seq for e in entries] == list(range(1, len(entries) + 1)))
        self._check_calls(entries, over=over)
        self._check_words(entries)
        check_assumed(entry.event for entry in entries)
        for name, data in self.space.files.items():
            hold("law 4: no marker reaches a file", marker_sign(NONCE).encode() not in data, name)
        blobs = self.disk.blobs()
        for entry in entries:
            blob = getattr(entry.event, "blob", "")
            hold("law 4: a blob that is named is there", not blob or blob in blobs, entry)

    def _check_calls(self, entries: list[Entry], *, over: bool) -> None:
        made = [
            part.id
            for e in entries
            if isinstance(e.event, Replied)
            and e.event.stop != "interrupted"
            and not self._summary(entries, e.event)
            for part in e.event.parts
            if isinstance(part, ToolCall)
        ]
        started = Counter(e.event.call for e in entries if isinstance(e.event, ToolStarted))
        ended = Counter(e.event.call for e in entries if isinstance(e.event, ToolEnded))
        hold("call ids are unique", len(dict.fromkeys(made)) == len(made), made)
        hold(
            "law 8: a call starts at most once",
            all(n == 1 for n in started.values()),
            started.most_common(3),
        )
        hold("a call ends at most once", all(n == 1 for n in ended.values()), ended.most_common(3))
        hold(
            "only calls that were made start and end",
            not (started.keys() | ended.keys()) - dict.fromkeys(made).keys(),
        )
        if over:
            hold("law 3: every call ends", not [call for call in made if call not in ended], made)

    def _summary(self, entries: list[Entry], reply: Replied) -> bool:
        asked = entries[reply.asked - 1].event
        return isinstance(asked, Asked) and asked.purpose == "summary"

    def _check_words(self, entries: list[Entry]) -> None:
        spoken = Counter(
            key_of(text_of(e.event.parts)) for e in entries if isinstance(e.event, UserSpoke)
        )
        waiting = Counter(
            key_of(str(message.body)) for message in self.disk.inbox() if b"word<" in message.body
        )
        both = spoken + waiting
        hold(
            "law 9: no word is taken twice", all(n == 1 for n in both.values()), both.most_common(3)
        )
        lost = [word for word in self.acked if word not in both and word not in self.unqueued]
        hold("law 7c: no acknowledged word is lost", not lost, lost)

    def _check_fold(self, entries: list[Entry], live: State) -> None:
        again = fold(entries)
        for name in State.__struct_fields__:
            old, new = getattr(live, name), getattr(again, name)
            if name == "spent_usd":
                old, new = round(old, 9), round(new, 9)
            hold(
                "law 1, 10: the log alone gives the state",
                old == new,
                f"{name}: {old!r:.300} live, {new!r:.300} folded",
            )


def check_assumed(events: Iterable[AnyEvent]) -> None:
    """I5: a request whose answer may have been paid for counts, though its price is not known."""
    reserved = False
    for event in events:
        if isinstance(event, Asked):
            reserved = reserved or event.reserved_usd > 0
        elif isinstance(event, AskFailed) and (event.partial or event.kind in PERHAPS_PAID):
            hold("I5: what may have been paid counts", event.assumed_usd > 0 or not reserved, event)


def check_words_stand(request: Request, state: State) -> None:
    """Law 5: each message of the user is in the request, or its handle is."""
    shown = "\n".join(text_of((item.part,)) for item in request.items)
    told: set[int] = set()
    for first, last, how in re.findall(r"messages of the user, r(\d+) to r(\d+): (.*)\]", shown):
        told |= {int(seq) for seq in re.findall(r"\br(\d+)", how)}
        told |= set(range(int(first), int(last) + 1)) if "finds the others" in how else set()
    for word in state.words:
        fine = word.text in shown or f'Recall(handle="r{word.seq}")' in shown or word.seq in told
        hold("law 5: the user's words stand", fine, f"{state.label} r{word.seq} {word.text!r}")


def key_of(text: str) -> str:
    """Return the key of a message."""
    return text[text.find("word<") :].split(">", maxsplit=1)[0]


def difference(old: tuple[Item, ...], new: tuple[Item, ...]) -> str:
    """Describe the first difference of two requests."""
    at = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b),
        min(len(old), len(new)),
    )
    return (
        f"{len(old)} and {len(new)} blocks, block {at}: {old[at : at + 1]!r:.600} became "
        f"{new[at : at + 1]!r:.600}"
    )


def raise_first(tasks: list[asyncio.Future[None]]) -> None:
    """Raise the first exception of the tasks."""
    for task in tasks:
        if task.done() and not task.cancelled() and task.exception() is not None:
            task.result()


def simulate(seed: int) -> Simulation:
    """Play one seed. Raises AssertionError, naming it."""
    return play(Simulation(seed))


Played = TypeVar("Played", bound=BaseSimulation)


def play(simulation: Played) -> Played:
    """Play `simulation` and return it. Raises AssertionError, naming the seed."""
    try:
        with simulation.disk.in_virtual_time():
            run_virtual(simulation.play(), clock=simulation.clock, seed=simulation.seed)
    except (Exception, Broken) as error:
        where = (
            f"seed {simulation.seed}, life {simulation.life}, entry "
            f"{len(simulation.disk.entries())}"
        )
        raise AssertionError(f"{where}: {type(error).__name__}: {error}") from error
    finally:
        simulation.disk.close()
    return simulation

"""Random session for the property tests: random user, model and tools, driven by `next_move`.

There is no loop, disk or clock. The result is the log and every request sent, with the log position
it was sent from.
"""

import random
from dataclasses import dataclass, field

import msgspec

from longrein.agent import Judgement, Limits, MoveContext, next_move
from longrein.agent.model_request import with_call_ids
from longrein.agent.moves import AskModel, AskUser, Pause, Record, RunTools, Stop, Switch, Wait
from longrein_context import (
    Budget,
    KeptStates,
    Price,
    Request,
    State,
    Summarise,
    Swap,
    advance,
    births,
    build_seed_summary,
    build_summary,
    fold,
    prose_problem,
    render,
    render_seed_summary,
    render_summary,
    window_of,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    AskFailed,
    Document,
    Entry,
    FileSeen,
    Grant,
    Interrupted,
    Opened,
    PermissionAnswered,
    PrefixSet,
    Reminded,
    Replied,
    Rewound,
    SubagentEnded,
    SubagentStarted,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    ToolSpec,
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
)
from longrein_context.state.ledger import UserWords

SESSION = "00000000-0000-4000-8000-000000000001"
WORDS = [
    "alpha",
    "beta",
    "src/app.py",
    "def",
    "main",
    "error:",
    "中文",
    "测试",
    "naïve",
    "1234",
    "==",
    "{}",
    "\n",
]


@dataclass
class SentRequest:
    """A request and its position in the log."""

    request: Request
    at: int
    breaks: int
    tokens: int
    words: tuple[UserWords, ...] = ()  # The user's messages up to then


@dataclass
class RandomSession:
    """One random session, reproducible by its seed."""

    seed: int
    profile: str = "default"
    window: int = 20_000
    fail_summaries: float = 0.3
    entries: list[Entry] = field(default_factory=list)
    sent: list[SentRequest] = field(default_factory=list)
    state: State = field(default_factory=State)
    moves: int = 0
    stops: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.log = KeptStates(lambda first, last: self.entries[first - 1 : last])
        self.rng = random.Random(self.seed)
        self.budget = Budget(self.window, self.window // 5, Price(3, 15, 0.3, 3.75))
        self.paused_failures = 0
        self.beside: int | None = None
        self.background_rng = random.Random(f"{self.seed} company")
        """Separate random numbers for background tasks and subagents."""
        self.add(Opened(SCHEMA_VERSION, SESSION, "n0nce", ("/w",), "/w", self.profile))
        self.add(
            PrefixSet(
                "start",
                "mock",
                "small",
                "anthropic",
                "Be good. " * 20,
                (ToolSpec("Read", "read", {}),),
                ("# env",),
            )
        )

    def add(self, *events: AnyEvent) -> int:
        for event in events:
            entry = Entry(self.state.seq + 1, 1_000_000 * len(self.entries), event)
            self.state = advance(self.state, entry, self.log)
            self.log.keep(self.state)
            self.entries.append(entry)
        return self.state.seq

    def text(self, most: int) -> str:
        n = self.rng.choice([1, 3, 10, self.rng.randrange(most) + 1])
        return " ".join(self.rng.choice(WORDS) for _ in range(n))

    def run(self, moves: int = 150) -> "RandomSession":
        for _ in range(moves):
            self.moves += 1
            judged = {c: self.judge(c) for c in self.state.calls}
            self.receive_summary()
            self.change_background_work()
            outlook = MoveContext(
                window_of(self.state, self.budget),
                Limits(),
                paused_failures=self.paused_failures,
                seed=self.profile.startswith("seed"),
                now_us=1_000_000 * len(self.entries),
                summarising=self.beside is not None,
            )
            self.do(next_move(self.state, judged, outlook))
        return self

    def judge(self, call: str) -> Judgement:
        luck = random.Random(f"{self.seed}{call}").random()
        open_call = self.state.calls[call]
        if open_call.cut or open_call.call.arguments is None:
            return Judgement("not_run", "not run: truncated")
        if luck < 0.1:
            return Judgement("deny", "Denied: no")
        return Judgement("run", together=luck < 0.7)

    def do(self, move: object) -> None:
        match move:
            case Record(events):
                self.add(*events)
            case AskModel():
                self.ask()
            case RunTools(calls):
                self.tools(calls)
            case Summarise():
                self.summarise(move)
            case Swap():
                self.swap(move)
            case Pause():
                self.paused_failures = self.state.failures
            case Stop(reason, _):
                self.stops.append(reason)
                self.add(TurnEnded(reason))
            case Wait():
                self.idle()
            case AskUser(call):
                self.add(PermissionAnswered(call, "allow", "user"))
            case Switch():
                raise AssertionError("no fallback is set")

    def change_background_work(self) -> None:
        """Sometimes start or end a task or a subagent, or wake the agent."""
        luck, names = self.background_rng.random(), len(self.state.tasks) + len(self.state.children)
        running = [name for name, task in self.state.tasks.items() if task.ended is None]
        working = [name for name, child in self.state.children.items() if child.ended is None]
        if luck < 0.03:
            self.add(TaskStarted(f"b{names + 1}", f"make {self.text(5)}"))
        elif luck < 0.05:
            self.add(
                SubagentStarted(
                    f"kid{names + 1}", "explore", grant=Grant(0.1, 1_000), background=True
                )
            )
        elif luck < 0.09 and running:
            state = self.background_rng.choice(["done", "failed", "lost", "killed"])
            self.add(
                TaskEnded(
                    self.background_rng.choice(running),
                    state,
                    None if state == "lost" else 1,
                    tail="boom\n",
                )
            )
        elif luck < 0.12 and working:
            self.add(
                SubagentEnded(
                    self.background_rng.choice(working),
                    self.background_rng.choice(["done", "limit"]),
                    "It is so.",
                )
            )
        elif luck < 0.2 and not self.state.turn_open and (running or working):
            self.add(Reminded("wake", "", "company"))

    def idle(self) -> None:
        turns = [e.seq for e in self.entries if isinstance(e.event, TurnEnded)]
        if turns and self.rng.random() < 0.08:
            self.add(Rewound(self.rng.choice(turns)))
        if self.rng.random() < 0.1:
            self.add(Reminded("compact", "", "user", self.rng.choice(["", "the tests"])))
        self.add(UserSpoke((Text(f"please {self.text(self.window // 40)} [{self.rng.random()}]"),)))

    def send(self, request: Request) -> None:
        carried = sum(item.tokens for item in request.items) - sum(
            item.tokens for item in self.state.items
        )
        tokens = self.state.view_tokens + self.state.gauge.scale(carried)
        self.sent.append(
            SentRequest(
                request, len(self.entries), self.state.breaks, tokens, tuple(self.state.words)
            )
        )

    def ask(self) -> None:
        forms = births(self.state, window_of(self.state, self.budget))
        seq = self.add(
            Asked("turn", self.state.seq, self.state.prefix_seq, forms, self.state.view_tokens, 0.1)
        )
        request = render(self.state, self.budget)
        self.send(request)
        counted = round(self.state.gauge.raw * 1.1)
        luck = self.rng.random()
        if counted > self.window:
            self.add(
                AskFailed(
                    seq,
                    "overflow",
                    f"too long: {counted} > {self.window}",
                    400,
                    limit_tokens=self.window,
                )
            )
        elif luck < 0.05:
            self.add(
                AskFailed(seq, self.rng.choice(["server", "truncated", "lost", "rate"]), "no", 500)
            )
        elif luck < 0.1:
            self.add(
                Replied(
                    seq,
                    with_call_ids(
                        [Thinking("hm"), Text("I"), ToolCall("", "Read", None, "{")], seq, {}
                    ),
                    "interrupted",
                )
            )
            self.add(Interrupted("[interrupted by the user]"))
        else:
            self.reply(seq, counted)
        if self.rng.random() < 0.1 and self.state.turn_open:
            self.add(UserSpoke((Text(f"wait, {self.text(20)} [{self.rng.random()}]"),), "steer"))

    def reply(self, seq: int, counted: int) -> None:
        parts: list[object] = [Thinking("hm")] if self.rng.random() < 0.3 else []
        parts += [Text(self.text(200))] if self.rng.random() < 0.7 else []
        calls = self.rng.choice([0, 1, 1, 2, 5]) if parts else 1
        for n in range(calls):
            arguments = {"file_path": f"f{n}.py", "x": self.text(50)}
            parts.append(
                ToolCall("", "Read", None if self.rng.random() < 0.05 else arguments, "{oops")
            )
        stop = "calls" if calls else "end"
        if self.rng.random() < 0.05:
            stop = "length"
        usage = Usage(counted, 0, 0, 10) if self.rng.random() < 0.9 else Usage()
        self.add(Replied(seq, with_call_ids(parts, seq, {}), stop, usage))

    def tools(self, calls: tuple[ToolCall, ...]) -> None:
        self.add(*(ToolStarted(c.id, c.name) for c in calls))
        order = list(calls)
        self.rng.shuffle(order)
        for call in order:
            if self.rng.random() < 0.05:
                self.add(UserSpoke((Text(f"also {self.text(10)} [{self.rng.random()}]"),), "steer"))
            self.end(call)

    def end(self, call: ToolCall) -> None:
        luck = self.rng.random()
        part: Text | Document = Text(self.text(self.window // 8))
        if luck < 0.1:
            part = Document(
                "b" * 64, "text/plain", 30_000_000, "yes", 9_999_999, "y\n" * 50, "y\n" * 50
            )
        if luck < 0.3:
            self.add(FileSeen(f"/w/f{self.rng.randrange(9)}.py", f"{self.rng.random():.20f}"))
        if luck > 0.95:
            self.add(TodoSet((Todo("do it"),)))
        self.add(ToolEnded(call.id, call.name, "failed" if luck > 0.9 else "ok", (part,)))

    def summarise(self, wish: Summarise) -> None:
        plain = wish.beside or self.profile.startswith("seed")
        forms = () if plain else births(self.state, self.budget)
        reach = self.state.sent_reach if wish.beside else self.state.seq
        span = {"first": wish.first, "last": wish.last, "reason": wish.reason, "focus": wish.focus}
        seq = self.add(
            Asked(
                "summary", reach, self.state.prefix_seq, forms, self.state.view_tokens, 0.1, **span
            )
        )
        seed = self.profile.startswith("seed")
        self.send(
            render_seed_summary(self.state)
            if seed
            else render_summary(self.state, self.budget, wish)
        )
        if wish.beside:
            self.beside = seq
        else:
            self.summary(seq)

    def receive_summary(self) -> None:
        """Sometimes deliver the summary that was requested in the background; a crash may lose
        it.
        """
        if self.beside is not None and self.rng.random() < 0.2:
            seq, self.beside = self.beside, None
            if self.rng.random() < 0.9:
                self.summary(seq)

    def summary(self, seq: int) -> None:
        if self.rng.random() < self.fail_summaries:
            self.add(
                AskFailed(seq, self.rng.choice(["invalid", "server", "truncated"]), "no summary")
            )
            return
        prose = "1. Request\n" + self.text(300)
        assert not prose_problem(
            self.state, self.budget, prose, "end", 0
        ) or self.profile.startswith("seed")
        self.add(Replied(seq, (Text(prose),), "end"))

    def swap(self, ready: Swap) -> None:
        if self.profile.startswith("seed"):
            self.add(build_seed_summary(self.state, self.budget, ready))
        else:
            span = (ready.first, ready.last)
            self.add(
                build_summary(
                    self.state, self.budget, span, ready.reason, ready.prose, (ready.asked,)
                )
            )


def content(request: Request) -> list[bytes]:
    """Encode the blocks of a request without any wire."""
    return [msgspec.json.encode((item.kind, item.part)) for item in request.items]


def refold(walk: RandomSession, upto: int) -> State:
    return fold(walk.entries[:upto])

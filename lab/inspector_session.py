"""A session of any length for the inspector: requests, edits, tasks, subagents, compactions,
recalls, one rewind.

The entries are those that the engine's own decisions lead to, with texts of `context.material`.
Nothing runs.
"""

from collections.abc import Iterable
from random import Random

import msgspec

from lab.context.material import text
from longrein.tools import builtin_tools
from longrein_context import (
    Budget,
    Clear,
    Digest,
    KeptStates,
    Price,
    State,
    Summarise,
    Swap,
    advance,
    births,
    build_summary,
    decide,
)
from longrein_context.events import (
    SCHEMA_VERSION,
    AnyEvent,
    Asked,
    AskFailed,
    Entry,
    FileChanged,
    FileSeen,
    Grant,
    Opened,
    Parent,
    PermissionAnswered,
    PermissionAsked,
    PrefixSet,
    Recalled,
    Reminded,
    Replied,
    Restored,
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
    ToolStarted,
    TurnEnded,
    Usage,
    UserSpoke,
    call_id,
)

SESSION = "0198c0de-0000-4000-8000-00000000beef"
PRICE = Price(3.0, 15.0, 0.3, 3.75)
START_US = 1_780_000_000_000_000
SECOND_US = 1_000_000
FILES = [
    f"/work/shop/src/{name}.py"
    for name in ("cart", "orders", "prices", "stock", "mail", "report", "users")
]
WISHES = (
    "The total of a cart with a voucher is wrong by a cent. Find out why and fix it.",
    "Add a report of the orders per week, with a test.",
    "The stock is decremented twice when the payment is retried. Please look into it.",
    "Make the mail of a shipped order show the tracking number.",
    "Clean up the imports and run all the tests again.",
)
TURN_STEPS = 12
CACHE_SECONDS = 300


class SampleSession:
    """Writes the logs of a session and its subagents, without a store."""

    def __init__(self, window: int = 200_000, seed: int = 5, hostile: str = "") -> None:
        """`hostile`: text that some messages, results and paths contain."""
        self.random = Random(seed)
        self.budget = Budget(window, window // 8, PRICE)
        self.entries: list[Entry] = []
        self.log = KeptStates(lambda first, last: self.entries[first - 1 : last])
        self.children: dict[str, list[Entry]] = {}
        self.state = State()
        self.at = START_US
        self.hostile = hostile
        self._last_sent = 0
        self._last_reply = self.at
        self._breaks = 0
        self._tasks = 0
        self._pool = [
            text(kind, 6_000, self.random)
            for kind in ("files", "log", "code", "json")
            for _ in range(24)
        ]
        specs = tuple(tool.spec for tool in builtin_tools())
        self.add(
            Opened(SCHEMA_VERSION, SESSION, "n0nce", ("/work/shop",), "/work/shop", branch="main")
        )
        system = "You are a coding agent. " * 60
        self.prefix = PrefixSet(
            "start",
            "anthropic",
            "claude-sonnet-4-5",
            "anthropic",
            system,
            specs,
            ("# Shop\n" * 40,),
        )
        self.add(self.prefix)

    def add(self, event: AnyEvent, seconds: float = 0.05) -> int:
        """Add an entry, `seconds` after the last one. Return its seq."""
        self.at += round(seconds * SECOND_US)
        entry = Entry(self.state.seq + 1, self.at, event)
        self.state = advance(self.state, entry, self.log)
        self.entries.append(entry)
        return entry.seq

    def grow(self, entries: int) -> "SampleSession":
        """Add steps until there are so many entries."""
        n = 0
        while len(self.entries) < entries:
            self.step(n)
            n += 1
        return self

    def step(self, n: int) -> None:
        """Add a step: compactions that are due, a request, its reply, and the results of its
        calls.
        """
        if n % TURN_STEPS == 0:
            self.add(UserSpoke((Text(f"{self.random.choice(WISHES)} {self.hostile}".strip()),)), 40)
        self._compact()
        is_last = n % TURN_STEPS == TURN_STEPS - 1
        asked = self._ask(fails=n % 31 == 17)
        calls = () if is_last else self._calls(asked, n)
        parts: list[Thinking | Text | ToolCall] = [Thinking(self._text(200))] if n % 3 == 0 else []
        parts += [Text(self._text(160)), *calls]
        self._reply(asked, tuple(parts), "end" if is_last else "calls")
        for call in calls:
            self._run(call, n)
        if n % 10 == 5:
            self._recall()
        if is_last:
            self.add(TurnEnded("done"))
            self._between_turns(n // TURN_STEPS)

    def _between_turns(self, turn: int) -> None:
        """Do what the user may do between two turns: each once, and the compaction again in each
        hundredth turn.
        """
        if turn % 100 == 1:
            self.add(Reminded("compact", "", "user"))
        if turn == 2 and self.state.compactions:
            self.add(Restored(self.state.compactions[-1]), 5)
        if turn == 3:
            self._rewind()
        if turn == 4:
            self.add(
                msgspec.structs.replace(self.prefix, reason="model", model="claude-opus-4-5"), 5
            )
        if turn == 5:
            self.at += 900 * SECOND_US

    # --- Requests

    def _ask(self, *, fails: bool) -> int:
        forms = births(self.state, self.budget)
        asked = self.add(
            Asked(
                "turn", self.state.seq, self.state.prefix_seq, forms, self.state.view_tokens, 0.01
            )
        )
        if fails:
            self.add(AskFailed(asked, "overload", "Overloaded, please try again", 529), 2.5)
            asked = self.add(
                Asked(
                    "turn", self.state.seq, self.state.prefix_seq, (), self.state.view_tokens, 0.01
                ),
                4,
            )
        return asked

    def _reply(self, asked: int, parts: tuple[Thinking | Text | ToolCall, ...], stop: str) -> None:
        total = round(self.state.gauge.raw * 1.04)
        is_broken = self.state.breaks != self._breaks
        read = min(self._last_sent, total) if not is_broken else min(self._last_sent, total) // 3
        read = 0 if self.at - self._last_reply > CACHE_SECONDS * SECOND_US else read
        self._breaks, self._last_sent = self.state.breaks, total
        usage = Usage(12, read, max(0, total - read - 12), self.random.randrange(80, 700))
        self.add(
            Replied(asked, parts, stop, usage, cost_usd=cost(usage)), self.random.uniform(1.5, 14)
        )
        self._last_reply = self.at

    def _compact(self) -> None:
        for _ in range(8):
            match decide(self.state, self.budget, self.at):
                case Clear(event) | Digest(event):
                    self.add(event)
                case Summarise(first=first, last=last, reason=reason):
                    if self.state.summarising is not None or self.state.summary is not None:
                        return
                    ask = Asked(
                        "summary",
                        self.state.seq,
                        self.state.prefix_seq,
                        (),
                        0,
                        0.1,
                        "",
                        first,
                        last,
                        reason,
                    )
                    usage = Usage(600, self._last_sent, 0, 1_500)
                    prose = Text(
                        "1. Request and intent\nThe shop's cart, orders and stock are being "
                        "repaired."
                    )
                    self.add(
                        Replied(self.add(ask), (prose,), "end", usage, cost_usd=cost(usage)), 20
                    )
                case Swap(first=first, last=last, reason=reason, prose=prose_text, asked=asked):
                    self.add(
                        build_summary(
                            self.state, self.budget, (first, last), reason, prose_text, (asked,)
                        )
                    )
                case _:
                    return

    # --- Calls

    def _calls(self, asked: int, n: int) -> tuple[ToolCall, ...]:
        path = self.random.choice(FILES)
        match n % 12:
            case 2:
                made = [
                    (
                        "Edit",
                        {
                            "file_path": path,
                            "old_string": self._text(120),
                            "new_string": self._text(160),
                        },
                    )
                ]
            case 4:
                made = [
                    ("Bash", {"command": "python -m pytest -q", "description": "Run the tests"})
                ]
            case 6:
                made = [("Bash", {"command": "make serve", "run_in_background": True})]
            case 8 if n % 24 == 8:
                made = [
                    (
                        "Agent",
                        {
                            "description": "Look for callers",
                            "prompt": "Find all callers of total().",
                        },
                    )
                ]
            case 9:
                made = [
                    (
                        "Write",
                        {"file_path": path.replace("src", "tests"), "content": self._text(900)},
                    )
                ]
            case _:
                made = [
                    ("Read", {"file_path": self.random.choice(FILES)})
                    for _ in range(self.random.choice((1, 2, 3)))
                ]
        return tuple(
            ToolCall(call_id(asked, k), name, arguments) for k, (name, arguments) in enumerate(made)
        )

    def _run(self, call: ToolCall, n: int) -> None:
        arguments = call.arguments or {}
        path = str(arguments.get("file_path", ""))
        if call.name in ("Edit", "Bash"):
            self.add(PermissionAsked(call.id, call.name, str(arguments), "no rule allows it"))
            self.add(PermissionAnswered(call.id, "allow", "user"), self.random.uniform(1, 30))
        self.add(ToolStarted(call.id, call.name))
        result, status, seconds = (
            self._text(self.random.choice((200, 900, 2_500, 6_000))),
            "ok",
            0.2,
        )
        digest = f"{self.random.randrange(10**6):064d}"
        if call.name == "Agent":
            result, seconds = self._delegate(call), 1.0
        elif arguments.get("run_in_background"):
            self._tasks += 1
            self.add(
                TaskStarted(f"b{self._tasks}", str(arguments["command"]), call.id, cwd="/work/shop")
            )
            result = f"started as b{self._tasks}"
        elif call.name == "Bash":
            seconds, status = self.random.uniform(2, 40), "failed" if n % 5 == 0 else "ok"
        elif call.name == "Read":
            self.add(FileSeen(path, digest))
        else:
            self.add(FileChanged(path, digest, "agent"))
        elapsed_ms = round(seconds * 1_000)
        self.add(
            ToolEnded(
                call.id, call.name, status, (Text(f"{result} {self.hostile}".strip()),), elapsed_ms
            ),
            seconds,
        )
        if n % 12 == 7 and self._tasks:
            self.add(
                TaskEnded(
                    f"b{self._tasks}", "done", 0, tail="listening on 8000\n", elapsed_ms=60_000
                )
            )
        if n % 17 == 3:
            self.add(
                TodoSet(
                    (
                        Todo("Find the cause", "completed"),
                        Todo("Fix it", "in_progress"),
                        Todo("Test it"),
                    )
                )
            )

    def _delegate(self, call: ToolCall) -> str:
        """Let a subagent read some files. Return its report."""
        child = f"0198c0de-0000-4000-8000-{len(self.children):012d}"
        grant = Grant(usd=0.5, tokens=200_000, turns=20)
        task = str((call.arguments or {})["prompt"])
        began, parent_seq = self.at, self.state.seq
        described = {
            "description": "Look for callers",
            "task": task,
            "model": "anthropic/claude-haiku-4-5",
        }
        started = self.add(SubagentStarted(child, "explore", call.id, grant, **described))
        log = self.children[child] = []
        label = f"a{started}"

        def add(event: AnyEvent, seconds: float) -> int:
            self.at += round(seconds * SECOND_US)
            log.append(Entry(len(log) + 1, self.at, event))
            return len(log)

        parent = Parent(SESSION, parent_seq, call.id)
        opened = Opened(
            SCHEMA_VERSION,
            child,
            "n0nce",
            ("/work/shop",),
            "/work/shop",
            parent=parent,
            grant=grant,
        )
        add(opened, 0)
        add(
            PrefixSet(
                "start",
                "anthropic",
                "claude-haiku-4-5",
                "anthropic",
                "You explore.",
                self.prefix.tools,
            ),
            0,
        )
        add(UserSpoke((Text(task),)), 0)
        used = Usage()
        for k in range(3):
            asked = add(Asked("turn", len(log), 2), 0.1)
            usage = Usage(10, 3_000 * k, 3_000, 200)
            used += usage
            read = ToolCall(call_id(asked, 0), "Grep", {"pattern": "total("})
            calls = (read,) if k < 2 else ()
            add(
                Replied(
                    asked,
                    (Text(self._text(80)), *calls),
                    "calls" if calls else "end",
                    usage,
                    cost_usd=0.004,
                ),
                3,
            )
            for one in calls:
                add(ToolStarted(one.id, one.name), 0.01)
                add(FileSeen(self.random.choice(FILES), "0" * 64), 0)
                add(ToolEnded(one.id, one.name, "ok", (Text(self._text(700)),), 300), 0.3)
        add(TurnEnded("done"), 0)
        report = f"Three callers, all in orders.py ({label}).\n{self._text(300)}"
        elapsed_ms = (self.at - began) // 1_000
        self.add(SubagentEnded(child, "done", report, used, 0.012, 3, elapsed_ms=elapsed_ms))
        return report

    def _recall(self) -> None:
        cleared = [
            item.handle for item in self.state.items if item.form in ("trimmed", "placeholder")
        ]
        if cleared:
            self.add(Recalled("c1.0", cleared[0], lines="1-40", size_bytes=800))

    def _rewind(self) -> None:
        ends = [entry.seq for entry in self.entries if isinstance(entry.event, TurnEnded)]
        if ends:
            self.add(Rewound(ends[-min(2, len(ends))]), 5)

    def _text(self, chars: int) -> str:
        piece = self.random.choice(self._pool)
        at = self.random.randrange(max(1, len(piece) - chars))
        return piece[at : at + chars]


def cost(usage: Usage) -> float:
    """Return the cost of a request at `PRICE`."""
    tokens = (
        usage.input_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.output_tokens,
    )
    prices = PRICE.input, PRICE.read_usd, PRICE.write_usd, PRICE.output
    return sum(count * price for count, price in zip(tokens, prices, strict=True)) / 1e6


class SampleLogs:
    """The logs of a `SampleSession`, as the inspector reads them. `upto`: number of entries that
    exist so far.
    """

    def __init__(self, sample: SampleSession, *, upto: int = 0) -> None:
        self.sample, self.upto = sample, upto or len(sample.entries)

    def entries(self, session: str, after: int) -> Iterable[Entry] | None:
        """Return entries after seq `after`."""
        log = self.sample.children.get(session) if session else self.sample.entries[: self.upto]
        return None if log is None else log[after:]

    def is_open(self) -> bool:
        """Return False: nobody has it open."""
        return False

    def title(self) -> str:
        """Return the title."""
        return "Repair of the shop"

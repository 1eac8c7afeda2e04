"""Generated sessions in the form of `longrein.extensions.inspector.page_data`: any number of
entries, always the same.
"""

import random
from typing import Any

from tests.tables import record, split_words

Json = dict[str, Any]

START_US = 1_790_000_000_000_000
SECOND = 1_000_000
WINDOW = 200_000
USABLE = 168_000
MODULES = split_words("""
    system tools instructions summary user assistant thinking calls results reminders
""")
TOOLS = ("Read", "Bash", "Edit", "Grep", "Write")
DIFF = [
    {"sign": "@", "text": "src/app.py, line 10"},
    {"sign": " ", "text": "def total(prices):"},
    {"sign": "-", "text": "    return sum(prices) - 1"},
    {"sign": "+", "text": "    return sum(prices)"},
]


def inspection(entries: int = 300, seed: int = 1) -> Json:
    """Return a session with subagents, tasks, breaks, a summary and recalls."""
    return Generator(entries, random.Random(seed)).document()


def result_text(tool: str, chance: random.Random) -> str:
    """Return what a tool would say, in 1 to 60 lines."""
    lines = range(chance.choice((3, 12, 40)))
    match tool:
        case "Read":
            return "\n".join(f"{n:>4}  total = total + price[{n}]" for n in lines)
        case "Bash":
            tests = [
                f"tests/test_cart.py::test_total_{n} {'FAILED' if n == 2 else 'PASSED'} [{n + 1}]"
                for n in lines
            ]
            return "\n".join(
                [*tests, f"1 failed, {len(lines) - 1} passed in {chance.randint(1, 90) / 10} s"]
            )
        case "Grep":
            return "\n".join(
                f"src/{chance.choice(('cart', 'mail', 'orders'))}.py:{9 * n + 4}: total({n})"
                for n in lines
            )
        case _:
            return "src/app.py has been changed."


class Generator:
    """Makes a session entry by entry: a request, its reply, a call and its result."""

    def __init__(self, entries: int, chance: random.Random) -> None:
        self.entries = entries
        self.chance = chance
        self.now = START_US
        self.rows: list[Json] = []
        self.requests: list[Json] = []
        self.items: list[Json] = []
        self.spans: list[Json] = []
        self.tokens = dict.fromkeys(MODULES, 0) | record(system=1800, tools=3200, instructions=900)
        self.seq = 1
        self.usd = 0.0

    def document(self) -> Json:
        while len(self.rows) < self.entries:
            self.turn()
        session = {
            "id": "20260921T143320-example",
            "title": "Find why the totals are off by one",
            "model": "anthropic/claude-sonnet-4-5",
            "cwd": "/home/ana/shop",
            "started_us": START_US,
            "ended_us": self.now,
            "branch": "fix-totals",
            "entries": self.seq,
        }
        plain: Json = {"version": 1, "window_tokens": WINDOW, "usable_tokens": USABLE}
        plain |= {"watermarks": [int(0.8 * USABLE), int(0.92 * USABLE)], "requests": self.requests}
        return plain | {
            "session": session,
            "money": [
                self.money("turn", "anthropic/claude-sonnet-4-5", 30, self.usd),
                self.money("subagents", "", 4, 0.12),
            ],
            "lanes": self.lanes(),
            "items": self.items,
            "transcript": self.rows,
            "subagents": self.subagents(),
            "files": self.files(),
            "left_out": {"bodies": 2, "bytes": 180_000, "above_bytes": 16_384},
        }

    def turn(self) -> None:
        """One message of the user and some steps."""
        waited = self.chance.choice((5, 20, 40, 3600)) * SECOND
        self.spans.append(
            {"kind": "wait", "start_us": self.now, "end_us": self.now + waited, "seq": self.seq}
        )
        self.now += waited
        self.row("user", "user", f"Please look at part {len(self.rows)} of the shop.", item="user")
        for _ in range(self.chance.randint(4, 12)):
            self.step()
        self.row("turn", "longrein", "The turn has ended.", status="end")

    def step(self) -> None:
        self.request()
        tool = self.chance.choice(TOOLS)
        self.row("thinking", "assistant", "The loop may stop one item early.", item="thinking")
        self.row("text", "assistant", f"I look at it with {tool}.", item="text")
        call = self.row(
            "call",
            "assistant",
            '{"file_path": "src/app.py"}',
            item="call",
            tool=tool,
            title=f"{tool} src/app.py",
        )
        start = self.now
        self.now += self.chance.randint(50, 4000) * 1000
        failed = self.chance.random() < 0.05
        span = record(kind="tool", start_us=start, end_us=self.now, seq=self.seq, label=tool)
        self.spans.append(span | ({"status": "failed"} if failed else {}))
        lines = result_text(tool, self.chance)
        extra: Json = {"diff": DIFF} if tool == "Edit" else {}
        status = "failed" if failed else "ok"
        self.row(
            "result",
            "tool",
            lines,
            item="result",
            tool=tool,
            result_of=call,
            status=status,
            **extra,
        )

    def request(self) -> None:
        number = len(self.requests) + 1
        seq, start = self.seq, self.now
        self.seq += 1
        self.now += self.chance.randint(2, 20) * SECOND
        before = sum(self.tokens.values())
        broken = self.shrink(number, seq) if before > 0.8 * USABLE else None
        total = sum(self.tokens.values())
        missed = int(0.6 * total) if broken else 0
        new = min(total, 1500)
        usd = (total - missed - new) * 0.3e-6 + (missed + new) * 3.75e-6 + 400 * 15e-6
        self.usd += usd
        made: Json = {"n": number, "seq": seq, "at_us": start, "tokens": dict(self.tokens)}
        made |= record(
            duration_us=self.now - start, input=12, cache_read=max(0, total - missed - new)
        )
        made |= record(
            cache_write=missed + new, missed=missed, output=400, usd=usd, total_usd=self.usd
        )
        if broken:
            broken |= record(
                seq=seq, price_usd=missed * 3.45e-6, tokens_before=before, tokens_after=total
            )
            made["break"] = broken
        self.requests.append(made)
        self.spans.append(
            {"kind": "model", "start_us": start, "end_us": self.now, "seq": seq, "label": "turn"}
        )

    def shrink(self, number: int, seq: int) -> Json:
        """Clear old results, or every third time summarise."""
        by_summary = len([request for request in self.requests if "break" in request]) % 3 == 2
        for item in self.items:
            if item["kind"] != "result" or len(item["stages"]) > 1:
                continue
            if by_summary:
                item["stages"].append(
                    record(request=number, seq=seq, form="summarised", why="in the summarised span")
                )
                item["shown"] = False
                continue
            kept = "   1  total = total + price[1]\n[39 lines cleared; Recall brings them back]"
            stage = record(
                request=number, seq=seq, form="trimmed", tokens=item["tokens"] // 5, text=kept
            )
            item["stages"].append(
                stage | {"why": "1 line is likely to be needed: the model edited it"}
            )
            if self.chance.random() < 0.1:
                again = record(
                    request=number + 3, seq=seq + 9, form="recalled", tokens=item["tokens"] // 5
                )
                item["stages"].append(again | {"why": "the model asked for it"})
        if by_summary:
            self.tokens |= record(summary=3000, results=4000, calls=900, assistant=500, thinking=0)
            self.row(
                "summary",
                "longrein",
                "The user wants the totals fixed. Two loops were corrected.",
                item="summary",
            )
            return {"cause": "summarised", "detail": "watermark"}
        self.tokens["results"] //= 4
        return {"cause": "cleared", "detail": "pays"}

    def row(
        self, kind: str, author: str, text: str, item: str = "", tool: str = "", **extra: object
    ) -> int:
        """Append a row of the transcript, and the item that it holds."""
        seq, self.seq = self.seq, self.seq + 1
        made: Json = {
            "seq": seq,
            "at_us": self.now,
            "kind": kind,
            "author": author,
            "text": text,
            **extra,
        }
        if item:
            handle = made["handle"] = f"r{seq}"
            tokens = len(text) // (3 if item == "result" else 4) + 10
            if item == "result":
                tokens *= 8
            module = record(
                user="user", thinking="thinking", text="assistant", call="calls", result="results"
            )
            self.tokens[module.get(item, "summary")] += tokens
            stage = record(request=len(self.requests) + 1, seq=seq, form="full", tokens=tokens)
            entry = {
                "handle": handle,
                "kind": item,
                "born_request": len(self.requests) + 1,
                "seq": seq,
                "tokens": tokens,
            }
            entry |= {"stages": [stage], "begins": text[:60], "shown": True, "usd": tokens * 1e-6}
            self.items.append(entry | ({"tool": tool} if tool else {}))
        self.rows.append(made)
        return seq

    def money(self, purpose: str, model: str, requests: int, usd: float) -> Json:
        tokens = record(input=9_000 * requests, cache_read=8_000 * requests, output=90 * requests)
        return {"purpose": purpose, "model": model, "requests": requests, "usd": usd} | tokens

    def lanes(self) -> list[Json]:
        run = {
            "kind": "run",
            "start_us": START_US + 30 * SECOND,
            "end_us": self.now,
            "seq": 4,
            "label": "make watch",
            "status": "open",
        }
        inner = [
            {
                "kind": "model",
                "start_us": START_US + 60 * SECOND,
                "end_us": START_US + 75 * SECOND,
                "seq": 2,
                "label": "turn",
            },
            {
                "kind": "tool",
                "start_us": START_US + 75 * SECOND,
                "end_us": START_US + 80 * SECOND,
                "seq": 4,
                "label": "Grep",
            },
        ]
        return [
            {"id": "main", "kind": "main", "label": "main agent", "spans": self.spans},
            {
                "id": "a7",
                "kind": "subagent",
                "label": "explore: find the callers",
                "parent": "main",
                "agent": "a7",
                "spans": inner,
            },
            record(
                id="b3", kind="task", label="make watch", parent="main", spans=[run], status="open"
            ),
        ]

    def subagents(self) -> list[Json]:
        at = START_US + 59 * SECOND
        for seq, kind, text in (
            (2, "user", "Find the callers of total()."),
            (4, "result", "src/cart.py:12"),
            (5, "text", "One caller."),
        ):
            author = {"user": "longrein", "result": "tool"}.get(kind, "assistant")
            self.rows.append(
                record(seq=seq, at_us=at, kind=kind, author=author, text=text, agent="a7")
            )
        self.rows.sort(key=lambda row: row["at_us"])
        first = {
            "id": "a7",
            "session": "s7",
            "kind": "explore",
            "description": "find the callers",
            "state": "done",
            "started_us": at,
        }
        first |= {
            "ended_us": at + 25 * SECOND,
            "seq": 7,
            "task": "Find the callers of total().",
            "report": "One caller: src/cart.py:12",
        }
        first |= {
            "limit": {"usd": 0.5, "tokens": 50_000, "requests": 20},
            "spent": {"usd": 0.04, "tokens": 8_200, "requests": 3, "seconds": 25},
        }
        second = {
            "id": "a7.a2",
            "session": "s8",
            "kind": "general",
            "description": "check one",
            "state": "limit",
            "parent": "a7",
            "seq": 4,
        }
        second |= {
            "started_us": at + 5 * SECOND,
            "ended_us": at + 9 * SECOND,
            "limit": {"requests": 2},
            "spent": {"requests": 2, "usd": 0.01},
        }
        return [first, second | {"message": "It may make 2 requests."}]

    def files(self) -> list[Json]:
        touches = [
            {"seq": row["seq"], "kind": "change" if "diff" in row else "read", "by": "agent"}
            for row in self.rows
            if row["kind"] == "result" and not row.get("agent")
        ]
        changes = sum(touch["kind"] == "change" for touch in touches)
        app = {
            "path": "src/app.py",
            "reads": len(touches) - changes,
            "changes": changes,
            "by": ["agent", "user"],
            "touches": touches,
        }
        cart = {
            "path": "src/cart.py",
            "reads": 1,
            "changes": 0,
            "by": [],
            "touches": [{"seq": 4, "kind": "read", "by": "a7", "agent": "a7"}],
        }
        return [app, cart]

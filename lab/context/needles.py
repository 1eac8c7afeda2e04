"""Byte-exact recall: needles in every kind of event are recalled after ten compactions and a
restart.

`python -m lab.context.needles [NEEDLES [COMPACTIONS]]`. A real session on a real disk:
SQLite, files, commands, permissions; only the model is scripted. The session plants needles, is
compacted in every way (cleared results, summaries by the model, digests by code), rewound and
closed. Then new objects open it, and the model asks for each needle with calls of `Recall`: by
handle, by words, by file, by time. A needle counts when the joined pages hold it byte for byte. The
last needles are asked for in a fork of the session.
"""

import asyncio
import re
import sys
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from random import Random
from shlex import quote

import msgspec

from lab.context.counting import Counter
from lab.context.material import text
from lab.context.playing import BenchmarkModel, budget_of
from lab.context.table import Row, print_table
from longrein.agent import Answer, Compact, Rewind, UserMessage
from longrein.app import Additions, App, AppSession
from longrein.app.run_context import read_run_context
from longrein.models import Delta, Failure, Reply
from longrein.options import Options
from longrein.store import open_log
from longrein.tools import Outcome, ToolContext, make_tool
from longrein_context import Request
from longrein_context.events import (
    SCHEMA_VERSION,
    Cleared,
    Document,
    Entry,
    FileChanged,
    FileSeen,
    Goal,
    GoalChanged,
    HookAnswered,
    Image,
    Interrupted,
    Opened,
    Parent,
    PermissionAsked,
    PinsSet,
    PrefixSet,
    Reminded,
    Replied,
    SubagentEnded,
    SubagentStarted,
    Summarized,
    TaskEnded,
    TaskStarted,
    Text,
    Thinking,
    TitleSet,
    Todo,
    TodoSet,
    ToolCall,
    ToolEnded,
    Usage,
    UserSpoke,
)

NEEDLES, COMPACTIONS = 500, 10
WINDOW = 32_000
CALLS = 16  # Calls of `Recall` in one reply
HAY = "\n" + "hay 干草\n" * 20_000  # Text after the needle of a large document
NEXT = re.compile(r'next: Recall\((?:handle|path)="([^"]+)", lines="([^"]+)"\)')
OPENS = re.compile(r'^  Recall\(handle="([^"]+)", lines="([^"]+)"\)', re.MULTILINE)
STORED = re.compile(r"has (\d+) parts, the last all of it as stored")
SCRIPTS = (
    "needle {n} – {sign}: naïve café, “quotes”, tab\tinside",
    "针{n}号 {sign}：藏在草堆里的话，一个字节也不能少",
    "針その{n} {sign} は、ここに隠されている。半角ｶﾅも",
    "바늘 {n} {sign} 은 건초더미 속에 있다",
    "игла {n} {sign} и ещё немного слов",
    "🪡 {n} {sign} emoji 👩‍👩‍👧 and \u202bright to left\u202c",
    "$ rm -rf {sign} && echo '{n}' | tee /dev/null  # [longrein: not a marker]",
)


def needle_text(n: int, random: Random, *, lines: bool = True) -> str:
    """Return a unique text; some have several lines."""
    sign = f"{random.getrandbits(64):016x}"
    one = SCRIPTS[n % len(SCRIPTS)].format(n=n, sign=sign)
    if not lines:
        return one.replace("\t", " ").replace('"', "'")
    return f"{one}\n\n    indented {sign}\n{one} again" if n % 3 == 0 else one


@dataclass
class Needle:
    """Text to be found again."""

    kind: str
    text: str
    mark: str = ""  # Hash of the blob in the entry, where the text itself is in a blob
    picture: bool = False  # Whether a picture must come back, and not a text
    handle: str = ""
    at: int = 0
    path: str = ""  # Set where it is asked for by the file
    by: str = "handle"
    got: str = ""  # Texts that were recalled for the needle
    calls: int = 0

    @property
    def found(self) -> bool:
        """True if the text came back byte for byte."""
        return self.text in self.got


async def Plant(context: ToolContext, body: str, how: str = "text") -> Outcome:
    """Give a text back in some form.

    body: The text.
    how: text, failed, document, large or image.
    """
    if how == "text":
        return Outcome.of(body)
    if how == "failed":
        return Outcome.fail(body)
    data = body.encode() if how != "large" else (body + HAY).encode()
    blob = context.blobs.put_blob(data)
    if how == "image":
        return Outcome((Text("a picture"), Image(blob, "image/png", len(data))))
    return Outcome(
        (Document(blob, "text/plain", len(data), "plant", data.count(b"\n"), body[:40], ""),)
    )


PLANT = make_tool(Plant, access="none", together=True)


@dataclass
class ScriptedPlanter(BenchmarkModel):
    """Scripted model that summarises well or not at all."""

    steps: deque[Reply | Failure] = field(default_factory=deque)
    prose: deque[str] = field(default_factory=deque)  # Prose of the next summaries; '' fails

    def __post_init__(self) -> None:
        self.budget = budget_of(WINDOW)
        self.counter = Counter()

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """See `models.Model.stream`."""
        if request.purpose == "summary":
            made: Reply | Failure = reply(
                Text(self.prose.popleft() if self.prose else "1. Request and intent\nGo on.")
            )
        else:
            made = self.steps.popleft() if self.steps else reply(Text("done"))
        if isinstance(made, Reply):
            made = msgspec.structs.replace(
                made, usage=Usage(0, self.counter.request(request), 0, 50)
            )
        yield [made]


def reply(*parts: Text | Thinking | ToolCall) -> Reply:
    """Return a reply of the model; it ends the turn unless it calls."""
    stop = "calls" if any(isinstance(part, ToolCall) for part in parts) else "end"
    return Reply(parts, stop, Usage())


def plant(body: str, how: str = "text") -> ToolCall:
    """A call that brings `body` into the log."""
    return ToolCall("", "Plant", {"body": body, "how": how})


class NeedleSession:
    """Session in which needles are planted."""

    def __init__(self, built: AppSession, tree: Path, state: Path, seed: int = 1) -> None:
        self.built, self.session, self.tree, self.state = built, built.session, tree, state
        model = built.deps.model
        assert isinstance(model, ScriptedPlanter)
        self.model = model
        self.random = Random(seed)
        self.needles: list[Needle] = []

    def new(
        self, kind: str, *, lines: bool = True, blob: bool = False, end: str = "", **more: str
    ) -> str:
        """The text of one more needle. `blob`: it lies in a blob, with `end` after it."""
        made = needle_text(len(self.needles), self.random, lines=lines)
        mark = sha256((made + end).encode()).hexdigest() if blob else repr(made)[1:-1]
        self.needles.append(Needle(kind, made, mark, kind == "image", **more))
        return made

    async def say(self, words: str, *steps: Reply | Failure) -> None:
        """Play one turn."""
        self.model.steps.extend(steps)
        self.session.tell(UserMessage((Text(words),)))
        await self.session.run(once=True)

    async def allow(self) -> None:
        """Answer what is asked, with a needle in the message, until the session closes."""
        async for heard in self.session.follow(0, streaming=False):
            if isinstance(heard, Entry) and isinstance(heard.event, PermissionAsked):
                words = self.new("PermissionAnswered.message", lines=False)
                await self.session.tell(Answer(heard.event.call, "allow", message=words, by="user"))

    async def sum_up(self, n: int) -> None:
        """Compact now; every other time the model fails and code writes a digest."""
        self.model.prose.extend(["", ""])
        if n % 2:
            self.model.prose.appendleft(
                f"1. Request and intent\n{self.new('Summarized.prose', lines=False)}\nGo on."
            )
        last_needle, last = self.needles[-1], self.session.state.seq
        self.session.tell(Compact(self.new("Asked.focus", lines=False)))
        await self.session.run(once=True)
        self.model.prose.clear()
        after = [entry.event for entry in self.session.entries_from(last + 1)]
        if n % 2 and not any(
            isinstance(event, Summarized) and last_needle.text in event.prose for event in after
        ):
            self.needles.remove(last_needle)  # the audit has struck it, so it never entered

    # --- one round --------------------------------------------------------------------------------

    async def round(self, n: int) -> None:
        """Every kind once."""
        put, path = self.session.blobs.put_blob, str(self.tree / f"made{n}.txt")
        self.session.append(
            Reminded("note", self.new("Reminded.text"), "bench"),
            HookAnswered("hook", "Stop", "none", text=self.new("HookAnswered.text")),
            TodoSet((Todo(self.new("TodoSet.todos", lines=False)),)),
            PinsSet((self.new("PinsSet.pins", lines=False),)),
            TitleSet(self.new("TitleSet.title", lines=False)),
            GoalChanged(Goal(n, self.new("GoalChanged.goal", lines=False))),
            TaskStarted(f"t{n}", self.new("TaskStarted.command")),
            TaskEnded(
                f"t{n}", "done", 0, output=put(self.new("TaskEnded.output", blob=True).encode())
            ),
            Interrupted(self.new("Interrupted.text")),
        )
        hash_ = put(self.new("FileChanged.blob", blob=True, path=path).encode())
        self.session.append(
            FileChanged(path, hash_, "user", hash_, diff=self.new("FileChanged.diff"))
        )
        await self._child(n)
        file = self.tree / f"old{n}.txt"
        file.write_text(
            self.new("FileSeen.blob", blob=True, end="\n", path=str(file)) + "\n", encoding="utf-8"
        )
        new = self.tree / f"new{n}.txt"
        await self.say(
            self.new("UserSpoke.parts"),
            Failure(
                "server", self.new("AskFailed.message", lines=False), 500, 0.0, partial=(Text("x"),)
            ),
            reply(
                Thinking(self.new("Replied thinking")),
                Text(self.new("Replied text")),
                plant(self.new("result")),
                plant(self.new("failed result"), "failed"),
                plant(self.new("document", blob=True), "document"),
            ),
            reply(
                plant(self.new("large document", blob=True, end=HAY), "large"),
                plant(self.new("image", blob=True), "image"),
            ),
            reply(
                ToolCall("", "Read", {"file_path": str(file), "limit": "9"}),
                ToolCall(
                    "",
                    "Write",
                    {"file_path": str(new), "content": self.new("Write", path=str(new))},
                ),
                ToolCall(
                    "",
                    "Bash",
                    {
                        "command": f"echo {quote(self.new('PermissionAsked.shown', lines=False))} "
                        ">> x"
                    },
                ),
            ),
            reply(Text("that was all")),
        )

    async def fill(self) -> None:
        """Results that nobody needs again, until something had to go."""
        for _ in range(6):
            hay = [
                reply(plant(text(kind, 6_000, self.random)))
                for kind in ("code", "log", "prose", "json")
            ]
            await self.say("go on", *hay, reply(Text("hay, all of it")))

    async def _child(self, n: int) -> None:
        child = f"00000000-0000-4000-8000-{self.random.getrandbits(48):012x}"
        at = self.session.append(SubagentStarted(child, "explore", f"c{n}.0"))
        log = await open_log(
            str(self.state), child, create=True, wall_us=self.built.deps.clock.wall_us
        )
        tree, parent = str(self.tree), Parent(self.session.id, at, f"c{n}.0")
        first = Opened(SCHEMA_VERSION, child, "n0nce", (tree,), tree, parent=parent)
        words = self.new("a child's words", handle=f"a{at}/r2")
        answer = self.new("a child's result", handle=f"a{at}/r3")
        events = (
            first,
            UserSpoke((Text(words),)),
            ToolEnded("c1.0", "Bash", "ok", (Text(answer),)),
        )
        entries = [
            Entry(seq, self.built.deps.clock.wall_us(), event)
            for seq, event in enumerate(events, 1)
        ]
        await asyncio.wrap_future(log.append(entries, flush=True))
        await log.close()
        self.session.append(SubagentEnded(child, "done", self.new("SubagentEnded.report")))


# --- where everything lies ------------------------------------------------------------------------

KINDS: dict[str, type] = {
    "FileChanged.blob": FileChanged,
    "FileChanged.diff": FileChanged,
    "FileSeen.blob": FileSeen,
    "Replied thinking": Replied,
    "Replied text": Replied,
    "Write": Replied,
    "result": ToolEnded,
    "failed result": ToolEnded,
    "document": ToolEnded,
    "large document": ToolEnded,
    "image": ToolEnded,
}
"""Places of needles; other needles are named by their event."""


def locate(needles: Sequence[Needle], entries: Sequence[Entry]) -> None:
    """Give each needle the handle of the entry that holds it, worked out apart from the code
    that is tried.
    """
    for entry in entries:
        event, raw = entry.event, repr(entry.event)
        for needle in needles:
            wanted = KINDS.get(needle.kind)
            kind = wanted.__name__ if wanted else needle.kind.partition(".")[0]
            if not needle.handle and kind == type(event).__name__ and needle.mark in raw:
                needle.handle, needle.at = f"r{entry.seq}", entry.at
                if isinstance(event, Replied):
                    parts = [
                        n for n, part in enumerate(event.parts, 1) if needle.mark in repr(part)
                    ]
                    needle.handle += f".{parts[0]}"
                if (
                    kind == "PrefixSet"
                    and isinstance(event, PrefixSet)
                    and needle.mark in repr(event.context)
                ):
                    needle.handle += ".1"


# --- bringing it back -----------------------------------------------------------------------------


class RecallModel:
    """Model that asks for needles in a resumed session."""

    def __init__(self, built: AppSession) -> None:
        self.built = built
        model = built.deps.model
        assert isinstance(model, ScriptedPlanter)
        self.model = model
        self.asked = 0  # Calls of `Recall`

    async def bring(self, needles: Sequence[Needle]) -> None:
        """Ask until each is there or there is no way on."""
        waiting = [(needle, first_call(needle)) for needle in needles]
        while waiting:
            now, waiting = waiting[:CALLS], waiting[CALLS:]
            for (needle, call), ended in zip(
                now, await self._recall([call for _, call in now]), strict=True
            ):
                needle.calls += 1
                following = self._look(needle, call, ended)
                if following and needle.calls < CALLS_MAX:
                    waiting.append((needle, following))

    async def _recall(self, calls: Sequence[dict[str, str]]) -> list[ToolEnded]:
        session = self.built.session
        before = session.state.seq
        self.model.steps.append(reply(*(ToolCall("", "Recall", call) for call in calls)))
        session.tell(UserMessage((Text("find it"),)))
        await session.run(once=True)
        self.asked += len(calls)
        after = [entry.event for entry in session.entries_from(before + 1)]
        order = next(
            e.parts for e in after if isinstance(e, Replied) and isinstance(e.parts[0], ToolCall)
        )
        ended = {event.call: event for event in after if isinstance(event, ToolEnded)}
        return [ended[part.id] for part in order if isinstance(part, ToolCall)]

    def _look(
        self, needle: Needle, call: dict[str, str], ended: ToolEnded
    ) -> dict[str, str] | None:
        """Take in what a call brought; the call to make next, None when there is none to make."""
        head = ended.parts[0].text if isinstance(ended.parts[0], Text) else ""
        if needle.picture and "handle" in call:
            images = [part for part in ended.parts if isinstance(part, Image)]
            blobs = [self.built.log.read_blob(image.blob).decode() for image in images]
            needle.got += "\n".join(blobs)
        needle.got += (
            "\n".join(part.text for part in ended.parts[1:] if isinstance(part, Text)) + "\n"
        )
        if needle.found:
            return None
        if "query" in call:
            hits = [
                opens
                for opens in OPENS.findall(head)
                if opens[0].partition(".")[0] == needle.handle.partition(".")[0]
            ]
            return {"handle": hits[0][0], "lines": hits[0][1]} if hits else None
        if "time" in call:
            return (
                {"handle": needle.handle}
                if f"\n{needle.handle.partition('.')[0]} " in head
                else None
            )
        if following := NEXT.search(head):
            return {"handle": following[1], "lines": following[2]}
        if stored := STORED.search(head):
            return {"handle": f"{needle.handle}.{stored[1]}"}
        return {"handle": f"{needle.handle}.99"} if call == {"handle": needle.handle} else None


CALLS_MAX = 40  # Calls for one needle


def first_call(needle: Needle) -> dict[str, str]:
    """Return the first call of the model for a needle."""
    match needle.by:
        case "path":
            return {"path": needle.path}
        case "query":
            return {"query": '"' + needle.text.split("\n")[0][:40].replace('"', "") + '"'}
        case "time":
            return {"time": datetime.fromtimestamp(needle.at / 1e6, UTC).isoformat()}
        case _:
            return {"handle": needle.handle}


UNSOUGHT = (
    "File",
    "image",
    "Opened",
    "PrefixSet.system",
    "PrefixSet.tools",
    "PermissionAsked",
    "Interrupted",
    "Asked",
)
"""Kinds that a search leaves out on purpose: they repeat what stands elsewhere, or are no text."""


UNTIMED = ("Asked", "Opened", "PrefixSet", "PermissionAnswered", "image")
"""Kinds that a list of what happened leaves out, and a picture, which only its handle brings."""


def choose_queries(needles: Sequence[Needle]) -> None:
    """Most are asked for by their handle, some by words, files, times."""
    for n, needle in enumerate(needles):
        if needle.path:
            needle.by = "path" if n % 2 else "handle"
        elif needle.handle.startswith("a"):
            continue
        elif n % 5 == 1 and not needle.kind.startswith(UNSOUGHT):
            needle.by = "query"
        elif n % 7 == 2 and not needle.kind.startswith(UNTIMED):
            needle.by = "time"


# --- the story ------------------------------------------------------------------------------------


@dataclass
class RecallOutcome:
    """Result of planting and recall."""

    needles: list[Needle]
    cleared: int
    summaries: int
    digests: int
    asked: int
    in_fork: int


async def plant_and_recall(
    folder: Path, count: int, compactions: int, *, hay: bool = True
) -> RecallOutcome:
    """Plant (with `hay` also what must be cleared), compact, close, open, bring back; the last
    tenth in a fork.
    """
    random = Random(9)
    names = [needle_text(4_000 + n, random, lines=False) for n in (1, 8, 15, 22)]
    tree, state = folder / names[0].replace("/", "-"), folder / "state"
    tree.mkdir()
    (tree / "AGENTS.md").write_text(names[1] + "\n", encoding="utf-8")
    environ = {
        "HOME": str(folder / "home"),
        "PATH": "/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "LONGREIN_SANDBOX_MODE": "off",
    }
    spec = msgspec.structs.replace(PLANT.spec, description=names[3])
    tools = (msgspec.structs.replace(PLANT, spec=spec),)
    options = Options(state_dir=str(state), append_system_prompt=names[2], trust=True)
    run_context = read_run_context(options, environ, folder=str(tree))
    built = await App(run_context, print).open(
        fresh=True, additions=Additions(ScriptedPlanter(), tools)
    )
    ground = NeedleSession(built, tree, state)
    ground.needles = [
        Needle("Opened.cwd", tree.name, tree.name),
        Needle("PrefixSet.context", names[1], repr(names[1])[1:-1]),
        Needle("PrefixSet.system", names[2], repr(names[2])[1:-1]),
        Needle("PrefixSet.tools", names[3], repr(names[3])[1:-1]),
    ]
    allowing = asyncio.ensure_future(ground.allow())
    await plant_all(ground, count, compactions, hay=hay)
    needles = ground.needles[:count]
    entries = list(built.log.reader.entries())
    locate(needles, entries)
    choose_queries(needles)
    made = [entry.event for entry in entries]
    await built.session.close()
    await allowing
    again = RecallModel(
        await App(run_context, print).open(
            built.session.id, additions=Additions(ScriptedPlanter(), tools)
        )
    )
    fork_at = count - count // 10
    await again.bring(needles[:fork_at])
    await again.built.session.close()
    forking = read_run_context(
        Options(state_dir=str(state), resume=built.session.id, fork_session=True),
        environ,
        folder=str(tree),
    )
    fork = RecallModel(
        await App(forking, print).open(additions=Additions(ScriptedPlanter(), tools))
    )
    await fork.bring(needles[fork_at:])
    await fork.built.session.close()
    summaries = [event for event in made if isinstance(event, Summarized)]
    return RecallOutcome(
        needles,
        sum(isinstance(event, Cleared) for event in made),
        sum(bool(event.prose) for event in summaries),
        sum(not event.prose for event in summaries),
        again.asked + fork.asked,
        count - fork_at,
    )


async def plant_all(ground: NeedleSession, count: int, compactions: int, *, hay: bool) -> None:
    """Rounds until there are enough needles and compactions."""
    done = n = 0
    while len(ground.needles) < count or done < compactions:
        await ground.round(n)
        if hay and n % 4 == 0:
            await ground.fill()
        if n % 5 == 4:
            ground.session.tell(Rewind(ground.session.state.words[-1].seq - 1))
            await ground.session.run(once=True)
        await ground.sum_up(n)
        done += 1
        n += 1


def measure(count: int = NEEDLES, compactions: int = COMPACTIONS) -> list[Row]:
    """Return the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = asyncio.run(plant_and_recall(Path(folder), count, compactions))
    lost = [needle for needle in outcome.needles if not needle.found]
    by = ", ".join(
        f"{sum(n.by == way for n in outcome.needles)} by {way}"
        for way in ("handle", "query", "path", "time")
    )
    kinds = len({needle.kind for needle in outcome.needles})
    what = (
        f"{outcome.summaries} summaries, {outcome.digests} digests, {outcome.cleared} "
        "clearings, a restart"
    )
    names = [f"{needle.kind} {needle.handle or '(nowhere)'} by {needle.by}" for needle in lost[:5]]
    note = f"{kinds} kinds, {by}, {outcome.in_fork} in a fork, {outcome.asked} calls" + (
        f"; lost: {names}" if lost else ""
    )
    enough = (
        outcome.summaries + outcome.digests >= compactions
        and min(outcome.summaries, outcome.digests, outcome.cleared) > 0
    )
    got, reach = f"{len(outcome.needles) - len(lost)} of {count}", f"{count} of {count}"
    return [Row(f"byte-exact recall after {what}", got, reach, not lost and enough, note)]


if __name__ == "__main__":
    sys.exit(print_table(measure(*map(int, sys.argv[1:]))))

"""Files under many writers: locks between agents, changes put down to who made them, calls that
are cancelled alone.
"""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.campaigns.writers import campaign
from longrein.agent import Continue, OpenSession, Rewind, UserMessage
from longrein.agent.shared_files import PathLocks
from longrein.models import Reply
from longrein.tools import Outcome, ToolContext, tool
from longrein_context.events import FileChanged, FilePut, Rewound, Text, ToolCall, ToolEnded
from tests.agent.disk_harness import (
    DiskHarness,
    Limits,
    Script,
    call,
    results,
    said,
    says,
    story,
    turn,
)
from tests.agent.memory_harness import MemoryHarness, tasks
from tests.agent.test_file_watcher import notes, then
from tests.store.fixtures import store
from tests.tables import row, split_words
from tests.timeouts import until
from tests.work_counters import files_opened

pytestmark = pytest.mark.anyio


# --- locks ----------------------------------------------------------------------------------------


class Ring:
    """Agents that take locks in the order they are named; what they did is one line."""

    def __init__(self) -> None:
        self.locks = PathLocks()
        self.done: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    def comes(self, name: str, *paths: tuple[str, bool]) -> None:
        self.gates[name] = asyncio.Event()

        async def agent() -> None:
            taken = await self.locks.take(paths)
            self.done.append(f"+{name}")
            await self.gates[name].wait()
            taken.release()
            self.done.append(f"-{name}")

        self.tasks[name] = asyncio.ensure_future(agent())

    async def goes(self, name: str) -> None:
        self.gates[name].set()
        await self.settle()

    async def settle(self) -> str:
        for _ in range(5):
            await asyncio.sleep(0)
        return " ".join(self.done)


async def test_readers_share_writers_exclude_and_nobody_overtakes() -> None:
    ring = Ring()
    for name, writes in [
        ("r1", False),
        ("r2", False),
        ("w1", True),
        ("r3", False),
        ("r4", False),
        ("w2", True),
    ]:
        ring.comes(name, ("/a", writes))
    ring.comes("other", ("/b", True))
    assert await ring.settle() == "+r1 +r2 +other"
    await ring.goes("r1")
    await ring.goes("r2")
    assert await ring.settle() == "+r1 +r2 +other -r1 -r2 +w1"
    ring.comes("late", ("/a", False))
    await ring.goes("w1")
    assert (await ring.settle()).endswith("-w1 +r3 +r4"), (
        "the late reader waits behind the writer that came before"
    )
    for name in ("r3", "r4", "w2", "late", "other"):
        await ring.goes(name)
    assert (await ring.settle()).endswith("-r3 -r4 +w2 -w2 +late -late -other")


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=3),
            st.integers(0, 3),
        ),
        max_size=12,
    ),
    st.sets(st.integers(0, 11)),
)
def test_any_agents_any_paths_any_cancellings(
    agents: list[tuple[list[tuple[str, bool]], int]], cut: set[int]
) -> None:
    """Nobody writes beside anybody, everybody who is not cancelled gets his turn, and nothing
    stays locked.
    """
    held: dict[str, list[bool]] = {}
    ended: list[int] = []

    async def agent(locks: PathLocks, number: int) -> None:
        paths, steps = agents[number]
        taken = await locks.take(paths)
        for path, writes in taken.held:
            held.setdefault(path, []).append(writes)
            assert not any(held[path]) or len(held[path]) == 1
        try:
            for _ in range(steps):
                await asyncio.sleep(0)
        finally:
            for path, writes in taken.held:
                held[path].remove(writes)
            taken.release()
        ended.append(number)

    async def main() -> None:
        locks = PathLocks()
        tasks = [asyncio.ensure_future(agent(locks, number)) for number in range(len(agents))]
        await asyncio.sleep(0)
        for number in cut:
            if number < len(tasks):
                tasks[number].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(one is None or isinstance(one, asyncio.CancelledError) for one in done)
        assert set(range(len(agents))) - cut <= set(ended)
        await locks.take([(path, True) for path in "abc"])

    asyncio.run(main())


# --- who wrote it ---------------------------------------------------------------------------------


def changes(harness: DiskHarness) -> list[tuple[str, str]]:
    return [(e.by, e.who) for e in harness.of(FileChanged)]


async def test_what_changed_before_command_ran_is_not_put_down_to_it(harness: DiskHarness) -> None:
    for name in ("a.txt", "b.txt"):
        (harness.tree / name).write_text("one\n")
    reads = says(*(call("Read", file_path=name) for name in ("a.txt", "b.txt")))
    edit = lambda: (harness.tree / "a.txt").write_text("user\n")  # noqa: E731
    model = Script(
        reads, then(edit, says(call("Bash", command="echo command > b.txt"))), says("done")
    )
    await harness.play(model, "go")
    assert changes(harness) == [("user", ""), ("command", "`echo command > b.txt`")]
    (note,) = notes(model.requests[2])
    assert "a.txt: by somebody else\n" in note
    assert "b.txt: while your command ran (`echo command > b.txt`)\n" in note


async def test_an_edit_after_a_command_that_changed_the_file_is_merged(
    harness: DiskHarness,
) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    model = Script(
        says(call("Read", file_path="a.txt")),
        says(
            call("Bash", command="sed -i s/three/3/ a.txt"),
            call("Edit", file_path="a.txt", old_string="one", new_string="1"),
        ),
        says("done"),
    )
    await harness.play(model, "go")
    assert path.read_text() == "1\ntwo\n3\n"
    assert notes(model.requests[2]) == []
    assert results(model.requests[2])[2].endswith(
        "Since you read it your command (`sed -i s/three/3/ a.txt`) changed it too, elsewhere; "
        "both changes stand. Theirs:\n 1\t1\n 2\ttwo\n-3\tthree\n+3\t3"
    )
    assert changes(harness) == [("command", "`sed -i s/three/3/ a.txt`"), ("agent", "")]
    merged = harness.entries()
    (fact,) = [e.event for e in merged if isinstance(e.event, FileChanged) and e.event.over]
    assert fact.over == fact.before


async def test_a_file_with_somebody_elses_change_is_not_put_back(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text("one\ntwo\nthree\n")
    edit = lambda: path.write_text("one\ntwo\n3\n")  # noqa: E731
    change = says(call("Edit", file_path="a.txt", old_string="one", new_string="1"))
    model = Script(
        says(call("Read", file_path="a.txt")), says("read"), then(edit, change), says("done")
    )
    async with harness.session(model) as session:
        for prompt in ("read", "change"):
            await turn(session, prompt)
        to = harness.ends()[0]
        await turn(session, Rewind(to, files=True))
    (rewound,) = harness.of(Rewound)
    assert rewound.files == (
        FilePut(str(path), False, "somebody else's change was merged into it"),
    )
    assert path.read_text() == "1\ntwo\n3\n"


# --- several calls of one reply: what one of them brought, the next was not written with ----------

OLD = "one\ntwo\nthree\nfour\nfive\n"
READ = call("Read", file_path="a.txt")


def editing(old: str, new: str) -> ToolCall:
    return call("Edit", file_path="a.txt", old_string=old, new_string=new)


def writing(text: str) -> ToolCall:
    return call("Write", file_path="a.txt", content=text)


THEIRS, MINE, FIRST = OLD.replace("five", "FIVE"), OLD.replace("five", "5"), OLD.replace("one", "1")
BOTH, ALL = THEIRS.replace("one", "1"), "1\ntwo\n3\nfour\n5\n"
ONE, FIVE = editing("one", "1"), editing("five", "5")
BATCHES: dict[str, tuple[list[ToolCall], list[ToolCall], str, str]] = {
    # the model has read OLD; somebody writes FIVE for five; one reply with these calls; their ends;
    # the file
    "an edit is refused, a write of the line that was changed": row(
        [READ], [FIVE, writing(MINE)], "failed failed", THEIRS
    ),
    "an edit is refused, a write of another line": row(
        [READ], [FIVE, writing(FIRST)], "failed ok", BOTH
    ),
    "an edit is merged, then a write": row([READ], [ONE, writing(ALL)], "ok failed", BOTH),
    "one edit is refused, one fits, then a write": row(
        [READ], [FIVE, ONE, writing(ALL)], "failed ok failed", BOTH
    ),
    "two writes of the line that was changed": row(
        [READ], [writing(MINE), writing(MINE)], "failed failed", THEIRS
    ),
    "it is read anew, then written": row([READ], [READ, writing(MINE)], "ok failed", THEIRS),
    "it is read for the first time, then written": row(
        [], [READ, writing("all mine\n")], "ok failed", OLD
    ),
    "it is read, edited, written": row(
        [], [READ, ONE, writing("all mine\n")], "ok ok failed", FIRST
    ),
    # what the model wrote itself it knows
    "written, edited, written": row(
        [READ], [writing("a\n"), editing("a", "c"), writing("d\n")], "ok ok ok", "d\n"
    ),
    "edited, edited, written": row(
        [READ], [ONE, editing("two", "2"), writing("x\n")], "ok ok ok", "x\n"
    ),
}


@pytest.mark.parametrize("name", BATCHES)
async def test_a_write_replaces_only_what_the_model_had_seen(
    harness: DiskHarness, name: str
) -> None:
    before, batch, ends, text = BATCHES[name]
    path = harness.tree / "a.txt"
    path.write_text(OLD)
    foreign = "FIVE" in text
    change = lambda: path.write_text(THEIRS if foreign else OLD)  # noqa: E731
    model = Script(*([says(*before)] if before else []), then(change, says(*batch)), says("done"))
    await harness.play(model, "go")
    ended = [e.status for e in harness.of(ToolEnded)][len(before) :]
    assert (" ".join(ended), path.read_text()) == (ends, text)


async def test_nor_does_one_that_a_kill_held_up(harness: DiskHarness) -> None:
    path = harness.tree / "a.txt"
    path.write_text(OLD)
    batch = then(lambda: path.write_text(THEIRS), says(FIVE, writing(MINE)))
    await harness.play(Script(says(READ), batch, says("done")), "go")
    entries = harness.entries()
    refused = [e.seq for e in entries if isinstance(e.event, ToolEnded)][1]
    shutil.rmtree(harness.state)
    await store(harness.state, entries[:refused])
    await harness.play(Script(says("done")), Continue(), create=False)
    assert [e.status for e in harness.of(ToolEnded)] == split_words("ok failed failed")
    assert path.read_text() == THEIRS


# --- calls side by side ---------------------------------------------------------------------------


def sleeper(seconds: float = 300.0) -> tuple[object, list[str]]:
    """A tool whose calls wait until the first is cancelled, and what became of them."""
    cancelled = asyncio.Event()
    seen: list[str] = []

    @tool(access="read", together=True)
    async def Wait(context: ToolContext, name: str) -> Outcome:
        """Wait.

        name: Which.
        """
        seen.append(f"+{name}")
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(cancelled.wait(), seconds)
        except asyncio.CancelledError:
            cancelled.set()
            seen.append(f"x{name}")
            raise
        seen.append(f"-{name}")
        return Outcome.of(name)

    return Wait, seen


async def run_batch(
    harness: DiskHarness,
    model: Script,
    meanwhile: Callable[[OpenSession], Awaitable[None]],
    **more: object,
) -> None:
    async with harness.session(model, **more) as session:
        session.tell(UserMessage((Text("go"),)))
        beside = asyncio.ensure_future(meanwhile(session))
        await session.run(once=True)
        await beside


async def test_one_of_three_calls_is_cancelled_and_the_others_go_on(harness: DiskHarness) -> None:
    wait, seen = sleeper()
    model = Script(says(*(call("Wait", name=n) for n in "abc")), says("done"))

    async def meanwhile(session: OpenSession) -> None:
        await until(lambda: len(seen) == 3)
        ids = list(session.running)
        session.cancel(ids[1])
        session.cancel(ids[1])
        session.cancel("c0.9")

    await run_batch(harness, model, meanwhile, more_tools=(wait,))
    assert seen == ["+a", "+b", "+c", "xb", "-a", "-c"]
    assert results(model.requests[1]) == [
        "Wait ok: a",
        "Wait interrupted: interrupted by the user; it may have had effects",
        "Wait ok: c",
    ]
    assert "Interrupted" not in story(harness.entries())


async def test_a_lone_command_is_cancelled_and_the_turn_goes_on(harness: DiskHarness) -> None:
    model = Script(
        says(call("Bash", command="echo begun; sleep 30")),
        says(call("Bash", command="echo more")),
        says("ok"),
    )

    async def meanwhile(session: OpenSession) -> None:
        async for heard in session.follow():
            if type(heard).__name__ == "Output":
                session.cancel(heard.call)
                return

    await run_batch(harness, model, meanwhile)
    assert results(model.requests[2]) == [
        "Bash interrupted: begun\n[interrupted by the user; the command was ended]",
        "Bash ok: more",
    ]


async def test_waiting_calls_are_not_run_when_all_is_interrupted(harness: DiskHarness) -> None:
    wait, seen = sleeper()
    model = Script(says(*(call("Wait", name=n) for n in "abc")), says("done"))

    async def meanwhile(session: OpenSession) -> None:
        await until(lambda: len(seen) == 2)
        session.interrupt()

    await run_batch(harness, model, meanwhile, more_tools=(wait,), limits=Limits(parallel_max=2))
    assert seen == ["+a", "+b", "xa", "xb"]
    ended = [e.status for e in harness.of(ToolEnded)]
    assert sorted(ended) == ["interrupted", "interrupted", "not_run"]
    assert story(harness.entries()).endswith("Interrupted TurnEnded")


async def test_s02_batches_reads_together_writers_alone_in_order(harness: DiskHarness) -> None:
    """Flaws of E: nothing runs twice, no read passes a write."""
    seen: list[str] = []

    def made(name: str, access: str, *, together: bool) -> object:
        async def run(context: ToolContext, name: str) -> Outcome:
            """Do it.

            name: Which.
            """
            seen.append(f"+{name}")
            await asyncio.sleep(0.002)
            seen.append(f"-{name}")
            return Outcome.of(name)

        run.__name__ = name
        return tool(access=access, together=together)(run)

    tools = made("Look", "read", together=True), made("Change", "write", together=False)
    wanted = [
        ({"L": "Look", "C": "Change"}[one[0]], one[1])
        for one in ["L1", "L2", "C3", "L4", "C5", "C6", "L7"]
    ]
    model = Script(says(*(call(one, name=name) for one, name in wanted)), says("done"))
    await harness.play(model, "go", more_tools=tools)
    assert seen == split_words("+1 +2 -1 -2 +3 -3 +4 -4 +5 -5 +6 -6 +7 -7")
    assert results(model.requests[1]) == [f"{one} ok: {name}" for one, name in wanted]


async def test_at_most_so_many_calls_run_at_once(harness: DiskHarness) -> None:
    wait, seen = sleeper(0.01)
    model = Script(says(*(call("Wait", name=str(n)) for n in range(40))), says("done"))
    await harness.play(model, "go", more_tools=(wait,), limits=Limits(parallel_max=4))
    running = [sum(1 if one[0] == "+" else -1 for one in seen[: n + 1]) for n in range(len(seen))]
    assert max(running) == 4
    assert len(seen) == 80


async def test_large_file_is_read_hashed_and_written_beside_the_loop(harness: DiskHarness) -> None:
    """Threads open the file and the one that takes its place, so that the loop goes on
    meanwhile.
    """
    path = harness.tree / "large.txt"
    line = b"x" * 99 + b"\n"
    path.write_bytes(b"first\n" + line * 80_000)
    model = Script(
        says(call("Read", file_path="large.txt", limit=5)),
        says(call("Edit", file_path="large.txt", old_string="first", new_string="1st")),
        says("done"),
    )
    with files_opened() as opened:
        await harness.play(model, "go")
    assert results(model.requests[2])[1].startswith("Edit ok: Edited")
    assert path.read_bytes()[:5] == b"1st\nx"
    by_the_loop = [main for path, main in opened if path.startswith(str(harness.tree))]
    assert by_the_loop.count(False) >= 3, "read, hashed, written"
    assert by_the_loop.count(True) <= 1, "the first look at a file that was just read"


# --- many writers ---------------------------------------------------------------------------------


def test_nothing_is_lost_among_agents_in_two_processes_one_killed_and_an_editor(
    tmp_path: Path,
) -> None:
    """A slice of the campaign `python -m lab.campaigns.writers`."""
    told = campaign(tmp_path, agents=4, edits=8, files=2, kills=1, pause_s=0.005)
    assert (told["lost"], told["debris"], told["codes"]) == ([], [], [0, 0])
    assert int(str(told["edits"])) > 16
    assert int(str(told["outside"])) > 10


# --- a tree of agents -----------------------------------------------------------------------------


def edit(old: str, new: str) -> Reply:
    return says(call("Edit", file_path="/w/a.py", old_string=old, new_string=new))


LOOK = says(call("Read", file_path="/w/a.py"))


def test_E22_two_subagents_edit_one_file_and_each_is_told_of_the_other() -> None:
    """Both have read the file; whoever comes second has his edit merged, and the first is named."""
    harness = MemoryHarness(
        main=[LOOK, says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[LOOK, edit("a = 1", "a = 2"), says("alpha is done")],
        BETA=[LOOK, edit("c = 3", "c = 4"), says("beta is done")],
    )
    harness.space.files["/w/a.py"] = b"a = 1\nb = 2\nc = 3\n"
    harness.model.latency_s = {"ALPHA": 0.3, "BETA": 0.5}
    harness.play()
    assert harness.space.files["/w/a.py"] == b"a = 2\nb = 2\nc = 4\n"
    first = harness.labels()[0]
    told = results(harness.model.by_part["BETA"][2])[-1]
    assert (
        f"Since you read it subagent {first} changed it too, elsewhere; both changes stand." in told
    )
    assert told.endswith("-1\ta = 1\n+1\ta = 2\n 2\tb = 2\n 3\tc = 4")
    (note,) = [text for text in said(harness.model.by_part["main"][-1]) if "file_changed" in text]
    assert f"a.py: by subagent {harness.labels()[1]}\n" in note
    assert "+1\ta = 2\n 2\tb = 2\n-3\tc = 3\n+3\tc = 4" in note


def test_E22_two_subagents_edit_one_line_and_the_second_is_refused() -> None:
    harness = MemoryHarness(
        main=[says(tasks("ALPHA", "BETA")), says("done")],
        ALPHA=[LOOK, edit("a = 1", "a = 2"), says("alpha is done")],
        BETA=[LOOK, edit("a = 1", "a = 3"), edit("a = 2", "a = 3"), says("beta is done")],
    )
    harness.model.latency_s = {"ALPHA": 0.3, "BETA": 0.5}
    harness.play()
    refused, edited = results(harness.model.by_part["BETA"][3])[-2:]
    assert refused.startswith(
        "Edit failed: [changed] /w/a.py has changed since you read it; nothing was written."
    )
    assert refused.endswith(
        f"all that subagent {harness.labels()[0]} changed:\n-1\ta = 1\n+1\ta = 2"
    )
    assert edited.startswith("Edit ok: Edited")
    assert harness.space.files["/w/a.py"] == b"a = 3\n"


# --- calls of one reply ---------------------------------------------------------------------------


async def test_commands_leave_the_shell_where_the_last_one_went(harness: DiskHarness) -> None:
    """Also when that is over first."""
    for name in ("one", "two"):
        (harness.tree / name).mkdir()
    waits = f"cd {harness.tree}/one && until [ -e {harness.tree}/over ]; do sleep 0.02; done"
    last = f"cd {harness.tree}/two && python3 -c \"open('{harness.tree}/over', 'w')\""
    model = Script(
        says(call("Bash", command=waits), call("Bash", command=last)),
        says(call("Bash", command="pwd")),
        says("done"),
    )
    session = await harness.play(model, "go")
    assert results(model.requests[2])[-1] == f"Bash ok: {harness.tree}/two"
    assert session.state.cwd == f"{harness.tree}/two"


async def test_a_change_that_several_commands_see_is_told_once(harness: DiskHarness) -> None:
    (harness.tree / "a.txt").write_text("a\n")
    change = "printf b > new{0}; mv new{0} a.txt; sleep 0.1"
    model = Script(
        says(call("Read", file_path="a.txt")),
        says(*(call("Bash", command=change.format(n)) for n in (1, 2, 3))),
        says("done"),
    )
    await harness.play(model, "go")
    changed = harness.of(FileChanged)
    assert [(event.by, Path(event.path).name) for event in changed] == [("command", "a.txt")]

"""The project's goals: a graph that many processes change at once."""

import asyncio
import fcntl
import os
import sqlite3
import tempfile
import threading
from collections.abc import Awaitable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.store import Goals, goals_file, owner_of, project_key
from longrein.store.goals_file import RENEW_US
from longrein.store.store_port import LEASE_US, USER
from longrein_context.events import Goal, ToolError
from tests.store.fixtures import run_in_process, wait_status

pytestmark = pytest.mark.anyio

ME, OTHER = "6f1c3a52-7d0e-4b7a-9f3e-0123456789ab", "6f9d0000-0000-4000-8000-000000000002"


class Time:
    """A clock set by hand."""

    def __init__(self) -> None:
        self.us = 1_760_000_000_000_000

    def __call__(self) -> int:
        return self.us


def goals_of(state: Path, owner: str = ME, time: Time | None = None) -> Goals:
    return Goals(str(state), "work-0123", owner, time or Time())


async def refused(act: Awaitable[object], *parts: str) -> None:
    with pytest.raises(ToolError) as refusal:
        await act
    for part in parts:
        assert part in str(refusal.value), str(refusal.value)


def ids(goals: Sequence[Goal]) -> list[int]:
    return [goal.id for goal in goals]


async def test_s12_goals_survive_and_a_completed_one_unblocks(tmp_path: Path) -> None:
    mine = goals_of(tmp_path)
    assert await mine.goals() == ()
    assert not (tmp_path / "goals").exists()  # looking makes nothing
    for title, waits in (("design", ()), ("build", (1,)), ("test", (1, 2))):
        await mine.add(title, f"how to {title}", waits)
    again = goals_of(tmp_path, OTHER)  # another process, another day
    found = [(goal.id, goal.title, goal.blocked_by) for goal in await again.goals()]
    assert found == [(1, "design", ()), (2, "build", (1,)), (3, "test", (1, 2))]
    done, freed = await mine.update(1, status="completed")
    assert (done.status, ids(freed)) == ("completed", [2])
    assert ids(await again.goals()) == [2, 3]
    assert ids(await again.goals(every=True)) == [1, 2, 3]
    assert (await again.goals(every=True))[2].blocked_by == (1, 2)  # the graph is whole
    await mine.update(1, status="pending")  # opened again, it blocks again
    await refused(again.update(2, claim=True), "[blocked]", "Goal 2 waits for 1 (design)")


async def test_deleting_a_blocker_unblocks_and_ids_are_never_used_again(tmp_path: Path) -> None:
    mine = goals_of(tmp_path)
    for title, waits in (("one", ()), ("two", (1,)), ("three", (2,))):
        await mine.add(title, "", waits)
    _, freed = await mine.update(1, status="deleted")
    assert ids(freed) == [2]
    _, freed = await mine.update(3, status="deleted")
    assert ids(freed) == []
    assert (await mine.add("four", "", ())).id == 4
    await refused(mine.add("five", "", (3,)), "[deleted] Goal 3 was deleted")
    await refused(
        mine.update(9, status="completed"),
        "[unknown-goal] There is no goal 9; open are 2 (two), 4 (four).",
    )


async def test_a_claim_is_a_lease_that_a_sign_of_life_renews(tmp_path: Path) -> None:
    time = Time()
    mine, theirs = goals_of(tmp_path, ME, time), goals_of(tmp_path, owner_of(OTHER, "a9"), time)
    await mine.add("design", "", ())
    await mine.add("build", "", (1,))
    now, _ = await mine.update(1, claim=True)
    assert (now.status, now.owner, now.lease_until) == ("in_progress", ME, time.us + LEASE_US)
    for refusal in (
        theirs.update(1, claim=True),
        theirs.update(1, status="completed"),
        theirs.update(1, claim=False),
    ):
        await refused(
            refusal, "[claimed] Session 6f1c3a52 works on goal 1 and holds it for 15 more min"
        )
    time.us += LEASE_US - 1
    await mine.goals()  # any call of the owner
    time.us += LEASE_US - 1
    mine.beat()
    for _ in range(6_000):  # it is written by another thread
        if (await theirs.goals())[0].lease_until == time.us + LEASE_US:
            break
        await asyncio.sleep(0.01)
    time.us += RENEW_US - 1
    mine.beat()  # too early: nothing is written
    assert (await theirs.goals())[0].lease_until == time.us + LEASE_US - RENEW_US + 1
    time.us += LEASE_US
    found = [(goal.owner, goal.status) for goal in await theirs.goals()]
    assert found == [("", "in_progress"), ("", "pending")]
    now, _ = await theirs.update(1, claim=True)
    assert now.owner == f"{OTHER}/a9"
    await refused(
        mine.update(1, claim=True), "[claimed] Subagent a9 of session 6f9d0000 works on goal 1"
    )
    now, freed = await theirs.update(1, status="completed")
    assert (now.owner, ids(freed)) == ("", [2])
    await refused(mine.update(1, claim=True), "[over] Goal 1 is completed")
    now, _ = await mine.update(2, status="in_progress")  # is a claim too
    assert now.owner == ME
    now, _ = await mine.update(2, claim=False)
    assert (now.owner, now.status) == ("", "pending")


@pytest.mark.parametrize("hours", [5, -5])
async def test_a_clock_that_is_set_takes_no_claim_away_and_makes_none_last(
    tmp_path: Path, hours: int
) -> None:
    time = Time()
    mine, theirs = goals_of(tmp_path, ME, time), goals_of(tmp_path, OTHER, time)
    await mine.add("design", "", ())
    await mine.update(1, claim=True)
    time.us += hours * 3_600_000_000
    (seen,) = await mine.goals()
    assert (seen.owner, seen.lease_until) == (ME, time.us + LEASE_US), (
        "whoever lives goes on with it"
    )
    await refused(
        theirs.update(1, claim=True),
        "[claimed] Session 6f1c3a52 works on goal 1 and holds it for 15 more min",
    )
    time.us += hours * 3_600_000_000
    await theirs.goals()
    time.us += LEASE_US
    now, _ = await theirs.update(1, claim=True)
    assert now.owner == OTHER, "of one that is silent it runs out all the same"
    await refused(mine.update(1, claim=True), "[claimed]")


async def test_who_leaves_holds_nothing_and_loses_nothing(tmp_path: Path) -> None:
    mine, theirs = goals_of(tmp_path), goals_of(tmp_path, owner_of(OTHER))
    await mine.leave()  # nothing there: nothing made
    assert not mine.begun
    for title in ("design", "build"):
        await mine.add(title, "", ())
    await mine.update(1, claim=True)
    await theirs.update(2, claim=True)
    await refused(
        theirs.update(1, status="completed"), "[claimed] Session 6f1c3a52 works on goal 1"
    )
    await mine.leave()
    found = [(goal.status, goal.owner) for goal in await mine.goals()]
    assert found == [("in_progress", ""), ("in_progress", theirs.owner)]
    now, _ = await theirs.update(1, status="completed")
    assert now.status == "completed"
    await refused(mine.update(2, claim=True), "[claimed]")


async def test_the_user_may_what_agents_may_not(tmp_path: Path) -> None:
    mine = goals_of(tmp_path)
    await mine.add("design", "", ())
    await mine.update(1, claim=True)
    user = mine.by(USER)
    now, _ = await user.update(1, title="Design it", status="pending")
    assert (now.title, now.owner) == ("Design it", "")


async def test_nobody_overwrites_words_they_have_not_seen(tmp_path: Path) -> None:
    mine, theirs = goals_of(tmp_path), goals_of(tmp_path, OTHER)
    await mine.add("design", "the plan", ())
    unseen = (
        "[changed] Session 6f1c3a52 has changed goal 1 since you read it. It is now: "
        "pending, design\nthe plan\n"
    )
    await refused(theirs.update(1, body="mine"), unseen)
    assert theirs.unseen(await theirs.goals()) != []
    assert theirs.unseen(await theirs.goals()) == []
    await theirs.update(1, body="the plan, and more")
    await refused(mine.update(1, body="the plan, mended"), "[changed] Session 6f9d0000")
    await mine.update(1, body="the plan, and more")  # what it is already
    await mine.update(1, status="completed")  # no words
    assert [goal.body for goal in mine.unseen(await mine.goals(every=True))] == []


async def test_bad_words_are_refused(tmp_path: Path) -> None:
    mine = goals_of(tmp_path)
    for act, why in (
        (mine.add(" ", "", ()), "[empty]"),
        (mine.add("x" * 201, "", ()), "[title] A title is one line of at most 200 characters"),
        (mine.add("two\nlines", "", ()), "[title]"),
        (
            mine.add("x", "y" * 20_001, ()),
            "[too-long] A body has at most 20000 characters, this one 20001",
        ),
        (mine.add("x", "", (1,)), "[unknown-goal] There is no goal 1; none is open."),
        (mine.add("x", "", range(1, 99)), "[too-many]"),
        (mine.update(1, status="done"), "[unknown-goal]"),
    ):
        await refused(act, why)
    secret = Goals(
        str(tmp_path), "k", ME, Time(), redact=lambda text: text.replace("hunter2", "[secret]")
    )
    made = await secret.add("log in with hunter2", "nul \0 and \ud800 go", ())
    assert (made.title, made.body) == ("log in with [secret]", "nul  and ? go")
    await refused(mine.by(ME).update(1, status="done"), "[unknown-goal]")
    await refused(
        secret.update(1, status="done"),
        "[status] 'done' is no status; use pending, in_progress, completed",
    )


async def test_two_processes_claim_one_goal_and_one_wins(tmp_path: Path) -> None:
    await goals_of(tmp_path).add("design", "", ())

    def rival(number: int, gate: int, out: int) -> int:
        async def run() -> None:
            mine = Goals(str(tmp_path), "work-0123", owner_of(ME, f"a{number}"), Time())
            os.read(gate, 1)  # all of them at once
            try:
                await mine.update(1, claim=True)
                os.write(out, b"won\n")
            except ToolError as refusal:
                os.write(out, str(refusal).split()[0].encode() + b"\n")
            await mine.add(f"from {number}", "", ())

        return run_in_process(run)

    gate, opening = os.pipe()
    reading, writing = os.pipe()
    pids = [rival(number, gate, writing) for number in range(6)]
    os.write(opening, b"x" * 6)
    assert [wait_status(pid) for pid in pids] == [0] * 6
    os.close(writing)
    assert sorted(os.read(reading, 65536).split()) == [b"[claimed]"] * 5 + [b"won"]
    assert ids(await goals_of(tmp_path).goals()) == [1, 2, 3, 4, 5, 6, 7]
    assert (tmp_path / "goals").stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "goals").iterdir()} == {0o600}


@pytest.mark.parametrize("damage", [b"no JSON", b'{"goals": 7}', b"\xff", b"[" * 100_000])
async def test_a_damaged_file_is_left_as_it_is(tmp_path: Path, damage: bytes) -> None:
    mine = goals_of(tmp_path)
    await mine.add("one", "", ())
    path = Path(mine.path)
    whole = path.read_bytes()
    path.write_bytes(damage)
    await refused(mine.goals(every=True), "[damaged]", str(path), "nothing was changed")
    await refused(mine.add("two", "", ()), "[damaged]")
    assert path.read_bytes() == damage
    path.write_bytes(whole)
    assert ids(await mine.goals()) == [1]


OLD_TABLES = """
CREATE TABLE goals(id INTEGER PRIMARY KEY AUTOINCREMENT, title TEXT NOT NULL, status TEXT NOT NULL,
    body TEXT NOT NULL, owner TEXT NOT NULL, lease_until INTEGER NOT NULL,
    revision INTEGER NOT NULL, changed_by TEXT NOT NULL, changed_at INTEGER NOT NULL);
CREATE TABLE blocks(goal INTEGER NOT NULL, blocker INTEGER NOT NULL, PRIMARY KEY(goal, blocker))
    WITHOUT ROWID;
PRAGMA user_version=1;
"""


def old_database(state: Path, script: str) -> Path:
    """Make the database that earlier versions kept the goals in."""
    path = Path(goals_of(state).path).with_suffix(".sqlite")
    path.parent.mkdir(parents=True)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=wal")
    connection.executescript(script)
    connection.close()
    return path


async def test_goals_of_an_earlier_version_are_taken_over_once(tmp_path: Path) -> None:
    time = Time()
    claim_end = time.us + LEASE_US // 2
    old = old_database(
        tmp_path,
        OLD_TABLES
        + f"""
INSERT INTO goals VALUES(1, 'one', 'completed', 'why ü "so"', '', 0, 3, '{ME}', 5);
INSERT INTO goals VALUES(2, 'two', 'in_progress', '', '{OTHER}', {claim_end}, 2, '{OTHER}', 6);
INSERT INTO goals VALUES(12, 'ten', 'pending', 'a' || char(10) || 'b', '', 0, 1, '{ME}', 7);
INSERT INTO blocks VALUES(12, 2), (12, 1);
UPDATE sqlite_sequence SET seq = 15;
""",
    )
    whole = old.read_bytes()
    mine = goals_of(tmp_path, time=time)
    assert mine.begun
    assert await mine.goals(every=True) == [
        Goal(1, "one", "completed", (), 'why ü "so"', "", 0, 3),
        Goal(2, "two", "in_progress", (), "", OTHER, claim_end, 2),
        Goal(12, "ten", "pending", (1, 2), "a\nb", "", 0, 1),
    ]
    await refused(mine.update(2, title="deux"), "[changed]", "Session 6f9d0000")
    await mine.update(12, title="twelve")
    assert (await mine.add("new", "", ())).id == 16
    assert old.read_bytes() == whole
    again = goals_of(tmp_path, time=time)
    assert [goal.title for goal in await again.goals()] == ["two", "twelve", "new"]


async def test_an_empty_database_of_an_earlier_version_has_no_goals(tmp_path: Path) -> None:
    old_database(tmp_path, OLD_TABLES)
    mine = goals_of(tmp_path)
    assert await mine.goals(every=True) == []
    assert (await mine.add("one", "", ())).id == 1
    old_database(tmp_path / "cut", "PRAGMA user_version=0")
    assert await goals_of(tmp_path / "cut").goals() == []


@pytest.mark.parametrize(
    "damage", [b"no database" * 100, b"", b"value"], ids=["text", "cut", "bad value"]
)
async def test_a_damaged_database_of_an_earlier_version_is_left(
    tmp_path: Path, damage: bytes
) -> None:
    bad = "INSERT INTO goals VALUES(1, 'one', 'completed', '', '', 'never', 3, '', 5);"
    old = old_database(tmp_path, OLD_TABLES + bad)
    if damage != b"value":
        old.write_bytes(damage or old.read_bytes()[:4096])
    before = old.read_bytes()
    mine = goals_of(tmp_path)
    for call in (mine.goals(), mine.add("two", "", ())):
        await refused(call, "[damaged]", str(old), "nothing was changed")
    assert old.read_bytes() == before
    assert not Path(mine.path).exists()
    old.rename(old.with_suffix(".aside"))
    assert (await mine.add("two", "", ())).id == 1


async def test_a_deleted_goal_keeps_its_number_and_looking_writes_nothing(tmp_path: Path) -> None:
    mine = goals_of(tmp_path)
    for title in ("one", "two"):
        await mine.add(title, "b" * 1000, ())
    await mine.update(2, status="deleted")
    whole = Path(mine.path).stat()
    assert ids(await mine.goals()) == [1]
    assert Path(mine.path).stat().st_ino == whole.st_ino
    assert (await mine.add("three", "", ())).id == 3


async def test_what_cannot_be_used_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "goals").write_text("in the way")
    await refused(
        goals_of(tmp_path).add("x", "", ()), "[goals]", "cannot be used", "nothing was changed"
    )
    newer = goals_of(tmp_path / "other")
    await newer.add("x", "", ())
    path = Path(newer.path)
    path.write_text(path.read_text().replace('"layout": 1', '"layout": 99'))
    await refused(newer.add("y", "", ()), "[newer]", "upgrade")
    path.write_text("{}")
    monkeypatch.setattr(goals_file, "BUSY_S", 0.05)
    with open(f"{path}.lock", "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        await refused(newer.add("y", "", ()), "[busy]", "Try again")
    assert (await newer.add("y", "", ())).id == 1


def test_a_project_has_a_readable_key_of_its_own(tmp_path: Path) -> None:
    for name in ("my project!", "café", "ok-1"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ok-1")
    keys = [project_key(str(tmp_path / name)) for name in ("my project!", "café", "ok-1", "link")]
    assert [key.rpartition("-")[0] for key in keys] == ["my-project", "caf", "ok-1", "ok-1"]
    assert len({*keys}) == 3
    assert project_key("/").startswith("root-")


# --- Any text, and none ---------------------------------------------------------------------------


@given(st.text(max_size=60), st.text(max_size=200))
@settings(max_examples=25, deadline=None)
def test_any_text_comes_back_or_is_refused(title: str, body: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        mine = Goals(folder, "k", ME, Time())
        try:
            made = asyncio.run(mine.add(title, body, ()))
        except ToolError:
            kept = title.encode("utf-8", "replace").decode().replace("\0", "")
            assert not kept.strip() or "\n" in kept
            return
        assert asyncio.run(mine.goals()) == [made]
        assert made.body == body.encode("utf-8", "replace").decode().replace("\0", "")


def test_a_sign_of_life_without_goals_costs_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    goals_of(tmp_path).beat()
    assert threading.active_count() == before
    assert not (tmp_path / "goals").exists()

"""s14 schedules: the times of intervals and cron lines, and sessions that are woken by them, in
virtual time.
"""

import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
import pytest

from longrein.agent import AddSchedule, RemoveSchedule, UserMessage, UserNotice
from longrein.app import Additions, App
from longrein.app.run_context import read_run_context
from longrein.extensions.schedules.cron_tools import cron_tools
from longrein.extensions.schedules.timer import SCHEDULES_MAX, ScheduleTimer
from longrein.extensions.schedules.times import EXPIRY_US, next_time, split_when
from longrein.models import Reply
from longrein.options import Options
from longrein.testing.clock import VirtualClock, run_virtual
from longrein.testing.harness import memory_dependencies, open_test_session, results
from longrein.testing.scripted_model import ScriptedModel, call, says
from longrein.testing.store import MemoryDisk
from longrein_context import Request
from longrein_context.events import Reminded, SchedulesSet, Text, UsageError
from tests.agent.disk_harness import events_of
from tests.tables import cases, row

START = datetime(2026, 11, 22, 10, 7, 30)  # a Sunday


@pytest.fixture(autouse=True)
def berlin() -> Iterator[None]:
    """Local time with a change in spring and autumn."""
    kept = os.environ.get("TZ")
    os.environ["TZ"] = "Europe/Berlin"
    time.tzset()
    yield
    if kept is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = kept
    time.tzset()


def us(at: datetime) -> int:
    return int(at.timestamp()) * 1_000_000


# --- Times ----------------------------------------------------------------------------------------


@cases(
    "when after expected",
    ("in 5m", START, "2026-11-22 10:12:30"),
    ("at 9:30", START, "2026-11-23 09:30:00"),
    ("at 18:05", START, "2026-11-22 18:05:00"),
    ("5m", START, "2026-11-22 10:12:30"),
    ("2h", START, "2026-11-22 12:07:30"),
    ("7d", START, "2026-11-29 10:07:30"),
    ("* * * * *", START, "2026-11-22 10:08:00"),
    ("*/15 * * * *", START, "2026-11-22 10:15:00"),
    ("7 * * * *", START, "2026-11-22 11:07:00"),
    ("0 9 * * 1-5", START, "2026-11-23 09:00:00"),
    ("0 9 * * mon-fri", START, "2026-11-23 09:00:00"),
    ("0 9 * * 7", START, "2026-11-29 09:00:00"),
    ("0 9 * * 0", START, "2026-11-29 09:00:00"),
    ("30 18 1,15 * *", START, "2026-12-01 18:30:00"),
    ("0 0 13 * fri", START, "2026-11-27 00:00:00"),  # either day, as in cron
    ("0 0 29 feb *", START, "2028-02-29 00:00:00"),
    ("5-59/20 10 * * *", START, "2026-11-22 10:25:00"),
    row(
        "30 2 * * *", datetime(2026, 3, 28, 12), "2026-03-29 03:30:00"
    ),  # 2:30 does not exist on that day
    ("30 2 * * *", datetime(2026, 10, 24, 12), "2026-10-25 02:30:00"),
)
def test_the_next_time(when: str, after: datetime, expected: str) -> None:
    assert str(datetime.fromtimestamp(next_time(when, us(after)) / 1e6)) == expected


@cases(
    "text said",
    ("", "what is to be done, and when"),
    ("5m", "what is to be done, and when"),
    ("0 9 * * *", "what is to be done, and when"),
    ("5s look", "'5s' is no time"),
    ("in 5m", "what is to be done, and when"),
    ("in", "what is to be done, and when"),
    ("in 5s look", "'in 5s' is no time"),
    ("in 8d look", "in 8d is no interval from 1m to 7d"),
    ("at noon look", "'at noon' is no time"),
    ("at 25:00 look", "'25' is no hour"),
    ("0m look", "0m is no interval from 1m to 7d"),
    ("8d look", "8d is no interval from 1m to 7d"),
    (f"{'9' * 5_000}m look", "is no time"),
    ("60 * * * * look", "'60' is no minute: it is from 0 to 59"),
    ("* * 0 * * look", "'0' is no day of the month"),
    ("* * 30 feb * look", "never comes"),
    ("a b c d e look", "'a' is no minute"),
    ("*/0 * * * * look", "'*/0' is no minute"),
    ("5-2 * * * * look", "'5-2' is no minute"),
    ("* * * * ² look", "'²' is no day of the week"),
    ("look at the build every day please", "'look' is no minute"),
)
def test_what_is_no_time_is_one_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        split_when(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# --- Sessions -------------------------------------------------------------------------------------


class Days:
    """A session in memory that is opened again and again, in virtual time."""

    def __init__(self) -> None:
        self.clock, self.disk = VirtualClock(us(START)), MemoryDisk()
        self.requests: list[Request] = []
        self.notices: list[str] = []

    def open(
        self,
        seconds: float,
        *words: AddSchedule | RemoveSchedule | UserMessage,
        replies: Sequence[Reply] = (),
        by_model: bool = False,
    ) -> list[str]:
        """Send `words` and keep the session open for `seconds`; return what fired, with the
        minute.
        """
        before = len(self.fired)

        async def main() -> None:
            model = ScriptedModel(*(replies or [says("done")] * 500))
            timer = ScheduleTimer()
            tools = cron_tools(timer) if by_model else ()
            deps = memory_dependencies(model, self.disk, clock=self.clock, tools=tools)
            deps = msgspec.structs.replace(deps, extension_parts=(timer,))
            mode = "bypassPermissions" if by_model else ""
            session = open_test_session(
                model, disk=self.disk, clock=self.clock, deps=deps, mode=mode
            )

            async def listen() -> None:
                async for heard in session.follow(session.state.seq):
                    if isinstance(heard, UserNotice):
                        self.notices.append(heard.text)

            tasks = [
                asyncio.ensure_future(listen()),
                asyncio.ensure_future(session.run(once=False)),
            ]
            await asyncio.sleep(0)
            for word in words:
                session.tell(word)
            await self.clock.sleep(seconds)
            await session.close()
            await asyncio.wait(tasks)
            self.requests += model.requests

        run_virtual(main(), clock=self.clock)
        return self.fired[before:]

    @property
    def fired(self) -> list[str]:
        return [
            f"{datetime.fromtimestamp(entry.at / 1e6):%H:%M} {entry.event.source}"
            for entry in self.disk.entries()
            if isinstance(entry.event, Reminded)
            and entry.event.kind == "cron_fired"
            and not entry.event.text
        ]


HELLO = UserMessage((Text("hi"),))


def test_loop_fires_at_once_and_at_each_interval_and_wakes_the_agent_with_the_users_words() -> None:
    days = Days()
    assert days.open(11 * 60, AddSchedule("5m", "check the build")) == [
        "10:07 s1 (5m)",
        "10:12 s1 (5m)",
        "10:17 s1 (5m)",
    ]
    assert len(days.requests) == 3
    told = [item.part.text for item in days.requests[0].items if item.kind == "reminder"]
    assert told[-1].endswith("\n* s1 (5m)\n| check the build\n[longrein:n0nce end]")
    assert "to do what was scheduled: below are the user's words" in told[-1]


def test_a_cron_line_fires_at_its_time_and_never_before() -> None:
    days = Days()
    (first, second) = days.open(2 * 3600, AddSchedule("0 * * * *", "look"))
    assert first[:2] == "11"
    assert second[:2] == "12"
    assert int(first[3:5]) <= 6  # a tenth of the interval at most


@cases("when fires", ("in 5m", "10:12 s1 (in 5m)"), ("at 10:09", "10:09 s1 (at 10:09)"))
def test_a_schedule_for_once_fires_once_and_is_gone(when: str, fires: str) -> None:
    days = Days()
    assert days.open(3 * 3600, AddSchedule(when, "look")) == [fires]
    assert len(days.requests) == 1
    days.clock.turn(EXPIRY_US / 1e6)
    assert days.open(60) == []
    assert not days.notices
    last = events_of(days.disk.entries(), SchedulesSet)[-1]
    assert last.schedules == ()


def test_a_schedule_for_once_that_was_missed_fires_at_the_next_open() -> None:
    days = Days()
    assert days.open(60, AddSchedule("in 5m", "look")) == []
    days.clock.turn(2 * EXPIRY_US / 1e6)
    assert len(days.open(60)) == 1


# --- The model's own ------------------------------------------------------------------------------


def test_the_model_schedules_lists_and_removes() -> None:
    days = Days()
    calls = [
        call("CronCreate", cron="5m", prompt="look", recurring=False),
        call("CronCreate", cron="0 9 * * *", prompt="read"),
        call("CronCreate", cron="0 9 * * *", prompt="write", recurring=False),
        call("CronCreate", cron="soon", prompt="x"),
        call("CronDelete", id="s2"),
        call("CronDelete", id="s2"),
        call("CronList"),
    ]
    replies = [says(*calls), *[says("done")] * 9]
    assert days.open(600, HELLO, replies=replies, by_model=True) == [
        "10:12 s1 (in 5m), which you have scheduled yourself"
    ]
    said = [text.partition(": ")[2] for text in results(days.requests[1])]
    assert [text.partition("  next")[0] for text in said[:3]] == [
        "Scheduled: s1  in 5m",
        "Scheduled: s2  0 9 * * *",
        "Scheduled: s3  once 0 9 * * *",
    ]
    assert said[3].startswith("[when] 'soon' is no time")
    assert said[4:6] == [
        "s2 is removed.",
        "[no-schedule] nothing is scheduled as s2. List what is scheduled first.",
    ]
    assert [line[:2] for line in said[6].split("\n")] == ["s1", "s3"]


@pytest.mark.anyio
@cases("setting is_open offered", (True, True, 3), (True, False, 0), (False, True, 0))
async def test_the_tools_are_offered_where_the_settings_say_so_and_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: bool, is_open: bool, offered: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = tmp_path / "home/.config/longrein/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f"[tools]\nschedules = {str(setting).lower()}\n")
    model = ScriptedModel(says("done"))
    run_context = read_run_context(Options(state_dir=str(tmp_path / "state")), folder=str(tmp_path))
    built = await App(run_context, print).open(
        "", fresh=True, additions=Additions(model=model, asks_user=is_open)
    )
    prefix = built.session.state.prefix
    assert prefix is not None
    assert sum(tool.name.startswith("Cron") for tool in prefix.deferred) == offered
    await built.session.close()


def test_missed_times_fire_once_at_the_next_open_and_then_as_planned() -> None:
    days = Days()
    assert len(days.open(60, AddSchedule("5m", "look"))) == 1
    days.clock.turn(3 * 3600)
    assert days.open(6 * 60) == ["13:08 s1 (5m)", "13:13 s1 (5m)"]


def test_a_schedule_ends_after_seven_days_with_a_line() -> None:
    days = Days()
    days.open(60, AddSchedule("1d", "look"), HELLO)
    days.clock.turn(EXPIRY_US / 1e6)
    assert days.open(60) == []
    assert days.notices == [
        "s1 (1d) has ended after 7 days; schedule it again if it is still needed"
    ]


def test_a_removed_schedule_is_silent_and_its_name_is_not_used_again() -> None:
    days = Days()
    days.open(
        1,
        AddSchedule("1d", "look"),
        RemoveSchedule("s1"),
        RemoveSchedule("s9"),
        AddSchedule("1d", "see"),
    )
    assert days.notices == ["nothing is scheduled as s9"]
    last = events_of(days.disk.entries(), SchedulesSet)[-1]
    assert [(one.id, one.prompt) for one in last.schedules] == [("s2", "see")]


def test_schedules_are_bounded_and_a_bad_one_is_refused_with_a_line() -> None:
    days = Days()
    days.open(
        1,
        *[AddSchedule("0 0 1 1 *", "look")] * (SCHEDULES_MAX + 1),
        AddSchedule("61 * * * *", "look"),
    )
    assert len(days.notices) == 2
    assert "50 things are scheduled already" in days.notices[0]
    assert "'61' is no minute" in days.notices[1]


def test_a_run_of_one_prompt_fires_nothing() -> None:
    days = Days()
    days.open(1, AddSchedule("5m", "look"))
    days.clock.turn(3600)

    async def main() -> list[Request]:
        model = ScriptedModel(says("done"))
        session = open_test_session(model, disk=days.disk, clock=days.clock)
        session.tell(HELLO)
        await session.run(once=True)
        await session.close()
        return model.requests

    requests = run_virtual(main(), clock=days.clock)
    assert len(requests) == 1
    assert len(days.fired) == 1

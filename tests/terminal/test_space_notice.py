"""The line on the space of the stored sessions, and the choice of what a prune removes."""

import os
from pathlib import Path

import pytest

from longrein.app.run_context import RunContext
from longrein.frontends.reports.session_lists import to_prune
from longrein.frontends.terminal.start_notices import LOOK_EVERY_S, space_lines
from longrein.options import Options
from longrein.settings_schema import SessionOptions, Settings
from longrein.store import SessionInfo


def place_of(state: Path, notice_bytes: int) -> RunContext:
    settings = Settings(sessions=SessionOptions(notice_bytes=notice_bytes))
    return RunContext(Options(), settings, {}, "/home", "/project", str(state), ("/project",))


def test_too_much_space_is_told_once_a_day(tmp_path: Path) -> None:
    (tmp_path / "sessions" / "s1").mkdir(parents=True)
    (tmp_path / "sessions" / "s1" / "log.sqlite").write_bytes(bytes(2_000_000))
    os.link(tmp_path / "sessions/s1/log.sqlite", tmp_path / "sessions/s1/shared")
    told = "sessions take 2.0 MB: longrein sessions prune --days 30 shows what goes"
    assert space_lines(place_of(tmp_path, 0)) == []
    assert space_lines(place_of(tmp_path, 1_999_999)) == [told]
    assert space_lines(place_of(tmp_path, 1_999_999)) == []
    [mark] = [one for one in tmp_path.iterdir() if one.name != "sessions"]
    os.utime(mark, (0, mark.stat().st_mtime - LOOK_EVERY_S - 1))
    assert space_lines(place_of(tmp_path, 2_000_000)) == []


@pytest.mark.parametrize(
    ("before", "one_shot_before", "bytes_max", "gone"),
    [
        (0, 0, None, ""),
        (25, 0, None, "a b"),
        (0, 35, None, "b"),
        (15, 45, None, "a b d"),
        (0, 35, 20, "b a"),
        (0, 0, 10, "a b c"),
    ],
)
def test_runs_of_one_shot_may_go_sooner(
    before: int, one_shot_before: int, bytes_max: int | None, gone: str
) -> None:
    sessions = [
        SessionInfo(name, "", at, at, "/p", "", 1, open=False, one_shot=one_shot)
        for name, at, one_shot in [
            ("a", 10, False),
            ("b", 20, True),
            ("c", 30, False),
            ("d", 40, True),
        ]
    ]
    chosen = to_prune([(one, 10) for one in sessions], before, one_shot_before, bytes_max)
    assert " ".join(one.session for one, _ in chosen) == gone

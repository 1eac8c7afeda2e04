"""The line on the space of the stored sessions."""

import os
from pathlib import Path

from longrein.app.run_context import RunContext
from longrein.frontends.terminal.start_notices import LOOK_EVERY_S, space_lines
from longrein.options import Options
from longrein.settings_schema import SessionSettings, Settings


def place_of(state: Path, notice_bytes: int) -> RunContext:
    settings = Settings(sessions=SessionSettings(notice_bytes=notice_bytes))
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

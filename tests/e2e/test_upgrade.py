"""State folders of earlier versions are opened, listed and resumed with nothing lost; those of a
newer version are named in one line and left as they are.
"""

import json
import sqlite3
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from longrein.store.database import INSERT_ENTRY, row_checksum
from longrein_context.events import ToolEnded
from tests.e2e.harness import CliHarness, call, calls, says

STATES = sorted((Path(__file__).parent.parent / "store/earlier_states").glob("*.tar.gz"))


def extract(cli: CliHarness, archive: Path) -> dict[str, list[dict[str, Any]]]:
    """Put a state folder in place; return what its version exported of each session."""
    with tarfile.open(archive) as packed:
        packed.extractall(cli.folder, filter="data")
    exports = list(cli.state.glob("export-*.jsonl"))
    found = {}
    for file in exports:
        lines = file.read_text().splitlines()
        found[file.stem.removeprefix("export-")] = [json.loads(line) for line in lines]
        file.unlink()
    return found


def exported(cli: CliHarness, session: str) -> list[dict[str, Any]]:
    done = cli.run("export", session)
    assert done.code == 0, done.err
    return [json.loads(line) for line in done.text.splitlines()]


def holds(now: Any, before: Any) -> bool:
    """Return whether `now` has all that `before` had; new fields may have come."""
    match before:
        case dict():
            return all(key in now and holds(now[key], value) for key, value in before.items())
        case list():
            return len(now) == len(before) and all(map(holds, now, before))
        case _:
            return bool(now == before)


def files(folder: Path) -> dict[str, bytes]:
    """The files that hold the sessions: without locks, without what SQLite makes to read, and
    without the mark, which notes the size of the database for lists.
    """
    kept = (path for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in kept
        if not path.name.endswith(("-shm", "-wal", "lock", "high-water-mark"))
    }


def test_the_archives_are_small() -> None:
    assert len(STATES) >= 3
    assert all(path.stat().st_size < 100_000 for path in STATES)


@pytest.mark.parametrize("archive", STATES, ids=lambda path: path.name.partition(".")[0])
def test_sessions_of_an_earlier_version_are_listed_read_and_resumed(
    cli: CliHarness, archive: Path
) -> None:
    before = extract(cli, archive)
    main = max(before, key=lambda session: len(before[session]))
    listed = {one["session"]: one for one in json.loads(cli.run("sessions", "--json").text)}
    assert listed.keys() == before.keys()
    for session, entries in before.items():
        assert listed[session]["entries"] == len(entries)
        assert holds(exported(cli, session), entries)
    assert main in cli.run("search", "value_59", "--all").text
    big = next(
        entry.seq
        for entry in cli.entries(main)
        if isinstance(entry.event, ToolEnded) and entry.event.name == "Bash"
    )
    asked = sum(entry["event"]["type"] == "Replied" for entry in before[main])
    recall = calls(call("Recall", handle=f"r{big}", lines="13990-14000"))
    cli.plays(*[says("played before")] * asked, recall, says("Nothing is lost."))
    resumed = cli.run("-p", "-r", main, "Go on.", cwd=cli.project)
    assert (resumed.code, resumed.text) == (0, "Nothing is lost.\n"), resumed.err
    now = exported(cli, main)
    assert holds(now[: len(before[main])], before[main])
    assert "13999" in cli.results(main)[-1][1]
    assert cli.said(main)[-1] == "Nothing is lost."
    assert len(cli.entries(main)) == len(now) > len(before[main])


# --- Newer versions -------------------------------------------------------------------------------


def newer_layout(database: sqlite3.Connection) -> None:
    database.execute("PRAGMA user_version=9")


def newer_schema(database: sqlite3.Connection) -> None:
    query = "SELECT key, at, body FROM entries ORDER BY key DESC LIMIT 1"
    key, at, body = database.execute(query).fetchone()
    checksum = row_checksum(key, at, 99, body)
    database.execute("UPDATE entries SET version = 99, crc = ? WHERE key = ?", (checksum, key))


def newer_event(database: sqlite3.Connection) -> None:
    key, at = database.execute("SELECT max(key) + 1, max(at) FROM entries").fetchone()
    body = b'{"type":"Foretold","what":"later"}'
    database.execute(INSERT_ENTRY, (key, at, 1, row_checksum(key, at, 1, body), body))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (newer_layout, "written by a newer longrein (layout 9, this one knows 4); upgrade it"),
        (newer_schema, "written by a newer longrein; upgrade it, or export it"),
        (newer_event, "is unknown to this longrein (Invalid value 'Foretold' - at `$.type`)"),
    ],
)
def test_a_session_of_a_newer_version_is_named_in_one_line_and_stays(
    cli: CliHarness, change: Callable[[sqlite3.Connection], None], said: str
) -> None:
    cli.plays(says("one"), says("two"))
    assert cli.run("-p", "hello").code == 0
    session = cli.session
    database = sqlite3.connect(cli.session_folder() / "log.sqlite")
    with database:
        change(database)
    database.close()
    before = files(cli.state)
    done = cli.run("-p", "-c", "more")
    assert (done.code, done.text) == (1, "")
    assert len(done.err.splitlines()) == 1
    assert said in done.err
    assert session in cli.run("sessions").text
    assert cli.run("export", session).code == 0
    cli.run("search", "hello", "--all")
    assert files(cli.state) == before

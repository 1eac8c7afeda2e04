"""`longrein search` in the sessions of a folder, of all folders, or of one session; exit codes
as in grep.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from longrein import entry_points
from longrein.cli import main
from longrein.store import open_log
from longrein_context.events import Entry, Text, ToolEnded, UserSpoke
from tests.store.fixtures import opened, wall_us
from tests.tables import cases, row

HERE = "6f1c3a52-7d0e-4b7a-9f3e-0123456789ab"
ELSEWHERE = "6f9d0000-0000-4000-8000-000000000002"
OLDER = "70000000-0000-4000-8000-000000000003"


def fill(state: Path, session: str, cwd: Path, *texts: str) -> None:
    async def story() -> None:
        log = await open_log(str(state), session, create=True, wall_us=wall_us)
        events = [opened(session, str(cwd)), UserSpoke((Text(f"words of {texts[0]}"),))]
        events += [ToolEnded("c1.0", "Bash", "ok", (Text(text),)) for text in texts]
        await asyncio.wrap_future(
            log.append(
                [Entry(n, wall_us(), event) for n, event in enumerate(events, 1)], flush=True
            )
        )
        await log.close()

    asyncio.run(story())


Search = Callable[..., tuple[int, str, str]]


@pytest.fixture
def search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Search:
    state, work = tmp_path / "state", tmp_path / "work"
    work.mkdir()
    fill(state, OLDER, work, "an older needle in 干草堆")
    fill(state, HERE, work, "one\ntwo NEEDLE three\nneedle again", "hay")
    fill(state, ELSEWHERE, tmp_path / "other", "needle of another folder")
    monkeypatch.chdir(work)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*argv: str) -> tuple[int, str, str]:
        code = main(["search", *argv, "--state-dir", str(state)], lambda: entry_points)
        return code, *capfd.readouterr()

    return run


def test_the_sessions_of_this_folder(search: Search) -> None:
    code, out, err = search("needle")
    assert code == 0
    assert err == ""
    assert [line.split()[0] for line in out.splitlines()] == [HERE, "r3", "r2", OLDER, "r3", "r2"]
    assert "result of Bash, line 2 (2 times): two NEEDLE three" in out
    assert "another folder" not in out


def test_every_folder_and_one_session(search: Search) -> None:
    _, out, _ = search("needle", "--all")
    assert [line for line in out.split() if line in (HERE, ELSEWHERE, OLDER)] == [
        ELSEWHERE,
        HERE,
        OLDER,
    ]
    code, out, _ = search("--session", ELSEWHERE[:6], "needle")
    assert code == 0
    assert out.startswith(ELSEWHERE)
    assert HERE not in out


def test_words_may_stand_apart_on_the_command_line(search: Search) -> None:
    assert search("three", "two")[0] == 0
    assert search('"three two"')[0] == 1
    assert search("干草")[0] == 0


def test_json(search: Search) -> None:
    code, out, _ = search("again", "--json")
    assert code == 0
    hit, words = json.loads(out)
    assert words["title"] == "the user's words"
    assert hit.pop("at") > 0
    assert hit == {
        "session": HERE,
        "handle": "r3",
        "seq": 3,
        "title": "result of Bash",
        "line": 3,
        "count": 1,
        "snippet": "needle again",
        "exact": True,
    }
    code, out, _ = search("nowhere", "--json")
    assert (code, json.loads(out)) == (1, [])


@cases(
    "argv code line",
    (
        ["nowhere"],
        1,
        (
            "nothing in 2 sessions of this folder holds 'nowhere'; --all searches those of every "
            "folder"
        ),
    ),
    (["nowhere", "--all"], 1, "nothing in 3 sessions holds 'nowhere'"),
    (["nowhere", "--session", HERE], 1, "nothing in 1 session holds 'nowhere'"),
    ([], 2, "what is to be found? longrein search QUERY"),
    (['""'], 2, "what is to be found? longrein search QUERY"),
    (["x", "--all", "--session", HERE], 2, "--session and --all say two things: give one of them"),
    (["x", "--session", "ffff"], 1, "no session begins with ffff; `longrein sessions` lists them"),
    (["x", "--sesion", HERE], 2, "longrein search has no flag --sesion; did you mean --session?"),
)
def test_what_cannot_be_found_or_asked(
    search: Search, argv: list[str], code: int, line: str
) -> None:
    found, out, err = search(*argv)
    assert (found, out, err.strip()) == (code, "", f"longrein: {line}")


def test_many_hits_are_told_page_by_page(search: Search, tmp_path: Path) -> None:
    fill(
        tmp_path / "state",
        HERE[:-1] + "c",
        tmp_path / "work",
        *(f"straw number {n}" for n in range(1_000)),
    )
    code, out, err = search("straw")
    lines = out.splitlines()
    assert (code, err, len(lines), lines[-1]) == row(
        0, "", 22, "hits 1 to 20 of more than 1,000; --page 2 shows the next"
    )
    assert lines[1].endswith("straw number 999")
    lines = search("straw number 7", "--page", "3")[1].splitlines()
    assert (len(lines), lines[-1]) == (22, "hits 41 to 60 of 271; --page 4 shows the next")
    lines = search("straw number 7", "--page", "14")[1].splitlines()
    assert (len(lines), lines[-1]) == (13, "hits 261 to 271 of 271")
    assert (
        search("straw number 7", "--page", "15")[1]
        == "page 15 is empty: there are 271 hits, 14 pages\n"
    )
    assert len(json.loads(search("straw number 7", "--json")[1])) == 271


def test_a_damaged_session_is_passed_over(search: Search, tmp_path: Path) -> None:
    (tmp_path / "state" / "sessions" / HERE / "log.sqlite").write_bytes(b"no database" * 1000)
    code, out, err = search("needle", "--all")
    assert code == 0
    assert ELSEWHERE in out
    assert err.startswith(f"longrein: session {HERE} was passed over: ")

"""`longrein sessions` as a table: one line per session; sessions without content come last."""

from typing import Any

from longrein.frontends.reports import session_lists as listing
from longrein.store import SessionInfo


def info(number: int, title: str, **more: Any) -> SessionInfo:
    given: dict[str, Any] = {"entries": 2, "open": False, **more}
    return SessionInfo(f"s{number}", f"/state/s{number}", number, number, "/work", title, **given)


def ends(*infos: SessionInfo) -> list[str]:
    rows = listing.as_table(infos).decode().splitlines()[1:]
    return [row.split("/work", 1)[1].strip() for row in rows]


def test_those_in_which_nothing_was_said_come_last_and_are_marked() -> None:
    assert ends(
        info(4, ""), info(3, "new", open=True), info(2, "", open=True), info(1, "old \x1b[31m")
    ) == ["(open) new", r"old \x1b[31m", "(nothing was said)", "(open) (nothing was said)"]
    assert listing.as_table([]).startswith(b"no sessions yet")

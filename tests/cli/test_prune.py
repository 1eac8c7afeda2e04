"""Which sessions `longrein sessions prune` chooses."""

import pytest

from longrein.frontends.reports.session_lists import Sized, to_prune
from longrein.store import SessionInfo


def sized(name: str) -> Sized:
    """Return a session such as `b7:3`: it is 7 old (0 is now, at 10) and has 3 bytes."""
    session, _, rest = name.partition("@")
    age, _, size = rest.partition(":")
    info = SessionInfo(session, "", 0, 10 - int(age), "", "", 1, open=False)
    return info, int(size)


@pytest.mark.parametrize(
    ("every", "before", "most", "goes"),
    [
        ("a@1:5 b@2:5", 0, None, ""),
        ("a@1:5 b@2:5", 9, None, "b"),
        ("a@1:5 b@2:5", 11, None, "b a"),
        ("a@1:5 b@2:5 c@3:5", 0, 10, "c"),
        ("a@1:5 b@2:5 c@3:5", 0, 9, "c b"),
        ("a@1:5 b@2:5 c@3:5", 0, 4, "c b a"),
        ("a@1:5 b@2:50 c@3:5", 0, 10, "c b"),
        ("a@1:5 b@2:5 c@3:5", 8, 5, "c b"),
        ("a@1:5 b@2:5 c@3:5", 8, 10, "c"),
        ("", 11, 0, ""),
    ],
)
def test_the_old_go_then_the_oldest_until_the_rest_fits(
    every: str, before: int, most: int | None, goes: str
) -> None:
    found = to_prune([sized(one) for one in every.split()], before, most)
    assert [info.session for info, _ in found] == goes.split()

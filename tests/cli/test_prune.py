"""Which sessions `longrein sessions prune` chooses."""

from longrein.frontends.reports.session_lists import Sized, to_prune
from longrein.store import SessionInfo
from tests.tables import cases


def sized(name: str) -> Sized:
    """Return a session such as `b@7:3`: it is 7 old (0 is now, at 10) and has 3 bytes; `p` is one
    of `longrein -p`.
    """
    session, _, rest = name.partition("@")
    age, _, size = rest.partition(":")
    at = 10 - int(age)
    info = SessionInfo(session, "", 0, at, "", "", 1, open=False, one_shot=session == "p")
    return info, int(size)


@cases(
    "every before one_shot_before most goes",
    ("a@1:5 b@2:5", 0, 0, None, ""),
    ("a@1:5 b@2:5", 9, 0, None, "b"),
    ("a@1:5 b@2:5", 11, 0, None, "b a"),
    ("a@1:5 b@2:5 c@3:5", 0, 0, 10, "c"),
    ("a@1:5 b@2:5 c@3:5", 0, 0, 9, "c b"),
    ("a@1:5 b@2:5 c@3:5", 0, 0, 4, "c b a"),
    ("a@1:5 b@2:50 c@3:5", 0, 0, 10, "c b"),
    ("a@1:5 b@2:5 c@3:5", 8, 0, 5, "c b"),
    ("a@1:5 b@2:5 c@3:5", 8, 0, 10, "c"),
    ("", 11, 0, 0, ""),
    ("a@1:5 p@2:5 c@3:5", 0, 9, None, "p"),
    ("a@1:5 p@2:5 c@3:5", 8, 9, None, "c p"),
    ("a@1:5 p@2:5 c@3:5", 9, 8, None, "c p"),
    ("a@1:5 p@2:5 c@3:5", 0, 9, 5, "p c"),
)
def test_the_old_go_then_the_oldest_until_the_rest_fits(
    every: str, before: int, one_shot_before: int, most: int | None, goes: str
) -> None:
    found = to_prune([sized(one) for one in every.split()], before, one_shot_before, most)
    assert [info.session for info, _ in found] == goes.split()

"""`longrein schedule`: list, add and remove from another process than the session's."""

import pytest

from longrein_context.events import SchedulesSet
from tests.e2e.harness import CliHarness, of, says


def test_what_is_added_is_listed_after_the_session_took_it_and_can_be_removed(
    cli: CliHarness,
) -> None:
    cli.plays(says("hi"), says("ok"), says("ok"))
    assert cli.run("-p", "go").code == 0
    assert cli.run("schedule").told() == (0, "nothing is scheduled in this session\n", "")
    added = [
        cli.run("schedule", "add", "0 9 * * 1-5", "check", "the build"),
        cli.run("schedule", "add", "2h", "look"),
    ]
    assert [one.code for one in added] == [0, 0]
    assert cli.run("-p", "-c", "on").code == 0
    first, second = cli.run("schedule").text.splitlines()
    assert first.startswith("s1  0 9 * * 1-5  next ")
    assert first.endswith(' 09:00  "check the build"') or '"check the build"' in first
    assert second.startswith("s2  2h  next ")
    assert cli.run("schedule", "remove", "s1").code == 0
    assert cli.run("-p", "-c", "on").code == 0
    assert [one.id for one in of(cli, SchedulesSet)[-1].schedules] == ["s2"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "5x", "look"), "is no time"),
        (("add",), "what is to be done, and when?"),
        (("remove", "s7"), "nothing is scheduled as s7"),
        (("frob",), "what is to be done with 'frob'?"),
    ],
)
def test_what_cannot_be_is_one_line(cli: CliHarness, words: tuple[str, ...], said: str) -> None:
    cli.plays(says("hi"))
    cli.run("-p", "go")
    done = cli.run("schedule", *words)
    assert (done.code, said in done.err, done.err.count("\n")) == (2, True, 1), done.err

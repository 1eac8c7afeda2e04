"""`longrein sessions delete` and `prune`: what goes is shown, and nothing else goes."""

import pytest

from tests.e2e.harness import CliHarness, says


def sessions(cli: CliHarness, count: int) -> list[str]:
    """Play `count` sessions; return their ids, the newest last."""
    before = cli.sessions
    made: list[str] = []
    for number in range(count):
        cli.plays(says("ok"))
        assert cli.run("-p", f"prompt {number}").code == 0
        made += [one for one in cli.sessions if one not in (*before, *made)]
    return made


def test_a_session_is_deleted_by_its_id_with_all_its_files(cli: CliHarness) -> None:
    first, second = sessions(cli, 2)
    folder = cli.session_folder(first)
    code, out, err = cli.run("sessions", "delete", first[:8]).told()
    assert (code, err) == (0, "")
    assert out == f"{first} is gone\n"
    assert not folder.exists()
    assert cli.sessions == [second]
    code, _, err = cli.run("sessions", "delete", first).told()
    assert code == 1
    assert err.count("\n") == 1


def fill(cli: CliHarness) -> None:
    for one in cli.sessions:
        (cli.session_folder(one) / "log.sqlite.damaged-1").write_bytes(bytes(700_000))


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        (("--days", "1"), 3),
        (("--keep-mb", "1"), 1),
        (("--keep-mb", "2"), 2),
        (("--keep-mb", "1", "--one-shot"), 1),
        (("--keep-mb", "1", "--here"), 2),
        (("--keep-mb", "9"), 3),
    ],
)
def test_prune_shows_what_goes_and_deletes_it_with_yes(
    cli: CliHarness, flags: tuple[str, ...], left: int
) -> None:
    elsewhere = cli.folder / "elsewhere"
    elsewhere.mkdir()
    cli.plays(says("ok"))
    assert cli.run("-p", "go", cwd=elsewhere).code == 0
    [other] = cli.sessions
    made = sessions(cli, 2)
    fill(cli)
    shown = cli.run("sessions", "prune", *flags)
    assert (shown.code, len(cli.sessions)) == (0, 3)
    goes = [one for one in (other, *made) if one in shown.text]
    assert len(goes) == 3 - left
    assert ("nothing was deleted" if goes else "no session is that old or too much") in shown.err
    done = cli.run("sessions", "prune", *flags, "--yes")
    assert (done.code, done.text.count(" is gone\n")) == (0, 3 - left)
    assert set(cli.sessions) == {other, *made} - {*goes}
    assert made[-1] in cli.sessions, "the newest stays"


def test_a_fork_outlives_its_parent(cli: CliHarness) -> None:
    [parent] = sessions(cli, 1)
    cli.plays(says("ok"), says("of the fork"))
    assert cli.run("-p", "go on", "-r", parent, "--fork-session").told()[:2] == (0, "of the fork\n")
    [fork] = [one for one in cli.sessions if one != parent]
    assert cli.run("sessions", "delete", parent).code == 0
    assert "prompt 0" in cli.run("export", fork).text


@pytest.mark.parametrize(
    "words",
    [("prune",), ("delete",), ("remove", "x"), ("prune", "x", "--days", "1"), ("--days", "1")],
)
def test_what_is_not_said_is_asked_for(cli: CliHarness, words: tuple[str, ...]) -> None:
    code, out, err = cli.run("sessions", *words).told()
    assert (code, out, err.count("\n")) == (2, "", 1)

"""`kill -9` at any instant, then resume: see `kill_campaign`."""

from pathlib import Path

import pytest

from tests.seeds import seeds

from .harness import CliHarness, bash, call, calls, says
from .kill_campaign import Campaign


@pytest.mark.parametrize("seed", seeds(2))
def test_R030_a_killed_session_goes_on_and_loses_nothing(seed: int, tmp_path: Path) -> None:
    campaign = Campaign(tmp_path, seed)
    try:
        campaign.run()
    finally:
        campaign.cli.clean_up()


def cut_in_mid_edit(cli: CliHarness) -> Path:
    """A session killed while `Edit` writes: the file is the old one, the new one is half there beside it."""
    target = cli.project / "a.txt"
    target.write_text("old words\n")
    longrein = "$(cut -d' ' -f4 /proc/$PPID/stat)"  # the command's parent is the supervisor, whose parent it is
    cli.plays(
        calls(call("Read", file_path="a.txt"), bash(f"kill -9 {longrein}")),
        calls(call("Edit", file_path="a.txt", old_string="old", new_string="new")),
        says("done"),
    )
    ran = cli.run("-p", "x", "--dangerously-skip-permissions")
    assert ran.code == -9
    half = cli.project / ".longrein-999999-1.tmp"
    half.write_text("new wo")
    return half


def test_a_command_that_kills_longrein_is_told_and_the_turn_goes_on(cli: CliHarness) -> None:
    cut_in_mid_edit(cli).unlink()
    assert cli.left().endswith("Replied ToolStarted FileSeen ToolEnded:ok ToolStarted")
    assert cli.run("-p", "-c", "--dangerously-skip-permissions").told() == (0, "done\n", "")
    assert cli.results()[1] == ("interrupted", "interrupted; it may have run")
    assert (cli.project / "a.txt").read_text() == "new words\n"


def test_a_half_written_file_is_swept_when_the_session_goes_on(cli: CliHarness) -> None:
    half = cut_in_mid_edit(cli)
    assert cli.run("-p", "-c", "--dangerously-skip-permissions").code == 0
    assert not half.exists()

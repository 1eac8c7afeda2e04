"""Content of the first request: folder, platform and other facts."""

from longrein.events import PrefixSet

from .harness import CliHarness, says


def around(cli: CliHarness) -> str:
    """The first text of the static context."""
    (prefix,) = [entry.event for entry in cli.entries() if isinstance(entry.event, PrefixSet)]
    return prefix.context[0]


def test_a_folder_below_the_root_is_on_the_branch_of_its_repository(cli: CliHarness) -> None:
    below = cli.project / "src/deep"
    below.mkdir(parents=True)
    cli.plays(says("so"))
    assert cli.run("-p", "x", cwd=below).code == 0
    assert f"Current folder: {below}\nGit branch at the start: main\n" in around(cli)

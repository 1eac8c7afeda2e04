"""What the model is told of where it is, before anybody has said a word."""

from longrein.events import PrefixSet

from .house import Stage, says


def around(stage: Stage) -> str:
    """The first text of the static context."""
    (prefix,) = [entry.event for entry in stage.entries() if isinstance(entry.event, PrefixSet)]
    return prefix.context[0]


def test_a_folder_below_the_root_is_on_the_branch_of_its_repository(stage: Stage) -> None:
    below = stage.project / "src/deep"
    below.mkdir(parents=True)
    stage.plays(says("so"))
    assert stage.run("-p", "x", cwd=below).code == 0
    assert f"Current folder: {below}\nGit branch at the start: main\n" in around(stage)

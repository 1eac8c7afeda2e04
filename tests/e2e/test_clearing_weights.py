"""The setting `context.weights`."""

from lab.fit import write_weights
from longrein.config.clearing_weights import Weights
from longrein_context.clearing.weights import TABLES
from tests.e2e.harness import CliHarness, says


def test_the_setting_uses_them_or_says_why_not(cli: CliHarness) -> None:
    cli.plays(says("so"))
    cli.settings('[context]\nweights = "none.json"\n')
    ran = cli.run("-p", "x")
    assert (ran.code, ran.text) == (0, "so\n")
    assert (
        "none.json cannot be read: No such file or directory; until then the shipped weights are "
        "used" in ran.err
    )
    write_weights(str(cli.folder / "w.json"), Weights(TABLES))
    cli.settings(f'[context]\nweights = "{cli.folder}/w.json"\n')
    cli.plays(says("so"))
    assert "context.weights" not in cli.run("-p", "x").err

"""`longrein usage`: what all sessions of this machine have used."""

import json

from .harness import CliHarness, says

PRICE = {"input": 3, "output": 15, "cache_read": 0.3, "cache_write": 3.75}


def test_usage_is_summed_by_day_model_and_project(cli: CliHarness) -> None:
    assert cli.run("usage").told() == (0, "", "longrein: no request was made yet\n")
    cli.plays(says("one"), says("two"), says("three"), price=PRICE)
    cli.run("-p", "go")
    cli.run("-p", "-c", "again")
    cli.run("-p", "-c", "--fork-session", "once more")
    rows = json.loads(cli.run("usage", "--json").text)
    assert [(row["model"], row["project"]) for row in rows] == [("play/one", str(cli.project))]
    (row,) = rows
    assert row["requests"] == 3, "what a fork has from its original counts once"
    assert row["usd"] > 0
    shown = cli.run("usage").text
    heads = [line.split()[0] for line in shown.splitlines() if "requests" in line]
    assert heads == ["day", "model", "project"]
    assert f"${row['usd']:.4f}"[:5] in shown
    assert "play/one  3 " in cli.run("usage", "model").text


def test_usage_goes_by_known_names_only(cli: CliHarness) -> None:
    assert cli.run("usage", "hour").told() == (
        2, "", "longrein: usage goes by day, model, project, not by hour\n",
    )  # fmt: skip

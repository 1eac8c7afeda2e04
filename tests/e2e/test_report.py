"""`longrein report`: a file for a bug report, without secrets, and without texts unless asked."""

import json

import pytest

from tests.e2e.harness import CliHarness, bash, calls, says

KEY = "sk-ant-api03-" + "a1B2" * 24
PASSWORD = "correct-horse-battery"
HEADER = "plain words"


@pytest.fixture
def used(cli: CliHarness) -> CliHarness:
    """A session whose command prints a key, with secrets in settings and environment."""
    cli.env |= {"DEPLOY_TOKEN": "tok-" + "9z8Y7x6W" * 4}
    cli.settings(
        f'[providers.other]\nwire = "openai-chat"\nbase_url = "https://me:{PASSWORD}@a.example/v1"\n'
        f'headers = {{ X-Shop = "{HEADER}" }}'
    )
    cli.plays(calls(bash(f"echo {KEY}; echo $DEPLOY_TOKEN")), says("The magic word is xyzzy."))
    done = cli.run("-p", "say it", "--permission-mode", "bypassPermissions")
    assert done.code == 0, done.err
    return cli


def secrets(cli: CliHarness) -> list[str]:
    return [KEY, PASSWORD, HEADER, cli.env["DEPLOY_TOKEN"], str(cli.home)]


def test_kinds_and_sizes_are_in_it_and_no_text_and_no_secret(used: CliHarness) -> None:
    done = used.run("report")
    assert (done.code, done.err) == (0, "")
    assert done.text.endswith("Nothing was sent: read the file first.\n")
    text = (used.project / "longrein-report.json").read_text()
    found = json.loads(text)
    assert [one["kind"] for one in found["session"]["last"]][-1] == "TurnEnded"
    assert found["session"]["last"][0]["bytes"] > 0
    assert {one["name"] for one in found["doctor"]} >= {"python", "git", "model"}
    assert found["settings"]["model"]["value"] == "play/one"
    assert "a.example/v1" in text
    assert not [one for one in (*secrets(used), "xyzzy", "say it") if one in text]


def test_texts_are_in_it_on_request_without_secrets(used: CliHarness) -> None:
    done = used.run("report", used.session[:8], "--with-content", "--entries", "9", "-o", "mine")
    assert (done.code, done.err) == (0, "")
    text = (used.project / "mine").read_text()
    assert len(json.loads(text)["session"]["last"]) == 9
    assert "xyzzy" in text
    assert not [one for one in secrets(used) if one in text]


def test_a_file_that_is_there_is_left_alone(used: CliHarness) -> None:
    (used.project / "longrein-report.json").write_text("mine")
    done = used.run("report")
    assert done.code == 2
    assert "is there already; name another file with -o" in done.err
    assert (used.project / "longrein-report.json").read_text() == "mine"


def test_without_a_session_the_rest_is_written(cli: CliHarness) -> None:
    assert cli.run("report").code == 0
    assert "session" not in json.loads((cli.project / "longrein-report.json").read_text())

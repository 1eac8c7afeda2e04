"""Environment of commands: an allow-list, without anything that waits or colours."""

import pytest

from longrein.workspace.command_environment import DEFAULT_PATH, children_environment
from tests.workspace.conftest import CommandHarness

PARENT = {
    "PATH": "/usr/bin::.:bin:/opt/bin",
    "HOME": "/home/me",
    "LANG": "de_DE.UTF-8",
    "LC_TIME": "C",
    "VIRTUAL_ENV": "/v",
    "HTTPS_PROXY": "http://proxy",
    "LONGREIN_TEST_TAG": "t",
    "TERM": "xterm-256color",
    "PAGER": "less",
    "EDITOR": "vim",
    "PWD": "/elsewhere",
    "BASH_ENV": "/tmp/evil",
    "LD_PRELOAD": "/tmp/evil.so",
    "GIT_DIR": "/tmp/other",
    "ANTHROPIC_API_KEY": "canary",
    "OPENAI_API_KEY": "canary",
    "AWS_SECRET_ACCESS_KEY": "canary",
    "GITHUB_TOKEN": "canary",
    "DATABASE_URL": "canary",
    "MY_FLAG": "1",
    "MY_API_KEY": "canary",
    "LONGREIN_MODEL": "mock/small",
    "LONGREIN_STATE_DIR": "/state",
}


ALL = "MY_FLAG PWD BASH_ENV LD_PRELOAD GIT_DIR DATABASE_URL LONGREIN_MODEL"


@pytest.mark.parametrize(("keep", "more"), [
    ((), set()),
    (("MY_FLAG",), {"MY_FLAG"}),
    (("MY_*",), {"MY_FLAG"}),
    (("*",), set(ALL.split())),
    (("MY_API_KEY",), {"MY_API_KEY"}),
    (("NOT_THERE",), set()),
])  # fmt: skip
def test_S069_only_what_is_listed_passes(keep: tuple[str, ...], more: set[str]) -> None:
    passed = {
        "HOME",
        "LANG",
        "LC_TIME",
        "VIRTUAL_ENV",
        "HTTPS_PROXY",
        "LONGREIN_TEST_TAG",
        "LONGREIN_STATE_DIR",
    }
    got = children_environment(PARENT, keep)
    always = set(children_environment({}, ()))
    assert set(got) - always == passed | more


def test_S026_relative_search_paths_are_dropped() -> None:
    assert children_environment(PARENT, ())["PATH"] == "/usr/bin:/opt/bin"
    assert children_environment({"PATH": ".:"}, ())["PATH"] == DEFAULT_PATH


def test_A17_nothing_waits_pages_or_paints() -> None:
    got = children_environment(PARENT, ())
    expected = {
        "AI_AGENT": "longrein",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "PAGER": "cat",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_EDITOR": "true",
        "EDITOR": "true",
        "npm_config_update_notifier": "false",
    }
    assert {name: got[name] for name in expected} == expected
    assert children_environment(PARENT, ("TERM",))["TERM"] == "xterm-256color", (
        "settings have the last word"
    )


@pytest.mark.anyio
async def test_S069_no_key_reaches_a_command_and_the_marks_do(
    harness: CommandHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "canary")
    await harness.run("env")
    printed = harness.printed.decode()
    assert "canary" not in printed
    assert f"LONGREIN_SESSION={harness.session}\n" in printed
    assert f"LONGREIN_TEST_TAG={harness.tag}\n" in printed
    assert f"PWD={harness.folder}\n" in printed

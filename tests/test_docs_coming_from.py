"""The page for users of other agents: its commands run, its files are found, its pages exist."""

import re
from pathlib import Path

from longrein.config.other_agent_files import KINDS
from tests.e2e.harness import CliHarness

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "coming-from.md").read_text(encoding="utf-8")


def test_every_command_of_the_page_runs(cli: CliHarness) -> None:
    lines = re.findall(r"^\$ longrein (.+?) *(?:#.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 5
    for line in lines:
        ran = cli.run(*line.split())
        assert "Traceback" not in ran.text + ran.err
        assert ran.code == 0, line


def test_every_file_of_the_table_is_known_as_it_says() -> None:
    used = {kind.path.removeprefix("~/"): kind.use for kind in KINDS}
    table = PAGE[PAGE.index("| what you have") : PAGE.index("## What is different")]
    files = {
        file.removeprefix("~/")
        for file in re.findall(r"`(~?/?\.?[\w.-]+(?:/[\w.-]+|\.md|\.json))`", table)
    }
    assert {
        file: used.get(file, "") for file in files if used.get(file) not in ("used", "partly")
    } == {}


def test_every_page_that_it_names_exists() -> None:
    assert [
        page for page in re.findall(r"\]\((\w[\w-]*\.md)\)", PAGE) if not (DOCS / page).exists()
    ] == []


def test_every_test_that_it_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+(?:\.py)?)`", PAGE)
    assert len(named) > 12
    assert [path for path in named if not (DOCS.parent / path).exists()] == []

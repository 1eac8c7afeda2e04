"""The docs as a site: its list is complete, commands of the first five minutes run, tables are
those of the code.
"""

import json
import re
from pathlib import Path

import pytest

from lab.replay.costs import TABLE_HEAD
from longrein.config import load_settings
from longrein.models.catalog_data import PROVIDERS
from longrein.testing.loopback import Call, Turn
from tests.e2e.harness import CliHarness, Provider

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
RUNS = re.findall(
    r"<!-- run: (.*?) -->\n```console\n(.*?)```",
    (DOCS / "start.md").read_text(encoding="utf-8"),
    re.DOTALL,
)
"""(turns of the model, commands with their output), in order."""
COUNT = "for n in range(1, 11):\n    print(n)\n"


def turns(text: str) -> list[Turn]:
    """`Edit count.py`: the change that the page shows; anything else is an answer."""
    if text != "Edit count.py":
        return [Turn(text=text)]
    edit = {"file_path": "count.py", "old_string": "range(1, 11)", "new_string": "range(1, 21)"}
    return [
        Turn(calls=(Call("Read", {"file_path": "count.py"}),)),
        Turn(calls=(Call("Edit", edit),)),
    ]


def test_every_page_is_in_the_list_of_the_site_once() -> None:
    listed = re.findall(
        r"^ +- (?:[^:\n]+: )?(\w[\w-]*\.md)$",
        (ROOT / "mkdocs.yml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    assert sorted(listed) == sorted(page.name for page in DOCS.glob("*.md"))


def test_the_commands_of_the_first_five_minutes_print_what_the_page_shows(cli: CliHarness) -> None:
    (cli.project / "count.py").write_text(COUNT)
    assert len(RUNS) >= 3
    script = [
        turn for texts, _ in RUNS for text in texts.split("|") for turn in turns(text.strip())
    ]
    with Provider(*script) as provider:
        cli.config.write_text(
            'model = "served/claude-sonnet-4-5"\n' + provider.settings("anthropic")
        )
        for command, shown in re.findall(
            r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", "".join(block for _, block in RUNS), re.MULTILINE
        ):
            if command.startswith("cat "):
                assert (cli.project / command[4:]).read_text() == shown
                continue
            words = re.findall(r'"([^"]*)"|(\S+)', command.removeprefix("longrein "))
            assert cli.run(*(quoted or bare for quoted, bare in words)).told() == (0, shown, "")
        assert (provider.refused, provider.unused) == ([], [])


def test_the_table_of_providers_is_that_of_the_code() -> None:
    page = (DOCS / "providers.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (.*?) \| `([\w-]+)` \| (.*?) \|$", page, re.MULTILINE)
    assert [(name, wire) for name, _, wire, _ in rows] == [
        (known[0], known[1]) for known in PROVIDERS
    ]
    for (name, keys, _, model), (_, _, address, variables, _, default) in zip(
        rows, PROVIDERS, strict=True
    ):
        assert all(f"`{variable}`" in keys for variable in variables), name
        assert variables or keys.removeprefix("none: ") in address, name
        assert model == f"`{default}`" or not default, name


@pytest.mark.parametrize("page", sorted(DOCS.glob("*.md")), ids=lambda page: page.name)
def test_settings_that_a_page_shows_are_settings(page: Path, tmp_path: Path) -> None:
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
        folder = tmp_path / ".config/longrein"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.toml").write_text(block)
        settings = load_settings(
            cwd=str(tmp_path), home=str(tmp_path), environ={}, flags={}, trusted=False
        )
        assert settings.notes == (), block


def test_tests_that_the_table_of_features_names_exist() -> None:
    table = (ROOT / "lab/terminal_features.md").read_text(encoding="utf-8")
    rows = [row for row in table.splitlines() if row.startswith("| ")][1:]
    assert len(rows) >= 41
    named = set(re.findall(r"\btest_\w+\.py", table))
    known = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert named - known == set()
    functions = set(re.findall(r"::(test_\w+)\b(?!\*|…)", table))
    code = "".join(
        path.read_text(encoding="utf-8")
        for path in (ROOT / "tests").rglob("test_*.py")
        if path.name in named
    )
    assert {name for name in functions if f"def {name}" not in code} == set()


def test_the_first_request_is_what_the_page_of_speed_says(cli: CliHarness) -> None:
    page = (DOCS / "performance.md").read_text(encoding="utf-8")
    [(tools, most)] = re.findall(r"first request names (\d+) tools and has (\d+) kB at most", page)
    with Provider(Turn(text="Done.")) as provider:
        cli.config.write_text(
            'model = "served/claude-sonnet-4-5"\n' + provider.settings("anthropic")
        )
        assert cli.run("-p", "go").told() == (0, "Done.\n", "")
        [request] = provider.requests
    assert len(json.loads(request.body)["tools"]) == int(tools)
    assert len(request.body) <= 1000 * int(most)
    journal = (ROOT / "lab/performance.md").read_text(encoding="utf-8")
    [modules] = re.findall(r"some (\d+) modules of longrein", journal)
    listed = len((ROOT / "tests/start_modules.txt").read_text().splitlines())
    assert abs(listed - int(modules)) <= 10


def test_the_columns_of_a_replay_are_those_of_the_page() -> None:
    page = (ROOT / "lab/context.md").read_text(encoding="utf-8")
    table = page[page.index("| column | says |") : page.index("Window, prices and wire are those")]
    told = [name for row in re.findall(r"^\| (`.+?) \|", table, re.M) for name in row.split(", ")]
    assert told == [f"`{name}`" for name in TABLE_HEAD[3:]]

"""The page on skills: its examples load without a note and do what it says; its tables name what
the code reads.
"""

import re
from pathlib import Path

from longrein.config import SkillFiles
from longrein.config.skill_files import FOLDERS_MAX, NOT_OBEYED, PROJECT_FOLDERS, SIZE_MAX_BYTES
from longrein.config.skill_library import PROJECT_FOLDERS as COMMAND_FOLDERS
from longrein.config.skill_library import RESOURCES_MAX
from longrein.tools.skill import CATALOGUE_CHARS_MAX
from longrein_context.events import UserSpoke, text_of
from tests.e2e.harness import CliHarness, of, says

PAGE = (Path(__file__).parent.parent / "docs/skills.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"```markdown (\S+)\n(.*?)```", PAGE, re.DOTALL))


def written(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_the_files_of_the_page_load_without_a_note(tmp_path: Path) -> None:
    written(tmp_path / "repo")
    files = SkillFiles(str(tmp_path / "repo"), str(tmp_path), {}, lambda _: True)
    assert [(one.name, one.kind) for one in files.all()] == [
        ("release", "skill"),
        ("review", "command"),
    ]
    assert files.notes == ()


def test_the_command_of_the_page_runs(cli: CliHarness) -> None:
    written(cli.project)
    (cli.project / "RULES.md").write_text("No tabs.")
    cli.plays(says("looks good"))
    [line] = re.findall(r"`longrein (-p \"/review main\")`", PAGE)
    assert line
    ran = cli.run("-p", "/review main", "--trust")
    assert ran.told() == (0, "looks good\n", "")
    [spoke] = of(cli, UserSpoke)
    text = text_of(spoke.parts)
    assert "Review the branch main against the rules in @RULES.md." in text
    assert "No tabs." in text


def test_the_figures_and_folders_of_the_page_are_those_of_the_code() -> None:
    named = [*PROJECT_FOLDERS, *(name for name, _ in COMMAND_FOLDERS)]
    singular = {".opencode/skill", ".opencode/command"}
    assert [name for name in named if f"`{name}`" not in PAGE and name not in singular] == []
    for figure in (
        f"{CATALOGUE_CHARS_MAX:,} characters",
        f"{FOLDERS_MAX:,} folders",
        f"{RESOURCES_MAX} files",
    ):
        assert figure in PAGE
    assert f"{SIZE_MAX_BYTES >> 10} kB" in PAGE
    assert all(f"`{field}`" in PAGE for field in NOT_OBEYED)

"""Skills and commands from files (A2, A3, A13, A18.3): folders, precedence, lenient reading, and
what is left out.
"""

import contextlib
import importlib.util
import json
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config import SkillFiles
from longrein.config.frontmatter import FrontmatterError, parse_frontmatter
from longrein.config.skill_files import PROJECT_FOLDERS, USER_FOLDERS
from longrein.config.skill_library import PROJECT_FOLDERS as COMMAND_FOLDERS
from longrein.config.skill_library import USER_FOLDERS as USER_COMMAND_FOLDERS
from longrein.tools import SkillInfo, catalogue
from longrein.tools.skill import CATALOGUE_CHARS_MAX
from longrein_context.events import ToolError
from tests.config.conftest import ConfigFolders


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def skill(
    folder: Path, name: str, head: str = "", body: str = "text", description: str = "x"
) -> Path:
    return put(
        folder,
        f"{name}/SKILL.md",
        f"---\nname: {name}\ndescription: {description}\n{head}---\n{body}\n",
    )


def library(folders: ConfigFolders, *, trusted: bool = True, cwd: Path | None = None) -> SkillFiles:
    return SkillFiles(str(cwd or folders.cwd), str(folders.home), {}, lambda _: trusted)


def load(
    folders: ConfigFolders, *, trusted: bool = True, cwd: Path | None = None
) -> tuple[dict[str, SkillInfo], str]:
    """Return (skills and commands by name, all notes)."""
    files = library(folders, trusted=trusted, cwd=cwd)
    return {one.name: one for one in files.all()}, "\n".join(files.notes)


def one(folders: ConfigFolders, text: str | bytes, name: str = "a") -> tuple[SkillInfo | None, str]:
    put(folders.cwd / ".agents/skills", f"{name}/SKILL.md", text)
    found, notes = load(folders)
    return next(iter(found.values()), None), notes


# --- Folders and precedence -----------------------------------------------------------------------


@pytest.mark.parametrize("name", [*PROJECT_FOLDERS, *(f"~/{name}" for name in USER_FOLDERS)])
def test_A2_skills_of_every_agent_are_found(folders: ConfigFolders, name: str) -> None:
    base = folders.home if name.startswith("~/") else folders.cwd
    skill(base / name.removeprefix("~/"), "deep/er/a")
    found = "deep/er/a".rpartition("/")[2]
    assert found in {Path(one.path).parent.name for one in load(folders)[0].values()}
    assert bool(load(folders, trusted=False)[0]) is name.startswith("~/")


def test_A18_3_the_project_wins_with_a_warning(folders: ConfigFolders) -> None:
    skill(folders.cwd / ".agents/skills", "a", description="of the project")
    skill(folders.home / ".agents/skills", "a", description="of the user")
    found, notes = load(folders)
    assert found["a"].description == "of the project"
    assert re.search(
        r"skill a: .*/repo/.agents/skills/a/SKILL.md counts, ~/.agents/skills/a/SKILL.md has the",
        notes,
    )
    assert load(folders, trusted=False)[0]["a"].description == "of the user"


def head(fields: str) -> str:
    """A skill with the description x and these fields."""
    return f"---\ndescription: x\n{fields}\n---\nx"


@pytest.mark.parametrize(("text", "name", "note"), [
    ("---\nname: a\ndescription: Use when: the user asks\n---\nx", "a", ""),
    (head("name: other"), "other", "'other' is not that of its folder, a; it is used"),
    ("---\ndescription: x\n---\nx", "a", "has no name: the name of its folder, a, counts"),
    (head(f"name: {'n' * 70}"), "n" * 70, "1 to 64"),
    (head("name: My Skill"), "My-Skill", "is not made of small letters"),
    (head("name: a\nallowed-tools: Bash(ls"), "a", "is no rule"),
    (head("name: a\nuser-invocable: maybe"), "a", "neither true nor false"),
    (head("name: a\nmodel: opus\nhooks: {Stop: []}"), "a", "Not obeyed here"),
    ("---\nname: a\n---\nx", None, "has no description, which says when to use it: left out"),
    ("no head", None, "has no description"),
    ("", None, "has no description"),
    ("---\nname: a\ndescription: x\n", None, "has a head that is no YAML (line 1: "),
    ("---\n- a\n- b\n---\n", None, "has a head that is no YAML"),
    ("---\nname: &x a\n---\n", None, "has a head that is no YAML"),
    (b"---\nname: a\ndescription: \xff\n---\n", None, "is not UTF-8 text"),
    (b"---\nname: a\ndescription: x\n---\n\0\1", None, "is a binary file, not text"),
    (b"x" * 300_000, None, "larger than 256 kB"),
    (head("name: <b>"), None, "cannot be typed"),
    (head("name: a\nshell: powershell"), None, "its commands are for powershell"),
])  # fmt: skip
def test_A18_3_lenient_reading(
    folders: ConfigFolders, text: str | bytes, name: str | None, note: str
) -> None:
    found, notes = one(folders, text)
    assert (found.name if found else None) == name
    assert note in notes
    assert bool(notes) is bool(note)
    assert all(line.startswith(("~/repo", "Not obeyed")) for line in notes.splitlines())


def test_A2_fields_of_claude_code(folders: ConfigFolders) -> None:
    head = (
        "when_to_use: often\nargument-hint: [pr] [level]\narguments: [pr, "
        "level]\ndisable-model-invocation: true\n"
        "allowed-tools: Read, Bash(git add:*) Bash(git commit -m *)\ndisallowed-tools:\n  - Write\n"
        "context: fork\nagent: Explore\npaths: 'src/**, *.sql'\n"
    )
    skill(folders.home / ".claude/skills", "a", head)
    found = load(folders)[0]["a"]
    assert found.description == "x often"
    assert found.argument_hint in ("[pr] [level]", "[pr]")
    assert found.argument_names == ("pr", "level")
    told = (found.for_model, found.for_user, found.fork, found.agent)
    assert told == (False, True, True, "Explore")
    assert found.allowed_tools == ("Read", "Bash(git add:*)", "Bash(git commit -m *)")
    assert (found.disallowed_tools, found.paths) == (("Write",), ("src/**", "*.sql"))


RULES = "allowed-tools: Bash(*), WebFetch\n"
WIDENING = [
    (".agents/skills/a/SKILL.md", f"---\nname: a\ndescription: x\n{RULES}---\n"),
    (".claude/commands/a.md", f"---\n{RULES}---\nx\n"),
    (".gemini/commands/a.toml", 'prompt = "x"\nallowed-tools = ["Bash(*)", "WebFetch"]\n'),
    (
        "opencode.json",
        '{"command": {"a": {"template": "x", "allowed-tools": "Bash(*), WebFetch"}}}',
    ),
    (".agents/plugins/p/skills/a/SKILL.md", f"---\nname: a\ndescription: x\n{RULES}---\n"),
    (".agents/plugins/p/commands/a.md", f"---\n{RULES}---\nx\n"),
]


@pytest.mark.parametrize(("path", "text"), WIDENING)
def test_A2_a_file_of_the_project_allows_nothing_and_the_users_own_does(
    folders: ConfigFolders, path: str, text: str
) -> None:
    own = f".config/opencode/{path}" if path == "opencode.json" else path
    for base, name, allowed in (
        (folders.cwd, path, ()),
        (folders.home, own, ("Bash(*)", "WebFetch")),
    ):
        if "plugins" in path:
            manifest = base / ".agents/plugins/p/plugin.json"
            manifest.parent.mkdir(parents=True)
            manifest.write_text('{"name": "p"}')
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text(text)
        found, notes = load(folders)
        assert [one.allowed_tools for one in found.values()] == [allowed]
        assert ("It wants Bash(*), WebFetch" in notes) is not allowed
        (base / name).unlink()


def test_A2_a_folder_of_the_user_that_leads_into_the_project_is_the_projects(
    folders: ConfigFolders,
) -> None:
    skill(folders.cwd / "tools", "a", RULES)
    (folders.home / ".agents").mkdir(parents=True)
    (folders.home / ".agents/skills").symlink_to(folders.cwd / "tools")
    found, notes = load(folders)
    assert found["a"].allowed_tools == ()
    assert "It wants Bash(*), WebFetch" in notes


def test_A2_a_link_out_of_the_project_is_left_out_and_the_users_own_is_followed(
    folders: ConfigFolders,
) -> None:
    skill(folders.home / "elsewhere", "a")
    for base in (folders.cwd / ".agents/skills", folders.home / ".agents/skills"):
        base.mkdir(parents=True)
        (base / "a").symlink_to(folders.home / "elsewhere/a")
    (folders.cwd / ".agents/skills/self").symlink_to(folders.cwd / ".agents/skills")
    found, notes = load(folders)
    assert found["a"].path.startswith(str(folders.home / ".agents"))
    assert "leads out of the project: left out" in notes


# --- Bounds ---------------------------------------------------------------------------------------


def test_A2_a_folder_of_ten_thousand_files_and_too_many_folders_are_bounded(
    folders: ConfigFolders,
) -> None:
    base = folders.cwd / ".agents/skills"
    path = skill(base, "a")
    (path.parent / "data").mkdir()
    for n in range(10_000):
        (path.parent / f"data/{n}").touch()
    for n in range(2_100):
        (base / f"empty{n}").mkdir()
    skill(base, "z")
    skill(base, "deep/1/2/3/4/5/6")
    found, notes = load(folders)
    assert "a" in found
    assert "6" not in found
    assert "There are more folders of skills and commands than are looked into" in notes
    body = library(folders).body(found["a"])
    assert len(body.resources) == 40
    assert body.more_resources


def test_A2_the_catalogue_has_a_budget(folders: ConfigFolders) -> None:
    many = [SkillInfo(f"skill-{n}", "Word " * 200, f"/s/{n}/SKILL.md", "s") for n in range(40)]
    text = catalogue(many)
    assert len(text) <= CATALOGUE_CHARS_MAX + 500
    assert all(f"<name>{one.name}</name>" in text for one in many)
    crowd = [SkillInfo(f"skill-{n}", "Word " * 200, f"/s/{n}/SKILL.md", "s") for n in range(1_000)]
    assert len(catalogue(crowd)) <= CATALOGUE_CHARS_MAX + 500
    assert re.search(r"\d+ more skills are not listed", catalogue(crowd))
    assert catalogue([]) == ""


def test_A2_a_file_that_vanishes_or_changes_is_read_again(folders: ConfigFolders) -> None:
    path = skill(folders.cwd / ".agents/skills", "a")
    files = library(folders)
    [found] = files.all()
    path.write_text("---\nname: a\ndescription: longer than before\n---\nnew")
    assert [one.description for one in files.all()] == ["longer than before"]
    path.unlink()
    assert files.all() == []
    with pytest.raises(ToolError, match="cannot be read"):
        files.body(found)


# --- Commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folder", "style"),
    [*COMMAND_FOLDERS, *((f"~/{name}", style) for name, style in USER_COMMAND_FOLDERS)],
)
def test_A3_commands_of_every_agent_are_found(
    folders: ConfigFolders, folder: str, style: str
) -> None:
    base = (folders.home if folder.startswith("~/") else folders.cwd) / folder.removeprefix("~/")
    ending = "toml" if style == "gemini" else "md"
    text = 'prompt = "Do {{args}}"\n' if style == "gemini" else "# Do it\n\nnow"
    put(base, f"git/commit.{ending}", text)
    found, notes = load(folders)
    names = {
        "claude": "commit",
        "opencode": "git/commit",
        "codex": "prompts:commit",
        "gemini": "git:commit",
    }
    assert list(found) == [names[style]]
    assert found[names[style]].style == style
    assert found[names[style]].description in ("Do it", "Do {{args}}")
    assert not notes


@pytest.mark.parametrize(("name", "text", "note"), [
    ("a.md", "---\n: [\n---\nx", "has a head that is no YAML"),
    ("a.md", "---\ndescription: x\n---\n", "has no text"),
    ("a.md", b"\x7fELF\0\0", "is a binary file"),
    ("a.md", b"\xff\xfe", "is not UTF-8 text"),
])  # fmt: skip
def test_A3_a_bad_command_is_one_line(
    folders: ConfigFolders, name: str, text: str | bytes, note: str
) -> None:
    put(folders.cwd / ".claude/commands", name, text)
    put(folders.cwd / ".gemini/commands", "b.toml", "prompt = ")
    put(folders.cwd / ".gemini/commands", "c.toml", "description = 'x'")
    found, notes = load(folders)
    assert not found
    first, second, third = sorted(notes.splitlines())
    assert note in first
    assert "is no TOML" in second
    assert "has no `prompt`" in third


OPENCODE = r"""{
  // of the project
  "command": {
    "test": {"template": "Run $1, then\n$2 // all", "description": "Run tests", "agent": "build", "subtask": true},
    "git/push": {"template": "Push it",},
    "none": {"description": "x"},
    "odd": 3,
  },
}"""  # noqa: E501


@pytest.mark.parametrize("name", [
    "opencode.json",
    "opencode.jsonc",
    ".opencode/opencode.json",
    "~/.config/opencode/opencode.json",
])  # fmt: skip
def test_A3_commands_in_the_settings_of_opencode(folders: ConfigFolders, name: str) -> None:
    path = put(folders.home if name[0] == "~" else folders.cwd, name.removeprefix("~/"), OPENCODE)
    files = library(folders)
    found = {one.name: one for one in files.all()}
    assert list(found) == ["git/push", "test"]
    told = (found["test"].description, found["test"].style, found["test"].fork)
    assert told == ("Run tests", "opencode", True)
    assert (found["git/push"].description, found["test"].for_model) == ("Push it", False)
    assert files.body(found["test"]).text == "Run $1, then\n$2 // all"
    assert [re.sub("^.*opencode.jsonc?: ", "", line) for line in files.notes] == [
        "command none has no `template`: left out.",
        "command odd has no `template`: left out.",
    ]
    assert bool(load(folders, trusted=False)[0]) is (name[0] == "~")
    path.write_text("{}")
    with pytest.raises(ToolError, match="has no `template`"):
        files.body(found["test"])
    path.write_text("{" * 5_000)
    assert "is no JSON" in load(folders)[1]


def test_A3_a_skill_wins_over_a_command_of_its_name(folders: ConfigFolders) -> None:
    put(folders.cwd / ".claude/commands", "a.md", "command")
    skill(folders.home / ".claude/skills", "a")
    found, notes = load(folders)
    assert found["a"].kind == "skill"
    assert "command a: ~/.claude/skills/a/SKILL.md counts" in notes


def test_A13_plugins_bring_skills_and_commands_under_their_name(folders: ConfigFolders) -> None:
    mine, theirs = folders.home / ".agents/plugins/kit", folders.home / "installed"
    put(mine, "plugin.json", json.dumps({"name": "kit"}))
    skill(mine / "skills", "a", body="at ${CLAUDE_PLUGIN_ROOT}")
    put(mine, "commands/b.md", "b")
    put(theirs, ".claude-plugin/plugin.json", json.dumps({"name": "theirs"}))
    skill(theirs / "skills", "c")
    installed = {
        "version": 2,
        "plugins": {"theirs@market": [{"installPath": str(theirs)}], "x@y": 3},
    }
    put(folders.home, ".claude/plugins/installed_plugins.json", json.dumps(installed))
    assert list(load(folders)[0]) == ["kit:a", "kit:b"]
    put(
        folders.home,
        ".claude/settings.json",
        json.dumps({"enabledPlugins": {"theirs@market": True}}),
    )
    found, _ = load(folders)
    assert list(found) == ["kit:a", "kit:b", "theirs:c"]
    assert dict(found["kit:a"].variables)["CLAUDE_PLUGIN_ROOT"] == str(mine)


# --- Compared with the parsers of others ----------------------------------------------------------


FIELDS = st.dictionaries(
    st.sampled_from(("name", "description", "license", "allowed-tools", "compatibility")),
    st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=1, max_size=20).filter(
        lambda text: (
            not re.fullmatch(
                r"(?i)true|false|null|yes|no|on|off|y|n|[\d_.e]+|0[xob].*|nan|inf", text
            )
        )
    ),
    min_size=1,
)


@given(fields=FIELDS)
@settings(max_examples=60, deadline=None)
def test_heads_that_yaml_writes_are_read_as_yaml_reads_them(fields: dict[str, str]) -> None:
    assert parse_frontmatter(yaml.safe_dump(fields).splitlines()) == fields


@pytest.mark.parametrize("name", ["a", "a-b", "über", "A", "a--b", "-a", "a_b", "n" * 65])
@pytest.mark.parametrize("description", ["fine", "'with: colon'", "x" * 1_025])
def test_A18_3_warnings_are_those_of_the_reference_validator(
    folders: ConfigFolders, name: str, description: str
) -> None:
    if importlib.util.find_spec("skills_ref") is None:
        pytest.skip("skills-ref, the validator of agentskills, is not installed")
    from skills_ref.validator import validate  # type: ignore[import-not-found]

    path = skill(folders.cwd / ".agents/skills", name, description=description)
    found, notes = load(folders)
    assert len(found) == 1
    assert bool(notes) is bool(validate(path.parent))


def test_a_head_that_is_no_yaml_never_raises_anything_else() -> None:
    for text in ("a: [", "a:\n\t- b\n c", "'", '"a', "{" * 99, "? x", "a: |2x", "- - - -"):
        with contextlib.suppress(FrontmatterError):
            parse_frontmatter(text.split("\n"))


def test_a_start_without_skills_opens_no_file(
    folders: ConfigFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    monkeypatch.setattr(os, "open", lambda *given, **_: opened.append(given))
    assert load(folders) == ({}, "")
    assert not opened

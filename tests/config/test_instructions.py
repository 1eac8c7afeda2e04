"""Instruction files: folders, order, imports, and notes about the rest."""

import hashlib
import os
from pathlib import Path

import pytest

from longrein.app.prefix_offer import marked_context
from longrein.config import (
    Instructions,
    describe_environment,
    load_instructions,
    nested_instructions,
)
from longrein.config.instructions import imports, instruction_files, without_comments
from longrein.settings_schema import InstructionOptions, OtherAgentOptions, Settings
from longrein_context.events import framed

PLAIN = Settings()


def trusted(_folder: str) -> bool:
    return True


Tree = dict[str, str | bytes]


def plant(folder: Path, tree: Tree) -> None:
    for name, text in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith("/"):
            path.mkdir(exist_ok=True)
        else:
            path.write_bytes(text if isinstance(text, bytes) else text.encode())


def load(folder: Path, tree: Tree, cwd: str = "repo", settings: Settings = PLAIN) -> Instructions:
    plant(folder, {"repo/.git/": "", f"{cwd}/": "", **tree})
    return load_instructions(str(folder / cwd), str(folder), {}, settings, trusted)


def bodies(found: Instructions) -> list[str]:
    return [text.partition("\n\n")[2] for text in found.texts]


def test_A18_1_root_then_the_override_nearer_to_the_work(tmp_path: Path) -> None:
    tree: Tree = {
        "repo/AGENTS.md": "root",
        "repo/pkg/AGENTS.md": "shadowed",
        "repo/pkg/AGENTS.override.md": "override",
    }
    found = load(tmp_path, tree, "repo/pkg/sub")
    assert found.texts == (
        "Instructions from ~/repo/AGENTS.md:\n\nroot",
        "Instructions from ~/repo/pkg/AGENTS.override.md:\n\noverride",
    )
    told = [s.path for s in found.sources]
    assert told == [f"{tmp_path}/repo/AGENTS.md", f"{tmp_path}/repo/pkg/AGENTS.override.md"]
    assert found.sources[0].hash == hashlib.sha256(b"root").hexdigest()
    assert found.notes == ()


ORDER: list[tuple[Tree, list[str]]] = [
    ({}, []),
    ({"repo/CLAUDE.md": "c"}, ["c"]),
    ({"repo/GEMINI.md": "g"}, ["g"]),
    ({"repo/AGENTS.md": "a", "repo/CLAUDE.md": "c", "repo/GEMINI.md": "g"}, ["a"]),
    ({"repo/AGENTS.md": " \n", "repo/CLAUDE.md": "c"}, ["c"]),
    ({"repo/AGENTS.md": "<!-- only this -->\n", "repo/CLAUDE.md": "c"}, ["c"]),
    (
        {"repo/AGENTS.md": "a", "repo/AGENTS.local.md": "mine", "repo/CLAUDE.local.md": "too"},
        ["a", "mine", "too"],
    ),
    (
        {".config/longrein/AGENTS.md": "own", ".agents/AGENTS.md": "shared", "repo/AGENTS.md": "a"},
        ["own", "shared", "a"],
    ),
    (
        {
            ".claude/CLAUDE.md": "claude",
            ".claude/rules/b.md": "rule b",
            ".claude/rules/deep/a.md": "rule a",
            ".codex/AGENTS.md": "codex",
            ".gemini/GEMINI.md": "gemini",
            ".config/opencode/AGENTS.md": "opencode",
            ".config/longrein/AGENTS.md": "own",
            "repo/AGENTS.md": "a",
        },
        ["claude", "rule b", "rule a", "codex", "gemini", "opencode", "own", "a"],
    ),
    ({".codex/AGENTS.md": "same", ".gemini/GEMINI.md": "same"}, ["same"]),
    ({".codex/AGENTS.md": "c", ".codex/AGENTS.override.md": "mine"}, ["mine"]),
    ({"repo/.claude/CLAUDE.md": "c", "repo/.claude/rules/x/y.md": "r"}, ["c", "r"]),
    ({"repo/AGENTS.md": "a", "repo/.claude/CLAUDE.md": "c"}, ["a"]),
    ({"repo/CLAUDE.md": "c", "repo/.claude/CLAUDE.md": "d"}, ["c"]),
    ({"repo/.claude/rules/x.md": "---\nname: x\n---\nr", "repo/.claude/rules/x.txt": "t"}, ["r"]),
    ({"AGENTS.md": "above the root", "repo/AGENTS.md": "a"}, ["a"]),
    ({"repo/AGENTS.md": "a", "repo/sub/AGENTS.md": "below"}, ["a"]),
    ({"repo/AGENTS.md/": ""}, []),
]


@pytest.mark.parametrize(("tree", "texts"), ORDER)
def test_A1_which_files_are_taken_and_in_which_order(
    tmp_path: Path, tree: Tree, texts: list[str]
) -> None:
    assert bodies(load(tmp_path, tree)) == texts


@pytest.mark.parametrize(("settings", "texts"), [
    (Settings(other_agents=OtherAgentOptions(read=False)), ["p", "r"]),
    (Settings(context=InstructionOptions(("AGENTS.md",))), ["c"]),
])  # fmt: skip
def test_what_is_read_of_other_agents_is_set(
    tmp_path: Path, settings: Settings, texts: list[str]
) -> None:
    tree: Tree = {".claude/CLAUDE.md": "c", "repo/.claude/CLAUDE.md": "p"}
    tree |= {"repo/.claude/rules/r.md": "r"}
    assert bodies(load(tmp_path, tree, settings=settings)) == texts


def test_instructions_for_other_agents_take_no_room_from_nearer_ones(tmp_path: Path) -> None:
    found = load(tmp_path, {".claude/CLAUDE.md": "long\n" * 9_000, "repo/AGENTS.md": "near"})
    assert bodies(found)[0].startswith("long\n")
    assert bodies(found)[1] == "near"
    told = [source.path for source in found.sources]
    assert told == [f"{tmp_path}/.claude/CLAUDE.md", f"{tmp_path}/repo/AGENTS.md"]
    assert found.notes == (
        "~/.claude/CLAUDE.md was cut: instruction files may hold 32768 bytes together.",
    )


def test_rules_for_some_paths_are_named_and_left_out(tmp_path: Path) -> None:
    tree: Tree = {
        "repo/.claude/rules/api.md": "---\npaths: [src/api/**]\n---\nOnly there.",
        "repo/.claude/rules/open.md": "---\npaths: x\n",
        "repo/.claude/rules/z.md": "All.",
    }
    found = load(tmp_path, tree)
    assert bodies(found) == ["All."]
    assert found.notes == (
        "~/repo/.claude/rules/api.md holds for some paths only, not for all files: left out.",
        (
            "~/repo/.claude/rules/open.md line 1: the head that begins here is not closed by a "
            "line of ---: left out."
        ),
    )
    many: Tree = {f"repo/.claude/rules/m{n:02}.md": f"rule {n}" for n in range(60)}
    found = load(tmp_path / "many", many)
    assert len(found.texts) == 50
    assert found.notes == ("~/repo/.claude/rules has more than 50 files: the others are left out.",)


def test_rules_of_a_project_lead_nowhere_else(tmp_path: Path) -> None:
    plant(tmp_path, {"away/r.md": "secret", "repo/.claude/": ""})
    (tmp_path / "repo/.claude/rules").symlink_to(tmp_path / "away")
    found = load(tmp_path, {})
    told = (found.texts, found.notes)
    assert told == ((), ("~/repo/.claude/rules leads out of the project: left out.",))
    assert instruction_files(str(tmp_path / "repo"), str(tmp_path), PLAIN) == []


def test_without_a_root_only_the_present_folder_counts(tmp_path: Path) -> None:
    plant(tmp_path, {"x/AGENTS.md": "above", "x/y/AGENTS.md": "here"})
    found = bodies(load_instructions(f"{tmp_path}/x/y", str(tmp_path), {}, Settings(), trusted))
    assert found == ["here"]


def test_names_come_from_the_settings(tmp_path: Path) -> None:
    settings = Settings(context=InstructionOptions(("TEAM.md",)))
    found = load(
        tmp_path,
        {"repo/AGENTS.md": "a", "repo/TEAM.md": "t", "repo/TEAM.local.md": "l"},
        settings=settings,
    )
    assert bodies(found) == ["t", "l"]


def test_A18_1_too_much_is_cut_with_a_visible_warning(tmp_path: Path) -> None:
    tree: Tree = {"repo/AGENTS.md": "line of text\n" * 4000, "repo/sub/AGENTS.md": "nearest"}
    found = load(tmp_path, tree, "repo/sub")
    assert len(found.texts) == 1
    assert 32_600 < len(found.texts[0]) < 33_000
    assert found.texts[0].endswith(
        "line of text\n[cut here by longrein: instruction files may hold 32768 bytes together]"
    )
    assert found.notes == (
        "~/repo/AGENTS.md was cut: instruction files may hold 32768 bytes together.",
        "~/repo/sub/AGENTS.md was left out: instruction files may hold 32768 bytes together.",
    )
    told = [source.hash for source in found.sources]
    assert told == [hashlib.sha256(b"line of text\n" * 4000).hexdigest()]


@pytest.mark.parametrize(
    "huge", ["repo/AGENTS.md", "repo/sub/AGENTS.local.md", ".agents/AGENTS.md", "repo/sub/notes.md"]
)
def test_a_file_that_never_ends_is_left_out(tmp_path: Path, huge: str) -> None:
    """20 GB of nothing cost a repository nothing, and their hash would take a minute at each
    look.
    """
    plant(tmp_path, {huge: ""})
    os.truncate(tmp_path / huge, 20 << 30)
    found = load(tmp_path, {"repo/sub/CLAUDE.md": "be kind @notes.md"}, "repo/sub")
    assert bodies(found) == ["be kind @notes.md"]
    assert found.notes == (f"~/{huge} is larger than 1 MB: left out.",)


# --- imports --------------------------------------------------------------------------------------

IMPORTS: list[tuple[Tree, list[str]]] = [
    ({"repo/CLAUDE.md": "see @docs/x.md.", "repo/docs/x.md": "x"}, ["see @docs/x.md.", "x"]),
    (
        {"repo/CLAUDE.md": "@docs/x.md", "repo/docs/x.md": "@y.md", "repo/docs/y.md": "y"},
        ["@docs/x.md", "@y.md", "y"],
    ),
    ({"repo/CLAUDE.md": "`@x.md` ``a ` @x.md``", "repo/x.md": "x"}, ["`@x.md` ``a ` @x.md``"]),
    ({"repo/CLAUDE.md": "```\n@x.md\n```", "repo/x.md": "x"}, ["```\n@x.md\n```"]),
    (
        {"repo/CLAUDE.md": "mail ann@x.md or @nobody", "repo/x.md": "x"},
        ["mail ann@x.md or @nobody"],
    ),
    ({"repo/CLAUDE.md": "@self.md", "repo/self.md": "me @self.md"}, ["@self.md", "me @self.md"]),
    ({"repo/CLAUDE.md": "@x.md @x.md @./x.md", "repo/x.md": "x"}, ["@x.md @x.md @./x.md", "x"]),
    ({"repo/CLAUDE.md": "@README", "repo/README": "r"}, ["@README", "r"]),
    ({".config/longrein/AGENTS.md": "@~/notes.md", "notes.md": "n"}, ["@~/notes.md", "n"]),
]


@pytest.mark.parametrize(("tree", "texts"), IMPORTS)
def test_A18_2_imports(tmp_path: Path, tree: Tree, texts: list[str]) -> None:
    found = load(tmp_path, tree)
    assert (bodies(found), found.notes) == (texts, ())


def test_an_import_says_by_whom(tmp_path: Path) -> None:
    found = load(tmp_path, {"repo/CLAUDE.md": "@x.md", "repo/x.md": "x"})
    assert found.texts[1] == "Instructions from ~/repo/x.md, imported by ~/repo/CLAUDE.md:\n\nx"


def test_A18_2_imports_go_four_deep(tmp_path: Path) -> None:
    tree: Tree = {f"repo/{i}.md": f"@{i + 1}.md" for i in range(9)}
    found = load(tmp_path, {"repo/CLAUDE.md": "@0.md", **tree})
    assert len(found.texts) == 5
    assert found.notes == ("~/repo/3.md: @4.md is more than 4 imports deep: left out.",)


@pytest.mark.parametrize("name", ["~/secret", "../secret", "link"])
def test_S033_nothing_outside_the_project_comes_in(tmp_path: Path, name: str) -> None:
    plant(tmp_path, {"secret": "canary", "repo/": ""})
    (tmp_path / "repo/link").symlink_to(tmp_path / "secret")
    found = load(tmp_path, {"repo/AGENTS.md": f"@{name}"})
    assert bodies(found) == [f"@{name}"]
    shown = {"link": "~/repo/link"}.get(name, "~/secret")
    told = found.notes
    assert told == (f"{shown} leads out of the project (imported by ~/repo/AGENTS.md): left out.",)


def test_S033_an_instruction_file_that_is_a_link_out_is_left_out(tmp_path: Path) -> None:
    plant(tmp_path, {"secret": "canary", "repo/.git/": ""})
    (tmp_path / "repo/AGENTS.md").symlink_to(tmp_path / "secret")
    (tmp_path / "repo/CLAUDE.md").symlink_to("GEMINI.md")
    found = load(tmp_path, {"repo/GEMINI.md": "inside"})
    assert bodies(found) == ["inside"]
    assert found.notes == ("~/repo/AGENTS.md leads out of the project: left out.",)


def test_S077_characters_that_cannot_be_seen_are_written_out(tmp_path: Path) -> None:
    found = load(
        tmp_path, {"repo/AGENTS.md": "do \U000e0041\u202e\u200b this\r\n日本語 👩\u200d💻"}
    )
    assert bodies(found) == ["do \\U000e0041\\u202e\\u200b this\n日本語 👩\u200d💻"]
    assert found.notes == (
        "~/repo/AGENTS.md holds characters that cannot be seen: they are written out as \\u….",
    )


def test_bytes_that_are_no_text_do_not_stop_the_start(tmp_path: Path) -> None:
    assert bodies(load(tmp_path, {"repo/AGENTS.md": b"\xef\xbb\xbfa\xff b"})) == ["a\ufffd b"]


COMMENTS = [
    ("a\n<!-- x -->\nb", "a\nb"),
    ("<!-- x\ny\n-->\nb", "b"),
    ("a <!-- x --> b", "a <!-- x --> b"),
    ("```\n<!-- x -->\n```\n", "```\n<!-- x -->\n```\n"),
    ("~~~~\n```\n~~~\n<!-- x -->\n~~~~\n<!-- y -->\n", "~~~~\n```\n~~~\n<!-- x -->\n~~~~\n"),
    ("<!-- open\nb", "<!-- open\nb"),
    ("<!-- x --> rest\n", " rest\n"),
]


@pytest.mark.parametrize(("text", "clean"), COMMENTS)
def test_comments_are_not_for_the_model(text: str, clean: str) -> None:
    assert without_comments(text) == clean


def test_import_paths_are_read_as_prose() -> None:
    text = "@a.md, (@b/c.md) @../d.md @/abs.md\n\n    @indented.md\n@x@y"
    assert list(imports(text)) == ["a.md", "b/c.md", "../d.md", "/abs.md", "indented.md", "x"]


# --- later ----------------------------------------------------------------------------------------


def test_nested_files_come_when_their_folder_is_touched_and_only_once(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "repo/.git/": "",
            "repo/AGENTS.md": "root",
            "repo/a/AGENTS.md": "a",
            "repo/a/b/CLAUDE.md": "b",
        },
    )
    root, home = f"{tmp_path}/repo", str(tmp_path)
    start = load_instructions(root, home, {}, Settings(), trusted)
    known = {source.path for source in start.sources}
    first = nested_instructions(f"{root}/a/b", root, known, home, Settings(), trusted)
    assert bodies(first) == ["a", "b"]
    known |= {source.path for source in first.sources}
    found = nested_instructions(f"{root}/a/b", root, known, home, Settings(), trusted)
    assert found == Instructions()
    found = nested_instructions(f"{tmp_path}/repo-evil", root, (), home, Settings(), trusted)
    assert found == Instructions()
    assert nested_instructions(root, root, known, home, Settings(), trusted) == Instructions()


def test_a_folder_below_thousands_that_are_not_there_is_looked_at_in_no_time(
    tmp_path: Path,
) -> None:
    plant(tmp_path, {"repo/.git/": "", "repo/a/AGENTS.md": "a"})
    root = f"{tmp_path}/repo"
    assert bodies(
        nested_instructions(root + "/a" * 20_000, root, (), str(tmp_path), Settings(), trusted)
    ) == ["a"]


def test_the_environment_is_a_text_of_values() -> None:
    assert describe_environment(
        cwd="/w",
        roots=("/w", "/x"),
        platform="Linux",
        day="2026-11-21",
        branch="main",
        shell="bash",
    ) == (
        "Environment:\nCurrent folder: /w\nFurther folders of the session: /x\nGit branch at the "
        "start: main\nPlatform: Linux\nShell: bash\nDay the session started: 2026-11-21"
    )


def test_a_session_of_an_earlier_longrein_gets_the_marks_that_its_system_prompt_speaks_of() -> None:
    old = ("Environment:\nPlatform: Linux", "Instructions from a.md:\n\nTabs.", "Skills: …")
    environment, *others = marked_context(old, "0n")
    assert environment.splitlines() == [
        "[longrein:0n environment]",
        "Notes of longrein in this session begin with [longrein:0n",
        *old[0].splitlines(),
        "[longrein:0n end]",
    ]
    assert others == [framed("0n", "instructions", old[1]), framed("0n", "skills", old[2])]
    assert marked_context((environment, *others), "0n") == (environment, *others)


def test_a_folder_of_the_name_of_an_instruction_file_is_told(tmp_path: Path) -> None:
    found = load(tmp_path, {"repo/AGENTS.md/": "", "repo/CLAUDE.md": "Be brief."})
    assert bodies(found) == ["Be brief."]
    assert found.notes == ("~/repo/AGENTS.md is a folder: left out.",)

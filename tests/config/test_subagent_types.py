"""Subagent types from files: formats (A5), folders, precedence, and notes about files left out."""

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.agent import builtin_kinds, subagent_system
from longrein.config import load_subagent_types, subagent_model
from longrein.config.frontmatter import FrontmatterError, parse_frontmatter, split_frontmatter
from longrein.settings_schema import Settings
from longrein.tools import SubagentType, own_tools
from longrein_context.events import UsageError
from tests.config.conftest import ConfigFolders

BUILT_IN = ("general", "explore", "plan", "synthesis")
TOOLS = own_tools()


def put(folder: Path, name: str, text: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(
    folders: ConfigFolders, *, trusted: bool = True, given: str = "", cwd: Path | None = None
) -> tuple[dict[str, SubagentType], tuple[str, ...]]:
    kinds, notes = load_subagent_types(
        builtin_kinds(),
        str(cwd or folders.cwd),
        str(folders.home),
        {},
        trusted=lambda _folder: trusted,
        given=given,
        known_tools=TOOLS,
    )
    return {kind.name: kind for kind in kinds}, notes


def one(
    folders: ConfigFolders, text: str | bytes, name: str = "x.md"
) -> tuple[SubagentType | None, tuple[str, ...]]:
    """The only type of a project with one file."""
    put(folders.cwd / ".claude/agents", name, text)
    kinds, notes = load(folders)
    own = [kind for name, kind in kinds.items() if name not in BUILT_IN]
    return (own[0] if own else None), notes


# --- files ----------------------------------------------------------------------------------------


def test_A18_11_all_the_usual_ways_of_writing_one(folders: ConfigFolders) -> None:
    folder = folders.cwd / ".claude/agents"
    put(
        folder,
        "a.md",
        "---\nname: comma\ndescription: Looks: reads only\ntools: Read, Grep\n---\nYou look.\n",
    )
    put(
        folder,
        "deep/er/b.md",
        "---\nname: listed\ndescription: x\ntools:\n  - Read\n  - Grep\n---\nYou look.\n",
    )
    put(folder, "stem-name.md", "---\ndescription: no name, so the file's\n---\nbody\n")
    put(folder, "c.md", "---\nname: odd\ndescription: x\nnobody-knows: 1\ncolor: cyan\n---\nbody\n")
    put(folder, "d.md", "---\nname: mute\ntools: Read\n---\nbody\n")
    kinds, notes = load(folders)
    assert tuple(kinds) == (*BUILT_IN, "comma", "listed", "odd", "stem-name")
    assert kinds["comma"].description == "Looks: reads only"
    assert kinds["comma"].tools == kinds["listed"].tools == ("Read", "Grep")
    assert kinds["comma"].spawns == (), "a list of tools without Agent starts none"
    assert (kinds["odd"].tools, kinds["odd"].spawns) == (None, ("*",))
    assert kinds["comma"].system == "You look."
    assert notes == (
        "~/repo/.claude/agents/d.md: has no description, which says when to use it: left out.",
    )


STEPS = "steps: 7\ntools:\n  write: false\n  bash: false"
DENIES = "permission:\n  edit: deny\n  bash:\n    '*': deny\n    x: allow"
GEMINI_HEAD = "kind: local\nmax_turns: 9\ntools:\n  - read_file\n  - grep_search\n  - mcp_*"
CODER = {"tools": ("Read", "Bash"), "spawns": ("coder",)}
FIELDS: list[tuple[str, dict[str, Any], str]] = [
    ("tools: [Read, 'Grep', \"Glob\"]", {"tools": ("Read", "Grep", "Glob")}, ""),
    ("tools: '*'", {"tools": None}, ""),
    ("tools: Read, Agent(explore, plan)", {"tools": ("Read",), "spawns": ("explore", "plan")}, ""),
    ("tools: [Read, Task]", {"tools": ("Read",), "spawns": ("*",)}, ""),
    ("tools: [mcp__github, mcp__x__y]", {"tools": ("mcp__github__*", "mcp__x__y")}, ""),
    ("tools: Read, Bash(git *)", {"tools": ("Read",)}, "'Bash(git *)' narrows a tool"),
    ("tools: Read, Telepathy", {"tools": ("Read", "Telepathy")}, "not here: Telepathy (x)."),
    ("disallowedTools: Bash, Edit", {"tools": None, "without": ("Bash", "Edit")}, ""),
    ("disallowedTools:\n- Agent", {"spawns": ()}, ""),
    ("model: inherit", {"model": ""}, ""),
    ("model: haiku", {"model": "haiku"}, ""),
    ("permissionMode: plan", {"mode": "plan"}, ""),
    ("permissionMode: dontAsk", {"mode": "dontAsk"}, ""),
    ("permissionMode: hm", {"mode": "default"}, "permissionMode 'hm' is not known here"),
    ("maxTurns: 12", {"turns_max": 12}, ""),
    ("maxTurns: many", {"turns_max": 0}, "maxTurns 'many' is no number from 1 to 1000"),
    ("maxTurns: -3", {"turns_max": 0}, "maxTurns -3 is no number"),
    ('max_turns: " 12 "', {"turns_max": 12}, ""),
    ("maxTurns: '1e9'", {"turns_max": 0}, "maxTurns '1e9' is no number from 1 to 1000"),
    ("maxTurns: true", {"turns_max": 0}, "maxTurns True is no number from 1 to 1000"),
    ("maxTurns: 2.5", {"turns_max": 0}, "maxTurns 2.5 is no number from 1 to 1000"),
    ("background: true", {"background": True}, ""),
    ('background: "true"', {"background": True}, ""),
    ("background: 'False'", {"background": False}, ""),
    ("background: maybe", {"background": False}, "neither true nor false: it counts as false."),
    ("background: 1", {"background": False}, "background 1 is neither true nor false"),
    ("tools:\n  '*': 'false'\n  read: \"true\"", {"tools": ("Read",)}, ""),
    ("isolation: worktree", {"worktree": True}, ""),
    ("isolation: remote", {"worktree": False}, "isolation 'remote' is not known here"),
    # --- opencode
    (STEPS, {"without": ("Write", "Bash"), "turns_max": 7}, ""),
    ("tools:\n  '*': false\n  read: true", {"tools": ("Read",)}, ""),
    (DENIES, {"without": ("Edit", "Bash", "Write", "apply_patch")}, ""),
    ("mode: subagent\ntemperature: 0.1\ntop_p: 0.9\nhidden: true", {}, ""),
    # --- gemini
    (GEMINI_HEAD, {"turns_max": 9}, ""),
    ("tools: ['*']\ntimeout_mins: 5\ndisplay_name: X", {"tools": None}, ""),
    # --- kimi
    ("tools: [ReadFile, Shell]\nsubagents:\n  - coder", CODER, ""),
]


@pytest.mark.parametrize(("head", "wanted", "said"), FIELDS, ids=lambda value: str(value)[:30])
def test_A5_fields(folders: ConfigFolders, head: str, wanted: dict[str, Any], said: str) -> None:
    kind, notes = one(folders, f"---\ndescription: d\n{head}\n---\nbody")
    assert kind is not None, notes
    assert {name: getattr(kind, name) for name in wanted} == wanted
    assert said in "\n".join(notes), notes
    assert bool(notes) == bool(said), notes


LEFT_OUT: list[tuple[str | bytes, str]] = [
    ("no head at all", "has no description"),
    ("---\nname: x\ndescription: ''\n---\n", "has no description"),
    ("---\nname: x\ndescription: d\n", "line 1: the head that begins here is not closed by a line"),
    ("---\nname: x\ndescription: d\nwhat is this\n---\n", "a simple key: could not find expected"),
    ('---\nname: x\ndescription: "d\n---\n', "line 3: while scanning a quoted scalar: found"),
    ("---\ntools: [Read\ndescription: d\n---\n", "line 3: while parsing a flow sequence: did not"),
    ("---\n- a\n- b\n---\n", "line 2: the head is not fields with names"),
    ("---\nname: &x y\ndescription: d\n---\n", "line 2: an alias, anchor or tag is not read here"),
    ("---\nname: x\n   description: d\nmore: 1\n---\n", ""),
    (b"---\nname: \xff\n---\n", "is not UTF-8 text"),
    (b"---\n" + b"x" * 300_000, "is larger than 256 kB"),
    ("---\ndescription: d\nname: a(b)\n---\n", "'a(b)' is no name for a type"),
    (f"---\ndescription: d\nname: {'n' * 65}\n---\n", "is no name for a type"),
    ("---\ndescription: d\nmode: primary\n---\n", "is of mode primary, not a subagent"),
    ("---\ndescription: d\nkind: remote\n---\n", "is of kind 'remote', which is not run here"),
]


@pytest.mark.parametrize(("text", "said"), LEFT_OUT, ids=lambda value: str(value)[-30:])
def test_A5_what_cannot_be_taken_is_left_out_with_the_file_and_the_reason(
    folders: ConfigFolders, text: str | bytes, said: str
) -> None:
    kind, notes = one(folders, text)
    if not said:
        return  # continued text: lenient, nothing to say
    assert kind is None
    assert len(notes) == 1
    assert notes[0].startswith("~/repo/.claude/agents/x.md: ")
    assert said in notes[0]
    assert "\n" not in notes[0]


def test_a_disabled_one_is_left_out_without_a_word(folders: ConfigFolders) -> None:
    assert one(folders, "---\ndescription: d\ndisable: true\n---\n") == (None, ())


def test_what_is_not_obeyed_yet_is_said_once_for_all_files(folders: ConfigFolders) -> None:
    for name in ("a", "b"):
        put(
            folders.cwd / ".claude/agents",
            f"{name}.md",
            "---\ndescription: d\neffort: low\nmemory: user\n---\n",
        )
    put(
        folders.cwd / ".claude/agents",
        "c.md",
        "---\ndescription: d\nhooks:\n  Stop:\n  - hooks:\n    - type: x\n---\n",
    )
    hook, *others = load(folders)[1]
    assert others == ["Not obeyed here yet, in files of subagents: memory (a, b); effort (a, b)."]
    assert "a hook of Stop is of type 'x', which longrein does not run" in hook


def test_the_text_stands_in_place_of_the_default_one_and_may_bring_it_in(
    folders: ConfigFolders,
) -> None:
    kind, _ = one(folders, "---\ndescription: d\n---\n\nYou review.\n\n${base_prompt}\nBe kind.\n")
    assert kind is not None
    text = subagent_system(kind, ["Read"])
    assert text.startswith(
        "You review.\n\nYou are a subagent of longrein, a coding agent working on"
    )
    assert "Be kind.\n\n# Your place\n" in text
    assert "# What the harness tells you\n- Your context is managed" in text
    assert "${base_prompt}" not in text


def test_S077_what_cannot_be_seen_is_written_out(folders: ConfigFolders) -> None:
    kind, notes = one(folders, "---\ndescription: d\u202e\n---\nbe\u200bhave \U000e0041")
    assert kind.description == "d\\u202e"
    assert kind.system.isprintable()
    assert "holds characters that cannot be seen" in notes[0]


def test_a_long_description_is_cut_since_it_stands_in_every_request(folders: ConfigFolders) -> None:
    kind, _ = one(folders, "---\ndescription: " + r"word\n" * 500 + "\n---\n")
    assert (len(kind.description), kind.description[:9]) == (500, "word word")


# --- where they are found, and who wins -----------------------------------------------------------


def test_A5_the_nearest_wins(folders: ConfigFolders) -> None:
    (folders.cwd / ".git").mkdir()
    below = folders.cwd / "pkg" / "sub"
    below.mkdir(parents=True)

    def write(folder: Path, place: str) -> None:
        put(folder / place, "r.md", f"---\nname: r\ndescription: {folder.name}/{place}\n---\n")

    def now(given: str = "") -> str:
        return load(folders, cwd=below, given=given)[0]["r"].description

    write(folders.home, ".claude/agents")
    assert now() == "home/.claude/agents"
    write(folders.home, ".agents/agents")
    assert now() == "home/.agents/agents"
    write(folders.home, ".config/longrein/agents")
    assert now() == "home/.config/longrein/agents"
    write(folders.cwd, ".claude/agents")
    assert now() == "repo/.claude/agents"
    write(folders.cwd / "pkg", ".claude/agents")
    assert now() == "pkg/.claude/agents"
    write(below, ".agents/agents")
    assert now() == "sub/.agents/agents"
    write(below, ".longrein/agents")
    assert now() == "sub/.longrein/agents"
    assert now('{"r": {"description": "flag"}}') == "flag"


def test_folders_above_the_project_are_not_looked_at(folders: ConfigFolders) -> None:
    (folders.cwd / ".git").mkdir()
    put(folders.home / "x/.claude/agents", "a.md", "---\ndescription: d\n---\n")
    put(folders.cwd.parent / ".longrein/agents", "b.md", "---\ndescription: d\n---\n")
    assert tuple(load(folders)[0]) == BUILT_IN


def test_a_projects_files_count_only_where_it_is_trusted(folders: ConfigFolders) -> None:
    put(folders.cwd / ".claude/agents", "a.md", "---\nname: a\ndescription: d\n---\n")
    put(folders.home / ".claude/agents", "b.md", "---\nname: b\ndescription: d\n---\n")
    kinds, notes = load(folders, trusted=False)
    assert tuple(kinds) == (*BUILT_IN, "b")
    assert notes == ()


def test_a_file_of_the_project_does_not_lead_out_of_it(folders: ConfigFolders) -> None:
    secret = put(folders.home, "secret.md", "---\ndescription: d\n---\nsecret")
    (folders.cwd / ".claude/agents").mkdir(parents=True)
    (folders.cwd / ".claude/agents/s.md").symlink_to(secret)
    kinds, notes = load(folders)
    assert tuple(kinds) == BUILT_IN
    assert notes == ("~/repo/.claude/agents/s.md leads out of the project: left out.",)


def test_a_file_to_which_several_links_lead_is_read_and_told_of_once(
    folders: ConfigFolders,
) -> None:
    folder = folders.cwd / ".claude/agents"
    put(folder, "a.md", "---\nname: a\ndescription: d\n---\n")
    put(folder, "bad.md", "no head")
    (folder / "again").symlink_to(folder)
    (folder / "z.md").symlink_to(folder / "a.md")
    (folders.cwd / ".agents").mkdir()
    (folders.cwd / ".agents/agents").symlink_to(folder)
    kinds, notes = load(folders)
    assert tuple(kinds) == (*BUILT_IN, "a")
    told = "bad.md: has no description, which says when to use it: left out."
    assert notes == (f"~/repo/.agents/agents/{told}",)


def test_a_built_in_type_can_be_replaced_and_keeps_its_place(folders: ConfigFolders) -> None:
    kind, _ = one(folders, "---\nname: explore\ndescription: mine\n---\nYou look my way.")
    assert kind is None
    kinds, _ = load(folders)
    assert (tuple(kinds), kinds["explore"].description) == (BUILT_IN, "mine")


def test_two_of_one_name_in_one_folder_are_told(folders: ConfigFolders) -> None:
    for name in ("a", "b"):
        put(
            folders.cwd / ".claude/agents",
            f"{name}.md",
            f"---\nname: same\ndescription: {name}\n---\n",
        )
    kinds, notes = load(folders)
    assert kinds["same"].description == "a"
    found = ("~/repo/.claude/agents/b.md: 'same' is in ~/repo/.claude/agents/a.md too: left out.",)
    assert notes == found


def test_A5_agents_on_the_command_line(folders: ConfigFolders) -> None:
    given = json.dumps(
        {"r": {"description": "d", "prompt": "You review.", "tools": ["Read"], "model": "haiku"}}
    )
    kind = load(folders, given=given)[0]["r"]
    found = (kind.system, kind.tools, kind.model, kind.source)
    assert found == ("You review.", ("Read",), "haiku", "--agents r")
    assert load(folders, given='{"r": {"prompt": "x"}}')[1][0].startswith(
        "--agents r: has no description"
    )


@pytest.mark.parametrize("text", ["", "x", "[]", '{"a": 1}', "{", '"\\ud800"'])
def test_agents_on_the_command_line_that_are_no_object(folders: ConfigFolders, text: str) -> None:
    if not text:
        assert tuple(load(folders, given=text)[0]) == BUILT_IN
        return
    with pytest.raises(UsageError, match="--agents wants a JSON object such as"):
        load(folders, given=text)


# --- the head -------------------------------------------------------------------------------------

HEADS: list[tuple[str, dict[str, Any]]] = [
    ("a: b: c", {"a": "b: c"}),
    ('a: it\'s "so" # really', {"a": 'it\'s "so"'}),
    ("a: see #12", {"a": "see #12"}),
    ("a: 'it''s'", {"a": "it's"}),
    (r'a: "C:\Users\x \ud83d"', {"a": r"C:\Users\x \ud83d"}),
    ('a: "x\\n\\"y\\" \\u00e9"', {"a": 'x\n"y" é'}),
    ('a: "quoted" and not', {"a": '"quoted" and not'}),
    ('a: "over\n  lines"', {"a": "over lines"}),
    ("a: one\n  two\n\n  three", {"a": "one two\nthree"}),
    ("a:\n  one\n  two", {"a": "one two"}),
    ("a: |\n  x\n    y\n\n  z\nb: 1", {"a": "x\n  y\n\nz\n", "b": 1}),
    ("a: >-\n  x\n  y\n\n  z", {"a": "x y\nz"}),
    ("a: |-\n  # no comment", {"a": "# no comment"}),
    ("a: true\nb: False\nc: null", {"a": True, "b": False, "c": None}),
    ("d: 1.5\ne: -2\nf: no", {"d": 1.5, "e": -2, "f": "no"}),
    ("a: '1'\nb: \"true\"", {"a": "1", "b": "true"}),
    ("a: [x, 'y, z', 1]", {"a": ["x", "y, z", 1]}),
    ("a: [\n  x,\n  y,\n]", {"a": ["x", "y"]}),
    ("a: {b: true, c: [1, 2]}", {"a": {"b": True, "c": [1, 2]}}),
    ("a:\n- x\n- y: 1\n  z: 2", {"a": ["x", {"y": 1, "z": 2}]}),
    ("a:\n  b:\n    c: d\n  e: f", {"a": {"b": {"c": "d"}, "e": "f"}}),
    ("a: *\n'b c': d\n# comment\n\ne:", {"a": "*", "b c": "d", "e": None}),
    ("a: [Agent(b, c), d]", {"a": ["Agent(b, c)", "d"]}),
    ("a: [b] [c]\nd: {{x}}", {"a": "[b] [c]", "d": "{{x}}"}),
    ("a:\n  - **/*.py\n  - b\nc: [*.ts, d]", {"a": ["**/*.py", "b"], "c": ["*.ts", "d"]}),
    ("a: 2024-01-01\nb: 0x10\nc: yes", {"a": "2024-01-01", "b": "0x10", "c": "yes"}),
    ("", {}),
]


@pytest.mark.parametrize(("text", "wanted"), HEADS, ids=lambda value: str(value)[:24])
def test_heads(text: str, wanted: dict[str, Any]) -> None:
    assert parse_frontmatter(text.split("\n")) == wanted


LARGE = {
    "deep list": "a: " + "[" * 200_000,
    "deep map": "\n".join(" " * depth + "a:" for depth in range(600)),
    "aliases": "a: &a [x, x]\nb: [*a , *a ]",
    "half a character": "a: \ud800",
}


@pytest.mark.parametrize("text", LARGE.values(), ids=LARGE)
def test_a_head_that_costs_too_much_is_refused(text: str) -> None:
    with pytest.raises(FrontmatterError, match=r"^line 1"):
        parse_frontmatter(text.split("\n"))


@pytest.mark.parametrize("one", ["[*a,", "x\\", "'x''", " # ", ": ", "- ", " ", "\t"])
def test_the_time_of_a_head_grows_with_its_size_alone(one: str) -> None:
    started = time.process_time()
    for start in ("a: ", 'a: "', "a: [", ""):
        with contextlib.suppress(FrontmatterError):
            parse_frontmatter([start + one * (250_000 // len(one))])
    assert time.process_time() - started < 20, "half a second where nothing is quadratic"


def test_the_ends_of_lines_and_a_byte_order_mark_do_not_matter() -> None:
    assert split_frontmatter("\ufeff---\r\na: b\r\n---\r\nbody\r\n") == ({"a": "b"}, "body")


@given(st.text(alphabet="ab:-#|>[]{}'\", \n\t~*&", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    why = ""
    try:
        fields, body = split_frontmatter(f"---\n{text}\n---\nrest")
        msgspec.json.encode(fields)
        assert body.endswith("rest")
    except FrontmatterError as bad:
        why = str(bad)
    assert not why or why.startswith("line ")


# --- models ---------------------------------------------------------------------------------------

SETTINGS = """
model = "mock/large-1"
[providers.mock]
wire = "openai-chat"
base_url = "http://127.0.0.1:1/v1"
[models."mock/tiny-haiku-1"]
window = 1000
[models."mock/tiny-haiku-3"]
window = 1000
"""
PARENT = "anthropic/claude-opus-4-5"

KEY = {"ANTHROPIC_API_KEY": "k"}
OURS = {"LONGREIN_SUBAGENT_MODEL": "mock/a"}
CLAUDES = "CLAUDE_CODE_SUBAGENT_MODEL"
MODELS: list[tuple[str, str, dict[str, str], str, str]] = [
    # asked, parent, environment, gets, is told
    ("", PARENT, {}, "", ""),
    ("inherit", PARENT, {}, "", ""),
    ("haiku", "mock/large-1", {}, "mock/tiny-haiku-3", ""),
    ("haiku", PARENT, KEY, "mock/tiny-haiku-3", ""),
    ("sonnet", PARENT, KEY, "anthropic/claude-sonnet-5-5", ""),
    ("claude-sonnet-4-5", PARENT, KEY, "anthropic/claude-sonnet-4-5", ""),
    ("sonnet", "mock/large-1", {}, "", "is called 'sonnet'; it runs on the model of its parent"),
    ("haiku", "ollama/x", {}, "mock/tiny-haiku-3", ""),
    ("mock/other", PARENT, {}, "mock/other", ""),
    ("openai/gpt-9", PARENT, {}, "", "No key for openai"),
    ("nobody/x", PARENT, {}, "", "Unknown provider 'nobody'"),
    ("haiku", PARENT, OURS, "mock/a", "haiku is not used: LONGREIN_SUBAGENT_MODEL says"),
    ("", PARENT, {CLAUDES: "haiku"}, "mock/tiny-haiku-3", ""),
    ("", PARENT, {**OURS, CLAUDES: "mock/b"}, "mock/a", ""),
    ("mock/a", PARENT, {CLAUDES: "inherit"}, "", f"{CLAUDES} says inherit"),
]


@pytest.mark.parametrize(("asked", "parent", "environ", "gets", "told"), MODELS)
def test_A5_models(
    folders: ConfigFolders, asked: str, parent: str, environ: dict[str, str], gets: str, told: str
) -> None:
    settings: Settings = folders.user(SETTINGS).load()
    name, note = subagent_model(asked, parent, settings, environ)
    assert name == gets
    assert told in note
    assert bool(note) == bool(told), note

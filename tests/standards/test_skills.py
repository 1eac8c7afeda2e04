"""A2 SKILL.md: heads that YAML writes, read by pi, Gemini CLI, kimi, deepagents, OpenHands,
Codex and skills-ref.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config import SkillFiles
from longrein.config.frontmatter import split_frontmatter
from longrein.tools import SkillInfo
from tests.tables import cases

from .peers import AGENTS, CODEX, GEMINI, KIMI, PI, ask, codex_request, needs

NAMES = st.from_regex(r"[a-z]{1,6}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
WORDS = st.lists(
    st.sampled_from(
        [
            "Use",
            "it",
            "for: all",
            "a 'quoted' word",
            'say "hi"',
            "x:y",
            "- dash",
            "#12",
            "50%",
            "[a]",
            "{b}",
            "`c`",
            "größer",
            "☃",
            "@home",
            "!now",
            "&co",
            "*bold*",
            "|",
            ">",
            "?",
            "a, b",
            "\\n",
            "http://a/b",
            "null",
            "12",
        ]
    ),
    min_size=1,
    max_size=8,
)
HEADS = st.fixed_dictionaries(
    {"name": NAMES, "description": WORDS.map(" ".join)},
    optional={
        "license": st.just("MIT"),
        "compatibility": WORDS.map(" ".join),
        "metadata": st.dictionaries(NAMES, WORDS.map(" ".join), min_size=1, max_size=3),
        "allowed-tools": st.lists(st.sampled_from(["Read", "Bash(git:*)", "Grep"]), min_size=1).map(
            " ".join
        ),
    },
)
STYLES = st.sampled_from([None, "'", '"', "|", ">"])
WIDTHS = st.sampled_from([20, 80, 10_000])


def file_text(head: dict[str, Any], style: str | None, width: int, body: str = "Do it.") -> str:
    dumped = yaml.safe_dump(
        head, default_style=style, width=width, allow_unicode=True, sort_keys=False
    )
    return f"---\n{dumped}---\n\n{body}\n"


@contextmanager
def planted(name: str, text: str, owner: str = "repo") -> Iterator[tuple[Path, SkillInfo, str]]:
    """Yield (path, the skill as longrein reads it, its notes) of a skill in a project, or of the
    user with the owner `.`.
    """
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        path = home / owner / f".agents/skills/{name}/SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(text)
        (home / "repo/.git").mkdir(parents=True)
        files = SkillFiles(str(home / "repo"), str(home), {}, lambda _: True)
        found = files.all()
        assert len(found) == 1, (files.notes, text)
        yield path, found[0], "\n".join(files.notes)


def plain(text: str) -> str:
    """A text without its line breaks: agents differ in the blanks of folded text."""
    return " ".join(text.split())


@given(head=HEADS, style=STYLES, width=WIDTHS)
@settings(max_examples=200, deadline=None)
def test_A2_every_field_is_read_as_yaml(
    head: dict[str, Any], style: str | None, width: int
) -> None:
    text = file_text(head, style, width)
    fields, body = split_frontmatter(text)
    assert (fields, body) == (yaml.safe_load(text.split("---\n")[1]), "Do it."), text


READERS = [
    pytest.param("pi_skills", marks=needs(PI)),
    pytest.param("gemini_skill", marks=needs(GEMINI)),
    pytest.param("kimi_skill", marks=needs(KIMI)),
    pytest.param("deepagents_skill", marks=needs(AGENTS)),
    pytest.param("openhands_skill", marks=needs(AGENTS)),
]


@pytest.mark.parametrize("reader", READERS)
@given(head=HEADS, style=STYLES, width=WIDTHS)
@settings(max_examples=40, deadline=None)
def test_A2_others_read_the_same_name_and_description(
    reader: str, head: dict[str, Any], style: str | None, width: int
) -> None:
    text = file_text(head, style, width)
    with planted(head["name"], text) as (path, skill, _):
        theirs = ask(reader, str(path.parent if reader == "pi_skills" else path))
        name, description = (theirs[0] if reader == "pi_skills" else theirs)[:2]
        assert (skill.name, plain(skill.description)) == (name, plain(description)), text


@needs(AGENTS)
@given(head=HEADS, style=STYLES)
@settings(max_examples=40, deadline=None)
def test_A2_deepagents_reads_same_allowed_tools(head: dict[str, Any], style: str | None) -> None:
    text = file_text(head, style, 80)
    with planted(head["name"], text, owner=".") as (path, skill, _):
        assert list(skill.allowed_tools) == ask("deepagents_skill", str(path))[2]
    with planted(head["name"], text) as (_, skill, _):
        assert skill.allowed_tools == ()  # a project allows itself nothing


@needs(GEMINI)
@cases(
    "description",
    "Does a thing: well",
    "a: b: c",
    "Use when: the user asks",
    "note: 'quoted' here",
    "tests, e.g.: pytest",
)
def test_A18_3_gemini_also_reads_an_unquoted_colon(description: str) -> None:
    with planted("a", f"---\nname: a\ndescription: {description}\n---\nbody\n") as (path, skill, _):
        assert (
            [skill.name, skill.description]
            == ask("gemini_skill", str(path))[:2]
            == ["a", description]
        )


@given(head=HEADS, style=STYLES, name=st.sampled_from(["", "-", "A", "x" * 65, "--", "_"]))
@settings(max_examples=40, deadline=None)
def test_A2_a_note_is_told_where_the_reference_validator_objects(
    head: dict[str, Any], style: str | None, name: str
) -> None:
    pytest.importorskip("skills_ref", reason="skills-ref comes with `make library`")
    from skills_ref.validator import validate  # type: ignore[import-not-found]

    folder = head["name"]
    head["name"] += name
    if not re.fullmatch(r"[\w.-]+", head["name"]):
        return
    with planted(folder, file_text(head, style, 80)) as (path, _, notes):
        about_form = [
            note for note in notes.splitlines() if "because it belongs to the project" not in note
        ]
        assert bool(about_form) is bool(validate(path.parent)), (notes, validate(path.parent))


@needs(CODEX)
@given(heads=st.lists(HEADS, min_size=1, max_size=6, unique_by=lambda head: head["name"]))
@settings(max_examples=8, deadline=None)
def test_A2_codex_offers_the_same_catalogue(heads: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        (home / "repo/.git").mkdir(parents=True)
        for head in heads:
            path = home / f"repo/.agents/skills/{head['name']}/SKILL.md"
            path.parent.mkdir(parents=True)
            path.write_text(file_text(head, None, 80))
        files = SkillFiles(str(home / "repo"), str(home), {}, lambda _: True)
        ours = {(skill.name, plain(skill.description)) for skill in files.all()}
        offered = next(
            text
            for text in codex_request(home / "repo", home)
            if text.startswith("<skills_instructions>")
        )
        theirs = re.findall(r"^- ([\w-]+): (.*) \(file: r1/", offered, re.MULTILINE)
        assert ours == {(name, plain(description)) for name, description in theirs}

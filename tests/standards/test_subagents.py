"""A5 files of subagents: heads that YAML writes, read by OpenHands and Gemini CLI."""

import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config import load_subagent_types
from longrein.tools import SubagentType
from tests.tables import row

from .peers import AGENTS, GEMINI, ask, needs
from .test_skills import NAMES, STYLES, WIDTHS, WORDS, file_text, plain

TOOLS = ("Read", "Grep", "Glob", "Bash", "Edit", "Write", "mcp__mem__add")
HEADS = st.fixed_dictionaries(
    {
        "name": NAMES.map(lambda name: f"x{name}"),
        # Claude Code writes line breaks of descriptions as `\\n`; here they are blanks.
        "description": WORDS.map(" ".join).filter(lambda text: "\\n" not in text),
    },
    optional={
        "model": st.sampled_from(["inherit", "sonnet", "anthropic/claude-x"]),
        "tools": st.lists(st.sampled_from(TOOLS), min_size=1, max_size=4, unique=True),
        "color": st.just("blue"),
    },
)
BODIES = st.sampled_from(
    [
        "You review.",
        "# Head\n\n- one\n- two",
        "---\nnot a head\n---",
        "größer ☃\n\n```py\nx = 1\n```",
    ]
)


FOLDER = tempfile.TemporaryDirectory()


def ours(text: str, name: str) -> tuple[SubagentType, Path]:
    """Return the type that longrein reads, and the file, which stays until the process ends."""
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name)).resolve()
    path = folder / f"repo/.claude/agents/{name}.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    (folder / "repo/.git").mkdir()
    found, _ = load_subagent_types(
        (), str(folder / "repo"), str(folder), {}, trusted=lambda _: True
    )
    assert len(found) == 1, text
    return found[0], path


@needs(AGENTS)
@given(head=HEADS, body=BODIES, style=STYLES, width=WIDTHS)
@settings(max_examples=40, deadline=None)
def test_A5_openhands_agrees(
    head: dict[str, Any], body: str, style: str | None, width: int
) -> None:
    kind, path = ours(file_text(head, style, width, body), head["name"])
    theirs = ask("openhands_agent", str(path))
    assert (kind.name, plain(kind.description), kind.system) == row(
        theirs["name"], plain(theirs["description"]), theirs["body"]
    )
    assert list(kind.tools or ()) == theirs["tools"]
    assert (kind.model or "inherit") == theirs["model"]


@needs(GEMINI)
@given(head=HEADS, body=BODIES, style=STYLES, width=WIDTHS)
@settings(max_examples=40, deadline=None)
def test_A5_gemini_agrees(head: dict[str, Any], body: str, style: str | None, width: int) -> None:
    # it refuses what it lacks
    head = {key: value for key, value in head.items() if key not in ("tools", "color")}
    kind, path = ours(file_text(head, style, width, body), head["name"])
    theirs = ask("gemini_agent", str(path))
    assert (kind.name, plain(kind.description), kind.system) == row(
        theirs["name"], plain(theirs["description"]), theirs["body"]
    )
    assert kind.model == theirs["model"].replace("inherit", "")


@pytest.mark.parametrize("head", ["description: x", "name: a", "name: a\ndescription: ''"])
@needs(GEMINI)
def test_A5_gemini_refuses_what_is_left_out_here(head: str) -> None:
    text = f"---\n{head}\n---\nbody\n"
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name)).resolve()
    path = folder / ".claude/agents/a.md"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(RuntimeError):
        ask("gemini_agent", str(path))
    found, notes = load_subagent_types(
        (), str(folder), str(folder / "home"), {}, trusted=lambda _: True
    )
    # without a name the file's counts, as in opencode and kimi
    assert bool(found) is ("description: x" in head)
    assert found or notes

"""A1 AGENTS.md and CLAUDE.md: random trees of instruction files, loaded by Codex, kimi and pi."""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from longrein.config import load_instructions
from longrein.settings_schema import Settings

from .peers import CODEX, KIMI, PI, ask, codex_request, needs

NAMES = ("AGENTS.override.md", "AGENTS.md", "CLAUDE.md", "GEMINI.md")
FOLDERS = (".", "pkg", "pkg/sub", "other")
TEXTS = st.sampled_from(
    ["", " \n", "do this", "two\nlines\n", "größer ☃", "    indented", "# Head\n\ntext\n"]
)
TREES = st.dictionaries(
    st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES)), TEXTS, max_size=8
)


@contextmanager
def planted(tree: dict[tuple[str, str], str], *, root: bool = True) -> Iterator[tuple[Path, Path]]:
    """Yield (home, `home/repo/pkg/sub`) with the files of a tree, each with a text of its own."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made).resolve()
        cwd = home / "repo/pkg/sub"
        cwd.mkdir(parents=True)
        if root:
            (home / "repo/.git").mkdir()
        for (folder, name), text in tree.items():
            path = home / "repo" / folder / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f"{text} <at {folder}/{name}>" if text.strip() else text)
        yield home, cwd


def ours(cwd: Path, home: Path) -> str:
    return "\n".join(load_instructions(str(cwd), str(home), {}, Settings(), lambda _: True).texts)


def marks(text: str) -> list[str]:
    """The files that a text holds, in order."""
    return re.findall(r"<at ([\w./]+)>", text)


@needs(CODEX)
@given(
    # An empty file hides those after it in Codex; here only an empty override does: an empty
    # AGENTS.md may stand beside a full CLAUDE.md.
    tree=TREES.map(
        lambda tree: {key: text if key[1] == NAMES[0] else text + "x" for key, text in tree.items()}
    ),
    root=st.booleans(),
)
@settings(max_examples=20, deadline=None)
def test_A1_codex_loads_the_same_files_in_order(
    tree: dict[tuple[str, str], str], root: bool
) -> None:
    with planted(tree, root=root) as (home, cwd):
        fallback = 'project_doc_fallback_filenames=["CLAUDE.md", "GEMINI.md"]'
        theirs = "\n".join(codex_request(cwd, home, "-c", fallback))
        assert marks(ours(cwd, home)) == marks(theirs)


@needs(KIMI)
@given(
    tree=TREES.map(lambda tree: {key: text for key, text in tree.items() if key[1] == "AGENTS.md"})
)
@settings(max_examples=60, deadline=None)
def test_A1_kimi_loads_the_same_files_in_the_same_order(tree: dict[tuple[str, str], str]) -> None:
    with planted(tree) as (home, cwd):
        assert marks(ours(cwd, home)) == marks(ask("kimi_instructions", str(cwd)))


@needs(PI)
@given(
    tree=TREES.map(lambda tree: {key: text for key, text in tree.items() if key[1] in NAMES[1:3]})
)
@settings(max_examples=60, deadline=None)
def test_A1_pi_loads_the_same_files_in_the_same_order(tree: dict[tuple[str, str], str]) -> None:
    # pi keeps empty ones
    full = {key: text or "full" for key, text in tree.items() if text.strip() or not text}
    with planted(full) as (home, cwd):
        theirs = ask("pi_instructions", str(cwd), str(home / ".pi"))
        assert marks(ours(cwd, home)) == marks("\n".join(text for _, text in theirs))

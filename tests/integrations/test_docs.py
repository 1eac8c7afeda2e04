"""docs/library.md and docs/session.md: their code runs, and they list the public names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import longrein
import longrein.context
from longrein.sdk import SessionOptions
from tests.tables import split_words

PAGE = (Path(__file__).parents[2] / "docs" / "library.md").read_text(encoding="utf-8")
SESSION_PAGE = (Path(__file__).parents[2] / "docs" / "session.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE + SESSION_PAGE, re.DOTALL)

PUBLIC = set(
    split_words("""
    Budget Clear Digest Engine Full Item Nothing Price Request State Summarise Swap births decide
    estimate_text fold render step
""")
)
"""A name goes only with a line in CHANGELOG.md."""


@pytest.mark.parametrize("code", BLOCKS, ids=range(len(BLOCKS)))
def test_the_code_of_the_page_runs(code: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_session_page_names_each_method_and_argument() -> None:
    names = {name for name in vars(longrein.Session) if not name.startswith("_")}
    names |= {"model", "folder", *SessionOptions.__annotations__}
    assert not [
        name for name in names if not re.search(rf"`{name}\b|Session\.{name}\b", SESSION_PAGE)
    ]


def documented() -> set[str]:
    table = PAGE.partition("| name of `longrein.context` |")[2].partition("\n\n")[0]
    return {
        name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }


def test_the_page_names_what_is_public() -> None:
    assert documented() == PUBLIC


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_name_is_there_and_says_what_it_is(name: str) -> None:
    assert getattr(longrein.context, name).__doc__


def test_the_public_methods_of_the_engine_are_documented() -> None:
    names = {name for name in vars(longrein.context.Engine) if not name.startswith("_")}
    assert names == set(
        split_words("""
        aprepare compact notes observe original prepare recall recall_tool refused room tokens
    """)
    )
    row = PAGE.partition("| `Engine` |")[2].partition("\n")[0]
    assert not [name for name in names if f"`{name}`" not in row]
    assert all(getattr(longrein.context.Engine, name).__doc__ for name in names)

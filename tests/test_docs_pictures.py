"""What the README shows is what longrein and other agents do now: its picture and its table."""

import html
import re
from pathlib import Path

import pytest

from lab import beside, pictures

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
TABLE = [
    [cell.strip() for cell in row.strip("|").split("|")]
    for row in README.partition("<!-- beside -->\n")[2].partition("<!-- end -->")[0].splitlines()
]
TIMED = beside.ROWS.index("from start to that request")
INSTALLED = [agent for agent in beside.AGENTS if agent.program.exists()]


CHANGES = r",? ?\d+(?:\.\d+)? m?s\b|\d+"
"""Times, which a fast machine leaves out, and other numbers."""


def words(svg: str) -> list[str]:
    """Return the texts of a picture, but for numbers, for the files of calls that run side by side,
    and for the last row, which names the sandbox of the machine.
    """
    rows = re.findall(r"<text[^>]*>(.*?)</text>", svg)
    texts = [html.unescape(row).replace("\xa0", " ") for row in rows]
    texts = [re.sub(CHANGES, "", text).strip() for text in texts]
    last = max(n for n, text in enumerate(texts) if text.startswith("›"))
    return [text for text in texts[:last] if text and "lines)" not in text]


def test_the_picture_of_the_terminal_is_that_of_the_present_screen(tmp_path: Path) -> None:
    kept = (pictures.IMAGES / "terminal.svg").read_text(encoding="utf-8")
    # Not every sandbox lets a command see the python3 of the user.
    with pictures.screen(tmp_path, LONGREIN_SANDBOX_MODE="off") as terminal:
        assert words(kept) == words(pictures.drawn(terminal)), "run `make pictures`"


@pytest.mark.parametrize("agent", INSTALLED, ids=lambda agent: agent.name)
def test_an_agent_does_what_the_table_says(agent: beside.Agent) -> None:
    at = TABLE[0].index(agent.name)
    column = [row[at] for row in TABLE[2:]]
    measured = [*beside.cells(agent, starts=1)]
    column[TIMED] = measured[TIMED] = "not compared"
    assert column == measured


def test_the_table_has_a_row_for_each_measure() -> None:
    assert [row[0] for row in TABLE[2:]] == [*beside.ROWS]
    assert TABLE[0] == ["", *(agent.name for agent in beside.AGENTS)]


def test_the_chinese_table_has_the_same_figures_and_words_of_models() -> None:
    def facts(page: str) -> list[str]:
        return re.findall(r"\| ([\d.]+ k?[Bs]|\"[^\"]+\")(?= \|)", page)

    assert len(facts(README)) == 3 * len(beside.AGENTS)
    assert facts(CHINESE) == facts(README)

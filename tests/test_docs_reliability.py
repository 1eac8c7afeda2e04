"""The pages of promises: their commands are targets that exist, and figures have their date."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/reliability.md").read_text(encoding="utf-8")
JOURNAL = (ROOT / "lab/reliability.md").read_text(encoding="utf-8")
TARGETS = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))


def test_every_command_of_the_page_is_a_target() -> None:
    named = set(re.findall(r"`make ([a-z]+)", PAGE + JOURNAL))
    assert named >= {"simulate", "kill", "rewind", "soak", "planted", "mutants", "trust"}
    assert named <= TARGETS


def test_every_promise_names_its_command() -> None:
    for page in (PAGE, JOURNAL.partition("## Figures")[0]):
        rows = re.findall(r"^\| (?!promise|---)(.*) \|$", page, re.M)
        assert rows
        assert all(re.search(r"`make [a-z]+`$", row) for row in rows)


def test_figures_have_a_date_and_a_commit() -> None:
    figures = JOURNAL.partition("## Figures")[2].partition("## What they found")[0]
    lines = re.findall(r"^\| `make .*$", figures, re.M)
    assert lines
    assert all(re.search(r"\| \d{4}-\d\d-\d\d, [0-9a-f]{8} \|$", line) for line in lines)

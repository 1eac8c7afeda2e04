"""Tables of tests: rows of a test function, and tables that are written as text."""

from typing import Any

import pytest


def cases(names: str, *rows: Any) -> pytest.MarkDecorator:
    """Return `parametrize` of the names, which stand in one text, with the rows."""
    return pytest.mark.parametrize(names.replace(" ", ","), rows)


def row(*fields: Any) -> tuple[Any, ...]:
    """Return the fields as a tuple; as a call a long row keeps its fields on one line."""
    return fields


def record(**fields: Any) -> dict[str, Any]:
    """Return the fields as a dict; as a call short fields keep to one line."""
    return fields


def split_words(text: str) -> list[str]:
    """Return the words of a text, over as many lines as they take."""
    return text.split()


def read_rows(text: str) -> list[tuple[str, ...]]:
    """Return the rows `a => b` of a text; `⏎` stands for the end of a line within a field, and a
    field that begins with four blanks belongs to the line above.
    """
    lines = text.strip().replace(" =>\n    ", " => ").split("\n")
    return [tuple(line.replace("⏎", "\n").split(" => ")) for line in lines]

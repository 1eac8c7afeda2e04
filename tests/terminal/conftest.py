"""Every test begins with the colours and the language of a new process."""

from collections.abc import Iterator

import pytest

from longrein.frontends.terminal import themes
from longrein.frontends.translation import use_language


@pytest.fixture(autouse=True)
def looks_of_a_new_process() -> Iterator[None]:
    yield
    themes.use_theme("ansi")
    themes.choose("")
    use_language("en")

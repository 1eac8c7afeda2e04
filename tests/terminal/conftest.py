"""Every test begins with the colours and the language of a new process."""

from collections.abc import Iterator

import pytest

from longrein.frontends.localization import use_language
from longrein.frontends.terminal import themes


@pytest.fixture(autouse=True)
def looks_of_a_new_process() -> Iterator[None]:
    yield
    themes.use_theme("ansi")
    themes.choose("")
    use_language("en")

"""The system text: plain words in `system.md`, composed by a pure function. Nothing in it changes during a session."""

import os.path
from functools import cache

_HERE = os.path.dirname(__file__)


@cache
def system_text() -> str:
    """The system text as it stands in the package."""
    with open(os.path.join(_HERE, "system.md"), encoding="utf-8") as file:
        return file.read()


def compose_system(*, replaced: str = "", appended: str = "") -> str:
    """What a session's `PrefixSet.system` is: our text or the user's own, and what they add to it."""
    text = replaced or system_text()
    return f"{text.rstrip()}\n\n{appended.strip()}\n" if appended.strip() else text

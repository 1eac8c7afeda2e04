"""Write the tables of settings in docs/ from the fields of `longrein.settings_schema`: `make docs`.

A table stands after a comment `<!-- settings: TABLE... -->`; `top` is that of the settings without
a table.
"""

import json
import re
from pathlib import Path

from longrein.config.settings_file import KEYS, Key

DOCS = Path(__file__).parent.parent / "docs"
PAGES = (DOCS / "settings.md", DOCS / "screen.md")
HEAD = "| key | default | meaning | project |\n|---|---|---|---|\n"


def generated(page: str) -> str:
    """Return the text of the page with its tables as they should be."""
    return re.sub(
        r"(<!-- settings: (.+) -->\n)(?:\|.*\n)*",
        lambda found: found[1] + HEAD + rows(found[2].split()),
        page,
    )


def rows(tables: list[str]) -> str:
    """Return the rows of these tables."""
    fields = [
        (name, key)
        for table in tables
        for name, key in KEYS.items()
        if (key.table or "top") == table
    ]
    return "".join(
        f"| `{name}` | {default(key)} | {key.setting.help} | {key.setting.project} |\n"
        for name, key in fields
    ).replace("|  |", "| |")


def default(key: Key) -> str:
    """Return a built-in value as TOML; '' where it means that nothing is set."""
    value = list(key.default) if key.type is tuple else key.default
    if value in ("", []) or value == -1:
        return ""
    is_number = key.type in (int, float)
    return (
        f"`{f'{value:_g}' if value < 1 else f'{value:_.0f}'}`"
        if is_number
        else f"`{json.dumps(value)}`"
    )


if __name__ == "__main__":
    for page in PAGES:
        page.write_text(generated(page.read_text(encoding="utf-8")), encoding="utf-8")

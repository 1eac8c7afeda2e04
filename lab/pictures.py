"""Draws the pictures of the README and the docs: `make pictures`, or

    python -m lab.pictures

`terminal.svg` is the screen of a real session on a pty, whose model is the rule-enforcing provider
on loopback; `tests/test_docs_pictures.py` says when it is older than the screen. The PNG files are
those of `tests.inspector.pictures`; without Chromium they stay.
"""

import io
import re
import sys
import tempfile
from itertools import groupby
from pathlib import Path

from rich.console import Console
from rich.style import Style
from rich.terminal_theme import MONOKAI
from rich.text import Text

from longrein.models import known_providers
from longrein.testing.loopback import Call, Turn
from tests.e2e.harness import Provider
from tests.inspector.chromium import find_chromium
from tests.inspector.pictures import main as draw_inspector
from tests.terminal.pseudo_terminal import PseudoTerminal

IMAGES = Path(__file__).parent.parent / "docs/images"
COLUMNS, ROWS = 92, 40
PROMPT = "The check fails. Find out why and mend it."
FILES = {
    "ledger/amounts.py": '''"""Amounts in cents."""

from decimal import Decimal


def parse(text: str) -> int:
    """Return the cents that `text` says: 1,234.50 is 123450."""
    return int(Decimal(text.strip("()").replace(",", "")) * 100)
''',
    "check.py": """from ledger.amounts import parse

wrong = 0
for text, cents in {"0.05": 5, "1,234.50": 123450, "(12.00)": -1200}.items():
    found = parse(text)
    wrong += found != cents
    print("ok    " if found == cents else "WRONG ", f"{text:>8} is {found} cents")
raise SystemExit(wrong)
""",
    "NOTES.md": "# Notes\n\nParentheses mean a refund: the amount is negative.\n",
}
OLD = '    return int(Decimal(text.strip("()").replace(",", "")) * 100)\n'
NEW = """    sign = -1 if text.startswith("(") else 1
    return sign * int(Decimal(text.strip("()").replace(",", "")) * 100)
"""
TURNS = (
    Turn(
        text="I run it first.",
        calls=(Call("Bash", {"command": "python3 check.py"}),),
    ),
    Turn(
        text="One amount stands in parentheses. What do the notes say about that?",
        calls=(
            Call("Grep", {"pattern": "parentheses|refund", "-i": True, "output_mode": "content"}),
            Call("Read", {"file_path": "ledger/amounts.py"}),
            Call("Read", {"file_path": "check.py"}),
        ),
    ),
    Turn(
        text="Parentheses mean a refund, so the amount is negative. `parse` has to learn that:",
        calls=(
            Call(
                "Edit",
                {"file_path": "ledger/amounts.py", "old_string": OLD, "new_string": NEW},
            ),
        ),
    ),
)


def screen(folder: Path, **environ: str) -> PseudoTerminal:
    """Return a terminal in which a session waits for the answer to an edit."""
    home = folder / "home"
    project, settings = home / "shop", home / ".config/longrein"
    for name, text in FILES.items():
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(text)
    settings.mkdir(parents=True)
    local = [known.name for known in known_providers() if known.local]
    closed = "".join(f'[providers.{name}]\nbase_url = "http://127.0.0.1:9/v1"\n' for name in local)
    with Provider(*TURNS) as provider:
        (settings / "config.toml").write_text(
            'model = "anthropic/claude-sonnet-4-5"\n'
            f"{closed}"  # no server of this machine is in the picture
            '[permissions]\nallow = ["Bash(python3 check.py)"]\n'
            f'[providers.anthropic]\nbase_url = "{provider.url}"\n'
        )
        terminal = PseudoTerminal(
            "",
            project,
            COLUMNS,
            ROWS,
            HOME=str(home),
            ANTHROPIC_API_KEY="a-key",
            COLORTERM="truecolor",
            COLORFGBG="15;0",
            **environ,
        )
        terminal.until("say something").send(f"{PROMPT}\r")
        terminal.until(terminal.keys_count)
    return terminal


def colour(name: str) -> str | None:
    """Return what rich calls a colour of pyte: `default`, a name, or six hexadecimal digits."""
    if name == "default":
        return None
    if re.fullmatch(r"[0-9a-f]{6}", name):
        return f"#{name}"
    return name.replace("bright", "bright_").replace("brown", "yellow")


def drawn(terminal: PseudoTerminal) -> str:
    """Return the screen as SVG, without fonts from elsewhere."""
    console = Console(
        record=True,
        width=COLUMNS,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        legacy_windows=False,
    )
    rows = terminal.screen.buffer
    used = [y for y, line in enumerate(terminal.lines()) if line]
    for y in range(used[0], used[-1] + 1):
        cells = [rows[y][x] for x in range(COLUMNS)]
        text = Text(no_wrap=True, end="")
        for style, run in groupby(
            cells, lambda cell: (cell.fg, cell.bg, cell.bold, cell.italics, cell.reverse)
        ):
            front, back, bold, italic, reverse = style
            text.append(
                "".join(cell.data for cell in run),
                Style(
                    color=colour(front),
                    bgcolor=colour(back),
                    bold=bold,
                    italic=italic,
                    reverse=reverse,
                ),
            )
        console.print(text)
    svg = console.export_svg(title="longrein", theme=MONOKAI, unique_id="longrein")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> int:
    with tempfile.TemporaryDirectory() as name, screen(Path(name)) as terminal:
        (IMAGES / "terminal.svg").write_text(drawn(terminal), encoding="utf-8")
    if find_chromium() is None:
        print("pictures of the inspector: not drawn, Chromium is missing (package chromium)")
    else:
        draw_inspector()
    return 0


if __name__ == "__main__":
    sys.exit(main())

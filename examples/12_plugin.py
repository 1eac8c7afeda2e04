"""A plugin: an installed package whose entry points longrein uses when the settings of the user
name it.

Here the package is written into a temporary folder, as `pip install` would do it, and used by an
agent.
"""

import asyncio
import os
import sys
import tempfile
from pathlib import Path

import longrein
from longrein.testing import ScriptedModel, call, says

CODE = '''
import longrein


@longrein.tool(access="none")
async def Roman(number: int) -> str:
    """Write a number in Roman numerals.

    number: From 1 to 3999.
    """
    text = ""
    for value, sign in ((10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")):
        text, number = text + sign * (number // value), number % value
    return text
'''


def install(folder: Path) -> None:
    """Install the package `longrein-roman` with its entry point."""
    (folder / "longrein_roman.py").write_text(CODE)
    info = folder / "longrein_roman-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: longrein-roman\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[longrein.tools]\nroman = longrein_roman:Roman\n")
    sys.path.insert(0, str(folder))


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        install(Path(folder))
        settings = Path(folder, "settings", "longrein", "config.toml")
        settings.parent.mkdir(parents=True)
        settings.write_text('plugins = ["longrein-roman"]\n')
        os.environ["XDG_CONFIG_HOME"] = str(settings.parent.parent)
        model = ScriptedModel(says(call("Roman", number=14)), says("14 is XIV."))
        async with longrein.Session.open(model, state_dir=f"{folder}/state") as session:
            print(await session.ask("What is 14 in Roman numerals?"))


asyncio.run(main())

"""A tool of your own: an async function. Its signature and docstring are all that the model is
told.
"""

import asyncio

import longrein
from longrein.testing import ScriptedModel, call, says
from longrein_context.events import ToolEnded, text_of


@longrein.tool(access="none")
async def CountLetters(word: str, letter: str = "") -> str:
    """Count the letters of a word.

    word: The word.
    letter: Count only this letter.
    """
    return str(word.count(letter) if letter else len(word))


async def main() -> None:
    model = ScriptedModel(
        says(call("CountLetters", word="strawberry", letter="r")), says("There are three.")
    )
    session = await longrein.Session.open(model, tools=[CountLetters])
    await session.send("How many r are in strawberry?")
    async for entry in session.follow():
        if isinstance(entry.event, ToolEnded):
            print(entry.event.name, "->", text_of(entry.event.parts))
    await session.close()


asyncio.run(main())

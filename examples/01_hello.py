"""The smallest program: a session, a prompt, and every fact that comes of it. The model is
played from a script.
"""

import asyncio

import longrein
from longrein.testing import ScriptedModel, says
from longrein_context.events import text_of


async def main() -> None:
    session = await longrein.Session.open(ScriptedModel(says("Hello, whoever you are.")))
    await session.send("Say hello.")
    async for entry in session.follow():
        print(entry.seq, type(entry.event).__name__, text_of(getattr(entry.event, "parts", ())))
    await session.close()


asyncio.run(main())

"""Close, go on, go back: the log is the memory, so a session can be taken up at any entry."""

import asyncio

import longrein
from longrein.testing import ScriptedModel, says
from longrein_context.events import TurnEnded, UserSpoke, text_of


async def main() -> None:
    first = await longrein.Session.open(ScriptedModel(says("Noted.")))
    await first.send("My name is Ada.")
    await first.wait()
    await first.close()

    model = ScriptedModel(says("You are Ada."), says("You are Grace."))
    session = await longrein.Session.resume(first.id, model)
    await session.send("Who am I?")
    await session.wait()
    start = await anext(
        entry.seq async for entry in session.follow() if isinstance(entry.event, TurnEnded)
    )
    await session.rewind(start)
    await session.send("I changed my name to Grace. Who am I?")
    async for entry in session.follow():
        if isinstance(entry.event, UserSpoke):
            print(entry.seq, text_of(entry.event.parts))
    print(
        "the last request shows:",
        [text_of((i.part,)) for i in model.requests[-1].items if i.kind == "user"],
    )
    await session.close()


asyncio.run(main())

"""You decide: a call that asks shows its exact bytes, and waits for your answer."""

import asyncio

import longrein
from longrein.testing import ScriptedModel, call, says
from longrein_context.events import PermissionAsked, ToolEnded, text_of


async def main() -> None:
    model = ScriptedModel(
        says(call("Bash", command="echo careful")),
        says(call("Bash", command="rm -rf precious")),
        says("As you like."),
    )
    session = await longrein.Session.open(model)
    await session.send("Clean up.")
    async for entry in session.follow():
        match entry.event:
            case PermissionAsked(call=asked, shown=shown):
                print("may this run?", repr(shown))
                if "rm" in shown:
                    await session.answer(asked, "deny", "that is precious")
                else:
                    await session.answer(asked, "allow")
            case ToolEnded() as ended:
                print(ended.status, text_of(ended.parts))
    await session.close()


asyncio.run(main())

"""Tell the model what happened outside: the findings of a linter, a failed build. To the model
it is data.
"""

import asyncio

import longrein
from longrein.testing import ScriptedModel, says


async def main() -> None:
    model = ScriptedModel(says("I have fixed the name."), says("I will look at the build first."))
    async with longrein.Session.open(model, builtin_tools=()) as session:
        await session.happened("diagnostics", "3: undefined name `sixe`", source="src/area.py")
        print(await session.ask("Fix what the editor reports."))
        await session.happened("program_message", "the build of main failed", source="ci")
        await session.happened(
            "program_message", "the build of main failed", source="ci"
        )  # told once
        print(await session.ask("Now add a test."))
    told = [item.part.text for item in model.requests[-1].items if item.kind == "reminder"]
    print(*told, sep="\n")


asyncio.run(main())

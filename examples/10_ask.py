"""Ask an agent: tools of your own choice, instructions, limits, and a function that approves
calls.
"""

import asyncio

import longrein
from longrein.testing import ScriptedModel, call, says


@longrein.tool(access="none")
async def Population(city: str) -> str:
    """Look up how many people live in a city.

    city: Its name.
    """
    return {"Porto": "231,800", "Ghent": "265,000"}.get(city, "unknown")


async def main() -> None:
    model = ScriptedModel(
        says(call("Population", city="Porto"), call("Population", city="Ghent")),
        says("Ghent has more inhabitants."),
    )
    async with longrein.Session.open(
        model,
        tools=[Population],
        builtin_tools=(),
        instructions="Answer in one sentence.",
        max_turns=10,
    ) as session:
        print(
            await session.ask(
                "Which is larger, Porto or Ghent?", approve=lambda asked: "rm " not in asked.shown
            )
        )


asyncio.run(main())

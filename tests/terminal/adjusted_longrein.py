"""`longrein` that waits for a test where it would wait for the clock, as variables say.

`HOLD_AFTER`: the scripted model stops after the piece of a reply with this word, until the file
`go` is in the project. `HELD_CLOCK`: the time of the screen and of pauses between requests stands
in the file `clock`, in seconds. `QUIET_S`: seconds without a key before a question takes keys, 0
where it is not set. `SILENT_S`: seconds until the screen tells of a silent provider.
"""

import asyncio
import os
import runpy
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from longrein.app.run_context import SystemClock
from longrein.frontends.terminal import live_area, run_terminal
from longrein.models.scripted import ScriptFileModel
from tests.terminal.held_clock import held_clock

stream = ScriptFileModel.stream
HOLD_AFTER = os.environ.get("HOLD_AFTER", "")
run_terminal.__kwdefaults__["quiet_s"] = float(os.environ.get("QUIET_S", "0"))


async def held_stream(self: ScriptFileModel, request: Any) -> AsyncIterator[Any]:
    async for deltas in stream(self, request):
        yield deltas
        while any(HOLD_AFTER in getattr(one, "text", "") for one in deltas):
            if os.path.exists("go"):
                break
            await asyncio.sleep(0.01)


async def held_sleep(_: SystemClock, seconds: float) -> None:
    end_s = SystemClock.mono_s() + seconds
    while SystemClock.mono_s() < end_s:  # noqa: ASYNC110 - a file has no event
        await asyncio.sleep(0.01)


if HOLD_AFTER:
    ScriptFileModel.stream = held_stream  # type: ignore[method-assign]
if "HELD_CLOCK" in os.environ:
    now_s = held_clock(Path("clock"))
    run_terminal.__kwdefaults__["mono_s"] = now_s
    SystemClock.mono_s = staticmethod(now_s)
    SystemClock.sleep = held_sleep  # type: ignore[method-assign]
if "SILENT_S" in os.environ:
    live_area.SILENT_S = float(os.environ["SILENT_S"])
runpy.run_module("longrein", run_name="__main__", alter_sys=True)

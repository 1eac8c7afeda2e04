"""A hook of the project, as Claude Code and Codex know them: it looks at each command before it
runs.
"""

import asyncio
import json
from pathlib import Path

import longrein
from longrein.testing import ScriptedModel, call, says
from longrein_context.events import ToolEnded, TurnEnded, text_of

GUARD = """#!/bin/sh
grep -q 'rm ' && { echo 'nothing is removed here; move it to attic/' >&2; exit 2; }
exit 0
"""
SETTINGS = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "Bash", "hooks": [{"type": "command", "command": "sh .claude/guard.sh"}]}
        ]
    }
}


async def main() -> None:
    project = Path("project")
    (project / ".claude").mkdir(parents=True)
    (project / ".claude/guard.sh").write_text(GUARD)
    (project / ".claude/settings.json").write_text(json.dumps(SETTINGS))
    model = ScriptedModel(
        says(call("Bash", command="rm old.txt")), says(call("Bash", command="ls")), says("Done.")
    )
    async with longrein.Session.open(
        model, folder=str(project), trust=True, allow=["Bash(rm *)"]
    ) as session:
        await session.ask("Clean up.")
        async for entry in session.follow():
            match entry.event:
                case ToolEnded() as ended:
                    print(ended.status, text_of(ended.parts))
                case TurnEnded():
                    break


asyncio.run(main())

"""Be the editor: start `longrein acp`, send a prompt, show the updates, answer a permission
question.
"""

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from acp import spawn_agent_process, text_block
from acp.schema import AllowedOutcome, RequestPermissionResponse

SCRIPT = {
    "turns": [
        {
            "thinking": "I look first.",
            "calls": [{"name": "Read", "arguments": {"file_path": "greeting.txt"}}],
        },
        {
            "calls": [
                {
                    "name": "Edit",
                    "arguments": {
                        "file_path": "greeting.txt",
                        "old_string": "Helo",
                        "new_string": "Hello",
                    },
                }
            ]
        },
        {"text": "The greeting is spelled right now."},
    ]
}
"""What the model says here, so that the example needs neither a network nor a key."""


class Editor:
    """The client side of the protocol, as far as this example needs it."""

    async def session_update(self, update: Any, **_: Any) -> None:
        match update.session_update:
            case "agent_message_chunk" | "agent_thought_chunk":
                print(f"{update.session_update}: {update.content.text}")
            case "tool_call":
                print(f"tool_call: {update.title} ({update.kind})")
            case "tool_call_update" if update.status in ("completed", "failed"):
                print(f"tool_call_update: {update.tool_call_id} {update.status}")

    async def request_permission(self, tool_call: Any, options: Any, **_: Any) -> Any:
        print(
            f"request_permission: {tool_call.title}: {', '.join(option.name for option in options)}"
        )
        return RequestPermissionResponse(
            outcome=AllowedOutcome(outcome="selected", option_id=options[0].option_id)
        )


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "project")
        project.mkdir()
        (project / "greeting.txt").write_text("Helo world\n")
        script = Path(folder, "script.json")
        script.write_text(json.dumps(SCRIPT))
        settings = Path(folder, ".config", "longrein", "config.toml")
        settings.parent.mkdir(parents=True)
        settings.write_text(
            f'model = "play/one"\n[providers.play]\nwire = "scripted"\nbase_url = "{script}"\n'
        )
        env = {**os.environ, "HOME": folder, "LONGREIN_STATE_DIR": f"{folder}/state"}
        command = (sys.executable, "-m", "longrein", "acp")
        async with spawn_agent_process(Editor(), *command, env=env, cwd=project) as (
            agent,
            _process,
        ):
            told = await agent.initialize(protocol_version=1)
            print(f"agent: {told.agent_info.name}, protocol {told.protocol_version}")
            session = await agent.new_session(cwd=str(project), mcp_servers=[])
            answer = await agent.prompt(
                session_id=session.session_id, prompt=[text_block("Mend the greeting.")]
            )
            print(f"stop reason: {answer.stop_reason}")
        print(f"greeting.txt: {(project / 'greeting.txt').read_text().strip()}")


asyncio.run(main())

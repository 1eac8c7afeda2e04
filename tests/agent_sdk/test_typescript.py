"""The TypeScript SDK, which others wrote, drives longrein by `pathToClaudeCodeExecutable`.

`make library` installs it; `CLAUDE_AGENT_SDK_NODE` names another folder with
`@anthropic-ai/claude-agent-sdk`.
"""

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from .harness import CLI, NODE, NODE_SDK, call, say, sdk_setup

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(not CLI.exists(), reason="longrein is not installed as a command"),
    pytest.mark.skipif(
        shutil.which("node") is None or not NODE_SDK.is_dir(),
        reason="`make library` installs the TypeScript SDK",
    ),
]

PROGRAM = """
import { createRequire } from "module";
import { pathToFileURL } from "url";
const [folder, cli, cwd] = process.argv.slice(2);
const found = createRequire(folder + "/").resolve("@anthropic-ai/claude-agent-sdk");
const { query } = await import(pathToFileURL(found));
const say = (...words) => console.log(JSON.stringify(words));
async function* prompts() {
  yield { type: "user", session_id: "", parent_tool_use_id: null, message: { role: "user", content: "write" } };
  await new Promise((end) => { globalThis.end = end; });
}
const run = query({ prompt: prompts(), options: {
  pathToClaudeCodeExecutable: cli, cwd, env: process.env, permissionMode: "default",
  systemPrompt: "Be a pirate.", includePartialMessages: true, maxTurns: 9,
  agents: { reviewer: { description: "Reviews code.", prompt: "You review." } },
  outputFormat: { type: "json_schema", schema: { type: "object", properties: { answer: { type: "integer" } } } },
  hooks: { PreToolUse: [{ matcher: "Write", hooks: [async (event) => { say("hook", event.tool_name); return {}; }] }] },
  canUseTool: async (name, input) => { say("asked", name); return { behavior: "allow", updatedInput: input }; },
} });
for await (const message of run) {
  if (message.type !== "result") continue;
  say("result", message.subtype, message.structured_output);
  say("models", (await run.supportedModels())[0].value, await run.mcpServerStatus());
  const agents = (await run.supportedAgents()).map((one) => one.name);
  say("agents", agents.includes("reviewer"), await run.supportedCommands());
  say("servers", (await run.setMcpServers({ none: { command: "/nonexistent/server" } })).added);
  await run.setMaxThinkingTokens(2000);
  await run.applyFlagSettings({ model: "claude-sonnet-4-5" });
  await run.updateSettings("userSettings", {}).catch((error) => say("refused", error.message.split(":")[0]));
  await run.setModel("claude-opus-4-1");
  await run.setPermissionMode("plan");
  await run.interrupt();
  globalThis.end();
  break;
}
"""  # noqa: E501


async def test_A6_4_the_typescript_sdk(tmp_path: Path) -> None:
    turns = [
        call("Write", file_path="a.txt", content="a"),
        call("StructuredOutput", answer=4),
        say("ok"),
    ]
    async with sdk_setup(tmp_path, turns) as setup:
        program = tmp_path / "program.mjs"
        program.write_text(PROGRAM)
        process = await asyncio.create_subprocess_exec(
            *("node", str(program), str(NODE), str(CLI), str(setup.tree)),
            env=setup.env | {"PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        assert [json.loads(line) for line in out.splitlines()] == [
            ["hook", "Write"],
            ["asked", "Write"],
            ["result", "success", {"answer": 4}],
            ["models", "anthropic/claude-sonnet-4-5", []],
            ["agents", True, []],
            ["servers", []],
            ["refused", "longrein does not do update_settings"],
        ]
        assert (setup.tree / "a.txt").exists()
        assert all(text in setup.sent(0) for text in ("Be a pirate.", "Reviews code."))

"""Run functions of agents on PyPI: reads `[function, arguments]` lines, answers `[result, error]`
lines.

Runs in `.venv/agents`, which `make clients` creates; never imported by the tests.
"""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def kimi_instructions(cwd: str) -> str:
    from kaos.path import KaosPath
    from kimi_cli.soul.agent import load_agents_md

    return asyncio.run(load_agents_md(KaosPath(cwd))) or ""


def kimi_skill(path: str) -> list[str]:
    from kaos.path import KaosPath
    from kimi_cli.skill import parse_skill_text

    file = KaosPath(path)
    skill = parse_skill_text(
        Path(path).read_text(), dir_path=file.parent, skill_md_file=file, scope="project"
    )
    return [skill.name, skill.description]


def kimi_hook(event: str, code: int, stdout: str, stderr: str) -> list[str]:
    from kimi_cli.hooks.runner import run_hook

    ran = asyncio.run(run_hook(_command(code, stdout, stderr), {"hook_event_name": event}))
    return [ran.action, ran.reason]


def kimi_matches(matcher: str, tool: str) -> bool:
    from kimi_cli.hooks.engine import HookEngine

    return HookEngine()._match_regex(matcher, tool)


def openhands_hook(event: str, code: int, stdout: str, stderr: str) -> list[Any]:
    from openhands.sdk.hooks.config import HookDefinition
    from openhands.sdk.hooks.executor import HookExecutor
    from openhands.sdk.hooks.types import HookEvent

    hook = HookDefinition(command=_command(code, stdout, stderr))
    ran = HookExecutor("/").execute(hook, HookEvent(event_type=event))
    return [not ran.should_continue, ran.reason or ""]


def openhands_matches(matcher: str, tool: str) -> bool:
    from openhands.sdk.hooks.config import HookMatcher

    return HookMatcher(matcher=matcher).matches(tool)


def openhands_hooks(table: dict[str, Any], tool: str) -> dict[str, list[str]]:
    """Commands that a table in the shape of Claude Code's starts, by event."""
    from openhands.sdk.hooks.config import HookConfig
    from openhands.sdk.hooks.types import HookEventType

    config = HookConfig.from_dict(table)
    return {
        event.value: [hook.command for hook in config.get_hooks_for_event(event, tool)]
        for event in HookEventType
        if config.has_hooks_for_event(event)
    }


def openhands_agent(path: str) -> dict[str, Any]:
    from openhands.sdk.subagent.schema import AgentDefinition

    agent = AgentDefinition.load(Path(path))
    return {
        "name": agent.name,
        "description": agent.description,
        "tools": agent.tools,
        "model": agent.model,
        "body": agent.system_prompt,
    }


def openhands_skill(path: str) -> list[Any]:
    from openhands.sdk.skills.skill import Skill

    skill = Skill.load(Path(path))
    return [skill.name, skill.description]


def openhands_commands(body: str) -> str:
    """A skill's text with its commands replaced by what they print."""
    from openhands.sdk.skills.execute import render_content_with_commands

    return render_content_with_commands(body)


def deepagents_skill(path: str) -> list[Any] | None:
    from deepagents.middleware.skills import _parse_skill_metadata

    skill = _parse_skill_metadata(Path(path).read_text(), path, Path(path).parent.name)
    return skill and [skill["name"], skill["description"], skill["allowed_tools"]]


def fastmcp_servers(document: dict[str, Any]) -> dict[str, Any]:
    from fastmcp.cli.discovery import _parse_mcp_servers

    found = _parse_mcp_servers(
        document["mcpServers"], source="project", config_path=Path(".mcp.json")
    )
    return {one.name: _server(one.config) for one in found}


def fastmcp_claude(cwd: str, home: str) -> dict[str, Any]:
    """The servers that `~/.claude.json` names for a folder."""
    from fastmcp.cli.discovery import _scan_claude_code

    os.environ["HOME"] = home
    return {found.name: _server(found.config) for found in _scan_claude_code(Path(cwd))}


def openhands_expand(text: str, environ: dict[str, str]) -> str:
    from openhands.sdk.skills.utils import expand_variable_references

    return str(expand_variable_references(text, variables=environ))


def _server(server: Any) -> list[Any]:
    transport = server.to_transport()
    if hasattr(transport, "command"):
        return ["stdio", [transport.command, *transport.args], dict(transport.env or {})]
    return [
        "sse" if type(transport).__name__.startswith("SSE") else "http",
        str(transport.url),
        transport.headers,
    ]


def _command(code: int, stdout: str, stderr: str) -> str:
    """A line for the shell that prints two texts and exits with a code."""
    os.environ["HOOK_OUT"], os.environ["HOOK_ERR"] = stdout, stderr
    return f'printf %s "$HOOK_OUT"; printf %s "$HOOK_ERR" >&2; exit {code}'


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever the libraries print
    functions: dict[str, Callable[..., Any]] = {
        name: value
        for name, value in globals().items()
        if callable(value) and not name.startswith("_")
    }
    for line in sys.stdin:
        name, arguments = json.loads(line)
        try:
            answer = [functions[name](*arguments), ""]
        except Exception as error:
            answer = [None, f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()

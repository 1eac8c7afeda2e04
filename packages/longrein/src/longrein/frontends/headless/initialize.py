"""The control request `initialize`, with which a program that runs longrein begins: what it
sets, and the answer.
"""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any

import msgspec

from longrein.app import AppSession
from longrein.frontends.headless.control_lines import ControlRequest
from longrein.frontends.headless.stream_json_blocks import Line
from longrein.frontends.headless.stream_json_input import parse_line
from longrein.frontends.loop_streams import SIGNALS, signal_handlers
from longrein.options import Options
from longrein_context.events import UsageError, decode_object, positive_number

KNOWN = frozenset(
    (
        *(
            "subtype",
            "hooks",
            "agents",
            "skills",
            "plugins",
            "sdkMcpServers",
            "systemPrompt",
            "appendSystemPrompt",
            "jsonSchema",
        ),
        *(
            "excludeDynamicSections",
            "systemPromptSnapshot",
            "forwardSubagentText",
            "promptSuggestions",
        ),
        *("agentProgressSummaries", "title", "planModeInstructions"),
    )
)
"""Fields of the request that need no note."""
WITHOUT_EFFECT = {
    "excludeDynamicSections": "the folder and the date stay in the first message, not in the "
    "system prompt",
    "systemPromptSnapshot": "the system prompt of a stored session is never taken from it",
    "promptSuggestions": "no prompts are suggested",
    "planModeInstructions": "plan mode has its own instructions",
    "title": "a session is named by its first message",
}


class HookCallback(msgspec.Struct, frozen=True):
    """Functions of the program that are called on one hook event."""

    event: str
    """Hook event, such as `PreToolUse`."""
    matcher: str
    """As in a settings file; '' for all."""
    callbacks: tuple[str, ...]
    """Ids for the control request `hook_callback`."""
    timeout_s: float = 0.0
    """0 for the default."""
    blocks_on_failure: bool = False
    """True if a call is denied when its callback fails."""


class Initialize(msgspec.Struct, frozen=True):
    """The first request of a program."""

    id: str
    fields: Mapping[str, Any]

    @property
    def hooks(self) -> tuple[HookCallback, ...]:
        """The functions to call, in their order; entries that cannot be read are left out."""
        table = self.fields.get("hooks")
        groups = [
            (str(event), group)
            for event, groups in (table.items() if isinstance(table, dict) else ())
            for group in (groups if isinstance(groups, list) else ())
            if isinstance(group, dict)
        ]
        return tuple(_hook(event, group) for event, group in groups)

    @property
    def skills(self) -> tuple[str, ...] | None:
        """Names of the skills that the model may load; None for all."""
        given = self.fields.get("skills")
        return tuple(map(str, given)) if isinstance(given, list) else None

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines about fields that have no effect."""
        given = [
            name for name, value in self.fields.items() if value not in (None, False, "", [], {})
        ]
        known = [
            f"initialize: {name} has no effect: {WITHOUT_EFFECT[name]}"
            for name in given
            if name in WITHOUT_EFFECT
        ]
        return (
            *known,
            *(
                f"initialize: {name[:40]} is not known and has no effect"
                for name in given
                if name not in KNOWN
            ),
        )


def _hook(event: str, group: Mapping[str, Any]) -> HookCallback:
    ids, timeout = group.get("hookCallbackIds"), group.get("timeout")
    return HookCallback(
        event,
        str(group.get("matcher") or ""),
        tuple(map(str, ids)) if isinstance(ids, list) else (),
        positive_number(timeout),
        group.get("onFailure") not in (None, "continue"),
    )


async def read_initialize(
    lines: AsyncIterator[bytes],
) -> tuple[Initialize | None, AsyncIterator[bytes], int]:
    """Read the first line: what it sets must be known before the session is opened.

    Returns it if it is an `initialize`, else None; the lines that are left to read; and the number
    of the signal that came instead of a line, 0 for none.
    """
    stopped: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    caught = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]

    def stop(number: int) -> None:
        if not stopped.done():
            stopped.set_result(number)

    with signal_handlers({number: partial(stop, number) for number in caught}):
        reading: asyncio.Future[bytes | None] = asyncio.ensure_future(anext(lines, None))
        both: list[asyncio.Future[Any]] = [reading, stopped]
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if stopped.done():
            reading.cancel()
            return None, lines, stopped.result()
    return *_parsed(await reading, lines), 0


def _parsed(
    first: bytes | None, lines: AsyncIterator[bytes]
) -> tuple[Initialize | None, AsyncIterator[bytes]]:
    if first is None:
        return None, lines
    try:
        request = parse_line(first, None)
    except UsageError:
        request = None
    if isinstance(request, ControlRequest) and request.subtype == "initialize":
        return Initialize(request.id, request.request), lines
    return None, _chained(first, lines)


async def _chained(first: bytes, rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    yield first
    async for line in rest:
        yield line


def with_initialize(options: Options, given: Initialize) -> Options:
    """Return `options` with what the request sets. Raises `UsageError` for a field of the wrong
    kind.
    """
    fields = given.fields
    texts = {
        "systemPrompt": ("system_prompt", options.system_prompt),
        "appendSystemPrompt": ("append_system_prompt", options.append_system_prompt),
    }
    changed: dict[str, Any] = {}
    for name, (field, _) in texts.items():
        text = fields.get(name)
        if isinstance(text, list) and all(isinstance(part, str) for part in text):
            text = "\n\n".join(text)
        if text is not None and not isinstance(text, str):
            raise UsageError(f"initialize: {name} must be a text")
        if text is not None:
            changed[field] = text
    if fields.get("jsonSchema"):
        changed["json_schema"] = json.dumps(fields["jsonSchema"])
    agents = fields.get("agents")
    if agents:
        if not isinstance(agents, dict) or not all(
            isinstance(one, dict) for one in agents.values()
        ):
            raise UsageError("initialize: agents must be an object of name -> fields")
        changed["agents"] = json.dumps(_merged_agents(options.agents, agents))
    return options._replace(**changed)


def _merged_agents(flag: str, agents: Mapping[str, Any]) -> Mapping[str, Any]:
    known = decode_object(flag or "{}")
    if known is None:
        raise UsageError("--agents is no JSON object")
    return {**known, **agents}


def offer_fields(opened: AppSession) -> Line:
    """Return the fields of the answer: what the session offers, on disk and in the settings now."""
    models = [(name, opened.app.budget(name).window_tokens) for name in opened.models()]
    skills = opened.find_skills()
    return {
        "commands": [
            {"name": one.name, "description": one.description, "argumentHint": one.argument_hint}
            for one in skills
            if one.for_user
        ],
        "skills": [one.name for one in skills if one.kind == "skill"],
        "agents": [
            {
                "name": kind.name,
                "description": kind.description,
                **({"model": kind.model} if kind.model else {}),
            }
            for kind in opened.subagent_types
        ],
        "output_style": "default",
        "available_output_styles": ["default"],
        "models": [
            {
                "value": name,
                "displayName": name.partition("/")[2],
                "description": f"{window} tokens of context",
            }
            for name, window in models
        ],
        "account": _account(opened),
        "claude_code_version": opened.app.version,
        "pid": os.getpid(),
        "hook_on_failure_supported": True,
        "hooks_applied": True,
        **({"plugins_applied": True} if opened.app.context.options.plugin_dirs else {}),
    }


def _account(opened: AppSession) -> Line:
    """Return whose key is used. Only providers that the protocol has a word for are named."""
    provider = API_PROVIDERS.get(opened.model.partition("/")[0])
    told = {"apiKeySource": opened.key_source, "tokenSource": "none"}
    return told | ({"apiProvider": provider} if provider else {})


API_PROVIDERS = {"anthropic": "firstParty", "bedrock": "bedrock", "vertex": "vertex"}
"""Provider -> its name in the protocol."""

"""Run the user's `!` commands: in the session's folder and sandbox, at once, without the model."""

import asyncio

import msgspec

from longrein.agent.inbox import shortened_output
from longrein.agent.messages import CommandRun
from longrein.agent.session import Session
from longrein_context.events import AnyPart, CwdSet, Document, ToolError, UsageError, text_of

TIMEOUT_MS = 600_000
"""Limit of a command; `tools.bash_timeout_max_s` may be lower."""


async def run_user_command(session: Session, command: str, call: str) -> CommandRun:
    """Run `command` as the Bash tool does and leave its outcome in the inbox. Cancelling stops the
    command.

    `call` names the run in `Output` updates. Raises `UsageError` where no command can run.
    """
    from longrein.agent.tool_runner import tool_context

    tool = session.deps.tools.get("Bash")
    if tool is None:
        raise UsageError("commands cannot run in this session, because its Bash tool is off")
    try:
        outcome = await tool.run(
            tool_context(session, call, tool, in_foreground=True),
            command=command,
            timeout=TIMEOUT_MS,
        )
    except ToolError as error:
        raise UsageError(str(error)) from None
    cwd = next((fact.cwd for fact in outcome.facts if isinstance(fact, CwdSet)), "")
    ran = CommandRun(command, shortened_output(_printed(outcome.parts)), outcome.status, cwd)
    await asyncio.shield(session.inbox.put(ran))
    return msgspec.structs.replace(ran, output=session.deps.redact(ran.output))


def _printed(parts: tuple[AnyPart, ...]) -> str:
    """Return the output with the note on how the command ended; of a long output both ends."""
    texts = []
    for part in parts:
        if isinstance(part, Document):
            more = f"[… {part.size_bytes:,} bytes in all …]"
            texts.append("\n".join(filter(None, (part.head, more, part.tail))))
        else:
            texts.append(text_of((part,)))
    return "\n".join(filter(None, texts))

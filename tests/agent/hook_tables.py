"""Tables of hooks in the shape of `.claude/settings.json`."""

from typing import Any


def command(event: str, line: str, matcher: str = "", **more: Any) -> dict[str, Any]:
    """One command hook, in the shape of `.claude/settings.json`."""
    return {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": line, **more}]}]}


def joined(*tables: dict[str, Any]) -> dict[str, Any]:
    """Several tables of hooks as one."""
    table: dict[str, Any] = {}
    for one in tables:
        for event, groups in one.items():
            table.setdefault(event, []).extend(groups)
    return table

"""Parts of extensions for a session that is about to open."""

from typing import TYPE_CHECKING

import msgspec

from longrein.agent.extension_part import ExtensionPart
from longrein.config import door_points
from longrein.events import SettingsError
from longrein.extension_points import SESSION_PARTS_DOOR
from longrein.run_context import RunContext

if TYPE_CHECKING:
    from longrein.composition.additions import Additions


class SessionPlan(msgspec.Struct, frozen=True):
    """What an extension knows of a session when it makes its part."""

    run_context: RunContext
    """Settings, options and folders."""
    additions: "Additions"
    """What a program adds."""


def extension_parts(run_context: RunContext, additions: "Additions") -> tuple[ExtensionPart, ...]:
    """Make the parts of all extensions.

    Raises `UsageError`, and `SettingsError` for a part that cannot be made.
    """
    plan = SessionPlan(run_context, additions)
    parts: list[ExtensionPart] = []
    for point in door_points(SESSION_PARTS_DOOR, run_context.settings.plugins):
        part = point.load()(plan)
        if not isinstance(part, ExtensionPart):
            raise SettingsError(f"{point.value} of {point.extension} made no `ExtensionPart`")
        parts.append(part)
    return tuple(parts)

"""Session as a loop plays it: its script, tools and provider."""

import json
from dataclasses import dataclass
from typing import Any

from lab.race.model import ScriptedModel
from lab.race.prices import TABLES
from lab.race.provider import MAX_OUTPUT, RaceProvider, ServedSession
from lab.race.sessions import Setting, write_script
from lab.race.workspace import Workspace

SESSION = "session"
"""Path of the session at the provider."""


@dataclass
class Played:
    """Inputs of a policy that plays a session, and the figures read off it afterwards."""

    setting: Setting
    users: tuple[str, ...]
    """Messages of the user, one a turn."""
    workspace: Workspace
    served: ServedSession
    base_url: str
    folder: str
    """Folder for files that a policy keeps."""

    @property
    def engine_options(self) -> dict[str, Any]:
        """Arguments of `longrein.engine` for the session's model."""
        return {
            "window": self.setting.window,
            "max_output": MAX_OUTPUT,
            "price": TABLES[self.setting.price].price,
        }

    @property
    def limit(self) -> int:
        """Largest prompt in tokens."""
        return self.served.limit

    def run_tool(self, name: str, arguments: str | dict[str, Any]) -> str:
        """Run a tool of the session."""
        return self.workspace.run(
            name, json.loads(arguments) if isinstance(arguments, str) else arguments
        )


def begin(setting: Setting, provider: RaceProvider, folder: str) -> Played:
    """Write the script of a setting and put it before the provider."""
    script = write_script(setting)
    workspace = Workspace(script)
    served = ServedSession(ScriptedModel(script, workspace), setting.window)
    provider.sessions[SESSION] = served
    users = tuple(turn.user for turn in script.turns)
    return Played(setting, users, workspace, served, f"{provider.url}/{SESSION}/v1", folder)

"""Values that flags and settings have in common. The command line imports this module and no
package.
"""

from typing import Literal

MODE_TEXTS = {
    "plan": "changes nothing; ends with a plan",
    "dontAsk": "refuses what `default` asks",
    "default": "asks before it changes files, and before commands that no sandbox confines",
    "acceptEdits": "as `default`, and changes files inside the folders without asking",
    "auto": "as `acceptEdits`, and asks no program or editor about what the sandbox confines",
    "bypassPermissions": "asks only before edits of protected files, outside the sandbox, and at "
    "hosts that no rule names",
}
"""Permission mode -> what it does, as the settings, `--help` and editors show it."""
MODES = tuple(MODE_TEXTS)
"""Permission modes, narrowest first."""
PermissionMode = Literal["plan", "dontAsk", "default", "acceptEdits", "auto", "bypassPermissions"]
"""The same for type checkers."""
PROFILES = ("default", "standard", "small", "seed", "seed-later", "seed-new", "seed-framework")
SMALL_WINDOW_TOKENS = 32_768
"""Largest window for which the profile `small` is chosen by itself."""
BACKGROUND_MODES = ("exit", "drain", "steer")
"""Policies of a headless run for background work at its end."""


def is_small(profile: str, window_tokens: int) -> bool:
    """Return True if the profile `small` holds: it was chosen, or the model's window is small."""
    return profile == "small" or (profile == "default" and window_tokens <= SMALL_WINDOW_TOKENS)

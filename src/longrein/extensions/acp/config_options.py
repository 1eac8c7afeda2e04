"""Modes and configuration options of a session as the protocol spells them. Pure."""

from collections.abc import Sequence
from typing import Any

from longrein.settings_schema import MODE_TEXTS, MODES

_NAMES = ("Plan", "Don't ask", "Default", "Accept edits", "Auto", "Bypass permissions")
MODE_NAMES = {
    mode: (name, MODE_TEXTS[mode].replace("`", ""))
    for mode, name in zip(MODES, _NAMES, strict=True)
}
"""Permission mode -> name and description."""

Option = dict[str, Any]


def modes(current: str) -> Option:
    """Return the session modes, for editors without configuration options."""
    available = [
        {"id": mode, "name": MODE_NAMES[mode][0], "description": MODE_NAMES[mode][1]}
        for mode in MODES
    ]
    return {"currentModeId": current, "availableModes": available}


def config_options(mode: str, model: str, models: Sequence[str]) -> list[Option]:
    """Return all configuration options with their present values."""
    mode_values = [
        {"value": m, "name": MODE_NAMES[m][0], "description": MODE_NAMES[m][1]} for m in MODES
    ]
    model_values = [{"value": name, "name": name} for name in dict.fromkeys((model, *models))]
    return [
        _select("mode", "Permission mode", "mode", mode, mode_values),
        _select("model", "Model", "model", model, model_values),
    ]


def _select(option: str, name: str, category: str, value: str, values: list[Option]) -> Option:
    return {
        "id": option,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": value,
        "options": values,
    }

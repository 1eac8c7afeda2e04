"""Lines on the model that was found: one at each start, more on the first start and without a
model.
"""

import asyncio
import socket
from collections.abc import Sequence
from urllib.parse import urlsplit

from longrein.agent import BYPASS, bypass_warning
from longrein.app import App, AppSession
from longrein.app.run_context import RunContext
from longrein.config.model_choice import provider_address
from longrein.frontends.localization import translate
from longrein.frontends.provider_keys import key_of
from longrein.models import known_provider, known_providers, offered_models

CONNECT_S = 0.05
"""Longest wait for a server on this machine to take a connection."""


def chosen_line(model: str, key_source: str) -> str:
    """Return the line about the model and where its key comes from."""
    known = known_provider(model.partition("/")[0])
    if key_source == "none":
        return (
            f"{model}, on this machine"
            if known is not None and known.local
            else f"{model}, without a key"
        )
    return f"{model}, key from {key_source}"


def start_notices(opened: AppSession) -> Sequence[str]:
    """Return the lines for the user at the start."""
    is_warned = opened.app.is_root and opened.session.mode == BYPASS
    return (*((bypass_warning(is_root=True),) if is_warned else ()), *opened.notes)


def confinement(opened: AppSession) -> str:
    """Return how commands are confined, for the footer."""
    if opened.sandbox == "none":
        return "no sandbox"
    return f"{opened.sandbox}, no network" if opened.network_problem else opened.sandbox


async def first_run_notices(app: App) -> Sequence[str]:
    """Name the keys and local servers, on the first run; asking the servers takes up to a second
    each.
    """
    return (
        await asyncio.get_running_loop().run_in_executor(None, found_lines, app.context)
        if app.is_first_run()
        else ()
    )


def found_lines(place: RunContext) -> list[str]:
    """Name the keys and the local servers that are there, for the first run."""
    found_keys = [key_of(place, known.name) for known in known_providers() if known.keys]
    keys = [f"{one.provider} ({one.source})" for one in found_keys if one.variable or one.kept]
    found_servers = local_servers(place)
    servers = [translate(f"{name} with {len(models)} models") for name, models in found_servers]
    named = (("keys", keys), ("local servers", servers))
    lines = [f"found {what}: {', '.join(found)}" for what, found in named if found]
    return [*lines, "/model chooses another model"] if len(keys) + len(servers) > 1 else []


def local_servers(place: RunContext) -> list[tuple[str, tuple[str, ...]]]:
    """Return the servers on this machine that offer models, and those."""
    found = []
    for known in known_providers():
        address = provider_address(known.name, place.settings, place.environ) if known.local else ""
        if address and _listens(address):
            models = offered_models(address)
            if models:
                found.append((known.name, models))
    return found


def _listens(address: str) -> bool:
    """Return True if something takes connections there; a closed port of this machine answers at
    once.
    """
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 80), CONNECT_S):
            return True
    except (OSError, ValueError):
        return False

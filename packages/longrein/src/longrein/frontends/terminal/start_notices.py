"""Lines on the model that was found: one at each start, more on the first start and without a
model.
"""

import asyncio
import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from urllib.parse import urlsplit

from longrein.agent import BYPASS, bypass_warning
from longrein.app import App, AppSession
from longrein.app.run_context import CLOCK, RunContext
from longrein.atomic_file import replace_file
from longrein.config.model_choice import provider_address
from longrein.frontends.localization import translate
from longrein.frontends.provider_keys import key_of
from longrein.models import known_provider, known_providers, offered_models
from longrein.steps.human_text import counted, size
from longrein_context import Budget

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


def assumed_window(model: str, budget: Budget) -> str:
    """Return the end of that line where nothing says the window of the model; else ''."""
    if not budget.is_window_assumed:
        return ""
    thousands = budget.window_tokens // 1_000
    return f', window {thousands}k assumed: window under [models."{model}"] states it'


def start_notices(opened: AppSession) -> Sequence[str]:
    """Return the lines for the user at the start."""
    is_warned = opened.app.is_root and opened.session.mode == BYPASS
    return (*((bypass_warning(is_root=True),) if is_warned else ()), *opened.notes)


def confinement(opened: AppSession) -> str:
    """Return what commands lack of their sandbox, for the footer; '' where nothing is missing."""
    if opened.sandbox == "none":
        return "no sandbox"
    return "no network" if opened.network_problem else ""


async def later_notices(app: App) -> Sequence[str]:
    """Return lines that take longer than the first frame: on the first run the keys and local
    servers, which may take a second each to answer; else the space of the sessions.
    """
    lines = found_lines if app.is_first_run() else space_lines
    return await asyncio.get_running_loop().run_in_executor(None, lines, app.context)


LOOK_EVERY_S = 24 * 3600.0
"""Seconds between two looks at the space of the sessions."""


def space_lines(run_context: RunContext) -> list[str]:
    """Tell, once a day, that the stored sessions take more than the settings allow."""
    from longrein.store.deletion import stored_bytes

    most = run_context.settings.sessions.notice_bytes
    looked = os.path.join(run_context.state_dir, "space-looked-at")
    if not most or _age_s(looked) < LOOK_EVERY_S:
        return []
    with suppress(OSError):
        replace_file(looked, (b"",), durable=False)
    found = stored_bytes(os.path.join(run_context.state_dir, "sessions"))
    if found <= most:
        return []
    return [
        translate(f"sessions take {size(found)}: longrein sessions prune --days 30 shows what goes")
    ]


def _age_s(path: str) -> float:
    try:
        return CLOCK.wall_us() / 1e6 - os.stat(path).st_mtime
    except OSError:
        return LOOK_EVERY_S


def found_lines(run_context: RunContext) -> list[str]:
    """Name the keys and the local servers that are there, for the first run."""
    found_keys = [key_of(run_context, known.name) for known in known_providers() if known.keys]
    keys = [f"{one.provider} ({one.source})" for one in found_keys if one.variable or one.kept]
    found_servers = local_servers(run_context)
    servers = [
        translate(f"{name} with {counted(len(models), 'model')}") for name, models in found_servers
    ]
    named = (("keys", keys), ("local servers", servers))
    lines = [f"found {what}: {', '.join(found)}" for what, found in named if found]
    return [*lines, "/model chooses another model"] if len(keys) + len(servers) > 1 else []


def local_servers(run_context: RunContext) -> list[tuple[str, tuple[str, ...]]]:
    """Return the servers on this machine that offer models, and those."""
    found = []
    for known in known_providers():
        address = (
            provider_address(known.name, run_context.settings, run_context.environ)
            if known.local
            else ""
        )
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

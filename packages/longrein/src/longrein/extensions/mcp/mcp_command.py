"""`longrein mcp`: configure, approve and try MCP servers, log in at them."""

import asyncio
import os
import tempfile
import webbrowser
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from longrein.app.execution import sandbox_in
from longrein.app.run_context import RunContext
from longrein.extensions.mcp.server_config import McpServer, token_folder, token_path, usable_name
from longrein.extensions.mcp.server_confinement import server_sandbox
from longrein.extensions.mcp.server_files import (
    ServerTables,
    approve_servers,
    change_entry,
    forget_approvals,
    load_mcp_servers,
    project_servers,
    read_server,
    scope_file,
)
from longrein.extensions.mcp.servers import ServerView
from longrein.extensions.mcp.session_part import mcp_toolset
from longrein.frontends.stdio import say, show
from longrein.permissions.network_hosts import Target, matches_entry
from longrein.steps.human_text import escape_line
from longrein.workspace import Confinement, SupervisedSpawner, open_workspace, temporary_spawner
from longrein.workspace.sandbox.rung import find_rung
from longrein_context.events import UsageError, decode_json, redactor

LOGIN_S = 330.0
"""Longest wait for a login."""
Flags = Mapping[str, Any]
SECRET_SHOWN = "…"
SANDBOX_WORDS: Mapping[str, str] = {
    "strict": "in the sandbox, as commands do",
    "network": "in the sandbox, with the network",
    "off": "as you, outside the sandbox",
}


def mcp(run_context: RunContext, words: Sequence[str], **flags: Any) -> int:
    """Run one action; without one, list the servers. Raises `UsageError` and `SettingsError`."""
    action, rest = (words[0], list(words[1:])) if words else ("list", [])
    run = ACTIONS.get(action)
    if run is None:
        raise UsageError(f"longrein mcp: there is no {action!r}; there are {', '.join(ACTIONS)}")
    return run(run_context, rest, flags)


# --- Listing --------------------------------------------------------------------------------------


def _known(run_context: RunContext) -> dict[str, tuple[McpServer, str]]:
    """Return the servers of this folder with their state: '' where they are used."""
    found = _load(run_context)
    known = {one.name: (one, _state(one)) for one in found.servers}
    for one in found.unapproved:
        known.setdefault(one.name, (one, "not approved: longrein mcp approve"))
    if not run_context.trusted.cover(run_context.cwd):
        for one in project_servers(run_context.cwd, run_context.home, run_context.environ):
            known.setdefault(one.name, (one, "this folder is not trusted: longrein trust"))
    return known


def _load(run_context: RunContext) -> ServerTables:
    return load_mcp_servers(
        run_context.cwd,
        run_context.home,
        run_context.environ,
        run_context.state_dir,
        trusted=run_context.trusted.cover(run_context.cwd),
        approved=run_context.options.trust,
    )


def _state(server: McpServer) -> str:
    return server.problem or ("disabled" if server.disabled else "")


def _list(run_context: RunContext, words: list[str], flags: Flags) -> int:
    _no_more(words, "list")
    known = _known(run_context)
    if flags.get("json"):
        rows = [_row(server, state) for server, state in known.values()]
        show(msgspec.json.format(msgspec.json.encode(rows)).decode() + "\n")
        return 0
    if not known:
        say("no MCP server is configured; add one with `longrein mcp add NAME -- COMMAND…`")
        return 0
    width, how = max(map(len, known)), _sandbox_words(run_context)
    for name, (server, state) in known.items():
        where = ", ".join(filter(None, (f"{server.scope} ({server.source})", _runs(server, how))))
        show(
            f"{name:<{width}}  {server.transport:<5}  {_address(server)}  {where}{_after(state)}\n"
        )
    for note in _load(run_context).notes:
        say(note)
    return 0


def _after(state: str) -> str:
    return f"  [{escape_line(state)}]" if state else ""


def _sandbox_words(run_context: RunContext) -> Mapping[str, str]:
    """Return how servers run here, by their `sandbox`."""
    works = (
        run_context.settings.sandbox.mode != "off"
        and find_rung(run_context.environ, run_context.roots).confines
    )
    return (
        SANDBOX_WORDS if works else dict.fromkeys(SANDBOX_WORDS, "as you: no sandbox is used here")
    )


def _runs(server: McpServer, words: Mapping[str, str]) -> str:
    """Say how the program of a server runs; '' for a server that is none of this machine."""
    return words[server.sandbox] if server.transport == "stdio" else ""


def _row(server: McpServer, state: str) -> dict[str, Any]:
    return {
        "name": server.name,
        "transport": server.transport,
        "address": _address(server),
        "scope": server.scope,
        "source": server.source,
        "sandbox": server.sandbox if server.transport == "stdio" else "",
        "problem": state,
    }


def _address(server: McpServer) -> str:
    return redactor((), "")(escape_line(server.address))


def _get(run_context: RunContext, words: list[str], _flags: Flags) -> int:
    server, state = _one(run_context, words, "get")
    lines = [f"name       {server.name}", f"scope      {server.scope} ({server.source})"]
    lines += [f"transport  {server.transport}", f"address    {_address(server)}"]
    lines += [f"env        {escape_line(name)}={SECRET_SHOWN}" for name, _ in server.env]
    lines += [f"header     {escape_line(name)}: {SECRET_SHOWN}" for name, _ in server.headers]
    lines += [f"runs       {runs}"] if (runs := _runs(server, _sandbox_words(run_context))) else []
    lines += [f"problem    {escape_line(state)}"] if state else []
    show("".join(f"{line}\n" for line in lines))
    return 0


def _one(run_context: RunContext, words: list[str], action: str) -> tuple[McpServer, str]:
    known = _known(run_context)
    if len(words) != 1:
        raise UsageError(
            f"which server? longrein mcp {action} NAME; there are {', '.join(known) or 'none'}"
        )
    if words[0] not in known:
        raise UsageError(
            f"there is no MCP server {words[0]!r}; there are {', '.join(known) or 'none'}"
        )
    return known[words[0]]


def _no_more(words: list[str], action: str) -> None:
    if words:
        raise UsageError(f"longrein mcp {action} does not know what to do with {words[0]!r}")


# --- Changing -------------------------------------------------------------------------------------


def _add(run_context: RunContext, words: list[str], flags: Flags) -> int:
    if len(words) < 2:
        raise UsageError(
            "longrein mcp add NAME -- COMMAND…, or longrein mcp add --transport http NAME URL"
        )
    name, *target = words
    transport = flags.get(
        "transport", "http" if target[0].startswith(("http://", "https://")) else "stdio"
    )
    entry: dict[str, Any] = {"type": transport}
    if transport == "stdio":
        entry |= {"command": target[0], "args": target[1:]}
        if env := _pairs(flags.get("env", ()), "=", "--env"):
            entry["env"] = env
        if "sandbox" in flags and flags.get("scope") != "project":
            entry["sandbox"] = flags["sandbox"]
    else:
        _no_more(target[1:], "add")
        entry["url"] = target[0]
        if headers := _pairs(flags.get("header", ()), ":", "--header"):
            entry["headers"] = headers
    return _store(run_context, name, entry, flags)


def _pairs(given: Sequence[str], sign: str, flag: str) -> dict[str, str]:
    for one in given:
        if sign not in one:
            raise UsageError(f"{flag} {one!r}: write NAME{sign}VALUE")
    return {
        name.strip(): value.strip() for name, _, value in (one.partition(sign) for one in given)
    }


def _add_json(run_context: RunContext, words: list[str], flags: Flags) -> int:
    if len(words) != 2:
        raise UsageError("longrein mcp add-json NAME '{\"command\": …}'")
    try:
        entry = decode_json(words[1])
    except msgspec.DecodeError as error:
        raise UsageError(f"the entry is not valid JSON: {error}") from None
    return _store(run_context, words[0], entry, flags)


def _store(run_context: RunContext, name: str, entry: Any, flags: Flags) -> int:
    """Write an entry to the file of its scope, and approve it where it is the project's."""
    scope = flags.get("scope", "user")
    if usable_name(name) != name:
        raise UsageError(f"the name {name!r} may hold letters, digits, - and single _")
    checked = read_server(name, entry, run_context.environ, scope, "")
    if checked.problem and "variable" not in checked.problem:
        raise UsageError(f"MCP server {name}: {checked.problem}")
    path = scope_file(scope, run_context.cwd, run_context.home, run_context.environ)
    replaced = change_entry(scope, name, entry, run_context.cwd, path)
    if scope == "project":
        approve_servers(run_context.state_dir, run_context.cwd, [name], flags.get("sandbox"))
    say(
        f"{'replaced' if replaced else 'added'} MCP server {name} in {path}; `longrein mcp test "
        f"{name}` tries it"
    )
    return 0


def _remove(run_context: RunContext, words: list[str], flags: Flags) -> int:
    if len(words) != 1:
        raise UsageError("longrein mcp remove NAME")
    scopes = [flags["scope"]] if "scope" in flags else ["local", "project", "user"]
    for scope in scopes:
        path = scope_file(scope, run_context.cwd, run_context.home, run_context.environ)
        if os.path.exists(path) and change_entry(scope, words[0], None, run_context.cwd, path):
            say(f"removed MCP server {words[0]} from {path}")
            return 0
    known = _known(run_context).get(words[0])
    where = f"; it stands in {known[0].source}, which longrein does not write" if known else ""
    raise UsageError(f"there is no MCP server {words[0]!r} in scope {' or '.join(scopes)}{where}")


def _approve(run_context: RunContext, words: list[str], flags: Flags) -> int:
    """Approve servers of the project as they are now. Trust in the folder comes first."""
    sandbox = flags.get("sandbox")
    if sandbox is not None and not words:
        raise UsageError(f"which server? longrein mcp approve NAME --sandbox {sandbox}")
    servers = {
        one.name: one
        for one in project_servers(run_context.cwd, run_context.home, run_context.environ)
    }
    if not run_context.trusted.cover(run_context.cwd):
        raise UsageError(f"{run_context.cwd} is not trusted: longrein trust")
    if unknown := [word for word in words if word not in servers]:
        raise UsageError(
            f"the project has no MCP server {unknown[0]!r}; it has {', '.join(servers) or 'none'}"
        )
    for name in approve_servers(run_context.state_dir, run_context.cwd, words or None, sandbox):
        say(f"approved MCP server {name}: {_address(servers[name])}")
    return 0


def _reset(run_context: RunContext, words: list[str], _flags: Flags) -> int:
    _no_more(words, "reset-project-choices")
    forget_approvals(run_context.state_dir, run_context.cwd)
    say("the project's MCP servers are asked about again")
    return 0


# --- Connecting -----------------------------------------------------------------------------------


def _test(run_context: RunContext, words: list[str], _flags: Flags) -> int:
    """Connect with one server or all and show what they offer. Exit code 1 where one fails."""
    servers = [_one(run_context, words, "test")] if words else list(_known(run_context).values())
    usable = [server for server, state in servers if not state]
    for server, state in servers:
        if state:
            show(f"{server.name}: {escape_line(state)}\n")
    views = asyncio.run(_connect(run_context, usable)) if usable else []
    for view in views:
        show(f"{describe(view)}\n")
    return (
        0
        if len(usable) == len(servers) and all(view.status == "connected" for view in views)
        else 1
    )


def describe(view: ServerView) -> str:
    """Return a line about a server."""
    if view.status != "connected":
        return f"{view.name}: {view.status}: {escape_line(view.problem)}"
    names = ", ".join(name.split("__", 2)[-1] for name in view.tools[:20])
    more = f" and {len(view.tools) - 20} more" if len(view.tools) > 20 else ""
    parts = [f"{len(view.tools)} tools ({names}{more})" if view.tools else "no tools"]
    parts += [f"{len(view.prompts)} prompts"] if view.prompts else []
    parts += ["resources"] if view.resources else []
    return (
        f"{view.name}: connected, {escape_line(view.title)}, protocol {view.protocol}: "
        f"{', '.join(parts)}"
    )


async def _connect(
    run_context: RunContext,
    servers: Sequence[McpServer],
    login: Callable[[str], Awaitable[None]] | None = None,
) -> list[ServerView]:
    """Connect once, outside a session, and return what came of it."""
    with tempfile.TemporaryDirectory(prefix="longrein-mcp-") as folder:
        async with temporary_spawner(run_context.environ, run_context.roots) as spawner:
            return await _connect_in(folder, spawner, run_context, servers, login)


async def _connect_in(
    folder: str,
    spawner: SupervisedSpawner,
    run_context: RunContext,
    servers: Sequence[McpServer],
    login: Callable[[str], Awaitable[None]] | None,
) -> list[ServerView]:
    workspace = open_workspace(
        run_context.roots,
        spawner=spawner,
        environment=run_context.environ,
        keep_env=run_context.settings.env.keep,
    )
    toolset = mcp_toolset(run_context, servers, spawner, workspace, "")
    toolset.attach({}, "", None)
    toolset.host.login = login
    sandbox = sandbox_in(run_context, folder, run_context.roots)

    def confine(server: McpServer, cwd: str) -> Confinement | None:
        if server.sandbox == "off" or not sandbox.rung.confines:
            return None
        wider = server_sandbox(sandbox, server, cwd)
        proxy = (
            wider.open_proxy("mcp", _judge_by(wider.entries), lambda _reason: None)
            if wider.entries
            else ""
        )
        return wider.confine(workspace.roots, cwd, (), (), proxy)

    toolset.host.confine = confine
    if login is not None:
        toolset.host.startup_s = LOGIN_S
    try:
        await toolset.ready()
        return toolset.views()
    finally:
        await toolset.close()
        await sandbox.close()


def _judge_by(entries: Sequence[str]) -> Callable[[Target], Awaitable[str]]:
    """Return how hosts are judged where nobody is asked: by `sandbox.network` alone."""

    async def judge(target: Target) -> str:
        named = any(matches_entry(entry, target) for entry in entries)
        return "" if named else "sandbox.network does not name it"

    return judge


def _login(run_context: RunContext, words: list[str], _flags: Flags) -> int:
    """Log in at a server over HTTP: the browser comes back to a port of this machine."""
    server, state = _one(run_context, words, "login")
    if state or server.transport == "stdio":
        raise UsageError(f"MCP server {server.name}: {state or 'a stdio server needs no login'}")

    async def show_address(url: str) -> None:
        say(f"open this address and log in there:\n{url}")
        if os.isatty(2) and run_context.environ.get("BROWSER", "?"):
            webbrowser.open(url)

    (view,) = asyncio.run(_connect(run_context, [server], show_address))
    show(f"{describe(view)}\n")
    return 0 if view.status == "connected" else 1


def _logout(run_context: RunContext, words: list[str], _flags: Flags) -> int:
    server, _ = _one(run_context, words, "logout")
    try:
        os.unlink(token_path(server, token_folder(run_context.state_dir)))
    except FileNotFoundError:
        say(f"no login at MCP server {server.name} is stored")
        return 0
    say(f"the login at MCP server {server.name} is removed from this machine")
    return 0


ACTIONS: Mapping[str, Callable[[RunContext, list[str], Flags], int]] = {
    "list": _list,
    "get": _get,
    "add": _add,
    "add-json": _add_json,
    "remove": _remove,
    "test": _test,
    "approve": _approve,
    "reset-project-choices": _reset,
    "login": _login,
    "logout": _logout,
}

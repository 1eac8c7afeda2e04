"""MCP servers from `.mcp.json`, `~/.claude.json`, longrein's own `mcp.json` and `--mcp-config`.

All have the shape `{"mcpServers": {NAME: ENTRY}}`; the keys of other agents are read too. A wrong
entry costs only that server. A server of a project is started only where the folder is trusted and
the entry, byte for byte, was approved.
"""

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from longrein.config.instructions import folders_between, project_root
from longrein.config.settings_file import shorten_home, store_text
from longrein.config.user_environment import config_dir, parse_table, read_bounded, read_table
from longrein.extensions.mcp.server_config import (
    McpServer,
    OAuthOptions,
    Sandbox,
    Scope,
    Transport,
    usable_name,
)
from longrein_context.events import SettingsError, UsageError, positive_number
from longrein_context.events.escape import escape

PROJECT_FILE = ".mcp.json"
CLAUDE_SETTINGS = ("settings.json", "settings.local.json")
FILE_BYTES_MAX = 4 << 20
CLAUDE_FILE_BYTES_MAX = 64 << 20
"""`~/.claude.json` also holds a history."""
SERVERS_MAX = 100


class ServerTables(msgspec.Struct, frozen=True):
    """The servers of a folder, each name once."""

    servers: tuple[McpServer, ...] = ()
    notes: tuple[str, ...] = ()
    unapproved: tuple[McpServer, ...] = ()
    """Servers of the project that the user has not approved; they are not in `servers`."""


# --- One entry ------------------------------------------------------------------------------------


class Unset(Exception):
    """A variable that an entry needs is not set."""


_VARIABLE = (
    r"\$\{(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}|\{env:([A-Za-z_][A-Za-z0-9_]*)\}"
)


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replace `${VAR}`, `${VAR:-default}` and `{env:VAR}`. Raises `Unset`."""

    def value(found: re.Match[str]) -> str:
        name, default = found[1] or found[3], found[2]
        if environ.get(name) or (name in environ and default is None):
            return environ[name]
        if default is None:
            raise Unset(name)
        return default

    return re.sub(_VARIABLE, value, text)


TRANSPORTS: Mapping[str, Transport] = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamableHttp": "http",
    "remote": "http",
    "sse": "sse",
    "sdk": "sdk",
}
_KNOWN = frozenset(
    """
    type transport command args env environment cwd url httpUrl serverUrl headers http_headers headersHelper oauth
    timeout toolTimeoutMs tool_timeout_sec startupTimeoutMs startup_timeout_sec enabled disabled enabled_tools
    enabledTools includeTools disabled_tools disabledTools excludeTools alwaysLoad bearer_token_env_var
    bearerTokenEnvVar api_key_env name description sandbox
    """.split()  # noqa: E501, SIM905
)


class EntryReader:
    """Reads one entry; collects what is ignored in `notes`."""

    def __init__(self, raw: Mapping[str, Any], environ: Mapping[str, str]) -> None:
        self._raw, self._environ = raw, environ
        self.notes: list[str] = []

    def text(self, *keys: str) -> str:
        """Return the text of the first of `keys` that is there, expanded. Raises `ValueError`
        and `Unset`.
        """
        for key in keys:
            if (value := self._raw.get(key)) is not None:
                if not isinstance(value, str):
                    raise ValueError(f"`{key}` must be a text")
                return expand(value, self._environ)
        return ""

    def texts(self, *keys: str) -> tuple[str, ...] | None:
        """Return a list of texts, expanded; None where there is none."""
        for key in keys:
            if (value := self._raw.get(key)) is not None:
                if not isinstance(value, list) or not all(
                    isinstance(one, str | int | float) for one in value
                ):
                    raise ValueError(f"`{key}` must be a list of texts")
                return tuple(expand(str(one), self._environ) for one in value)
        return None

    def table(self, *keys: str) -> tuple[tuple[str, str], ...]:
        """Return a table of texts, expanded."""
        for key in keys:
            if (value := self._raw.get(key)) is not None:
                if not isinstance(value, dict):
                    raise ValueError(f"`{key}` must be an object of texts")
                return tuple(
                    (name, expand(_plain(one), self._environ)) for name, one in value.items()
                )
        return ()

    def seconds(self, **units: float) -> float:
        """Return a time: `units` maps a key to the seconds of its unit."""
        for key, unit in units.items():
            if number := positive_number(self._raw.get(key)):
                return number * unit
        return 0.0

    def flag(self, key: str) -> bool | None:
        """Return a boolean; None where it is not given."""
        value = self._raw.get(key)
        return value if isinstance(value, bool) else None


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    return ""


def read_server(
    name: str, raw: Any, environ: Mapping[str, str], scope: Scope, source: str
) -> McpServer:
    """Read one entry; what is wrong with it becomes its `problem`. Notes are in `entry_notes`."""
    blank = McpServer(usable_name(name), scope=scope, source=source, program_name=name)
    if not blank.name:
        return msgspec.structs.replace(
            blank, name="server", problem=f"the name {name[:40]!r} has no usable character"
        )
    if not isinstance(raw, dict):
        return msgspec.structs.replace(blank, problem="its entry is not an object")
    try:
        return _read(blank, EntryReader(raw, environ), raw)
    except Unset as unset:
        return msgspec.structs.replace(
            blank,
            problem=f"it needs the variable {unset}, which is not set; set it, or write "
            f"${{{unset}:-default}}",
        )
    except ValueError as error:
        return msgspec.structs.replace(blank, problem=str(error))


SANDBOXES: tuple[Sandbox, ...] = ("strict", "network", "off")


def _sandbox(raw: Any, scope: Scope) -> Sandbox:
    """Return how a server runs. An entry of a project cannot widen it: the user's approval does."""
    if scope == "project":
        return "strict"
    if raw not in (None, *SANDBOXES):
        raise ValueError(f"`sandbox` is {str(raw)[:40]!r}: {', '.join(SANDBOXES)}")
    return raw or "network"


def _read(blank: McpServer, entry: EntryReader, raw: Mapping[str, Any]) -> McpServer:
    command, args = _command(entry, raw), entry.texts("args") or ()
    url = entry.text("url", "httpUrl", "serverUrl")
    kind = raw.get("type") or raw.get("transport")
    transport = _transport(kind, blank.scope, url, has_command=bool(command))
    if transport == "sdk":
        return msgspec.structs.replace(blank, transport="sdk")
    headers = entry.table("headers", "http_headers")
    token = next(
        (
            raw[key]
            for key in ("bearer_token_env_var", "bearerTokenEnvVar", "api_key_env")
            if key in raw
        ),
        "",
    )
    if token:
        headers = (*headers, ("Authorization", "Bearer " + expand(f"${{{token}}}", entry._environ)))
    of_opencode = kind in ("local", "remote")  # its `timeout` is for connecting
    limits = {"toolTimeoutMs": 0.001, "tool_timeout_sec": 1.0} | (
        {} if of_opencode else {"timeout": 0.001}
    )
    starting = {"startupTimeoutMs": 0.001, "startup_timeout_sec": 1.0} | (
        {"timeout": 0.001} if of_opencode else {}
    )
    return msgspec.structs.replace(
        blank,
        transport=transport,
        command=(*command, *args),
        env=entry.table("env", "environment"),
        cwd=entry.text("cwd"),
        url=url,
        headers=headers,
        headers_helper=str(raw.get("headersHelper") or ""),
        oauth=_oauth(raw.get("oauth")),
        call_s=entry.seconds(**limits),
        startup_s=entry.seconds(**starting),
        only_tools=entry.texts("enabled_tools", "enabledTools", "includeTools"),
        without_tools=entry.texts("disabled_tools", "disabledTools", "excludeTools") or (),
        always_listed=entry.flag("alwaysLoad") is True,
        sandbox=_sandbox(raw.get("sandbox"), blank.scope),
        disabled=entry.flag("enabled") is False or entry.flag("disabled") is True,
    )


def _transport(kind: Any, scope: Scope, url: str, *, has_command: bool) -> Transport:
    """Return the transport of an entry, guessed where it names no `kind`. Raises `ValueError` where
    what the transport needs is missing.
    """
    if kind is None:
        kind = "http" if url and not has_command else "stdio"
    transport = TRANSPORTS.get(str(kind))
    if transport is None:
        raise ValueError(f"type {kind!r} is not supported: stdio, http or sse")
    if transport == "sdk":
        if scope not in ("flag", "program"):
            raise ValueError("type 'sdk' is for servers inside the program that runs longrein")
    elif transport != "stdio":
        if not url.startswith(("http://", "https://")):
            raise ValueError(
                f"a server of type {transport} needs a `url` that begins with http:// or https://"
            )
    elif not has_command:
        raise ValueError(
            "it has neither `command` nor `url`" if not url else "a stdio server needs `command`"
        )
    return transport


def _command(entry: EntryReader, raw: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the program with its first arguments; opencode writes a list."""
    if isinstance(raw.get("command"), list):
        return entry.texts("command") or ()
    written = entry.text("command")
    return (written,) if written else ()


def _oauth(raw: Any) -> OAuthOptions:
    if not isinstance(raw, dict):
        return OAuthOptions()
    port, scopes = raw.get("callbackPort"), raw.get("scopes")
    return OAuthOptions(
        _plain(raw.get("clientId")),
        port if isinstance(port, int) and 0 < port < 65_536 else 0,
        " ".join(map(str, scopes)) if isinstance(scopes, list) else _plain(scopes),
    )


def entry_notes(name: str, raw: Any, source: str, scope: Scope = "user") -> list[str]:
    """Return lines about what of an entry is guessed or ignored."""
    if not isinstance(raw, dict):
        return []
    notes = []
    if unknown := [
        str(key) for key in raw if key not in _KNOWN or (key == "sandbox" and scope == "project")
    ]:
        notes.append(
            f"{source}: MCP server {escape(name)}: ignored: {escape(', '.join(unknown))[:200]}"
        )
    if not (
        raw.get("type") or raw.get("transport") or raw.get("command") or raw.get("httpUrl")
    ) and raw.get("url"):
        notes.append(
            f'{source}: MCP server {escape(name)} has no `type`: taken as "http"; write "sse" for '
            "the old one"
        )
    return notes


# --- Files ----------------------------------------------------------------------------------------

_TABLES = ("mcpServers", "mcp_servers", "mcp", "servers")


def entries_in(document: Any) -> Mapping[str, Any]:
    """Return the entries of a file by name: under `mcpServers`, or under the key of another
    agent.
    """
    for key in _TABLES:
        found = document.get(key) if isinstance(document, dict) else None
        if isinstance(found, dict):
            return found
        if isinstance(found, list):
            return {
                str(one.get("name", n)): one
                for n, one in enumerate(found, 1)
                if isinstance(one, dict)
            }
    return {}


def user_servers_file(environ: Mapping[str, str], home: str) -> str:
    """Return the path of longrein's own file of servers, which may not exist."""
    return f"{config_dir(environ, home)}/mcp.json"


def project_servers_files(cwd: str) -> list[str]:
    """Return the `.mcp.json` files of a project that exist, the nearest last."""
    found = (
        f"{folder.rstrip('/')}/{PROJECT_FILE}" for folder in folders_between(project_root(cwd), cwd)
    )
    return [path for path in found if os.path.lexists(path)]


class _Folder(msgspec.Struct):
    """Folders and environment to search for MCP servers, and notes made on the way."""

    cwd: str
    home: str
    environ: Mapping[str, str]
    notes: list[str]

    def shown(self, path: str) -> str:
        return escape(shorten_home(path, self.home))

    def document(self, path: str, bytes_max: int = FILE_BYTES_MAX) -> dict[str, Any]:
        document, problem = read_table(path, self.shown(path), bytes_max)
        if problem:
            self.notes.append(f"{problem}; its MCP servers are not used")
        return document

    def servers(
        self, entries: Mapping[str, Any], scope: Scope, source: str
    ) -> list[tuple[McpServer, Any]]:
        if len(entries) > SERVERS_MAX:
            self.notes.append(
                f"{source}: only the first {SERVERS_MAX} of {len(entries)} MCP servers are used"
            )
        found = []
        names: dict[str, str] = {}
        for name, raw in list(entries.items())[:SERVERS_MAX]:
            self.notes += entry_notes(name, raw, source, scope)
            if (used := usable_name(name)) in names:
                both = f"{escape(names[used])} and {escape(name)}"
                self.notes.append(
                    f"{source}: the MCP servers {both} are both called {used} here: rename the "
                    "first"
                )
            names[used] = name
            found.append((read_server(name, raw, self.environ, scope, source), raw))
        return found

    def of_user(self) -> list[tuple[McpServer, Any]]:
        """Return the servers of the user: of scope `user`, then `local` of this folder."""
        users: list[tuple[McpServer, Any]] = []
        local: list[tuple[McpServer, Any]] = []
        own = user_servers_file(self.environ, self.home)
        for path, most in (
            (f"{self.home}/.claude.json", CLAUDE_FILE_BYTES_MAX),
            (own, FILE_BYTES_MAX),
        ):
            document = self.document(path, most)
            users += self.servers(entries_in(document), "user", self.shown(path))
            projects = document.get("projects")
            here = _of_folder(projects, self.cwd) if isinstance(projects, dict) else {}
            local += self.servers(entries_in(here), "local", self.shown(path))
        return [*users, *local]

    def refused(self) -> set[str]:
        """Return the names of project servers that the user has refused in Claude Code. Opens files
        of the project, which must be trusted.

        Its approvals are not taken over: they are by name alone, so that an entry could be
        replaced.
        """
        claude = self.document(f"{self.home}/.claude.json", CLAUDE_FILE_BYTES_MAX)
        projects = claude.get("projects") if isinstance(claude, dict) else None
        found = [_of_folder(projects, self.cwd)] if isinstance(projects, dict) else []
        root = project_root(self.cwd).rstrip("/")
        found += [
            self.document(f"{place}/.claude/{name}")
            for place in (self.home, root)
            for name in CLAUDE_SETTINGS
        ]
        names = [one.get("disabledMcpjsonServers") for one in found if isinstance(one, dict)]
        return {
            usable_name(name)
            for listed in names
            if isinstance(listed, list)
            for name in listed
            if isinstance(name, str)
        }


def _of_folder(projects: Mapping[str, Any], cwd: str) -> Any:
    """Return the entry of the folder, or of the project around it."""
    return next((projects[path] for path in (cwd, project_root(cwd)) if path in projects), {})


def load_mcp_servers(
    cwd: str,
    home: str,
    environ: Mapping[str, str],
    state_dir: str,
    *,
    trusted: bool,
    approved: bool = False,
    given: Sequence[str] = (),
    strict: bool = False,
) -> ServerTables:
    """Return the servers for `cwd`.

    `trusted`: whether the folder is; else its files are not opened. `approved`: take every server
    of the project, as `--trust` does for one run. `given`: values of `--mcp-config`; with `strict`
    only those count. Raises `UsageError` for a value that is neither JSON nor a file.
    """
    folder = _Folder(cwd, home, environ, [])
    found: dict[str, McpServer] = {}
    unapproved: dict[str, McpServer] = {}
    if not strict:
        layers = folder.of_user()
        found.update((server.name, server) for server, _ in layers if server.scope == "user")
        rulings = read_approvals(state_dir)
        files = project_servers_files(cwd) if trusted else []
        refused = folder.refused() if files else set()
        for path in files:
            for server, raw in folder.servers(
                entries_in(folder.document(path)), "project", folder.shown(path)
            ):
                if server.name in refused:
                    continue
                digest, _, widened = rulings.get(_key(path, server.name), "").partition(" ")
                if digest == digest_of(raw):
                    sandbox = next((one for one in SANDBOXES if one == widened), server.sandbox)
                    found[server.name] = msgspec.structs.replace(server, sandbox=sandbox)
                elif approved:
                    found[server.name] = server
                elif server.name not in found or found[server.name].scope != "project":
                    unapproved[server.name] = server
        found.update((server.name, server) for server, _ in layers if server.scope == "local")
    for text in given:
        found.update((server.name, server) for server in _given(folder, text))
    waiting = tuple(
        server
        for name, server in unapproved.items()
        if name not in found or found[name].scope == "user"
    )
    return ServerTables(tuple(found.values()), tuple(folder.notes), waiting)


def _given(folder: _Folder, text: str) -> Iterable[McpServer]:
    """Return the servers of one value of `--mcp-config`. Raises `UsageError`."""
    if text.lstrip().startswith("{"):
        source = "--mcp-config"
        data = text.encode("utf-8", "surrogateescape")
        toml = False
    else:
        path = os.path.join(folder.cwd, os.path.expanduser(text))
        source, toml = folder.shown(path), path.endswith(".toml")
        try:
            data = read_bounded(path, FILE_BYTES_MAX)
        except OSError as error:
            raise UsageError(f"--mcp-config: {source} cannot be read ({error.strerror})") from None
    try:
        document = parse_table(data, toml=toml)
    except ValueError as error:
        raise UsageError(f"--mcp-config: {source} is not valid ({error})") from None
    entries = entries_in(document)
    if not entries:
        folder.notes.append(f'{source} names no MCP server: it needs {{"mcpServers": {{NAME: …}}}}')
    return [server for server, _ in folder.servers(entries, "flag", source)]


# --- Secrets --------------------------------------------------------------------------------------

_SECRET_NAME = r"(?i)key|token|secret|passw|credential|auth|cookie|pat$"
_SECRET_CHARS_MIN = 8


def server_secrets(servers: Iterable[McpServer]) -> tuple[str, ...]:
    """Return the values that entries give to servers as secrets, by the names of variables and
    headers.
    """
    pairs = [
        pair
        for server in servers
        for pair in (*server.env, *server.headers)
        if re.search(_SECRET_NAME, pair[0])
    ]
    words = [word for _, value in pairs for word in (value, value.rpartition(" ")[2])]
    usable = (
        word
        for word in words
        if len(word) >= _SECRET_CHARS_MIN and not word.startswith(("/", "~", "./"))
    )
    return tuple(dict.fromkeys(usable))


# --- Approvals of project servers -----------------------------------------------------------------
#
# An approval holds for one entry of one file, by its digest: an entry that is edited is asked about
# again.


def _file(state_dir: str) -> str:
    return f"{state_dir}/mcp_approvals.json"


def _key(path: str, name: str) -> str:
    return f"{os.path.realpath(path)}#{name}"


def digest_of(raw: Any) -> str:
    """Return the digest of an entry, with the order of its keys."""
    return sha256(msgspec.json.encode(raw)).hexdigest()


def read_approvals(state_dir: str) -> dict[str, str]:
    """Return the digest of each approved entry, perhaps with how it runs. A damaged file
    approves nothing.
    """
    try:
        return msgspec.json.decode(
            read_bounded(_file(state_dir), FILE_BYTES_MAX), type=dict[str, str]
        )
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


def project_servers(cwd: str, home: str, environ: Mapping[str, str]) -> list[McpServer]:
    """Return the servers that the files of the project name, approved or not. For display and
    approval.
    """
    folder = _Folder(cwd, home, environ, [])
    found = [
        server
        for path in project_servers_files(cwd)
        for server, _ in folder.servers(
            entries_in(folder.document(path)), "project", folder.shown(path)
        )
    ]
    return list({server.name: server for server in found}.values())


def approve_servers(
    state_dir: str, cwd: str, names: Iterable[str] | None = None, sandbox: Sandbox | None = None
) -> list[str]:
    """Approve the project's servers as they are now, or those of `names`; return the names.

    `sandbox`: how they run; None for as they were approved before, or strictly. Raises
    `SettingsError` when the file cannot be written.
    """
    wanted = None if names is None else set(names)
    before = read_approvals(state_dir)
    digests = {
        _key(path, usable_name(name)): digest_of(raw)
        for path in project_servers_files(cwd)
        for name, raw in entries_in(read_table(path, path, FILE_BYTES_MAX)[0]).items()
        if wanted is None or usable_name(name) in wanted
    }
    if sandbox is not None:
        digests = {key: f"{digest} {sandbox}" for key, digest in digests.items()}
    else:
        digests = {
            key: was if (was := before.get(key, "")).partition(" ")[0] == digest else digest
            for key, digest in digests.items()
        }
    if digests.items() - before.items():
        _write(_file(state_dir), {**before, **digests})
    return [key.rpartition("#")[2] for key in digests]


def forget_approvals(state_dir: str, cwd: str) -> None:
    """Take back the approvals of the project's servers. Raises `SettingsError`."""
    paths = [os.path.realpath(path) for path in project_servers_files(cwd)]
    before = read_approvals(state_dir)
    kept = {key: value for key, value in before.items() if key.rpartition("#")[0] not in paths}
    if kept != before:
        _write(_file(state_dir), kept)


# --- Changes by `longrein mcp` --------------------------------------------------------------------


def scope_file(scope: str, cwd: str, home: str, environ: Mapping[str, str]) -> str:
    """Return the file that `longrein mcp add` writes for a scope."""
    return (
        f"{project_root(cwd).rstrip('/')}/{PROJECT_FILE}"
        if scope == "project"
        else user_servers_file(environ, home)
    )


def change_entry(
    scope: str, name: str, entry: Mapping[str, Any] | None, cwd: str, path: str
) -> bool:
    """Write one entry into a file of servers, or with None remove it; return whether there was one
    before.

    Other content of the file stays. Raises `SettingsError` where the file is not valid or cannot be
    written.
    """
    document, problem = read_table(path, path, FILE_BYTES_MAX)
    if problem:
        raise SettingsError(problem)
    above = ("projects", project_root(cwd)) if scope == "local" else ()
    servers = document
    for key in (*above, "mcpServers"):
        servers = servers.setdefault(key, {})
        if not isinstance(servers, dict):
            raise SettingsError(f"{path}: {key} is not an object: correct it first")
    was = servers.pop(name, None)
    if entry is not None:
        servers[name] = dict(entry)
    if entry is not None or was is not None:
        _write(path, document)
    return was is not None


def _write(path: str, document: Any) -> None:
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    store_text(path, path, f"{text}\n", "mend that and try again")

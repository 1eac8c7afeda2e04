"""The methods of the agent side: answers each request of the editor, and holds its open
sessions.
"""

import asyncio
import os
import signal
from binascii import a2b_base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import RequestError, schema
from acp.connection import Connection
from pydantic import BaseModel, ValidationError

from longrein.app import Additions, App, ProgramServers
from longrein.app.user_requests import without_blanks
from longrein.extensions.acp import editor_commands
from longrein.extensions.acp.editor_bridge import EditorBridge
from longrein.extensions.acp.editor_session import EditorSession
from longrein.extensions.acp.json_lines import CANCEL_REQUEST, JsonLines
from longrein.frontends.loop_streams import signal_handlers
from longrein.frontends.stdio import say
from longrein.steps.human_text import escape_line
from longrein_context.events import (
    ATTACHED,
    AnyPart,
    Document,
    Image,
    LongreinError,
    ModelUnknown,
    SessionUnknown,
    Text,
    UsageError,
)
from longrein_context.events.escape import whole_number
from longrein_context.events.image_header import image_info
from longrein_context.state.quoting import quote_external

PROTOCOL_VERSION = 1
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
METHOD_NOT_FOUND = -32601
INTERNAL_ERROR = -32603
AUTH_REQUIRED, NOT_FOUND = -32000, -32002
MCP_TRANSPORTS = ("http", "sse")
"""Transports beside stdio by which MCP servers of the editor are used."""
PAGE = 50
"""Sessions in one answer to `session/list`."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
ENVIRONMENT = "environment"
"""Id of the method to authenticate: keys come from variables, settings or a local server."""
KEYS_TOLD = (
    "Set the key of a provider, such as ANTHROPIC_API_KEY, in the environment of the editor or in "
    "`env` of its agent "
    "settings, or name a provider in ~/.config/longrein/config.toml; `longrein doctor` says what "
    "is found."
)

Handler = Callable[[Any], Awaitable[Any]]
Routes = Mapping[str, tuple[type[BaseModel], Handler]]
"""Method -> model of its params, and the function that answers it."""


async def serve(app: App, incoming: int, outgoing: int) -> int:
    """Answer an editor on two descriptors until it closes its side, or a signal; return the exit
    code.

    All sessions are closed at the end: a turn is interrupted, and everything is on disk.
    """
    lines = JsonLines(incoming, outgoing)
    server = Server(app, lines)
    connection = Connection(server.handle, lines, listening=False)
    server.connect(connection)
    ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def end(code: int) -> None:
        if not ended.done():
            ended.set_result(code)

    lines.on_closed = lambda: end(0)
    with signal_handlers({number: partial(end, 128 + number) for number in SIGNALS}):
        listening = asyncio.ensure_future(connection.main_loop())
        listening.add_done_callback(lambda _: end(0))
        code = await ended
        await server.close()
    listening.cancel()
    await asyncio.wait({listening})
    await connection.close()
    return code


class Server:
    """Methods of one connection."""

    def __init__(self, app: App, lines: JsonLines) -> None:
        self._app, self._lines = app, lines
        self._sessions: dict[str, EditorSession] = {}
        self._opening: set[str] = set()
        self._logged_out = False
        self._capabilities = schema.ClientCapabilities()
        self._requests: Routes = {
            "initialize": (schema.InitializeRequest, self._initialize),
            "authenticate": (schema.AuthenticateRequest, self._authenticate),
            "logout": (schema.LogoutRequest, self._logout),
            "session/new": (schema.NewSessionRequest, self._new),
            "session/load": (schema.LoadSessionRequest, self._load),
            "session/resume": (schema.ResumeSessionRequest, self._resume),
            "session/fork": (schema.ForkSessionRequest, self._fork),
            "session/list": (schema.ListSessionsRequest, self._list),
            "session/close": (schema.CloseSessionRequest, self._close),
            "session/delete": (schema.DeleteSessionRequest, self._delete),
            "session/prompt": (schema.PromptRequest, self._prompt),
            "session/set_mode": (schema.SetSessionModeRequest, self._set_mode),
            "session/set_config_option": (
                schema.SetSessionConfigOptionSelectRequest,
                self._set_option,
            ),
        }
        self._notifications: Routes = {
            "session/cancel": (schema.CancelNotification, self._cancel),
            CANCEL_REQUEST: (schema.CancelRequestNotification, self._cancel_request),
        }

    def connect(self, connection: Connection) -> None:
        """Set the connection, by which the sessions reach the editor."""
        self._peer = connection

    async def close(self) -> None:
        sessions, self._sessions = list(self._sessions.values()), {}
        for result in await asyncio.gather(
            *(one.close() for one in sessions), return_exceptions=True
        ):
            if isinstance(result, Exception):
                say(f"a session could not be closed cleanly: {result}")

    async def handle(self, method: str, params: Any, is_notification: bool) -> Any:
        """Answer one message; the connection turns a `RequestError` into an error response."""
        if not is_notification:
            return await self._answer(self._requests, method, params)
        if method in self._notifications:
            try:
                await self._answer(self._notifications, method, params)
            except RequestError as error:  # nobody gets an answer to a notification
                say(f"{method}: {error}")
        return None

    async def _answer(self, routes: Routes, method: str, params: Any) -> Any:
        if method not in routes:
            raise RequestError(METHOD_NOT_FOUND, f"Method not found: {method}", {"method": method})
        model, handler = routes[method]
        try:
            return await handler(model.model_validate({} if params is None else params))
        except RequestError:
            raise
        except ValidationError as error:
            raise _invalid(error) from None
        except LongreinError as error:
            raise RequestError(_code(error), str(error)) from None
        except Exception as error:
            say(f"{method}: {type(error).__name__}: {error} (a bug in longrein, please report it)")
            raise RequestError(INTERNAL_ERROR, f"{type(error).__name__}: {error}") from None

    # --- connection -------------------------------------------------------------------------------

    async def _initialize(self, request: Any) -> Any:
        self._capabilities = request.client_capabilities or schema.ClientCapabilities()
        return {
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {name: name in MCP_TRANSPORTS for name in ("http", "sse")},
                "sessionCapabilities": {
                    "list": {},
                    "delete": {},
                    "resume": {},
                    "close": {},
                    "fork": {},
                    "additionalDirectories": {},
                },
                "auth": {"logout": {}},
            },
            "agentInfo": {"name": "longrein", "title": "longrein", "version": self._app.version},
            "authMethods": self._auth_methods(),
        }

    def _auth_methods(self) -> list[dict[str, Any]]:
        methods: list[dict[str, Any]] = [
            {"id": ENVIRONMENT, "name": "API key", "description": KEYS_TOLD}
        ]
        auth = self._capabilities.auth
        if auth is not None and getattr(auth, "terminal", False):
            doctor = {
                "type": "terminal",
                "id": "doctor",
                "name": "Show what is missing",
                "args": ["--doctor"],
            }
            methods.append(doctor)
        return methods

    async def _authenticate(self, request: Any) -> Any:
        known = [method["id"] for method in self._auth_methods()]
        if request.method_id not in known:
            raise UsageError(
                f"there is no method {request.method_id!r} to authenticate; there are "
                f"{', '.join(known)}"
            )
        self._app.check_model()
        self._logged_out = False
        return {}

    async def _logout(self, _request: Any) -> Any:
        self._logged_out = True
        return {}

    def _check_login(self) -> None:
        if self._logged_out:
            raise RequestError(AUTH_REQUIRED, "logged out: authenticate first")

    # --- sessions ---------------------------------------------------------------------------------

    async def _new(self, request: Any) -> Any:
        session = await self._open(request, "", replay=False)
        return {"sessionId": session.id, **session.options()}

    async def _load(self, request: Any) -> Any:
        return (await self._open(request, request.session_id, replay=True)).options()

    async def _resume(self, request: Any) -> Any:
        return (await self._open(request, request.session_id, replay=False)).options()

    async def _fork(self, request: Any) -> Any:
        self._check_login()
        copy = await self._app.fork(request.session_id)
        session = await self._open(request, copy, replay=False)
        return {"sessionId": session.id, **session.options()}

    async def _open(self, request: Any, session: str, *, replay: bool) -> EditorSession:
        self._check_login()
        folders = _folders(request)
        if session in self._sessions:
            if self._sessions[session].port.busy:
                raise RequestError(
                    INVALID_REQUEST, f"session {session} is in a turn; cancel it first"
                )
            await self._sessions.pop(session).close()
        if session and session in self._opening:
            raise RequestError(INVALID_REQUEST, f"session {session} is being opened already")
        self._opening.add(session)
        try:
            bridge = EditorBridge(self._peer, self._capabilities)
            app = self._app.in_folder(request.cwd, folders)
            additions = Additions(
                editor=bridge.editor(),
                servers=ProgramServers(mcp_servers(request.mcp_servers or ()), "editor"),
                asks_user=True,
                answers_permissions=True,
            )
            app_session = await app.open(session, fresh=not session, additions=additions)
            elicitation = self._capabilities.elicitation
            forms = elicitation is not None and elicitation.form is not None
            opened = EditorSession(app_session, self._peer, forms=forms)
            if forms:
                app_session.let_user_answer(opened.answer_server)
            bridge.connect(opened.id, opened.show_terminal)
        finally:
            self._opening.discard(session)
        self._sessions[opened.id] = opened
        try:
            await opened.start(replay=replay)
        except BaseException:
            await self._sessions.pop(opened.id).close()
            raise
        asyncio.get_running_loop().call_soon(
            asyncio.ensure_future, opened.announce()
        )  # after the response
        return opened

    async def _list(self, request: Any) -> Any:
        found = [
            one for one in self._app.sessions() if one.title and request.cwd in (None, one.cwd)
        ]
        start = _cursor(request.cursor)
        rows = [
            {
                "sessionId": one.session,
                "cwd": one.cwd,
                "title": one.title,
                "updatedAt": datetime.fromtimestamp(one.updated_at / 1e6, UTC).isoformat(),
            }
            for one in found[start : start + PAGE]
        ]
        more = {"nextCursor": str(start + PAGE)} if len(found) > start + PAGE else {}
        return {"sessions": rows, **more}

    async def _close(self, request: Any) -> Any:
        self._find(request.session_id)
        await self._sessions.pop(request.session_id).close()
        return {}

    async def _delete(self, request: Any) -> Any:
        if request.session_id in self._sessions:
            await self._sessions.pop(request.session_id).close()
        await self._app.delete(request.session_id)
        return {}

    def _find(self, session: str) -> EditorSession:
        if session not in self._sessions:
            raise RequestError(
                NOT_FOUND, f"session {session} is not open here", {"sessionId": session}
            )
        return self._sessions[session]

    # --- turns ------------------------------------------------------------------------------------

    async def _prompt(self, request: Any) -> Any:
        session = self._find(request.session_id)
        self._check_login()
        texts = [block.text for block in request.prompt if block.type == "text"]
        command = editor_commands.find(texts[0]) if len(request.prompt) == 1 and texts else None
        if command is not None:
            return {"stopReason": await session.run_command(command[0].run, command[1])}
        log = session.opened.log
        parts = parts_of(request.prompt, session.port.state.nonce, log.put_blob)
        stop = await session.prompt(parts)
        await session.announce()  # files may have come or gone
        return {"stopReason": stop}

    async def _cancel(self, request: Any) -> None:
        if request.session_id in self._sessions:
            self._sessions[request.session_id].cancel()

    async def _cancel_request(self, request: Any) -> None:
        """Cancel a prompt by the id of its request; other requests are over at once."""
        session = self._lines.prompts.get(request.request_id, "")
        if session in self._sessions:
            self._sessions[session].cancel()

    async def _set_mode(self, request: Any) -> Any:
        await self._find(request.session_id).set_mode(request.mode_id)
        return {}

    async def _set_option(self, request: Any) -> Any:
        session = self._find(request.session_id)
        match request.config_id:
            case "mode":
                await session.set_mode(request.value)
            case "model":
                await session.set_model(request.value)
            case option:
                raise UsageError(f"there is no configuration option {option!r}")
        return {"configOptions": session.options()["configOptions"]}


def _folders(request: Any) -> Sequence[str]:
    """Return the folders to work in beside that of the session. Raises `UsageError` for a relative
    path.
    """
    folders = tuple(getattr(request, "additional_directories", None) or ())
    for path in (request.cwd, *folders):
        if not os.path.isabs(path) or "\0" in path:
            raise UsageError(f"{path!r} is no absolute path")
    return folders


def mcp_servers(servers: Sequence[Any]) -> dict[str, dict[str, Any]]:
    """Return the editor's MCP servers in the form of `.mcp.json`."""
    found: dict[str, dict[str, Any]] = {}
    for server in servers:
        if hasattr(server, "command"):
            env = {variable.name: variable.value for variable in server.env}
            found[server.name] = {"command": server.command, "args": list(server.args), "env": env}
        elif hasattr(server, "url"):
            headers = {header.name: header.value for header in server.headers}
            found[server.name] = {"type": server.type, "url": server.url, "headers": headers}
    return found


def _cursor(cursor: str | None) -> int:
    if not cursor:
        return 0
    at = whole_number(cursor, -1)
    if at < 0:
        raise UsageError(f"{cursor[:40]!r} is no cursor of session/list")
    return at


def _code(error: LongreinError) -> int:
    match error:
        case ModelUnknown():
            return AUTH_REQUIRED
        case SessionUnknown():
            return NOT_FOUND
        case UsageError():
            return INVALID_PARAMS
        case _:
            return INTERNAL_ERROR


def _invalid(error: ValidationError) -> RequestError:
    """Return the error for params that do not fit the schema, with the places that are wrong."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    told = "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'params'}: {one['msg']}" for one in problems[:3]
    )
    return RequestError(INVALID_PARAMS, f"Invalid params: {told}", {"errors": problems})


KeepBlob = Callable[[bytes], str]

IMAGE_BYTES_MAX = 32 * 1024 * 1024
RESOURCE_CHARS_MAX = 200_000
"""Characters of an embedded resource that go into the message; the model reads the rest of a
file itself.
"""


def parts_of(blocks: Sequence[Any], nonce: str, keep_blob: KeepBlob) -> tuple[AnyPart, ...]:
    """Convert the blocks of a prompt. Raises `UsageError` for an empty prompt and for what cannot
    be taken.

    The content of resources comes from files, so it is quoted as data. `nonce` is that of the
    session.
    """
    parts = without_blanks(_part(block, nonce, keep_blob) for block in blocks)
    if not parts:
        raise UsageError("the prompt is empty")
    return parts


def _part(block: Any, nonce: str, keep_blob: KeepBlob) -> AnyPart:
    match block.type:
        case "text":
            return Text(block.text.replace("\0", "\ufffd"))
        case "image":
            data = _bytes(block.data, IMAGE_BYTES_MAX)
            return _image(data, block.mime_type, keep_blob)
        case "resource_link":
            return Text(_link(block))
        case "resource":
            return _resource(block.resource, nonce, keep_blob)
        case kind:
            raise UsageError(
                f"a content block of type {kind!r} cannot be taken; text, images and resources can"
            )


def _image(data: bytes, media: str, keep_blob: KeepBlob) -> AnyPart:
    """Return a picture with the type and the sides that its header says."""
    info = image_info(data)
    if info is None:
        return Image(keep_blob(data), media, len(data))
    return Image(keep_blob(data), info.media, len(data), info.width, info.height)


def _link(block: Any) -> str:
    """Return the text for a link: of a file the path, which the model can read."""
    return f"[linked by the user: {escape_line(file_path(block.uri) or block.uri)}]"


def _resource(resource: Any, nonce: str, keep_blob: KeepBlob) -> AnyPart:
    name = escape_line(file_path(resource.uri) or resource.uri)
    text = getattr(resource, "text", None)
    if text is not None:
        more = (
            f"\n[{len(text) - RESOURCE_CHARS_MAX} more characters]"
            if len(text) > RESOURCE_CHARS_MAX
            else ""
        )
        quoted = quote_external(text[:RESOURCE_CHARS_MAX].replace("\0", "\ufffd"), nonce)
        return Text(f"{ATTACHED}{name}]\n{quoted}{more}\n[end of {name}]")
    data, media = (
        _bytes(resource.blob, IMAGE_BYTES_MAX),
        resource.mime_type or "application/octet-stream",
    )
    if media.startswith("image/"):
        return _image(data, media, keep_blob)
    if media == "application/pdf":
        return Document(keep_blob(data), media, len(data), name)
    return Text(
        f"{ATTACHED}{name}, {escape_line(media)}, {len(data)} bytes, which cannot be shown]"
    )


def file_path(uri: str) -> str:
    """Return the path of a `file:` URI, with `#L10` as `:10`; '' for any other."""
    found = urlsplit(uri) if uri.startswith("file:") else None
    if found is None:
        return ""
    line = found.fragment.removeprefix("L").partition(":")[0].partition("-")[0]
    return unquote(found.path) + (f":{line}" if line.isdigit() else "")


def _bytes(data: str, most: int) -> bytes:
    try:
        found = a2b_base64(data, strict_mode=True)
    except ValueError:
        raise UsageError("the data of an image or a resource is no base64") from None
    if len(found) > most:
        raise UsageError(f"an image or a resource is larger than {most >> 20} MB")
    return found

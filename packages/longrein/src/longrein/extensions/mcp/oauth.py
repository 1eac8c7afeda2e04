"""OAuth for MCP servers over HTTP: tokens in a file of mode 0600, redirect to a loopback port."""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import httpx2
import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.oauth2 import OAuthContext
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from mcp.shared.auth_utils import calculate_token_expiry
from pydantic import AnyUrl

from longrein.atomic_file import replace_file
from longrein.extensions.mcp.mcp_port import McpFailure, ServerHost
from longrein.extensions.mcp.server_config import McpServer, token_path
from longrein_context.events import decode_object

LOGIN_S = 300.0
"""Time the user has to log in."""
HEAD_BYTES_MAX = 16_000
PAGE = "<!doctype html><title>longrein</title><p>{} You can close this page.</p>"


class TokenFile:
    """The SDK's `TokenStorage` for one server: one JSON file."""

    def __init__(self, server: McpServer, folder: str) -> None:
        self.path = token_path(server, folder)

    def _read(self) -> dict[str, object]:
        try:
            with open(self.path, "rb") as file:
                return decode_object(file.read()) or {}
        except OSError:
            return {}

    def _write(self, **values: object) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        data = msgspec.json.encode({**self._read(), **values})
        replace_file(self.path, (data,), durable=True, temporary=f"{self.path}.{os.getpid()}.new")

    async def get_tokens(self) -> OAuthToken | None:
        found = self._read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._write(
            tokens=tokens.model_dump(mode="json", exclude_none=True),
            expires_at=calculate_token_expiry(tokens.expires_in),
        )

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        found = self._read().get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._write(client=client_info.model_dump(mode="json", exclude_none=True))

    def fit(self, server: McpServer) -> int:
        """Take the client that the server's entry names; return the port of the redirect.

        A registration holds for one port. Another client, or another port, begins without tokens.
        """
        found, wanted = self._read().get("client"), server.oauth
        known = OAuthClientInformationFull.model_validate(found) if found else None
        uris = known.redirect_uris or () if known is not None else ()
        port = wanted.callback_port or _free_port(next((uri.port or 0 for uri in uris), 0))
        is_wanted = known is not None and wanted.client_id in ("", known.client_id)
        if is_wanted and redirect_address(port) in map(str, uris):
            return port
        if known is not None:
            self._write(tokens=None, client=None)
        if wanted.client_id:
            client = OAuthClientInformationFull(
                client_id=wanted.client_id,
                redirect_uris=[AnyUrl(redirect_address(port))],
                token_endpoint_auth_method="none",
            )
            self._write(client=client.model_dump(mode="json", exclude_none=True))
        return port

    def set_places(self, context: OAuthContext) -> None:
        """Store where tokens are renewed."""
        places = {
            "metadata": context.oauth_metadata,
            "resource": context.protected_resource_metadata,
        }
        self._write(
            **{
                key: one and one.model_dump(mode="json", exclude_none=True)
                for key, one in places.items()
            }
        )

    def complete(self, context: OAuthContext) -> None:
        """Add to the tokens what the SDK does not store: when they expire, and where they are
        renewed.
        """
        found = self._read()
        expires_at = found.get("expires_at")
        context.token_expiry_time = expires_at if isinstance(expires_at, int | float) else None
        if found.get("metadata"):
            context.oauth_metadata = OAuthMetadata.model_validate(found["metadata"])
        if found.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(
                found["resource"]
            )


class StoredLogin(OAuthClientProvider):  # type: ignore[misc]
    """The SDK's authentication; its tokens are also renewed by a process that has not logged in
    itself.
    """

    async def _initialize(self) -> None:
        await super()._initialize()
        self.context.storage.complete(self.context)

    async def _refresh_token(self) -> httpx2.Request:
        await (
            self._initialize()
        )  # another longrein may have renewed them: a token for renewal holds once
        request: httpx2.Request = await super()._refresh_token()
        return request

    async def _handle_token_response(self, response: httpx2.Response) -> None:
        await super()._handle_token_response(response)
        self.context.storage.set_places(self.context)


def oauth_of(server: McpServer, host: ServerHost) -> OAuthClientProvider | None:
    """Return the authentication for a server: the flow runs only after a 401.

    Without a user who can log in, stored tokens are used and refreshed, and else the 401 is the
    error.
    """
    storage = TokenFile(server, host.token_folder)
    if host.login is None and not os.path.exists(storage.path):
        return None
    redirect = LoopbackRedirect(storage.fit(server), host.login)
    metadata = OAuthClientMetadata(
        client_name="longrein",
        redirect_uris=[AnyUrl(redirect.address)],
        token_endpoint_auth_method="none",
        scope=server.oauth.scopes or None,
    )
    return StoredLogin(server.url, metadata, storage, redirect.show, redirect.wait)


class LoopbackRedirect:
    """The address on this machine to which the browser returns with the code."""

    def __init__(self, port: int, login: Callable[[str], Awaitable[None]] | None) -> None:
        self._port = port
        self._login = login
        self._found: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        return redirect_address(self._port)

    async def show(self, url: str) -> None:
        """Listen, then show the user where to log in."""
        if self._login is None:
            raise McpFailure("it wants you to log in (HTTP 401)")
        self._found = asyncio.get_running_loop().create_future()
        for addresses in (("127.0.0.1", "::1"), ("127.0.0.1",)):  # without IPv6
            try:
                self._server = await asyncio.start_server(
                    self._answer, addresses, self._port, limit=HEAD_BYTES_MAX
                )
                break
            except OSError as error:
                problem = f"port {self._port} for the login cannot be opened ({error.strerror})"
        else:
            raise McpFailure(problem)
        await self._login(url)

    async def wait(self) -> AuthorizationCodeResult:
        """Wait for the browser."""
        assert self._found is not None
        try:
            return await asyncio.wait_for(self._found, LOGIN_S)
        except TimeoutError:
            raise McpFailure(f"nobody has logged in within {LOGIN_S:g} s") from None
        finally:
            if self._server is not None:
                self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            found = re.match(rb"GET (/callback\?[!-~]*) HTTP/1", head)
            query = parse_qs(urlsplit(found[1].decode()).query) if found else {}
            said = "Not found."
            if (
                self._found is not None
                and not self._found.done()
                and ("code" in query or "error" in query)
            ):
                if "code" in query:
                    said = "You are logged in."
                    one = {key: values[0] for key, values in query.items()}
                    self._found.set_result(
                        AuthorizationCodeResult(
                            code=one["code"], state=one.get("state"), iss=one.get("iss")
                        )
                    )
                else:
                    said = "The login was refused."
                    self._found.set_exception(
                        McpFailure(f"the login was refused: {query['error'][0][:100]}")
                    )
            page = PAGE.format(said).encode()
            status = b"404 Not Found" if said == "Not found." else b"200 OK"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: "
                b"close\r\n\r\n%s" % (status, len(page), page)
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not the browser
        finally:
            writer.close()


def redirect_address(port: int) -> str:
    """Return the redirect URI; clients that are registered by hand name it in this form."""
    return f"http://localhost:{port}/callback"


def _free_port(wanted: int) -> int:
    """Return a free port, `wanted` if it is one."""
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", wanted))
        except OSError:
            return _free_port(0)
        return int(one.getsockname()[1])

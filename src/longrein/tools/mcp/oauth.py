"""OAuth for MCP servers over HTTP: tokens in a file of mode 0600, redirect to a loopback port."""

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import msgspec
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl

from longrein.atomic_file import replace_file
from longrein.tools.mcp.port import McpFailure, ServerHost
from longrein.tools.mcp.server_config import McpServer, token_path

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
                found = msgspec.json.decode(file.read())
        except (OSError, msgspec.DecodeError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, key: str, value: object) -> None:
        os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
        data = msgspec.json.encode({**self._read(), key: value})
        replace_file(self.path, (data,), durable=True, temporary=f"{self.path}.{os.getpid()}.new")

    async def get_tokens(self) -> OAuthToken | None:
        """Return the stored tokens."""
        found = self._read().get("tokens")
        return OAuthToken.model_validate(found) if found else None

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Store tokens."""
        self._write("tokens", tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return the registration."""
        found = self._read().get("client")
        return OAuthClientInformationFull.model_validate(found) if found else None

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Store the registration."""
        self._write("client", client_info.model_dump(mode="json", exclude_none=True))


def oauth_of(server: McpServer, host: ServerHost) -> OAuthClientProvider | None:
    """Return the authentication for a server: the flow runs only after a 401.

    Without a user who can log in, stored tokens are used and refreshed, and else the 401 is the error.
    """
    storage = TokenFile(server, host.token_folder)
    if host.login is None and not os.path.exists(storage.path):
        return None
    redirect = LoopbackRedirect(server.oauth.callback_port, host.login)
    metadata = OAuthClientMetadata(
        client_name="longrein",
        redirect_uris=[AnyUrl(redirect.address)],
        token_endpoint_auth_method="none",
        scope=server.oauth.scopes or None,
    )
    if server.oauth.client_id and not storage._read().get("client"):
        known = OAuthClientInformationFull(
            client_id=server.oauth.client_id,
            redirect_uris=[AnyUrl(redirect.address)],
            token_endpoint_auth_method="none",
        )
        storage._write("client", known.model_dump(mode="json", exclude_none=True))
    return OAuthClientProvider(server.url, metadata, storage, redirect.show, redirect.wait)


class LoopbackRedirect:
    """The address on this machine to which the browser returns with the code."""

    def __init__(self, port: int, login: Callable[[str], Awaitable[None]] | None) -> None:
        self._port = port or _free_port()
        self._login = login
        self._found: asyncio.Future[AuthorizationCodeResult] | None = None
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> str:
        """The redirect URI."""
        return f"http://127.0.0.1:{self._port}/callback"

    async def show(self, url: str) -> None:
        """Listen, then show the user where to log in."""
        if self._login is None:
            raise McpFailure("it wants you to log in (HTTP 401)")
        self._found = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port, limit=HEAD_BYTES_MAX)
        except OSError as error:
            raise McpFailure(f"port {self._port} for the login cannot be opened ({error.strerror})") from None
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
            if self._found is not None and not self._found.done() and ("code" in query or "error" in query):
                if "code" in query:
                    said = "You are logged in."
                    one = {key: values[0] for key, values in query.items()}
                    self._found.set_result(
                        AuthorizationCodeResult(code=one["code"], state=one.get("state"), iss=one.get("iss"))
                    )
                else:
                    said = "The login was refused."
                    self._found.set_exception(McpFailure(f"the login was refused: {query['error'][0][:100]}"))
            page = PAGE.format(said).encode()
            status = b"404 Not Found" if said == "Not found." else b"200 OK"
            writer.write(
                b"HTTP/1.1 %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s"
                % (status, len(page), page)
            )
            await writer.drain()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not the browser
        finally:
            writer.close()


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])

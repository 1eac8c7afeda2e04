"""An MCP server over HTTP that wants a login, made of the SDK's own server side. It logs everybody
in at once.

Environment: PORT; CLIENT and REDIRECT of the only client, where clients cannot register themselves.
"""

import os
import secrets
import time

from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl, AnyUrl

PORT = int(os.environ["PORT"])
LIFETIME_S = 3600
CLIENT, REDIRECT = os.environ.get("CLIENT", ""), os.environ.get("REDIRECT", "")


class Provider:
    """Authorization server in memory."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        if CLIENT:
            self.clients[CLIENT] = OAuthClientInformationFull(
                client_id=CLIENT,
                redirect_uris=[AnyUrl(REDIRECT)],
                token_endpoint_auth_method="none",
            )
        self.renewed = 0
        self.codes: dict[str, AuthorizationCode] = {}
        self.tokens: dict[str, AccessToken] = {}
        self.renewals: dict[str, RefreshToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        code = AuthorizationCode(
            code=secrets.token_hex(16),
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=str(client.client_id),
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(str(client.client_id), authorization_code.resource)

    def _issue(self, client: str, resource: str | None) -> OAuthToken:
        access, renewal = f"access-{secrets.token_hex(16)}", f"renewal-{secrets.token_hex(16)}"
        until = int(time.time()) + LIFETIME_S
        self.tokens[access] = AccessToken(
            token=access, client_id=client, scopes=[], expires_at=until, resource=resource
        )
        self.renewals[renewal] = RefreshToken(
            token=renewal, client_id=client, scopes=[], resource=resource
        )
        return OAuthToken(access_token=access, expires_in=LIFETIME_S, refresh_token=renewal)

    async def load_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.renewals.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.renewals[refresh_token.token]
        self.renewed += 1
        return self._issue(str(client.client_id), refresh_token.resource)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


BASE = f"http://127.0.0.1:{PORT}"
provider = Provider()
server = MCPServer(
    "guarded",
    auth_server_provider=provider,
    auth=AuthSettings(
        issuer_url=AnyHttpUrl(BASE),
        resource_server_url=AnyHttpUrl(f"{BASE}/mcp"),
        client_registration_options=ClientRegistrationOptions(enabled=not CLIENT),
    ),
    log_level="ERROR",
)


@server.tool()
def whoami() -> str:
    """Say who is logged in."""
    return f"a friend; renewed {provider.renewed} times; clients {', '.join(provider.clients)}"


server.run("streamable-http", host="127.0.0.1", port=PORT)

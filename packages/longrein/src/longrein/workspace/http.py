"""HTTP requests of longrein but those to providers: pages of `WebFetch`, hooks, MCP servers.

Names are looked up here, and the connection goes to the address that was checked, so that a second
look-up cannot lead elsewhere. `request` follows no redirect: the caller judges the new address
first.
"""

import asyncio
import os
import socket
import zlib
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, urljoin, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from longrein.permissions.network_hosts import (
    Target,
    canonical_host,
    is_address,
    is_public,
    matches_entry,
)
from longrein_context.events.escape import one_line

SCHEMES = {"http": 80, "https": 443}
"""Scheme -> its port."""
URL_CHARS_MAX = 8_000
RESOLVE_S = 10.0
REDIRECTS = frozenset((301, 302, 303, 307, 308))


class NetError(Exception):
    """A request that was refused or failed: what happened, in one line."""


class Response(NamedTuple):
    """Answer of a server."""

    url: str
    status: int
    content_type: str
    """Media type in lower case without parameters."""
    charset: str
    """Charset that the server names; '' for none."""
    data: bytes
    """Decompressed body, at most as long as was asked for."""
    is_cut: bool
    """True if the body is longer."""
    location: str
    """Absolute address of a redirect; '' for none."""


def parse_url(url: str) -> SplitResult:
    """Return the parts of an address, with the host in canonical form. Raises `NetError` for
    what is no web address.
    """
    try:
        parts = urlsplit(url.strip())
        if parts.scheme not in SCHEMES:
            raise NetError(
                "only http and https addresses can be fetched, not "
                f"{parts.scheme or 'one without either'}"
            )
        port = parts.port
        host = canonical_host(
            f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or ""
        )
    except (ValueError, UnicodeError) as error:
        raise NetError(f"not a web address: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise NetError("the address holds a name or a password, which is not sent")
    if len(url) > URL_CHARS_MAX or any(ord(char) < 33 or ord(char) == 127 for char in url.strip()):
        raise NetError(f"the address is longer than {URL_CHARS_MAX} characters, or holds blanks")
    netloc = f"[{host}]" if ":" in host else host
    if port not in (None, SCHEMES[parts.scheme]):
        netloc += f":{port}"
    return SplitResult(parts.scheme, netloc, parts.path or "/", parts.query, "")


async def request(
    url: str,
    *,
    method: str = "GET",
    content: bytes = b"",
    trusted: Sequence[str] = (),
    timeout_s: float = 60.0,
    bytes_max: int = 5 << 20,
    headers: Sequence[tuple[str, str]] = (),
) -> Response:
    """Request one address; raises `NetError`. `trusted`: see `CheckedTransport`."""
    parts = parse_url(url)
    sent = [("Accept-Encoding", "gzip"), ("User-Agent", "longrein"), *headers]
    try:
        async with (
            asyncio.timeout(timeout_s),
            httpx2.AsyncClient(transport=CheckedTransport(trusted), trust_env=False) as client,
            client.stream(
                method, urlunsplit(parts), content=content, headers=sent, timeout=None
            ) as answer,
        ):
            return await _read(answer, urlunsplit(parts), bytes_max)
    except TimeoutError:
        raise NetError(f"no complete answer from {parts.netloc} within {timeout_s:g} s") from None
    except RefusedAddress as error:
        raise NetError(str(error)) from None
    except (httpx2.HTTPError, OSError, ValueError) as error:
        raise NetError(f"{parts.netloc} cannot be reached: {_one_line(error)}") from None


def host_of(url: str) -> str:
    """Return the host of an address that the user has configured, as an entry of `trusted`.
    Raises `NetError`.
    """
    parts = parse_url(url)
    return Target(parts.hostname or "", parts.port or SCHEMES[parts.scheme]).entry


class RefusedAddress(httpx2.ConnectError):
    """A host that must not be reached, or whose name leads nowhere."""


class CheckedTransport(httpx2.AsyncBaseTransport):
    """Transport that judges the host of each request, also of redirects, and connects to the
    address it has checked.

    `trusted` lists hosts, as `sandbox.network` does, that may be on this machine or in a private
    network. They are reached without the proxy that the environment names.
    """

    def __init__(self, trusted: Sequence[str]) -> None:
        self._trusted = tuple(trusted)
        self._transports: dict[str, httpx2.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises `RefusedAddress`."""
        url = request.url
        try:
            host = canonical_host(f"[{url.host}]" if ":" in url.host else url.host)
        except ValueError as error:
            raise RefusedAddress(f"not a web address: {error}") from None
        target = Target(host, url.port or SCHEMES.get(url.scheme, 0))
        is_trusted = any(matches_entry(entry, target) for entry in self._trusted)
        proxy = "" if is_trusted else _proxy(url.scheme, host)
        if not proxy or is_address(host):
            url = url.copy_with(host=await _checked_address(target, is_trusted))
        sent = httpx2.Request(
            request.method,
            url,
            headers=request.headers,
            stream=request.stream,
            extensions={**request.extensions, "sni_hostname": host},
        )
        if proxy not in self._transports:
            context = httpx2.create_ssl_context(trust_env=False)
            self._transports[proxy] = httpx2.AsyncHTTPTransport(
                context, proxy=proxy or None, trust_env=False
            )
        return await self._transports[proxy].handle_async_request(sent)

    async def aclose(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            await transport.aclose()


async def _read(answer: httpx2.Response, url: str, bytes_max: int) -> Response:
    kind, _, parameters = answer.headers.get("content-type", "").partition(";")
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(" \"'")
    location = answer.headers.get("location", "") if answer.status_code in REDIRECTS else ""
    encoding = answer.headers.get("content-encoding", "identity").strip().lower()
    raw = bytearray()
    if not location:
        async for piece in answer.aiter_raw():
            raw += piece
            if len(raw) > bytes_max:
                break
    data = _decompress(bytes(raw), encoding, bytes_max + 1)
    absolute = urljoin(url, location) if location else ""
    return Response(
        url,
        answer.status_code,
        kind.strip().lower(),
        charset,
        data[:bytes_max],
        len(data) > bytes_max,
        absolute,
    )


def _decompress(raw: bytes, encoding: str, bytes_max: int) -> bytes:
    if encoding in ("identity", ""):
        return raw
    if encoding not in ("gzip", "x-gzip", "deflate"):
        raise NetError(f"the answer is compressed as {encoding[:20]}, which was not asked for")
    try:
        return zlib.decompressobj(47).decompress(raw, bytes_max)
    except zlib.error as error:
        raise NetError(f"the answer is not what its header says, {encoding}: {error}") from None


async def _checked_address(target: Target, is_trusted: bool) -> str:
    """Look a host up and return the address to connect to. Refuses one that is not public,
    unless it is trusted.
    """
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(
                target.host, target.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
            )
    except (OSError, TimeoutError, UnicodeError):
        raise RefusedAddress(f"the name {target.host} cannot be looked up") from None
    addresses = [str(info[4][0]) for info in found]
    refused = [address for address in addresses if not is_public(address)]
    if not addresses or (refused and not is_trusted):
        raise RefusedAddress(
            f"{target.host} is on this machine or in a private network "
            f"({refused[0] if refused else 'no address'}); "
            "the setting `tools.web_private_hosts` allows such hosts"
        )
    return addresses[0]


def _proxy(scheme: str, host: str) -> str:
    """Return the proxy that the environment names for a host; '' for none."""
    if proxy_bypass(host):
        return ""
    found = getproxies()
    return found.get(scheme) or found.get("all", "")


def _one_line(error: BaseException) -> str:
    text = one_line(str(error)) or type(error).__name__
    if isinstance(error, OSError) and error.errno:
        text = os.strerror(error.errno)
    return text[:200]

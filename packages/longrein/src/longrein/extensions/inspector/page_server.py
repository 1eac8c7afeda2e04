"""Serve pages on 127.0.0.1: of a session that runs, with new entries as server-sent events, of all
open sessions, or of a fleet and its sessions.

Whoever can reach a page reads whole sessions, so every request needs the token of the address
that was shown to the user, a `Host` that names this server, and no `Origin` of another site.
Nothing but the pages and their events is served, and nothing can be changed.
"""

import hmac
import secrets
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Generic, Protocol, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from longrein.extensions.inspector.inspection import changes
from longrein.extensions.inspector.page import content_policy, render
from longrein.extensions.inspector.page_data import Inspection, OpenSessionsData
from longrein.extensions.inspector.shorten import BODY_BYTES_MAX
from longrein_context.events.escape import whole_number

ADDRESS = "127.0.0.1"
NAMES = (ADDRESS, "localhost")
REQUEST_TIMEOUT_S = 20.0
"""Time in which a request must come in."""
HEARTBEAT_S = 15.0
VERSIONS_MAX = 64
"""States of the page from which a browser can go on after its connection was lost."""
END_WAIT_S = 1.0
CONNECTIONS_MAX = 16
HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class Pages(Protocol):
    """Pages that a server shows."""

    def html(self, path: str, token: str) -> bytes | None:
        """Return the page at a path of the server; None if there is none."""

    def live(self, path: str) -> "LivePage[Any] | None":
        """Return the page at a path if it sends events."""

    def end(self) -> None:
        """Tell all browsers that nothing more comes."""


Document = TypeVar("Document", Inspection, OpenSessionsData)


class LivePage(Generic[Document]):
    """The present state of the page at `path`, for all browsers that show it. Thread-safe."""

    def __init__(
        self,
        first: Document,
        changes: Callable[[Document, Document], tuple[object, Document]],
        path: str = "/",
    ) -> None:
        """`changes` returns for two states the update from one to the other, and the latter as it
        is shown.
        """
        self._changes: Callable[[Document, Document], tuple[object, Document]] = changes
        self._path = path
        self._versions: dict[int, Document] = {1: first}
        self._version = 1
        self._changed = threading.Condition()
        self.is_ended = False

    def current(self) -> tuple[int, Document]:
        """Return the newest state with its number."""
        with self._changed:
            return self._version, self._versions[self._version]

    def show(self, newer: Document) -> None:
        """Show a newer state."""
        _, fitted = self._changes(self.current()[1], newer)
        with self._changed:
            self._version += 1
            self._versions[self._version] = fitted
            self._versions.pop(self._version - VERSIONS_MAX, None)
            self._changed.notify_all()

    def html(self, path: str, token: str) -> bytes | None:
        """Return the page, which asks for the events after its state."""
        if path != self._path:
            return None
        version, now = self.current()
        live = f"{path.rstrip('/')}/events?token={token}&after={version}"
        return render(msgspec.json.encode(msgspec.structs.replace(now, live=live)), live=True)

    def live(self, path: str) -> "LivePage[Document] | None":
        """See `Pages.live`."""
        return self if path == self._path else None

    def end(self) -> None:
        """Tell all browsers that nothing more comes."""
        with self._changed:
            self.is_ended = True
            self._changed.notify_all()

    def next_event(self, after: int) -> tuple[int, bytes]:
        """Wait for the event after state `after`; return the number of the new state and the
        event's bytes.

        A heartbeat keeps the number. `reload` is sent when the state is no longer known, `end` as
        the last event.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._version != after or self.is_ended, HEARTBEAT_S)
            version, now = self._version, self._versions[self._version]
            before, is_ended = self._versions.get(after), self.is_ended
        if version != after and before is None:
            return version, b"event: reload\ndata: {}\n\n"
        if version != after and before is not None:
            update, _ = self._changes(before, now)
            return version, b"id: %d\nevent: update\ndata: %b\n\n" % (
                version,
                msgspec.json.encode(update),
            )
        return version, b"event: end\ndata: {}\n\n" if is_ended else b": still here\n\n"


def session_page(inspection: Inspection, path: str = "/") -> LivePage[Inspection]:
    """Return the live page of a session."""
    limit = inspection.left_out.above_bytes or BODY_BYTES_MAX
    return LivePage(inspection, lambda before, now: changes(before, now, limit), path)


class InspectorServer(ThreadingHTTPServer):
    """HTTP server of pages. `url` is the address to open."""

    daemon_threads = True
    request_queue_size = CONNECTIONS_MAX

    def __init__(self, page: Pages) -> None:
        super().__init__((ADDRESS, 0), PageHandler)
        self.page = page
        self.token = secrets.token_urlsafe(32)
        self.free = threading.BoundedSemaphore(CONNECTIONS_MAX)

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.server_port}/?token={self.token}"

    def refusal(self, path: str, header: Callable[[str], list[str]]) -> str:
        """Return why a request is refused; '' if it is allowed. `header`: all values of a
        header.
        """
        hosts, origins = header("Host"), header("Origin")
        if len(hosts) != 1 or hosts[0] not in [f"{name}:{self.server_port}" for name in NAMES]:
            return "this server is called by another name"
        if any(origin not in [f"http://{host}" for host in hosts] for origin in origins):
            return "another site has asked"
        if any(site not in ("same-origin", "none") for site in header("Sec-Fetch-Site")):
            return "another site has asked"
        given = parse_qs(urlsplit(path).query).get("token", []) if path.startswith("/") else []
        if len(given) != 1 or not hmac.compare_digest(
            given[0].encode("utf-8", "replace"), self.token.encode()
        ):
            return "the token is missing or wrong; open the address that longrein has shown"
        return ""

    def finish(self) -> None:
        """Tell the open pages of the end, wait shortly until they know, and stop.
        `serve_forever` must be running.
        """
        self.page.end()
        for _ in range(CONNECTIONS_MAX):
            self.free.acquire(timeout=END_WAIT_S / CONNECTIONS_MAX)
        self.shutdown()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore a connection that broke."""


class PageHandler(BaseHTTPRequestHandler):
    """Answers one request."""

    server: InspectorServer
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "longrein", ""
    timeout = REQUEST_TIMEOUT_S

    def parse_request(self) -> bool:
        """Read the head of a request of any method. Return False if it was answered here."""
        if not super().parse_request():
            return False
        self.close_connection = True
        refused = self.server.refusal(self.path, lambda name: self.headers.get_all(name, []))
        if refused:
            self._send(HTTPStatus.FORBIDDEN, refused)
        elif self.command != "GET":
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, "the page can only be read")
        elif not self.server.free.acquire(blocking=False):
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, "the page is open too often")
        else:
            try:
                self._answer()
            finally:
                self.server.free.release()
        return False

    def _answer(self) -> None:
        path = urlsplit(self.path).path
        page = self.server.page
        place, _, name = path.rpartition("/")
        if name == "events" and (live := page.live(place or "/")):
            self._stream(live)
        elif html := page.html(path, self.server.token):
            self._send(HTTPStatus.OK, html, "text/html; charset=utf-8")
        else:
            self._send(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _stream(self, page: LivePage[Any]) -> None:
        """Send events until the page's state ends or the browser leaves."""
        asked = parse_qs(urlsplit(self.path).query).get("after", ["0"])[0]
        after = self.headers.get("Last-Event-ID") or asked
        version = whole_number(after)
        self._begin(HTTPStatus.OK, "text/event-stream; charset=utf-8")
        while True:
            version, event = page.next_event(version)
            self.wfile.write(event)
            if event.startswith((b"event: end", b"event: reload")):
                return

    def _send(
        self, status: HTTPStatus, body: str | bytes, kind: str = "text/plain; charset=utf-8"
    ) -> None:
        data = body.encode() + b"\n" if isinstance(body, str) else body
        self._begin(status, kind, len(data))
        if self.command != "HEAD":
            self.wfile.write(data)

    def _begin(self, status: HTTPStatus, kind: str, length: int = -1) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length >= 0:
            self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close")
        self.send_header(
            "Content-Security-Policy", f"{content_policy(live=True)}; frame-ancestors 'none'"
        )
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: an address holds the token."""

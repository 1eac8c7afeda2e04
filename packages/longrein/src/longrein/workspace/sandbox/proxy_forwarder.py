"""Program in a sandbox without network: a loopback port that leads to the proxy's Unix socket.

`python -I -S proxy_forwarder.py SOCKET PORT -- command …` listens, forks and becomes the command.
"""

import os
import socket
import sys
import threading
from contextlib import suppress
from typing import NoReturn

PORT = 3128
"""Port inside the network namespace of a command."""
CHUNK_BYTES = 1 << 16
BACKLOG = 64
ALONE_S = 1.0
"""Seconds between two looks at whether any process is left that may connect."""

_GONE_BODY = (
    b"longrein: the network of the sandbox ended with the session that started this command\n"
)
GONE = (
    b"HTTP/1.1 502 the network of the sandbox ended with its session\r\nContent-Type: "
    b"text/plain\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s"
) % (len(_GONE_BODY), _GONE_BODY)
"""Answer where the proxy is gone."""


def forwarder_words(python: str, proxy_socket: str, port: int = PORT) -> list[str]:
    """Return the command line in front of a command."""
    return [python, "-I", "-S", os.path.realpath(__file__), proxy_socket, str(port), "--"]


def main() -> NoReturn:
    """Listen, leave a child behind that forwards, and run the command behind `--`."""
    path = sys.argv[1]
    port = int(sys.argv[2])
    command = sys.argv[4:]
    try:
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(BACKLOG)
        if not os.fork():
            _serve(listening, path)
        listening.close()
        os.execvp(command[0], command)
    except OSError as error:
        os.write(2, f"sandbox: {command[0]}: {error.strerror}\n".encode())
        os._exit(126)


def _serve(listening: socket.socket, path: str) -> NoReturn:
    """Forward connections until the sandbox has no other process. The output is closed, so that
    it can end.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    listening.settimeout(ALONE_S)
    while True:
        try:
            client, _ = listening.accept()
        except TimeoutError:
            if _is_alone():
                os._exit(0)
            continue
        client.settimeout(None)
        proxy = socket.socket(socket.AF_UNIX)
        try:
            proxy.connect(path)
        except OSError:
            proxy.close()
            _tell_end(client)
            continue
        threading.Thread(target=_copy, args=(client, proxy), daemon=True).start()
        threading.Thread(target=_copy, args=(proxy, client), daemon=True).start()


def _tell_end(client: socket.socket) -> None:
    """Answer a client for which there is no proxy any more."""
    with suppress(OSError):
        client.settimeout(ALONE_S)
        client.recv(
            CHUNK_BYTES
        )  # else closing it would reset the connection before the answer is read
        client.sendall(GONE)
        client.shutdown(socket.SHUT_WR)
    client.close()


def _is_alone() -> bool:
    """Return True if the PID namespace has only its init process and this one: else it would
    never end.
    """
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()} <= {1, os.getpid()}


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while piece := source.recv(CHUNK_BYTES):
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


if __name__ == "__main__":
    main()

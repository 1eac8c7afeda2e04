"""Servers on loopback that answer as Ollama, LM Studio, llama.cpp and vLLM do."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.timeouts import HANG_S

Answers = Mapping[str, Any]
"""`METHOD path` -> answer: JSON, bytes as they are, or an event that the answer waits for."""


class LocalServer(ThreadingHTTPServer):
    """A server that answers from a table, and 404 for other paths."""

    daemon_threads = True

    def __init__(self, answers: Answers) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers = answers
        self.asked: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *_: Any) -> None:
        """A client that has gone is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: LocalServer

    def do_GET(self) -> None:
        size = int(self.headers.get("content-length", 0))
        self.rfile.read(size)
        asked = f"{self.command} {self.path}"
        self.server.asked.append(f"{asked} {self.headers.get('authorization', '')}".strip())
        answer = self.server.answers.get(asked)
        if isinstance(answer, threading.Event):
            answer.wait(HANG_S)
        body = answer if isinstance(answer, bytes) else json.dumps(answer, default=str).encode()
        self.send_response(404 if answer is None else 200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep the screen clean."""


@contextmanager
def serving(answers: Answers) -> Iterator[LocalServer]:
    with LocalServer(answers) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()


def listed(*names: str, **fields: Any) -> Answers:
    """The list of models that all servers have, with the same fields for each."""
    data = [{"id": name, "object": "model", **fields} for name in names]
    return {"GET /v1/models": {"object": "list", "data": data}}


QWEN = "qwen2.5:7b"
GGUF = "/models/qwen2.5-7b-instruct-q4.gguf"
TRAINED = listed(GGUF, meta={"n_ctx_train": 32_768, "n_params": 7_615_616_512})
LLAMA_CPP = TRAINED | {
    "GET /props": {"default_generation_settings": {"n_ctx": 8_192, "params": {}}, "total_slots": 1}
}
SHOWN = {"parameters": 'stop "<x>"', "model_info": {"qwen2.context_length": 262_144}}
OLLAMA = listed(QWEN) | {"GET /api/ps": {"models": []}, "POST /api/show": SHOWN}
NUM_CTX = {"POST /api/show": SHOWN | {"parameters": "temperature 0.7\nnum_ctx       16384\n"}}
LOADED = {
    "GET /api/ps": {
        "models": [
            {"name": "other:1b", "context_length": 2_048},
            {"name": QWEN, "model": QWEN, "context_length": 4_096},
        ]
    }
}
UNEXPECTED = {"error": "Unexpected endpoint or method. (GET /props)"}
STUDIO = {"id": QWEN, "state": "loaded", "max_context_length": 131_072}
LM_STUDIO = listed(QWEN) | {
    "GET /props": UNEXPECTED,
    "GET /api/v0/models": {"data": [STUDIO | {"loaded_context_length": 4_096}]},
}

"""Servers of models on the user's own machine or network: what they serve, and with which windows.

Ollama, LM Studio, llama.cpp and vLLM list their models at one path. Each keeps the window of a
model at a path of its own.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import Any

import msgspec

from longrein.models.transport import tls_context
from longrein_context.events import decode_object, is_count

CONNECT_S = 0.2
"""Connect timeout; a server on this machine accepts at once."""
ANSWER_S = 1.0
"""Longest wait for all answers of a server; one that is loading a model answers late."""
ANSWER_BYTES_MAX = 4 << 20
"""Longest answer that is read."""
_OTHER_USES = ("embed", "rerank", "whisper", "tts", "clip")
_WINDOWS = ("loaded_context_length", "max_model_len", "context_length", "max_context_length")
"""Fields of a listed model that hold its window; the window in force comes first."""

Fields = Mapping[str, Any]
"""A decoded JSON object of a server."""
Ask = Callable[..., Fields]
"""Function from a URL, and for a POST its fields, to the answer; {} for anything but an object."""


class ServedModel(msgspec.Struct, frozen=True):
    """A model that a server has."""

    name: str
    """Name that the server knows."""
    window_tokens: int = 0
    """0: the server does not say."""


def offered_models(base_url: str) -> tuple[str, ...]:
    """Ask the server at `base_url` for its chat models; () if no server answers in time.

    Blocks for at most `ANSWER_S`. Never raises for errors of the server.
    """
    names: list[str] = []
    _ask_in_time(base_url, lambda ask: names.extend(map(_name, _models(ask, base_url))))
    return tuple(names)


def find_served(base_url: str, wanted: str = "", api_key: str = "") -> ServedModel | None:
    """Ask the server at `base_url` for the model that `wanted` stands for, '' for its first one.

    That is the model of this name, else the first whose file name begins with it, else the first
    whose name contains it, else the only one. None without such a model or an answer in time.

    Blocks for at most `ANSWER_S`. Never raises for errors of the server.
    """
    found: list[ServedModel | None] = []
    _ask_in_time(base_url, lambda ask: found.append(ask_server(ask, base_url, wanted)), api_key)
    return found[0] if found else None


def ask_server(ask: Ask, base_url: str, wanted: str) -> ServedModel | None:
    """Find the model as `find_served` does, with `ask` for the answers of the server."""
    model = _choose(wanted.lower(), _models(ask, base_url))
    if model is None:
        return None
    root = base_url.rstrip("/").removesuffix("/v1")
    return ServedModel(_name(model), _window(ask, root, model))


# --- Which model ----------------------------------------------------------------------------------


def _models(ask: Ask, base_url: str) -> list[Fields]:
    """Return the chat models that the server lists."""
    base = base_url.rstrip("/")
    bare_host = base.count("/") == 2
    listed = _listed(ask(f"{base}{'/v1' if bare_host else ''}/models"))
    return [one for one in listed if not any(word in _name(one).lower() for word in _OTHER_USES)]


def _listed(answer: Fields) -> list[Fields]:
    """Return the named entries of a list of models."""
    entries = answer.get("data") or answer.get("models")
    if not isinstance(entries, list):
        return []
    return [one for one in entries if isinstance(one, dict) and _name(one)]


def _name(entry: Fields) -> str:
    return str(entry.get("id") or entry.get("name") or "")


def _choose(wanted: str, models: Sequence[Fields]) -> Fields | None:
    """Return the model that `wanted`, in lower case, stands for."""
    fits: tuple[Callable[[str], bool], ...] = (
        lambda name: name in (wanted, f"{wanted}:latest"),
        lambda name: name.rsplit("/", 1)[-1].startswith(wanted),
        lambda name: wanted in name,
    )
    for fit in fits:
        for model in models:
            if fit(_name(model).lower()):
                return model
    return models[0] if len(models) == 1 else None


# --- Its window -----------------------------------------------------------------------------------


def _window(ask: Ask, root: str, model: Fields) -> int:
    """Return the window of a listed model in tokens; 0 if no path of the server says it.

    The window that is in force comes first, the length that the model was trained on last.
    """
    name = _name(model)
    return (
        _entry_window(model)  # vLLM, SGLang
        or _count(model, "meta", "n_ctx")  # llama.cpp
        or _count(ask(f"{root}/props"), "default_generation_settings", "n_ctx")  # llama.cpp
        or _listed_window(ask(f"{root}/api/v0/models"), name)  # LM Studio
        or _listed_window(ask(f"{root}/api/ps"), name)  # Ollama: the model is loaded
        or _shown_window(ask(f"{root}/api/show", {"model": name}))  # Ollama
        or _count(model, "meta", "n_ctx_train")
    )


def _entry_window(entry: Fields) -> int:
    return next(filter(None, (_count(entry, key) for key in _WINDOWS)), 0)


def _listed_window(answer: Fields, name: str) -> int:
    return next((_entry_window(entry) for entry in _listed(answer) if _name(entry) == name), 0)


def _shown_window(shown: Fields) -> int:
    """Return the window that Ollama loads the model with, else the length that the model takes."""
    if stated := re.search(r"(?m)^num_ctx\s+(\d{1,12})\s*$", str(shown.get("parameters"))):
        return int(stated[1])
    details = shown.get("model_info")
    keys = details if isinstance(details, dict) else ()
    lengths = [key for key in keys if key.endswith(".context_length")]
    return next((_count(shown, "model_info", key) for key in lengths), 0)


def _count(fields: Fields, *path: str) -> int:
    """Return the count at `path`; 0 where none is."""
    value: Any = fields
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if is_count(value) else 0


# --- Asking ---------------------------------------------------------------------------------------


def _ask_in_time(base_url: str, work: Callable[[Ask], None], api_key: str = "") -> None:
    """Run `work` for at most `ANSWER_S`, in a thread, because a server may send byte after byte."""
    import httpx2

    def run() -> None:
        headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
        timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)
        verify = tls_context() if base_url.startswith("https:") else False
        with (
            suppress(UnicodeError),  # a key that no header may hold
            httpx2.Client(
                headers=headers, verify=verify, trust_env=False, timeout=timeout
            ) as client,
        ):
            work(partial(_answer, client))

    thread = Thread(target=run, name="longrein-local-server", daemon=True)
    thread.start()
    thread.join(ANSWER_S)


def _answer(client: Any, url: str, fields: Fields | None = None) -> Fields:
    """Send a GET, or a POST of `fields`; return the object that is answered, {} for none."""
    import httpx2

    method = "GET" if fields is None else "POST"
    body = b""
    with (
        suppress(httpx2.HTTPError, httpx2.InvalidURL, UnicodeError),
        client.stream(method, url, json=fields) as response,
    ):
        if response.status_code != 200:
            return {}
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > ANSWER_BYTES_MAX:
                return {}
    return decode_object(body) or {}

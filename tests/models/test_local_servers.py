"""Servers of the user's own: which model a name stands for, and its window."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from longrein.models import ServedModel, find_served, offered_models
from longrein.models.local_server import ask_server
from tests.models.local_servers import (
    GGUF,
    LLAMA_CPP,
    LM_STUDIO,
    LOADED,
    NUM_CTX,
    OLLAMA,
    QWEN,
    STUDIO,
    TRAINED,
    Answers,
    listed,
    serving,
)
from tests.timeouts import HANG_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No verdict depends on the load of the machine."""
    for name in ("CONNECT_S", "ANSWER_S"):
        monkeypatch.setattr(f"longrein.models.local_server.{name}", HANG_S)


META = {"n_ctx": 8_192, "n_ctx_train": 32_768}
WINDOWS: list[tuple[str, Answers, int]] = [
    ("Ollama", OLLAMA, 262_144),
    ("Ollama, a model with its own num_ctx", OLLAMA | NUM_CTX, 16_384),
    ("Ollama, loaded", OLLAMA | NUM_CTX | LOADED, 4_096),
    ("llama.cpp", LLAMA_CPP, 8_192),
    ("llama.cpp without /props", TRAINED, 32_768),
    ("llama.cpp with the window in its list", listed(GGUF, meta=META), 8_192),
    ("LM Studio", LM_STUDIO, 4_096),
    ("LM Studio, not loaded", LM_STUDIO | {"GET /api/v0/models": {"data": [STUDIO]}}, 131_072),
    ("vLLM", listed(QWEN, max_model_len=40_960), 40_960),
    ("a server with context_length", listed(QWEN, context_length=65_536), 65_536),
    ("nothing known", listed(QWEN), 0),
]


@pytest.mark.parametrize("path", ["/v1", "/v1/", ""])
@pytest.mark.parametrize(("server", "answers", "window"), WINDOWS)
def test_each_server_is_asked_for_the_window_in_its_way(
    server: str, answers: Answers, window: int, path: str
) -> None:
    with serving(answers) as local:
        found = find_served(local.url + path, "qwen", "k-1")
        assert found == ServedModel(GGUF if "cpp" in server else QWEN, window)
        assert all(asked.endswith(" Bearer k-1") for asked in local.asked)


CODER = ("qwen3-coder:30b", "qwen3:latest", "lmstudio/Llama-3", "nomic-embed-text")


@pytest.mark.parametrize(("names", "wanted", "found"), [
    ((GGUF,), "qwen", GGUF),
    ((GGUF,), "instruct", GGUF),
    ((GGUF,), "anything", GGUF),  # the only one
    ((QWEN,), QWEN, QWEN),
    ((QWEN, "nomic-embed-text"), "anything", QWEN),
    (CODER, "", "qwen3-coder:30b"),
    (CODER, "qwen3", "qwen3:latest"),
    (CODER, "qwen3-c", "qwen3-coder:30b"),
    (CODER, "LLAMA", "lmstudio/Llama-3"),
    (CODER, "30b", "qwen3-coder:30b"),
    (CODER, "mistral", ""),
    ((), "qwen", ""),
])  # fmt: skip
def test_a_name_stands_for_a_model_of_the_server(
    names: tuple[str, ...], wanted: str, found: str
) -> None:
    with serving(listed(*names, max_model_len=9_000)) as local:
        expected = ServedModel(found, 9_000) if found else None
        assert find_served(f"{local.url}/v1", wanted) == expected


@pytest.mark.parametrize(("body", "names"), [
    (listed("qwen3:8b", "nomic-embed-text")["GET /v1/models"], ("qwen3:8b",)),
    ({"models": [{"name": "llama"}]}, ("llama",)),
    ({"data": None}, ()),
    (b"<html>", ()),
    (None, ()),
])  # fmt: skip
def test_a_local_server_is_asked_what_it_offers(body: Any, names: tuple[str, ...]) -> None:
    with serving({"GET /v1/models": body}) as local:
        assert offered_models(f"{local.url}/v1/") == names
        assert local.asked == ["GET /v1/models"]
        gone = local.url
    for url in (f"{gone}/v1", "http://[broken", "http://127.0.0.1:99999"):
        assert offered_models(url) == ()
        assert find_served(url, "qwen", "ключ") is None


def test_a_server_that_does_not_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("longrein.models.local_server.ANSWER_S", 0.01)
    silent = threading.Event()
    with serving({"GET /v1/models": silent}) as local:
        assert find_served(f"{local.url}/v1", "qwen") is None
        assert offered_models(f"{local.url}/v1") == ()
        silent.set()


KEYS = """
    id name meta data models n_ctx n_ctx_train parameters model_info x.context_length
    context_length max_model_len default_generation_settings
"""
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 10**20) | st.floats() | st.sampled_from(["", QWEN]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS.split()), inner, max_size=4)
    ),
)
PATHS = ("/v1/models", "/props", "/api/v0/models", "/api/ps", "/api/show")


@given(st.fixed_dictionaries(dict.fromkeys(PATHS, JSON)))
def test_no_answer_of_a_server_is_an_error(answers: dict[str, Any]) -> None:
    def ask(url: str, _fields: Any = None) -> Any:
        found = answers[url.removeprefix("http://h")]
        return found if isinstance(found, dict) else {}

    found = ask_server(ask, "http://h/v1", "qwen")
    assert found is None or (found.name and found.window_tokens >= 0)

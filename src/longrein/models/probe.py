"""Asking a server which models it offers: how a local one on its usual port is found without any settings."""

from typing import Any

import msgspec

CONNECT_S = 0.2
"""A server on this machine accepts at once or is not there."""
ANSWER_S = 1.0
"""A server that is loading a model answers late."""
LIST_BYTES_MAX = 4 << 20
"""A longer list is none."""
_OTHER_USES = ("embed", "rerank", "whisper", "tts", "clip")


class _Offer(msgspec.Struct):
    id: str = ""
    name: str = ""


class _Offers(msgspec.Struct):
    data: list[_Offer] | None = None
    models: list[_Offer] | None = None


def offered_models(base_url: str) -> tuple[str, ...]:
    """Names of the models that the server at `base_url` offers for conversation; () where none answers in time.

    Blocks for at most `CONNECT_S + ANSWER_S`. Never raises for what the server does.
    """
    import httpx2

    timeout = httpx2.Timeout(ANSWER_S, connect=CONNECT_S)
    try:
        with (
            httpx2.Client(verify=base_url.startswith("https:"), trust_env=False, timeout=timeout) as client,
            client.stream("GET", f"{base_url.rstrip('/')}/models") as response,
        ):
            return _names(_body(response)) if response.status_code == 200 else ()
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return ()


def _body(response: Any) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > LIST_BYTES_MAX:
            return b""
    return body


def _names(body: bytes) -> tuple[str, ...]:
    try:
        offers = msgspec.json.decode(body, type=_Offers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ()
    names = [offer.id or offer.name for offer in offers.data or offers.models or ()]
    return tuple(name for name in names if name and not any(word in name.lower() for word in _OTHER_USES))

"""Asking a local server what it has: the one request made before a model is chosen, and only when none was named."""

from collections.abc import Sequence

import msgspec

PROBE_TIMEOUT_S = 0.4
"""A server on this machine answers at once or is not there."""


class _Model(msgspec.Struct):
    id: str


class _List(msgspec.Struct):
    data: list[_Model]


def offered_models(base_url: str) -> Sequence[str]:
    """Names of the models that the OpenAI-like server at `base_url` offers; () where none answers."""
    import httpx2

    try:
        with httpx2.Client(timeout=PROBE_TIMEOUT_S, trust_env=False, verify=base_url.startswith("https:")) as client:
            answer = client.get(f"{base_url}/models")
        return [model.id for model in msgspec.json.decode(answer.content, type=_List).data]
    except (httpx2.HTTPError, msgspec.DecodeError):
        return ()

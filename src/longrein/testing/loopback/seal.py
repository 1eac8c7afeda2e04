"""Signatures of thinking: made by this provider, bound to wire, model and text, checked without keeping any state.

So a provider that was restarted still knows its own, as a real one does.
"""

import re
from base64 import b64encode
from hashlib import blake2b

_KEY = b"the loopback provider's own hand"
_DATED = re.compile(r"(-20\d{6}|-20\d{2}-\d{2}-\d{2}|-latest)$")


def seal(wire: str, model: str, text: str) -> str:
    """The signature of `text` thought by `model`. A dated name and its alias are one model."""
    name = _DATED.sub("", model)
    digest = blake2b(f"{wire}\n{name}\n{text}".encode("utf-8", "surrogatepass"), key=_KEY[:32], digest_size=48).digest()
    return "Er" + b64encode(digest).decode()


def sealed(signature: str, wire: str, model: str, text: str) -> bool:
    """Whether this provider made `signature` for just that."""
    return signature == seal(wire, model, text)

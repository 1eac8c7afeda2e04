"""Importing the HTTP library without its two look-ups of its own version, which are 40 % of what it costs to import.

Both of its packages ask `importlib.metadata` for a version string that only their user agent uses; that module brings
the e-mail parser with it. While they are imported, a stand-in answers.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_METADATA = "importlib.metadata"


def http_library() -> Any:
    """The module `httpx2`. Where it wants more of `importlib.metadata` than the version, it is imported as usual."""
    if _METADATA in sys.modules or "httpx2" in sys.modules:
        return importlib.import_module("httpx2")
    stand_in = ModuleType(_METADATA)
    stand_in.version = lambda _name: "0"  # type: ignore[attr-defined]
    sys.modules[_METADATA] = stand_in
    try:
        importlib.import_module("httpcore2")
        return importlib.import_module("httpx2")
    except ImportError:
        pass
    finally:
        del sys.modules[_METADATA]
    return importlib.import_module("httpx2")

"""Importing the HTTP library without its look-up of its own version, which is a third of what it costs to import.

It asks `importlib.metadata` for a version string that only its user agent uses; that module brings the e-mail parser
with it. While it is imported, a stand-in answers.
"""

import importlib
import sys
from types import ModuleType
from typing import Any

_METADATA = "importlib.metadata"
_LIBRARY = "httpcore2"


def http_library() -> Any:
    """The module `httpcore2`. Where it wants more of `importlib.metadata` than the version, it is imported as usual."""
    if (known := sys.modules.get(_LIBRARY)) is not None:
        return known
    if _METADATA in sys.modules:
        return importlib.import_module(_LIBRARY)
    stand_in = ModuleType(_METADATA)
    stand_in.version = lambda _name: "0"  # type: ignore[attr-defined]
    sys.modules[_METADATA] = stand_in
    try:
        return importlib.import_module(_LIBRARY)
    except ImportError:
        pass
    finally:
        del sys.modules[_METADATA]
    return importlib.import_module(_LIBRARY)

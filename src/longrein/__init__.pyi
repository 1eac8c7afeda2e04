"""Types of the public names, which `__init__.py` imports at first use."""

from longrein import context as context
from longrein.library import engine as engine
from longrein.sdk import Session as Session
from longrein.tools import tool as tool

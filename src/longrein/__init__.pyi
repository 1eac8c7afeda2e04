"""Types of the public names, which `__init__.py` imports at first use."""

from longrein import context as context
from longrein.events import BudgetError as BudgetError
from longrein.events import LongreinError as LongreinError
from longrein.events import ModelUnknown as ModelUnknown
from longrein.events import SessionBusy as SessionBusy
from longrein.events import SessionClosed as SessionClosed
from longrein.events import SessionError as SessionError
from longrein.events import SessionReadOnly as SessionReadOnly
from longrein.events import SessionTakenOver as SessionTakenOver
from longrein.events import SessionUnknown as SessionUnknown
from longrein.events import SettingsError as SettingsError
from longrein.events import StoreDamaged as StoreDamaged
from longrein.events import StoreFull as StoreFull
from longrein.events import ToolError as ToolError
from longrein.events import TurnFailed as TurnFailed
from longrein.events import UsageError as UsageError
from longrein.integrations import engine as engine
from longrein.sdk import Session as Session
from longrein.tools import tool as tool

__version__: str

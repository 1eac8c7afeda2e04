"""Types of the public names, which `__init__.py` imports at first use."""

from longrein import context as context
from longrein.integrations import engine as engine
from longrein.sdk import Session as Session
from longrein.tools import tool as tool
from longrein_context.events import BudgetError as BudgetError
from longrein_context.events import LongreinError as LongreinError
from longrein_context.events import ModelUnknown as ModelUnknown
from longrein_context.events import SessionBusy as SessionBusy
from longrein_context.events import SessionClosed as SessionClosed
from longrein_context.events import SessionError as SessionError
from longrein_context.events import SessionReadOnly as SessionReadOnly
from longrein_context.events import SessionTakenOver as SessionTakenOver
from longrein_context.events import SessionUnknown as SessionUnknown
from longrein_context.events import SettingsError as SettingsError
from longrein_context.events import StoreDamaged as StoreDamaged
from longrein_context.events import StoreFull as StoreFull
from longrein_context.events import ToolError as ToolError
from longrein_context.events import TurnFailed as TurnFailed
from longrein_context.events import UsageError as UsageError

__version__: str

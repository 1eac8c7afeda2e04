"""A running longrein: `App`, and `AppSession` for each session that it opens.

Frontends, the library and the commands are clients of them.
"""

from longrein.app.additions import Additions, ProgramServers
from longrein.app.app import App
from longrein.app.app_session import AppSession

__all__ = ["Additions", "App", "AppSession", "ProgramServers"]

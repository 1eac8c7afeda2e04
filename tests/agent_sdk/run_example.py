"""Runs an example of the SDK unchanged with another program as its `claude`: `run_example.py CLI
EXAMPLE [WORD...]`.
"""

import runpy
import sys
from typing import Any

from claude_agent_sdk import ClaudeAgentOptions

cli, *sys.argv = sys.argv[1:]
begin = ClaudeAgentOptions.__init__


def begin_with_cli(options: ClaudeAgentOptions, *given: Any, **named: Any) -> None:
    begin(options, *given, **{"cli_path": cli, **named})


ClaudeAgentOptions.__init__ = begin_with_cli  # type: ignore[method-assign]
runpy.run_path(sys.argv[0], run_name="__main__")

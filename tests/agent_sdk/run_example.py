"""Runs an example of the SDK unchanged with another program as its `claude`: `run_example.py CLI
EXAMPLE [WORD...]`.
"""

import runpy
import sys

from claude_agent_sdk._internal.transport.subprocess_cli import SubprocessCLITransport

cli, *sys.argv = sys.argv[1:]
SubprocessCLITransport._find_cli = lambda _: cli  # type: ignore[method-assign]
runpy.run_path(sys.argv[0], run_name="__main__")

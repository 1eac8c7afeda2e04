"""Headless runs: one prompt or a stream of prompts in, text or JSON lines out, no questions to
the user.
"""

from longrein.frontends.headless.headless_run import run_headless
from longrein.frontends.headless.run_state import OutputOptions
from longrein.frontends.loop_streams import BufferedOutput

__all__ = ["BufferedOutput", "OutputOptions", "run_headless"]

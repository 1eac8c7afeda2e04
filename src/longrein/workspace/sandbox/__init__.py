"""Sandbox of commands, best rung first: bubblewrap, Landlock with seccomp, none."""

from longrein.workspace.sandbox.masks import MaskIndex, Masks
from longrein.workspace.sandbox.rungs import find_rung
from longrein.workspace.sandbox.session_sandbox import SessionSandbox

__all__ = ["MaskIndex", "Masks", "SessionSandbox", "find_rung"]

"""Sandbox of commands, best rung first: bubblewrap, Landlock with seccomp, none."""

from longrein.workspace.sandbox.masks import MaskIndex, Masks
from longrein.workspace.sandbox.policy import SandboxPolicy
from longrein.workspace.sandbox.session_sandbox import (
    ENVIRONMENT,
    INSTALLED,
    INTERPRETERS,
    SandboxReport,
    SessionSandbox,
    image_problem,
    network_problem,
)

__all__ = [
    "ENVIRONMENT",
    "INSTALLED",
    "INTERPRETERS",
    "MaskIndex",
    "Masks",
    "SandboxPolicy",
    "SandboxReport",
    "SessionSandbox",
    "image_problem",
    "network_problem",
]

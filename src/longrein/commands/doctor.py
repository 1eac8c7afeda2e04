"""`longrein doctor`: report missing programs, folders, keys and settings, and how to fix them."""

from collections.abc import Sequence

from longrein.app.run_context import RunContext
from longrein.frontends.reports.doctor import finding_lines, findings_of
from longrein.frontends.stdio import show

NEEDED = ("python", "state folder", "model", "plugin")
"""Findings without which longrein cannot work."""


def doctor(place: RunContext, _words: Sequence[str] = ()) -> int:
    """Print the findings. Return 0 when longrein can work, 1 when it cannot."""
    findings = findings_of(place)
    show("".join(f"{row}\n" for row in finding_lines(findings)))
    return 0 if all(well for well, what, _ in findings if what in NEEDED) else 1

"""Ended calls that are told in one line: reads and searches in a row, subagents that worked side by
side. They stand in the live rows until something else is printed.
"""

from typing import Any

from longrein.frontends.terminal.call_lines import ended_lines, lookup_text, lookups_line
from longrein.frontends.terminal.event_lines import Line
from longrein.frontends.terminal.task_rows import KnownSubagent, ended_subagents
from longrein.steps import CallStep
from longrein.steps.call_results import LOOKUPS, SHELL
from longrein_context.events import SubagentEnded, ToolEnded


def looks(kind: str, arguments: dict[str, Any] | None) -> bool:
    """Return True for a read or a search, also by the shell: a command of which the permissions
    know that it reads files and changes nothing.
    """
    given = arguments or {}
    command = given.get("command")
    if kind != SHELL or not isinstance(command, str) or given.get("run_in_background"):
        return kind in LOOKUPS
    from longrein.permissions.rule_evaluation import reads_files

    return reads_files(command)


class CallGroups:
    """The groups that are open."""

    def __init__(self) -> None:
        self._lookups: list[tuple[CallStep, dict[str, Any] | None]] = []
        """Ends of the reads and searches in a row, with the arguments."""
        self._subagents: list[tuple[SubagentEnded, KnownSubagent]] = []

    def __bool__(self) -> bool:
        """True if a group is open."""
        return bool(self._lookups or self._subagents)

    def add_call(self, step: CallStep, end: ToolEnded, arguments: dict[str, Any] | None) -> bool:
        """Take an ended call into a group; False for one that is told alone."""
        if looks(step.kind, arguments) and end.status == "ok" and not self._subagents:
            self._lookups.append((step, arguments))
            return True
        return end.status == "ok" and any(
            known.started.call == end.call for _, known in self._subagents
        )

    def add_subagent(self, end: SubagentEnded, known: KnownSubagent | None) -> bool:
        """Take an ended subagent into the group; False for one that is told alone."""
        if known is None or known.started.background or end.status != "done" or end.worktree:
            return False
        self._subagents.append((end, known))
        return True

    def has(self, session: str) -> bool:
        """True if the group holds that subagent."""
        return any(known.started.child == session for _, known in self._subagents)

    def lookup_rows(self) -> list[Line]:
        """Lines of the reads and searches so far."""
        looks = [step for step, _ in self._lookups]
        if len(looks) > 1:
            return [lookups_line(looks, [lookup_text(*one) for one in self._lookups])]
        return [
            row
            for step, given in self._lookups
            if step.ended
            for row in ended_lines(step.ended, given, (), step.kind)
        ]

    def take(self) -> list[Line]:
        """Close the groups and return their lines, to be printed once."""
        rows = [*self.lookup_rows(), *ended_subagents(self._subagents)]
        self._lookups, self._subagents = [], []
        return rows

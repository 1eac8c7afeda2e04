"""Every event of the catalogue (E, issue 11 row 9) has a producer, or a reason why there can be
none.
"""

import re
from pathlib import Path

import pytest

from longrein.agent import program_event
from longrein.context import KINDS, PROGRAM_KINDS

SOURCE = Path(__file__).parents[2] / "src/longrein"

PRODUCED = [
    # event of the catalogue, kind of the reminder ('' for none), module that produces it, how it
    # does
    ("session context", "", "app/model_offer.py", "def _static_context("),
    (
        "session context: git status, files, commits",
        "project_start",
        "agent/change_detection.py",
        '"project_start"',
    ),
    ("todo", "todo", "tools/planning.py", "TodoSet("),
    ("edited_text_file", "file_changed", "agent/shared_files.py", "FileChanged("),
    ("plan_mode", "mode", "agent/inbox.py", "ModeSet("),
    ("mcp_resource", "mcp_resource", "extensions/mcp/session_part.py", "external_event(RESOURCE"),
    (
        "mcp_resource updated",
        "mcp_resource_updated",
        "extensions/mcp/session_part.py",
        "external_event(UPDATED",
    ),
    ("nested_memory", "nested_memory", "agent/change_detection.py", '"nested_memory"'),
    ("queued_command", "queued_command", "agent/inbox.py", "UserSpoke("),
    ("user_steer", "user_steer", "agent/inbox.py", '"steer" if state.turn_open'),
    ("user_interrupt", "user_interrupt", "agent/session.py", "Interrupted("),
    ("user_command", "user_command", "agent/inbox.py", "Reminded(USER_COMMAND"),
    ("pins", "pins", "agent/inbox.py", "PinsSet("),
    ("new_file", "new_file", "frontends/terminal/input_completion.py", "@"),
    ("new_directory", "new_directory", "frontends/terminal/input_completion.py", "@"),
    ("tool_denied", "tool_denied", "agent/moves.py", '"denied"'),
    ("hook_feedback", "hook_feedback", "agent/hooks.py", "HookAnswered("),
    ("bg_started", "bg_started", "agent/background/start.py", "TaskStarted("),
    ("bg_done", "bg_done", "agent/background/session_tasks.py", "TaskEnded("),
    ("bg_lost", "bg_lost", "agent/background/session_tasks.py", "lost"),
    (
        "bg_stalled",
        "bg_stalled",
        "agent/background/stall_detector.py",
        'external_event("bg_stalled"',
    ),
    (
        "subagent_progress",
        "subagent_progress",
        "agent/subagents/subagent_report.py",
        'external_event("subagent_progress"',
    ),
    ("subagent_done", "subagent_done", "agent/subagents/subagent_report.py", "SubagentEnded("),
    ("subagent_failed", "subagent_failed", "agent/subagents/subagent_report.py", "SubagentEnded("),
    ("compaction_done", "compaction_done", "agent/compaction.py", "Summarise"),
    ("context_budget", "context_budget", "context/reminders.py", '"context_budget"'),
    ("cost_budget", "cost_budget", "context/reminders.py", '"cost_budget"'),
    ("clock", "clock", "context/reminders.py", '"clock"'),
    (
        "model_changed, fallback",
        "model_changed",
        "agent/loop_actions.py",
        'prefix(opened, "model")',
    ),
    ("mcp_connected", "mcp_changed", "extensions/mcp/session_part.py", "external_event(CHANGED"),
    ("unseen_text", "unseen_text", "agent/tool_runner.py", '"unseen_text"'),
    ("tools_changed", "tools_changed", "agent/open_session.py", "PrefixSet"),
    ("skill_available", "skill_available", "agent/skill_invocation.py", '"skill_available"'),
    ("memory_changed", "memory_changed", "agent/shared_files.py", "state.prefix.sources"),
    ("cwd_changed", "cwd_changed", "tools/bash.py", "CwdSet("),
    ("branch_changed", "branch_changed", "agent/shared_files.py", '"branch_changed"'),
    ("session_resumed", "session_resumed", "agent/change_detection.py", '"resumed"'),
    ("rewind", "went_back", "agent/rewind.py", "Rewound("),
    ("output_truncated", "output_truncated", "tools/bash.py", "head_bytes"),
    ("cron_fired", "cron_fired", "agent/schedules.py", 'external_event("cron_fired"'),
]
REPORTED = [
    # by other programs: an editor, a language server, another agent; ACP version 1 has no message
    # for them
    ("diagnostics", "diagnostics"),
    ("selected_lines_in_ide", "selected_lines_in_ide"),
    ("opened_file_in_ide", "opened_file_in_ide"),
    ("teammate_message", "teammate_message"),
    ("", "program_message"),
]
IMPOSSIBLE = {
    "ultramemory": "there is no memory beside the instruction files, which have rows of their own",
    "command_permissions": "the original tells nothing: its list is empty",
    "read result suffix": "a fixed text in each result is no event; the system prompt says that "
    "results are data",
    "memory pressure": "longrein moves texts to disk by itself; there is nothing for the model to "
    "do",
    "worktree_changed": "a worktree is made for a subagent, which begins in it; another folder is "
    "cwd_changed",
}
"""Event -> why it has no producer."""


@pytest.mark.parametrize(
    ("event", "kind", "module", "word"), PRODUCED, ids=lambda one: one if " " not in one else ""
)
def test_each_event_has_a_producer(event: str, kind: str, module: str, word: str) -> None:
    assert event not in IMPOSSIBLE
    assert not kind or kind in KINDS
    source = (SOURCE / module).read_text(encoding="utf-8")
    assert word in re.sub(r"\(\s+", "(", source)


@pytest.mark.parametrize(("event", "kind"), REPORTED)
def test_programs_may_report_the_others(event: str, kind: str) -> None:
    assert event not in IMPOSSIBLE
    assert program_event(kind, "text", "source").kind == kind


def test_no_kind_is_without_a_producer() -> None:
    assert {*KINDS} == {kind for _, kind, _, _ in PRODUCED if kind} | {kind for _, kind in REPORTED}
    assert {kind for _, kind in REPORTED} <= {*PROGRAM_KINDS}
    assert not {*IMPOSSIBLE} & {*KINDS}

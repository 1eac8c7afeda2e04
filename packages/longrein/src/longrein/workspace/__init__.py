"""Files, search, git and processes of a session."""

from typing import TYPE_CHECKING

from longrein.workspace.memory_use import MemoryUse, memory_use, release_free_memory
from longrein_context.lazy_names import names_at_first_use

if TYPE_CHECKING:
    from longrein.workspace.atomic_write import recover_temp_files
    from longrein.workspace.command_environment import nesting_depth
    from longrein.workspace.command_output import CollectingSink
    from longrein.workspace.file_search import (
        Line,
        Query,
        SearchResult,
        glob,
        grep,
    )
    from longrein.workspace.git import GIT_CUT, run_git
    from longrein.workspace.git_worktrees import (
        FinishedWorktree,
        Worktree,
        finish_worktree,
        list_worktrees,
        make_worktree,
        merge_worktree,
        read_worktree,
        remove_worktree,
        take_patch,
        worktree_changes,
    )
    from longrein.workspace.local_workspace import open_workspace, run_in_background
    from longrein.workspace.orphans import end_orphans
    from longrein.workspace.spool_reader import (
        SPOOL,
        is_supervised,
        read_output,
        spooled_tasks,
        unreadable_tasks,
    )
    from longrein.workspace.stream_process import (
        PipedResult,
        StreamProcess,
        run_with_input,
    )
    from longrein.workspace.supervised_command import (
        SupervisedSpawner,
        SupervisionOptions,
        temporary_spawner,
    )
    from longrein.workspace.task_adoption import stop_background_task
    from longrein.workspace.walk import split_glob
    from longrein.workspace.workspace_port import (
        BackgroundOptions,
        CommandExit,
        CommandSpec,
        Confinement,
        FileStamp,
        Merge,
        ReplaceResult,
        ReplayableSink,
        ResolvedPath,
        SharedFolders,
        Sink,
        Spawner,
        SpooledTask,
        StartedCommand,
        Streams,
        Supervision,
        Workspace,
    )

__getattr__ = names_at_first_use(
    __name__,
    {
        "atomic_write": "recover_temp_files",
        "command_environment": "nesting_depth",
        "command_output": "CollectingSink",
        "file_search": "Line Query SearchResult glob grep",
        "git": "GIT_CUT run_git",
        "git_worktrees": (
            "FinishedWorktree Worktree finish_worktree list_worktrees make_worktree "
            "merge_worktree read_worktree remove_worktree take_patch worktree_changes"
        ),
        "local_workspace": "open_workspace run_in_background",
        "orphans": "end_orphans",
        "spool_reader": "SPOOL is_supervised read_output spooled_tasks unreadable_tasks",
        "stream_process": "PipedResult StreamProcess run_with_input",
        "supervised_command": "SupervisedSpawner SupervisionOptions temporary_spawner",
        "task_adoption": "stop_background_task",
        "walk": "split_glob",
        "workspace_port": (
            "BackgroundOptions CommandExit CommandSpec Confinement FileStamp Merge ReplaceResult "
            "ReplayableSink ResolvedPath SharedFolders Sink Spawner SpooledTask StartedCommand "
            "Streams Supervision Workspace"
        ),
    },
)

__all__ = [
    "GIT_CUT",
    "SPOOL",
    "BackgroundOptions",
    "CollectingSink",
    "CommandExit",
    "CommandSpec",
    "Confinement",
    "FileStamp",
    "FinishedWorktree",
    "Line",
    "MemoryUse",
    "Merge",
    "PipedResult",
    "Query",
    "ReplaceResult",
    "ReplayableSink",
    "ResolvedPath",
    "SearchResult",
    "SharedFolders",
    "Sink",
    "Spawner",
    "SpooledTask",
    "StartedCommand",
    "StreamProcess",
    "Streams",
    "SupervisedSpawner",
    "Supervision",
    "SupervisionOptions",
    "Workspace",
    "Worktree",
    "end_orphans",
    "finish_worktree",
    "glob",
    "grep",
    "is_supervised",
    "list_worktrees",
    "make_worktree",
    "memory_use",
    "merge_worktree",
    "nesting_depth",
    "open_workspace",
    "read_output",
    "read_worktree",
    "recover_temp_files",
    "release_free_memory",
    "remove_worktree",
    "run_git",
    "run_in_background",
    "run_with_input",
    "split_glob",
    "spooled_tasks",
    "stop_background_task",
    "take_patch",
    "temporary_spawner",
    "unreadable_tasks",
    "worktree_changes",
]

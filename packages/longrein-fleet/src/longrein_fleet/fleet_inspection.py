"""The fleet as the inspector shows it."""

from longrein.app.run_context import RunContext
from longrein.extensions.inspector.fleet_page import (
    VERSION,
    FleetInspection,
    FleetTask,
    show_fleet,
)
from longrein_context.events.escape import shortened
from longrein_fleet.fleet_log import fleet_folder, read_fleet
from longrein_fleet.fleet_state import FleetState, TaskResult, result_of

MESSAGE_CHARS_MAX = 500


def inspect_fleet(
    run_context: RunContext, name: str, *, out: str = "", no_open: bool = False, live: bool = False
) -> int:
    """Write or serve the page of a fleet; return the exit code. Raises `UsageError`."""

    def read() -> FleetInspection:
        return fleet_inspection(read_fleet(run_context.state_dir, name))

    folder = fleet_folder(run_context.state_dir, name)
    return show_fleet(run_context, read, folder, out=out, no_open=no_open, live=live)


def fleet_inspection(state: FleetState) -> FleetInspection:
    """Return what the page shows, except the breaks, which the sessions tell."""
    opened, budget = state.opened, state.budget
    tasks = [_task(result_of(task, "")) for task in state.tasks.values()]
    return FleetInspection(VERSION, opened.name, opened.at, tasks, budget.spent_usd, budget.cap_usd)


def _task(result: TaskResult) -> FleetTask:
    return FleetTask(
        result.id,
        result.outcome,
        result.cause,
        shortened(result.message, MESSAGE_CHARS_MAX),
        result.cost_usd,
        result.seconds,
        result.input_tokens,
        result.cached_tokens,
        result.output_tokens,
        result.attempts,
        result.reward,
        result.session,
    )

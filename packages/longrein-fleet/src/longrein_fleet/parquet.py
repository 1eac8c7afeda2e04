"""Results of a fleet as a Parquet file, with the trajectory of each task's last session."""

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from longrein.app.run_context import RunContext
from longrein.app.session_export import exporters, write_new_file
from longrein.store import Reader
from longrein_context.events import SessionUnknown, UsageError
from longrein_fleet.fleet_state import TaskResult

if TYPE_CHECKING:
    import pyarrow

ROWS = 16
"""Tasks that are in memory at once: a trajectory may take megabytes."""
WHOLE = ("input_tokens", "output_tokens", "cached_tokens", "check_code", "attempts")
FRACTIONS = ("cost_usd", "reward", "seconds")
TRAJECTORY = "trajectory"
"""Column with the session as an ATIF document; empty where there is none."""


def write_parquet(run_context: RunContext, results: Iterator[TaskResult], path: str) -> None:
    """Write the results to the new file `path`. Raises `UsageError`, `LongreinError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise UsageError(
            "--parquet needs the package pyarrow: pip install 'longrein[fleet]', or leave the flag "
            "out for JSON lines"
        ) from None
    schema = _schema()

    def write(file: BinaryIO) -> None:
        with pyarrow.parquet.ParquetWriter(file, schema) as writer:
            for rows in _batches(_row(run_context, result) for result in results):
                writer.write_table(pyarrow.Table.from_pylist(rows, schema))

    write_new_file(write, path)


def _schema() -> "pyarrow.Schema":
    import pyarrow

    types = {
        **dict.fromkeys(WHOLE, pyarrow.int64()),
        **dict.fromkeys(FRACTIONS, pyarrow.float64()),
    }
    names = (*TaskResult.__struct_fields__, TRAJECTORY)
    return pyarrow.schema([(name, types.get(name, pyarrow.string())) for name in names])


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch = list[dict[str, Any]]()
    for row in rows:
        batch.append(row)
        if len(batch) == ROWS:
            yield batch
            batch = []
    if batch:
        yield batch


def _row(run_context: RunContext, result: TaskResult) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(result)
    return {**row, TRAJECTORY: _trajectory(run_context, result.session)}


def _trajectory(run_context: RunContext, session: str) -> str:
    atif = exporters(run_context.settings.plugins).get("atif")
    if atif is None or not session:
        return ""
    try:
        with closing(Reader(run_context.state_dir, session)) as reader:
            document: bytes = atif.load()(reader)
            return document.decode()
    except SessionUnknown:
        return ""

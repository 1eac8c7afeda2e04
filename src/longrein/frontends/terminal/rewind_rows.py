"""Rows of /rewind: what a rewind would do to the files, and the ways to go back."""

from collections.abc import Sequence

from longrein.agent import RewindPreview
from longrein.frontends.terminal.choice_list import Row
from longrein.frontends.terminal.event_lines import Line, line
from longrein.steps.human_text import counted, escape_line

ROWS_MAX = 200
"""Files that a preview lists for each kind."""


def preview_summary(preview: RewindPreview) -> str:
    """Describe a preview in one line: `2 files put back, 1 removed, 1 kept`."""
    back = len(preview.restored)
    gone = len(preview.removed)
    kept = len(preview.kept)
    if not back and not gone and not kept:
        return "no file has changed since"
    parts = [counted(back, "file") + " put back" if back else "", f"{gone} removed" if gone else ""]
    return ", ".join(filter(None, [*parts, f"{kept} kept as they are" if kept else ""]))


def preview_rows(preview: RewindPreview) -> list[Line]:
    """List every file with what becomes of it, and the notes."""
    rows = [line(("dim", preview_summary(preview)))]
    for what, paths in (("put back", preview.restored), ("removed", preview.removed)):
        rows += [line(("dim", f"  {what}  "), escape_line(path)) for path in paths[:ROWS_MAX]]
        rows += (
            [line(("dim", f"  … and {len(paths) - ROWS_MAX} more"))]
            if len(paths) > ROWS_MAX
            else []
        )
    for put in preview.kept[:ROWS_MAX]:
        rows.append(
            line(("warn", "  kept  "), escape_line(put.path), ("dim", f"  {escape_line(put.why)}"))
        )
    rows += [line(("dim", f"  {escape_line(note)}")) for note in preview.notes]
    return [*rows, line(("dim", "  files that .gitignore excludes stay as they are"))]


def ways_back(seq: str, preview: RewindPreview) -> Sequence[Row]:
    """Return the ways to go back to before message `seq`, with what each does to the files."""
    effect = preview_summary(preview)
    rows = [
        Row(seq, "the conversation only", "files stay as they are"),
        Row(f"{seq} files", "the conversation and the files", effect),
        Row(f"{seq} only-files", "the files only", effect),
    ]
    if preview.kept:
        rows.append(
            Row(
                f"{seq} all-files",
                "both, also files that somebody else changed",
                "their changes are lost",
            )
        )
    return [*rows, Row(f"{seq} show", "show what becomes of each file", "changes nothing")]

"""Fit the texts of a page into a size: the longest are cut in the middle until all fit together."""

from collections.abc import Iterable

import msgspec

from longrein.extensions.inspector.page_data import (
    DiffLine,
    Inspection,
    ItemData,
    Stage,
    TranscriptRow,
)

PAGE_BYTES_MAX = 7_500_000
"""Largest JSON of one page."""
BODY_BYTES_MAX = 200_000
"""A larger text is always shortened."""
BODY_BYTES_MIN = 200
"""No text is cut below this, whatever the page's size."""
COUNTED_BYTES_MIN = 1_000
"""A row says its size from here on."""
ESCAPED_LESS_THAN = 5
"""Bytes by which `<` grows in the page's JSON."""


def encoded_size(text: str) -> int:
    """Return the bytes that a text takes in the page's JSON."""
    data = msgspec.json.encode(text)
    return len(data) - 2 + ESCAPED_LESS_THAN * data.count(b"<")


def fitting_size(sizes: Iterable[int], total: int) -> int:
    """Return the largest limit, so that texts of these sizes, each cut to the limit, take
    `total` together.
    """
    left, ordered = total, sorted(sizes)
    for at, size in enumerate(ordered):
        share = left // (len(ordered) - at)
        if size > share:
            return max(0, share)
        left -= size
    return BODY_BYTES_MAX


def cut(text: str, limit: int) -> tuple[str, int]:
    """Return (text, bytes left out): both ends of a text whose encoded size is above `limit`."""
    if len(text) <= limit // 6:
        return text, 0
    size = encoded_size(text)
    if size <= limit:
        return text, 0
    chars = max(2, len(text) * limit // size)
    head, tail = text[: chars * 2 // 3], text[-(chars // 3) :]
    return f"{head}\n…\n{tail}", len(text.encode()) - len(head.encode()) - len(tail.encode())


def fit(inspection: Inspection, bytes_max: int = PAGE_BYTES_MAX) -> Inspection:
    """Return the inspection with texts short enough that its JSON takes about `bytes_max`."""
    sizes = [encoded_size(text) for text in _texts(inspection)]
    rest = len(msgspec.json.encode(inspection)) - sum(sizes)
    limit = min(BODY_BYTES_MAX, max(BODY_BYTES_MIN, fitting_size(sizes, bytes_max - rest)))
    return fit_to(inspection, limit)


def _texts(inspection: Inspection) -> Iterable[str]:
    for row in inspection.transcript:
        yield row.text
        yield from (line.text for line in row.diff)
    for item in inspection.items:
        yield from (stage.text for stage in item.stages)
    for subagent in inspection.subagents:
        yield subagent.task
        yield subagent.report


def fit_to(inspection: Inspection, limit: int) -> Inspection:
    """Return the inspection with every text cut to `limit` encoded bytes, and the sums of what
    was left out.
    """
    rows = [_shorter_row(row, limit) for row in inspection.transcript]
    items = [_shorter_item(item, limit) for item in inspection.items]
    subagents = [
        msgspec.structs.replace(
            subagent, task=cut(subagent.task, limit)[0], report=cut(subagent.report, limit)[0]
        )
        for subagent in inspection.subagents
    ]
    losses = [row.left_out for row in rows] + [
        stage.left_out for item in items for stage in item.stages
    ]
    bodies = sum(loss > 0 for loss in losses)
    left_out = msgspec.structs.replace(
        inspection.left_out, bodies=bodies, bytes=sum(losses), above_bytes=limit if bodies else 0
    )
    return msgspec.structs.replace(
        inspection, transcript=rows, items=items, subagents=subagents, left_out=left_out
    )


def _shorter_row(row: TranscriptRow, limit: int) -> TranscriptRow:
    text, lost = cut(row.text, limit)
    diff, lost_lines = _shorter_diff(row.diff, limit)
    if not (lost or lost_lines) and len(row.text) < COUNTED_BYTES_MIN:
        return row
    whole = len(row.text.encode()) + sum(len(line.text.encode()) + 1 for line in row.diff)
    return msgspec.structs.replace(
        row,
        text=text,
        diff=diff,
        bytes=whole + row.left_out,
        left_out=row.left_out + lost + lost_lines,
    )


def _shorter_diff(diff: list[DiffLine], limit: int) -> tuple[list[DiffLine], int]:
    """Return the first lines of a diff that take `limit` together, each cut to it, and the bytes
    left out.
    """
    kept: list[DiffLine] = []
    size = lost = 0
    for line in diff:
        size += encoded_size(line.text)
        if size > limit and kept:
            lost += len(line.text.encode()) + 1
        else:
            kept.append(msgspec.structs.replace(line, text=cut(line.text, limit)[0]))
    return kept, lost


def _shorter_item(item: ItemData, limit: int) -> ItemData:
    if not any(stage.text for stage in item.stages):
        return item
    stages = [_shorter_stage(stage, limit) for stage in item.stages]
    return msgspec.structs.replace(item, stages=stages)


def _shorter_stage(stage: Stage, limit: int) -> Stage:
    text, lost = cut(stage.text, limit)
    return msgspec.structs.replace(stage, text=text, left_out=lost) if lost else stage

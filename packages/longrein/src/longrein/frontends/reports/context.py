"""The context report as JSON, in the schema of other agents' clients, and as plain text."""

import json
from collections.abc import Sequence
from typing import Any

from longrein.frontends.localization import translate
from longrein.steps.human_text import escape
from longrein_context import LineReason, Report, ReportRow, State, arguments_text
from longrein_context.events import ToolCall, ToolResult, text_of

COLOURS = {
    "System prompt": "promptBorder",
    "System tools": "inactive",
    "MCP tools": "cyan_FOR_SUBAGENTS_ONLY",
    "Memory files": "claude",
    "Messages": "purple_FOR_SUBAGENTS_ONLY",
    "Autocompact buffer": "inactive",
    "Free space": "promptBorder",
}
"""Colour names of those clients, by category."""
GRID_ROWS, GRID_COLUMNS = 10, 10
REASONS_SHOWN = 60
ITEMS_SHOWN = 12
BEGINNING_CHARS = 36
"""Characters of an item's beginning in its row."""


def as_sent(state: State) -> str:
    """The items of a request, each under a line with its kind, handle and form."""
    rows = [f"--- system\n{state.prefix.system}"] if state.prefix else []
    for item in state.items:
        part = item.part
        if isinstance(part, ToolCall):
            name = f"call {part.name}"
            text = arguments_text(part)
        elif isinstance(part, ToolResult):
            name, text = f"result {part.name}, {part.status}", text_of((part,))
        else:
            name, text = item.kind, text_of((part,))
        cut = f", {item.form}" if item.form != "full" else ""
        rows.append(f"--- {name}, {item.handle}{cut}\n{text}")
    return escape("\n".join(rows)) + "\n"


def as_json(report: Report, state: State, model: str) -> str:
    """A JSON object in the common schema, with the additional keys `modules`, `items` and
    `factor`.
    """
    shape = context_usage(report, state, model) | {
        "factor": round(report.factor, 4),
        "countedTokens": report.counted_tokens,
        "modules": [{"name": name, "tokens": tokens} for name, tokens in report.modules()],
        "items": [_item(row) for row in report.shown],
        **({"note": report.note} if report.note else {}),
    }
    return json.dumps(shape, ensure_ascii=False, indent=1) + "\n"


def context_usage(report: Report, state: State, model: str) -> dict[str, Any]:
    """Use of the context, in the common schema."""
    total, most = report.total_tokens, report.usable_tokens
    deferred = state.prefix.deferred if state.prefix else ()
    return {
        "categories": _categories(report),
        "totalTokens": total,
        "maxTokens": most,
        "rawMaxTokens": report.window_tokens,
        "percentage": round(100 * total / most, 1) if most else 0.0,
        "model": model,
        "isAutoCompactEnabled": True,
        "autoCompactThreshold": round(report.prepare_share * most),
        "memoryFiles": _memory_files(report, state),
        "mcpTools": [
            _mcp_tool(row.name, row.tokens, loaded=True)
            for row in report.shown
            if _is_mcp_tool(row)
        ]
        + [_mcp_tool(tool.name, 0, loaded=False) for tool in deferred if _is_mcp_name(tool.name)],
        "deferredBuiltinTools": [
            {"name": tool.name, "tokens": 0, "isLoaded": False}
            for tool in deferred
            if not _is_mcp_name(tool.name)
        ],
        "agents": [],
        "systemTools": [
            {"name": row.name, "tokens": row.tokens}
            for row in report.shown
            if row.kind == "tool" and not _is_mcp_tool(row)
        ],
        "messageBreakdown": _breakdown(report),
        "gridRows": _grid(report),
    }


def _item(row: ReportRow) -> dict[str, Any]:
    return {
        "module": row.module,
        "kind": row.kind,
        "name": row.name,
        "handle": row.handle,
        "form": row.form,
        "tokens": row.tokens,
        "costUsd": round(row.usd, 6),
        "nextCompactionTakesIt": row.goes,
        "begins": row.begins,
    }


def _categories(report: Report) -> list[dict[str, Any]]:
    sums = dict.fromkeys(COLOURS, 0)
    for row in report.shown:
        sums[_category(row)] += row.tokens
    used = report.total_tokens
    buffer = max(0, report.usable_tokens - round(report.prepare_share * report.usable_tokens))
    sums["Autocompact buffer"] = min(buffer, max(0, report.usable_tokens - used))
    sums["Free space"] = max(0, report.usable_tokens - used - sums["Autocompact buffer"])
    return [
        {"name": name, "tokens": sums[name], "color": colour}
        for name, colour in COLOURS.items()
        if sums[name]
    ]


def _category(row: ReportRow) -> str:
    if row.kind == "tool":
        return "MCP tools" if _is_mcp_tool(row) else "System tools"
    return {"system": "System prompt", "context": "Memory files"}.get(row.kind, "Messages")


def _is_mcp_tool(row: ReportRow) -> bool:
    return row.kind == "tool" and _is_mcp_name(row.name)


def _is_mcp_name(name: str) -> bool:
    return name.startswith("mcp__")


def _mcp_tool(name: str, tokens: int, *, loaded: bool) -> dict[str, Any]:
    server = name.split("__")[1] if name.count("__") >= 2 else ""
    return {"name": name, "serverName": server, "tokens": tokens, "isLoaded": loaded}


def _memory_files(report: Report, state: State) -> list[dict[str, Any]]:
    paths = state.prefix.context_paths if state.prefix else ()
    tokens = [row.tokens for row in report.shown if row.kind == "context"]
    return [
        {"path": path, "type": "Project", "tokens": count}
        for path, count in zip(paths, tokens, strict=False)
        if path
    ]


def _breakdown(report: Report) -> dict[str, Any]:
    def tokens(*kinds: str, name: str | None = None) -> int:
        return sum(
            row.tokens for row in report.shown if row.kind in kinds and name in (None, row.name)
        )

    names = dict.fromkeys(row.name for row in report.shown if row.kind in ("call", "result"))
    return {
        "toolCallTokens": tokens("call"),
        "toolResultTokens": tokens("result"),
        "attachmentTokens": tokens("reminder", "summary", "ack"),
        "assistantMessageTokens": tokens("text", "thinking"),
        "userMessageTokens": tokens("user"),
        "toolCallsByType": [
            {
                "name": name,
                "callTokens": tokens("call", name=name),
                "resultTokens": tokens("result", name=name),
            }
            for name in names
        ],
    }


def _grid(report: Report) -> list[list[dict[str, Any]]]:
    squares = GRID_ROWS * GRID_COLUMNS
    cells: list[dict[str, Any]] = []
    for category in _categories(report):
        name, colour = category["name"], category["color"]
        wanted = round(
            squares * category["tokens"] / max(report.usable_tokens, report.total_tokens, 1)
        )
        cell = {"color": colour, "isFilled": name != "Free space", "categoryName": name}
        cells += [cell] * (wanted or (name != "Free space"))
    cells += [
        {"color": COLOURS["Free space"], "isFilled": False, "categoryName": "Free space"}
    ] * squares
    return [cells[n : n + GRID_COLUMNS] for n in range(0, squares, GRID_COLUMNS)]


def as_text(report: Report) -> str:
    """A line per module, then the largest items with a mark on those that the next compaction
    takes.
    """
    items = ["".join(pair).rstrip() for pair in item_rows(report)]
    return "\n".join([*module_rows(report), "", *items]) + "\n"


def module_rows(report: Report) -> list[str]:
    """A row per module, and the sum."""
    most = max(report.usable_tokens, 1)
    rows = [
        f"  {name:<20} {tokens:>8,} {100 * tokens / most:>4.0f}%"
        for name, tokens in report.modules()
    ]
    rows.append(
        f"  {'all':<20} {report.total_tokens:>8,} of {report.usable_tokens:,} usable tokens"
    )
    rows.append(
        f"  (estimates are corrected by {report.factor:.2f} to match the provider's counts)"
    )
    return [*rows, f"  ({report.note})"] if report.note else rows


def item_rows(report: Report) -> list[tuple[str, str]]:
    """The largest items, each in two columns: handle, tokens and price so far, with a mark on what
    the next compaction takes; name, form and beginning.
    """
    largest = sorted((row for row in report.shown if row.handle), key=lambda row: -row.tokens)[
        :ITEMS_SHOWN
    ]
    title = ("  ", translate("largest items (· = the next compaction takes it)"))
    rows = [title] if largest else []
    priced = any(row.usd for row in largest)
    for row in largest:
        sign, name = "·" if row.goes else " ", row.name or row.kind
        usd = f"${row.usd:.4f}" if row.usd else ""
        price = f" {usd:>8}" if priced else ""
        form = f", {row.form}" if row.form != "full" else ""
        figures = f" {sign}{row.handle:<9} {row.tokens:>7,}{price}  "
        rows.append((figures, f"{name}{form}: {_beginning(row)}"))
    return rows


def _beginning(row: ReportRow) -> str:
    """Return the beginning of a row; of a file the end of its path, which has the lines."""
    is_place = row.kind in ("call", "result") and " " not in row.begins and "/" in row.begins
    if is_place and len(row.begins) > BEGINNING_CHARS:
        return "…" + row.begins[1 - BEGINNING_CHARS :]
    return row.begins[:BEGINNING_CHARS]


def reason_rows(reasons: Sequence[LineReason]) -> list[tuple[str, str]]:
    """A row per line of an item, in two columns: keep or clear and the probability of need; the
    reason and the beginning.
    """
    if not reasons:
        nothing = "nothing with that handle is shown; /context lists what is"
        return [("  ", translate(nothing))]
    rows = [
        (
            f"  {translate('keep' if reason.stays else 'clear'):<5}  {reason.chance:>6.1%}  ",
            f"{translate(reason.why)}: {reason.line[:40]}",
        )
        for reason in reasons
    ]
    title = ("  ", translate("at a clearing, how likely it is to be needed, and why:"))
    return [title, *rows[:REASONS_SHOWN]]

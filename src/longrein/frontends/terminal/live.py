"""The rows above the input that are drawn again while something goes on. Pure."""

from collections.abc import Sequence

import msgspec

from longrein.agent import AgentView, Pending
from longrein.frontends import amounts
from longrein.frontends.safe import escape_line
from longrein.frontends.terminal import beside_rows, drawing
from longrein.frontends.terminal.footer import state_line
from longrein.frontends.terminal.lines import Line, crop, fold, line, wrap_text
from longrein.frontends.terminal.scene import EMPTY, Scene

CALLS_SHOWN_MAX = 6
PENDING_SHOWN_MAX = 3
AGENTS_SHOWN_MAX = 8


class Now(msgspec.Struct, frozen=True):
    """When and where it is drawn."""

    mono_s: float
    wall_us: int
    width: int
    rows: int
    """Of the terminal."""


def live_rows(scene: Scene, agents: Sequence[AgentView], now: Now) -> list[Line]:
    """What is being written, what runs, what works beside, and what goes on at all."""
    calls, state = _calls(scene, now.mono_s) if scene.busy else [], state_line(scene, now.mono_s)
    most = max(min(AGENTS_SHOWN_MAX, now.rows // 4), 1)
    company = [
        *beside_rows.live_agents(agents, most),
        *beside_rows.live_tasks(scene.beside.tasks, now.wall_us, now.width, now.mono_s),
    ]
    tail = _tail(scene, now.width, now.rows - len(calls) - len(company) - 10)
    rows = [crop(row, now.width) for row in [*tail, *calls, *company, *([state] if state else [])]]
    return [EMPTY, *rows] if scene.tail_gap or not rows else rows


def tick_s(scene: Scene, agents: Sequence[AgentView], wall_us: int, mono_s: float = 0.0) -> float:
    """How soon what works beside an idle conversation is drawn again; 0 for not before there is news."""
    if any(view.state in beside_rows.OPEN for view in agents):
        return 1.0
    ages = [running.age_s(wall_us, mono_s) for running in scene.beside.tasks.values()]
    return 0.0 if not ages else 1.0 if min(ages) < 60 else 15.0


def waiting_rows(waiting: Sequence[Pending], labels: dict[str, str], width: int) -> list[Line]:
    """Messages that were said and not delivered yet, and when they go."""
    shown = [one for one in waiting if one.to or one.how in ("queued", "steer")]
    words = [(beside_rows.waiting_word(one, labels.get(one.to, "")), one.text) for one in shown]
    rows = [crop(line(("warn", f"{when}: "), escape_line(text)), width) for when, text in words]
    hint = "↑ takes the last one back" + ("; /queue lists all" if len(rows) > 1 else "")
    return [*fold(rows, PENDING_SHOWN_MAX), *([line(("dim", hint))] if rows else [])]


def _tail(scene: Scene, width: int, room: int) -> list[Line]:
    room = max(min(room, 12), 1)
    if text := scene.tail(room):
        return [*wrap_text(text, min(width, 120))[-room:], EMPTY]
    if scene.phase == "thinking" and (thought := scene.thinking_line()):
        return [crop(line(("dim", f"  {thought}")), width)]
    return []


def _calls(scene: Scene, now_s: float) -> list[Line]:
    rows: list[Line] = []
    for row in scene.calls.values():
        time = amounts.elapsed(now_s - row.since_s) if row.status == "running" else ""
        rows.append(drawing.call_line(row.name, row.argument, row.status, time, "○"))
    shown = fold(rows, CALLS_SHOWN_MAX)
    last = _output(scene) if len(rows) == 1 else ""
    return [*shown, line(("dim", f"  {last}"))] if last else shown


def _output(scene: Scene) -> str:
    """The last line that the one running call has printed."""
    output = next(iter(scene.calls.values())).output.decode("utf-8", "replace").rstrip()
    return escape_line(output.rpartition("\n")[2].rpartition("\r")[2])

"""Draw cost against retention of policies, from a report of the judge, as one SVG.

    python lab/pareto.py REPORT.json OUT.svg

REPORT.json is the output of the judge's `--json`. Each policy is a point. x: its cost with recalls
over keep-all. y: the share of uses, of content that only tool results held, that was still shown. A
line joins the best policies.
"""

import json
import sys
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, BOTTOM = 640, 400, 60, 50
COST, KEPT = "with recalls / keep-all", "retention, tool-only"

Point = tuple[str, float, float]


def points(report: Path) -> list[Point]:
    """Return (policy, cost, retention) of each policy over all sessions."""
    policies = json.loads(report.read_text())["policies"]
    return [
        (name, found["aggregate"]["all"][COST]["pooled"], found["aggregate"]["all"][KEPT]["pooled"])
        for name, found in policies.items()
    ]


def front(found: list[Point]) -> list[Point]:
    """Return the points that no other beats in both figures, cheapest first."""
    best, kept = [], -1.0
    for point in sorted(found, key=lambda p: (p[1], -p[2])):
        if point[2] > kept:
            best.append(point)
            kept = point[2]
    return best


def draw_svg(found: list[Point]) -> str:
    """Draw the picture."""
    low, high = min(p[1] for p in found) - 0.05, max(p[1] for p in found) + 0.15
    floor = min(p[2] for p in found) - 0.05

    def place(point: Point) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - 20) * (point[1] - low) / (high - low)
        return across, HEIGHT - BOTTOM - (HEIGHT - BOTTOM - 20) * (point[2] - floor) / (
            1.01 - floor
        )

    path = " ".join(f"{x:.0f},{y:.0f}" for x, y in map(place, front(found)))
    size, upright = f"0 0 {WIDTH} {HEIGHT}", f"rotate(-90 15 {HEIGHT - BOTTOM})"
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" '
            'font-size="13">'
        ),
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<path d="M{LEFT} 20V{HEIGHT - BOTTOM}H{WIDTH - 20}" fill="none" stroke="#888"/>',
        (
            f'<text x="{LEFT}" y="{HEIGHT - 15}">cost with recalls / keep-all, from {low:.2f} to '
            f"{high:.2f}</text>"
        ),
        (
            f'<text x="15" y="{HEIGHT - BOTTOM}" transform="{upright}">tool-only uses kept, from '
            f"{floor:.2f} to 1</text>"
        ),
        f'<polyline points="{path}" fill="none" stroke="#2a7" stroke-dasharray="4 3"/>',
    ]
    for point in found:
        x, y = place(point)
        told = f"{escape(point[0])} {point[1]:.2f} / {point[2]:.2f}"
        parts.append(
            f'<circle cx="{x:.0f}" cy="{y:.0f}" r="4" fill="#16a"/><text x="{x + 7:.0f}" '
            f'y="{y + 4:.0f}">{told}</text>'
        )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(draw_svg(points(Path(sys.argv[1]))), encoding="utf-8")

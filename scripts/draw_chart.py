#!/usr/bin/env python3
"""Draws docs/results/by_length.svg, the chart of README.md, from the figures in by_length.toml.

scripts/draw_chart.py            writes the chart
scripts/draw_chart.py --check    fails if the chart in the tree is not the one it would write
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomllib

RESULTS = Path(__file__).parent.parent / "docs" / "results"
COLORS = {"FAVOR+": "#15803d", "fused softmax": "#b91c1c", "FAVOR+ in plain PyTorch": "#64748b"}

WIDTH, HEIGHT = 300, 270  # of a panel
LEFT, RIGHT, TOP, BOTTOM = 48, 262, 56, 216  # of its plot
FOOT = 50  # below the panels, for the legend and a sentence that says what was measured

NOTE = (
    "Forward pass of bidirectional attention, 8 heads of width 64, 256 features. "
    "Both axes are logarithmic."
)


@dataclass
class Scale:
    """A logarithmic axis: values from `low` to `high` lie between pixels `start` and `end`."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)


def text(x: float, y: float, words: str, **attributes: str) -> str:
    styles = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in attributes.items())
    return f'<text x="{x:.1f}" y="{y:.1f}"{styles}>{words}</text>'


def line(x1: float, y1: float, x2: float, y2: float, color: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{color}"/>'


def decades(low: float, high: float) -> Iterator[float]:
    for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1):
        yield 10.0**power


def rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2g}"


def axes(x: Scale, y: Scale, lengths: list[int]) -> Iterator[str]:
    for value in decades(y.low, y.high):
        yield line(LEFT, y(value), RIGHT, y(value), "#e2e8f0")
        yield text(LEFT - 6, y(value) + 4, f"{value:,g}", text_anchor="end", fill="#475569")
    yield line(LEFT, BOTTOM, RIGHT, BOTTOM, "#334155")
    for length in lengths:
        label = f"{length // 1024}k"
        yield text(x(length), BOTTOM + 18, label, text_anchor="middle", fill="#475569")
    middle = (LEFT + RIGHT) / 2
    yield text(middle, BOTTOM + 36, "tokens", text_anchor="middle", fill="#475569")


def curve(x: Scale, y: Scale, lengths: list[int], name: str, values: list[float]) -> Iterator[str]:
    """The values as points on a line, the last one in figures."""
    points = [(x(length), y(value)) for length, value in zip(lengths, values, strict=False)]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    color = COLORS[name]
    yield f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"/>'
    for px, py in points:
        yield f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{color}"/>'
    px, py = points[-1]
    below = 4 if len(values) == len(lengths) else 14  # out of the way of curves that go on
    yield text(px + 6, py + below, rounded(values[-1]), fill=color)


def legend(width: float) -> Iterator[str]:
    """All colours in one row below the panels."""
    step = 175
    left = (width - step * len(COLORS)) / 2
    for i, (name, color) in enumerate(COLORS.items()):
        yield f'<circle cx="{left + step * i:.1f}" cy="{HEIGHT + 8}" r="4" fill="{color}"/>'
        yield text(left + step * i + 10, HEIGHT + 12, name, fill=color, font_size="13")


def panel(fields: dict[str, Any], lengths: list[int], left: float) -> Iterator[str]:
    figures: dict[str, list[float]] = fields["figures"]
    values = [value for row in figures.values() for value in row]
    x = Scale(lengths[0], lengths[-1], LEFT + 12, RIGHT - 18)
    y = Scale(min(values) / 2, max(values) * 2, BOTTOM, TOP)
    yield f'<g transform="translate({left:.0f} 0)">'
    yield text(LEFT, 24, fields["title"], font_weight="bold", fill="#0f172a", font_size="14")
    yield text(LEFT, 42, fields["unit"], fill="#475569")
    yield from axes(x, y, lengths)
    for name, row in figures.items():
        yield from curve(x, y, lengths, name, row)
    yield "</g>"


def draw(chart: dict[str, Any]) -> str:
    panels: list[dict[str, Any]] = chart["panel"]
    width, height = WIDTH * len(panels), HEIGHT + FOOT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for i, fields in enumerate(panels):
        lines += panel(fields, chart["lengths"], WIDTH * i)
    lines += legend(width)
    lines.append(text(width / 2, HEIGHT + 36, NOTE, text_anchor="middle", fill="#475569"))
    return "\n".join([*lines, "</svg>", ""])


def main() -> int:
    drawn = draw(tomllib.loads((RESULTS / "by_length.toml").read_text(encoding="utf-8")))
    chart = RESULTS / "by_length.svg"
    if sys.argv[1:] == ["--check"]:
        same = chart.read_text(encoding="utf-8") == drawn
        print("chart: as drawn" if same else f"{chart}: not as drawn; run scripts/draw_chart.py")
        return 0 if same else 1
    chart.write_text(drawn, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

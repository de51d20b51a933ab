#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws time over the number of tokens from a judge's JSON report, a panel a layer, as an SVG.

    slimgemm judge --shapes shapes/curve.json --baseline sglang,best-blas --json curve.json
    scripts/curve_chart.py curve.json > curve.svg
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT, PANEL, GAP, TOP = 760, 52, 16, 150, 44, 58
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; } .quiet { fill: #57606a; }
  .grid { stroke: #d0d7de; stroke-width: 1; }
  polyline { fill: none; stroke-width: 2; } .ours { stroke: #1a7f37; }
  .sglang { stroke: #8c959f; } .best { stroke: #bf8700; stroke-dasharray: 5 3; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9198a1; } .grid { stroke: #30363d; }
    .ours { stroke: #3fb950; } .sglang { stroke: #6e7681; } .best { stroke: #d29922; }
  }
"""


def series_of(shapes: list) -> list:
    """(class, [(m, us)]) of ours and of both baselines."""
    lines = [("sglang", [(s["m"], s["baseline"]["median_us"]) for s in shapes])]
    if shapes[0]["other_baselines"]:
        lines.append(("best", [(s["m"], s["other_baselines"][0]["median_us"]) for s in shapes]))
    lines.append(("ours", [(s["m"], s["contender"]["median_us"]) for s in shapes]))
    return lines


def panel(name: str, shapes: list, top: int) -> list:
    lines = series_of(shapes)
    most_us = max(us for _, points in lines for _, us in points)
    most_m = max(s["m"] for s in shapes)
    step = next(s for s in (1, 2, 5, 10, 20, 50, 100) if most_us / s <= 5)

    def at(m: float, us: float) -> str:
        x = LEFT + (WIDTH - LEFT - RIGHT) * m / most_m
        return f"{x:.1f},{top + PANEL * (1 - us / most_us):.1f}"

    out = [f'<text x="{LEFT}" y="{top - 8}">{escape(name)}, '
           f'{shapes[0]["n"]} x {shapes[0]["k"]}</text>']
    for us in range(0, int(most_us) + 1, step):
        y = top + PANEL * (1 - us / most_us)
        out.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" '
                   f'y2="{y:.1f}"/><text class="quiet" x="{LEFT - 8}" y="{y + 4:.1f}" '
                   f'text-anchor="end">{us}</text>')
    for m in range(0, most_m + 1, 32):
        x = LEFT + (WIDTH - LEFT - RIGHT) * m / most_m
        out.append(f'<text class="quiet" x="{x:.1f}" y="{top + PANEL + 16}" '
                   f'text-anchor="middle">{m}</text>')
    for kind, points in lines:
        out.append(f'<polyline class="{kind}" points="{" ".join(at(*p) for p in points)}"/>')
    return out


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    layers = {}
    for shape in report["shapes"]:
        layers.setdefault(shape["layer"], []).append(shape)
    height = TOP + (PANEL + GAP) * len(layers)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Time of each layer over the number of tokens">',
        f"<style>{STYLE}</style>",
        '<text class="title" x="8" y="22">Microseconds over the number of tokens m</text>',
    ]
    for i, (kind, label) in enumerate((("ours", "SlimGEMM"), ("sglang", "sglang (cuBLAS)"),
                                       ("best", "best-blas"))):
        x = (400, 496, 640)[i]
        out.append(f'<polyline class="{kind}" points="{x},18 {x + 18},18"/>'
                   f'<text x="{x + 22}" y="22">{label}</text>')
    for i, (name, shapes) in enumerate(layers.items()):
        out += panel(name, sorted(shapes, key=lambda s: s["m"]), TOP + (PANEL + GAP) * i)
    out.append("</svg>")
    print("\n".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

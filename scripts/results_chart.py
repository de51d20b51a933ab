#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the six load times of a judge's JSON report as an SVG: the README's picture of the result.

    scripts/results_chart.py results/h200/judge.json > docs/images/results-h200.svg
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, LEFT, TOP, ROW, BAR = 720, 96, 56, 46, 15
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; }
  .quiet { fill: #57606a; }
  .ours { fill: #1a7f37; } .theirs { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .quiet { fill: #9198a1; }
    .ours { fill: #3fb950; } .theirs { fill: #6e7681; }
  }
"""


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    with open(sys.argv[1], encoding="utf-8") as file:
        report = json.load(file)
    loads = report["loads"]
    baseline = report["baseline"]["name"]
    scale = (WIDTH - LEFT - 150) / max(load["baseline_us"] for load in loads)
    height = TOP + ROW * len(loads) + 34
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Time of each load, SlimGEMM and {escape(baseline)}">',
        f"<style>{STYLE}</style>",
        '<text class="title" x="8" y="22">Five linear layers, microseconds (less is better)</text>',
        '<rect class="ours" x="8" y="32" width="11" height="11"/>'
        '<text x="24" y="42">SlimGEMM</text>'
        f'<rect class="theirs" x="112" y="32" width="11" height="11"/>'
        f'<text x="128" y="42">{escape(baseline)} (cuBLAS)</text>',
    ]
    for i, load in enumerate(loads):
        y = TOP + ROW * i
        out.append(f'<text x="8" y="{y + 24}">{escape(load["name"])}</text>')
        bars = (("ours", load["ours_us"], y + 4), ("theirs", load["baseline_us"], y + 21))
        for name, value, top in bars:
            width = value * scale
            out.append(
                f'<rect class="{name}" x="{LEFT}" y="{top}" width="{width:.1f}" height="{BAR}" '
                f'rx="2"/><text class="quiet" x="{LEFT + width + 6:.1f}" y="{top + 12}">'
                f'{value:.1f}</text>')
        out.append(f'<text x="{WIDTH - 60}" y="{y + 24}">{load["speedup"]:.2f}x</text>')
    out.append(
        f'<text class="quiet" x="8" y="{height - 10}">{escape(report["device"]["device"])}, every '
        f'replay with a cold L2; geometric mean of the speedups {report["score"]:.3f}</text>')
    out.append("</svg>")
    print("\n".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

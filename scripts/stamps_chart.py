#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws where a tile kernel's microseconds go, from stamps of globaltimer in its source, as an SVG.

    scripts/stamps_chart.py results/h200/notebook/verify-22-stamps.txt > verify-budget.svg

The file has two lines a shape: medians over the CTAs as "[i] median max" in nanoseconds after the
first CTA's start, and the shape's time. Stamps: 1 weights asked for, 2 first weights there, 5 first
multiplication, 6 end of the loop, 8 end of the kernel.
"""
import re
import sys

WIDTH, LEFT, TOP, ROW, BAR = 760, 150, 62, 34, 18
PARTS = (
    ("until weights are asked for", "#8c959f"), ("until they are there", "#54aeff"),
    ("decode, exceptions, x", "#bf8700"), ("loop", "#1a7f37"),
    ("sums, output", "#cf222e"), ("rest", "#d0d7de"),
)
STYLE = """
  text { font: 12px system-ui, sans-serif; fill: #24292f; }
  .title { font-size: 15px; font-weight: 600; } .quiet { fill: #57606a; }
  @media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .quiet { fill: #9198a1; } }
"""


def read(path: str) -> list:
    """(label, microseconds of each part)"""
    bars = []
    stamps = {}
    with open(path, encoding="utf-8") as file:
        for line in file:
            if "stamps" in line:
                found = re.findall(r"\[(\d+)\] (\d+) \d+", line)
                stamps = {int(i): int(ns) / 1000 for i, ns in found}
            match = re.match(r"(\w+) +m=(\d+) .*? ([\d.]+) us", line)
            if match and stamps:
                ends = [stamps[1], stamps[2], stamps[5], stamps[6], stamps[8], float(match[3])]
                parts = [max(b - a, 0) for a, b in zip([0, *ends], ends)]
                bars.append((f"{match[1]}, m = {match[2]}", parts))
                stamps = {}
    return bars


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    bars = read(sys.argv[1])
    if not bars:
        print(f"{sys.argv[1]} has no stamps", file=sys.stderr)
        return 1
    scale = (WIDTH - LEFT - 60) / max(sum(parts) for _, parts in bars)
    height = TOP + ROW * len(bars) + 8
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="Where the microseconds of the tile kernel go">',
        f"<style>{STYLE}</style>",
        '<text class="title" x="8" y="20">Where the microseconds of the tile kernel go</text>',
    ]
    x = 8
    for name, colour in PARTS:
        out.append(f'<rect x="{x}" y="32" width="11" height="11" fill="{colour}"/>'
                   f'<text x="{x + 15}" y="42">{name}</text>')
        x += 32 + int(6.1 * len(name))
    for i, (label, parts) in enumerate(bars):
        y = TOP + ROW * i
        out.append(f'<text x="8" y="{y + 14}">{label}</text>')
        x = LEFT
        for (_, colour), us in zip(PARTS, parts):
            out.append(f'<rect x="{x:.1f}" y="{y}" width="{us * scale:.1f}" height="{BAR}" '
                       f'fill="{colour}"/>')
            x += us * scale
        out.append(f'<text class="quiet" x="{x + 6:.1f}" y="{y + 14}">{sum(parts):.1f}</text>')
    out.append("</svg>")
    print("\n".join(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())

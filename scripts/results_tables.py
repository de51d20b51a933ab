#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of results/README.md anew from the reports beside it, and prints the figures
that its sentences quote.

    scripts/results_tables.py

A table is found by the title of its section and the first cells of its header; what is not named
below stays as it is.
"""
import csv
import json
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
H200 = ROOT / "results" / "h200"
PAGE = ROOT / "results" / "README.md"
LAYERS = ["qkv_gate", "o", "pooler", "unpooler", "router"]
# What the kernels were written for, microseconds.
LOAD_AIMS = {"decode 1": 32.7, "decode 16": 44.5, "decode 32": 48.2, "verify 1": 33.6,
             "verify 16": 57, "verify 32": 82}
AIMS = {"qkv_gate": [8.3, 8.9, 9.2, 9.8, 11.8, 17.9], "o": [4.5, 4.5, 4.6, 5, 6.1, 7.7],
        "pooler": [12.7, 12.9, 13.2, 14.3, 17, 25], "unpooler": [3.1, 3.2, 13.1, 14, 15.5, 23],
        "router": [4.1, 4.1, 4.4, 5.1, 6.5, 8.5]}
TOKENS = [1, 8, 16, 32, 128, 256]


def report(name):
    with open(H200 / f"{name}.json", encoding="utf-8") as file:
        return json.load(file)


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values))


def best_blas(shape):
    return next(o for o in shape["other_baselines"] if o["name"] == "best-blas")


def timed(shapes):
    return [s for s in shapes if s["contender"] and s["contender"].get("median_us")]


class Page:
    def __init__(self):
        self.text = PAGE.read_text(encoding="utf-8")

    def replace_table(self, section, header, rows):
        """The rows below the first table after `section` whose header begins with `header`."""
        start = self.text.index(header, self.text.index(section))
        end = self.text.index("\n\n", start)
        head = self.text[start:end].split("\n")[:2]
        self.text = self.text[:start] + "\n".join(head + rows) + self.text[end:]


def loads(page):
    waiting, queued = report("judge"), report("judge-queued")
    rows, others = [], []
    for load in waiting["loads"]:
        other = load["other_baselines"][0]
        others.append(other["speedup"])
        rows.append(f"| {load['name']} | {load['m']} | {load['ours_us']:.1f} | "
                    f"{load['baseline_us']:.1f} | {load['speedup']:.2f} | "
                    f"{other['baseline_us']:.1f} | {other['speedup']:.2f} | "
                    f"{load['ceiling_us']:.1f} |")
    score = mean(load["speedup"] for load in waiting["loads"])
    rows.append(f"| geometric mean | | | | **{score:.3f}** | | {mean(others):.3f} | |")
    page.replace_table("### The six loads", "| load | m | SlimGEMM | `sglang` | speedup | `", rows)
    rows = []
    for load, before in zip(queued["loads"], waiting["loads"]):
        rows.append(f"| {load['name']} | {load['m']} | {load['ours_us']:.1f} | "
                    f"{LOAD_AIMS[load['name']]} | {load['baseline_us']:.1f} | {load['speedup']:.2f}"
                    f" | {load['ours_us'] - before['ours_us']:+.2f} |")
    score = mean(load["speedup"] for load in queued["loads"])
    rows.append(f"| geometric mean | | | | | **{score:.3f}** | |")
    page.replace_table("### The six loads", "| load | m | SlimGEMM | aim", rows)


def shapes(page):
    def times(name):
        return {(s["layer"], s["m"]): s for s in timed(report(name)["shapes"])}
    waiting, queued = times("judge"), times("judge-queued")
    rows = []
    for layer in LAYERS:
        for m, aim in zip(TOKENS, AIMS[layer]):
            shape = waiting[layer, m]
            time, ceiling = shape["contender"]["median_us"], shape["ceiling_us"]
            in_queue = queued[layer, m]["contender"]["median_us"]
            rows.append(f"| {layer if m == 1 else ''} | {m} | {time:.2f} | {ceiling:.2f} | "
                        f"{100 * ceiling / time:.0f} % | {in_queue:.2f} | {aim} | "
                        f"{in_queue - aim:+.2f} |".replace("|  |", "| |"))
    page.replace_table("### Every shape", "| layer | m | time |", rows)
    print("behind sglang:", [(*k, round(s["speedup"]["median"], 2)) for k, s in waiting.items()
                             if s["speedup"]["median"] < 1])


def exceptions(page):
    """The column of normal weights only: the others are of an older run."""
    best, plan = {}, {}
    with open(ROOT / "tuning" / "plans.csv", encoding="utf-8") as file:
        for n, k, m, instance in ((r[2], r[3], r[4], r[6]) for r in csv.reader(file)
                                  if len(r) == 7 and r[1] == "split12"):
            plan[n, k, m] = instance
    for shape in report("tune")["shapes"]:
        by_name = {i["instance"]: i["median_us"] for i in shape["instances"]}
        ours = by_name.get(plan.get((str(shape["n"]), str(shape["k"]), str(shape["m"]))))
        best[shape["layer"], shape["m"]] = (min(by_name.values()), ours)
    start = page.text.index("| layer | m | none |")
    end = page.text.index("\n\n", start)
    lines, layer = [], ""
    for line in page.text[start:end].split("\n"):
        cells = [c.strip() for c in line.strip("|").split("|")]
        if cells[1].isdigit():
            layer = cells[0] or layer
            time, ours = best[layer.split(",")[0], int(cells[1])]  # "unpooler, slice"
            cells[3] = f"{time:.1f}"
            if ours and ours - time > 0.1:
                cells[3] += f" ({ours:.1f})"
            line = "| " + " | ".join(cells) + " |"
        lines.append(line)
    page.text = page.text[:start] + "\n".join(lines) + page.text[end:]


def served(page):
    data = timed(report("served")["shapes"])
    ratio = {(s["layer"], s["m"]): best_blas(s)["median_us"] / s["contender"]["median_us"]
             for s in data}
    rows = []
    for m in [1, 4, 8, 16, 32, 64, 128, 256]:
        of_m = [s for s in data if s["m"] == m]
        r = [ratio[s["layer"], m] for s in of_m]
        share = sorted(s["ceiling_us"] / s["contender"]["median_us"] for s in of_m)
        rows.append(f"| {m} | {mean(s['speedup']['median'] for s in of_m):.2f} | {mean(r):.2f} | "
                    f"{min(r):.2f} | {sum(x < 0.97 for x in r)} | "
                    f"{100 * share[len(share) // 2]:.0f} % |")
    few = [s for s in data if s["m"] <= 32]
    r = [ratio[s["layer"], s["m"]] for s in few]
    rows.append(f"| 1 to 32 | {mean(s['speedup']['median'] for s in few):.3f} | {mean(r):.3f} | "
                f"{min(r):.2f} | {sum(x < 0.97 for x in r)} | |")
    page.replace_table("### Layers of models", "| m | over `sglang` |", rows)
    print("slower than best-blas, up to 32 tokens:", sum(x < 1 for x in r), "of", len(r))

    large = [s for s in data if 2 * s["n"] * s["k"] > 20e6]
    below, count = {}, 0
    for s in large:
        if s["m"] <= 16 and ratio[s["layer"], s["m"]] < 1.25:
            count += 1
            below.setdefault((s["layer"], s["n"], s["k"]), []).append(
                f"{s['m']}: {ratio[s['layer'], s['m']]:.2f} ({s['speedup']['median']:.2f})")
    print("below 1.25, over 20 MB, m <= 16:", count, "of", sum(s["m"] <= 16 for s in large))
    page.replace_table("### Layers of models", "| layer | N x K | m: speedup",
                       [f"| `{layer}` | {n} x {k} | {', '.join(v)} |"
                        for (layer, n, k), v in below.items()])
    verify = [s for s in large if s["m"] in (64, 128)]
    print("1.1 over 20 MB at 64 and 128:", sum(ratio[s["layer"], s["m"]] >= 1.1 for s in verify),
          "of", len(verify))
    slow = sorted((s for s in data if s["m"] >= 64), key=lambda s: ratio[s["layer"], s["m"]])[:12]
    page.replace_table("### Layers of models", "| layer | N x K | m | ours |",
                       [f"| `{s['layer']}` | {s['n']} x {s['k']} | {s['m']} | "
                        f"{s['contender']['median_us']:.2f} | {best_blas(s)['median_us']:.2f} | "
                        f"{ratio[s['layer'], s['m']]:.2f} |" for s in slow])


def prefill(page):
    by_m = {}
    for s in timed(report("prefill")["shapes"]):
        by_m.setdefault(s["m"], {})[s["layer"]] = s
    rows = []
    for m, of_m in by_m.items():
        pair = [of_m["pooler"], of_m["unpooler"]]
        cells = [f"{s['contender']['median_us']:.1f} | {s['speedup']['median']:.2f}" for s in pair]
        rows.append(f"| {m} | {' | '.join(cells)} |")
    page.replace_table("### Prefill", "| m | pooler |", rows)


def quoted():
    """Figures for the sentences."""
    with open(ROOT / "labs" / "published.csv", encoding="utf-8") as file:
        published = {r[0].strip(): float(r[1]) for r in csv.reader(file)
                     if len(r) == 3 and re.match(r"\s*\d", r[1])}
    names = ["judge", "judge-2", "judge-queued", "judge-invariant"]
    names += [f"before-after/{w}-{i}" for i in (1, 2, 3) for w in ("before", "after")]
    for name in names:
        data = report(name)
        ours = {load["name"]: load["ours_us"] for load in data["loads"]}
        print(f"{name}: {data['commit']}, score {mean(l['speedup'] for l in data['loads']):.3f}, "
              f"over published {mean(published[n] / t for n, t in ours.items()):.3f}, empty replay "
              f"{data['empty_replay_us']:.2f},", [f"{n} {t:.1f}" for n, t in ours.items()])


def main() -> int:
    if len(sys.argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    page = Page()
    for part in (loads, shapes, exceptions, served, prefill):
        part(page)
    PAGE.write_text(page.text, encoding="utf-8")
    quoted()
    return 0


if __name__ == "__main__":
    sys.exit(main())

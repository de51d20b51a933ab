#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's own F.linear on the judge's shapes, in the judge's manner.

Shows whether the judge's baseline `sglang` takes the time that PyTorch takes: every call is
recorded into a CUDA graph; before each replay another x is copied in and a buffer of at least four
times the L2 is read; device events stand around the replay; the cost of a graph with one empty
kernel is subtracted; the median of the replays is reported.

    python3 labs/torch_linear.py                        PyTorch alone
    python3 labs/torch_linear.py --judge judge.json     beside `slimgemm judge --baseline sglang`

Needs PyTorch with CUDA and a GPU. Exit code 2 without them, or if the file cannot be used.
"""

import argparse
import json
import statistics
import sys

# name: (rows of W, columns of W, rows computed at m <= 8)
LAYERS = {
    "qkv_gate": (2304, 8192, 2304),
    "o": (8192, 1024, 8192),
    "pooler": (4096, 8192, 4096),
    "unpooler": (8192, 4096, 1024),
    "router": (256, 8192, 256),
}
SLICE_MAX_M = 8
TOKENS = (1, 8, 16, 32, 128, 256)
MIN_FLUSH_BYTES = 256 << 20
INPUTS = 4
MAX_ATTEMPTS = 6


def fail(message):
    print(f"torch_linear.py: {message}", file=sys.stderr)
    sys.exit(2)


def read_judge(path):
    """Times of the judge's baseline: {(layer, m): microseconds}."""
    try:
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        if report["baseline"]["name"] != "sglang":
            fail(f"{path}: its baseline is {report['baseline']['name']!r}; run the judge with "
                 "--baseline sglang")
        return {
            (shape["layer"], shape["m"]): shape["baseline"]["median_us"]
            for shape in report["shapes"]
            if shape["baseline"] and shape["baseline"]["median_us"]
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        fail(f"{path}: not a report of the judge with a baseline: {error!r}")


class ReplayClock:
    """Times CUDA graphs with a cold L2."""

    def __init__(self, torch, repeats):
        self.torch = torch
        self.repeats = repeats
        l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
        self.flush_bytes = max(4 * l2_bytes, MIN_FLUSH_BYTES)
        self.flush = torch.ones(self.flush_bytes // 4, dtype=torch.float32, device="cuda")
        self.sum = torch.empty((), dtype=torch.float32, device="cuda")
        self.begin = torch.cuda.Event(enable_timing=True)
        self.end = torch.cuda.Event(enable_timing=True)
        self.late = 0
        self.empty_us = self.median_us(self.record(lambda: torch.cuda._sleep(0)))

    def record(self, call):
        torch = self.torch
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        return graph

    def replay_us(self, graph, prepare):
        """One replay; repeated, with a longer flush, if the host may have enqueued it late."""
        torch = self.torch
        for attempt in range(1, MAX_ATTEMPTS + 1):
            prepare()
            for _ in range(attempt):
                torch.sum(self.flush, dim=0, out=self.sum)
            self.begin.record()
            graph.replay()
            self.end.record()
            late = self.begin.query()
            torch.cuda.synchronize()
            if not late:
                break
        self.late += late
        return self.begin.elapsed_time(self.end) * 1000

    def median_us(self, graph, prepare=lambda: None):
        for _ in range(5):
            self.replay_us(graph, prepare)
        return statistics.median(self.replay_us(graph, prepare) for _ in range(self.repeats))


def measure(torch, clock, layer, m, weights):
    """Microseconds of one layer at m tokens, the empty replay subtracted."""
    rows, columns, slice_rows = LAYERS[layer]
    w = weights[: slice_rows if m <= SLICE_MAX_M else rows]
    sources = [torch.randn(m, columns, device="cuda").bfloat16() for _ in range(INPUTS)]
    x = sources[0].clone()
    linear = torch.nn.functional.linear
    call = (lambda: linear(x.float(), w)) if layer == "router" else (lambda: linear(x, w))
    turn = iter(range(sys.maxsize))
    graph = clock.record(call)
    return clock.median_us(graph, lambda: x.copy_(sources[next(turn) % INPUTS])) - clock.empty_us


def main():
    parser = argparse.ArgumentParser(
        description="Time PyTorch's F.linear on the judge's shapes, in the judge's manner.")
    parser.add_argument("--judge", metavar="FILE.json", help="compare with the judge's report")
    parser.add_argument("--repeats", type=int, default=101, help="replays of a shape (101)")
    parser.add_argument("--blas", choices=("default", "cublas", "cublaslt"), default="default",
                        help="the BLAS library that PyTorch is told to prefer (default: unchanged)")
    options = parser.parse_args()
    if options.repeats < 1:
        fail(f"--repeats {options.repeats}: at least 1")
    judge = read_judge(options.judge) if options.judge else {}
    try:
        import torch
    except ImportError as error:
        fail(f"PyTorch is needed: {error}")
    if not torch.cuda.is_available():
        fail("PyTorch sees no CUDA device")
    if options.blas != "default":
        torch.backends.cuda.preferred_blas_library(options.blas)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.manual_seed(1)

    with torch.no_grad():
        clock = ReplayClock(torch, options.repeats)
        print(f"PyTorch {torch.__version__}, CUDA {torch.version.cuda}, "
              f"{torch.cuda.get_device_name(0)}, "
              f"BLAS {torch.backends.cuda.preferred_blas_library()}")
        print(f"flush {clock.flush_bytes} bytes, empty replay {clock.empty_us:.2f} us, "
              f"median of {options.repeats} replays")
        print(f"{'layer':<10}{'m':>5}{'torch us':>10}"
              + (f"{'sglang us':>11}{'sglang/torch':>14}" if judge else ""))
        ratios = []
        for layer, (rows, columns, _) in LAYERS.items():
            dtype = torch.float32 if layer == "router" else torch.bfloat16
            weights = (torch.randn(rows, columns, device="cuda") * 0.02).to(dtype)
            for m in TOKENS:
                torch_us = measure(torch, clock, layer, m, weights)
                line = f"{layer:<10}{m:>5}{torch_us:>10.2f}"
                if (layer, m) in judge:
                    ratios.append(judge[layer, m] / torch_us)
                    line += f"{judge[layer, m]:>11.2f}{ratios[-1]:>14.3f}"
                print(line, flush=True)
    if clock.late:
        print(f"{clock.late} replays were enqueued late: the host is too slow or too busy")
    if judge and not ratios:
        fail(f"{options.judge}: has none of the shapes")
    if ratios:
        print(f"sglang/torch: median {statistics.median(ratios):.3f}, "
              f"lowest {min(ratios):.3f}, highest {max(ratios):.3f}, {len(ratios)} shapes")


if __name__ == "__main__":
    main()

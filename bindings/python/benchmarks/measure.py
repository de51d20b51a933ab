#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times PackedLinear against torch's F.linear on a Hopper GPU, for 1 to 8192 tokens.

    measure.py [--layers NAME=N,K ...] [--m M ...] [--rounds R] [--json FILE]

Every figure is of a CUDA graph that runs through copies of a layer, with weights of their own, that
are together larger than the L2 cache many times over; time of the graph over their number. The
variants take turns, and the figure is the median of the rounds. Columns, in microseconds:

    linear    F.linear on dense weights
    fused     PackedLinear on the kernels of SlimGEMM alone (dense_from = 0)
    dense     PackedLinear that decodes into scratch memory and calls F.linear (dense_from = 1)
    auto      PackedLinear as it is by default
    exact     PackedLinear with exact=True

After that: time a call takes in eager mode, one token; and the time that packing takes.
"""

import argparse
import json
import statistics
import time

import torch

from slimgemm.torch import PackedLinear

LAYERS = {"qkv": (6144, 4096), "o": (4096, 4096), "gate_up": (24576, 4096), "down": (4096, 12288)}
TOKENS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192]
WEIGHT_BYTES = 400 << 20  # of the copies of a layer


def graph_of(layers, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        layers[0](x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for layer in layers:
            layer(x)
    return graph


def time_of(graph, count):
    """Microseconds a layer, of one replay."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1000 * start.elapsed_time(end) / count


class Variant:
    """The copies of one layer, called in one of the ways."""

    def __init__(self, name, dense, packed):
        self.layers = dense if name == "linear" else packed
        self.name = name

    def set(self):
        for layer in self.layers:
            if self.name != "linear":
                layer.exact = self.name == "exact"
                layer.dense_from = {"fused": 0, "dense": 1}.get(self.name, default_dense_from)


default_dense_from = PackedLinear(1, 1).dense_from


def measure(n, k, tokens, rounds):
    count = max(4, WEIGHT_BYTES // (2 * n * k))
    dense = [torch.nn.Linear(k, n, bias=False, dtype=torch.bfloat16, device="cuda")
             for _ in range(count)]
    for layer in dense:
        torch.nn.init.normal_(layer.weight, std=0.02)
    torch.cuda.synchronize()
    start = time.perf_counter()
    packed = [PackedLinear.from_linear(layer) for layer in dense]
    torch.cuda.synchronize()
    pack_seconds = time.perf_counter() - start
    variants = [Variant(name, dense, packed)
                for name in ("linear", "fused", "dense", "auto", "exact")]
    rows = []
    for m in tokens:
        x = torch.randn(m, k, device="cuda").to(torch.bfloat16)
        graphs = []
        for variant in variants:
            variant.set()
            graphs.append(graph_of(variant.layers, x))
        times = [[] for _ in variants]
        for i in range(rounds + 2):
            for graph, into in zip(graphs, times):
                taken = time_of(graph, count)
                if i >= 2:
                    into.append(taken)
        row = {variant.name: statistics.median(t) for variant, t in zip(variants, times)}
        rows.append({"m": m, **row})
        del graphs
        torch.cuda.empty_cache()
    return {"n": n, "k": k, "copies": count, "rows": rows,
            "pack_gb_per_second": count * n * k * 2 / pack_seconds / 1e9,
            "bits_per_weight": 8 * packed[0].nbytes / (n * k)}


def eager(n=4096, k=4096, calls=2000):
    """Microseconds of the host a call, one token: the queue is kept short."""
    dense = torch.nn.Linear(k, n, bias=False, dtype=torch.bfloat16, device="cuda")
    packed = PackedLinear.from_linear(dense)
    x = torch.randn(1, k, device="cuda").to(torch.bfloat16)
    result = {}
    with torch.inference_mode():
        for name, layer in (("linear", dense), ("packed", packed)) * 2:
            taken = 0.0
            for i in range(calls):
                start = time.perf_counter()
                layer(x)
                taken += time.perf_counter() - start
                if i % 50 == 49:
                    torch.cuda.synchronize()
            result[name] = 1e6 * taken / calls
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", nargs="*", help="NAME=N,K")
    parser.add_argument("--m", nargs="*", type=int, default=TOKENS)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json")
    args = parser.parse_args()
    layers = LAYERS
    if args.layers:
        layers = {name: tuple(map(int, sizes.split(",")))
                  for name, sizes in (layer.split("=") for layer in args.layers)}
    report = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "layers": {}}
    print(f"{report['device']}, torch {torch.__version__}; microseconds; auto: dense from "
          f"{default_dense_from} tokens")
    print("layer        n     k     m    linear     fused     dense      auto     exact  "
          "linear/auto")
    with torch.inference_mode():
        for name, (n, k) in layers.items():
            layer = measure(n, k, args.m, args.rounds)
            report["layers"][name] = layer
            for row in layer["rows"]:
                times = "".join(f"{row[c]:10.2f}" for c in ("linear", "fused", "dense", "auto",
                                                            "exact"))
                print(f"{name:8s} {n:5d} {k:5d} {row['m']:5d}{times}"
                      f"{row['linear'] / row['auto']:13.3f}", flush=True)
            print(f"{name:8s} packed at {layer['pack_gb_per_second']:.1f} GB/s of dense weights, "
                  f"{layer['bits_per_weight']:.2f} bits a weight", flush=True)
            torch.cuda.empty_cache()
    report["eager_host_us"] = eager()
    print("host, one call in eager mode: " +
          ", ".join(f"{key} {value:.1f} us" for key, value in report["eager_host_us"].items()))
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump(report, file, indent=1)


if __name__ == "__main__":
    main()

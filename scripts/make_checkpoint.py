#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes checkpoints to try packing on. Needs numpy.

    make_checkpoint.py synthetic OUT [--layers L] [--hidden H] [--shards S] [--seed N]
        A model directory: sharded BF16 safetensors, an index, config.json and a tokenizer file.
        The weights have the exponent statistics that are published of LLM weights: about 2.6 bits
        of entropy (DFloat11, arXiv 2504.11651), a dozen exponents for 99.9 % of them (ZipNN, arXiv
        2411.05239). Two layers differ: in one a third of the weights lie outside any 16 exponents,
        one holds Inf and NaN. The last layer has stacked experts.
    make_checkpoint.py bf16 IN.safetensors OUT.safetensors
        The same tensors with FP32 ones rounded to BF16 (nearest, ties to even).
    make_checkpoint.py judge OUT.safetensors [--seed N]
        The five matrices that `slimgemm judge --weights` takes, with the same statistics.
"""

import argparse
import json
import pathlib
import struct

import numpy as np

POOL_WEIGHTS = 1 << 24


def round_to_bf16(values):
    bits = values.astype(np.float32).view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


class Weights:
    """Draws BF16 weights: pieces of a pool at random places."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        # Normal weights whose scale differs from channel to channel.
        scale = 0.02 * np.exp(self.random.normal(0, 0.3, POOL_WEIGHTS // 256)).repeat(256)
        self.pool = round_to_bf16(self.random.standard_normal(POOL_WEIGHTS, np.float32) * scale)

    def draw(self, count):
        piece = 1 << 20
        out = np.empty(count, np.uint16)
        for begin in range(0, count, piece):
            size = min(piece, count - begin)
            start = int(self.random.integers(0, POOL_WEIGHTS - size + 1))
            out[begin:begin + size] = self.pool[start:start + size]
        return out

    def wild(self, count):
        """A third of the weights have any finite exponent."""
        out = self.draw(count)
        chosen = self.random.random(count) < 1 / 2.6  # some of them fall into the window
        bits = self.random.integers(0x0080, 0x7F80, count).astype(np.uint16)
        signs = self.random.integers(0, 2, count).astype(np.uint16) << 15
        out[chosen] = (bits | signs)[chosen]
        return out

    def nonfinite(self, count):
        out = self.draw(count)
        out[:: max(1, count // 50)] = 0x7F80
        out[7:: max(1, count // 40)] = 0xFFC1
        return out


def write_file(path, tensors, metadata):
    """tensors: a list of (name, dtype, shape, function that gives the array)."""
    sizes = {"BF16": 2, "F16": 2, "F32": 4, "I64": 8, "U8": 1}
    header = {"__metadata__": metadata}
    position = 0
    for name, dtype, shape, _ in tensors:
        size = int(np.prod(shape, dtype=np.int64)) * sizes[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [position, position + size]}
        position += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, _, make in tensors:
            make().tofile(file)
    return position


def layer_tensors(weights, layer, layers, hidden):
    """The tensors of one layer of a Llama-like model; the last one has stacked experts."""
    inner = hidden * 7 // 2
    prefix = f"model.layers.{layer}."
    shapes = {"self_attn.q_proj.weight": (hidden, hidden),
              "self_attn.k_proj.weight": (hidden // 4, hidden),
              "self_attn.v_proj.weight": (hidden // 4, hidden),
              "self_attn.o_proj.weight": (hidden, hidden)}
    if layer == layers - 1:
        shapes["mlp.gate.weight"] = (8, hidden)
        shapes["mlp.experts.gate_up_proj"] = (8, inner // 4, hidden)
        shapes["mlp.experts.down_proj"] = (8, hidden, inner // 8)
    else:
        shapes["mlp.gate_proj.weight"] = (inner, hidden)
        shapes["mlp.up_proj.weight"] = (inner, hidden)
        shapes["mlp.down_proj.weight"] = (hidden, inner)
    for name, shape in shapes.items():
        draw = weights.draw
        if layer == 1 and name == "mlp.up_proj.weight":
            draw = weights.wild
        if layer == 0 and name == "self_attn.k_proj.weight":
            draw = weights.nonfinite
        count = int(np.prod(shape))
        yield prefix + name, "BF16", shape, (lambda draw=draw, count=count: draw(count))
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        yield (prefix + name, "BF16", (hidden,),
               lambda: round_to_bf16(np.ones(hidden, np.float32)))


def synthetic(arguments):
    out = pathlib.Path(arguments.out)
    out.mkdir()
    weights = Weights(arguments.seed)
    hidden, layers, shards = arguments.hidden, arguments.layers, arguments.shards
    vocabulary = hidden * 8
    tensors = [("model.embed_tokens.weight", "BF16", (vocabulary, hidden),
                lambda: weights.draw(vocabulary * hidden))]
    for layer in range(layers):
        tensors += layer_tensors(weights, layer, layers, hidden)
    tensors.append(("model.rotary.inv_freq", "F32", (32,),
                    lambda: np.geomspace(1, 1e-4, 32).astype(np.float32)))
    tensors.append(("lm_head.weight", "BF16", (vocabulary, hidden),
                    lambda: weights.draw(vocabulary * hidden)))
    total = 0
    weight_map = {}
    for shard in range(shards):
        part = tensors[len(tensors) * shard // shards:len(tensors) * (shard + 1) // shards]
        name = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        total += write_file(out / name, part, {"format": "pt"})
        weight_map.update({tensor[0]: name for tensor in part})
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    config = {"architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
              "num_hidden_layers": layers, "num_attention_heads": 32, "num_key_value_heads": 8,
              "vocab_size": vocabulary, "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (out / "tokenizer.json").write_text('{"version": "1.0"}\n')


def convert(arguments):
    data = pathlib.Path(arguments.source).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    tensors = []
    for name, entry in sorted(header.items(), key=lambda item: item[1].get("data_offsets", [0])):
        if name == "__metadata__":
            continue
        begin, end = (8 + size + offset for offset in entry["data_offsets"])
        raw = np.frombuffer(data, np.uint8, end - begin, begin)
        if entry["dtype"] == "F32":
            tensors.append((name, "BF16", entry["shape"],
                            lambda raw=raw: round_to_bf16(raw.view(np.float32))))
        else:
            tensors.append((name, entry["dtype"], entry["shape"], lambda raw=raw: raw))
    write_file(arguments.out, tensors, header.get("__metadata__", {}))


def judge(arguments):
    weights = Weights(arguments.seed)
    shapes = {"qkv_gate": (2304, 8192), "o": (8192, 1024), "pooler": (4096, 8192),
              "unpooler": (8192, 4096), "router": (256, 8192)}
    write_file(arguments.out,
               [(name, "BF16", shape, lambda shape=shape: weights.draw(int(np.prod(shape))))
                for name, shape in shapes.items()], {})


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("synthetic")
    command.add_argument("out")
    command.add_argument("--layers", type=int, default=9)
    command.add_argument("--hidden", type=int, default=4096)
    command.add_argument("--shards", type=int, default=4)
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=synthetic)
    command = commands.add_parser("bf16")
    command.add_argument("source")
    command.add_argument("out")
    command.set_defaults(run=convert)
    command = commands.add_parser("judge")
    command.add_argument("out")
    command.add_argument("--seed", type=int, default=1)
    command.set_defaults(run=judge)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()

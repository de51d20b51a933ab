#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes shapes/served.json and the table of docs/served-shapes.md from the models' configurations.

served_shapes.py [--check] <root of the repository>: writes both, or with --check says whether they
are what it would write. docs/served-shapes.md explains the rules below.
"""

import json
import pathlib
import sys

# From each model's published config.json, under the names used there.
LLAMA_LIKE = {
    "Llama 3 8B": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                       head_dim=128, intermediate_size=14336),
    "Mistral 7B v0.3": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                            head_dim=128, intermediate_size=14336),
    "Qwen3 8B": dict(hidden_size=4096, num_attention_heads=32, num_key_value_heads=8,
                     head_dim=128, intermediate_size=12288),
    "Qwen3 32B": dict(hidden_size=5120, num_attention_heads=64, num_key_value_heads=8,
                      head_dim=128, intermediate_size=25600),
    "Llama 3 70B": dict(hidden_size=8192, num_attention_heads=64, num_key_value_heads=8,
                        head_dim=128, intermediate_size=28672),
}
DEEPSEEK_V3 = dict(hidden_size=7168, num_attention_heads=128, q_lora_rank=1536, kv_lora_rank=512,
                   qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)

# Tensor-parallel sizes at which BF16 weights of this size are served on GPUs of 80 to 141 GB.
PARALLEL = {
    "Llama 3 8B": (1, 2), "Mistral 7B v0.3": (1, 2), "Qwen3 8B": (1, 2), "Qwen3 32B": (1, 2, 4),
    "Llama 3 70B": (2, 4, 8), "DeepSeek-V3": (1, 8),
}
SHORT = {
    "Llama 3 8B": "llama3-8b", "Mistral 7B v0.3": "mistral-7b", "Qwen3 8B": "qwen3-8b",
    "Qwen3 32B": "qwen3-32b", "Llama 3 70B": "llama3-70b", "DeepSeek-V3": "deepseek-v3",
}

REPLICATED = {"q_a", "kv_a", "qkv_a"}  # whole on every GPU
TOKENS = [1, 4, 8, 16, 32, 64, 128, 256]
BYTES_MAX = 500_000_000  # of a layer in BF16: larger ones are left out

TABLE_BEGIN = "<!-- made by scripts/served_shapes.py -->\n"
TABLE_END = "<!-- end -->\n"


def llama_like(config, tp):
    """(part, role, N, K): qkv and gate_up are fused and split N, o and down split K."""
    hidden = config["hidden_size"]
    head = config["head_dim"]
    q = config["num_attention_heads"] * head
    kv = config["num_key_value_heads"] * head
    width = config["intermediate_size"]
    yield "qkv", "query, key and value projections, fused", (q + 2 * kv) // tp, hidden
    yield "o", "attention output projection", hidden, q // tp
    yield "gate_up", "gate and up projections of the MLP, fused", 2 * width // tp, hidden
    yield "down", "down projection of the MLP", hidden, width // tp


def deepseek_v3(config, tp):
    """The projections into the latent space are on every GPU whole; those out of it split N."""
    hidden = config["hidden_size"]
    heads = config["num_attention_heads"]
    q_rank = config["q_lora_rank"]
    kv_rank = config["kv_lora_rank"]
    nope = config["qk_nope_head_dim"]
    rope = config["qk_rope_head_dim"]
    value = config["v_head_dim"]
    if tp == 1:
        yield "q_a", "query down projection", q_rank, hidden
        yield "kv_a", "key and value down projection, with the rotary key", kv_rank + rope, hidden
        yield "qkv_a", "q_a and kv_a, fused", q_rank + kv_rank + rope, hidden
    yield "q_b", "query up projection", heads * (nope + rope) // tp, q_rank
    yield "kv_b", "key and value up projection", heads * (nope + value) // tp, kv_rank
    yield "o", "attention output projection", hidden, heads * value // tp


def layers():
    """The layers, equal sizes merged into the first: its name and role, and all models."""
    merged = {}
    uses = [(model, tp, llama_like(config, tp)) for model, config in LLAMA_LIKE.items()
            for tp in PARALLEL[model]]
    uses += [("DeepSeek-V3", tp, deepseek_v3(DEEPSEEK_V3, tp)) for tp in PARALLEL["DeepSeek-V3"]]
    for model, tp, parts in uses:
        for part, role, n, k in parts:
            if n * k * 2 > BYTES_MAX:
                continue
            whole = part in REPLICATED
            name = f"{SHORT[model]}.{part}" + ("" if whole else f".tp{tp}")
            layer = merged.setdefault((n, k), {"name": name, "n": n, "k": k, "dtype": "bf16",
                                               "role": role, "models": []})
            own_part = "" if role == layer["role"] else f" {part}"
            layer["models"].append(f"{model}{own_part} " + ("any TP" if whole else f"TP {tp}"))
    return list(merged.values())


def shape_file():
    lines = [json.dumps(layer) for layer in layers()]
    return ('{\n  "schema": "slimgemm-shapes-1",\n'
            '  "description": "Linear layers of models that people serve; made by '
            'scripts/served_shapes.py, explained in docs/served-shapes.md",\n'
            f'  "tokens": {json.dumps(TOKENS)},\n  "layers": [\n    '
            + ",\n    ".join(lines) + "\n  ]\n}\n")


def table():
    rows = ["| name | N | K | MB in BF16 | where |", "|---|---:|---:|---:|---|"]
    for layer in layers():
        size = layer["n"] * layer["k"] * 2 / 1e6
        rows.append(f"| `{layer['name']}` | {layer['n']} | {layer['k']} | {size:.1f} | "
                    f"{', '.join(layer['models'])} |")
    return "\n".join(rows) + "\n"


def page_with_table(page):
    begin = page.index(TABLE_BEGIN) + len(TABLE_BEGIN)
    end = page.index(TABLE_END)
    return page[:begin] + table() + page[end:]


def main(arguments):
    check = "--check" in arguments
    root = pathlib.Path([a for a in arguments if a != "--check"][0])
    page = root / "docs" / "served-shapes.md"
    wanted = {root / "shapes" / "served.json": shape_file(),
              page: page_with_table(page.read_text())}
    stale = [path for path, text in wanted.items()
             if not path.exists() or path.read_text() != text]
    for path in stale:
        print(f"{path} is not what scripts/served_shapes.py writes" if check else f"wrote {path}")
        if not check:
            path.write_text(wanted[path])
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

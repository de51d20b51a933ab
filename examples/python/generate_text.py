#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates text with a transformers model whose linear layers are packed.

    generate_text.py MODEL "Once upon a time"     # a BF16 model directory with a tokenizer
    generate_text.py                              # a tiny model with random weights: tokens alone
"""

import argparse

import torch
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from slimgemm.torch import PackedLinear, pack_model


def linear_bytes(model):
    """Bytes of the weights of all linear layers."""
    return sum(layer.nbytes if isinstance(layer, PackedLinear) else layer.weight.nbytes
               for layer in model.modules()
               if isinstance(layer, (PackedLinear, torch.nn.Linear)))


@torch.inference_mode()
def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="directory of a BF16 model")
    parser.add_argument("prompt", nargs="?", default="Once upon a time")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    arguments = parser.parse_args()

    tokenizer = None
    if arguments.model is None:
        model, ids = make_tiny_model(), torch.arange(5, 15)[None]
    else:
        model = AutoModelForCausalLM.from_pretrained(arguments.model, dtype=torch.bfloat16)
        tokenizer = AutoTokenizer.from_pretrained(arguments.model)
        ids = tokenizer(arguments.prompt, return_tensors="pt").input_ids
    model = model.to(arguments.device).eval()
    before = linear_bytes(model)

    pack_model(model)  # the three lines that matter are this one and its import

    print(f"linear layers: {before / 1e6:.2f} MB -> {linear_bytes(model) / 1e6:.2f} MB")
    tokens = model.generate(ids.to(arguments.device), max_new_tokens=20, do_sample=False)[0]
    print(tokenizer.decode(tokens) if tokenizer else tokens.tolist())


if __name__ == "__main__":
    main()

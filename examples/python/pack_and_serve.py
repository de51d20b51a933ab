#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs a model directory once, and serves the packed one.

    pack_and_serve.py MODEL PACKED                 # packs, then answers one request
    pack_and_serve.py MODEL PACKED --engine vllm
    pack_and_serve.py                              # a tiny model in a temporary directory

Packs with the `slimgemm` command (--command); without it transformers saves the packed directory,
and `seal` adds what `slimgemm verify` checks.
"""

import argparse
import shutil
import subprocess
import tempfile

import torch
from tiny_model import make_tiny_model
from transformers import AutoModelForCausalLM

import slimgemm.transformers  # from_pretrained now reads packed directories
from slimgemm.seal import seal

PROMPT = list(range(5, 15))


def pack(command, plain, packed):
    if command:
        subprocess.run([command, "pack", plain, packed], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([command, "verify", packed, "--against", plain], check=True)
        return
    model = AutoModelForCausalLM.from_pretrained(plain)
    slimgemm.transformers.pack(model, progress=False).save_pretrained(packed)
    seal(packed)


def serve_with_transformers(packed):
    model = AutoModelForCausalLM.from_pretrained(packed)
    ids = torch.tensor([PROMPT])
    with torch.inference_mode():
        return model.generate(ids, max_new_tokens=10, do_sample=False)[0, len(PROMPT):].tolist()


def serve_with_vllm(packed):
    from vllm import LLM, SamplingParams

    engine = LLM(packed, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=256)
    greedy = SamplingParams(temperature=0, max_tokens=10, detokenize=False)
    return list(engine.generate({"prompt_token_ids": PROMPT}, greedy)[0].outputs[0].token_ids)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("packed", nargs="?")
    parser.add_argument("--engine", choices=["transformers", "vllm"], default="transformers")
    parser.add_argument("--command", default=shutil.which("slimgemm"))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        plain = arguments.model or folder + "/plain"
        if arguments.model is None:
            make_tiny_model().save_pretrained(plain)
        packed = arguments.packed or folder + "/packed"
        pack(arguments.command, plain, packed)
        serve = serve_with_vllm if arguments.engine == "vllm" else serve_with_transformers
        print("generated:", serve(packed))


if __name__ == "__main__":
    main()

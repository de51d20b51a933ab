# SPDX-License-Identifier: Apache-2.0
"""Small models of real architectures with random weights, as directories, plain and packed."""

import os
import pathlib
import shutil
import subprocess

import pytest
import torch

ROOT = pathlib.Path(__file__).resolve().parents[3]

SIZES = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64, "intermediate_size": 512, "vocab_size": 1000,
         "max_position_embeddings": 256, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

# name: (configuration's class, what differs from SIZES)
KINDS = {
    "qwen3": ("Qwen3Config", {}),
    "llama-tied": ("LlamaConfig", {"tie_word_embeddings": True}),
    "llama-bias": ("LlamaConfig", {"attention_bias": True, "mlp_bias": True}),
    "qwen3-moe": ("Qwen3MoeConfig", {"num_experts": 32, "num_experts_per_tok": 2,
                                     "moe_intermediate_size": 128}),
    "mixtral": ("MixtralConfig", {"num_local_experts": 4, "num_experts_per_tok": 2}),
}


def make_model(kind, seed=0):
    """A model with normal weights; their size makes the tokens of a greedy search distinct."""
    transformers = pytest.importorskip("transformers")
    name, changes = KINDS[kind]
    config = getattr(transformers, name)(**{**SIZES, **changes})
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.copy_(torch.randn(parameter.shape) * 0.08)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            parameter.data.copy_(torch.randn(parameter.shape) * 0.02)
    return model.eval()


def save_plain(kind, directory, seed=0):
    make_model(kind, seed).save_pretrained(directory)
    return str(directory)


def command():
    """The `slimgemm` command: SLIMGEMM_COMMAND, on PATH or in a build folder; or None."""
    built = sorted(ROOT.glob("build/*/tools/slimgemm/slimgemm"), key=os.path.getmtime)
    return (os.environ.get("SLIMGEMM_COMMAND") or shutil.which("slimgemm")
            or (str(built[-1]) if built else None))


def run_command(*arguments):
    """Runs the command and returns what subprocess.run does; skips the test if there is none."""
    if command() is None:
        pytest.skip("no slimgemm command: build it, or set SLIMGEMM_COMMAND")
    return subprocess.run([command(), *map(str, arguments)], capture_output=True, text=True,
                          check=False)


def require_checksums():
    """Skips the test in a build without checksums, which cannot seal."""
    from slimgemm import _core
    try:
        _core.xxh3(b"")
    except NotImplementedError as error:
        pytest.skip(str(error))


def seal(directory):
    from slimgemm.seal import seal as seal_directory
    require_checksums()
    seal_directory(directory)


def pack_directory(plain, packed, *options):
    """Packs a directory with the command, or, where there is none, with transformers."""
    if command() is not None:
        done = run_command("pack", plain, packed, *options)
        assert done.returncode == 0, done.stderr
        return str(packed)
    import slimgemm.transformers
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(plain)
    slimgemm.transformers.pack(model, progress=False).save_pretrained(packed)
    return str(packed)

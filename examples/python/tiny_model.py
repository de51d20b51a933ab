# SPDX-License-Identifier: Apache-2.0
"""A Qwen3 model of 1.7 M random parameters: examples run in seconds and download nothing."""

import torch
from transformers import AutoModelForCausalLM, Qwen3Config


def make_tiny_model(seed=0):
    """The model in BF16; its weights are normal with a standard deviation of 0.02."""
    config = Qwen3Config(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, vocab_size=1024, max_position_embeddings=512,
        tie_word_embeddings=False, bos_token_id=1, eos_token_id=2, pad_token_id=0)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)  # FP32, then rounded: draws in BF16 are coarse
    return model.to(torch.bfloat16).eval()

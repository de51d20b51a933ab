#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a LoRA adapter on a packed model, merges it, and takes it out again, bit for bit."""

import torch
from peft import LoraConfig, get_peft_model
from tiny_model import make_tiny_model

import slimgemm.peft
from slimgemm.torch import pack_model


def main():
    model = pack_model(make_tiny_model(), progress=False)
    before = model.model.layers[0].self_attn.q_proj.packed().tobytes()
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model = get_peft_model(model, slimgemm.peft.prepare(config))

    ids = torch.arange(5, 37)[None]
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    for step in range(10):
        loss = model(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 3 == 0:
            print(f"step {step}: loss {loss.item():.3f}")

    model.merge_adapter()  # packs weights + adapter
    merged = model.base_model.model.model.layers[0].self_attn.q_proj.get_base_layer()
    assert merged.packed().tobytes() != before
    model.unmerge_adapter()  # puts the packed weights back
    assert merged.packed().tobytes() == before
    print("merged and unmerged: every bit of the base weights is back")


if __name__ == "__main__":
    main()

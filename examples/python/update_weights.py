#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loop of reinforcement learning: a packed model generates, a plain one is trained, and its
weights go into the packed one in place.

On a GPU the packed layers keep their memory, so captured CUDA graphs and compiled code go on with
the new weights.
"""

import copy

import torch
from tiny_model import make_tiny_model

from slimgemm.torch import PackedLinear, pack_model


def update(packed, trained):
    """Copies all weights of a plain model into a packed one of the same architecture."""
    for name, module in packed.named_modules():
        source = trained.get_submodule(name)
        if isinstance(module, PackedLinear):
            module.update_(source.weight)
        else:
            for key, parameter in module.named_parameters(recurse=False):
                parameter.data.copy_(getattr(source, key))


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    trained = make_tiny_model().to(device)
    served = pack_model(copy.deepcopy(trained), progress=False)
    prompt = torch.arange(5, 15, device=device)[None]
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)
    for step in range(3):
        with torch.no_grad():
            answer = served.generate(prompt, max_new_tokens=8, do_sample=True)
        reward = (answer[0, prompt.shape[1]:] % 2 == 0).float().mean()  # even tokens are good
        loss = reward * trained(answer, labels=answer).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        update(served, trained)
        same = all(torch.equal(module.weight, trained.get_submodule(name).weight)
                   for name, module in served.named_modules() if isinstance(module, PackedLinear))
        assert same
        print(f"step {step}: reward {reward.item():.2f}, the packed weights are the trained ones")


if __name__ == "__main__":
    main()

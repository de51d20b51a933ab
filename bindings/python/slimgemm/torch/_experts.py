# SPDX-License-Identifier: Apache-2.0
"""PackedExperts: the experts of a mixture as packed layers, called one expert at a time."""

import copy

import torch
from torch import nn

from ._layer import PackedLinear

# The parts of an expert: gate, up and down, as checkpoints name them.
NAMES = ("gate_proj", "up_proj", "down_proj")


def is_stacked_experts(module):
    """Whether a module is what transformers makes of a mixture's experts, in the form that
    PackedExperts reads: BF16 stacks `gate_up_proj` [e, 2 i, h] and `down_proj` [e, h, i], no biases
    and nothing else that is learned."""
    parameters = dict(module.named_parameters())
    return (set(parameters) == {"gate_up_proj", "down_proj"}
            and all(p.dim() == 3 and p.dtype is torch.bfloat16 for p in parameters.values())
            and not list(module.buffers())
            and getattr(module, "has_gate", False) and hasattr(module, "_apply_gate")
            and not getattr(module, "has_bias", True)
            and not getattr(module, "is_transposed", True)
            and getattr(module, "is_concatenated", True)
            and not getattr(module, "has_post_expert_norm", False))


class PackedExperts(nn.ModuleList):
    """The experts of a mixture: one module per expert, of three PackedLinear, in the place of a
    module for which `is_stacked_experts` holds.

    A call runs the experts that tokens were sent to, one after the other, and those alone: that
    saves the memory of packed weights, and the reading of the experts that nobody asked for. It
    waits for the GPU once (which experts these are), and launches kernels per expert; so it cannot
    be captured by a CUDA graph, and costs time where many experts are hit. `exact=True` makes the
    products of transformers' `experts_implementation` "eager", bit for bit.
    """

    def __init__(self, plain, names=NAMES):
        """Without experts yet: `append_expert` adds them. plain: the module in whose place it is;
        what it does between two products is used, its weights are not. names: of the parts."""
        super().__init__()
        shell = copy.copy(plain)
        shell._parameters = dict.fromkeys(plain._parameters)
        self._plain = (shell,)  # in a tuple: it is no module of this one
        self.names = tuple(names)
        experts, rows, self.hidden_dim = plain.gate_up_proj.shape
        self.num_experts, self.intermediate_dim = experts, rows // 2

    @classmethod
    def from_stacks(cls, plain, names=NAMES, **options):
        """Packs the experts of a module, which stays as it is. options: of PackedLinear."""
        made = cls(plain, names)
        for gate_up, down in zip(plain.gate_up_proj, plain.down_proj):
            parts = (*gate_up.chunk(2), down)
            made.append_expert([PackedLinear.from_weight(part, **options) for part in parts])
        return made

    def append_expert(self, layers):
        """layers: gate, up and down, with the shapes that the stacks have. Else ValueError."""
        size, hidden = self.intermediate_dim, self.hidden_dim
        for name, layer, shape in zip(self.names, layers,
                                      ((size, hidden), (size, hidden), (hidden, size))):
            if (layer.out_features, layer.in_features) != shape:
                raise ValueError(f"{name} of expert {len(self)} is {layer.out_features} x "
                                 f"{layer.in_features}: it must be {shape[0]} x {shape[1]}")
        self.append(nn.ModuleDict(zip(self.names, layers)))

    def forward(self, hidden_states, top_k_index, top_k_weights):
        """hidden_states: [tokens, h] of bfloat16. top_k_index, top_k_weights: [tokens, k], the
        experts of each token and their weights. Returns [tokens, h]."""
        out = torch.zeros_like(hidden_states)
        for index in top_k_index.unique().tolist():
            place, token = torch.where((top_k_index == index).T)
            found = self._run(self[index], hidden_states[token])
            found = found * top_k_weights[token, place, None]
            out.index_add_(0, token, found.to(out.dtype))
        return out

    def _run(self, expert, x):
        gate, up, down = (expert[name] for name in self.names)
        if gate.exact:  # the very product of the plain module
            both = nn.functional.linear(x, torch.cat([gate.weight, up.weight]))
        else:
            both = torch.cat([gate(x), up(x)], dim=-1)
        return down(self._plain[0]._apply_gate(both))

    def plain(self):
        """The module with stacks of plain weights, bit for bit."""
        gate, up, down = ([expert[name].weight for expert in self] for name in self.names)
        module = copy.copy(self._plain[0])
        gate_up = torch.stack([torch.cat(pair) for pair in zip(gate, up)])
        module._parameters = {"gate_up_proj": nn.Parameter(gate_up, requires_grad=False),
                              "down_proj": nn.Parameter(torch.stack(down), requires_grad=False)}
        return module

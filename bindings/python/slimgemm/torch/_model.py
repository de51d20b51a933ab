# SPDX-License-Identifier: Apache-2.0
"""pack_model: the linear layers of a model, and the experts of mixtures, replaced one by one."""

import fnmatch
import sys

import torch
from torch import nn

from ._experts import NAMES, PackedExperts, is_stacked_experts
from ._layer import PackedLinear


def pack_model(model, include=None, exclude=None, fraction=1.0, exact=False, progress=True, *,
               programmatic_launch=False, batch_invariant=False, experts=False):
    """Replaces the BF16 nn.Linear layers of a model by PackedLinear, in place; returns the model.

    include: names of modules, as in model.named_modules(), with the wildcards of fnmatch
        ("model.layers.*.mlp.*"); only these are packed. A layer of a subclass of nn.Linear (which
        may have a forward of its own), one in float32, and one whose weight another module uses
        too (a tied lm_head) are packed only if their full name is listed here.
    exclude: names that are left alone, with the same wildcards.
    fraction: pack the largest layers until this share of the weights of all that could be packed
        is reached: 0.5 gives back half of the memory that 1.0 gives.
    exact: of PackedLinear: bit-identical results, slower.
    progress: a line on stderr; or a function that is called with (layers done, layers, name).
    programmatic_launch, batch_invariant: of PackedLinear.
    experts: also pack the experts of mixtures that transformers holds as stacks (Qwen3-MoE, Mixtral
        and others of their form), as PackedExperts: less memory, more time for many tokens. True,
        or the names of an expert's gate, up and down in a state_dict.

    Layers are packed on the device where they are, one after the other, and each dense weight is
    let go at once: memory never exceeds that of the model and one packed layer (while nothing else
    holds the dense weights).
    Raises ValueError if fraction is not within 0 to 1, a name in include fits no linear layer, or
    experts is set and the model has none of that form.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}: it must be within 0 to 1")
    options = {"exact": exact, "programmatic_launch": programmatic_launch,
               "batch_invariant": batch_invariant}
    names = _chosen(model, _names(include), _names(exclude) or [], fraction, experts)
    report = progress if callable(progress) else _print_progress if progress else None
    for done, same in enumerate(names, 1):
        parent, attribute = _parent(model, same[0])
        plain = getattr(parent, attribute)
        if isinstance(plain, nn.Linear):
            packed = PackedLinear.from_linear(plain, **options)
        else:
            packed = PackedExperts.from_stacks(plain, NAMES if experts is True else experts,
                                               **options)
        del plain
        packed.train(model.training)
        for name in same:
            setattr(*_parent(model, name), packed)
        if report:
            report(done, len(names), same[0])
    return model


def _names(names):
    return [names] if isinstance(names, str) else names


def _parent(model, name):
    parent, _, attribute = name.rpartition(".")
    return model.get_submodule(parent), attribute


def _matches(name, patterns):
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _users(model):
    """How many modules use a parameter, by its identity."""
    users = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            users[id(parameter)] = users.get(id(parameter), 0) + 1
    return users


def _weight_bytes(module):
    return sum(p.nbytes for p in module.parameters(recurse=False) if p.dim() > 1)


def _may_pack(name, module, include, users):
    """Whether a linear layer is packed, by what it is and how it was asked for."""
    if include is not None and name in include:
        return True
    plain = (not isinstance(module, nn.Linear) or type(module) is nn.Linear
             and module.weight.dtype is torch.bfloat16 and users[id(module.weight)] == 1)
    return plain and (include is None or _matches(name, include))


def _chosen(model, include, exclude, fraction, experts):
    """Lists of names: those of one list are one layer."""
    users = _users(model)
    layers = {}  # id of the module: (bytes of its weights, names)
    candidates = []
    mixtures = 0
    for name, module in model.named_modules(remove_duplicate=False):
        mixture = bool(experts) and is_stacked_experts(module)
        if not (isinstance(module, nn.Linear) or mixture) or not name:
            continue
        mixtures += mixture
        candidates.append(name)
        if not _matches(name, exclude) and _may_pack(name, module, include, users):
            entry = layers.setdefault(id(module), (_weight_bytes(module), []))
            entry[1].append(name)
    for pattern in include or []:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in candidates):
            raise ValueError(f"include has {pattern!r}: no linear layer of the model fits it")
    if experts and not mixtures:
        raise ValueError(f"experts={experts!r}: the model has no experts in stacks of BF16 "
                         "gate_up_proj and down_proj without biases, which are what can be packed")
    wanted = fraction * sum(size for size, _ in layers.values())
    chosen = []
    for size, names in sorted(layers.values(), key=lambda entry: -entry[0]):
        if wanted < size / 2:  # the nearer of two sums
            break
        wanted -= size
        chosen.append(names)
    return chosen


def _print_progress(done, total, name):
    end = "\n" if done == total else ""
    print(f"\rslimgemm: packed {done} of {total} layers", end=end, file=sys.stderr, flush=True)

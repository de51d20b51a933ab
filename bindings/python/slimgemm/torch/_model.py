# SPDX-License-Identifier: Apache-2.0
"""pack_model: the linear layers of a model, replaced one by one."""

import fnmatch
import sys

import torch
from torch import nn

from ._layer import PackedLinear


def pack_model(model, include=None, exclude=None, fraction=1.0, exact=False, progress=True, *,
               programmatic_launch=False, batch_invariant=False):
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

    Layers are packed on the device where they are, one after the other, and each dense weight is
    let go at once: memory never exceeds that of the model and one packed layer (while nothing else
    holds the dense weights).
    Raises ValueError if fraction is not within 0 to 1 or a name in include fits no linear layer.
    """
    if not 0 <= fraction <= 1:
        raise ValueError(f"fraction is {fraction}: it must be within 0 to 1")
    names = _chosen(model, _names(include), _names(exclude) or [], fraction)
    report = progress if callable(progress) else _print_progress if progress else None
    for done, same in enumerate(names, 1):
        parent, attribute = _parent(model, same[0])
        packed = PackedLinear.from_linear(getattr(parent, attribute), exact=exact,
                                          programmatic_launch=programmatic_launch,
                                          batch_invariant=batch_invariant)
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


def _may_pack(name, module, include, users):
    """Whether a linear layer is packed, by what it is and how it was asked for."""
    if include is not None and name in include:
        return True
    plain = type(module) is nn.Linear and module.weight.dtype is torch.bfloat16
    plain = plain and users[id(module.weight)] == 1
    return plain and (include is None or _matches(name, include))


def _chosen(model, include, exclude, fraction):
    """Lists of names: those of one list are one layer."""
    users = _users(model)
    layers = {}  # id of the module: (bytes of its weight, names)
    linears = []
    for name, module in model.named_modules(remove_duplicate=False):
        if not isinstance(module, nn.Linear) or not name:
            continue
        linears.append(name)
        if not _matches(name, exclude) and _may_pack(name, module, include, users):
            entry = layers.setdefault(id(module), (module.weight.nbytes, []))
            entry[1].append(name)
    for pattern in include or []:
        if not any(fnmatch.fnmatchcase(name, pattern) for name in linears):
            raise ValueError(f"include has {pattern!r}: no linear layer of the model fits it")
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

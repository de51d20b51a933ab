# SPDX-License-Identifier: Apache-2.0
"""The weights of one linear layer of a serving engine: loaded, packed, run, written anew."""

import torch
from torch.nn import functional as F

import slimgemm
import slimgemm.torch as slim
from slimgemm.integrations.collect import Collector, Source, Target

# What `slimgemm pack` adds to a tensor's name, and so the name of our parameter.
PACKED = "weight_packed"


def shrinks(n, k, dtype):
    """Whether an n x k matrix takes fewer bytes packed: padding to tiles can cost more than 12
    bits save. FP32 matrices do not shrink; they are packed to run in FP32."""
    if dtype == torch.float32:
        return True
    tiles = -(-n // 16) * -(-k // 64)
    return 256 + tiles * 1536 + -(-n // 16) * 132 < 2 * n * k


class LayerWeights:
    """Lives as `slimgemm` in an engine's layer, outside its parameters and modules.

    n, k: rows and columns on this rank. dtype: bfloat16 or float32. device: where it runs.
    engine_loader: the layer's own weight loader, called with stand-ins (collect.py).
    options: settings.Settings. Weights that arrive unpacked stay so if they are excluded, or if
    packing makes them larger and nobody asks for batch invariance.
    """

    def __init__(self, name, n, k, dtype, device, engine_loader, options):
        self.n, self.k, self.dtype = n, k, dtype
        self.collector = Collector(name, n, k, dtype)
        self.engine_loader = engine_loader
        self.device = torch.device(device)
        self.batch_invariant = options.batch_invariant
        self.options = options.layer_options()
        self.pack = not options.excludes(name) and (self.batch_invariant or shrinks(n, k, dtype))
        self.linear = None  # a slim.PackedLinear
        self.weight = None  # or the plain matrix, where packing brings nothing

    @property
    def name(self):
        return self.collector.name

    def loader(self, packed):
        """The weight loader of the parameter for packed or for plain tensors."""
        def weight_loader(param, loaded_weight, *args, **kwargs):
            source = Source(loaded_weight) if packed else loaded_weight
            if param.is_meta and not packed:  # an engine that counts before it loads
                self.engine_loader(Target(None, (0, self.n), (0, self.k), self.dtype), source,
                                   *args, **kwargs)
                return
            self.engine_loader(Target(self.collector, (0, self.n), (0, self.k), self.dtype),
                               source, *args, **kwargs)
            if self.collector.complete:
                self.take()

        return weight_loader

    def take(self):
        """Takes over what was collected: the first time as the weights, later as new ones."""
        packed = self.collector.packed_bytes() if self.linear is None else None
        if packed is not None:
            self.linear = slim.PackedLinear.from_packed(
                slimgemm.Packed.from_bytes(packed.tobytes()), None, self.device, **self.options)
        else:
            dense = self.collector.dense(self.device)
            any_packed = any(isinstance(p.source, Source) for p in self.collector.parts.values())
            self.collector.clear()
            if self.linear is not None:
                self.linear.update_(dense)
            elif self.weight is not None:
                self.weight.copy_(dense)
            elif self.pack or any_packed:
                self.linear = slim.PackedLinear.from_weight(dense, **self.options)
            else:
                self.weight = dense
        self.collector.clear()

    def fill_random(self):
        """Weights for a run without a checkpoint: normal, standard deviation 0.02."""
        weights = torch.empty(self.n, self.k, dtype=self.dtype, device=self.device)
        self.collector.add((0, self.n), (0, self.k), weights.normal_(0, 0.02))
        self.take()

    @property
    def loaded(self):
        return self.linear is not None or self.weight is not None

    def require_loaded(self):
        """Raises RuntimeError if the checkpoint did not hold the whole matrix."""
        collector = self.collector
        if not self.loaded or collector.collected:
            raise RuntimeError(
                f"{self.name}: the checkpoint held {collector.collected} of its "
                f"{collector.n * collector.k} weights. It was packed by another tool, or some of "
                "its files are missing: `slimgemm verify` tells")

    def dense(self):
        """The plain matrix; decoded, if it is packed."""
        return self.weight if self.linear is None else self.linear.weight

    def apply(self, x, bias, out_dtype=None):
        """x @ W.T + bias in the layer's dtype, or `out_dtype`.

        NotImplementedError for a batch-invariant layer that is given FP32."""
        if self.linear is None:
            return F.linear(x, self.weight, bias)
        if x.dtype != torch.bfloat16:  # an FP32 router that is given FP32: no bit of x may be lost
            if self.batch_invariant:
                raise NotImplementedError(
                    f"{self.name} is given {x.dtype}, which PyTorch multiplies in an order that "
                    "depends on the batch: run the model without batch_invariant")
            out = F.linear(x, self.dense().to(x.dtype), bias)
        else:
            out = self.linear(x)
            out = out if bias is None else out + bias
        return out if out_dtype is None else out.to(out_dtype)


def attach(layer, name, sizes, dtype, engine_loader, options):
    """Gives an engine's layer its LayerWeights, `layer.slimgemm`, and returns them.

    sizes: (rows of the matrix on this rank, columns). dtype: that the engine asks for.
    options: settings.Settings.
    A router of BF16 weights is kept as FP32, which holds them exactly: its logits are then FP32
    sums that nothing has rounded to BF16.
    The layer gets two empty parameters, `weight` and `weight_packed`, for whichever of the two a
    checkpoint has; their loaders hand it to the LayerWeights.
    """
    kept = torch.float32 if is_router(name) else dtype
    weights = LayerWeights(name, *sizes, kept, torch.empty(0).device, engine_loader, options)
    layer.slimgemm = weights
    layer.slimgemm_dtype = dtype
    for attribute, packed in (("weight", False), (PACKED, True)):
        empty = torch.empty(0, dtype=torch.uint8 if packed else dtype)
        param = torch.nn.Parameter(empty, requires_grad=False)
        param.weight_loader = weights.loader(packed)
        param.output_dim, param.input_dim = 0, 1
        # For vLLM's count of what is still missing when it loads a running engine's weights anew.
        param.weight_loader_numel = 0 if packed else weights.n * weights.k
        layer.register_parameter(attribute, param)
    return weights


def finish(layer, dummy):
    """After the checkpoint is loaded: adopts weights that the engine has tied to this layer, and
    refuses missing ones. dummy: the engine loads no checkpoint, so weights are made up."""
    weights = layer.slimgemm
    if not weights.loaded and layer.weight.numel():  # tied to the embeddings
        weights.weight = layer.weight
    if not weights.loaded and dummy:
        weights.fill_random()
    weights.require_loaded()


def run(layer, x, bias):
    """x @ W.T + bias of a layer that `attach` prepared, in the dtype that the engine expects."""
    wanted = getattr(layer, "out_dtype", None) or layer.slimgemm_dtype
    return layer.slimgemm.apply(x, bias, wanted)


def is_router(name):
    return name.rpartition(".")[2] in ("gate", "router")

# SPDX-License-Identifier: Apache-2.0
"""PackedLinear: an nn.Linear whose weights are stored losslessly in about 12 bits."""

import torch
from torch import nn
from torch.nn import functional

from .. import _core, pack
from . import _ops

_DTYPES = {"bfloat16": torch.bfloat16, "float32": torch.float32}
# The key of a layer's packed bytes in a state_dict, as in a directory that `slimgemm pack` makes.
_KEY = "weight_packed"


def pack_weight(weight, *, max_exception_rate=0.001):
    """Packs a [n, k] tensor of bfloat16 or float32 losslessly; returns a slimgemm.Packed.

    BF16 on a GPU is packed there, without a dense copy; everything else on the CPU.
    Raises TypeError for another dtype, ValueError for a meta tensor or a wrong shape.
    """
    _check_weight(weight)
    weight = weight.detach()
    if weight.device.type == "cuda" and weight.dtype is torch.bfloat16 and _core.has_cuda():
        weight = weight.contiguous()
        return _core.pack_cuda(weight.data_ptr(), *weight.shape, max_exception_rate,
                               _stream(weight.device))
    return pack(weight.cpu(), max_exception_rate=max_exception_rate)


def _check_weight(weight):
    if weight.dtype not in _DTYPES.values():
        raise TypeError(f"the weight is {weight.dtype}: bfloat16 is packed into 12 bits and "
                        "float32 kept exactly; convert the layer with .to(torch.bfloat16) first")
    if weight.dim() != 2:
        raise ValueError(f"the weight has shape {tuple(weight.shape)}: it must be "
                         "[out_features, in_features]")
    if weight.is_meta:
        raise ValueError("the weight is on the meta device: there is nothing to pack yet. Load "
                         "the model first, or use PackedLinear.empty() and load_state_dict()")


def _stream(device):
    return torch._C._cuda_getCurrentRawStream(device.index)


def _device(device):
    """torch.device with its index, so that devices compare."""
    device = torch.device(device)
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    return device


class PackedLinear(nn.Module):
    """A linear layer, y = x @ W.T + bias, that stores W in about 12 bits a weight.

    What is exact: W. Every bit of every weight comes back (`weight`, `packed()`), and products use
    these very weights. What is not: the order in which the FP32 sums are taken is not that of
    cuBLAS or of torch's CPU kernels, so results differ from nn.Linear's in their last bits; the
    bias is added to the BF16 result, which is one more rounding. With `exact=True` a call decodes
    W and then makes the very call that nn.Linear makes: results are bit-identical, at the cost of
    writing and reading dense weights (and of memory for one dense layer during the call), which
    is slower than an nn.Linear.

    x: [..., in_features] of bfloat16 on the layer's device (under autocast it is converted).
    Returns [..., out_features] of the weights' dtype. Gradients reach x and the bias, not W.

    Attributes: in_features, out_features; dtype, of W; bias, a Parameter or None; exact;
    dense_from, the number of tokens from which a GPU decodes W into scratch memory and calls
    cuBLAS because that is faster (0: never); batch_invariant.
    """

    def __init__(self, in_features, out_features, bias=True, *, dtype=torch.bfloat16, device=None,
                 exact=False, programmatic_launch=False, batch_invariant=False):
        """A layer without weights yet: see from_linear(), from_packed(), empty().

        programmatic_launch: on a GPU, a call may start and read its first weights while the
        kernel before it in the stream still runs.
        batch_invariant: a row of the result has the same bits whatever the number of rows and
        whatever the others hold; slower (docs/python.md has the cost), and dense_from is 0.
        """
        super().__init__()
        if dtype not in _DTYPES.values():
            raise TypeError(f"dtype is {dtype}: it must be torch.bfloat16 or torch.float32")
        if exact and batch_invariant:
            raise ValueError("exact and batch_invariant exclude each other: exact=True calls "
                             "cuBLAS, whose sums depend on the number of rows")
        self.in_features = in_features
        self.out_features = out_features
        self.dtype = dtype
        self.exact = exact
        self.dense_from = 0 if batch_invariant else _ops.DENSE_FROM
        self.programmatic_launch = programmatic_launch
        self.batch_invariant = batch_invariant
        self.register_buffer("weights", torch.empty(0, dtype=torch.uint8, device=device),
                             persistent=False)
        self.register_parameter("bias", None)
        if bias:
            self.bias = nn.Parameter(torch.zeros(out_features, dtype=dtype, device=device),
                                     requires_grad=False)
        self._forget()

    # How a layer is made.

    @classmethod
    def from_linear(cls, linear, *, device=None, **options):
        """Packs the weights of a layer that has `weight` [n, k] and `bias`; it stays as it is.
        The rest is as in from_weight()."""
        return cls.from_weight(linear.weight, getattr(linear, "bias", None), device, **options)

    @classmethod
    def from_weight(cls, weight, bias=None, device=None, **options):
        """Packs a dense tensor [n, k] of bfloat16 or float32.

        bias: a tensor [n] or None; shared if it is on the layer's device already.
        device: of the new layer; by default that of the weight. BF16 weights are packed on the
        GPU where they are, without a second dense copy.
        options: exact, programmatic_launch and batch_invariant, as the constructor has them.
        Raises TypeError for another dtype, ValueError for another shape or the meta device.
        """
        weight = weight.detach()
        _check_weight(weight)
        layer = cls.empty(weight.shape[1], weight.shape[0], False, weight.dtype,
                          device or weight.device, **options)
        layer._set_bias(bias)
        layer._fill_from_weight(weight)
        return layer

    @classmethod
    def from_packed(cls, packed, bias=None, device="cpu", **options):
        """A layer from a slimgemm.Packed, and a tensor [n] as its bias. options: as in
        from_weight(). Raises ValueError for a bias of another shape."""
        layer = cls.empty(packed.k, packed.n, False, _DTYPES[packed.dtype], device, **options)
        layer._set_bias(bias)
        layer._fill_from_packed(packed)
        return layer

    @classmethod
    def empty(cls, in_features, out_features, bias=True, dtype=torch.bfloat16, device=None,
              **options):
        """A layer without weights, to be filled by load_state_dict(), load_packed_() or
        update_(). A call before that is an error."""
        return cls(in_features, out_features, bias, dtype=dtype, device=device, **options)

    # What it is made for.

    def forward(self, x):
        if self.exact:
            return functional.linear(x.to(self.dtype), self.weight, self.bias)
        if x.dtype is not torch.bfloat16:
            x = self._autocast(x)
        if _ops.needs_operator(x):
            out = _ops.linear(x, self.weights, self.out_features, self.dtype, self.dense_from)
            return out if self.bias is None else out + self.bias
        # Past nn.Module.__getattr__, which takes a microsecond.
        out = _ops.linear_now(x, self._buffers["weights"], self.out_features, self.dtype,
                              self.dense_from)
        bias = self._parameters["bias"] if "bias" in self._parameters else self.bias
        return out if bias is None else out + bias

    @property
    def weight(self):
        """W, decoded into a new dense [out_features, in_features] tensor on the layer's device.

        Writing to it does not change the layer: update_() does."""
        if not self.is_filled:
            raise RuntimeError("this PackedLinear has no weights yet: fill it with "
                               "load_state_dict(), load_packed_() or update_()")
        return _ops.unpack(self.weights, self.out_features, self.in_features, self.dtype)

    @property
    def is_filled(self):
        """False for a layer from empty() that has not been given weights."""
        return self.weights.shape[0] > 0

    @property
    def nbytes(self):
        """Bytes of the stored weights on the layer's device, without the bias."""
        return self.weights.numel()

    def packed(self):
        """The weights as a slimgemm.Packed, in host memory."""
        if not self.is_filled:
            raise RuntimeError("this PackedLinear has no weights yet")
        if self._layout is None:
            return self._packed
        image = self.weights.cpu()
        return _core.read_image(self._layout, image.data_ptr(), image.numel())

    def plan(self, m):
        """Which kernel serves m tokens, and why, in one line of text."""
        many = self._layout is not None and _ops.is_dense(m, self.dtype, self.dense_from)
        if self.exact or many:
            why = "exact=True" if self.exact else f"dense_from={self.dense_from} tokens or more"
            return (f"m={m} n={self.out_features} k={self.in_features}: decoded into scratch "
                    f"memory, then torch's F.linear ({why})")
        return self._layer.plan(m)

    def update_(self, weight):
        """Replaces W by another dense [out_features, in_features] tensor of the same dtype.

        On a GPU the new weights are packed into the memory of the old ones, with the old window
        of exponents, and the call waits until they are there: captured CUDA graphs and compiled
        code compute with them from then on. If more of them fall outside that window than there
        is room for, it raises ValueError and the old weights stay; then
        `load_packed_(pack_weight(weight))` gives the layer new memory, and graphs must be
        captured again. Returns the layer.
        """
        weight = weight.detach()
        _check_weight(weight)
        self._check_same(weight.shape, weight.dtype)
        if self._layout is None:
            self._fill_from_weight(weight)
            return self
        if self.dtype is torch.float32:
            self._write_image(pack(weight.cpu()))
        else:
            weight = weight.to(self.weights.device).contiguous()
            _core.pack_image_cuda(weight.data_ptr(), self._layout, self.weights.data_ptr(),
                                  _stream(self.weights.device))
        return self

    def load_packed_(self, packed):
        """Replaces W by a slimgemm.Packed, or by packed bytes (a uint8 tensor, or an object with
        the buffer protocol) of the same shape and dtype. The layer gets new memory: graphs that
        were captured before keep the old weights. Returns the layer."""
        if isinstance(packed, torch.Tensor):
            packed = packed.detach().cpu().contiguous()
        if not isinstance(packed, _core.Packed):
            packed = _core.Packed.from_bytes(packed)
        self._check_same((packed.n, packed.k), _DTYPES[packed.dtype])
        self._fill_from_packed(packed)
        return self

    def extra_repr(self):
        text = (f"in_features={self.in_features}, out_features={self.out_features}, "
                f"bias={self.bias is not None}, dtype={self.dtype}")
        if self.is_filled:
            bits = 8 * self.nbytes / (self.in_features * self.out_features)
            text += f", bits_per_weight={bits:.2f}"
        return text + (", exact=True" if self.exact else "")

    # Where the weights are kept.

    def _forget(self):
        self._packed = None  # on a CPU: the Packed whose bytes are the buffer
        self._layout = None  # on a GPU: how the buffer is laid out
        self._layer = None  # what _core.run finds by the buffer's address

    def _set_bias(self, bias):
        if bias is None:
            self.bias = None
            return
        if tuple(bias.shape) != (self.out_features,):
            raise ValueError(f"the bias has shape {tuple(bias.shape)}: it must be "
                             f"[{self.out_features}]")
        bias_here = bias.detach().to(self.weights.device)
        self.bias = nn.Parameter(bias_here, requires_grad=bias.requires_grad)

    def _check_same(self, shape, dtype):
        if tuple(shape) != (self.out_features, self.in_features) or dtype is not self.dtype:
            raise ValueError(f"the new weights are {tuple(shape)} of {dtype}: this layer is "
                             f"({self.out_features}, {self.in_features}) of {self.dtype}")

    def _fill_from_weight(self, weight):
        device = _device(self.weights.device)
        if device.type != "cuda" or self.dtype is torch.float32 or not _core.has_cuda():
            self._fill_from_packed(pack_weight(weight))
            return
        weight = weight.to(device).contiguous()
        layout = _core.plan_image_cuda(weight.data_ptr(), *weight.shape, 0.001,
                                       _core.default_spare_groups(*weight.shape), _stream(device))
        image = torch.empty(layout.nbytes, dtype=torch.uint8, device=device)
        _core.pack_image_cuda(weight.data_ptr(), layout, image.data_ptr(), _stream(device))
        self._install_image(layout, image)

    def _fill_from_packed(self, packed):
        device = _device(self.weights.device)
        if device.type == "meta":
            raise ValueError("the layer is on the meta device: move it with "
                             "to_empty(device=...) before it is filled")
        if device.type == "cuda":
            spare = _core.default_spare_groups(packed.n, packed.k)
            layout = _core.image_layout(packed, spare)
            image = torch.empty(layout.nbytes, dtype=torch.uint8, device="cpu")
            _core.write_image(packed, layout, image.data_ptr(), image.numel())
            self._install_image(layout, image.to(device))
            return
        if device.type != "cpu":
            raise ValueError(f"device is {device}: packed layers run on cpu and cuda")
        self._forget()
        if self.batch_invariant:  # layers are found by address: this one must have its own
            packed = _core.Packed.from_bytes(packed)
        self._packed = packed
        self._layer = _core.Layer.cpu(packed, self.batch_invariant)
        self.weights = _core.torch_bytes(packed)

    def _install_image(self, layout, image):
        layer = _core.Layer.cuda(layout, image.data_ptr(), image.device.index,
                                 self.programmatic_launch, self.batch_invariant)
        self._forget()
        self._layout = layout
        self._layer = layer
        self.weights = image

    def _write_image(self, packed):
        image = torch.empty(self.weights.numel(), dtype=torch.uint8, device="cpu")
        _core.write_image(packed, self._layout, image.data_ptr(), image.numel())
        self.weights.copy_(image)

    def _autocast(self, x):
        device = x.device.type
        if torch.is_autocast_enabled(device):
            if torch.get_autocast_dtype(device) is torch.bfloat16:
                return x.to(torch.bfloat16)
        raise TypeError(f"x is {x.dtype}: packed layers take bfloat16 activations; convert x, or "
                        "run the model under torch.autocast(..., dtype=torch.bfloat16)")

    # What nn.Module does with its tensors.

    def _apply(self, fn, recurse=True):
        """Moves between devices. The weights' dtype never changes."""
        weights = self._buffers.pop("weights")
        try:
            super()._apply(fn, recurse)
            device = fn(weights.new_empty(0)).device
        finally:
            self._buffers["weights"] = weights
        if device == weights.device:
            return self
        packed = self.packed() if self.is_filled and device.type != "meta" else None
        if packed is not None and device.type == weights.device.type == "cuda":
            self._install_image(self._layout, weights.to(device))
            return self
        self._forget()
        self.weights = torch.empty(0, dtype=torch.uint8, device=device)
        if packed is not None:
            self._fill_from_packed(packed)
        return self

    def _packed_bytes(self):
        """The packed bytes as a uint8 tensor on the CPU."""
        return self.weights if self._layout is None else _core.torch_bytes(self.packed())

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self.is_filled:
            destination[prefix + _KEY] = self._packed_bytes()

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys,
                              unexpected_keys, error_msgs):
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys,
                                      unexpected_keys, error_msgs)
        keys = [prefix + _KEY, prefix + "weight"]
        for key in keys:
            if key in unexpected_keys:
                unexpected_keys.remove(key)
        try:
            if keys[0] in state_dict:
                self.load_packed_(state_dict[keys[0]])
            elif keys[1] in state_dict:
                self.update_(state_dict[keys[1]])
            else:
                missing_keys.append(keys[0])
        except (TypeError, ValueError) as error:
            error_msgs.append(f"{keys[0]}: {error}")

    def __getstate__(self):
        state = self.__dict__.copy()
        state["_buffers"] = {**self._buffers, "weights": self.weights.new_empty(0)}
        state["_packed_state"] = self._packed_bytes() if self.is_filled else None
        for name in ("_packed", "_layout", "_layer"):
            del state[name]
        return state

    def __setstate__(self, state):
        packed = state.pop("_packed_state")
        super().__setstate__(state)
        self._forget()
        if packed is not None:
            self.load_packed_(packed)

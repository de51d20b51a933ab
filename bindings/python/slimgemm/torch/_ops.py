# SPDX-License-Identifier: Apache-2.0
"""torch.ops.slimgemm: what a traced graph sees of a packed layer.

The weights are a uint8 tensor: packed bytes on a CPU, a device image on a GPU. What else a kernel
needs to know of them, slimgemm._core finds by the tensor's address, so graphs hold no constants of
a layer beside its shape.
"""

import torch

from .. import _core

# Tokens from which decoding the weights and calling cuBLAS beats the fused kernels on an H200
# (results/README.md, Prefill). 0 as an operator's dense_from: never.
DENSE_FROM = 8192
# Dense weights that such a call holds at a time; a layer with more is done in parts.
DENSE_BYTES_MAX = 512 << 20

_library = torch.library.Library("slimgemm", "DEF")
_library.define("linear(Tensor x, Tensor weights, SymInt out_features, ScalarType out_dtype, "
                "int dense_from) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_library.define("unpack(Tensor weights, SymInt out_features, SymInt in_features, "
                "ScalarType dtype) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))


def _rows(x):
    """x as rows that lie one stride apart, and that stride; copies where they don't."""
    k = x.shape[-1]
    if x.is_contiguous():
        return x, k
    if x.dim() == 2 and x.stride(1) == 1 and x.stride(0) >= k:
        return x, x.stride(0)
    return x.contiguous(), k


def _check(x, weights):
    if x.dtype is not torch.bfloat16:
        raise TypeError(f"x is {x.dtype}: packed layers take bfloat16 activations")
    if x.device != weights.device:
        raise ValueError(f"x is on {x.device}, the layer's weights are on {weights.device}")


def _run(x, weights, out_features, out_dtype, stream):
    _check(x, weights)
    shape = (*x.shape[:-1], out_features)
    # Without a dtype, which takes longer, where x has the right one.
    out = (x.new_empty(shape) if out_dtype is torch.bfloat16 else
           x.new_empty(shape, dtype=out_dtype))
    x, stride = _rows(x)
    k = x.shape[-1]
    _core.run(weights.data_ptr(), x.data_ptr(), x.numel() // max(k, 1), k, stride,
              out.data_ptr(), out_features, out.element_size(), stream)
    return out


def _linear_cpu(x, weights, out_features, out_dtype, dense_from):
    return _run(x, weights, out_features, out_dtype, 0)


def is_dense(m, dtype, dense_from):
    """Whether a GPU decodes the weights for m tokens and calls cuBLAS."""
    return 0 < dense_from <= m and dtype is torch.bfloat16


def _linear_cuda(x, weights, out_features, out_dtype, dense_from):
    if is_dense(x.numel() // max(x.shape[-1], 1), out_dtype, dense_from):
        return _linear_dense(x, weights, out_features)
    stream = torch._C._cuda_getCurrentRawStream(weights.device.index)
    return _run(x, weights, out_features, out_dtype, stream)


def _linear_dense(x, weights, out_features):
    """Decodes the weights into scratch memory, in parts of DENSE_BYTES_MAX, and calls cuBLAS."""
    _check(x, weights)
    k = x.shape[-1]
    part = max(DENSE_BYTES_MAX // (2 * k) // 16 * 16, 16)
    if out_features <= part:
        dense = _unpack_cuda(weights, out_features, k, torch.bfloat16)
        return torch.nn.functional.linear(x, dense)
    parts = []
    for begin in range(0, out_features, part):
        end = min(begin + part, out_features)
        dense = _unpack_cuda(weights, out_features, k, torch.bfloat16, begin, end)
        parts.append(torch.nn.functional.linear(x, dense))
        del dense
    return torch.cat(parts, dim=-1)


def _unpack_cpu(weights, out_features, in_features, dtype):
    out = torch.empty((out_features, in_features), dtype=dtype, device="cpu")
    _core.unpack_rows(weights.data_ptr(), out.data_ptr(), 0, out_features, in_features,
                      out.element_size(), 0)
    return out


def _unpack_cuda(weights, out_features, in_features, dtype, begin=0, end=None):
    end = out_features if end is None else end
    out = torch.empty((end - begin, in_features), dtype=dtype, device=weights.device)
    stream = torch._C._cuda_getCurrentRawStream(weights.device.index)
    _core.unpack_rows(weights.data_ptr(), out.data_ptr(), begin, end, in_features,
                      out.element_size(), stream)
    return out


_library.impl("linear", _linear_cpu, "CPU")
_library.impl("linear", _linear_cuda, "CUDA")
_library.impl("unpack", _unpack_cpu, "CPU")
_library.impl("unpack", _unpack_cuda, "CUDA")


@torch.library.register_fake("slimgemm::linear", lib=_library)
def _(x, weights, out_features, out_dtype, dense_from):
    return x.new_empty((*x.shape[:-1], out_features), dtype=out_dtype)


@torch.library.register_fake("slimgemm::unpack", lib=_library)
def _(weights, out_features, in_features, dtype):
    return weights.new_empty((out_features, in_features), dtype=dtype)


def _save_for_backward(ctx, inputs, output):
    x, weights, out_features, out_dtype, _ = inputs
    ctx.save_for_backward(weights)
    ctx.shape = (out_features, x.shape[-1], out_dtype, x.dtype)


def _backward(ctx, gradient):
    """The gradient of x; the weights have none."""
    (weights,) = ctx.saved_tensors
    out_features, in_features, dtype, x_dtype = ctx.shape
    dense = unpack(weights, out_features, in_features, dtype)
    return torch.matmul(gradient, dense).to(x_dtype), None, None, None, None


torch.library.register_autograd("slimgemm::linear", _backward, setup_context=_save_for_backward,
                                lib=_library)

linear = torch.ops.slimgemm.linear.default
unpack = torch.ops.slimgemm.unpack.default


def needs_operator(x):
    """Whether a call must go through the dispatcher: where something traces it, or wants gradients.
    Everywhere else the layer calls the kernel directly, which saves half of the host's time."""
    return (torch.compiler.is_compiling() or type(x) is not torch.Tensor or
            (x.requires_grad and torch.is_grad_enabled()) or
            torch._C._len_torch_dispatch_stack() > 0 or
            torch._C._functorch.peek_interpreter_stack() is not None)


def linear_now(x, weights, out_features, out_dtype, dense_from):
    """linear() without the dispatcher."""
    if weights.is_cuda:
        return _linear_cuda(x, weights, out_features, out_dtype, dense_from)
    return _run(x, weights, out_features, out_dtype, 0)

# SPDX-License-Identifier: Apache-2.0
"""SlimGEMM: linear layers on BF16 weights that are stored losslessly in about 12 bits.

This module works on arrays in host memory and needs NumPy alone; slimgemm.torch has layers for
PyTorch, on CPUs and on Hopper GPUs. Errors are Python's own: ValueError for an argument or for
packed bytes that are wrong, NotImplementedError for what this build or this machine cannot do,
MemoryError, and RuntimeError for what a CUDA device reports.
"""

import sys

import numpy as np

from . import _core
from ._core import Packed, __version__

__all__ = ["Packed", "linear", "pack", "__version__"]


def pack(weight, *, threads=0, max_exception_rate=0.001):
    """Packs a weight matrix losslessly: every bit pattern comes back, NaN payloads included.

    weight: [n, k] (output features, input features), in host memory: a NumPy array of
        ml_dtypes.bfloat16, of uint16 (the raw bits of bfloat16) or of float32, or any tensor with
        DLPack, such as a torch.Tensor on the CPU. One that is not contiguous is copied first.
        For a tensor on a GPU: slimgemm.torch.pack_weight.
    threads: to pack with; 0: one for every hardware thread.
    max_exception_rate: a BF16 matrix with a larger share of weights that do not fit 12 bits is
        stored raw, in 16.

    Returns a Packed. float32 is stored exactly, in 32 bits. Raises ValueError for another dtype
    or number of dimensions, TypeError for what is no array in host memory.
    """
    return _core.pack(_array(weight), threads, max_exception_rate)


def linear(x, packed, *, out=None):
    """x @ W.T on the CPU, straight from the packed weights.

    x: [..., k] of bfloat16, as the weight of pack().
    packed: a Packed of n x k.
    out: [..., n], contiguous, of the weights' dtype, to write to.

    Returns out, or a new array [..., n] of the weights' dtype: a torch.Tensor for a torch.Tensor,
    otherwise a NumPy array, in which BF16 is ml_dtypes.bfloat16 if x was that, else uint16.
    Sums are in FP32, in an order of their own: the last bits differ from other libraries'.
    Raises ValueError for shapes or dtypes that do not match.
    """
    if out is None:
        out = _like(x, (*x.shape[:-1], packed.n), packed.dtype)
    _core.linear(_array(x), packed, _array(out, copy=False))
    return out


def _unpack(self, out=None, *, threads=0):
    """The original [n, k] matrix, bit for bit: a NumPy array of uint16 (the raw bits of bfloat16)
    or float32; or into `out`, a contiguous array or DLPack tensor of n x k in host memory."""
    if out is None:
        out = np.empty((self.n, self.k), np.uint16 if self.dtype == "bfloat16" else np.float32)
    _core.unpack(self, _array(out, copy=False), threads)
    return out


Packed.unpack = _unpack


def _array(array, copy=True):
    """`array` as something that the C++ side reads: NumPy has no DLPack for ml_dtypes."""
    if isinstance(array, np.ndarray):
        if copy:
            array = np.ascontiguousarray(array)
        return array.view(np.uint16) if array.dtype.name == "bfloat16" else array
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cpu":
            raise ValueError(f"the tensor is on {array.device}: slimgemm works on host memory; "
                             "use slimgemm.torch")
        return array.detach().contiguous() if copy else array.detach()
    return array


def _like(x, shape, dtype):
    """A new array for a result, of the kind that x is."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return torch.empty(shape, dtype=getattr(torch, dtype), device="cpu")
    if dtype == "float32":
        return np.empty(shape, np.float32)
    out = np.empty(shape, np.uint16)
    return out.view(x.dtype) if getattr(x.dtype, "name", "") == "bfloat16" else out

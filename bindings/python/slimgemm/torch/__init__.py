# SPDX-License-Identifier: Apache-2.0
"""Packed linear layers for PyTorch, on CPUs and on Hopper GPUs (docs/python.md is the guide)."""

from ._experts import PackedExperts
from ._layer import PackedLinear, pack_weight
from ._model import pack_model

__all__ = ["PackedExperts", "PackedLinear", "pack_model", "pack_weight"]

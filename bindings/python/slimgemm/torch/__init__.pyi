# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from typing_extensions import Self

from .._core import Packed

class PackedLinear(nn.Module):
    in_features: int
    out_features: int
    dtype: torch.dtype
    exact: bool
    dense_from: int
    programmatic_launch: bool
    batch_invariant: bool
    weights: torch.Tensor
    bias: nn.Parameter | None
    def __init__(self, in_features: int, out_features: int, bias: bool = True, *,
                 dtype: torch.dtype = ..., device: torch.device | str | None = None,
                 exact: bool = False, programmatic_launch: bool = False,
                 batch_invariant: bool = False) -> None: ...
    @classmethod
    def from_linear(cls, linear: nn.Module, *, device: torch.device | str | None = None,
                    **options: bool) -> Self: ...
    @classmethod
    def from_weight(cls, weight: torch.Tensor, bias: torch.Tensor | None = None,
                    device: torch.device | str | None = None, **options: bool) -> Self: ...
    @classmethod
    def from_packed(cls, packed: Packed, bias: torch.Tensor | None = None,
                    device: torch.device | str = "cpu", **options: bool) -> Self: ...
    @classmethod
    def empty(cls, in_features: int, out_features: int, bias: bool = True,
              dtype: torch.dtype = ..., device: torch.device | str | None = None,
              **options: bool) -> Self: ...
    def forward(self, x: torch.Tensor) -> torch.Tensor: ...
    @property
    def weight(self) -> torch.Tensor: ...
    @property
    def is_filled(self) -> bool: ...
    @property
    def nbytes(self) -> int: ...
    def packed(self) -> Packed: ...
    def plan(self, m: int) -> str: ...
    def update_(self, weight: torch.Tensor) -> Self: ...
    def load_packed_(self, packed: Packed | torch.Tensor | Any) -> Self: ...

class PackedExperts(nn.ModuleList):
    names: tuple[str, str, str]
    num_experts: int
    hidden_dim: int
    intermediate_dim: int
    def __init__(self, plain: nn.Module, names: Sequence[str] = ...) -> None: ...
    @classmethod
    def from_stacks(cls, plain: nn.Module, names: Sequence[str] = ...,
                    **options: bool) -> Self: ...
    def append_expert(self, layers: Sequence[PackedLinear]) -> None: ...
    def forward(self, hidden_states: torch.Tensor, top_k_index: torch.Tensor,
                top_k_weights: torch.Tensor) -> torch.Tensor: ...
    def plain(self) -> nn.Module: ...

def pack_weight(weight: torch.Tensor, *, max_exception_rate: float = 0.001) -> Packed: ...
def pack_model(model: nn.Module, include: str | Sequence[str] | None = None,
               exclude: str | Sequence[str] | None = None, fraction: float = 1.0,
               exact: bool = False,
               progress: bool | Callable[[int, int, str], object] = True, *,
               programmatic_launch: bool = False,
               batch_invariant: bool = False,
               experts: bool | Sequence[str] = False) -> nn.Module: ...

# SPDX-License-Identifier: Apache-2.0
from typing import Any

from ._core import Packed as Packed

__version__: str

def pack(weight: Any, *, threads: int = 0, max_exception_rate: float = 0.001) -> Packed: ...
def linear(x: Any, packed: Packed, *, out: Any | None = None) -> Any: ...

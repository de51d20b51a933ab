# SPDX-License-Identifier: Apache-2.0
"""Collects the parts of a layer's weight matrix while an engine loads a checkpoint.

Which part of a tensor belongs to which rows of which rank is the engine's knowledge, in the weight
loader of each of its layer classes: merged q, k and v, replicated key heads, padded vocabularies.
That knowledge is used, not repeated: the engine's own loader runs with two stand-ins, a `Source` in
the place of the tensor and a `Target` in the place of the parameter. It narrows both and asks for a
copy from one into the other; `Collector` writes down what was to be copied where.

So a part stays what it is in the file, packed or plain, and memory-mapped: nothing is decoded, and
of a packed matrix no byte is read but those of the part.
"""

import dataclasses

import numpy as np
import torch

import slimgemm
from slimgemm import shards


def _narrowed(begin, end, start, length):
    if start < 0 or length < 0 or begin + start + length > end:
        raise ValueError(f"part {start} to {start + length} of {end - begin} rows or columns")
    return begin + start, begin + start + length


class _Window:
    """A rectangle of a matrix, with as much of a tensor's interface as weight loaders use."""

    def __init__(self, rows, columns, dtype, device):
        self.rows, self.columns = rows, columns
        self.dtype, self.device = dtype, device

    def _like(self, rows, columns):
        raise NotImplementedError

    @property
    def shape(self):
        return torch.Size((self.rows[1] - self.rows[0], self.columns[1] - self.columns[0]))

    def size(self, dim=None):
        return self.shape if dim is None else self.shape[dim]

    @property
    def ndim(self):
        return 2

    def dim(self):
        return 2

    def numel(self):
        return self.shape.numel()

    def narrow(self, dim, start, length):
        if dim % 2 == 0:
            return self._like(_narrowed(*self.rows, int(start), int(length)), self.columns)
        return self._like(self.rows, _narrowed(*self.columns, int(start), int(length)))

    def __getitem__(self, index):
        if not isinstance(index, slice) or index.step not in (None, 1):
            raise NotImplementedError(f"a packed weight cannot be indexed with {index!r}")
        start, stop, _ = index.indices(self.shape[0])
        return self.narrow(0, start, max(stop - start, 0))


class Source(_Window):
    """Stands in for a loaded tensor: part of a packed matrix."""

    def __init__(self, data, rows=None, columns=None):
        self.packed = shards.as_bytes(data)
        header = shards.read_header(self.packed)
        dtype = torch.float32 if header.dtype == "float32" else torch.bfloat16
        super().__init__(rows or (0, header.n), columns or (0, header.k), dtype,
                         torch.device("cpu"))

    def _like(self, rows, columns):
        return Source(self.packed, rows, columns)

    def cut(self):
        """The packed bytes of the part, or None where it cannot be cut out packed."""
        header = shards.read_header(self.packed)
        if not shards.can_take(header, self.rows, self.columns):
            return None
        return shards.take(self.packed, self.rows, self.columns)

    def dense(self):
        """The part's weights, decoded: a CPU tensor."""
        header = shards.read_header(self.packed)
        row, column = shards.TILE_ROWS, shards.TILE_COLUMNS
        rows = (self.rows[0] // row * row, min(-(-self.rows[1] // row) * row, header.n))
        columns = (self.columns[0] // column * column,
                   min(-(-self.columns[1] // column) * column, header.k))
        whole = slimgemm.Packed.from_bytes(shards.take(self.packed, rows, columns).tobytes())
        part = to_tensor(whole.unpack())
        return part[self.rows[0] - rows[0]:self.rows[1] - rows[0],
                    self.columns[0] - columns[0]:self.columns[1] - columns[0]]


class Target(_Window):
    """Stands in for the parameter that a weight loader fills. collector None: only counts."""

    output_dim = 0
    input_dim = 1

    def __init__(self, collector, rows, columns, dtype):
        self.collector = collector
        super().__init__(rows, columns, dtype, torch.device("cpu"))

    def _like(self, rows, columns):
        return Target(self.collector, rows, columns, self.dtype)

    @property
    def data(self):
        return self

    def copy_(self, source):
        if self.shape != source.shape:
            raise ValueError(f"a part of {tuple(source.shape)} weights for {tuple(self.shape)} "
                             "rows and columns")
        if self.collector is None:  # a copy that costs nothing, for an engine that counts copies
            nothing = torch.empty(self.shape, dtype=torch.uint8, device="meta")
            nothing.copy_(torch.empty_like(nothing))
        else:
            self.collector.add(self.rows, self.columns, source)
        return self

    def fill_(self, value):
        if self.numel() and self.collector is not None:
            self.collector.add(self.rows, self.columns, float(value))
        return self


@dataclasses.dataclass
class _Part:
    rows: tuple
    columns: tuple
    source: object  # a Source, a tensor, or a number that fills the part


class Collector:
    """The parts of one n x k weight matrix of `dtype`; `name` is for messages."""

    def __init__(self, name, n, k, dtype):
        self.name, self.n, self.k, self.dtype = name, n, k, dtype
        self.parts = {}

    def add(self, rows, columns, source):
        if isinstance(source, torch.Tensor) and source.device.type != "cpu":
            source = source.clone()  # the engine may reuse its buffer; files on the CPU are mapped
        self.parts[rows, columns] = _Part(rows, columns, source)

    @property
    def collected(self):
        """How many of the n * k weights are here."""
        return sum((p.rows[1] - p.rows[0]) * (p.columns[1] - p.columns[0])
                   for p in self.parts.values())

    @property
    def complete(self):
        return self.collected >= self.n * self.k

    def packed_bytes(self):
        """The matrix as packed bytes, if it can be put together without decoding; else None."""
        parts = sorted(self.parts.values(), key=lambda part: part.rows)
        if any(not isinstance(p.source, Source) or p.columns != (0, self.k) for p in parts):
            return None
        if any(p.source.dtype != self.dtype for p in parts):
            return None
        cut = [part.source.cut() for part in parts]
        if any(c is None for c in cut) or not shards.can_stack(cut):
            return None
        return shards.stack(cut)

    def dense(self, device):
        """The matrix decoded: an n x k tensor of `dtype` on `device`."""
        out = torch.empty(self.n, self.k, dtype=self.dtype, device=device)
        for part in self.parts.values():
            place = out[part.rows[0]:part.rows[1], part.columns[0]:part.columns[1]]
            if isinstance(part.source, float):
                place.fill_(part.source)
                continue
            source = part.source.dense() if isinstance(part.source, Source) else part.source
            place.copy_(exactly(source, self.dtype, self.name))
        return out

    def clear(self):
        self.parts = {}


def exactly(tensor, dtype, name):
    """`tensor` as `dtype`, if every value stays what it is; else ValueError."""
    if tensor.dtype == dtype:
        return tensor
    cast = tensor.to(dtype)
    if not torch.equal(cast.to(tensor.dtype).nan_to_num(), tensor.nan_to_num()):
        raise ValueError(f"{name}: weights of {tensor.dtype} are no {dtype} values: load the model "
                         "with its own dtype, or convert the checkpoint first")
    return cast


def to_tensor(array):
    """A NumPy array of weights (BF16 as ml_dtypes or raw uint16, or FP32) as a tensor."""
    if isinstance(array, torch.Tensor):
        return array
    if array.dtype == np.float32:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)

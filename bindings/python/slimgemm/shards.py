# SPDX-License-Identifier: Apache-2.0
"""Parts of packed matrices, cut and joined as bytes (docs/format.md, sections 1 to 4).

A packed matrix lies in tiles of 16 rows x 64 columns. Rows from a multiple of 16 and columns from a
multiple of 64 can therefore be taken out without decoding a weight, and matrices of one window can
be put one below the other. A rank of a tensor-parallel group so reads its part of a saved matrix
from a memory-mapped file and nothing else.

What is cut or joined has no checksums, since those of the whole say nothing about a part. It
decodes to the same bits; `slimgemm verify` checks the file that it came from.
"""

import dataclasses
import struct

import numpy as np

TILE_ROWS = 16
TILE_COLUMNS = 64

_HEADER = struct.Struct("<8s2I2Q2I11Q")
_MAGIC = b"SLIMPACK"
_SPLIT12, _RAW16, _RAW32 = 1, 2, 3
_TILE_BYTES = {_SPLIT12: 1536, _RAW16: 2048, _RAW32: 4096}
_GROUP_ENTRIES = 16
_EMPTY = 0xFF
_ENTRY = np.dtype([("k", "<u4"), ("bits", "<u2"), ("row", "u1"), ("zero", "u1")])
_HAS_NONFINITE = 2


@dataclasses.dataclass(frozen=True)
class Header:
    """The header of a packed matrix, as docs/format.md names its fields. Sizes are in bytes."""

    encoding: int
    n: int
    k: int
    window_base: int
    flags: int
    exception_count: int
    tiles_offset: int
    groups_offset: int
    group_count: int
    extra_offset: int
    total_bytes: int

    @property
    def row_tiles(self):
        return -(-self.n // TILE_ROWS)

    @property
    def k_tiles(self):
        return -(-self.k // TILE_COLUMNS)

    @property
    def tile_bytes(self):
        return _TILE_BYTES[self.encoding]

    @property
    def dtype(self):
        """The weights' dtype: "float32" or "bfloat16"."""
        return "float32" if self.encoding == _RAW32 else "bfloat16"


def as_bytes(data):
    """`data` (bytes, a uint8 array or tensor) as a one-dimensional uint8 array; without a copy, if
    it is in host memory."""
    if hasattr(data, "numpy") and not isinstance(data, np.ndarray):
        data = data.detach().cpu().numpy()
    array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
    if array.dtype != np.uint8:
        raise ValueError(f"packed bytes have dtype {array.dtype}: it must be uint8")
    return array.reshape(-1)


def read_header(data, whole=True):
    """The header of the packed matrix at the start of `data`; the rest of the matrix may be missing
    unless `whole`.

    Raises ValueError if it is none, or one of another version. The fields are trusted as far as
    this module's arithmetic needs; `slimgemm.Packed.from_bytes` checks everything.
    """
    data = as_bytes(data)
    if data.size < _HEADER.size:
        raise ValueError(f"{data.size} bytes are no packed matrix: its header alone has "
                         f"{_HEADER.size}")
    fields = _HEADER.unpack(data[:_HEADER.size].tobytes())
    magic, version, encoding = fields[:3]
    if magic != _MAGIC:
        raise ValueError(f"no packed matrix: it begins with {magic!r}, not with {_MAGIC!r}")
    if version != 1:
        raise ValueError(f"packed format version {version}: this library reads version 1")
    if encoding not in _TILE_BYTES:
        raise ValueError(f"packed encoding {encoding}: this library knows 1, 2 and 3")
    header = Header(encoding, *fields[3:8], fields[8], *fields[10:14])
    if whole and data.size < header.total_bytes:
        raise ValueError(f"packed matrix of {header.total_bytes} bytes: {data.size} are there")
    return header


def trim(data):
    """The bytes of the packed matrix at the start of `data`, without what follows it."""
    return as_bytes(data)[:read_header(data).total_bytes]


def can_take(header, rows, columns):
    """Whether `take` can cut out these (begin, end) ranges: multiples of 16 rows and 64 columns, or
    the matrix's own end."""
    return (rows[0] % TILE_ROWS == 0 and (rows[1] % TILE_ROWS == 0 or rows[1] == header.n)
            and columns[0] % TILE_COLUMNS == 0
            and (columns[1] % TILE_COLUMNS == 0 or columns[1] == header.k))


def take(data, rows, columns):
    """The packed matrix W[rows, columns] from the packed matrix W, without decoding it.

    data: the packed bytes of W, n x k; only those that are needed are read.
    rows, columns: (begin, end) ranges for which `can_take` holds; else ValueError.
    Returns the packed bytes as a uint8 array.
    """
    data = as_bytes(data)
    header = read_header(data)
    _check_range("rows", rows, header.n)
    _check_range("columns", columns, header.k)
    if not can_take(header, rows, columns):
        raise ValueError(f"rows {rows} and columns {columns} of a {header.n} x {header.k} matrix "
                         "cannot be cut out packed: they begin at multiples of 16 and 64; unpack")
    if rows == (0, header.n) and columns == (0, header.k):
        return data[:header.total_bytes]
    r0, r1 = rows[0] // TILE_ROWS, -(-rows[1] // TILE_ROWS)
    c0, c1 = columns[0] // TILE_COLUMNS, -(-columns[1] // TILE_COLUMNS)
    tiles = _tiles(data, header)[r0:r1, c0:c1]
    shape = (rows[1] - rows[0], columns[1] - columns[0])
    if header.encoding != _SPLIT12:
        return _assemble(header, shape, tiles)
    tile, entries = _exceptions(data, header, r0, r1)
    inside = (entries["k"] >= columns[0]) & (entries["k"] < columns[1])
    tile, entries = tile[inside] - r0, entries[inside]
    entries["k"] -= columns[0]
    return _assemble(header, shape, tiles, tile, entries)


def can_stack(parts):
    """Whether `stack` can put these packed matrices one below the other: of one encoding, width and
    window, and all but the last of whole tiles."""
    headers = [read_header(part) for part in parts]
    first = headers[0]
    return (all((h.encoding, h.k, h.window_base) == (first.encoding, first.k, first.window_base)
                for h in headers) and all(h.n % TILE_ROWS == 0 for h in headers[:-1]))


def stack(parts):
    """The packed matrices of `parts` one below the other as one, without decoding them.

    ValueError where `can_stack` does not hold. Returns the packed bytes as a uint8 array.
    """
    parts = [as_bytes(part) for part in parts]
    if len(parts) == 1:
        return trim(parts[0])
    if not can_stack(parts):
        raise ValueError("these packed matrices cannot be stacked: they differ in encoding, width "
                         "or window, or one in the middle has rows that are no multiple of 16")
    headers = [read_header(part) for part in parts]
    tiles = np.concatenate([_tiles(p, h) for p, h in zip(parts, headers)])
    shape = (sum(h.n for h in headers), headers[0].k)
    if headers[0].encoding != _SPLIT12:
        flags = 0
        for header in headers:
            flags |= header.flags
        return _assemble(dataclasses.replace(headers[0], flags=flags), shape, tiles)
    tile, entries, begin = [], [], 0
    for part, header in zip(parts, headers):
        of, found = _exceptions(part, header, 0, header.row_tiles)
        tile.append(of + begin)
        entries.append(found)
        begin += header.row_tiles
    return _assemble(headers[0], shape, tiles, np.concatenate(tile), np.concatenate(entries))


def _check_range(what, limits, size):
    if not 0 <= limits[0] < limits[1] <= size:
        raise ValueError(f"{what} {limits} of a matrix that has {size}")


def _tiles(data, header):
    size = header.row_tiles * header.k_tiles * header.tile_bytes
    return data[header.tiles_offset:header.tiles_offset + size].reshape(
        header.row_tiles, header.k_tiles, header.tile_bytes)


def _exceptions(data, header, r0, r1):
    """The row tiles and entries of the exceptions of row tiles r0 to r1, sorted by row tile, k
    and row."""
    groups = data[header.groups_offset:][:header.group_count * 128].view(_ENTRY)
    groups = groups.reshape(header.group_count, _GROUP_ENTRIES)
    begin = data[header.extra_offset:][:4 * (header.row_tiles + 1)].view("<u4")
    begin = begin[r0:r1 + 1].astype(np.int64)
    extra = groups[header.row_tiles + begin[0]:header.row_tiles + begin[-1]]
    tile = np.concatenate([np.arange(r0, r1), np.repeat(np.arange(r0, r1), np.diff(begin))])
    order = np.argsort(tile, kind="stable")
    entries = np.concatenate([groups[r0:r1], extra])[order].reshape(-1)
    tile = np.repeat(tile[order], _GROUP_ENTRIES)
    used = entries["row"] != _EMPTY
    return tile[used], entries[used]


def _groups(row_tiles, tile, entries):
    """The groups section and extra_begin for entries sorted by their row tile."""
    counts = np.bincount(tile, minlength=row_tiles).astype(np.int64)
    extra = np.maximum(-(-counts // _GROUP_ENTRIES) - 1, 0)
    begin = np.zeros(row_tiles + 1, "<u4")
    np.cumsum(extra, out=begin[1:])
    groups = np.zeros((row_tiles + int(begin[-1]), _GROUP_ENTRIES), _ENTRY)
    groups["row"] = _EMPTY
    place = np.arange(tile.size) - np.repeat(np.cumsum(counts) - counts, counts)
    group = place // _GROUP_ENTRIES
    index = np.where(group == 0, tile, row_tiles + begin[tile].astype(np.int64) + group - 1)
    groups[index, place % _GROUP_ENTRIES] = entries
    return groups, begin


def _has_nonfinite(header, tiles, entries):
    if not header.flags & _HAS_NONFINITE and header.encoding != _SPLIT12:
        return False
    if header.encoding == _SPLIT12:
        return bool(np.any((entries["bits"] & 0x7F80) == 0x7F80))
    word, mask = ("<u4", 0x7F800000) if header.encoding == _RAW32 else ("<u2", 0x7F80)
    return bool(np.any((np.ascontiguousarray(tiles).view(word) & mask) == mask))


def _assemble(header, shape, tiles, tile=None, entries=None):
    """One packed matrix of `shape` from its tiles and exceptions."""
    tiles_offset = 256
    tiles_bytes = tiles.size
    exceptions = groups_offset = group_count = extra_offset = 0
    total = tiles_offset + tiles_bytes
    if header.encoding == _SPLIT12:
        groups, begin = _groups(tiles.shape[0], tile, entries)
        exceptions, group_count = entries.size, groups.shape[0]
        groups_offset = -(-total // 256) * 256
        extra_offset = -(-(groups_offset + groups.nbytes) // 256) * 256
        total = extra_offset + begin.nbytes
    flags = _HAS_NONFINITE if _has_nonfinite(header, tiles, entries) else 0
    out = np.zeros(total, np.uint8)
    out[:_HEADER.size] = np.frombuffer(
        _HEADER.pack(_MAGIC, 1, header.encoding, *shape, header.window_base, flags, exceptions,
                     tiles_offset, tiles_bytes, groups_offset, group_count, extra_offset, total,
                     0, 0, 0, 0), np.uint8)
    out[tiles_offset:tiles_offset + tiles_bytes].reshape(tiles.shape)[...] = tiles
    if header.encoding == _SPLIT12:
        out[groups_offset:groups_offset + groups.nbytes] = groups.view(np.uint8).reshape(-1)
        out[extra_offset:total] = begin.view(np.uint8)
    return out

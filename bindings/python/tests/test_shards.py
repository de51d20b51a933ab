# SPDX-License-Identifier: Apache-2.0
"""Parts of packed matrices, cut and joined as bytes: the library's reader must accept them."""

import numpy as np
import pytest
from conftest import weights

import slimgemm
from slimgemm import shards


def packed_array(matrix):
    return np.frombuffer(slimgemm.pack(matrix).tobytes(), np.uint8)


def unpacked(data):
    return slimgemm.Packed.from_bytes(data.tobytes()).unpack()


def matrices():
    """Every encoding, with and without exceptions, Inf and NaN, and odd shapes."""
    yield "plain", weights(64, 256)
    yield "exceptions", weights(160, 1000, exceptions=150)
    yield "odd", weights(100, 200, exceptions=19)
    yield "one_tile", weights(16, 64, exceptions=1)
    crowded = weights(512, 2048)
    crowded[33, :600] = 0x7149  # many groups of exceptions in one row tile
    yield "crowded", crowded
    yield "raw16", np.random.default_rng(1).integers(0, 65536, (96, 192)).astype(np.uint16)
    yield "raw32", np.random.default_rng(2).standard_normal((48, 130)).astype(np.float32)


@pytest.fixture(params=matrices(), ids=lambda case: case[0])
def matrix(request):
    return request.param[1]


def ranges(size, step):
    """(begin, end) ranges that can be cut out: all, halves, single steps, the rest."""
    edges = sorted({0, size, step, size // 2 // step * step, (size - 1) // step * step})
    return [(a, b) for a in edges for b in edges if a < b <= size]


def test_parts_have_their_bits(matrix):
    data = packed_array(matrix)
    for rows in ranges(matrix.shape[0], 16):
        for columns in ranges(matrix.shape[1], 64):
            part = unpacked(shards.take(data, rows, columns))
            expected = np.ascontiguousarray(matrix[slice(*rows), slice(*columns)])
            assert part.tobytes() == expected.tobytes(), (rows, columns)


def test_parts_make_the_whole(matrix):
    data = packed_array(matrix)
    n, k = matrix.shape
    edges = [0, *range(16, n, 32), n]
    parts = [shards.take(data, rows, (0, k)) for rows in zip(edges[:-1], edges[1:])]
    assert unpacked(shards.stack(parts)).tobytes() == matrix.tobytes()


def test_a_part_reads_no_other_bytes():
    """Other rows may be anything: here they are not there."""
    matrix = weights(64, 256, exceptions=20)
    data = packed_array(matrix).copy()
    header = shards.read_header(data)
    row_tile = header.k_tiles * header.tile_bytes
    data[header.tiles_offset:header.tiles_offset + 2 * row_tile] = 0xAA
    part = unpacked(shards.take(data, (32, 64), (0, 256)))
    assert part.tobytes() == matrix[32:].tobytes()


def test_a_part_of_a_part():
    matrix = weights(96, 512, exceptions=40)
    part = shards.take(packed_array(matrix), (16, 80), (64, 448))
    again = unpacked(shards.take(part, (16, 48), (128, 256)))
    assert again.tobytes() == np.ascontiguousarray(matrix[32:64, 192:320]).tobytes()


def test_finite_part_of_a_matrix_with_inf():
    """The reader wants the flag for Inf and NaN exactly where there are some."""
    matrix = weights(32, 64)
    matrix[3, 5] = 0x7F80
    data = packed_array(matrix)
    for rows in ((0, 16), (16, 32)):
        part = unpacked(shards.take(data, rows, (0, 64)))
        assert part.tobytes() == matrix[slice(*rows)].tobytes()


@pytest.mark.parametrize("rows, columns", [((8, 32), (0, 64)), ((0, 24), (0, 64)),
                                           ((0, 16), (32, 64)), ((0, 16), (0, 33))])
def test_what_cuts_a_tile_is_refused(rows, columns):
    with pytest.raises(ValueError, match="multiples of 16 and 64"):
        shards.take(packed_array(weights(64, 128)), rows, columns)


def test_ranges_beyond_the_matrix_are_refused():
    data = packed_array(weights(64, 128))
    for rows, columns in (((0, 80), (0, 64)), ((16, 16), (0, 64)), ((0, 16), (64, 192))):
        with pytest.raises(ValueError, match="that has"):
            shards.take(data, rows, columns)


def test_windows_that_differ_are_not_stacked():
    small = weights(16, 64)
    large = small + np.uint16(20 << 7)  # 2^20 times as large: another window
    parts = [packed_array(small), packed_array(large)]
    assert not shards.can_stack(parts)
    with pytest.raises(ValueError, match="cannot be stacked"):
        shards.stack(parts)


def test_what_is_no_packed_matrix():
    for data, message in ((b"short", "header alone"), (b"x" * 128, "no packed matrix"),
                          (b"SLIMPACK" + b"\x02" + b"\0" * 119, "version 2")):
        with pytest.raises(ValueError, match=message):
            shards.read_header(data)
    whole = packed_array(weights(64, 128))
    with pytest.raises(ValueError, match="are there"):
        shards.read_header(whole[:-1])
    padded = np.concatenate([whole, np.zeros(100, np.uint8)])
    assert shards.trim(padded).tobytes() == whole.tobytes()

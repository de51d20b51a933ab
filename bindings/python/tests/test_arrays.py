# SPDX-License-Identifier: Apache-2.0
"""The functions on arrays in host memory: NumPy alone."""

import ast
import pathlib
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import round_to_bf16, to_float, weights

import slimgemm
from slimgemm import _core


@pytest.mark.parametrize("rate, encoding", [(1.0, "split12"), (0.0, "raw16")])
def test_every_bit_comes_back(shape, rate, encoding):
    w = weights(*shape, exceptions=min(shape[0] * shape[1], 40))
    packed = slimgemm.pack(w, max_exception_rate=rate)
    assert (packed.n, packed.k) == shape
    assert (packed.dtype, packed.encoding) == ("bfloat16", encoding)
    assert np.array_equal(packed.unpack(), w)
    out = np.empty(shape, np.uint16)
    assert packed.unpack(out) is out
    assert np.array_equal(out, w)


def test_float32_is_kept(shape):
    w = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    packed = slimgemm.pack(w)
    assert (packed.dtype, packed.encoding) == ("float32", "raw32")
    assert np.array_equal(packed.unpack(), w)


def test_bytes(shape):
    packed = slimgemm.pack(weights(*shape))
    data = packed.tobytes()
    assert len(data) == packed.nbytes == len(memoryview(packed))
    assert bytes(memoryview(packed)) == data
    assert memoryview(packed).readonly
    padded = data + bytes(-len(data) % 256)
    for source in (data, bytearray(data), padded, np.frombuffer(data, np.uint8)):
        assert slimgemm.Packed.from_bytes(source).tobytes() == data
    assert pickle.loads(pickle.dumps(packed)).tobytes() == data


def test_bytes_that_are_wrong():
    data = bytearray(slimgemm.pack(weights(16, 64)).tobytes())
    with pytest.raises(ValueError):
        slimgemm.Packed.from_bytes(bytes(data[:-1]))
    with pytest.raises(ValueError):
        slimgemm.Packed.from_bytes(bytes(data) + b"\1" * (-len(data) % 256 or 256))
    with pytest.raises(ValueError):
        slimgemm.Packed.from_bytes(b"")
    data[0] ^= 1
    with pytest.raises(ValueError, match="magic"):
        slimgemm.Packed.from_bytes(bytes(data))


@pytest.mark.parametrize("m", [0, 1, 3, 64, 200])
def test_linear(shape, m):
    n, k = shape
    w = weights(n, k)
    x = round_to_bf16(np.random.default_rng(2).standard_normal((m, k)))
    got = slimgemm.linear(x, slimgemm.pack(w))
    assert got.shape == (m, n) and got.dtype == np.uint16
    exact = to_float(x).astype(np.float64) @ to_float(w).T.astype(np.float64)
    assert np.allclose(to_float(got), exact, rtol=2**-8, atol=1e-5 * k)


def test_linear_of_float32_weights():
    w = np.random.default_rng(1).standard_normal((24, 72)).astype(np.float32)
    x = round_to_bf16(np.random.default_rng(2).standard_normal((2, 3, 72)))
    got = slimgemm.linear(x, slimgemm.pack(w))
    assert got.shape == (2, 3, 24) and got.dtype == np.float32
    assert np.allclose(got, to_float(x).astype(np.float64) @ w.T.astype(np.float64), rtol=1e-5,
                       atol=1e-5)


@pytest.mark.parametrize("exceptions", [0, 60])
@pytest.mark.parametrize("encoding", ["split12", "raw16", "raw32"])
def test_a_row_does_not_depend_on_its_batch(encoding, exceptions):
    """With AVX-512; docs/python.md says so of no other target."""
    w = weights(80, 2000)
    w.reshape(-1)[np.arange(exceptions) * 731] = 0x0249  # tiny numbers
    if encoding == "raw32":
        w = to_float(w)
    packed = slimgemm.pack(w, max_exception_rate=0 if encoding == "raw16" else 1)
    if "cpu/avx512" not in _core.Layer.cpu(packed, False).plan(1):
        pytest.skip("no AVX-512 on this machine, or SLIMGEMM_CPU_TARGET is another")
    x = round_to_bf16(np.random.default_rng(3).standard_normal((256, 2000)))
    whole = slimgemm.linear(x, packed)
    for m in (1, 2, 3, 5, 8, 17, 32, 33, 64, 128, 129, 255):
        assert np.array_equal(slimgemm.linear(x[:m], packed), whole[:m]), m


def test_ml_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    w = weights(32, 64)
    x = round_to_bf16(np.random.default_rng(2).standard_normal((3, 64)))
    packed = slimgemm.pack(w.view(ml_dtypes.bfloat16))
    assert packed.tobytes() == slimgemm.pack(w).tobytes()
    got = slimgemm.linear(x.view(ml_dtypes.bfloat16), packed)
    assert got.dtype == ml_dtypes.bfloat16
    assert np.array_equal(got.view(np.uint16), slimgemm.linear(x, packed))
    out = np.empty((32, 64), ml_dtypes.bfloat16)
    assert np.array_equal(packed.unpack(out).view(np.uint16), w)


def test_arrays_that_are_not_contiguous():
    w = weights(64, 32)
    assert slimgemm.pack(w.T).tobytes() == slimgemm.pack(w.T.copy()).tobytes()
    x = round_to_bf16(np.random.default_rng(2).standard_normal((4, 64)))
    packed = slimgemm.pack(w)
    assert np.array_equal(slimgemm.linear(x[:, ::2], packed),
                          slimgemm.linear(x[:, ::2].copy(), packed))


@pytest.mark.parametrize("call, error, text", [
    (lambda: slimgemm.pack(np.zeros((2, 2))), ValueError, "float64"),
    (lambda: slimgemm.pack(np.zeros(4, np.uint16)), ValueError, "1 dimensions"),
    (lambda: slimgemm.pack(np.zeros((0, 4), np.uint16)), ValueError, "n"),
    (lambda: slimgemm.pack([[1.0]]), TypeError, "pack"),
    (lambda: slimgemm.linear(np.zeros((2, 3), np.uint16), slimgemm.pack(weights(2, 4))),
     ValueError, "k = 4"),
    (lambda: slimgemm.linear(np.zeros((2, 4), np.float32), slimgemm.pack(weights(2, 4))),
     ValueError, "float32"),
    (lambda: slimgemm.pack(weights(2, 4)).unpack(np.zeros((4, 2), np.uint16)), ValueError, "shape"),
    (lambda: slimgemm.pack(weights(2, 4)).unpack(np.zeros((2, 4), np.float32)), ValueError,
     "float32"),
])
def test_arguments_that_are_wrong(call, error, text):
    with pytest.raises(error, match=text):
        call()


def image_of(packed, spare, layout=None):
    layout = layout or _core.image_layout(packed, spare)
    image = np.full(layout.nbytes, 0xAB, np.uint8)
    _core.write_image(packed, layout, image.ctypes.data, image.size)
    return layout, image


@pytest.mark.parametrize("exceptions", [0, 16, 40, 2000])
@pytest.mark.parametrize("spare", [0, 5])
def test_device_images(exceptions, spare):
    """Exceptions of up to four times what a head holds, in one row tile of three."""
    w = weights(40, 100)
    w[16:32] = np.where(np.random.default_rng(5).random((16, 100)) < exceptions / 1600, 0x7F80,
                        w[16:32])
    packed = slimgemm.pack(w, max_exception_rate=1.0)
    layout, image = image_of(packed, spare)
    again = _core.read_image(layout, image.ctypes.data, image.size)
    assert again.tobytes() == packed.tobytes()
    assert layout.nbytes >= 3 * (2 * 1536 + 384) + 128 * spare


def test_device_images_of_raw_weights():
    for w in (weights(40, 100), to_float(weights(40, 100))):
        packed = slimgemm.pack(w, max_exception_rate=0)
        layout, image = image_of(packed, 3)
        assert _core.read_image(layout, image.ctypes.data, image.size).tobytes() == packed.tobytes()


@pytest.mark.parametrize("rate", [0, 1])
def test_an_image_that_is_written_again(rate):
    """The second weights hold Inf and NaN, the first none: the packed matrix must say so."""
    w = weights(40, 100)
    w[::7, ::5] = 0
    layout, _ = image_of(slimgemm.pack(w, max_exception_rate=rate), 5)
    for odd in (0x7F80, 0xFFC1, 0x0001):
        w[::7, ::5] = odd
        packed = slimgemm.pack(w, max_exception_rate=rate)
        _, image = image_of(packed, 0, layout)
        assert _core.read_image(layout, image.ctypes.data, image.size).tobytes() == packed.tobytes()


def test_weights_that_an_image_has_no_room_for():
    layout, _ = image_of(slimgemm.pack(weights(16, 640)), 2)
    w = weights(16, 640)
    w[:, :4] = 0  # 64 exceptions: two groups more than the head
    fits = slimgemm.pack(w, max_exception_rate=1)
    image_of(fits, 0, layout)
    w[:, :8] = 0
    with pytest.raises(ValueError, match="room"):
        image_of(slimgemm.pack(w, max_exception_rate=1), 0, layout)
    other = slimgemm.pack(round_to_bf16(to_float(weights(16, 640)) * 2**20), max_exception_rate=1)
    with pytest.raises(ValueError, match="window"):
        image_of(other, 0, layout)


def test_import_needs_no_torch():
    code = "import sys, slimgemm; assert 'torch' not in sys.modules; print(slimgemm.__version__)"
    package = pathlib.Path(slimgemm.__file__).parent
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            cwd=package.parent, check=True)
    assert result.stdout.strip() == slimgemm.__version__
    assert (package / "py.typed").exists()


def test_stub_is_that_of_the_module():
    """_core.pyi names what _core has, with the arguments that its functions take."""
    stub = pathlib.Path(slimgemm.__file__).parent / "_core.pyi"
    found = {node.name: node for node in ast.parse(stub.read_text("utf-8")).body
             if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    assert set(found) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in found.items():
        if isinstance(node, ast.ClassDef):
            members = {name for name in vars(getattr(_core, name)) if not name.startswith("_")}
            assert members == {member.name for member in node.body}, name
            continue
        signature = getattr(_core, name).__nb_signature__[0][0]
        assert re.findall(r"(\w+): ", signature) == [a.arg for a in node.args.args], name

# SPDX-License-Identifier: Apache-2.0
"""PackedLinear and torch.ops.slimgemm on the CPU."""

import ast
import copy
import inspect
import io
import pathlib
import pickle

import numpy as np
import pytest
from conftest import weights

torch = pytest.importorskip("torch")

import slimgemm
from slimgemm import torch as st
from slimgemm.torch import _ops

BF16 = torch.bfloat16


def tensor(bits):
    return torch.from_numpy(bits.view(np.int16).copy()).view(BF16)


def same_bits(a, b):
    """NaNs compare, too."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))


def linear(n=48, k=100, bias=True, dtype=BF16, seed=0):
    torch.manual_seed(seed)
    layer = torch.nn.Linear(k, n, bias=bias, dtype=dtype)
    with torch.no_grad():
        layer.weight.copy_(tensor(weights(n, k, seed)).to(dtype))
    return layer


def x_of(*shape, seed=3):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(BF16)


def close(got, layer, x):
    """Against FP64. The bias is one more rounding, of a number that may be larger."""
    exact = x.double() @ layer.weight.double().T
    if layer.bias is not None:
        exact = exact + layer.bias.double()
    assert torch.allclose(got.double(), exact, rtol=2**-7, atol=2e-3)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dims", [(100,), (1, 100), (2, 3, 100), (1, 1, 1, 100), (40, 100)])
def test_forward(dims, bias):
    dense = linear(bias=bias)
    layer = st.PackedLinear.from_linear(dense)
    x = x_of(*dims)
    got = layer(x)
    assert got.shape == (*dims[:-1], 48) and got.dtype is BF16
    close(got, dense, x)
    assert (layer.in_features, layer.out_features) == (100, 48)
    assert same_bits(layer.weight, dense.weight.detach())
    if bias:
        assert same_bits(layer.bias.detach(), dense.bias.detach())


@pytest.mark.parametrize("make", [
    lambda x: x.expand(5, 100), lambda x: x_of(100, 4).T, lambda x: x_of(3, 200)[:, ::2],
    lambda x: x_of(3, 150)[:, :100], lambda x: x_of(2, 6, 150)[:, ::2, 50:]
])
def test_x_that_is_not_contiguous(make):
    layer = st.PackedLinear.from_linear(linear())
    x = make(x_of(1, 100))
    assert same_bits(layer(x), layer(x.clone(memory_format=torch.contiguous_format)))


@pytest.mark.parametrize("dims", [(0, 100), (2, 0, 100)])
def test_x_that_is_empty(dims):
    layer = st.PackedLinear.from_linear(linear())
    assert layer(torch.empty(dims, dtype=BF16)).shape == (*dims[:-1], 48)
    assert layer.weight.shape == (48, 100)


def test_exact_mode_has_the_bits_of_nn_linear():
    dense = linear(64, 96)
    layer = st.PackedLinear.from_linear(dense, exact=True)
    for m in (1, 3, 70):
        assert same_bits(layer(x_of(m, 96)), dense(x_of(m, 96)))


def test_under_another_default_device():
    dense = linear()
    packed = st.pack_weight(dense.weight)
    x = x_of(2, 100)
    with torch.device("meta"):
        layer = st.PackedLinear.from_packed(packed, device="cpu")
        assert same_bits(layer.weight, dense.weight.detach())
        assert slimgemm.linear(x, packed).device.type == "cpu"


@pytest.mark.parametrize("target", ["scalar", "avx2", "avx512", "avx512bf16"])
@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_batch_invariance(dtype, target, monkeypatch):
    """Also on the targets whose kernels for a few tokens add in another order."""
    monkeypatch.setenv("SLIMGEMM_CPU_TARGET", target)
    dense = linear(64, 1000, dtype=dtype)
    try:
        layer = st.PackedLinear.from_linear(dense, batch_invariant=True)
    except ValueError as error:
        pytest.skip(str(error))
    x = x_of(70, 1000)
    whole = layer(x)
    for m in range(1, 70):
        assert same_bits(layer(x[:m]), whole[:m]), m
    with pytest.raises(ValueError, match="exclude each other"):
        st.PackedLinear.from_linear(dense, batch_invariant=True, exact=True)


def test_odd_weights_come_back():
    w = tensor(weights(33, 70, exceptions=300))
    packed = st.pack_weight(w)
    layer = st.PackedLinear.from_packed(packed)
    assert same_bits(layer.weight, w)
    assert layer.packed().tobytes() == packed.tobytes() == slimgemm.pack(w).tobytes()


def test_float32_weights_take_bfloat16_and_give_float32():
    dense = linear(16, 64, dtype=torch.float32)
    layer = st.PackedLinear.from_linear(dense)
    x = x_of(5, 64)
    got = layer(x)
    assert got.dtype is torch.float32
    assert torch.allclose(got, dense(x.float()), rtol=1e-5, atol=1e-5)
    assert same_bits(layer.weight, dense.weight.detach())
    exact = st.PackedLinear.from_linear(dense, exact=True)
    assert same_bits(exact(x), dense(x.float()))


def test_autocast():
    layer = st.PackedLinear.from_linear(linear())
    x = x_of(2, 100).float()
    with pytest.raises(TypeError, match="float32"):
        layer(x)
    with torch.autocast("cpu", dtype=BF16):
        assert same_bits(layer(x), layer(x.to(BF16)))


@pytest.mark.parametrize("exact", [False, True])
def test_compile(exact):
    layer = st.PackedLinear.from_linear(linear(), exact=exact)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    for dims in ((3, 100), (2, 7, 100), (1, 100), (0, 100)):
        assert same_bits(compiled(x_of(*dims)), layer(x_of(*dims)))
    layer.update_(linear(seed=5).weight)
    assert same_bits(compiled(x_of(3, 100)), layer(x_of(3, 100)))


def graphs_of_layers_compiled_one_by_one(layers, x):
    """As engines do it that compile a block of a model, not the whole."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    for layer in layers:
        block = torch.nn.Sequential(layer, torch.nn.SiLU())
        compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
        assert same_bits(compiled(x), block(x))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_layers_of_one_shape_share_a_compiled_graph():
    layers = [st.PackedLinear.from_linear(linear(64, 256, seed=i)) for i in range(12)]
    assert len({layer.weights.numel() for layer in layers}) == 1
    assert graphs_of_layers_compiled_one_by_one(layers, x_of(2, 256)) == 1


def test_inductor():
    model = torch.nn.Sequential(st.PackedLinear.from_linear(linear()), torch.nn.SiLU(),
                                st.PackedLinear.from_linear(linear(32, 48)))
    try:
        got = torch.compile(model, fullgraph=True)(x_of(3, 100))
    except Exception as error:  # no C++ compiler, or one that inductor refuses
        if "InductorError" in type(error).__name__ or "CppCompileError" in str(error):
            pytest.skip(f"inductor does not work here: {error}"[:200])
        raise
    assert torch.allclose(got.float(), model(x_of(3, 100)).float(), rtol=0.02, atol=0.02)


def test_autograd_is_registered():
    layer = st.PackedLinear.from_linear(linear(bias=False))
    torch.library.opcheck(_ops.linear, (x_of(2, 100).requires_grad_(), layer.weights, 48, BF16, 0),
                          test_utils="test_autograd_registration")


def test_gradients_reach_x_and_the_bias():
    dense = linear()
    layer = st.PackedLinear.from_linear(dense)
    a, b = x_of(4, 100).requires_grad_(), x_of(4, 100).requires_grad_()
    layer(a).square().sum().backward()
    dense(b).square().sum().backward()
    assert torch.allclose(a.grad.float(), b.grad.float(), rtol=0.05, atol=0.02)
    assert torch.allclose(layer.bias.grad.float(), dense.bias.grad.float(), rtol=0.05, atol=0.05)
    with torch.no_grad():
        assert same_bits(layer(a), layer(a.detach()))


def copies(layer):
    yield "pickle", pickle.loads(pickle.dumps(layer))
    yield "deepcopy", copy.deepcopy(layer)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    yield "torch.save", torch.load(file, weights_only=False)
    other = st.PackedLinear.empty(100, 48, bias=layer.bias is not None, dtype=layer.dtype)
    assert not other.is_filled
    other.load_state_dict(layer.state_dict())
    yield "state_dict", other


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_copies(dtype):
    layer = st.PackedLinear.from_linear(linear(dtype=dtype))
    for how, other in copies(layer):
        assert other is not layer and other.weights.data_ptr() != layer.weights.data_ptr(), how
        assert same_bits(other(x_of(3, 100)), layer(x_of(3, 100))), how
        assert other.packed().tobytes() == layer.packed().tobytes(), how


def test_state_dict():
    dense = linear()
    layer = st.PackedLinear.from_linear(dense)
    state = layer.state_dict()
    assert set(state) == {"bias", "weight_packed"}
    assert state["weight_packed"].numpy().tobytes() == layer.packed().tobytes()
    padded = torch.cat([state["weight_packed"], torch.zeros(
        -state["weight_packed"].numel() % 256, dtype=torch.uint8)])
    other = st.PackedLinear.empty(100, 48)
    other.load_state_dict({"weight_packed": padded, "bias": state["bias"]})
    assert same_bits(other.weight, dense.weight.detach())
    # One that an nn.Linear saved.
    other = st.PackedLinear.empty(100, 48)
    other.load_state_dict(dense.state_dict())
    assert same_bits(other(x_of(2, 100)), layer(x_of(2, 100)))
    with pytest.raises(RuntimeError, match="weight_packed"):
        other.load_state_dict({"bias": state["bias"]})
    with pytest.raises(RuntimeError, match="nothing_of_ours"):
        other.load_state_dict({**state, "nothing_of_ours": state["bias"]})
    with pytest.raises(RuntimeError, match="magic"):
        other.load_state_dict({**state, "weight_packed": torch.zeros(300, dtype=torch.uint8)})
    with pytest.raises(RuntimeError, match="this layer is"):
        st.PackedLinear.empty(100, 64).load_state_dict(
            {"weight_packed": state["weight_packed"], "bias": torch.zeros(64)})


def test_update():
    layer = st.PackedLinear.from_linear(linear())
    new = linear(seed=7)
    assert layer.update_(new.weight) is layer
    assert same_bits(layer.weight, new.weight.detach())
    assert same_bits(layer(x_of(3, 100)), st.PackedLinear.from_packed(
        slimgemm.pack(new.weight), layer.bias)(x_of(3, 100)))
    with pytest.raises(ValueError, match="100"):
        layer.update_(torch.zeros(100, 48, dtype=BF16))
    with pytest.raises(ValueError, match="float32"):
        layer.update_(torch.zeros(48, 100))
    with pytest.raises(TypeError, match="float16"):
        layer.update_(torch.zeros(48, 100, dtype=torch.float16))
    assert same_bits(layer.weight, new.weight.detach())


def test_lora_beside_a_packed_layer():
    layer = st.PackedLinear.from_linear(linear())
    torch.manual_seed(0)
    a, b = torch.randn(4, 100, dtype=BF16) * 0.1, torch.randn(48, 4, dtype=BF16) * 0.1
    x = x_of(3, 100)
    beside = layer(x) + (x @ a.T) @ b.T
    layer.update_(layer.weight + b @ a)
    assert torch.allclose(layer(x).float(), beside.float(), rtol=0.05, atol=0.1)


def test_module_functions_that_move_tensors():
    layer = st.PackedLinear.from_linear(linear())
    want = layer(x_of(2, 100))
    for call in (lambda: layer.to("cpu"), lambda: layer.share_memory(), lambda: layer.eval(),
                 lambda: layer.to(BF16)):
        call()
        assert same_bits(layer(x_of(2, 100)), want)
    layer.to(torch.float32)
    assert layer.weight.dtype is BF16
    layer.to("meta")
    assert layer.weights.is_meta and not layer.is_filled


def test_meta_to_filled():
    with torch.device("meta"):
        layer = st.PackedLinear.empty(100, 48)
    assert layer.weights.is_meta
    dense = linear()
    with pytest.raises(ValueError, match="to_empty"):
        layer.load_packed_(st.pack_weight(dense.weight))
    layer.to_empty(device="cpu")
    layer.load_state_dict(st.PackedLinear.from_linear(dense).state_dict())
    close(layer(x_of(2, 100)), dense, x_of(2, 100))


def test_memory_of_a_layer_is_given_back():
    layer = st.PackedLinear.from_linear(linear())
    address = layer.weights.data_ptr()
    x = x_of(1, 100)
    weights_alone = layer.weights
    del layer
    with pytest.raises(ValueError, match="no PackedLinear"):
        _ops.linear(x, weights_alone, 48, BF16, 0)
    assert weights_alone.data_ptr() == address


def test_plan():
    layer = st.PackedLinear.from_linear(linear())
    assert "cpu/" in layer.plan(8) and "cpu/" in layer.plan(100_000)
    layer.exact = True
    assert "F.linear" in layer.plan(8)
    assert not _ops.is_dense(4095, BF16, 4096) and _ops.is_dense(4096, BF16, 4096)
    assert not _ops.is_dense(10**6, BF16, 0) and not _ops.is_dense(4096, torch.float32, 4096)


def parameters(function):
    """Names of the parameters of a function, from its definition in a stub."""
    arguments = function.args
    names = [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
    names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a]
    return [name for name in names if name not in ("self", "cls")]


@pytest.mark.parametrize("module", [slimgemm, st], ids=lambda module: module.__name__)
def test_the_stubs_say_what_the_code_says(module):
    tree = ast.parse(pathlib.Path(module.__file__).with_suffix(".pyi").read_text())
    checked = 0
    for node in tree.body:
        members = node.body if isinstance(node, ast.ClassDef) else [node]
        owner = getattr(module, node.name) if isinstance(node, ast.ClassDef) else module
        for member in members:
            if isinstance(member, ast.FunctionDef) and not member.decorator_list:
                given = list(inspect.signature(getattr(owner, member.name)).parameters)
                assert [n for n in given if n != "self"] == parameters(member), member.name
                checked += 1
    assert checked >= 2
    for name in module.__all__:
        assert name in ast.unparse(tree), name


def test_layers_that_share_packed_bytes():
    packed = st.pack_weight(linear().weight)
    x = x_of(2, 100)
    first = st.PackedLinear.from_packed(packed)
    want = first(x)
    second = st.PackedLinear.from_packed(packed)
    assert second.weights.data_ptr() == first.weights.data_ptr()
    del second
    assert same_bits(first(x), want)


@pytest.mark.parametrize("call, error, text", [
    (lambda l: l(torch.zeros(2, 99, dtype=BF16)), ValueError, "99"),
    (lambda l: l(torch.zeros(0, 99, dtype=BF16)), ValueError, "99"),
    (lambda l: l(torch.zeros(2, 0, dtype=BF16)), ValueError, "is 0"),
    (lambda l: l(torch.zeros(2, 100, dtype=torch.float16)), TypeError, "float16"),
    (lambda l: l(torch.zeros(2, 100, dtype=BF16, device="meta")), Exception, ""),
    (lambda l: st.PackedLinear.empty(100, 48)(x_of(2, 100)), ValueError, "no weights yet"),
    (lambda l: st.PackedLinear.empty(100, 48).weight, RuntimeError, "no weights yet"),
    (lambda l: st.PackedLinear.from_linear(torch.nn.Linear(4, 4, dtype=torch.float16)), TypeError,
     "float16"),
    (lambda l: st.PackedLinear.from_linear(torch.nn.Linear(4, 4, dtype=BF16, device="meta")),
     ValueError, "meta"),
    (lambda l: st.PackedLinear(4, 4, dtype=torch.float16), TypeError, "float16"),
    (lambda l: st.PackedLinear.from_packed(l.packed(), torch.zeros(3)), ValueError, "bias"),
    (lambda l: _ops.linear(x_of(2, 100), l.weights, 47, BF16, 0), ValueError, "47"),
    (lambda l: _ops.linear(x_of(2, 100), l.weights, 48, torch.float32, 0), ValueError, "size"),
    (lambda l: _ops.linear(x_of(2, 100), l.weights.clone(), 48, BF16, 0), ValueError,
     "no PackedLinear"),
])
def test_arguments_that_are_wrong(call, error, text):
    with pytest.raises(error, match=text or None):
        call(st.PackedLinear.from_linear(linear()))

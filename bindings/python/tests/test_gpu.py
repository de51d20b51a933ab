# SPDX-License-Identifier: Apache-2.0
"""PackedLinear on a Hopper GPU. Skipped without one, and in a build without CUDA."""

import copy
import pickle

import numpy as np
import pytest
from conftest import weights

torch = pytest.importorskip("torch")

import slimgemm
from slimgemm import _core
from slimgemm import torch as st
from slimgemm.torch import _ops
from test_layer import graphs_of_layers_compiled_one_by_one, linear, same_bits, tensor, x_of


def reason_to_skip():
    if not _core.has_cuda():
        return "slimgemm was built without CUDA"
    if not torch.cuda.is_available():
        return "torch finds no CUDA device"
    if torch.cuda.get_device_capability() != (9, 0):
        return "the GPU is no Hopper"
    return ""


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(bool(reason_to_skip()), reason=reason_to_skip())]

BF16 = torch.bfloat16
SHAPES = [(16, 64), (48, 100), (1, 1), (33, 7), (257, 513), (1024, 2048)]


def close(got, x, weight):
    exact = x.double() @ weight.double().T
    error = (got.double() - exact).norm() / exact.norm()
    assert error < 4e-3, error


def cuda_linear(*args, **kwargs):
    return linear(*args, **kwargs).cuda()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("exceptions", [0, 1, 400])
def test_the_gpu_packs_what_the_cpu_packs(shape, exceptions):
    w = tensor(weights(*shape, exceptions=min(exceptions, shape[0] * shape[1] // 2)))
    assert st.pack_weight(w.cuda()).tobytes() == slimgemm.pack(w).tobytes()
    layer = st.PackedLinear.empty(shape[1], shape[0], False, BF16, "cuda").update_(w)
    assert layer.packed().tobytes() == slimgemm.pack(w).tobytes()
    assert same_bits(layer.weight.cpu(), w)


@pytest.mark.parametrize("rate", [0.0, 1.0])
@pytest.mark.parametrize("exceptions", [0, 100, 3000])
def test_images_of_the_host_and_of_the_device_agree(rate, exceptions):
    """With up to 3000 exceptions in one row tile: 94 groups after its head."""
    w = weights(100, 640)
    places = np.random.default_rng(1).choice(16 * 640, exceptions, replace=False)
    w[32:48].reshape(-1)[places] = 0x7F80
    packed = slimgemm.pack(w, max_exception_rate=rate)
    layer = st.PackedLinear.from_packed(packed, device="cuda")
    assert same_bits(layer.weight.cpu(), tensor(w))
    image = layer.weights.clone()
    layer.weights.fill_(0xAB)
    layer.update_(tensor(w))
    assert torch.equal(layer.weights, image)
    assert layer.packed().tobytes() == packed.tobytes()


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_float32(shape):
    w = torch.randn(shape)
    packed = slimgemm.pack(w)
    layer = st.PackedLinear.from_packed(packed, device="cuda")
    assert same_bits(layer.weight.cpu(), w)
    x = x_of(3, shape[1]).cuda()
    assert layer(x).dtype is torch.float32
    assert torch.allclose(layer(x).double(), x.double() @ w.double().T.cuda(), rtol=1e-4, atol=1e-3)
    layer.update_(2 * w)
    assert same_bits(layer.weight.cpu(), 2 * w)


@pytest.mark.parametrize("m", [0, 1, 2, 7, 8, 16, 33, 64, 128, 200, 256, 1000, 5000])
def test_forward(m):
    dense = cuda_linear(1024, 2048, bias=False)
    layer = st.PackedLinear.from_linear(dense)
    assert layer.weights.is_cuda
    x = x_of(m, 2048).cuda()
    got = layer(x)
    assert got.shape == (m, 1024) and got.dtype is BF16
    if m:
        close(got, x, dense.weight)
    assert same_bits(layer(x), got)


def test_shapes_and_strides_of_x():
    dense = cuda_linear(128, 256, bias=False)
    layer = st.PackedLinear.from_linear(dense)
    x = x_of(6, 512).cuda()
    for view in (x[:, :256], x[:, ::2], x[:1, :256].expand(5, 256), x[0, :256],
                 x.view(2, 3, 512)[..., 256:], x[:0, :256], x.view(6, 2, 256)[:, 1]):
        assert same_bits(layer(view), layer(view.clone(memory_format=torch.contiguous_format)))
    close(layer(x[:, 1:257]), x[:, 1:257], dense.weight)  # unaligned: maybe another kernel


@pytest.mark.parametrize("m", [1, 8, 300, 4096])
def test_exact_mode_has_the_bits_of_nn_linear(m):
    dense = cuda_linear(1024, 2048)
    layer = st.PackedLinear.from_linear(dense, exact=True)
    assert same_bits(layer(x_of(m, 2048).cuda()), dense(x_of(m, 2048).cuda()))


def test_many_tokens_go_through_dense_scratch(monkeypatch):
    dense = cuda_linear(1000, 512, bias=False)
    layer = st.PackedLinear.from_linear(dense)
    x = x_of(128, 512).cuda()
    fused = layer(x)
    layer.dense_from = 100
    assert same_bits(layer(x), dense(x))
    close(layer(x[:99]), x[:99], dense.weight)
    close(fused, x, dense.weight)
    monkeypatch.setattr(_ops, "DENSE_BYTES_MAX", 100 * 1024)
    close(layer(x.view(2, 64, 512)).view(128, 1000), x, dense.weight)


def capture(layer, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            layer(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        out = layer(x)
    return graph, out


@pytest.mark.parametrize("m", [1, 16, 128, 256])
@pytest.mark.parametrize("mode", ["plain", "programmatic", "exact", "dense"])
def test_graphs_and_updates(m, mode):
    layer = st.PackedLinear.from_linear(cuda_linear(512, 1024), exact=mode == "exact",
                                        programmatic_launch=mode == "programmatic")
    if mode == "dense":
        layer.dense_from = 1
    x = x_of(m, 1024).cuda()
    graph, out = capture(layer, x)
    address = layer.weights.data_ptr()
    for seed in range(3):
        new = cuda_linear(512, 1024, seed=seed)
        layer.update_(new.weight)
        x.copy_(x_of(m, 1024, seed=seed))
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        graph.replay()
        torch.cuda.synchronize()
        assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
        fresh = st.PackedLinear.from_packed(st.pack_weight(new.weight), layer.bias, "cuda",
                                            exact=mode == "exact")
        fresh.dense_from = layer.dense_from
        assert same_bits(out, fresh(x))
        assert same_bits(layer.weight, new.weight.detach())
    assert layer.weights.data_ptr() == address


@pytest.mark.parametrize("dtype", [BF16, torch.float32])
def test_under_another_default_device(dtype):
    """Engines build models under torch.device("cuda"): what the host writes must not lie there."""
    weight = cuda_linear(80, 128).weight.detach().to(dtype)
    packed = st.pack_weight(weight)
    with torch.device("cuda"):
        layer = st.PackedLinear.from_packed(packed, device="cuda")
        assert same_bits(layer.weight, weight)
        layer.update_(weight)
        assert same_bits(layer.weight, weight)
        assert layer.packed().tobytes() == packed.tobytes()
        assert same_bits(packed_weight_on_cpu(packed), weight.cpu())


def packed_weight_on_cpu(packed):
    return st.PackedLinear.from_packed(packed, device="cpu").weight


@pytest.mark.parametrize("n, k", [(2304, 1024), (512, 4096)])
def test_batch_invariance(n, k):
    dense = cuda_linear(n, k)
    layer = st.PackedLinear.from_linear(dense, batch_invariant=True)
    assert "batch invariant" in layer.plan(7)
    x = x_of(600, k).cuda()
    whole = layer(x)
    for m in [*range(1, 257), 300, 511]:
        assert same_bits(layer(x[:m]), whole[:m]), m
    layer.update_(dense.weight)
    assert same_bits(layer(x[:3]), whole[:3])


def test_an_update_that_does_not_fit_changes_nothing():
    dense = cuda_linear(256, 512)
    layer = st.PackedLinear.from_linear(dense)
    image = layer.weights.clone()
    with pytest.raises(ValueError, match="room"):
        layer.update_(dense.weight.detach() * 2**30)
    assert torch.equal(layer.weights, image)
    layer.load_packed_(st.pack_weight(dense.weight.detach() * 2**30))
    assert same_bits(layer.weight, dense.weight.detach() * 2**30)


def test_small_changes_fit():
    dense = cuda_linear(2048, 2048)
    layer = st.PackedLinear.from_linear(dense)
    weight = dense.weight.detach().float()
    for _ in range(5):
        weight += 1e-3 * torch.randn_like(weight)
        layer.update_(weight.to(BF16))
        assert same_bits(layer.weight, weight.to(BF16))


def test_streams():
    layer = st.PackedLinear.from_linear(cuda_linear(512, 1024))
    x = x_of(4, 1024).cuda()
    want = layer(x)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # If the layer ran on another stream it would read the zeros.
        late = torch.zeros_like(x)
        torch.cuda._sleep(20_000_000)
        late.copy_(x)
        got = layer(late)
    stream.synchronize()
    assert same_bits(got, want)


def test_devices_and_copies():
    cpu = st.PackedLinear.from_linear(linear(64, 128))
    data = cpu.packed().tobytes()
    layer = copy.deepcopy(cpu).cuda()
    assert layer.weights.is_cuda and layer.bias.is_cuda
    others = [copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), layer]
    others.append(st.PackedLinear.empty(128, 64, device="cuda"))
    others[-1].load_state_dict(layer.state_dict())
    x = x_of(3, 128).cuda()
    for other in others:
        assert other.weights.is_cuda
        assert other.packed().tobytes() == data
        assert same_bits(other(x), layer(x))
    layer.cpu()
    assert layer.packed().tobytes() == data and same_bits(layer(x.cpu()), cpu(x.cpu()))
    with pytest.raises(ValueError, match="cuda"):
        layer(x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compile(mode):
    pytest.importorskip("triton")
    model = torch.nn.Sequential(*[st.PackedLinear.from_linear(cuda_linear(512, 512, seed=i))
                                  for i in range(3)])
    compiled = torch.compile(model, fullgraph=True, mode=mode)
    with torch.no_grad():
        for m in (1, 1, 1, 8, 64, 64):
            x = x_of(m, 512).cuda()
            got = compiled(x).clone()
            assert torch.allclose(got.float(), model(x).float(), rtol=0.02, atol=0.02)
        model[1].update_(cuda_linear(512, 512, seed=9).weight)
        x = x_of(1, 512).cuda()
        assert torch.allclose(compiled(x).float(), model(x).float(), rtol=0.02, atol=0.02)


def test_layers_of_one_shape_share_a_compiled_graph():
    layers = []
    for seed in range(4):
        dense = cuda_linear(1024, 2048, seed=seed)
        with torch.no_grad():
            dense.weight[:16, :4 * seed] = 0  # up to 192 exceptions: not the same number in each
        layers.append(st.PackedLinear.from_linear(dense))
    assert len({layer.weights.numel() for layer in layers}) == 1
    assert graphs_of_layers_compiled_one_by_one(layers, x_of(2, 2048).cuda()) == 1


def test_gradients():
    dense = cuda_linear(256, 512)
    layer = st.PackedLinear.from_linear(dense)
    a, b = (x_of(4, 512).cuda().requires_grad_() for _ in range(2))
    layer(a).square().sum().backward()
    dense(b).square().sum().backward()
    assert torch.allclose(a.grad.float(), b.grad.float(), rtol=0.05, atol=0.02)


def test_memory():
    """A layer is packed without a second dense copy, a model without more than a layer."""
    n, k, count = 4096, 4096, 6
    model = torch.nn.Sequential(*[torch.nn.Linear(k, n, bias=False, dtype=BF16, device="cuda")
                                  for _ in range(count)])
    for layer in model:
        torch.nn.init.normal_(layer.weight, std=0.02)
    del layer  # it would keep its dense weight
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    st.pack_model(model, progress=False)
    dense = n * k * 2
    assert torch.cuda.max_memory_allocated() - before < 0.78 * dense
    after = torch.cuda.memory_allocated()
    assert after - before < -0.24 * count * dense
    # Packed on the way to the GPU: one dense layer at a time.
    on_cpu = torch.nn.Linear(k, n, bias=False, dtype=BF16)
    torch.nn.init.normal_(on_cpu.weight, std=0.02)
    layer = st.PackedLinear.from_linear(on_cpu, device="cuda")
    assert same_bits(layer.weight.cpu(), on_cpu.weight.detach())

# SPDX-License-Identifier: Apache-2.0
"""The plug-in in SGLang's own layer classes, rank by rank, on the CPU.

Runs where `sglang` can be imported; of its package of kernels nothing is needed.
"""

import pytest

torch = pytest.importorskip("torch")
linear_layers = pytest.importorskip("sglang.srt.layers.linear", exc_type=ImportError)

from torch.nn.functional import linear  # noqa: E402

import slimgemm.torch as slim  # noqa: E402
from slimgemm.integrations import settings, sglang, sglang_layers  # noqa: E402

K, HEAD, HEADS, KV_HEADS = 256, 64, 8, 4


@pytest.fixture(autouse=True)
def bfloat16():
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    yield
    torch.set_default_dtype(default)


@pytest.fixture(params=[(0, 1), (0, 2), (1, 2), (3, 4), (7, 8)], ids=str)
def rank(request, monkeypatch):
    """A rank of a tensor-parallel group that has not been started."""
    group = linear_layers._LogicalGroup(*request.param)
    monkeypatch.setattr(linear_layers, "_resolve_linear_group", lambda parallel_group: group)
    return request.param


def weights(*shapes):
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(*shape, generator=generator, dtype=torch.float32).mul_(0.02)
            .to(torch.bfloat16) for shape in shapes]


def stored(weight):
    """A tensor as a packed checkpoint has it: padded to a multiple of 256 bytes."""
    data = torch.frombuffer(bytearray(slim.pack_weight(weight).tobytes()), dtype=torch.uint8)
    return torch.nn.functional.pad(data, (0, -len(data) % 256))


def load(layer, tensors, packed, shards):
    """Loads tensors as a model's load_weights does, and finishes the layer."""
    param = dict(layer.named_parameters())["weight_packed" if packed else "weight"]
    for tensor, shard in zip(tensors, shards):
        arguments = () if shard is None else (shard,)
        param.weight_loader(param, stored(tensor) if packed else tensor, *arguments)
    layer.quant_method.process_weights_after_loading(layer)


def part(weight, dim, index, count):
    size = weight.shape[dim] // count
    return weight.narrow(dim, index * size, size)


def check(layer, expected):
    assert torch.equal(layer.slimgemm.dense(), expected)
    x = torch.randn(3, expected.shape[1])
    out = layer.quant_method.apply(layer, x)
    assert out.dtype == torch.bfloat16
    torch.testing.assert_close(out, linear(x, expected), rtol=0.02, atol=0.02)


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_qkv(rank, packed):
    layer = linear_layers.QKVParallelLinear(
        K, HEAD, HEADS, KV_HEADS, bias=False, quant_config=sglang_layers.SlimgemmConfig(),
        prefix="model.layers.0.self_attn.qkv_proj")
    q, k, v = weights((HEADS * HEAD, K), (KV_HEADS * HEAD, K), (KV_HEADS * HEAD, K))
    load(layer, (k, q, v), packed, "kqv")
    index, count = rank
    replicas = max(count // KV_HEADS, 1)  # with 8 ranks, two of them share a key head
    check(layer, torch.cat([part(q, 0, index, count),
                            part(k, 0, index // replicas, min(count, KV_HEADS)),
                            part(v, 0, index // replicas, min(count, KV_HEADS))]))
    assert layer.slimgemm.linear is not None


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
def test_gate_up(rank, packed):
    layer = linear_layers.MergedColumnParallelLinear(
        K, [512, 512], bias=False, quant_config=sglang_layers.SlimgemmConfig(),
        prefix="model.layers.0.mlp.gate_up_proj")
    gate, up = weights((512, K), (512, K))
    load(layer, (gate, up), packed, (0, 1))
    check(layer, torch.cat([part(gate, 0, *rank), part(up, 0, *rank)]))


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "packed"])
@pytest.mark.parametrize("columns", [1024, 768 - 256 // 2], ids=["tiles", "no_whole_tiles"])
def test_row_parallel(rank, packed, columns):
    layer = linear_layers.RowParallelLinear(
        columns, K, bias=False, quant_config=sglang_layers.SlimgemmConfig(),
        prefix="model.layers.0.mlp.down_proj")
    (weight,) = weights((K, columns))
    load(layer, [weight], packed, [None])
    check(layer, part(weight, 1, *rank))


def test_update(rank):
    """Plain tensors that arrive later replace the weights of the same layer object."""
    layer = linear_layers.MergedColumnParallelLinear(
        K, [512, 512], bias=False, quant_config=sglang_layers.SlimgemmConfig(), prefix="gate_up")
    gate, up, new_gate, new_up = weights(*[(512, K)] * 4)
    load(layer, (gate, up), True, (0, 1))
    packed_layer = layer.slimgemm.linear
    load(layer, (new_gate, new_up), False, (0, 1))
    assert layer.slimgemm.linear is packed_layer
    check(layer, torch.cat([part(new_gate, 0, *rank), part(new_up, 0, *rank)]))


def test_half_an_update_is_refused(rank):
    layer = linear_layers.MergedColumnParallelLinear(
        K, [512, 512], bias=False, quant_config=sglang_layers.SlimgemmConfig(), prefix="gate_up")
    gate, up = weights((512, K), (512, K))
    load(layer, (gate, up), True, (0, 1))
    with pytest.raises(RuntimeError, match="gate_up"):
        load(layer, [gate], False, [0])


def test_router_runs_in_fp32():
    layer = linear_layers.ReplicatedLinear(
        K, 64, bias=False, quant_config=sglang_layers.SlimgemmConfig(), prefix="mlp.gate",
        params_dtype=torch.float32)
    (weight,) = weights((64, K))
    load(layer, [weight.float()], False, [None])
    x = torch.randn(2, K)
    out = layer.quant_method.apply(layer, x)
    assert out.dtype == torch.float32
    torch.testing.assert_close(out, linear(x.float(), weight.float()), rtol=1e-5, atol=1e-5)


def test_registered():
    from sglang.srt.layers.quantization import get_quantization_config
    sglang.register()
    sglang.register()
    assert get_quantization_config("slimgemm") is sglang_layers.SlimgemmConfig
    assert all(choices.count("slimgemm") == 1 for choices in sglang._choices())


def test_refused_options():
    from types import SimpleNamespace as Names
    sglang_layers.refuse_unsupported(Names(load_format="auto", cpu_offload_gb=0))
    for name, value in (("load_format", "gguf"), ("cpu_offload_gb", 8), ("dtype", "half")):
        with pytest.raises(ValueError, match=f"{name}={value}"):
            sglang_layers.refuse_unsupported(Names(**{name: value}))


def test_switch_for_batch_invariance():
    from types import SimpleNamespace as Names
    args = Names(enable_deterministic_inference=True)
    assert not sglang_layers.under_switch(settings.Settings(), Names()).batch_invariant
    assert sglang_layers.under_switch(settings.Settings(), args).batch_invariant
    with pytest.raises(ValueError, match="enable_deterministic_inference and exact"):
        sglang_layers.under_switch(settings.Settings(exact=True), args)


def test_batch_invariance(rank):
    """A row through the method of a merged layer: the same bits beside 0 to 63 others."""
    options = settings.Settings(batch_invariant=True)
    layer = linear_layers.MergedColumnParallelLinear(
        K, [512, 512], bias=False, quant_config=sglang_layers.SlimgemmConfig(options),
        prefix="model.layers.0.mlp.gate_up_proj")
    load(layer, weights((512, K), (512, K)), True, (0, 1))
    (x,) = weights((64, K))
    whole = layer.quant_method.apply(layer, x)
    for m in range(1, 65):
        assert torch.equal(layer.quant_method.apply(layer, x[64 - m:]), whole[64 - m:]), m

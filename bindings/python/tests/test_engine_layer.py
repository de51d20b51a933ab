# SPDX-License-Identifier: Apache-2.0
"""What the plug-ins share, on stand-ins for the engines' layers: weight loaders that narrow the
loaded tensor and the parameter, check shapes and copy, as those of vLLM and SGLang do."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import tiny_models  # noqa: E402

import slimgemm.torch as slim  # noqa: E402
from slimgemm.integrations import layer as engine  # noqa: E402
from slimgemm.integrations import settings  # noqa: E402

K = 256


class Merged(nn.Module):
    """Several matrices one below the other, each split over ranks by its rows."""

    def __init__(self, sizes, rank=0, ranks=1, options=None, name="gate_up_proj"):
        super().__init__()
        self.sizes, self.rank, self.ranks = sizes, rank, ranks
        engine.attach(self, name, (sum(sizes) // ranks, K), torch.bfloat16, self.weight_loader,
                      options or settings.Settings())

    def weight_loader(self, param, loaded, index):
        size = self.sizes[index] // self.ranks
        begin = sum(self.sizes[:index]) // self.ranks
        place = param.data.narrow(param.output_dim, begin, size)
        part = loaded.narrow(param.output_dim, self.rank * size, size)
        assert place.shape == part.shape
        place.copy_(part)

    def load(self, *tensors, finish=True):
        for index, tensor in enumerate(tensors):
            name = "weight_packed" if tensor.dtype == torch.uint8 else "weight"
            param = getattr(self, name)
            param.weight_loader(param, tensor, index)
        if finish:
            engine.finish(self, False)
        return self


class Padded(nn.Module):
    """An output layer whose rows are padded to a multiple of 64."""

    def __init__(self, rows):
        super().__init__()
        engine.attach(self, "lm_head", (-(-rows // 64) * 64, K), torch.bfloat16,
                      self.weight_loader, settings.Settings())

    def weight_loader(self, param, loaded):
        param[:loaded.shape[0]].data.copy_(loaded)
        param[loaded.shape[0]:].data.fill_(0)


def draw(rows, columns=K, scale=0.02, seed=0):
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(rows, columns, generator=generator, device="cpu") * scale
    return weights.to(torch.bfloat16)


def stored(weight):
    packed = bytearray(slim.pack_weight(weight).tobytes())
    data = torch.frombuffer(packed, dtype=torch.uint8)
    return nn.functional.pad(data, (0, -len(data) % 256))


@pytest.fixture(autouse=True, params=tiny_models.DEVICES)
def device(request):
    """Engines make layers under the device that these run on, and load from the CPU."""
    with torch.device(request.param):
        yield request.param


def dense(layer):
    return layer.slimgemm.dense().cpu()


def run(layer, x, bias):
    device = layer.slimgemm.device
    return engine.run(layer, x.to(device), bias if bias is None else bias.to(device)).cpu()


def linear(x, weight, bias=None):
    """The plain layer, where the test runs."""
    device = torch.empty(0).device
    bias = bias if bias is None else bias.to(device)
    return nn.functional.linear(x.to(device), weight.to(device), bias).cpu()


def check_batch_invariance(function, columns):
    """Every row has the same bits whatever the number of rows, 1 to 64, and wherever it stands."""
    x = torch.randn(64, columns, generator=torch.Generator().manual_seed(2), device="cpu")
    x = x.bfloat16()
    whole = function(x)
    for m in range(1, 65):
        assert torch.equal(function(x[64 - m:]), whole[64 - m:]), m


@pytest.fixture
def decoded(monkeypatch):
    """Counts decoded matrices."""
    found = []
    unpack = engine.Collector.dense
    monkeypatch.setattr(engine.Collector, "dense",
                        lambda self, device: found.append(self.name) or unpack(self, device))
    return found


def test_batch_invariance():
    options = settings.Settings.from_config({"batch_invariant": True})
    layer = Merged([512, 1024], 1, 4, options=options).load(stored(draw(512)),
                                                            stored(draw(1024, seed=1)))
    assert layer.slimgemm.linear.batch_invariant
    check_batch_invariance(lambda x: run(layer, x, None), K)
    with pytest.raises(ValueError, match="exclude each other"):
        settings.Settings.from_config({"batch_invariant": True, "exact": True})


def test_batch_invariance_of_what_stays_plain_otherwise():
    """A matrix that packing makes larger is packed; FP32 input is refused, not multiplied."""
    options = settings.Settings(batch_invariant=True)
    small = Merged([8], options=options).load(draw(8))
    check_batch_invariance(lambda x: run(small, x, None), K)
    router = Merged([64], options=options, name="model.layers.0.mlp.gate").load(draw(64))
    check_batch_invariance(lambda x: run(router, x, None), K)
    with pytest.raises(NotImplementedError, match="mlp.gate is given torch.float32"):
        run(router, torch.zeros(1, K, device="cpu"), None)


def test_switch_of_an_engine():
    plain = settings.Settings(exclude=["a"])
    assert plain.under_switch("X=1", False) is plain
    assert plain.under_switch("X=1", True) == settings.Settings(exclude=["a"],
                                                                batch_invariant=True)
    with pytest.raises(ValueError, match="X=1 and exact"):
        settings.Settings(exact=True).under_switch("X=1", True)


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_aligned_parts_of_one_window_are_never_decoded(rank, decoded):
    a, b = draw(512), draw(1024, seed=1)
    layer = Merged([512, 1024], rank, 4).load(stored(a), stored(b))
    assert not decoded
    rows = torch.cat([a[rank * 128:][:128], b[rank * 256:][:256]])
    assert torch.equal(dense(layer), rows)


def test_windows_that_differ_and_parts_that_cut_tiles_are_packed_anew(decoded):
    a, b = draw(512), draw(1024, scale=1e-6, seed=1)
    layer = Merged([512, 1024], 1, 4).load(stored(a), stored(b))
    assert torch.equal(dense(layer), torch.cat([a[128:256], b[256:512]]))
    a, b = draw(88), draw(1000, seed=1)  # 11 and 125 rows a rank
    layer = Merged([88, 1000], 3, 8).load(stored(a), stored(b))
    assert torch.equal(dense(layer), torch.cat([a[33:44], b[375:500]]))
    assert len(decoded) == 2


def test_packed_and_plain_tensors_in_one_layer():
    a, b = draw(512), draw(512, seed=1)
    layer = Merged([512, 512]).load(stored(a), b)
    assert torch.equal(dense(layer), torch.cat([a, b]))
    x = draw(5, scale=1)
    expected = linear(x, torch.cat([a, b]))
    torch.testing.assert_close(run(layer, x, None), expected, rtol=0.02, atol=0.02)


def test_plain_tensors_are_packed_unless_excluded():
    a, b = draw(512), draw(512, seed=1)
    assert Merged([512, 512]).load(a, b).slimgemm.linear is not None
    options = settings.Settings(exclude=["*.gate_up_proj"])
    layer = Merged([512, 512], options=options, name="model.layers.3.mlp.gate_up_proj").load(a, b)
    assert layer.slimgemm.linear is None
    bias = draw(1, 1024, 1)[0]
    x = draw(3, scale=1)
    assert torch.equal(run(layer, x, bias),
                       linear(x, torch.cat([a, b]), bias))


def test_exact_option_gives_the_plain_result():
    a, b = draw(512), draw(512, seed=1)
    layer = Merged([512, 512], options=settings.Settings(exact=True)).load(stored(a), stored(b))
    x = draw(7, scale=1)
    assert torch.equal(run(layer, x, None), linear(x, torch.cat([a, b])))


def test_a_small_matrix_stays_plain():
    a = draw(8)
    assert Merged([8]).load(a).slimgemm.linear is None


@pytest.mark.parametrize("packed", [False, True])
def test_padding_of_an_output_layer_is_zero(packed):
    weight, layer = draw(1000), Padded(1000)
    tensor, param = ((stored(weight), layer.weight_packed) if packed else (weight, layer.weight))
    param.weight_loader(param, tensor)
    engine.finish(layer, False)
    found = dense(layer)
    assert found.shape == (1024, K)
    assert torch.equal(found[:1000], weight) and not found[1000:].any()


def test_new_weights_take_the_place_of_the_old():
    layer = Merged([512, 512]).load(stored(draw(512)), stored(draw(512, seed=1)))
    linear = layer.slimgemm.linear
    a, b = draw(512, seed=2), draw(512, seed=3)
    layer.load(a, b)
    assert layer.slimgemm.linear is linear
    assert torch.equal(dense(layer), torch.cat([a, b]))
    layer.load(stored(b), stored(a))
    assert torch.equal(dense(layer), torch.cat([b, a]))


def test_incomplete_weights_are_refused():
    with pytest.raises(RuntimeError, match="gate_up_proj: the checkpoint held 131072 of its 262"):
        Merged([512, 512]).load(stored(draw(512)))


def test_tied_weights_are_shared():
    layer, embedding = Padded(1024), nn.Parameter(draw(1024), False)
    layer.weight = embedding
    engine.finish(layer, False)
    assert layer.slimgemm.weight is embedding


def test_made_up_weights():
    layer = Merged([512, 512])
    engine.finish(layer, True)
    assert 0.019 < dense(layer).float().std() < 0.021


def test_router_in_fp32():
    layer = Merged([64], name="model.layers.0.mlp.gate")
    weight = draw(64)
    layer.load(weight)
    layer.out_dtype = torch.float32
    x = draw(3, scale=1)
    out = run(layer, x, None)
    assert out.dtype == torch.float32
    expected = linear(x.double(), weight.double())
    torch.testing.assert_close(out.double(), expected, rtol=1e-5, atol=1e-5)
    fp32 = torch.randn(3, K, device="cpu")  # not BF16 values: no bit of them may be lost
    torch.testing.assert_close(run(layer, fp32, None),
                               linear(fp32, weight.float()))


def test_dtypes_that_would_round_are_refused():
    layer = Merged([512])
    with pytest.raises(ValueError, match="float32 are no torch.bfloat16 values"):
        layer.load(torch.randn(512, K, device="cpu"))
    half = (torch.randn(512, K, device="cpu") * 0.02).to(torch.bfloat16)
    assert torch.equal(dense(Merged([512]).load(half.float())), half)

# SPDX-License-Identifier: Apache-2.0
"""pack_model on the CPU."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

from torch import nn

from slimgemm import torch as st

BF16 = torch.bfloat16


class Own(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.up = nn.Linear(size, 2 * size)
        self.down = nn.Linear(2 * size, size, bias=False)
        self.own = Own(size, size)

    def forward(self, x):
        return self.own(self.down(torch.relu(self.up(x))))


class Model(nn.Module):
    def __init__(self, size=64):
        super().__init__()
        self.embed = nn.Embedding(100, size)
        self.layers = nn.ModuleList(Block(size) for _ in range(2))
        self.router = nn.Linear(size, 8)
        self.head = nn.Linear(size, 100, bias=False)
        self.head.weight = self.embed.weight
        self.again = self.layers[0].down
        self.to(BF16)
        self.router.float()

    def forward(self, tokens):
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return Model().eval()


def packed_names(model):
    return {name for name, module in model.named_modules(remove_duplicate=False)
            if isinstance(module, st.PackedLinear)}


def test_plain_layers_are_packed_and_nothing_else(model):
    tokens = torch.arange(10)
    want = model(tokens)
    assert st.pack_model(model, progress=False) is model
    assert packed_names(model) == {"layers.0.up", "layers.0.down", "layers.1.up", "layers.1.down",
                                   "again"}
    assert model.again is model.layers[0].down
    assert not model.layers[0].up.training
    assert torch.allclose(model(tokens).float(), want.float(), rtol=0.1, atol=0.1)
    state = model.state_dict()
    fresh = st.pack_model(Model(), progress=False)
    fresh.load_state_dict(state)
    assert torch.equal(fresh.eval()(tokens), model(tokens))


def test_exact(model):
    tokens = torch.arange(10)
    want = model(tokens)
    st.pack_model(model, exact=True, progress=False)
    assert torch.equal(model(tokens), want)


@pytest.mark.parametrize("include, exclude, names", [
    (["layers.*.up"], None, {"layers.0.up", "layers.1.up"}),
    (None, ["layers.1.*", "again"], {"layers.0.up", "layers.0.down"}),
    ("layers.0.own", None, {"layers.0.own"}),
    (["router", "layers.0.*"], ["*.down"], {"router", "layers.0.up"}),
    (["head"], None, {"head"}),
    (None, "*", set()),
])
def test_include_and_exclude(model, include, exclude, names):
    st.pack_model(model, include, exclude, progress=False)
    assert packed_names(model) == names


@pytest.mark.parametrize("fraction, count", [(0.0, 0), (0.25, 1), (0.5, 2), (1.0, 4)])
def test_fraction(model, fraction, count):
    del model.again
    st.pack_model(model, fraction=fraction, progress=False)
    assert len(packed_names(model)) == count


def test_progress(model, capsys):
    calls = []
    st.pack_model(model, progress=lambda *call: calls.append(call))
    assert [call[:2] for call in calls] == [(i, 4) for i in range(1, 5)]
    st.pack_model(Model())
    assert "4 of 4" in capsys.readouterr().err


@pytest.mark.parametrize("options, text", [
    ({"fraction": 1.5}, "1.5"),
    ({"include": ["layer.*"]}, "layer"),
])
def test_arguments_that_are_wrong(model, options, text):
    with pytest.raises(ValueError, match=text):
        st.pack_model(model, progress=False, **options)
    assert not packed_names(model)


PEAK = """
import resource, torch
from slimgemm import torch as st
torch.set_num_threads(1)
def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
layer = 2048 * 2048 * 2
with torch.no_grad():
    warm = torch.nn.Linear(256, 256, dtype=torch.bfloat16)
    st.PackedLinear.from_linear(warm)
    model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048, dtype=torch.bfloat16, device="meta")
                                  for _ in range(24)]).to_empty(device="cpu")
    for part in model:
        part.weight.fill_(0.5)
before = peak()
st.pack_model(model, progress=False)
print((peak() - before) / layer)
"""


def test_memory_does_not_peak():
    """24 layers of 8 MB: the peak grows by less than two of them (one packed, and slack)."""
    result = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 2, result.stdout

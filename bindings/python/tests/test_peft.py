# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters on packed layers, through peft."""

import copy

import pytest

torch = pytest.importorskip("torch")
peft = pytest.importorskip("peft")

import tiny_models  # noqa: E402

import slimgemm.peft  # noqa: E402
from slimgemm.torch import PackedLinear, pack_model  # noqa: E402

IDS = torch.arange(5, 25)[None]
TARGETS = ["q_proj", "v_proj", "down_proj"]


def config(**options):
    return peft.LoraConfig(r=4, lora_alpha=16, target_modules=TARGETS, **options)


def set_adapters(model, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)


@pytest.fixture(params=tiny_models.DEVICES)
def models(request):
    """(plain, packed), both with the same adapters."""
    plain = tiny_models.make_model("llama-bias").to(request.param)
    packed = pack_model(copy.deepcopy(plain), progress=False)
    made = (peft.get_peft_model(plain, config()),
            peft.get_peft_model(packed, slimgemm.peft.prepare(config())))
    for model in made:
        set_adapters(model)
        model.eval()
    return made


def test_same_adapters_same_logits(models):
    plain, packed = models
    ids = IDS.to(plain.device)
    assert sum(isinstance(m, slimgemm.peft.LoraPackedLinear) for m in packed.modules()) == 6
    expected = plain(ids).logits
    torch.testing.assert_close(packed(ids).logits, expected, rtol=0, atol=0.25)
    with plain.disable_adapter():
        assert (plain(ids).logits - expected).abs().max() > 1


def test_training(models):
    _, packed = models
    ids = IDS.to(packed.device)
    trainable = [p for p in packed.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trainable]
    optimizer = torch.optim.SGD(trainable, lr=0.5)
    losses = []
    for _ in range(4):
        loss = packed(ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert all(not torch.equal(a, b) for a, b in zip(before, trainable))


def test_merge_and_unmerge(models):
    plain, packed = models
    original = {name: module.packed().tobytes() for name, module in packed.named_modules()
                if isinstance(module, PackedLinear)}
    plain.merge_adapter()
    packed.merge_adapter()
    for name, module in packed.named_modules():
        if isinstance(module, PackedLinear):
            assert torch.equal(module.weight, plain.get_submodule(name).weight), name
    packed.unmerge_adapter()
    for name, module in packed.named_modules():
        if isinstance(module, PackedLinear):
            assert module.packed().tobytes() == original[name], name


def test_merge_for_good(models):
    plain, packed = models
    expected = plain.merge_and_unload()
    merged = packed.merge_and_unload()
    layer = merged.model.layers[0].self_attn.q_proj
    assert isinstance(layer, PackedLinear)
    assert torch.equal(layer.weight, expected.model.layers[0].self_attn.q_proj.weight)


def test_saved_adapter_loads_on_a_packed_model(models, tmp_path):
    _, packed = models
    ids = IDS.to(packed.device)
    expected = packed(ids).logits
    packed.save_pretrained(tmp_path)
    base = pack_model(tiny_models.make_model("llama-bias").to(ids.device), progress=False)
    loaded = peft.PeftModel.from_pretrained(
        base, tmp_path, config=slimgemm.peft.prepare(peft.LoraConfig.from_pretrained(tmp_path)))
    assert torch.equal(loaded(ids).logits, expected)


def test_variants_are_not_merged_wrong():
    packed = pack_model(tiny_models.make_model("llama-bias"), progress=False)
    model = peft.get_peft_model(packed, slimgemm.peft.prepare(config(use_dora=True)))
    with pytest.raises(NotImplementedError, match="default"):
        model.merge_adapter()

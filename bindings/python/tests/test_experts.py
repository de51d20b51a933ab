# SPDX-License-Identifier: Apache-2.0
"""Packed experts of mixtures, in transformers."""

import copy

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import tiny_models  # noqa: E402

import slimgemm.transformers as slim  # noqa: E402
from slimgemm.torch import PackedExperts, pack_model  # noqa: E402

IDS = torch.arange(5, 29).reshape(2, 12)
KINDS = ["qwen3-moe", "mixtral"]


def load(path, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(path, **options)


@pytest.fixture(scope="module")
def plain_directory(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            made[kind] = tiny_models.save_plain(kind, tmp_path_factory.mktemp(kind) / "plain")
        return made[kind]

    return get


def mixtures(model):
    return [module for module in model.modules() if isinstance(module, PackedExperts)]


def check_same_bits(packed, plain):
    """The packed model is one of packed experts, and has the plain model's weights."""
    assert len(mixtures(packed)) == 2
    found, expected = copy.deepcopy(packed).dequantize().state_dict(), plain.state_dict()
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("device", tiny_models.DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_packed_directory(plain_directory, tmp_path, kind, device):
    """Packed by the command, loaded, saved, sealed, verified, loaded, unpacked."""
    plain_path = plain_directory(kind)
    if tiny_models.command() is None:
        pytest.skip("no slimgemm command: it packs the directory")
    path = tiny_models.pack_directory(plain_path, tmp_path / "packed")
    plain, packed = load(plain_path), load(path)
    check_same_bits(packed, plain)
    ids = IDS.to(device)
    plain, packed = plain.to(device), packed.to(device)
    logits = packed(ids).logits
    torch.testing.assert_close(logits, plain(ids).logits, rtol=0, atol=0.2)
    assert packed.generate(ids, max_new_tokens=3, do_sample=False).shape == (2, 15)
    packed.save_pretrained(tmp_path / "saved", max_shard_size="1MB")
    tiny_models.seal(tmp_path / "saved")
    done = tiny_models.run_command("verify", tmp_path / "saved")
    assert done.returncode == 0, done.stdout
    assert torch.equal(load(tmp_path / "saved").to(device)(ids).logits, logits)
    assert tiny_models.run_command("unpack", tmp_path / "saved", tmp_path / "x").returncode == 0
    check_same_bits(packed.cpu(), load(tmp_path / "x"))


@pytest.mark.parametrize("kind", KINDS)
def test_packed_model_saved(plain_directory, tmp_path, kind):
    model = slim.pack(load(plain_directory(kind)), experts=True, progress=False)
    assert not model.hf_quantizer.is_compileable
    model.save_pretrained(tmp_path)
    check_same_bits(load(tmp_path), load(plain_directory(kind)))


@pytest.mark.parametrize("kind", KINDS)
def test_exact_logits(plain_directory, kind):
    options = {"experts_implementation": "eager"}
    expected = load(plain_directory(kind), **options)(IDS).logits
    model = slim.pack(load(plain_directory(kind), **options), exact=True, experts=True,
                      progress=False)
    assert len(mixtures(model)) == 2
    assert torch.equal(model(IDS).logits, expected)


def test_plain_model_packed_while_it_loads(plain_directory):
    path = plain_directory("mixtral")
    model = load(path, quantization_config=slim.SlimgemmConfig(experts=True))
    check_same_bits(model, load(path))
    assert not mixtures(load(path, quantization_config=slim.SlimgemmConfig()))


def test_batch_invariance(plain_directory):
    """A token's result does not depend on which others are beside it."""
    model = pack_model(load(plain_directory("qwen3-moe")), experts=True, batch_invariant=True,
                       progress=False)
    experts = mixtures(model)[0]
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, experts.hidden_dim, generator=generator).bfloat16()
    index = torch.rand(64, experts.num_experts, generator=generator).topk(2).indices
    weights = torch.rand(64, 2, generator=generator).bfloat16()
    whole = experts(x, index, weights)
    for m in range(1, 65):
        assert torch.equal(experts(x[64 - m:], index[64 - m:], weights[64 - m:]),
                           whole[64 - m:]), m


def test_gradients_reach_the_input(plain_directory):
    model = load(plain_directory("mixtral"))
    packed = pack_model(copy.deepcopy(model), experts=True, progress=False)
    x = torch.randn(8, 256).bfloat16()
    index, weights = torch.arange(16).reshape(8, 2) % 4, torch.full((8, 2), 0.5).bfloat16()
    found = []
    for one in (model, packed):
        leaf = x.clone().requires_grad_()
        one.model.layers[0].mlp.experts(leaf, index, weights).sum().backward()
        found.append(leaf.grad)
    torch.testing.assert_close(found[1], found[0], rtol=0.05, atol=0.05)


def test_adapters_beside_experts(plain_directory):
    """On attention they work; peft puts those on experts on stacks, finds none and says so."""
    peft = pytest.importorskip("peft")
    import slimgemm.peft

    def adapted(*targets):
        model = pack_model(load(plain_directory("qwen3-moe")), experts=True, progress=False)
        config = peft.LoraConfig(r=4, target_modules=list(targets))
        return peft.get_peft_model(model, slimgemm.peft.prepare(config))

    model = adapted("q_proj", "v_proj")
    assert sum(isinstance(module, slimgemm.peft.LoraPackedLinear)
               for module in model.modules()) == 4
    with model.disable_adapter():
        before = model(IDS).logits
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(0, 0.3)
    assert not torch.allclose(model(IDS).logits, before, rtol=0, atol=0.5)
    with pytest.raises(ValueError, match="target_parameters"):
        adapted("gate_proj", "up_proj", "down_proj")


def test_experts_that_are_packed_in_part_are_refused(plain_directory, tmp_path):
    if tiny_models.command() is None:
        pytest.skip("no slimgemm command: only it packs some experts and others not")
    packed = tiny_models.pack_directory(plain_directory("qwen3-moe"), tmp_path / "packed",
                                        "--exclude", "*.1.mlp.experts.7.up_proj.weight")
    with pytest.raises(ValueError, match="layers.1.mlp.experts.7 has no packed up_proj.*exclude"):
        load(packed)


def test_layers_whose_experts_stay_plain(plain_directory, tmp_path):
    if tiny_models.command() is None:
        pytest.skip("no slimgemm command: it packs the directory")
    path = plain_directory("qwen3-moe")
    packed = load(tiny_models.pack_directory(path, tmp_path / "packed", "--exclude",
                                             "*.1.mlp.experts.*"))
    assert len(mixtures(packed)) == 1
    packed.save_pretrained(tmp_path / "saved")
    for model in (packed, load(tmp_path / "saved")):
        plain, found = load(path).state_dict(), model.dequantize().state_dict()
        assert all(torch.equal(found[name], plain[name]) for name in plain)


def test_models_without_such_experts_are_refused():
    with pytest.raises(ValueError, match="experts=True: the model has no experts in stacks"):
        pack_model(tiny_models.make_model("qwen3"), experts=True, progress=False)


def test_shapes_are_checked(plain_directory):
    experts = mixtures(pack_model(load(plain_directory("mixtral")), experts=True,
                                  progress=False))[0]
    gate, up, down = (experts[0][name] for name in experts.names)
    with pytest.raises(ValueError, match="gate_proj of expert 4 is 256 x 512: it must be 512"):
        experts.append_expert([down, up, gate])

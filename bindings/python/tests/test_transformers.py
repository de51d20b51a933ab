# SPDX-License-Identifier: Apache-2.0
"""Packed directories in transformers: loaded, used, saved, refused."""

import json
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5.0")

import tiny_models  # noqa: E402

import slimgemm.transformers as slim  # noqa: E402
from slimgemm.seal import seal  # noqa: E402
from slimgemm.torch import PackedLinear  # noqa: E402

IDS = torch.arange(5, 29).reshape(2, 12)
DENSE = ["qwen3", "llama-tied", "llama-bias"]


def load(path, **options):
    return transformers.AutoModelForCausalLM.from_pretrained(path, **options)


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    made = {}

    def get(kind):
        if kind not in made:
            base = tmp_path_factory.mktemp(kind)
            plain = tiny_models.save_plain(kind, base / "plain")
            made[kind] = plain, tiny_models.pack_directory(plain, base / "packed")
        return made[kind]

    return get


def check_same_bits(packed, plain):
    """Every parameter of the plain model is in the packed one, bit for bit."""
    for name, tensor in plain.state_dict().items():
        module, _, attribute = name.rpartition(".")
        found = getattr(packed.get_submodule(module), attribute)
        assert found.dtype == tensor.dtype and torch.equal(found, tensor), name


def packed_layers(model):
    return sum(isinstance(module, PackedLinear) for module in model.modules())


@pytest.mark.parametrize("device", tiny_models.DEVICES)
@pytest.mark.parametrize("kind", DENSE)
def test_load(directories, kind, device):
    plain_path, packed_path = directories(kind)
    plain, packed, ids = load(plain_path).to(device), load(packed_path).to(device), IDS.to(device)
    check_same_bits(packed, plain)
    assert packed_layers(packed) == (14 if kind == "llama-tied" else 15)
    expected, found = plain(ids).logits, packed(ids).logits
    torch.testing.assert_close(found, expected, rtol=0, atol=0.2)
    assert not packed.training
    assert packed.generate(ids, max_new_tokens=3, do_sample=False).shape == (2, 15)


@pytest.mark.parametrize("kind", DENSE)
def test_save_and_load_again(directories, tmp_path, kind):
    packed = load(directories(kind)[1])
    packed.save_pretrained(tmp_path / "saved", max_shard_size="1MB")
    assert len(list((tmp_path / "saved").glob("*.safetensors"))) > 1
    config = json.loads((tmp_path / "saved/config.json").read_text())["quantization_config"]
    assert config == {"quant_method": "slimgemm", "format": "1", "bits": 12,
                      "packed_suffix": "_packed"}
    again = load(tmp_path / "saved")
    assert packed_layers(again) == packed_layers(packed)
    assert torch.equal(again(IDS).logits, packed(IDS).logits)


@pytest.mark.parametrize("kind, shard", [("qwen3", "1MB"), ("llama-tied", "1GB"),
                                         ("llama-bias", "1MB")])
def test_sealed_directory_verifies_and_unpacks(directories, tmp_path, kind, shard):
    """Packed, loaded, saved, sealed: every byte is sound, and the plain model comes back."""
    plain_path, packed_path = directories(kind)
    saved, unpacked = tmp_path / "saved", tmp_path / "unpacked"
    load(packed_path).save_pretrained(saved, max_shard_size=shard)
    (saved / "tokenizer").mkdir()
    (saved / "tokenizer" / "vocabulary.txt").write_text("a b c")
    for command in (["verify", saved], ["unpack", saved, unpacked]):
        done = tiny_models.run_command(*command)
        assert done.returncode != 0 and "slimgemm.seal" in done.stderr + done.stdout
    for _ in range(2):  # sealing twice changes nothing
        tiny_models.seal(saved)
        done = tiny_models.run_command("verify", saved)
        assert done.returncode == 0, done.stdout
    check_same_bits(load(saved), load(plain_path))
    assert packed_layers(load(saved)) == packed_layers(load(packed_path))
    assert tiny_models.run_command("unpack", saved, unpacked).returncode == 0
    plain = load(unpacked)
    assert packed_layers(plain) == 0
    check_same_bits(plain, load(plain_path))
    (saved / "tokenizer" / "vocabulary.txt").write_text("a b d")
    assert tiny_models.run_command("verify", saved).returncode == 1


def test_seal_as_a_command(directories, tmp_path):
    tiny_models.require_checksums()
    load(directories("qwen3")[1]).save_pretrained(tmp_path)
    command = [sys.executable, "-m", "slimgemm.seal"]
    assert subprocess.run([*command, tmp_path], check=False).returncode == 0
    assert (tmp_path / "slimgemm.json").exists()
    done = subprocess.run([*command, tmp_path / "none"], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 1 and done.stderr.startswith("slimgemm.seal: ")


def test_seal_refuses_what_it_cannot_vouch_for(directories, tmp_path):
    from safetensors.torch import load_file, save_file
    plain_path, packed_path = directories("qwen3")
    with pytest.raises(ValueError, match="no config.json"):
        seal(tmp_path)
    tiny_models.require_checksums()
    with pytest.raises(ValueError, match="quant_method None.*slimgemm pack"):
        seal(plain_path)
    load(packed_path).save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.0.mlp.up_proj.weight_packed"][3000] ^= 1
    save_file(tensors, path, {"format": "pt"})
    with pytest.raises(ValueError, match=r"up_proj\.weight_packed: .*checksum"):
        seal(tmp_path)
    assert not (tmp_path / "slimgemm.json").exists()


def test_dequantized_model_packs_to_a_directory_that_verifies(directories, tmp_path):
    plain_path, packed_path = directories("llama-bias")
    plain, model = load(plain_path), load(packed_path).dequantize()
    assert packed_layers(model) == 0
    assert torch.equal(model(IDS).logits, plain(IDS).logits)
    model.save_pretrained(tmp_path / "plain")
    assert tiny_models.run_command("pack", tmp_path / "plain", tmp_path / "packed").returncode == 0
    assert tiny_models.run_command("verify", tmp_path / "packed").returncode == 0
    check_same_bits(load(tmp_path / "packed"), plain)


def test_plain_model_packed_while_it_loads(directories):
    plain_path, packed_path = directories("qwen3")
    model = load(plain_path, quantization_config=slim.SlimgemmConfig(exclude=["lm_head"]))
    assert packed_layers(model) == 14
    check_same_bits(model, load(plain_path))


def test_loaded_model_packed_and_saved(directories, tmp_path):
    plain_path, _ = directories("llama-tied")
    model = slim.pack(load(plain_path), progress=False)
    model.save_pretrained(tmp_path / "saved")
    check_same_bits(load(tmp_path / "saved"), load(plain_path))


def test_exact_logits(directories, tmp_path):
    plain_path, packed_path = directories("qwen3")
    expected = load(plain_path)(IDS).logits
    model = slim.pack(load(plain_path), exact=True, progress=False)
    assert torch.equal(model(IDS).logits, expected)
    config_path = pathlib.Path(packed_path) / "config.json"
    config = json.loads(config_path.read_text())
    copy = tmp_path / "exact"
    copy.mkdir()
    for file in pathlib.Path(packed_path).iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    config["quantization_config"]["exact"] = True
    (copy / "config.json").write_text(json.dumps(config))
    assert torch.equal(load(copy)(IDS).logits, expected)


def test_batch_invariance_reaches_every_layer(directories):
    """Of a packed directory the option is in its configuration, of a plain one an argument."""
    plain_path, packed_path = directories("llama-bias")
    config = transformers.AutoConfig.from_pretrained(packed_path)
    config.quantization_config["batch_invariant"] = True
    arguments = slim.SlimgemmConfig(batch_invariant=True)
    for model in (load(packed_path, config=config), load(plain_path, quantization_config=arguments),
                  slim.pack(load(plain_path), batch_invariant=True, progress=False)):
        layers = [module for module in model.modules() if isinstance(module, PackedLinear)]
        assert len(layers) == 15 and all(layer.batch_invariant for layer in layers)
        layer = model.model.layers[0].mlp.down_proj
        x = torch.randn(64, layer.in_features).bfloat16()
        whole = layer(x)
        for m in range(1, 65):
            assert torch.equal(layer(x[64 - m:]), whole[64 - m:]), m
        assert model.config.quantization_config.to_dict()["batch_invariant"]


def test_router_that_is_no_linear_layer_gets_its_plain_weight(directories, tmp_path):
    plain_path, _ = directories("qwen3-moe")
    packed = tiny_models.pack_directory(plain_path, tmp_path / "packed", "--exclude", "*experts*")
    model = load(packed)
    check_same_bits(model, load(plain_path))
    if tiny_models.command():
        names = [name for name in packed_names(packed) if "mlp.gate." in name]
        assert names, "the router was to be packed"


def packed_names(directory):
    from slimgemm.integrations import settings
    return settings.packed_tensors(settings.checkpoint_files(directory))


def test_other_dtypes_are_refused(directories):
    with pytest.raises(ValueError, match="torch.float16.*bfloat16"):
        load(directories("qwen3")[1], dtype=torch.float16)


@pytest.mark.parametrize("field, value", [("format", "2"), ("packed_suffix", "_p"),
                                          ("group_size", 128)])
def test_other_configurations_are_refused(field, value):
    with pytest.raises(ValueError, match=field):
        slim.SlimgemmConfig(**{field: value})


def test_damage_is_found(directories, tmp_path):
    """A flipped bit in a packed tensor: the reader of the matrix refuses it."""
    from safetensors.torch import load_file, save_file
    packed_path = pathlib.Path(directories("qwen3")[1])
    for file in packed_path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight_packed"
    tensors[name][3000] ^= 1
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ValueError, match="checksum"):
        load(tmp_path)

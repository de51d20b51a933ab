# SPDX-License-Identifier: Apache-2.0
"""The plug-in inside vLLM, with tiny models. Runs where vLLM is installed; a CPU build will do."""

import gc
import os
import shutil

import pytest

os.environ.update(VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1",
                  HF_HUB_OFFLINE="1", VLLM_ALLOW_INSECURE_SERIALIZATION="1")
torch = pytest.importorskip("torch")
vllm = pytest.importorskip("vllm")

import tiny_models  # noqa: E402
from safetensors.torch import load_file  # noqa: E402

PROMPTS = [[5, 6, 7, 8], list(range(10, 90)), [900, 3, 17, 4, 950, 22]]


@pytest.fixture(scope="module", autouse=True)
def plugin():
    from slimgemm.integrations.vllm import register
    register()


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """(plain, packed) directories of a kind of model."""
    made = {}

    def get(kind, seed=0):
        if (kind, seed) not in made:
            base = tmp_path_factory.mktemp(kind)
            plain = tiny_models.save_plain(kind, base / "plain", seed)
            made[kind, seed] = plain, tiny_models.pack_directory(plain, base / "packed")
        return made[kind, seed]

    return get


class Engine:
    """An engine that is gone after the `with`."""

    def __init__(self, path, **options):
        options = {"enforce_eager": True, **options}
        self.llm = vllm.LLM(path, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
                            max_num_seqs=4, **options)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.llm.llm_engine.engine_core.shutdown()
        del self.llm
        gc.collect()
        from vllm.distributed import cleanup_dist_env_and_memory
        cleanup_dist_env_and_memory()

    def generate(self, **options):
        """The logarithm of every prompt token's probability after those before it. The tokens are
        given, so that two engines compute the same and differ by rounding alone."""
        params = vllm.SamplingParams(temperature=0, max_tokens=2, detokenize=False,
                                     prompt_logprobs=0, ignore_eos=True)
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        found = []
        for out in self.llm.generate(prompts, params, use_tqdm=False, **options):
            steps = zip(out.prompt_token_ids[1:], out.prompt_logprobs[1:])
            found.extend(step[token].logprob for token, step in steps)
        return torch.tensor(found)

    def next_token(self, **options):
        """The logarithms of all tokens' probabilities after each prompt."""
        vocabulary = tiny_models.SIZES["vocab_size"]
        params = vllm.SamplingParams(temperature=0, max_tokens=1, detokenize=False,
                                     logprobs=vocabulary)
        prompts = [{"prompt_token_ids": prompt} for prompt in PROMPTS]
        outputs = self.llm.generate(prompts, params, use_tqdm=False, **options)
        return torch.tensor([[out.outputs[0].logprobs[0][token].logprob
                              for token in range(vocabulary)] for out in outputs])

    def model(self):
        return self.llm.apply_model(lambda model: model)[0]


def close(ours, plain):
    """Whether two results differ by the order of sums alone; those of other weights differ by 1."""
    return (ours - plain).abs().max() < 0.15


@pytest.fixture(scope="module")
def plain_outputs(directories):
    made = {}

    def get(kind, seed=0):
        if (kind, seed) not in made:
            with Engine(directories(kind, seed)[0]) as engine:
                made[kind, seed] = engine.generate()
        return made[kind, seed]

    return get


def expected_parts(plain, layer):
    """The plain tensors that a layer of the engine is made of, one below the other."""
    stem, _, last = layer.rpartition(".")
    parts = {"qkv_proj": ["q_proj", "k_proj", "v_proj"],
             "gate_up_proj": ["gate_proj", "up_proj"]}.get(last, [last])
    return torch.cat([plain[f"{stem}.{part}.weight" if stem else f"{part}.weight"]
                      for part in parts])


def check_weights(model, path):
    """Checks that every packed layer decodes to the bits of the plain checkpoint; returns how many
    there are."""
    plain = load_file(path + "/model.safetensors")
    count = 0
    for name, module in model.named_modules():
        weights = getattr(module, "slimgemm", None)
        if weights is None or weights.linear is None:
            continue
        expected = expected_parts(plain, name)
        found = weights.dense()[:expected.shape[0]]
        assert torch.equal(found.to(expected.dtype).view(torch.int16),
                           expected.view(torch.int16)), name
        count += 1
    return count


@pytest.mark.parametrize("kind, layers", [("qwen3", 9), ("llama-tied", 8), ("llama-bias", 9)])
def test_packed_directory(directories, plain_outputs, kind, layers):
    plain, packed = directories(kind)
    with Engine(packed) as engine:
        assert close(engine.generate(), plain_outputs(kind))
        assert check_weights(engine.model(), plain) == layers


def test_plain_directory_is_packed_while_it_loads(directories, plain_outputs):
    plain, _ = directories("qwen3")
    with Engine(plain, quantization="slimgemm") as engine:
        assert close(engine.generate(), plain_outputs("qwen3"))
        assert check_weights(engine.model(), plain) == 9


def test_compiled(directories, plain_outputs):
    _, packed = directories("qwen3")
    with Engine(packed, enforce_eager=False) as engine:
        assert close(engine.generate(), plain_outputs("qwen3"))


def test_compiled_code_from_the_cache(directories, monkeypatch, tmp_path):
    """Compiled code that was saved for layers that are gone runs with those of a new engine."""
    if not hasattr(torch.compiler, "load_compiled_function"):
        pytest.skip("this PyTorch cannot load compiled code")
    loaded, load = [], torch.compiler.load_compiled_function

    def load_and_note(*arguments, **more):
        function = load(*arguments, **more)
        compiled = function._artifacts.compiled_fn
        if not hasattr(compiled, "finalize_loading"):  # as on CPUs, where vLLM does without a cache
            compiled.finalize_loading = lambda config: None
        loaded.append(function)
        return function

    monkeypatch.setattr(torch.compiler, "load_compiled_function", load_and_note)
    monkeypatch.setenv("VLLM_CACHE_ROOT", str(tmp_path))
    _, packed = directories("qwen3")
    outputs = []
    for _ in range(2):
        with Engine(packed, enforce_eager=False) as engine:
            outputs.append(engine.generate())
    if not loaded:
        pytest.skip("this vLLM saves no compiled code here")
    assert torch.equal(*outputs)


def options(**changes):
    """The engine's arguments for a packed directory with these options of the method."""
    return {"hf_overrides": {"quantization_config": {
        "quant_method": "slimgemm", "format": "1", "bits": 12, "packed_suffix": "_packed",
        **changes}}}


def test_batch_invariance(directories):
    """A row through the methods of vLLM's layers: the same bits beside 0 to 63 others."""
    _, packed = directories("llama-bias")
    with Engine(packed, **options(batch_invariant=True)) as engine:
        block = engine.model().model.layers[0]
        for layer in (block.self_attn.qkv_proj, block.self_attn.o_proj, block.mlp.gate_up_proj,
                      block.mlp.down_proj, engine.model().lm_head):
            k = layer.slimgemm.k
            x = torch.randn(64, k, generator=torch.Generator().manual_seed(2)).bfloat16()
            bias = getattr(layer, "bias", None)
            whole = layer.quant_method.apply(layer, x, bias)
            for m in range(1, 65):
                assert torch.equal(layer.quant_method.apply(layer, x[64 - m:], bias),
                                   whole[64 - m:]), (layer, m)


def test_options_are_in_the_key_of_compiled_code(directories, tmp_path):
    """What changes the traced code changes the hash under which vLLM keeps compiled code."""
    from vllm.engine.arg_utils import EngineArgs
    plain, packed = directories("qwen3")

    def key(path, **arguments):
        arguments = EngineArgs(path, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
                               **arguments)
        return arguments.create_engine_config().compute_hash()

    changes = [{}, {"exact": True}, {"batch_invariant": True}, {"exclude": ["*.down_proj"]}]
    keys = [key(packed, **options(**change)) for change in changes]
    assert len(set(keys)) == len(changes)
    assert key(packed, **options()) == keys[0]
    # The same directory, packed with other tensors.
    moved = tmp_path / "model"
    found = []
    for arguments in ([], ["--exclude", "*down_proj*"]):
        tiny_models.pack_directory(plain, moved, *arguments)
        found.append(key(str(moved)))
        shutil.rmtree(moved)
    if tiny_models.command():
        assert found[0] != found[1]


def test_router_of_a_mixture_runs_in_fp32(directories, plain_outputs, tmp_path):
    plain, _ = directories("qwen3-moe")
    packed = tiny_models.pack_directory(plain, tmp_path / "packed", "--exclude", "*experts*")
    with Engine(packed) as engine:
        assert close(engine.generate(), plain_outputs("qwen3-moe"))
        gate = engine.model().model.layers[0].mlp.gate
        assert gate.slimgemm.dtype == torch.float32


def test_weights_of_a_running_engine_are_replaced(directories, plain_outputs):
    """As after a step of training: through the model's own load_weights, with plain tensors."""
    _, packed = directories("qwen3")
    new, _ = directories("qwen3", seed=1)
    with Engine(packed) as engine:
        before = engine.generate()
        model = engine.model()
        layer = model.model.layers[0].mlp.down_proj.slimgemm.linear
        model.load_weights(iter(load_file(new + "/model.safetensors").items()))
        assert layer is model.model.layers[0].mlp.down_proj.slimgemm.linear
        after = engine.generate()
        assert not close(after, before)
        assert close(after, plain_outputs("qwen3", 1))
        check_weights(model, new)


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "packed"])
@pytest.mark.parametrize("kind", ["qwen3", "llama-bias"])
def test_reload_weights(directories, plain_outputs, which, kind):
    """vLLM's own reload, from a plain and from a packed directory."""
    _, packed = directories(kind)
    new = directories(kind, 1)[which]
    with Engine(packed) as engine:
        engine.llm.collective_rpc("reload_weights", kwargs={"weights_path": new})
        assert close(engine.generate(), plain_outputs(kind, 1))


def test_lora(directories, tmp_path):
    peft = pytest.importorskip("peft")
    from vllm.lora.request import LoRARequest
    plain, packed = directories("qwen3")
    model = peft.get_peft_model(
        tiny_models.make_model("qwen3"),
        peft.LoraConfig(r=8, lora_alpha=32, target_modules=["q_proj", "v_proj", "down_proj"]))
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data.normal_(0, 0.1)
    model.save_pretrained(tmp_path / "adapter")
    request = LoRARequest("adapter", 1, str(tmp_path / "adapter"))
    outputs = []
    for path in (plain, packed):
        with Engine(path, enable_lora=True, max_lora_rank=8,
                    max_logprobs=tiny_models.SIZES["vocab_size"]) as engine:
            outputs.append((engine.next_token(), engine.next_token(lora_request=request)))
    (plain_without, plain_with), (without, with_adapter) = outputs
    assert close(without, plain_without)
    assert close(with_adapter, plain_with)
    assert not close(with_adapter, without)


def test_refused_options():
    from types import SimpleNamespace as Names

    from slimgemm.integrations.vllm_layers import refuse_unsupported
    load, cache = Names(load_format="auto"), Names(cpu_offload_gb=0)
    model = Names(enable_sleep_mode=False)
    fine = Names(load_config=load, cache_config=cache, model_config=model)
    refuse_unsupported(fine)
    for change, word in (({"load_config": Names(load_format="sharded_state")}, "sharded_state"),
                         ({"cache_config": Names(cpu_offload_gb=4)}, "cpu_offload_gb=4"),
                         ({"model_config": Names(enable_sleep_mode=True)}, "enable_sleep_mode")):
        with pytest.raises(ValueError, match=word):
            refuse_unsupported(Names(**{**vars(fine), **change}))


def test_switch_for_batch_invariance(monkeypatch):
    from slimgemm.integrations import settings
    from slimgemm.integrations.vllm_layers import under_switch
    assert not under_switch(settings.Settings()).batch_invariant
    monkeypatch.setenv("VLLM_BATCH_INVARIANT", "1")
    assert under_switch(settings.Settings()).batch_invariant
    with pytest.raises(ValueError, match="VLLM_BATCH_INVARIANT=1 and exact"):
        under_switch(settings.Settings(exact=True))


def test_half_precision_is_refused(directories):
    _, packed = directories("qwen3")
    with pytest.raises(Exception, match="(?s)float16.*(slimgemm|bfloat16)"):
        vllm.LLM(packed, skip_tokenizer_init=True, dtype="float16", max_model_len=128,
                 enforce_eager=True)


def test_packed_experts_are_refused(directories):
    if tiny_models.command() is None:
        pytest.skip("no slimgemm command: only it packs experts")
    _, packed = directories("qwen3-moe")
    with pytest.raises(Exception, match=r"--exclude '\*experts\*'"):
        vllm.LLM(packed, skip_tokenizer_init=True, dtype="bfloat16", max_model_len=128,
                 enforce_eager=True)


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="two ranks need two CPUs")
def test_two_ranks(directories, plain_outputs, monkeypatch):
    """Tensor parallelism: every rank cuts its part out of the packed tensors."""
    if torch.cuda.is_available() and torch.cuda.device_count() < 2:
        pytest.skip("two ranks need two GPUs")
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    _, packed = directories("qwen3")
    with Engine(packed, tensor_parallel_size=2, distributed_executor_backend="mp") as engine:
        assert close(engine.generate(), plain_outputs("qwen3"))

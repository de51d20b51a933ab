#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Generates with a transformers model, plain BF16 against packed, in one run.

    generate.py --out generate.json                  # 8 B parameters, on a Hopper GPU
    generate.py --out x.json --device cpu --model tiny

The model is built from a configuration that people serve, with weights drawn on the device (normal,
standard deviation 0.02), so it needs no network. A copy of it is packed by slimgemm.torch. Both
then decode greedily after the same prompts, with transformers' own forward on a static cache; one
step is captured into a CUDA graph, tokens never leave the GPU in between, and the graphs of both
models are replayed in turn. The small operators of the model (norms, rotary embedding, SwiGLU) are
fused by torch.compile in both models alike; --no-fuse leaves them as they are.

Written to --out, per number of sequences: tokens a second of both, memory; and once: whether every
packed weight has its original bits, and how far the logits are apart.
"""

import argparse
import copy
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import zlib

import torch
import transformers
from torch import nn

import slimgemm
from slimgemm.torch import PackedLinear, pack_model

MODELS = {
    "qwen3-8b": ("Qwen3Config", {
        "hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151936, "tie_word_embeddings": False}),
    "qwen3-4b": ("Qwen3Config", {
        "hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 151936, "tie_word_embeddings": True}),
    "llama3-8b": ("LlamaConfig", {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
        "vocab_size": 128256, "tie_word_embeddings": False}),
    "tiny": ("Qwen3Config", {
        "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
        "vocab_size": 1024, "tie_word_embeddings": False}),
}
STANDARD_DEVIATION = 0.02


def log(started, text):
    print(f"{time.monotonic() - started:6.1f} s  {text}", file=sys.stderr, flush=True)


def draw_(tensor, name):
    """Fills a tensor with the weights that belong to its name: the same on every call."""
    generator = torch.Generator(tensor.device).manual_seed(zlib.crc32(name.encode()))
    drawn = torch.empty(tensor.shape, device=tensor.device)  # FP32: BF16 draws are coarse
    return tensor.copy_(drawn.normal_(0, STANDARD_DEVIATION, generator=generator))


def build(kind, device):
    """A model whose matrices are drawn by name, on the device, in BF16."""
    name, sizes = MODELS[kind]
    config = getattr(transformers, name)(**sizes, max_position_embeddings=4096)
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model = model.to(torch.bfloat16).eval().requires_grad_(False)
    for parameter, tensor in model.named_parameters():
        if tensor.dim() == 2:
            draw_(tensor, parameter)
    return model


def count_wrong_weights(model):
    """(packed weights whose bits are not those that were drawn, packed weights)."""
    wrong = total = 0
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            found = module.weight
            drawn = draw_(torch.empty_like(found), name + ".weight")
            wrong += int((found.view(torch.int16) != drawn.view(torch.int16)).sum())
            total += found.numel()
    return wrong, total


def weight_bytes(model):
    tensors = {t.data_ptr(): t.nbytes for t in [*model.parameters(), *model.buffers()] if t.numel()}
    return sum(tensors.values())


def fuse_small_operators(model):
    """Replaces norms, rotary embedding and SwiGLU of the model's architecture by compiled ones, in
    every model of it; puts the old ones back if they cannot be compiled here."""
    module = sys.modules[type(model).__module__]
    compiled = {"dynamic": True, "fullgraph": True}
    old = [(module, "apply_rotary_pos_emb", module.apply_rotary_pos_emb)]
    for name, value in vars(module).items():
        if isinstance(value, type) and name.endswith(("RMSNorm", "MLP")):
            old.append((value, "forward", value.forward))
    for owner, name, function in old:
        if owner is not module and owner.__name__.endswith("MLP"):
            if model.config.hidden_act == "silu":
                owner.forward = _swiglu_forward
        else:
            setattr(owner, name, torch.compile(function, **compiled))
    try:
        model(torch.zeros(1, 4, dtype=torch.long, device=model.device))
    except Exception:
        for owner, name, function in old:
            setattr(owner, name, function)
        raise
    return True


@torch.compile(dynamic=True, fullgraph=True)
def _swiglu(gate, up):
    return nn.functional.silu(gate) * up


def _swiglu_forward(self, x):
    return self.down_proj(_swiglu(self.gate_proj(x), self.up_proj(x)))


class Decoder:
    """Greedy decoding of `batch` sequences; after prefill(), every step() adds a token to each."""

    def __init__(self, model, prompts, steps):
        self.model, self.prompts, self.steps = model, prompts, steps
        self.batch, self.prompt_tokens = prompts.shape
        self.device = prompts.device
        self.length = self.prompt_tokens + steps
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=self.length)
        self.columns = torch.arange(self.length, device=self.device)
        self.position = torch.zeros(1, dtype=torch.long, device=self.device)
        self.token = torch.zeros(self.batch, 1, dtype=torch.long, device=self.device)
        self.tokens = torch.zeros(self.batch, self.length, dtype=torch.long, device=self.device)
        self.graph = None

    def prefill(self):
        """Runs the prompts; returns the logits of their last 16 tokens."""
        out = self.model(self.prompts, past_key_values=self.cache, use_cache=True,
                         logits_to_keep=min(16, self.prompt_tokens))
        self.first = out.logits[:, -1:].argmax(-1)
        self.rewind()
        return out.logits

    def rewind(self):
        """Back to the end of the prompts."""
        for layer in self.cache.layers:
            layer.cumulative_length.fill_(self.prompt_tokens)
        self.position.fill_(self.prompt_tokens)
        self.token.copy_(self.first)

    def step(self):
        self.tokens.index_copy_(1, self.position, self.token)
        seen = (self.columns <= self.position).expand(self.batch, 1, 1, self.length)
        out = self.model(self.token, attention_mask=seen,
                         position_ids=self.position[None].expand(self.batch, 1),
                         past_key_values=self.cache, use_cache=True)
        self.token.copy_(out.logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def capture(self):
        """Captures a step into a CUDA graph; on the CPU steps stay as they are."""
        if self.device.type != "cuda":
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.step()
        torch.cuda.current_stream().wait_stream(stream)
        self.rewind()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def run(self):
        """Decodes all steps; returns seconds."""
        self.rewind()
        advance = self.step if self.graph is None else self.graph.replay
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(self.steps):
            advance()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started


def peak_while(device, work):
    """What `work` returns, and the bytes that were allocated at most beyond those before it."""
    if device != "cuda":
        return work(), None
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    result = work()
    torch.cuda.synchronize()
    return result, torch.cuda.max_memory_allocated() - before


def compare_logits(plain, packed):
    """How far apart two sets of logits are, over all tokens."""
    plain, packed = plain.float().flatten(0, -2), packed.float().flatten(0, -2)
    logs = plain.log_softmax(-1), packed.log_softmax(-1)
    divergence = (logs[0].exp() * (logs[0] - logs[1])).sum(-1)
    return {"tokens": plain.shape[0], "max_difference": (plain - packed).abs().max().item(),
            "mean_difference": (plain - packed).abs().mean().item(),
            "largest_logit": plain.abs().max().item(),
            "kl_divergence_mean": divergence.mean().item(),
            "same_best_token": (plain.argmax(-1) == packed.argmax(-1)).float().mean().item(),
            "identical": bool(torch.equal(plain, packed))}


def measure(models, batch, arguments):
    """One number of sequences: both models, decoded in turn."""
    generator = torch.Generator().manual_seed(batch)
    vocabulary = models["plain"].config.vocab_size
    prompts = torch.randint(vocabulary, (batch, arguments.prompt), generator=generator)
    prompts = prompts.to(arguments.device)
    decoders, logits, figures = {}, {}, {"sequences": batch}
    for name, model in models.items():
        def prepare(name=name, model=model):
            decoders[name] = Decoder(model, prompts, arguments.steps)
            logits[name] = decoders[name].prefill()
            decoders[name].capture()
            decoders[name].run()
        _, extra = peak_while(arguments.device, prepare)
        figures[name] = {"weights_bytes": weight_bytes(model)}
        if extra is not None:
            figures[name]["peak_bytes"] = figures[name]["weights_bytes"] + extra
    seconds = {name: [] for name in models}
    for _ in range(arguments.rounds):
        for name, decoder in decoders.items():
            seconds[name].append(decoder.run())
    for name in models:
        middle = statistics.median(seconds[name])
        figures[name] |= {"tokens_per_s": batch * arguments.steps / middle,
                          "step_ms": 1e3 * middle / arguments.steps,
                          "rounds_s": seconds[name]}
    figures["speedup"] = figures["packed"]["tokens_per_s"] / figures["plain"]["tokens_per_s"]
    figures["logits"] = compare_logits(logits["plain"], logits["packed"])
    same = decoders["plain"].tokens == decoders["packed"].tokens
    generated = same[:, arguments.prompt:].int().cumprod(1).sum(1)
    figures["same_tokens_until_they_part"] = generated.tolist()
    return figures


def exact_logits(models, arguments):
    """Whether packed layers with exact=True give the plain model's logits, bit for bit."""
    ids = torch.arange(32, device=arguments.device)[None]
    layers = [m for m in models["packed"].modules() if isinstance(m, PackedLinear)]
    for layer in layers:
        layer.exact = True
    same = torch.equal(models["packed"](ids).logits, models["plain"](ids).logits)
    for layer in layers:
        layer.exact = False
    return same


def directory_path(arguments):
    """A small checkpoint: saved, packed, loaded by from_pretrained; generates with generate()."""
    import slimgemm.transformers  # registers the method
    small = build("tiny", arguments.device)
    ids = torch.arange(16, device=arguments.device)[None]
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = folder + "/plain", folder + "/packed"
        small.save_pretrained(plain)
        if arguments.command:
            subprocess.run([arguments.command, "pack", plain, packed], check=True,
                           capture_output=True)
        else:
            slimgemm.transformers.pack(copy.deepcopy(small), progress=False).save_pretrained(packed)
        loaded = transformers.AutoModelForCausalLM.from_pretrained(packed).to(arguments.device)
        wrong, total = count_wrong_weights(loaded)
        tokens = loaded.generate(ids, max_new_tokens=8, do_sample=False)
        expected = small.generate(ids, max_new_tokens=8, do_sample=False)
    return {"packed_by": arguments.command or "slimgemm.transformers.pack",
            "wrong_weights": wrong, "packed_weights": total,
            "logits": compare_logits(small(ids).logits, loaded(ids).logits),
            "same_tokens": bool(torch.equal(tokens, expected))}


def describe(model, arguments):
    """What was run, on what."""
    device = (torch.cuda.get_device_name() if arguments.device == "cuda"
              else platform.processor() or platform.machine())
    return {"command": sys.argv, "device": device, "slimgemm": slimgemm.__version__,
            "torch": torch.__version__, "transformers": transformers.__version__,
            "model": arguments.model, "parameters": sum(p.numel() for p in model.parameters()),
            "prompt_tokens": arguments.prompt, "steps": arguments.steps,
            "cuda_graphs": arguments.device == "cuda"}


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", required=True, help="JSON file to write")
    parser.add_argument("--model", choices=MODELS, default="qwen3-8b")
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--sequences", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--prompt", type=int, default=128, help="tokens of a prompt")
    parser.add_argument("--steps", type=int, default=64, help="tokens to generate")
    parser.add_argument("--rounds", type=int, default=5, help="times each model decodes them")
    parser.add_argument("--no-fuse", action="store_true", help="leave small operators unfused")
    parser.add_argument("--programmatic-launch", action="store_true",
                        help="packed layers may start while the kernel before them runs")
    parser.add_argument("--command", help="the slimgemm command, to pack the small checkpoint with")
    parser.add_argument("--budget", type=float, default=110,
                        help="seconds after which nothing new is started")
    return parser.parse_args()


def attempt(report, key, work):
    """Keeps the report of what worked if a part fails."""
    try:
        report[key] = work()
    except Exception as error:  # written to the report, and the exit code says so
        report.setdefault("errors", {})[key] = f"{type(error).__name__}: {error}"
        print(f"{key} failed: {error!r}", file=sys.stderr)


@torch.inference_mode()
def main():
    arguments, started = parse(), time.monotonic()
    torch._dynamo.config.recompile_limit = 64
    plain = build(arguments.model, arguments.device)
    report = describe(plain, arguments)
    log(started, f"{arguments.model}: {report['parameters'] / 1e9:.2f} B parameters")
    models = {"plain": plain, "packed": copy.deepcopy(plain)}
    packing = time.monotonic()
    _, extra = peak_while(arguments.device, lambda: pack_model(
        models["packed"], progress=False, programmatic_launch=arguments.programmatic_launch))
    report |= {"packing_s": time.monotonic() - packing, "packing_peak_extra_bytes": extra,
               "programmatic_launch": arguments.programmatic_launch}
    wrong, total = count_wrong_weights(models["packed"])
    report |= {"wrong_weights": wrong, "packed_weights": total}
    report["weights_bytes"] = {name: weight_bytes(model) for name, model in models.items()}
    log(started, f"packed in {report['packing_s']:.1f} s; {wrong} of {total} weights differ")
    attempt(report, "exact_mode_identical", lambda: exact_logits(models, arguments))
    if not arguments.no_fuse:
        attempt(report, "fused", lambda: fuse_small_operators(plain))
    report["results"] = []
    for batch in arguments.sequences:
        if time.monotonic() - started > arguments.budget:
            report.setdefault("errors", {})[f"{batch} sequences"] = "not run: out of time"
            continue
        attempt(report, "last", lambda: measure(models, batch, arguments))
        if "last" in report:
            figures = report.pop("last")
            report["results"].append(figures)
            log(started, f"{batch} sequences: {figures['plain']['tokens_per_s']:.0f} -> "
                f"{figures['packed']['tokens_per_s']:.0f} tokens/s ({figures['speedup']:.3f})")
    if time.monotonic() - started < arguments.budget:
        attempt(report, "directory", lambda: directory_path(arguments))
    report["seconds"] = time.monotonic() - started
    with open(arguments.out, "w", encoding="utf-8") as file:
        json.dump(report, file, indent=1)
    log(started, "written to " + arguments.out)
    return 1 if wrong or "errors" in report else 0


if __name__ == "__main__":
    sys.exit(main())

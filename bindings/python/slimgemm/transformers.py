# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: `import slimgemm.transformers` registers the method `slimgemm`.

After that, `AutoModelForCausalLM.from_pretrained` loads a directory that `slimgemm pack` made, and
`save_pretrained` saves one that loads again; `slimgemm.seal` makes that one verify. docs/serving.md
is the guide.
"""

import re

import torch
from torch import nn
from transformers.quantizers import register_quantization_config, register_quantizer
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

import slimgemm
from slimgemm.integrations import settings
from slimgemm.integrations.collect import to_tensor
from slimgemm.shards import trim
from slimgemm.torch import PackedExperts, PackedLinear, pack_model
from slimgemm.torch._experts import NAMES, is_stacked_experts

__all__ = ["SlimgemmConfig", "SlimgemmQuantizer", "pack"]

_PENDING = "weight_packed"
# The parts of an expert, gate, up and down, under the names that checkpoints have for them.
_EXPERT_NAMES = (NAMES, ("w1", "w3", "w2"))
_EXPERT = re.compile(r"(.+\.experts)\.(\d+)\.(\w+)\.weight")


class SlimgemmConfig(QuantizationConfigMixin):
    """What config.json says of a packed model; as an argument of `from_pretrained` it packs a plain
    BF16 model after it is loaded.

    exact: bit-identical results, slower (see slimgemm.torch.PackedLinear).
    exclude: globs on names of layers that stay plain when a plain model is packed.
    batch_invariant: a row's bits do not depend on its batch, slower (of PackedLinear, too).
    experts: also pack the experts of mixtures (see slimgemm.torch.pack_model). config.json does not
        have it: of a packed directory, the experts that are packed stay so.
    """

    def __init__(self, exact=False, exclude=None, batch_invariant=False, experts=False, **config):
        config.pop("quant_method", None)
        found = settings.Settings.from_config(
            {**config, "exact": exact, "exclude": exclude or [],
             "batch_invariant": batch_invariant})
        self.quant_method = settings.METHOD
        self.exact, self.exclude = found.exact, found.exclude
        self.batch_invariant, self.experts = found.batch_invariant, experts

    def layer_options(self):
        """Those of slimgemm.torch.PackedLinear."""
        return {"exact": self.exact, "batch_invariant": self.batch_invariant}

    def to_dict(self):
        config = {"quant_method": settings.METHOD, "format": "1", "bits": 12,
                  "packed_suffix": settings.SUFFIX}
        if self.exact:
            config["exact"] = True
        if self.exclude:
            config["exclude"] = self.exclude
        if self.batch_invariant:
            config["batch_invariant"] = True
        return config


class _PendingLinear(nn.Module):
    """Stands where a packed layer will be, with the tensors that its checkpoint has. linear: the
    layer that was there; None for a part of an expert."""

    def __init__(self, tensor, linear=None):
        super().__init__()
        if linear is not None and tensor.shape != (linear.out_features, linear.in_features):
            raise ValueError(f"{tensor.name}: the checkpoint has {tensor.shape} weights, the model "
                             f"{(linear.out_features, linear.in_features)}")
        self.register_buffer(_PENDING, torch.empty(tensor.bytes, dtype=torch.uint8, device="meta"))
        self.bias = None if linear is None else linear.bias

    def packed_linear(self, **options):
        stored = getattr(self, _PENDING)
        packed = slimgemm.Packed.from_bytes(trim(stored.cpu()))
        bias = None if self.bias is None else self.bias.data
        return PackedLinear.from_packed(packed, bias, stored.device, **options)


class _PendingExperts(nn.ModuleList):
    """Stands where packed experts will be."""

    def __init__(self, plain, names):
        super().__init__(nn.ModuleDict() for _ in range(plain.gate_up_proj.shape[0]))
        self.plain, self.names = (plain,), names  # in a tuple: it is no module of this one

    def add(self, index, part, tensor):
        if index >= len(self) or part not in self.names:
            raise ValueError(f"{tensor.name} is packed: the model has {len(self)} experts here, of "
                             + ", ".join(self.names))
        self[index][part] = _PendingLinear(tensor)

    def require_whole(self, name):
        for index, expert in enumerate(self):
            missing = [part for part in self.names if part not in expert]
            if missing:
                raise ValueError(f"{name}.{index} has no packed {missing[0]}: the experts of a "
                                 "layer are packed all or none; pack the model again, with or "
                                 f"without --exclude '{name}.*'")

    def packed_experts(self, **options):
        experts = PackedExperts(self.plain[0], self.names)
        for expert in self:
            experts.append_expert([expert[part].packed_linear(**options) for part in self.names])
            expert.clear()  # one expert twice in memory, not all of them
        return experts


class SlimgemmQuantizer(HfQuantizer):
    """Puts packed layers into a model before or after its weights are loaded."""

    requires_calibration = False

    def __init__(self, quantization_config, **kwargs):
        super().__init__(quantization_config, **kwargs)
        # module: "linear", "experts", or the shape and dtype of a plain parameter
        self._pending = {}
        self._has_experts = bool(quantization_config.experts)  # packed ones
        self._no_stacks = False  # and none is left plain

    def update_dtype(self, dtype):
        if dtype not in (None, torch.bfloat16):
            raise ValueError(f"dtype={dtype}: packed layers take bfloat16 activations; load the "
                             "model with dtype=torch.bfloat16")
        return torch.bfloat16

    def update_torch_dtype(self, torch_dtype):  # its name in transformers 4
        return self.update_dtype(torch_dtype)

    def _process_model_before_weight_loading(self, model, checkpoint_files=None, **kwargs):
        if not self.pre_quantized:
            return model
        if not checkpoint_files:
            raise ValueError("a packed model is loaded from its directory: from_pretrained got no "
                             "checkpoint files")
        modules = dict(model.named_modules())
        for tensor in settings.packed_tensors(checkpoint_files).values():
            if self._prepare_expert(model, modules, tensor):
                continue
            name = _module_name(tensor.name, modules, model)
            if name is None or len(tensor.shape) != 2:
                raise ValueError(
                    f"{tensor.name} is packed, and this model has no layer that holds it. Pack the "
                    f"model again with --exclude '{_glob(tensor.name)}'")
            self._prepare(model, name, modules[name], tensor)
        for name, kind in self._pending.items():
            if kind == "experts":
                model.get_submodule(name).require_whole(name)
        self._no_stacks = self._has_experts and not any(map(is_stacked_experts, model.modules()))
        return model

    def _prepare_expert(self, model, modules, tensor):
        """Whether a packed tensor is part of an expert that PackedExperts can hold."""
        match = _EXPERT.fullmatch(tensor.name)
        if match is None or len(tensor.shape) != 2:
            return False
        stem, index, part = match.groups()
        name = next((name for name in _candidates(stem.replace(".block_sparse_moe.", ".mlp."),
                                                  model) if name in modules), None)
        names = next((names for names in _EXPERT_NAMES if part in names), None)
        if name is None or names is None or not is_stacked_experts(modules[name]):
            return False
        if name not in self._pending:
            self._pending[name], self._has_experts = "experts", True
            model.set_submodule(name, _PendingExperts(modules[name], names))
        model.get_submodule(name).add(int(index), part, tensor)
        return True

    def update_weight_conversions(self, weight_conversions, *model):
        """Without those that would make stacks of the experts that stay packed."""
        found = super().update_weight_conversions(weight_conversions, *model)
        if not self._no_stacks:
            return found
        return [conversion for conversion in found
                if not any(re.search(r"experts\.(gate_up|down)_proj$", target)
                           for target in conversion.target_patterns)]

    def _prepare(self, model, name, module, tensor):
        if type(module) is nn.Linear:
            pending = _PendingLinear(tensor, module)
            self._pending[name] = "linear"
            model.set_submodule(name, pending)
            return
        # A module of its own kind that happens to have a packed weight, such as a router: it gets
        # the plain weight back.
        weight = module.weight
        self._pending[name] = (tuple(weight.shape), weight.dtype)
        del module.weight
        module._is_hf_initialized = True  # transformers would draw the weight that is not there
        module.register_buffer(
            _PENDING, torch.empty(tensor.bytes, dtype=torch.uint8, device="meta"))

    def _process_model_after_weight_loading(self, model, **kwargs):
        _refuse_spread(model)
        config = self.quantization_config
        if not self.pre_quantized:
            return pack_model(model, exclude=config.exclude, progress=False,
                              experts=_expert_names(model, config.experts),
                              **config.layer_options())
        for name, kind in self._pending.items():
            module = model.get_submodule(name)
            if kind not in ("linear", "experts"):
                _unpack_parameter(module, name, *kind)
                continue
            make = module.packed_linear if kind == "linear" else module.packed_experts
            model.set_submodule(name, make(**config.layer_options()).train(model.training))
        self._pending = {}
        return model

    def _dequantize(self, model, dtype=None):
        for kind, plain in ((PackedExperts, PackedExperts.plain), (PackedLinear, plain_linear)):
            for name, module in list(model.named_modules()):
                if isinstance(module, kind):
                    model.set_submodule(name, plain(module))
        return model

    def is_serializable(self, *args, **kwargs):
        return True

    @property
    def is_trainable(self):
        return True  # gradients go through packed layers, to adapters before and on them

    @property
    def is_compileable(self):
        return not self._has_experts  # which experts run is known only when they run


def plain_linear(layer):
    """An nn.Linear with the weights of a PackedLinear, bit for bit."""
    linear = nn.Linear(layer.in_features, layer.out_features, bias=False, device="meta")
    linear.weight = nn.Parameter(layer.weight, requires_grad=False)
    linear.bias = layer.bias
    return linear


def _module_name(tensor_name, modules, model):
    """The name of the module whose `weight` this tensor of the checkpoint is, or None."""
    if not tensor_name.endswith(".weight"):
        return None
    for candidate in _candidates(tensor_name[:-len(".weight")], model):
        if candidate in modules and getattr(modules[candidate], "weight", None) is not None:
            return candidate
    return None


def _candidates(name, model):
    """The names that a module of a checkpoint can have in a model with a head or without."""
    prefix = model.base_model_prefix + "."
    return name, prefix + name, name.removeprefix(prefix)


def _expert_names(model, experts):
    """pack_model's `experts`: True becomes the names under which the architecture's checkpoints
    have the parts of an expert."""
    if experts is not True:
        return experts
    try:
        from transformers.conversion_mapping import get_checkpoint_conversion_mapping
    except ImportError:  # another version of transformers: with the names that most have
        return True
    patterns = [pattern for conversion in get_checkpoint_conversion_mapping(
        model.config.get_text_config().model_type) or [] for pattern in conversion.source_patterns]
    return next((names for names in _EXPERT_NAMES
                 if any(f"experts.*.{names[0]}.weight" in pattern for pattern in patterns)), True)


def _glob(name):
    return "*experts*" if "experts" in name else name


def _refuse_spread(model):
    devices = set((getattr(model, "hf_device_map", None) or {}).values())
    if len(devices) > 1 or devices & {"cpu", "disk"} and len(devices) != 1:
        raise ValueError(f"device_map puts the model on {sorted(map(str, devices))}: packed layers "
                         "need one device; a model for several is served by vLLM or SGLang")
    if (getattr(model, "_tp_size", None) or 1) > 1:
        raise ValueError("tp_plan: packed layers are not sharded by transformers; a model for "
                         "several GPUs is served by vLLM or SGLang")


def _unpack_parameter(module, name, shape, dtype):
    stored = getattr(module, _PENDING)
    weight = to_tensor(slimgemm.Packed.from_bytes(trim(stored.cpu())).unpack())
    if tuple(weight.shape) != shape:
        raise ValueError(f"{name}: the checkpoint has {tuple(weight.shape)} weights, the model "
                         f"{shape}")
    delattr(module, _PENDING)
    module.weight = nn.Parameter(weight.to(stored.device, dtype), requires_grad=False)


def pack(model, exclude=None, exact=False, batch_invariant=False, experts=False, **options):
    """Packs the linear layers of a loaded model in place; `save_pretrained` then saves it packed.

    exclude: globs on names of layers that stay plain. exact, batch_invariant, experts and the other
    options: those of slimgemm.torch.pack_model. Returns the model. ValueError if another method has
    quantised it.
    """
    present = getattr(model, "hf_quantizer", None)
    if present is not None and not isinstance(present, SlimgemmQuantizer):
        raise ValueError("the model is quantised already, with "
                         f"{present.quantization_config.quant_method}: pack a plain BF16 model")
    config = SlimgemmConfig(exact, exclude, batch_invariant, experts)
    pack_model(model, exclude=exclude, experts=_expert_names(model, experts),
               **config.layer_options(), **options)
    model.hf_quantizer = SlimgemmQuantizer(config)
    model.config.quantization_config = config
    model.is_quantized, model.quantization_method = True, settings.METHOD
    return model


if settings.METHOD not in AUTO_QUANTIZATION_CONFIG_MAPPING:
    register_quantization_config(settings.METHOD)(SlimgemmConfig)
    register_quantizer(settings.METHOD)(SlimgemmQuantizer)

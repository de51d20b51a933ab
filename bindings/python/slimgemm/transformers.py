# SPDX-License-Identifier: Apache-2.0
"""Hugging Face transformers: `import slimgemm.transformers` registers the method `slimgemm`.

After that, `AutoModelForCausalLM.from_pretrained` loads a directory that `slimgemm pack` made, and
`save_pretrained` saves one that loads again. docs/serving.md is the guide.
"""

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
from slimgemm.torch import PackedLinear, pack_model

__all__ = ["SlimgemmConfig", "SlimgemmQuantizer", "pack"]

_PENDING = "weight_packed"


class SlimgemmConfig(QuantizationConfigMixin):
    """What config.json says of a packed model; as an argument of `from_pretrained` it packs a plain
    BF16 model after it is loaded.

    exact: bit-identical results, slower (see slimgemm.torch.PackedLinear).
    exclude: globs on names of layers that stay plain when a plain model is packed.
    batch_invariant: a row's bits do not depend on its batch, slower (of PackedLinear, too).
    """

    def __init__(self, exact=False, exclude=None, batch_invariant=False, **config):
        config.pop("quant_method", None)
        found = settings.Settings.from_config(
            {**config, "exact": exact, "exclude": exclude or [],
             "batch_invariant": batch_invariant})
        self.quant_method = settings.METHOD
        self.exact, self.exclude = found.exact, found.exclude
        self.batch_invariant = found.batch_invariant

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
    """Stands where a packed layer will be, with the tensors that its checkpoint has."""

    def __init__(self, linear, tensor):
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.register_buffer(_PENDING, torch.empty(tensor.bytes, dtype=torch.uint8, device="meta"))
        self.bias = linear.bias

    def packed_linear(self, exact, batch_invariant):
        stored = getattr(self, _PENDING)
        packed = slimgemm.Packed.from_bytes(trim(stored.cpu()))
        bias = None if self.bias is None else self.bias.data
        return PackedLinear.from_packed(packed, bias, stored.device, exact=exact,
                                        batch_invariant=batch_invariant)


class SlimgemmQuantizer(HfQuantizer):
    """Puts packed layers into a model before or after its weights are loaded."""

    requires_calibration = False

    def __init__(self, quantization_config, **kwargs):
        super().__init__(quantization_config, **kwargs)
        self._pending = {}  # module: "linear", or the shape and dtype of a plain parameter

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
            name = _module_name(tensor.name, modules, model)
            if name is None or len(tensor.shape) != 2:
                raise ValueError(
                    f"{tensor.name} is packed, and this model has no layer that holds it: "
                    "transformers keeps experts and other stacks in tensors of their own. Pack the "
                    f"model again with --exclude '{_glob(tensor.name)}'")
            self._prepare(model, name, modules[name], tensor)
        return model

    def _prepare(self, model, name, module, tensor):
        if type(module) is nn.Linear:
            pending = _PendingLinear(module, tensor)
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
            return pack_model(model, exclude=config.exclude, exact=config.exact, progress=False,
                              batch_invariant=config.batch_invariant)
        for name, kind in self._pending.items():
            module = model.get_submodule(name)
            if kind == "linear":
                layer = module.packed_linear(config.exact, config.batch_invariant)
                layer.train(model.training)
                model.set_submodule(name, layer)
            else:
                _unpack_parameter(module, name, *kind)
        self._pending = {}
        return model

    def _dequantize(self, model, dtype=None):
        for name, module in list(model.named_modules()):
            if isinstance(module, PackedLinear):
                model.set_submodule(name, plain_linear(module))
        return model

    def is_serializable(self, *args, **kwargs):
        return True

    @property
    def is_trainable(self):
        return True  # gradients go through packed layers, to adapters before and on them

    @property
    def is_compileable(self):
        return True


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
    name = tensor_name[:-len(".weight")]
    prefix = model.base_model_prefix + "."
    for candidate in (name, prefix + name, name.removeprefix(prefix)):
        if candidate in modules and getattr(modules[candidate], "weight", None) is not None:
            return candidate
    return None


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


def pack(model, exclude=None, exact=False, batch_invariant=False, **options):
    """Packs the linear layers of a loaded model in place; `save_pretrained` then saves it packed.

    exclude: globs on names of layers that stay plain. exact, batch_invariant and the other
    options: those of slimgemm.torch.pack_model. Returns the model. ValueError if another method has
    quantised it.
    """
    present = getattr(model, "hf_quantizer", None)
    if present is not None and not isinstance(present, SlimgemmQuantizer):
        raise ValueError("the model is quantised already, with "
                         f"{present.quantization_config.quant_method}: pack a plain BF16 model")
    pack_model(model, exclude=exclude, exact=exact, batch_invariant=batch_invariant, **options)
    config = SlimgemmConfig(exact=exact, exclude=exclude, batch_invariant=batch_invariant)
    model.hf_quantizer = SlimgemmQuantizer(config)
    model.config.quantization_config = config
    model.is_quantized, model.quantization_method = True, settings.METHOD
    return model


if settings.METHOD not in AUTO_QUANTIZATION_CONFIG_MAPPING:
    register_quantization_config(settings.METHOD)(SlimgemmConfig)
    register_quantizer(settings.METHOD)(SlimgemmQuantizer)

# SPDX-License-Identifier: Apache-2.0
"""SGLang's side of the plug-in: the configuration `slimgemm` and the methods of its layers."""

from sglang.srt.layers.linear import LinearBase
from sglang.srt.layers.quantization.base_config import LinearMethodBase, QuantizationConfig
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead

from slimgemm.integrations import settings
from slimgemm.integrations.config import PackedConfig, PackedMethod

# Options that packed layers cannot serve: (name, the value that is fine, why another is not).
_REFUSED = (
    ("load_format", ("auto", "safetensors", "dummy"),
     "only these hand a checkpoint's tensors to the layers"),
    ("cpu_offload_gb", (0, None), "packed weights are no parameters that it could move"),
    ("enable_memory_saver", (False, None), "its pauses free memory that it does not know of"),
    ("dtype", ("auto", "bfloat16"), "packed layers take bfloat16 activations"),
    ("enable_torch_compile", (False, None), "it has not been tried"),
    ("enable_tp_lm_head_all_to_all", (False, None), "it has not been tried"),
)


def refuse_unsupported(args):
    """ValueError naming the first of these server arguments that packed layers cannot serve."""
    for name, fine, reason in _REFUSED:
        value = getattr(args, name, fine[0])
        if value not in fine:
            raise ValueError(f"slimgemm in SGLang does not work with {name}={value}: {reason}")


def under_switch(options, args):
    """settings.Settings with batch_invariant, if SGLang's own switch is on."""
    return options.under_switch("enable_deterministic_inference",
                                getattr(args, "enable_deterministic_inference", False))


def _server_args():
    """The server's arguments, or None outside a server; the function moved between versions."""
    for module, function in (("sglang.srt.runtime_context", "get_server_args"),
                             ("sglang.srt.server_args", "get_global_server_args")):
        try:
            return getattr(__import__(module, fromlist=[function]), function)()
        except Exception:  # not there in this version, or nothing is set yet
            continue
    return None


class SlimgemmConfig(PackedConfig, QuantizationConfig):
    """`--quantization slimgemm`: layers packed while they load, or read from a packed directory."""

    def get_scaled_act_names(self):
        return []

    def _check(self):
        args = None if self._checked else _server_args()
        if args is not None:
            refuse_unsupported(args)
            self.settings = under_switch(self.settings, args)
            settings.refuse_experts(settings.checkpoint_files(args.model_path))
            self._checked = True
        return args

    def get_quant_method(self, layer, prefix):
        args = self._check()
        if isinstance(layer, (LinearBase, ParallelLMHead)):
            return SlimgemmLinearMethod(self.settings, prefix,
                                        getattr(args, "load_format", "auto") == "dummy")
        return None


class SlimgemmLinearMethod(PackedMethod, LinearMethodBase):
    """Linear layers and the output layer, from packed or plain tensors."""

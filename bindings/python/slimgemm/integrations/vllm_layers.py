# SPDX-License-Identifier: Apache-2.0
"""vLLM's side of the plug-in: the configuration `slimgemm` and the methods of its layers."""

import os

from vllm.config import get_current_vllm_config
from vllm.model_executor.layers.linear import LinearBase, LinearMethodBase
from vllm.model_executor.layers.quantization.base_config import QuantizationConfig
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead

from slimgemm.integrations import settings
from slimgemm.integrations.config import PackedConfig, PackedMethod

# Ways of loading that never call a layer's weight loader with tensors of a checkpoint.
_LOAD_FORMATS = {"sharded_state", "runai_streamer_sharded", "tensorizer", "bitsandbytes", "gguf"}


def _refuse(option, reason):
    raise ValueError(f"slimgemm in vLLM does not work with {option}: {reason}")


def refuse_unsupported(config):
    """ValueError naming the first option of this VllmConfig that packed layers cannot serve."""
    load_format = str(getattr(config.load_config, "load_format", "auto"))
    if load_format in _LOAD_FORMATS:
        _refuse(f"load_format={load_format}", "it does not hand a checkpoint's tensors to layers")
    offload = getattr(config, "offload_config", None)
    uva = getattr(offload, "uva", None)
    gigabytes = (getattr(getattr(config, "cache_config", None), "cpu_offload_gb", 0)
                 or getattr(uva, "cpu_offload_gb", 0))
    if gigabytes:
        _refuse(f"cpu_offload_gb={gigabytes}",
                "packed weights are no parameters that it could move")
    prefetch = getattr(getattr(offload, "prefetch", None), "offload_group_size", 0)
    if prefetch:
        _refuse(f"offload_group_size={prefetch}",
                "packed weights are no parameters that it could move")
    if getattr(config.model_config, "enable_sleep_mode", False):
        _refuse("enable_sleep_mode", "waking up would need the packed weights to be rebuilt")


def under_switch(options):
    """settings.Settings with batch_invariant, if vLLM's own switch is on."""
    on = os.environ.get("VLLM_BATCH_INVARIANT", "0") not in ("", "0")
    return options.under_switch("VLLM_BATCH_INVARIANT=1", on)


class SlimgemmConfig(PackedConfig, QuantizationConfig):
    """`quantization="slimgemm"`: layers packed while they load, or read from a packed directory."""

    def maybe_update_config(self, model_name, hf_config=None, revision=None):
        files = settings.checkpoint_files(model_name)
        settings.refuse_experts(files)
        if hf_config is not None:
            # vLLM's key for compiled code has all of the model's configuration in it, the
            # quantization_config included, and no place for a plug-in.
            hf_config.slimgemm_cache_key = settings.cache_key(files)

    def get_quant_method(self, layer, prefix):
        if not self._checked:
            refuse_unsupported(get_current_vllm_config())
            self.settings = under_switch(self.settings)
            self._checked = True
        if isinstance(layer, (LinearBase, ParallelLMHead)):
            return SlimgemmLinearMethod(self.settings, prefix)
        return None


class SlimgemmLinearMethod(PackedMethod, LinearMethodBase):
    """Linear layers and the output layer, from packed or plain tensors."""

    def create_weights(self, *args, **kwargs):
        super().create_weights(*args, **kwargs)
        self.dummy = str(get_current_vllm_config().load_config.load_format) == "dummy"

    def tie_weights(self, layer, embed_tokens):
        layer.weight = embed_tokens.weight
        return layer

# SPDX-License-Identifier: Apache-2.0
"""LoRA on packed layers, with Hugging Face peft."""

from peft.tuners.lora import Linear as LoraLinear

from slimgemm.integrations.collect import to_tensor
from slimgemm.torch import PackedLinear, pack_weight

__all__ = ["LoraPackedLinear", "prepare"]


class LoraPackedLinear(LoraLinear):
    """peft's LoRA layer on a PackedLinear.

    Merging packs the sum of weights and adapters; unmerging puts the packed weights back that were
    there before, bit for bit, where subtracting in BF16 would not.
    """

    def __init__(self, base_layer, adapter_name, config=None, **kwargs):
        if config is not None:
            kwargs["config"] = config
        super().__init__(base_layer, adapter_name, **kwargs)
        self._unmerged = None

    def merge(self, safe_merge=False, adapter_names=None):
        from peft.tuners.tuners_utils import check_adapters_to_merge

        names = [name for name in check_adapters_to_merge(self, adapter_names) or []
                 if name in self.lora_A]
        if not names:
            return
        base = self.get_base_layer()
        weight = base.weight
        for name in names:
            bias = getattr(self, "lora_bias", {}).get(name)
            if bias or name in getattr(self, "lora_variant", {}):
                raise NotImplementedError(
                    f"adapter {name}: a variant of LoRA or one with a bias cannot be merged into "
                    "packed weights; run it unmerged")
            weight = (weight + self.get_delta_weight(name)).to(weight.dtype)  # rounded once
        if safe_merge and not weight.isfinite().all():
            raise ValueError(f"merging {', '.join(names)} gives weights that are Inf or NaN")
        if self._unmerged is None:
            self._unmerged = base.packed()
        _replace(base, weight)
        self.merged_adapters.extend(names)

    def unmerge(self):
        if not self.merged:
            return
        base = self.get_base_layer()
        _replace(base, to_tensor(self._unmerged.unpack()).to(base.weights.device))
        self._unmerged = None
        self.merged_adapters.clear()


def _replace(base, weight):
    try:
        base.update_(weight)
    except ValueError:  # too many weights left the old window: the layer gets new memory
        base.load_packed_(pack_weight(weight))


def prepare(config):
    """Lets a peft.LoraConfig put adapters on packed layers; returns it.

        model = peft.get_peft_model(model, slimgemm.peft.prepare(LoraConfig(...)))
    """
    config._register_custom_module({PackedLinear: LoraPackedLinear})
    return config

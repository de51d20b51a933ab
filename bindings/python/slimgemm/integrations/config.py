# SPDX-License-Identifier: Apache-2.0
"""What the plug-ins' quantisation methods have in common, beside each engine's base classes."""

import torch

from slimgemm.integrations import settings
from slimgemm.integrations.layer import attach, finish, run


class PackedConfig:
    """Before an engine's QuantizationConfig: the method's name and what it needs."""

    def __init__(self, options=None):
        super().__init__()
        self.settings = options or settings.Settings()
        self._checked = False

    def __repr__(self):
        return f"SlimgemmConfig({self.settings})"

    def get_name(self):
        return settings.METHOD

    def get_supported_act_dtypes(self):
        return [torch.bfloat16]

    @classmethod
    def get_min_capability(cls):
        return 90

    @staticmethod
    def get_config_filenames():
        return []

    @classmethod
    def from_config(cls, config):
        return cls(settings.Settings.from_config(config))


class PackedMethod:
    """Before an engine's LinearMethodBase: layers from packed or plain tensors.

    dummy: the engine makes up the weights.
    """

    def __init__(self, options, prefix, dummy=False):
        self.settings, self.prefix, self.dummy = options, prefix, dummy

    def create_weights(self, layer, input_size_per_partition, output_partition_sizes, input_size,
                       output_size, params_dtype, **extra_weight_attrs):
        sizes = sum(output_partition_sizes), input_size_per_partition
        attach(layer, self.prefix, sizes, params_dtype, extra_weight_attrs["weight_loader"],
               self.settings)

    def process_weights_after_loading(self, layer):
        finish(layer, self.dummy)

    def apply(self, layer, x, bias=None):
        return run(layer, x, bias)

# SPDX-License-Identifier: Apache-2.0
"""The vLLM plug-in: entry point `slimgemm` of `vllm.general_plugins`."""


def register():
    """Registers the quantisation method `slimgemm`. vLLM calls it in each of its processes."""
    from vllm.model_executor.layers import quantization

    if "slimgemm" not in quantization.QUANTIZATION_METHODS:
        from slimgemm.integrations import vllm_layers

        quantization.register_quantization_config("slimgemm")(vllm_layers.SlimgemmConfig)

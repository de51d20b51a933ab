# SPDX-License-Identifier: Apache-2.0
"""The SGLang plug-in: entry point `slimgemm` of `sglang.srt.plugins`."""


def register():
    """Registers the quantisation method `slimgemm`. SGLang calls it in each of its processes."""
    from sglang.srt.layers import quantization

    from slimgemm.integrations import sglang_layers

    methods = (quantization.QUANTIZATION_METHODS, quantization.BASE_QUANTIZATION_METHODS,
               # of older versions and for CPUs with AMX; not every version has it
               getattr(quantization, "CPU_QUANTIZATION_METHODS", {}))
    for table in methods:
        table["slimgemm"] = sglang_layers.SlimgemmConfig
    for choices in _choices():
        if "slimgemm" not in choices:
            choices.append("slimgemm")


def _choices():
    """The lists that --quantization is checked against; they moved between versions."""
    found = []
    for module in ("sglang.srt.arg_groups.choices", "sglang.srt.server_args"):
        try:
            choices = __import__(module, fromlist=["QUANTIZATION_CHOICES"]).QUANTIZATION_CHOICES
        except (ImportError, AttributeError):
            continue
        if not any(choices is other for other in found):
            found.append(choices)
    return found

# SPDX-License-Identifier: Apache-2.0
"""Plug-ins for serving engines: `vllm` and `sglang`. docs/serving.md describes them.

The engines find the plug-ins through this package's entry points. Nothing here imports an engine
before it is asked to register.
"""

# SPDX-License-Identifier: Apache-2.0
"""The plug-in inside SGLang's engine, with a tiny model on the CPU. Runs where `sglang` can be
imported and finds the plug-in by its entry point; for kernels that are not installed there are
names that raise an error if they are called (sglang_engine/sgl_kernel)."""

import importlib.metadata
import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sglang")
if not [entry for entry in importlib.metadata.entry_points(group="sglang.srt.plugins")
        if entry.name == "slimgemm"]:
    pytest.skip("slimgemm is not installed with its entry points", allow_module_level=True)

import tiny_models  # noqa: E402

HERE = pathlib.Path(__file__).parent / "sglang_engine"


def run(model, options=None, *more):
    paths = [*sys.path, *([] if importlib.util.find_spec("sgl_kernel") else [str(HERE)])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    done = subprocess.run(
        [sys.executable, str(HERE / "run.py"), model, json.dumps(options or {}), *more],
        capture_output=True, text=True, check=False, env=environment, timeout=900)
    for line in done.stdout.splitlines():
        if line.startswith("RESULT "):
            return [torch.tensor(scores) for scores in json.loads(line[7:])]
    raise RuntimeError(f"the engine ended with {done.returncode}: {done.stderr[-6000:]}")


def close(ours, plain):
    return (ours - plain).abs().max() < 0.15


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    base = tmp_path_factory.mktemp("qwen3")
    plain = tiny_models.save_plain("qwen3", base / "plain")
    new = tiny_models.save_plain("qwen3", base / "new", seed=1)
    return plain, tiny_models.pack_directory(plain, base / "packed"), new


def test_engine(directories):
    """Packed, packed while it loads, and with new weights: as the plain engine."""
    plain, packed, new = directories
    (expected, expected_new) = run(plain, {}, new)
    assert not close(expected, expected_new)
    before, after = run(packed, {}, new)
    assert close(before, expected)
    assert close(after, expected_new)
    (loaded,) = run(plain, {"quantization": "slimgemm"})
    assert close(loaded, expected)


def test_refused_option(directories):
    with pytest.raises(RuntimeError, match="cpu_offload_gb=1"):
        run(directories[1], {"cpu_offload_gb": 1})

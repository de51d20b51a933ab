# SPDX-License-Identifier: Apache-2.0
"""The examples under examples/python, as a user starts them."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

import tiny_models  # noqa: E402


@pytest.mark.parametrize("name, expected", [
    ("generate_text.py", "linear layers: 2.88 MB -> 2."),
    ("pack_and_serve.py", "generated: ["),
    ("lora.py", "every bit of the base weights is back"),
    ("update_weights.py", "step 2: reward"),
])
def test_example(name, expected):
    if name == "lora.py":
        pytest.importorskip("peft")
    options = ["--command", tiny_models.command() or ""] if name == "pack_and_serve.py" else []
    path = pathlib.Path(tiny_models.ROOT, "examples/python", name)
    done = subprocess.run([sys.executable, str(path), *options], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert expected in done.stdout


def test_benchmark(tmp_path):
    """The benchmark of whole models on the CPU: what it checks holds; its times mean nothing."""
    import json
    path = pathlib.Path(tiny_models.ROOT, "bindings/python/benchmarks/generate.py")
    done = subprocess.run(
        [sys.executable, str(path), "--out", str(tmp_path / "x.json"), "--device", "cpu",
         "--model", "tiny", "--sequences", "1", "3", "--prompt", "8", "--steps", "4",
         "--rounds", "1", "--no-fuse"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "x.json").read_text())
    assert report["wrong_weights"] == 0 and report["packed_weights"] == 1441792
    assert report["exact_mode_identical"] and report["directory"]["wrong_weights"] == 0
    assert [figures["sequences"] for figures in report["results"]] == [1, 3]
    ratio = report["weights_bytes"]["packed"] / report["weights_bytes"]["plain"]
    assert 0.78 < ratio < 0.82  # the embeddings stay
    assert all(figures["logits"]["max_difference"] < 0.05 for figures in report["results"])

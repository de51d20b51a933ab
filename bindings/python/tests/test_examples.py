# SPDX-License-Identifier: Apache-2.0
"""The examples under examples/python, as a user starts them."""

import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers", minversion="5.0")

import tiny_models  # noqa: E402


def run(name, *options):
    """What an example prints."""
    path = pathlib.Path(tiny_models.ROOT, "examples/python", name)
    done = subprocess.run([sys.executable, str(path), *options], capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_generate_text():
    assert "linear layers: 2.88 MB -> 2." in run("generate_text.py")


def test_pack_and_serve():
    if tiny_models.command() is None:
        pytest.skip("no slimgemm command: it packs the directory")
    assert "generated: [" in run("pack_and_serve.py", "--command", tiny_models.command())


def test_pack_and_serve_without_the_command():
    tiny_models.require_checksums()
    assert "generated: [" in run("pack_and_serve.py", "--command", "")


def test_lora():
    pytest.importorskip("peft")
    assert "every bit of the base weights is back" in run("lora.py")


def test_update_weights():
    assert "step 2: reward" in run("update_weights.py")


def test_examples_are_all_tested():
    folder = pathlib.Path(tiny_models.ROOT, "examples/python")
    assert {path.stem for path in folder.glob("*.py")} - {"tiny_model"} == {
        "generate_text", "pack_and_serve", "lora", "update_weights"}


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

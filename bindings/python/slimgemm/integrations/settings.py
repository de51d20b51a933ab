# SPDX-License-Identifier: Apache-2.0
"""What a checkpoint's `quantization_config` may say, and which tensors of it are packed."""

import dataclasses
import fnmatch
import hashlib
import json
import pathlib
import struct

import slimgemm
from slimgemm import shards

METHOD = "slimgemm"
SUFFIX = "_packed"
_FORMAT = "1"

# Written by `slimgemm pack`, and what engines add to it.
_KNOWN = {"quant_method", "format", "bits", "packed_suffix", "exact", "exclude",
          "batch_invariant"}
_FROM_ENGINES = {"packed_modules_mapping", "hf_config", "modules_to_not_convert"}


@dataclasses.dataclass
class Settings:
    """exact: decode each layer and multiply with the engine's dense product; the logits are then
    those of the unpacked model, and no time is saved.
    exclude: globs on layer names; weights of these that arrive unpacked stay so.
    batch_invariant: packed layers give a row the same bits whatever the batch, and take longer;
        layers that packing does not shrink are packed, too. Excluded ones and a tied output layer
        stay PyTorch's."""

    exact: bool = False
    exclude: list = dataclasses.field(default_factory=list)
    batch_invariant: bool = False

    def __post_init__(self):
        if self.exact and self.batch_invariant:
            raise ValueError("quantization_config: exact and batch_invariant exclude each other: "
                             "exact calls cuBLAS, whose sums depend on the batch")

    @classmethod
    def from_config(cls, config):
        """Settings from a `quantization_config`. ValueError names what is not understood."""
        unknown = set(config) - _KNOWN - _FROM_ENGINES
        if unknown:
            raise ValueError(f"quantization_config: {', '.join(sorted(unknown))}: slimgemm knows "
                             f"{', '.join(sorted(_KNOWN))}")
        if str(config.get("format", _FORMAT)) != _FORMAT:
            raise ValueError(f"quantization_config: format {config['format']}: this version of "
                             f"slimgemm reads format {_FORMAT}")
        if config.get("packed_suffix", SUFFIX) != SUFFIX:
            raise ValueError(f"quantization_config: packed_suffix {config['packed_suffix']!r}: it "
                             f"must be {SUFFIX!r}")
        return cls(bool(config.get("exact", False)), list(config.get("exclude", [])),
                   bool(config.get("batch_invariant", False)))

    def layer_options(self):
        """Those of slimgemm.torch.PackedLinear."""
        return {"exact": self.exact, "batch_invariant": self.batch_invariant}

    def under_switch(self, name, on):
        """These settings, if an engine's own switch for batch invariance, `name`, is on or off.
        ValueError if it is on and `exact` is set."""
        if not on or self.batch_invariant:
            return self
        if self.exact:
            raise ValueError(f"slimgemm does not work with {name} and exact: exact calls PyTorch's "
                             "product, whose sums may depend on the batch; leave one of them out")
        return dataclasses.replace(self, batch_invariant=True)

    def excludes(self, name):
        return any(fnmatch.fnmatchcase(name, glob) for glob in self.exclude)


@dataclasses.dataclass(frozen=True)
class PackedTensor:
    """A packed tensor of a safetensors file. `shape` is that of the original: [n, k], or [e, n, k]
    of a stack; `dtype` the original's, as safetensors names it; `bytes` as stored, with padding."""

    name: str
    stored: str
    file: str
    shape: tuple
    dtype: str
    bytes: int


def packed_tensors(files):
    """The packed tensors of safetensors files: {original name: PackedTensor}.

    Shape and dtype come from the records of docs/format.md section 6; where another program has
    saved the file and there are none, from the packed matrix itself.
    """
    found = {}
    for path in files:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if size > 100_000_000:
                raise ValueError(f"{path}: a header of {size} bytes: a safetensors file has at "
                                 "most 100000000")
            header = json.loads(file.read(size))
            metadata = header.pop("__metadata__", None) or {}
            for stored, entry in header.items():
                if not stored.endswith(SUFFIX) or entry["dtype"] != "U8":
                    continue
                name = stored[:-len(SUFFIX)]
                begin, end = entry["data_offsets"]
                record = metadata.get("slimgemm.tensor." + name)
                if record:
                    record = json.loads(record)
                    shape, dtype = tuple(record["shape"]), record["dtype"]
                else:
                    file.seek(8 + size + begin)
                    matrix = shards.read_header(file.read(128), whole=False)
                    shape = (matrix.n, matrix.k)
                    dtype = "F32" if matrix.dtype == "float32" else "BF16"
                found[name] = PackedTensor(name, stored, str(path), shape, dtype, end - begin)
    return found


def cache_key(files):
    """What compiled code depends on beside an engine's options: this package's version, and which
    tensors of the checkpoint are packed."""
    names = "\n".join(sorted(packed_tensors(files)))
    return f"{slimgemm.__version__}-{hashlib.sha256(names.encode()).hexdigest()[:16]}"


def refuse_experts(files):
    """ValueError if experts of a mixture are packed: the engines multiply all experts of a layer
    with one kernel over a stack of plain weights (docs/serving.md)."""
    for name, tensor in packed_tensors(files).items():
        if len(tensor.shape) == 3 or ".experts." in name or not name.endswith(".weight"):
            raise ValueError(f"{name} is packed, and the engine's kernels for experts read plain "
                             "weights alone: pack the model again with --exclude '*experts*'")


def checkpoint_files(directory):
    """The safetensors files of a model directory, or [] if it is none."""
    path = pathlib.Path(directory)
    return sorted(path.glob("*.safetensors")) if path.is_dir() else []

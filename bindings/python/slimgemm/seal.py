# SPDX-License-Identifier: Apache-2.0
"""Makes a directory that `save_pretrained` wrote one that verifies: `python -m slimgemm.seal DIR`.

transformers saves packed tensors without the records and the manifest of docs/format.md, section 6.
`seal` adds them, for the plain model that the directory holds: `slimgemm verify` then checks every
byte of it, and `slimgemm unpack` writes that plain model.
"""

import argparse
import itertools
import json
import os
import pathlib
import struct
import sys

import numpy as np

from slimgemm import Packed, _core, shards
from slimgemm.integrations.settings import METHOD, SUFFIX

__all__ = ["seal"]

_MANIFEST = "slimgemm.json"
_PARTIAL = "slimgemm.seal.partial"
_VERSION = "1"
_UNSEALED = "0" * 16
_PAGE = 4096
_PADDED_TO = 256
# Bytes of an element, as safetensors names dtypes; what is not here is smaller than a byte or new.
_ITEM_BYTES = {"F64": 8, "I64": 8, "U64": 8, "F32": 4, "I32": 4, "U32": 4, "F16": 2, "BF16": 2,
               "I16": 2, "U16": 2}


def seal(directory):
    """Writes the records and the manifest of a packed directory, `slimgemm.json`.

    directory: of a packed model, complete: a file that is added later, such as a tokenizer's, has
        to be sealed again. Its safetensors files are written anew, one at a time, each beside the
        old one and then in its place. Every packed matrix is checked on the way; plain tensors
        have nothing by which they could be.

    ValueError if it is no packed model's directory, or a packed matrix in it is damaged;
    NotImplementedError in a build without checksums.
    """
    directory = pathlib.Path(directory)
    config_path = directory / "config.json"
    if not config_path.is_file():
        raise ValueError(f"{directory} has no config.json: seal takes the directory of a model "
                         "that save_pretrained wrote")
    config = json.loads(config_path.read_text("utf-8"))
    method = (config.pop("quantization_config", None) or {}).get("quant_method")
    if method != METHOD:
        raise ValueError(f"{config_path} has the quant_method {method!r}: seal takes a packed "
                         "model; `slimgemm pack` packs a plain one")
    changed = {"config.json": json.dumps(config, indent=2, ensure_ascii=False) + "\n"}
    (directory / _MANIFEST).unlink(missing_ok=True)  # of a model that was here before
    (directory / _PARTIAL).unlink(missing_ok=True)
    folders, names = _listing(directory)
    shard_facts = {name: _seal_file(directory / name, directory / _PARTIAL)
                   for name in names if name.endswith(".safetensors")}
    for name in names:
        if name.endswith(".safetensors.index.json"):
            changed[name] = _change_index(directory / name, shard_facts)
    files = [_file_record(directory, name, changed.get(name), shard_facts.get(name))
             for name in names]
    manifest = {"manifest_xxh3": _UNSEALED, "format": _VERSION, "directories": folders,
                "files": files}
    text = _sealed(json.dumps(manifest, indent=1, ensure_ascii=False) + "\n", "manifest_xxh3")
    _replace(directory / _MANIFEST, directory / _PARTIAL, [text.encode()])


def _listing(directory):
    """(folders, files) below a directory, as names relative to it."""
    folders, files = [], []
    for base, inner, found in os.walk(directory):
        relative = pathlib.Path(base).relative_to(directory)
        folders += [(relative / name).as_posix() for name in inner]
        files += [(relative / name).as_posix() for name in found]
    return sorted(folders), sorted(files)


def _mapped(path, offset):
    """A file's bytes from an offset on."""
    if path.stat().st_size == offset:
        return np.zeros(0, np.uint8)
    return np.memmap(path, np.uint8, mode="r", offset=offset)


def _hex(data):
    return f"{_core.xxh3(np.ascontiguousarray(shards.as_bytes(data))):016x}"


def _sealed(text, key, before=b""):
    """`text` with the XXH3 of `before` and itself in place of the zeros under `key`."""
    at = text.index(_UNSEALED, text.index(f'"{key}"'))
    return text[:at] + _hex(before + text.encode()) + text[at + len(_UNSEALED):]


def _replace(path, partial, pieces):
    with open(partial, "wb") as file:
        for piece in pieces:
            file.write(piece)
    os.replace(partial, path)


class _Tensor:
    """A tensor of a safetensors file: as it is stored, and as its original was."""

    def __init__(self, path, stored, entry, data):
        begin, end = entry["data_offsets"]
        self.stored, self.dtype, self.shape = stored, entry["dtype"], entry["shape"]
        self.data = data[begin:end]
        self.packed = stored.endswith(SUFFIX) and self.dtype == "U8"
        if not self.packed:
            self.name, self.padding = stored, 0
            self.original_bytes = self.stored_bytes = self.data.size
            self.record = {"xxh3": _hex(self.data)}
            return
        self.name = stored[:-len(SUFFIX)]
        header = shards.read_header(self.data)
        if self.data.size - header.total_bytes >= _PADDED_TO:
            raise ValueError(f"{path}: {stored} holds more than one packed matrix: seal knows what "
                             "save_pretrained writes; a directory of `slimgemm pack` has a seal")
        self.data = self.data[:header.total_bytes]
        self.padding = -self.data.size % _PADDED_TO
        self.stored_bytes = self.data.size + self.padding
        try:
            packed = Packed.from_bytes(np.array(self.data))
        except ValueError as error:
            raise ValueError(f"{path}: {stored}: {error}") from error
        weights = packed.unpack().view(np.uint8)
        self.dtype = "F32" if packed.dtype == "float32" else "BF16"
        self.shape, self.original_bytes = [packed.n, packed.k], weights.size
        self.record = {"stored": stored, "dtype": self.dtype, "shape": self.shape,
                       "encoding": packed.encoding, "xxh3": _hex(weights)}

    def header_entry(self, begin, original):
        """Its entry in the header of the packed or of the original file."""
        as_bytes = self.packed and not original
        size = self.original_bytes if original else self.stored_bytes
        return {"dtype": "U8" if as_bytes else self.dtype, "shape": [size] if as_bytes
                else self.shape, "data_offsets": [begin, begin + size]}


def _header(metadata, tensors, original):
    """(JSON text of a safetensors header, bytes of its data)."""
    entries, begin = {"__metadata__": metadata}, 0
    for tensor in tensors:
        entry = tensor.header_entry(begin, original)
        entries[tensor.name if original else tensor.stored] = entry
        begin = entry["data_offsets"][1]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False), begin


def _seal_file(path, partial):
    """Writes a file anew with its records. Returns its tensors and the seal of its header (None if
    nothing in it is packed; the file then stays)."""
    with open(path, "rb") as file:
        size = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(size))
    data = _mapped(path, 8 + size)
    metadata = {key: value for key, value in (header.pop("__metadata__", None) or {}).items()
                if not key.startswith("slimgemm.")}
    tensors = [_Tensor(path, name, entry, data) for name, entry in header.items()]
    if not any(tensor.packed for tensor in tensors):
        return tensors, None
    tensors.sort(key=lambda tensor: -_ITEM_BYTES.get(tensor.dtype, 1))
    original, original_size = _header(metadata, tensors, True)
    original += " " * (-len(original.encode()) % 8)
    original_bytes = 8 + len(original.encode()) + original_size
    records = {"slimgemm.tensor." + tensor.name: json.dumps(tensor.record, separators=(",", ":"))
               for tensor in tensors}
    tensors.sort(key=lambda tensor: not tensor.packed)
    text, _ = _header({**metadata, "slimgemm.format": _VERSION,
                       "slimgemm.original_bytes": str(original_bytes), **records,
                       "slimgemm.original_header": original,
                       "slimgemm.header_xxh3": _UNSEALED}, tensors, False)
    text += " " * (-(8 + len(text.encode())) % _PAGE)
    length = struct.pack("<Q", len(text.encode()))
    text = _sealed(text, "slimgemm.header_xxh3", length)
    pieces = (piece for tensor in tensors for piece in (tensor.data, bytes(tensor.padding)))
    _replace(path, partial, itertools.chain([length, text.encode()], pieces))
    for tensor in tensors:
        tensor.data = None  # of the old file, whose space is free then
    at = text.index('"slimgemm.header_xxh3":"') + len('"slimgemm.header_xxh3":"')
    return tensors, text[at:at + len(_UNSEALED)]


def _change_index(path, shard_facts):
    """Writes the index of sharded files with their new sizes; returns the original's text."""
    index = json.loads(path.read_text("utf-8"))
    tensors = {tensor.stored: tensor for found, _ in shard_facts.values() for tensor in found}
    original = dict(index, weight_map={tensors[name].name: shard
                                       for name, shard in index["weight_map"].items()})
    if "total_size" in index.get("metadata", {}):
        stored = sum(tensor.stored_bytes for tensor in tensors.values())
        plain = sum(tensor.original_bytes for tensor in tensors.values())
        original["metadata"] = {**index["metadata"], "total_size": plain}
        index["metadata"]["total_size"] = stored
    path.write_text(json.dumps(index, indent=2, ensure_ascii=False) + "\n", "utf-8")
    return json.dumps(original, indent=2, ensure_ascii=False) + "\n"


def _file_record(directory, name, original, facts):
    """The manifest's entry of a file. original: the text that a changed one had before."""
    path = directory / name
    record = {"name": name, "kind": "copied", "bytes": path.stat().st_size}
    if facts is not None and facts[1] is not None:
        return {**record, "kind": "packed", "xxh3": facts[1]}
    record["xxh3"] = _hex(_mapped(path, 0))
    return record if original is None else {**record, "kind": "changed", "original": original}


def main():
    parser = argparse.ArgumentParser(prog="python -m slimgemm.seal",
                                     description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("directory", help="of a packed model that save_pretrained wrote")
    directory = parser.parse_args().directory
    try:
        seal(directory)
    except (ValueError, NotImplementedError, OSError) as error:
        sys.exit(f"slimgemm.seal: {error}")
    print(f"sealed: {directory}")


if __name__ == "__main__":
    main()

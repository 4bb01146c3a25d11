"""The safetensors format: 8 bytes of header length, a JSON header, the tensors' bytes without
holes. Read with bounds, as the program reads it; no pickle is involved anywhere."""

from __future__ import annotations

import math
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from performer._run.files import member, parse_json

_MOST_HEADER = 1 << 26
_MOST_SIZE = 1 << 48
_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}


class Entry(NamedTuple):
    """A tensor of a file; bytes counted from the file's begin."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


def read_header(path: Path) -> dict[str, Entry]:
    """The tensors by name, checked against each other and against the size of the file."""
    size = path.stat().st_size
    with path.open("rb") as file:
        start = file.read(8)
        length = int.from_bytes(start, "little")
        if len(start) < 8 or length > min(size - 8, _MOST_HEADER):
            raise ValueError(f"{path}: damaged: a header of {length} bytes in a file of {size}")
        header = parse_json(file.read(length), f"{path}: header")
    if not isinstance(header, dict):
        raise ValueError(f"{path}: header: damaged: it must be an object")
    header.pop("__metadata__", None)
    first = 8 + length
    entries = {name: _entry(value, first, f"{path}: {name:.80}") for name, value in header.items()}
    reached = first
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != reached:
            raise ValueError(f"{path}: {name:.80}: damaged: overlaps another tensor, or a hole")
        reached = entry.end
    if reached != size:
        raise ValueError(f"{path}: damaged: {size} bytes, its tensors end at {reached}")
    return entries


def read_tensors(path: Path, entries: dict[str, Entry]) -> dict[str, Tensor]:
    """On the CPU, memory of their own."""
    tensors = {}
    with path.open("rb") as file:
        for name, entry in entries.items():
            file.seek(entry.begin)
            content = bytearray(file.read(entry.end - entry.begin))
            if len(content) != entry.end - entry.begin:
                raise ValueError(f"{path}: cut short while it was read")
            flat = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0)
            tensors[name] = flat.view(entry.dtype) if content else flat.to(entry.dtype)
            tensors[name] = tensors[name].reshape(entry.shape)
    return tensors


def _entry(value: object, first: int, name: str) -> Entry:
    word = member(value, "dtype", str, name)
    if word not in _DTYPES:
        raise ValueError(f"{name}: dtype must be one of {', '.join(_DTYPES)}, got {word!r:.20}")
    shape = _whole_numbers(member(value, "shape", list, name), "shape", name)
    offsets = _whole_numbers(member(value, "data_offsets", list, name), "data_offsets", name)
    dtype = _DTYPES[word]
    needed = math.prod(shape) * dtype.itemsize
    if len(offsets) != 2 or offsets[1] - offsets[0] != needed:
        raise ValueError(
            f"{name}: damaged: data_offsets {str(list(offsets)):.60} for {needed} bytes of shape "
            f"{str(list(shape)):.60}"
        )
    return Entry(dtype, shape, first + offsets[0], first + offsets[1])


def _whole_numbers(values: list[object], key: str, name: str) -> tuple[int, ...]:
    if len(values) > 8:
        raise ValueError(f"{name}: {key} must have at most 8 numbers, got {len(values)}")
    for value in values:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MOST_SIZE:
            raise ValueError(f"{name}: {key} must be whole numbers, got {value!r:.40}")
    return tuple(int(str(value)) for value in values)

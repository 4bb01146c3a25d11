"""The cases of tests/cases, for Python; op_cases.cpp reads the same lines."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import torch

FOLDER = Path(__file__).parents[1] / "cases"
NAMES = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
}
DTYPES = {name: dtype for dtype, name in NAMES.items()}
FLAGS = (
    "mask",
    "key_bias",
    "biases",
    "key_projection",
    "packed",
    "strided",
    "query_bias",
    "state",
    "sum",
)

EXPONENTIAL_MAPS = ("positive", "loglinear", "hyperbolic")  # they take biases and projection_k
SOFTMAX_MAPS = (*EXPONENTIAL_MAPS, "trigonometric")
UNSIGNED_MAPS = ("relu", "exp", "sigmoid", "abs", "square", "elu1")
SIGNED_MAPS = ("gelu", "cos", "tanh", "identity", "sgn")
GENERALISED_MAPS = UNSIGNED_MAPS + SIGNED_MAPS
ALL_MAPS = SOFTMAX_MAPS + GENERALISED_MAPS

LINE = re.compile(
    r"(?P<feature_map>\w+)-(?P<direction>causal|both)-(?P<dtype>fp64|fp32|bf16|fp16)"
    r"-l(?P<length>\d+)k(?P<keys>\d+)d(?P<dim>\d+)v(?P<value_dim>\d+)m(?P<features>\d+)"
    r"-b(?P<batch>\d+)h(?P<heads>\d+)\.(?P<key_heads>\d+)\.(?P<head_parameters>\d+)"
    r"(-x(?P<magnitude>\d+))?(-near(?P<near>\d+))?(?P<flags>(-[a-z_]+)*)"
)
NUMBERS = ("length", "dim", "features", "batch", "heads", "key_heads", "head_parameters")


def num_map_features(feature_map: str, rows: int) -> int:
    return 2 * rows if feature_map in ("hyperbolic", "trigonometric") else rows


@dataclass(frozen=True)
class Case:
    feature_map: str = "positive"
    causal: bool = False
    dtype: torch.dtype = torch.float32
    batch: int = 2
    heads: int = 2
    key_heads: int = 2
    head_parameters: int = 0  # heads of W and its like; 0: shared
    length: int = 65
    keys: int = -1  # length of k; -1: that of q
    dim: int = 64
    value_dim: int = -1  # -1: dim
    features: int = 64  # rows of W; 0: no W
    mask: bool = False
    key_bias: bool = False
    biases: bool = False
    key_projection: bool = False
    packed: bool = False
    strided: bool = False
    query_bias: bool = False
    state: bool = False
    sum: bool = False
    magnitude: float = 1
    near: int = 0  # block of the near field

    @property
    def key_length(self) -> int:
        return self.length if self.keys < 0 else self.keys

    @property
    def values(self) -> int:
        return self.dim if self.value_dim < 0 else self.value_dim

    @property
    def map_features(self) -> int:
        """M' of the state, where there is a W."""
        return num_map_features(self.feature_map, self.features)

    def __str__(self) -> str:
        size = f"l{self.length}k{self.key_length}d{self.dim}v{self.values}m{self.features}"
        heads = f"b{self.batch}h{self.heads}.{self.key_heads}.{self.head_parameters}"
        times = [f"x{self.magnitude:g}"] if self.magnitude != 1 else []
        near = [f"near{self.near}"] if self.near else []
        flags = [name for name in FLAGS if getattr(self, name)]
        kind = "causal" if self.causal else "both"
        return "-".join(
            [self.feature_map, kind, NAMES[self.dtype], size, heads, *times, *near, *flags]
        )


def parse(line: str) -> Case:
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError(f"{line!r} is not a case; tests/cases/README.md explains the notation")
    part = match.groupdict()
    numbers = {name: int(part[name]) for name in NUMBERS}
    keys, values = int(part["keys"]), int(part["value_dim"])
    case = Case(
        part["feature_map"],
        part["direction"] == "causal",
        DTYPES[part["dtype"]],
        keys=-1 if keys == numbers["length"] else keys,
        value_dim=-1 if values == numbers["dim"] else values,
        magnitude=int(part["magnitude"] or 1),
        near=int(part["near"] or 0),
        **numbers,
        **dict.fromkeys(part["flags"].split("-")[1:], True),
    )
    if str(case) != line:
        raise ValueError(f"{line!r} should be written {case}")
    return case


def read_cases(table: str) -> list[Case]:
    return [parse(line) for line in (FOLDER / f"{table}.txt").read_text().splitlines()]


def table_names() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.txt"))

"""Random projections of FAVOR+: the same bits for the same arguments, on every machine."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

_ops = torch.ops.performer


def draw_projection(
    num_features: int,
    dim: int,
    heads: int | None = None,
    kind: str = "orthogonal",
    norm: str = "chi",
    seed: int = 0,
    layer: int = 0,
    draw: int = 0,
    rounding: str = "bf16",
) -> Tensor:
    """W: float32 [heads, num_features, dim], or [num_features, dim] (that of head 0) without heads.

    kind: iid | orthogonal | simplex | hadamard | givens. norm: chi | sqrt_d (SMREG).
    rounding: bf16 | none. bf16 makes every entry a bfloat16 number and a multiple of 2^-24, exact
        in float16 too, so that kernels hold W in one 16-bit operand; a change by 2^-8 of itself at
        most is far below the estimator's noise. none leaves float32.
    A function of its arguments alone, independent between (seed, layer, head, draw). Fewer features
    are the leading rows of more.
    """
    return _ops.draw_projection(num_features, dim, heads, kind, norm, seed, layer, draw, rounding)


def draw_structured(
    num_features: int,
    dim: int,
    heads: int | None = None,
    kind: str = "hadamard",
    norm: str = "chi",
    seed: int = 0,
    layer: int = 0,
    draw: int = 0,
) -> Projection:
    """The projection of draw_projection(..., kind="hadamard" or "givens", rounding="none") as few
    numbers."""
    parts = _ops.draw_structured(num_features, dim, heads, kind, norm, seed, layer, draw)
    return Projection(kind, dim, tuple(parts))


@dataclass(frozen=True, eq=False, repr=False)
class Projection:
    """W kept in O(M) (hadamard) or O(M log D) (givens) numbers, with a product in O(M log D)."""

    kind: str
    dim: int
    parts: tuple[Tensor, ...]  # row_scale [heads?, M], signs, and for givens order, cosine, sine

    def __post_init__(self) -> None:
        """The shapes are checked by each product, also of parts that changed since."""
        expected = {"hadamard": 2, "givens": 5}.get(self.kind)
        if expected is None:
            raise ValueError(f"Projection: kind must be hadamard or givens, got {self.kind!r}")
        if len(self.parts) != expected:
            raise ValueError(
                f"Projection: parts must be the {expected} tensors that draw_structured returns "
                f"for {self.kind}, got {len(self.parts)}"
            )

    def __repr__(self) -> str:
        return (
            f"Projection({self.kind}, {list(self.shape)} from {self.numel:,} numbers, "
            f"device={self.device})"
        )

    @property
    def shape(self) -> torch.Size:
        """Of the dense form: [heads, M, D] or [M, D]."""
        return torch.Size((*self.parts[0].shape, self.dim))

    @property
    def numel(self) -> int:
        """Numbers stored."""
        return sum(part.numel() for part in self.parts)

    @property
    def device(self) -> torch.device:
        return self.parts[0].device

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """W; in float32 bit-equal to draw_projection of the same arguments and rounding="none"."""
        return _ops.structured_dense(self.kind, self.dim, self.parts, dtype)

    def apply(self, x: Tensor) -> Tensor:
        """W x: [..., D] -> [..., M]; with heads [..., heads, L, D] -> [..., heads, L, M]."""
        return _ops.structured_apply(x, self.kind, self.dim, self.parts)

    __call__ = apply

    def to(self, device: torch.device | str) -> Projection:
        return Projection(self.kind, self.dim, tuple(part.to(device) for part in self.parts))


def _register_shapes() -> None:
    """Shapes for tracing: the draws have no tensor argument whose device could tell.

    What follows the heads are the kind, which draw_structured alone asks for, and the seed.
    """

    @torch.library.register_fake("performer::draw_projection")
    def _(num_features: int, dim: int, heads: int | None, *_: object) -> Tensor:
        lead = [] if heads is None else [heads]
        return torch.empty([*lead, num_features, dim], dtype=torch.float32, device="cpu")

    @torch.library.register_fake("performer::draw_structured")
    def _(num_features: int, dim: int, heads: int | None, kind: str, *_: object) -> list[Tensor]:
        lead = [] if heads is None else [heads]
        log2 = (dim - 1).bit_length()
        rows = 2**log2 if kind == "hadamard" else dim
        blocks = -(-num_features // rows)

        def empty(shape: list[int], dtype: torch.dtype) -> Tensor:
            return torch.empty([*lead, *shape], dtype=dtype, device="cpu")

        row_scale = empty([num_features], torch.float64)
        if kind == "hadamard":
            return [row_scale, empty([blocks, 3, rows], torch.int8)]
        turns = [blocks, 2 * log2, dim // 2]
        return [
            row_scale,
            empty([blocks, dim], torch.int8),
            empty([blocks, 2 * log2, dim], torch.int64),
            empty(turns, torch.float64),
            empty(turns, torch.float64),
        ]


_register_shapes()


def dense(W: Tensor | Projection | None) -> Tensor | None:
    """W as the operators take it."""
    return W.dense() if isinstance(W, Projection) else W

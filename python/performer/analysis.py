"""Looking at attention: maps, exact attention beside it, the quality meter, optimal features."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from performer._composed import compose
from performer.projection import Projection, dense

__all__ = [
    "ApproximationQuality",
    "approximation_quality",
    "attention_map",
    "exact_attention",
    "exact_attention_map",
    "fit_oprf",
    "oprf",
]

Index = Tensor | slice | Sequence[int]

_TARGET = 0.01  # the variance that suggested_features aims at


def attention_map(
    q: Tensor,
    k: Tensor,
    W: Tensor | Projection | None = None,
    rows: Index | None = None,
    columns: Index | None = None,
    *,
    feature_map: str | Callable[[Tensor], Tensor] = "positive",
    causal: bool = False,
    scale: float | None = None,
    eps: float | None = None,
    renormalize: bool = True,
    near: int = 0,
    key_mask: Tensor | None = None,
    projection_k: Tensor | Projection | None = None,
    bias_q: Tensor | None = None,
    bias_k: Tensor | None = None,
    key_bias: Tensor | None = None,
    query_bias: Tensor | None = None,
    pool: int | None = None,
) -> Tensor:
    """The matrix A that favor_attention multiplies v by, or a part of it.

    Args:
        q, k, W, feature_map, causal, ..., query_bias: as for favor_attention.
        rows: query positions (int tensor or sequence, or a slice); None: all.
        columns: key positions; None: all.
        pool: instead of rows and columns, one entry for each block of pool x pool positions, the
            mean over its rows of the sum over its columns.

    Returns:
        [B, H, |rows|, |columns|], float32 (float64 for float64 input). Rows of the whole A sum to
        1, those without keys are 0. Computed in blocks: no Lq x Lk tensor unless asked for.

    Example:
        >>> A = performer.attention_map(q, k, W, rows=slice(0, 8), causal=True)
        >>> thumbnail = performer.attention_map(q, k, W, pool=256)
    """
    W, projection_k = dense(W), dense(projection_k)
    if not isinstance(feature_map, str):
        composed = compose(feature_map, (q, k, k), (W, projection_k), (scale, eps), key_mask)
        q, k, W, projection_k = composed.phi_q, composed.phi_k, None, None
        feature_map, scale, eps = "identity", 1.0, 0.0
    options = (feature_map, causal, scale, eps, renormalize, near, key_mask)
    parameters = (projection_k, bias_q, bias_k, key_bias, query_bias)
    part = (_index(rows, q), _index(columns, k), pool)
    out: Tensor = torch.ops.performer.attention_map(q, k, W, *options, *parameters, *part)
    return out


def exact_attention_map(
    q: Tensor,
    k: Tensor,
    rows: Index | None = None,
    columns: Index | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
    pool: int | None = None,
) -> Tensor:
    """The same part of the exact softmax matrix softmax(scale q.k + key_bias); scale 1/sqrt(D)."""
    out: Tensor = torch.ops.performer.exact_attention_map(
        q, k, causal, scale, key_mask, key_bias, _index(rows, q), _index(columns, k), pool
    )
    return out


def exact_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = False,
    scale: float | None = None,
    key_mask: Tensor | None = None,
    key_bias: Tensor | None = None,
) -> Tensor:
    """Softmax attention with favor_attention's conventions for masks, heads and empty rows.

    q: [B, H, Lq, D]; k: [B, Hkv, Lk, D]; v: [B, Hkv, Lk, Dv] -> [B, H, Lq, Dv]. Quadratic in time;
    in memory linear, by blocks of rows. Differentiable.
    """
    out: Tensor = torch.ops.performer.exact_attention(q, k, v, causal, scale, key_mask, key_bias)
    return out


class ApproximationQuality(NamedTuple):
    """Per head, float64 [H]; a pair is a sampled query with a key it may see. print() for a table.

    squared_sum: mean |x + y|^2 over pairs.
    predicted_error: mean over pairs of the relative variance of one kernel estimate by the paper's
        Lemma 2 for M iid features; NaN for maps without a closed form.
    effective_samples: (sum t)^2 / sum t^2, t the features' shares in a row's denominator; up to M'.
    error: |out - exact| / |exact| over the sampled rows.
    uniform_error: the same for plain averaging over the keys a row may see.
    suggested_features: the M at which predicted_error is 0.01; NaN with it, may be inf.
    """

    squared_sum: Tensor
    predicted_error: Tensor
    effective_samples: Tensor
    error: Tensor
    uniform_error: Tensor
    suggested_features: Tensor

    @property
    def verdict(self) -> str:
        """One sentence: does every head beat plain averaging, and if not, what helps."""
        suggested = self.suggested_features
        if self.predicted_error.shape == suggested.shape:  # 0: there are as many as it needs
            suggested = suggested.masked_fill(self.predicted_error <= _TARGET, 0)
        text: str = torch.ops.performer.quality_verdict(self.error, self.uniform_error, suggested)
        return text

    def __repr__(self) -> str:
        """The range over the heads; print() shows every head."""
        ranges = (f"{name}={_range(values)}" for name, values in self._asdict().items())
        return f"ApproximationQuality(heads={self.error.numel()}, {', '.join(ranges)})"

    def __str__(self) -> str:
        if self.error.is_meta:
            return repr(self)
        names = ("head", "|x+y|^2", "predicted", "effective", "error", "averaging", "suggested M")
        lines = ["  ".join(f"{name:>11}" for name in names)]
        for head, values in enumerate(zip(*(field.tolist() for field in self), strict=True)):
            lines.append("  ".join([f"{head:>11}", *(f"{value:>11.4g}" for value in values)]))
        return "\n".join([*lines, self.verdict])


def _range(values: Tensor) -> str:
    if values.is_meta:
        return "meta"
    if values.numel() == 0:
        return "none"
    numbers = values[~values.isnan()]
    missing = values.numel() - numbers.numel()
    if numbers.numel() == 0:
        return "nan"
    least, most = (f"{value.item():.4g}" for value in (numbers.min(), numbers.max()))
    text = least if least == most else f"{least}...{most}"
    return f"{text} and {missing} nan" if missing else text


def approximation_quality(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor | Projection | None = None,
    *,
    feature_map: str = "positive",
    causal: bool = False,
    scale: float | None = None,
    eps: float | None = None,
    near: int = 0,
    key_mask: Tensor | None = None,
    projection_k: Tensor | Projection | None = None,
    bias_q: Tensor | None = None,
    bias_k: Tensor | None = None,
    key_bias: Tensor | None = None,
    query_bias: Tensor | None = None,
    samples: int = 64,
    seed: int = 0,
) -> ApproximationQuality:
    """How well the features serve these queries and keys, on `samples` query rows, in float64.

    The target is softmax(scale q.k + key_bias), scale 1/sqrt(D) if None; with loglinear, key_bias
    is part of the estimate instead. With near, pairs and features are those of the far field, and
    the error is that of both fields together. The same seed samples the same rows. Time
    O(samples L D + L M' (D + Dv)), no L x L tensor, no gradients.

    Returns:
        A line per head when printed, and a sentence that sums them up. With x and y the scaled
        queries and keys, the columns are:

        |x+y|^2: the mean over pairs, which the variance grows with exponentially. Below about 5 a
            few hundred features do well, from 15 on no practical number does.
        predicted: the variance of an estimate of exp(x.y) over its square by the paper's Lemma 2;
            nan for maps without a closed form.
        effective: of the M features, how many share in a row's denominator. 2 of 256 is a warning.
        error: |out - exact| / |exact|, measured. 0 is exact.
        averaging: the same for the plain mean of the values. An error above it helps nobody.
        suggested M: with that many features predicted would be 0.01.

    Example:
        >>> print(performer.approximation_quality(q, k, v, W, causal=True).verdict)
    """
    if not isinstance(feature_map, str):
        raise ValueError(
            f"approximation_quality: feature_map must be the name of a map, got {feature_map!r}"
        )
    options = (feature_map, causal, scale, eps, near, key_mask)
    parameters = (dense(projection_k), bias_q, bias_k, key_bias, query_bias)
    fields = torch.ops.performer.approximation_quality(
        q, k, v, dense(W), *options, *parameters, samples, seed
    )
    return ApproximationQuality(*fields)


def oprf(
    W: Tensor | Projection, a: Tensor | float, rounding: str = "bf16"
) -> tuple[Tensor, Tensor]:
    """FAVOR++: W2 = sqrt(1 - 4a) W, and for queries and keys the bias
    b = a |w2|^2 / (1 - 4a) + (D/4) ln(1 - 4a) of each row w2 of W2.

    W: [M, D] or [heads, M, D]; a < 1/8, best from fit_oprf: a number or [heads]. rounding: of W2,
    as in draw_projection; the bias is that of W2 as it is then. The features estimate exp(x.y)
    itself, not only up to a constant.

    Example:
        >>> W2, b = performer.oprf(W, performer.fit_oprf(q, k))
        >>> out = performer.favor_attention(q, k, v, W2, bias_q=b, bias_k=b)
    """
    value = a if isinstance(a, Tensor) else torch.tensor(float(a), dtype=torch.float64)
    W2, b = torch.ops.performer.oprf(dense(W), value, rounding)
    return W2, b


def fit_oprf(
    q: Tensor, k: Tensor, scale: float | None = None, key_mask: Tensor | None = None
) -> Tensor:
    """The a of least variance for each head, float64 [H], from the mean |x + y|^2 of all pairs of
    a query and a real key. A constant for gradients; scale None is 1/sqrt(D)."""
    a: Tensor = torch.ops.performer.fit_oprf(q, k, scale, key_mask)
    return a


def _index(index: Index | None, x: Tensor) -> Tensor | None:
    if index is None or isinstance(index, Tensor):
        return index
    if isinstance(index, slice):
        return torch.arange(*index.indices(x.shape[2]), device=x.device)
    return torch.tensor(list(index), dtype=torch.int64, device=x.device)

"""Features of one attention layer that were fitted to it, saved with the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from performer._composed import without_autocast

if TYPE_CHECKING:
    from typing_extensions import Self


class FeatureParameters(NamedTuple):
    """Of one layer, with x = sqrt(scale) q and y = sqrt(scale) k:

        log phi_q(x) = query_weight x + query_bias - |query_form x|^2 / 2
        log phi_k(y) = key_weight y + key_bias - |key_form y|^2 / 2

    and the weight of a pair is the mean of phi_q phi_k over the features. What is common to all
    features of a query cancels where there is no near field, so query_form is None there.
    """

    query_weight: Tensor  # [H, M, D]
    query_bias: Tensor  # [H, M]
    key_weight: Tensor  # [Hkv, M, D]
    key_bias: Tensor  # [Hkv, M]
    key_form: Tensor  # [Hkv, D, D]
    query_form: Tensor | None = None  # [H, D, D], with near

    def key_term(self, y: Tensor) -> Tensor:
        """-|key_form y|^2 / 2: [B, Hkv, L, D] -> [B, Hkv, L]."""
        return -0.5 * (y @ self.key_form.mT).square().sum(-1)

    def query_term(self, x: Tensor) -> Tensor:
        """-|query_form x|^2 / 2: [B, H, L, D] -> [B, H, L]."""
        assert self.query_form is not None
        return -0.5 * (x @ self.query_form.mT).square().sum(-1)


class FittedFeatures(nn.Module):
    """FeatureParameters as parameters. They stay float32 in half-precision models."""

    query_weight: Tensor
    query_bias: Tensor
    key_weight: Tensor
    key_bias: Tensor
    key_form: Tensor
    query_form: Tensor | None

    def __init__(self, parameters: FeatureParameters, near: int) -> None:
        super().__init__()
        self.near = near
        for name, value in parameters._asdict().items():
            given = None if value is None else nn.Parameter(value.detach().clone())
            self.register_parameter(name, given)

    @classmethod
    def empty(cls, shape: tuple[int, int, int], features: int, near: int) -> FittedFeatures:
        """To be loaded into. shape: heads of queries and keys, width of a head."""
        heads, key_heads, dim = shape
        make = torch.zeros
        form = make(heads, dim, dim) if near else None
        query = (make(heads, features, dim), make(heads, features))
        key = (make(key_heads, features, dim), make(key_heads, features))
        return cls(FeatureParameters(*query, *key, make(key_heads, dim, dim), form), near)

    @torch.no_grad()
    def round_rows(self) -> None:
        """To numbers that both 16-bit types hold exactly, as the program's fits do: bfloat16 values
        that are multiples of 2^-24."""
        for rows in (self.query_weight, self.key_weight):
            fine = (rows * 2.0**24).round() / 2.0**24
            rows.copy_(torch.where(rows.abs() < 2.0**-17, fine, rows.bfloat16().to(rows.dtype)))

    def values(self) -> FeatureParameters:
        return FeatureParameters(*(getattr(self, name) for name in FeatureParameters._fields))

    def arguments(self, q: Tensor, k: Tensor, scale: float) -> dict[str, Any]:
        """What favor_attention takes beside q, k, v, masks and states."""
        values, root, dtype = self.values(), scale**0.5, self.query_weight.dtype
        with without_autocast(q.device):  # squares of 16 bits would be exponents
            key_term = values.key_term(k.to(dtype) * root)
            query_term = values.query_term(q.to(dtype) * root) if self.near else None
        return {
            "W": values.query_weight,
            "projection_k": values.key_weight,
            "bias_q": values.query_bias,
            "bias_k": values.key_bias,
            "key_bias": key_term,
            "query_bias": query_term,
            "feature_map": "loglinear",
            "near": self.near,
            "scale": scale,
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def keep(tensor: Tensor) -> Tensor:
            changed = fn(tensor)
            return tensor.to(changed.device) if changed.dtype.itemsize < 4 else changed

        apply: Callable[..., nn.Module] = super()._apply
        apply(keep, recurse)
        return self

    def extra_repr(self) -> str:
        heads, features, dim = self.query_weight.shape
        return f"heads={heads}, features={features}, width={dim}, near={self.near}"

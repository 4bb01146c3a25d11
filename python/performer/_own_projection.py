"""What modules with a projection of their own share: how it is drawn, kept and checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from performer._composed import ElementwiseMap, check_scale_and_eps
from performer._near import check_near
from performer._operator import call_favor_attention
from performer.projection import draw_projection

if TYPE_CHECKING:
    from typing_extensions import Self


class KeepsProjection(nn.Module):
    """.half(), .bfloat16() and checkpoints of such models leave the buffer `projection` as it is:
    never below float32."""

    projection: Tensor | None  # [heads, M, D] or [M, D]
    num_features: int | None
    head_dim: int
    kind: str
    norm: str
    rounding: str = "none"  # of modules pickled before this was an option
    near: int = 0  # likewise
    seed: int
    layer: int
    feature_map: str | ElementwiseMap
    scale: float | None
    eps: float | None

    def reset_parameters(self) -> None:
        """Draw 0 again: for modules built on the meta device."""
        projection = self._draw(0)
        if projection is not None and self.projection is not None:
            self.projection = projection.to(self.projection)

    def _projection_heads(self) -> int | None:
        """None is one projection for all heads."""
        raise NotImplementedError

    def _draw(self, draw: int) -> Tensor | None:
        if self.num_features is None:
            return None
        heads = self._projection_heads()
        if self.num_features == 0:  # the near field alone
            return torch.empty(*(() if heads is None else (heads,)), 0, self.head_dim)
        return draw_projection(
            self.num_features,
            self.head_dim,
            heads=heads,
            kind=self.kind,
            norm=self.norm,
            seed=self.seed,
            layer=self.layer,
            draw=draw,
            rounding=self.rounding,
        )

    def _check_options(self, heads: int, kv_heads: int, dtype: torch.dtype) -> None:
        """Refuses by the operator's own rules what no call could use: attention over nothing, on
        the meta device, where nothing runs."""
        check_near(type(self).__name__, self.near, self.feature_map, self.norm, self.num_features)
        if not isinstance(self.feature_map, str):
            check_scale_and_eps(self.scale, self.eps)
            return
        nothing = torch.empty(1, heads, 0, self.head_dim, device="meta", dtype=dtype)
        keys = nothing[:, :kv_heads]
        W = None if self.projection is None else self.projection.to("meta")
        call_favor_attention(
            (nothing, keys, keys),
            projection=W,
            feature_map=self.feature_map,
            causal=False,
            scale=self.scale,
            eps=self.eps,
            renormalize=True,
            near=self.near,
        )

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        before = self.projection
        apply: Callable[..., nn.Module] = super()._apply
        apply(fn, recurse)
        after = self.projection
        if before is not None and after is not None and after.dtype.itemsize < 4:
            self.projection = before.to(after.device)
        return self

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, *arguments: Any
    ) -> None:
        loaded = state_dict.get(f"{prefix}projection")
        if loaded is not None and loaded.dtype.itemsize < 4:  # which assign=True would take
            state_dict[f"{prefix}projection"] = loaded.float()
        super()._load_from_state_dict(state_dict, prefix, *arguments)

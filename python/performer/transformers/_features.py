"""The features of one attention layer of a transformers model, as a module inside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from performer._own_projection import KeepsProjection

if TYPE_CHECKING:
    from performer.transformers._options import Options


class RandomFeatures(KeepsProjection):
    """A drawn projection, one for each key head: a function of (seed, layer), so not saved.

    projection [Hkv, M, D] stays float32 in half-precision models.
    """

    projection: Tensor

    def __init__(
        self, options: Options, heads: tuple[int, int], head_dim: int, layer: int, causal: bool
    ) -> None:
        """heads: of queries and of keys."""
        super().__init__()
        self.num_features, self.head_dim, self.key_heads = options.features, head_dim, heads[1]
        self.feature_map, self.near = options.feature_map, options.near_of(causal)
        self.kind, self.norm, self.rounding = "orthogonal", "chi", "bf16"
        self.seed, self.layer = options.seed, layer
        self.scale = self.eps = None
        self.register_buffer("projection", self._draw(0), persistent=False)
        self._check_options(*heads, torch.float32)

    def arguments(self, q: Tensor, k: Tensor, scale: float) -> dict[str, Any]:
        """What favor_attention takes beside q, k, v, masks and states."""
        return {
            "W": self.projection,
            "feature_map": self.feature_map,
            "near": self.near,
            "scale": scale,
        }

    def _projection_heads(self) -> int:
        return self.key_heads

    def extra_repr(self) -> str:
        return (
            f"features={self.num_features}, near={self.near}, "
            f"feature_map={self.feature_map!r}, layer={self.layer}"
        )


class ExactHere(nn.Module):
    """Marks a layer that keeps exact attention."""

    def see(self, q: Tensor, k: Tensor, scale: float) -> None:
        """What the layer attends with; for those who want to know."""


def is_causal_layer(module: Any) -> bool:
    """By transformers' conventions: the module says it, and a config may make it bidirectional."""
    config = getattr(module, "config", None)
    says_so = bool(getattr(module, "is_causal", True))
    return says_so and getattr(config, "is_causal", True) is not False

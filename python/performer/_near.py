"""What may stand beside the exact near field: features that estimate exp(q.k) itself."""

from __future__ import annotations

from performer._composed import ElementwiseMap

MAPS_OF_NEAR = ("positive", "hyperbolic", "trigonometric")


def check_near(
    owner: str, near: int, feature_map: str | ElementwiseMap, norm: str, num_features: int | None
) -> None:
    """The rules for what draws its own projection and passes no query_bias on."""
    if near == 0:
        return
    if feature_map == "loglinear":
        raise ValueError(
            f"{owner}: near={near} needs a map that estimates exp(q.k); loglinear has no norm "
            f"terms of its own, and its far field needs the key_bias and query_bias that "
            f"performer.favor_attention takes; use feature_map='positive'"
        )
    if feature_map not in MAPS_OF_NEAR:
        name = repr(feature_map) if isinstance(feature_map, str) else "a Python function"
        raise ValueError(
            f"{owner}: near={near} needs a map that estimates exp(q.k) "
            f"({', '.join(MAPS_OF_NEAR)}), got feature_map={name}"
        )
    if norm == "sqrt_d" and num_features != 0:
        raise ValueError(
            f"{owner}: near={near} weighs near keys by exp(q.k), which norm='sqrt_d' "
            f"underestimates for the far ones (0.47 of it at width 64 and |x+y|^2 = 16); use "
            f"norm='chi'"
        )

"""merge_states: one state out of those of two pieces of a sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from performer._operator import call_favor_attention
from performer.projection import dense
from performer.state import FavorState, by_sequence, check_same_features, compare_fingerprints

if TYPE_CHECKING:
    from performer.projection import Projection


def merge_states(
    earlier: FavorState,
    later: FavorState,
    W: Tensor | Projection | None = None,
    *,
    feature_map: str = "positive",
    scale: float | None = None,
    projection_k: Tensor | Projection | None = None,
    bias_k: Tensor | None = None,
) -> FavorState:
    """The state after the keys of `earlier` and then those of `later`.

    Both [N, Hs, M', ...] and of the same W, map and scale. Differentiable in kv and normalizer;
    associative to rounding, with the empty state as its identity: chunks of one sequence may be
    read apart, in parallel, and merged in any grouping.

    With a near field, `earlier` must end with a whole block of it, `later` begin with its first
    real token, and the arguments from W on must be those that both were made with: keys that leave
    the near field on the way become features. The near field's keys, values and biases are
    differentiable then, too. Without a near field these arguments are not needed and not read.

    Example:
        >>> _, first = performer.favor_attention(q1, k1, v1, W, return_state=True)
        >>> _, second = performer.favor_attention(q2, k2, v2, W, return_state=True)
        >>> both = performer.merge_states(first, second)
    """
    check_same_features("merge_states", earlier, later)
    fingerprint = later.fingerprint if earlier.fingerprint is None else earlier.fingerprint
    if earlier.near or later.near:
        given = {
            "projection": dense(W),
            "feature_map": feature_map,
            "scale": scale,
            "projection_k": dense(projection_k),
            "bias_k": bias_k,
        }
        _check_near(earlier, later, given)
        parts = (list(by_sequence(state).values()) for state in (earlier, later))
        merged = torch.ops.performer.merge_near_states(*parts, **given)
        names = by_sequence(earlier)
        return FavorState(**dict(zip(names, merged, strict=True)), fingerprint=fingerprint)
    kv, normalizer, log2_scale = torch.ops.performer.merge_states(
        earlier.kv,
        earlier.normalizer,
        earlier.log2_scale,
        later.kv,
        later.normalizer,
        later.log2_scale,
    )
    return FavorState(kv, normalizer, log2_scale, fingerprint)


def _check_near(earlier: FavorState, later: FavorState, given: dict[str, Any]) -> None:
    if earlier.near != later.near:
        raise ValueError(
            f"merge_states: the states must have one near field, got near={earlier.near} and "
            f"near={later.near}"
        )
    if given["projection"] is None:
        raise ValueError(
            f"merge_states: states with near={earlier.near} need W (and the feature_map, scale, "
            f"projection_k and bias_k they were made with): keys that leave the near field become "
            f"features"
        )
    if not isinstance(given["feature_map"], str):
        raise TypeError(
            f"merge_states: feature_map must be the name of a softmax map, "
            f"got {given['feature_map']!r}"
        )
    compare_fingerprints(
        "merge_states: W, feature_map, scale, projection_k and bias_k must be those that the "
        "states were made with",
        (earlier.fingerprint, _fingerprint(earlier, given)),
    )


def _fingerprint(state: FavorState, given: dict[str, Any]) -> Tensor:
    """What a call over no tokens with these options leaves."""
    assert state.near_keys is not None and state.near_values is not None
    keys, values = (part[:1, :, :0].detach() for part in (state.near_keys, state.near_values))
    query = keys[:, :1].expand(1, state.kv.shape[1], 0, keys.shape[-1])
    options = {**given, "causal": True, "renormalize": True, "near": state.near}
    with torch.no_grad():
        return call_favor_attention((query, keys, values), **options).fingerprint

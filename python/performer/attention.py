"""favor_attention, favor_step and features: FAVOR+ as functions of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypedDict, overload

import torch
from torch import Tensor

from performer._composed import ElementwiseMap, compose, features_of, salt, without_autocast
from performer._operator import call_favor_attention
from performer.diagnostics import note_composed
from performer.projection import Projection, dense
from performer.state import FavorState

if TYPE_CHECKING:
    from typing_extensions import Unpack

FeatureMap = str | ElementwiseMap


class FavorOptions(TypedDict, total=False):
    """The keyword arguments of favor_attention, for wrappers that pass them on."""

    causal: bool
    scale: float | None
    eps: float | None
    renormalize: bool
    near: int
    key_mask: Tensor | None
    cu_seqlens_q: Tensor | None
    cu_seqlens_k: Tensor | None
    max_seqlen_q: int | None
    max_seqlen_k: int | None
    projection_k: Tensor | Projection | None
    bias_q: Tensor | None
    bias_k: Tensor | None
    key_bias: Tensor | None
    query_bias: Tensor | None
    initial_state: FavorState | None


def _check_tensors(function: str, **arguments: object) -> None:
    """torch's own words for what is no tensor print the whole of it. What acts as one may pass."""
    for name, value in arguments.items():
        if isinstance(value, Tensor) or hasattr(value, "__torch_function__"):
            continue
        kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
        raise TypeError(
            f"{function}: {name} must be a torch.Tensor, got {kind}; torch.as_tensor makes one"
        )


@overload
def favor_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor | Projection | None = None,
    feature_map: FeatureMap = "positive",
    *,
    return_state: Literal[False] = False,
    **options: Unpack[FavorOptions],
) -> Tensor: ...


@overload
def favor_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor | Projection | None = None,
    feature_map: FeatureMap = "positive",
    *,
    return_state: Literal[True],
    **options: Unpack[FavorOptions],
) -> tuple[Tensor, FavorState]: ...


def favor_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor | Projection | None = None,
    feature_map: FeatureMap = "positive",
    *,
    causal: bool = False,
    scale: float | None = None,
    eps: float | None = None,
    renormalize: bool = True,
    near: int = 0,
    key_mask: Tensor | None = None,
    cu_seqlens_q: Tensor | None = None,
    cu_seqlens_k: Tensor | None = None,
    max_seqlen_q: int | None = None,
    max_seqlen_k: int | None = None,
    projection_k: Tensor | Projection | None = None,
    bias_q: Tensor | None = None,
    bias_k: Tensor | None = None,
    key_bias: Tensor | None = None,
    query_bias: Tensor | None = None,
    initial_state: FavorState | None = None,
    return_state: bool = False,
) -> Tensor | tuple[Tensor, FavorState]:
    """FAVOR+ attention: sum_j (phi(x_i) . phi(y_j)) v_j / sum_j phi(x_i) . phi(y_j).

    x = sqrt(scale) q, y = sqrt(scale) k. Time O(L M' (D + Dv)), memory O(L (D + Dv) + M' Dv).

    Args:
        q: [B, H, Lq, D]; float64, float32, bfloat16 or float16, one dtype for q, k, v.
        k: [B, Hkv, Lk, D]; query head h uses key head h // (H / Hkv).
        v: [B, Hkv, Lk, Dv].
        W: [M, D], or [heads, M, D] with heads 1, Hkv or H; float32 or float64, or a structured
            Projection. None: f(x) instead of f(W x), generalised maps only. M = 0 with `near`: no
            far field, local attention alone.
        feature_map: softmax maps positive, loglinear, hyperbolic, trigonometric; generalised maps
            relu, exp, sigmoid, abs, gelu, cos, tanh, identity, square, elu1, sgn; or an
            elementwise Python function f, whose features are computed by tensor operations.
        causal: position i sees keys j <= i; needs Lq == Lk.
        scale: None is 1/sqrt(D), for generalised maps 1.
        eps: generalised maps only, phi = f(W x) + eps; None is 1e-3, for elu1 0, whose float32 rows
            are 0 where all W x of queries and keys are below -52 (docs/numerics.md).
        renormalize: False returns the numerator, sum_j phi(x_i) . phi(y_j) v_j.
        near: tokens of a block, for softmax maps: keys of a query's own block and of its neighbours
            (causal: of the block before, and its own up to itself) weigh exp(scale q.k) exactly,
            under one denominator with the features of all others. 0 is the paper's FAVOR+.
        key_mask: bool [B, Lk], True is a real key.
        cu_seqlens_q, cu_seqlens_k: int [N + 1], bounds of N packed sequences; then B is 1.
        max_seqlen_q, max_seqlen_k: longest packed sequence, if known; lengths are checked against
            them where cu_seqlens is on the CPU, and nothing else depends on them.
        projection_k: the keys' own projection, shaped as W.
        bias_q, bias_k: [M'] or [heads, M'], added to the log features; softmax maps but
            trigonometric.
        key_bias: [B, heads, Lk], added to the key's log feature; -inf removes the key. With `near`
            it counts in both fields, for loglinear in the far one alone.
        query_bias: [B, heads, Lq], added to the query's log feature; loglinear with `near`.
        initial_state: keys before the first one; refused if of another W, map or scale.
        return_state: also return the state after the last key.

    Returns:
        [B, H, Lq, Dv] in q's dtype; with return_state also the FavorState, of N = B (or the
        number of packed) sequences. A row without keys is 0.

    Example:
        >>> q, k, v = torch.randn(3, 2, 8, 1000, 64).unbind(0)
        >>> W = performer.draw_projection(256, 64, heads=8)
        >>> performer.favor_attention(q, k, v, W, causal=True).shape
        torch.Size([2, 8, 1000, 64])
    """
    _check_tensors("favor_attention", q=q, k=k, v=v)
    W, projection_k = dense(W), dense(projection_k)
    options: dict[str, Any] = {
        "causal": causal,
        "renormalize": renormalize,
        "key_mask": key_mask,
        "cu_seqlens_q": cu_seqlens_q,
        "cu_seqlens_k": cu_seqlens_k,
        "max_seqlen_q": max_seqlen_q,
        "max_seqlen_k": max_seqlen_k,
        "bias_q": bias_q,
        "bias_k": bias_k,
        "key_bias": key_bias,
        "query_bias": query_bias,
        "near": near,
    }
    if isinstance(feature_map, str):
        out, state = _call_operator(
            (q, k, v),
            initial_state,
            None,
            projection=W,
            projection_k=projection_k,
            feature_map=feature_map,
            scale=scale,
            eps=eps,
            **options,
        )
        note_composed(False)
    else:
        out, state = _call_composed(
            feature_map, (q, k, v), (W, projection_k), initial_state, scale, eps, options
        )
        note_composed(True)
    return (out, state) if return_state else out


def favor_step(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    W: Tensor | Projection | None = None,
    state: FavorState | None = None,
    feature_map: FeatureMap = "positive",
    *,
    causal: bool = True,
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
) -> tuple[Tensor, FavorState]:
    """One more token of a causal sequence, at a cost of O(M' (D + Dv)) per head.

    q: [B, H, 1, D], k: [B, Hkv, 1, D], v: [B, Hkv, 1, Dv]; state: what the tokens before left, None
    for the first. The other arguments are those of favor_attention and must stay the same through
    a sequence. Returns [B, H, 1, Dv] and the next state; the given one is not written to. Without
    gradients (torch.no_grad()) a GPU takes the step in one kernel.

    Example:
        >>> out, state = performer.favor_attention(q, k, v, W, causal=True, return_state=True)
        >>> out, state = performer.favor_step(q_next, k_next, v_next, W, state)
    """
    if not causal:
        raise ValueError("favor_step: a step is causal, got causal=False")
    _check_tensors("favor_step", q=q, k=k, v=v)
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4 or tensor.shape[2] != 1:
            raise ValueError(
                f"favor_step: {name} must be [batch, heads, 1, dim], got {list(tensor.shape)}"
            )
    return favor_attention(
        q,
        k,
        v,
        W,
        feature_map,
        causal=True,
        scale=scale,
        eps=eps,
        renormalize=renormalize,
        near=near,
        key_mask=key_mask,
        projection_k=projection_k,
        bias_q=bias_q,
        bias_k=bias_k,
        key_bias=key_bias,
        query_bias=query_bias,
        initial_state=state,
        return_state=True,
    )


def features(
    x: Tensor,
    W: Tensor | Projection | None = None,
    feature_map: FeatureMap = "positive",
    bias: Tensor | None = None,
    *,
    eps: float | None = None,
) -> Tensor:
    """The paper's phi(x), unstabilised and with x as given (no scale), for checking.

    x: [..., D]; W: [M, D], or None for a generalised f(x); bias: [M'], softmax maps but
    trigonometric. Returns [..., M'], M' = M (positive, loglinear, generalised) or 2M (hyperbolic,
    trigonometric). Differentiable.

    Example:
        >>> phi = performer.features(torch.randn(10, 64), performer.draw_projection(256, 64))
        >>> phi.shape
        torch.Size([10, 256])
    """
    W = dense(W)
    if isinstance(feature_map, str):
        phi: Tensor = torch.ops.performer.features(x, W, feature_map, bias, eps)
        return phi
    return features_of(feature_map, x, W, eps, bias)


def _call_composed(
    f: ElementwiseMap,
    qkv: tuple[Tensor, Tensor, Tensor],
    projections: tuple[Tensor | None, Tensor | None],
    state: FavorState | None,
    scale: float | None,
    eps: float | None,
    options: dict[str, Any],
) -> tuple[Tensor, FavorState]:
    """The identity map over features that `f` made."""
    if options["near"]:
        raise ValueError(
            f"favor_attention: near is for the softmax maps, which estimate the exp(q.k) that it "
            f"computes (positive, loglinear, hyperbolic, trigonometric), got near="
            f"{options['near']} with a Python feature_map"
        )
    mixed = compose(f, qkv, projections, (scale, eps), options["key_mask"])
    with without_autocast(mixed.v.device):  # the features are not to be rounded
        out, next_state = _call_operator(
            (mixed.phi_q, mixed.phi_k, mixed.v),
            state,
            salt(f, projections[0], scale, eps, mixed.v.device),
            feature_map="identity",
            scale=1.0,
            eps=0.0,
            **options,
        )
    return out.to(mixed.dtype), next_state


def _call_operator(
    qkv: tuple[Tensor, Tensor, Tensor],
    state: FavorState | None,
    mark: Tensor | None,
    **options: Any,
) -> tuple[Tensor, FavorState]:
    """`mark` is mixed into the fingerprints, so that the operator's own check compares it too."""
    if mark is None:
        result = call_favor_attention(qkv, state, **options)
        return result.out, result.state(options["near"])
    if state is not None and state.fingerprint is not None:
        state = state._replace(fingerprint=state.fingerprint ^ mark)
    result = call_favor_attention(qkv, state, **options)
    marked = result.fingerprint ^ mark
    return result.out, FavorState(result.kv, result.normalizer, result.log2_scale, marked)

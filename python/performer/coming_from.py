"""Layers out of another package's Performers, read by their attributes without importing it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from performer._multihead import freeze_alike
from performer.attention import FeatureMap
from performer.module import FavorAttention
from performer.sdpa import FavorSDPA

_NAME = "from_performer_pytorch"
_EPS = 1e-3  # kernel_epsilon there, which no module changes
_OF_FAST_ATTENTION = ("dim_heads", "nb_features", "projection_matrix", "causal", "kernel_fn")
_OF_SELF_ATTENTION = ("heads", "to_q", "to_k", "to_v", "to_out")
_TAKEN_OVER = (
    "num_features", "embed_dim", "num_heads", "num_kv_heads", "head_dim", "kdim", "vdim",
    "bias", "out_bias", "shared_projection",
)  # fmt: skip
_MAPS: tuple[tuple[Any, str], ...] = (
    (nn.ReLU, "relu"),
    (nn.Sigmoid, "sigmoid"),
    (nn.Tanh, "tanh"),
    (nn.Identity, "identity"),
    (torch.nn.functional.gelu, "gelu"),
    (torch.nn.functional.sigmoid, "sigmoid"),
    (torch.nn.functional.tanh, "tanh"),
    (torch.relu, "relu"),
    (torch.nn.functional.relu, "relu"),
    (torch.exp, "exp"),
    (torch.abs, "abs"),
    (torch.sigmoid, "sigmoid"),
    (torch.tanh, "tanh"),
    (torch.cos, "cos"),
)


def from_performer_pytorch(module: nn.Module, **options: Any) -> FavorSDPA | FavorAttention:
    """The layer that does the work of a module of the package performer-pytorch.

    FastAttention becomes a FavorSDPA that is called the same way, with (q, k, v). SelfAttention
    and CrossAttention become a FavorAttention of the same weights: layer(x, key_mask=mask) for
    their module(x, mask=mask), layer(x, context, key_mask=context_mask) for the cross attention.
    Projection matrix, feature map, scale, device and mode are taken over. docs/coming-from.md has
    what differs, in figures: theirs adds 1e-4 to every feature of the softmax kernel, ours nothing.

    options: further arguments of the constructor, such as seed, layer and, for FavorAttention,
    redraw_interval; later draws come from (seed, layer, draw).

    Example:
        >>> for block in model.modules():
        ...     if hasattr(block, "fast_attention"):
        ...         block.fast_attention = performer.from_performer_pytorch(block.fast_attention)
    """
    for name in _TAKEN_OVER:
        if name in options:
            raise ValueError(
                f"{_NAME}: {name} comes from the module, got {options[name]}; leave it out"
            )
    alone = not hasattr(module, "fast_attention")
    fast: Any = module if alone else module.fast_attention
    _check_attributes(fast, _OF_FAST_ATTENTION, "FastAttention")
    if getattr(fast, "no_projection", False):
        raise ValueError(
            f"{_NAME}: no_projection must be False, got True: that normalises queries and keys by "
            f"softmax, which is another attention than the Performer's"
        )
    feature_map, scale, eps = _map_of(fast)
    shared: dict[str, Any] = {
        "num_features": fast.nb_features,
        "causal": bool(fast.causal),
        "feature_map": feature_map,
        "scale": scale,
        "eps": eps,
        "norm": "sqrt_d" if getattr(fast, "ortho_scaling", 0) == 1 else "chi",
        "device": fast.projection_matrix.device,
        **options,
    }
    layer: FavorSDPA | FavorAttention
    if alone:
        layer = FavorSDPA(fast.dim_heads, **shared)
    else:
        layer = _multihead(module, fast.dim_heads, shared)
    _copy_projection(fast.projection_matrix, layer)
    return layer.train(module.training)


def _multihead(module: Any, head_dim: int, shared: dict[str, Any]) -> FavorAttention:
    _check_attributes(module, _OF_SELF_ATTENTION, "SelfAttention")
    if getattr(module, "local_attn", None) is not None:
        raise ValueError(
            f"{_NAME}: local_heads must be 0, got {module.heads - module.global_heads}: the layer "
            f"has no heads of exact local attention"
        )
    dropout = getattr(module, "dropout", None)
    if dropout is not None and dropout.p > 0:
        raise ValueError(
            f"{_NAME}: dropout must be 0, got {dropout.p}: theirs drops outputs of the layer; set "
            f"module.dropout.p = 0 and put nn.Dropout({dropout.p}) after the converted layer"
        )
    own: dict[str, Any] = {
        "head_dim": head_dim,
        "bias": module.to_q.bias is not None,
        "out_bias": module.to_out.bias is not None,
        "shared_projection": True,
        "dtype": module.to_q.weight.dtype,
    }
    layer = FavorAttention(module.to_q.in_features, module.heads, **{**own, **shared})
    for ours, theirs in (
        (layer.q_proj, module.to_q),
        (layer.k_proj, module.to_k),
        (layer.v_proj, module.to_v),
        (layer.out_proj, module.to_out),
    ):
        ours.load_state_dict(theirs.state_dict())
        freeze_alike(ours, theirs)
    return layer


def _copy_projection(matrix: Tensor, layer: FavorSDPA | FavorAttention) -> None:
    dtype = torch.promote_types(matrix.dtype, torch.float32)
    assert layer.projection is not None  # it has num_features
    layer.projection = matrix.detach().to(layer.projection.device, dtype, copy=True)


def _map_of(fast: Any) -> tuple[FeatureMap, float | None, float | None]:
    """Feature map, scale and eps; there the generalised kernels scale q and k by d^(-1/4) each."""
    if not getattr(fast, "generalized_attention", False):
        return "positive", None, None
    f = fast.kernel_fn
    name: FeatureMap = f
    if type(f) is nn.GELU:  # a subclass may compute anything
        name = "gelu" if f.approximate == "none" else f
    else:
        for known, ours in _MAPS:
            if f is known or type(f) is known:
                name = ours
    return name, fast.dim_heads**-0.5, _EPS


def _check_attributes(module: Any, names: tuple[str, ...], kind: str) -> None:
    missing = [name for name in names if not hasattr(module, name)]
    if missing:
        raise TypeError(
            f"{_NAME}: a {kind} of performer-pytorch has {', '.join(names)}, "
            f"got {type(module).__name__} without {', '.join(missing)}"
        )

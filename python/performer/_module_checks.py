"""What FavorAttention refuses before it computes anything."""

from __future__ import annotations

from typing import TypedDict

from torch import Tensor

from performer.state import FavorState


class CallOptions(TypedDict, total=False):
    """The keyword arguments of FavorAttention.forward that leave the kind of result alone."""

    key_mask: Tensor | None
    key_padding_mask: Tensor | None
    attn_mask: Tensor | None
    is_causal: bool
    position: int | None
    initial_state: FavorState | None


def check_sizes(
    embed_dim: int,
    heads: tuple[int, int, int | None],
    num_features: int | None,
    redraw_interval: int | None,
) -> None:
    """heads: of queries, of keys and values, and their width if it is given."""
    num_heads, kv_heads, head_dim = heads
    if num_heads < 1 or embed_dim < 1 or (head_dim is None and embed_dim % num_heads):
        raise ValueError(
            f"FavorAttention: embed_dim must be a multiple of num_heads, "
            f"got {embed_dim} and {num_heads}"
        )
    if head_dim is not None and head_dim < 1:
        raise ValueError(f"FavorAttention: head_dim must be at least 1, got {head_dim}")
    if kv_heads < 1 or num_heads % kv_heads:
        raise ValueError(
            f"FavorAttention: num_kv_heads must divide num_heads, got {kv_heads} and {num_heads}"
        )
    if isinstance(num_features, float):
        raise TypeError(
            f"FavorAttention: num_features must be a whole number, got {num_features}; "
            f"performer.MultiheadAttention takes dropout in this place"
        )
    if redraw_interval is not None and redraw_interval < 1:
        raise ValueError(
            f"FavorAttention: redraw_interval must be at least 1, got {redraw_interval}"
        )


def check_call(
    need_weights: bool | None, return_state: bool, initial_state: FavorState | None
) -> None:
    if need_weights is not None and return_state:
        raise ValueError(
            f"FavorAttention: return_state and need_weights={need_weights} both set the second "
            f"result; leave need_weights out"
        )
    if need_weights and initial_state is not None:
        raise ValueError(
            "FavorAttention: need_weights=True shows the weights of this call's keys, "
            "got an initial_state, whose keys are not kept"
        )


def check_input(
    tensors: dict[str, Tensor], widths: tuple[int, int, int], batch_first: bool
) -> None:
    """Query, key and value by name, and the widths that they must have."""
    layout = "batch, length" if batch_first else "length, batch"
    for (name, tensor), width in zip(tensors.items(), widths, strict=True):
        if tensor.is_nested or tensor.dim() != 3 or tensor.shape[-1] != width:
            got = "a nested tensor" if tensor.is_nested else list(tensor.shape)
            raise ValueError(f"FavorAttention: {name} must be [{layout}, {width}], got {got}")

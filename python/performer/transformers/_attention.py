"""The attention function of attn_implementation="favor"."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from performer._masks import Sizes
from performer.analysis import exact_attention
from performer.attention import favor_attention
from performer.transformers._cache import memory_of
from performer.transformers._features import ExactHere, RandomFeatures, is_causal_layer
from performer.transformers._masks import read_given_mask
from performer.transformers._options import FIELD, read_options

# What other attentions take by keyword and FAVOR+ has no counterpart for.
_REFUSED = {
    "softcap": "weights are never formed, so that no logit can be capped",
    "s_aux": "sinks would be weights of their own",
    "head_mask": "a head is silenced by its output projection",
    "position_bias": "a number for each pair of tokens would take an L x L matrix",
    "cache": "continuous batching pages keys, of which FAVOR+ keeps none",
    "cu_seq_lens_q": "packed sequences come through performer.favor_attention(cu_seqlens_q=...)",
}


def favor_attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """query [B, H, Lq, D], key and value [B, Hkv, Lk, D] -> [B, Lq, H, Dv], and no weights."""
    _refuse(dropout, others)
    causal = is_causal_layer(module) if is_causal is None else is_causal
    sizes = Sizes(query.shape[0], query.shape[1], query.shape[2], key.shape[2])
    causal, key_mask = read_given_mask(attention_mask, sizes, causal)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    features = features_of(module, query, key)
    if isinstance(features, ExactHere):
        features.see(query, key, scale)
        out = _exact((query, key, value), causal, scale, key_mask)
    else:
        options = features.arguments(query, key, scale)
        out = _favor((query, key, value), causal, key_mask, options)
    return out.transpose(1, 2).contiguous(), None


def _refuse(dropout: float, others: dict[str, Any]) -> None:
    if dropout != 0:
        raise ValueError(
            f"favor: dropout of attention weights must be 0, got {dropout}: FAVOR+ forms none; set "
            f"it to 0 in the config (attention_dropout, attn_pdrop, attention_probs_dropout_prob)"
        )
    for name, reason in _REFUSED.items():
        if others.get(name) is not None:
            raise ValueError(f"favor: {name} is not possible: {reason}")
    if others.get("output_attentions"):
        raise ValueError(
            "favor: output_attentions is not possible: the weights are never formed; "
            "performer.attention_map shows them, or parts of them, from q and k"
        )


def features_of(module: nn.Module, query: Tensor, key: Tensor) -> Any:
    """What patch has put into the module; else features by its config, drawn at the first call."""
    features = module._modules.get(FIELD)
    if features is None:
        features = _attach(module, query, key)
    return features


@torch.compiler.disable  # a draw is no part of a graph
def _attach(module: nn.Module, query: Tensor, key: Tensor) -> nn.Module:
    layer = getattr(module, "layer_idx", None)
    if layer is None:
        raise ValueError(
            f"favor: {type(module).__name__} does not know its layer's number, which its features "
            f"depend on; performer.patch(model) numbers the layers"
        )
    options = read_options(getattr(module, "config", None))
    if layer in options.keep_exact:
        features: nn.Module = ExactHere()
    elif options.fitted:
        raise ValueError(
            f"favor: config.favor says that the model has fitted features, layer {layer} has none; "
            f"load it by performer.from_pretrained(folder)"
        )
    else:
        heads, causal = (query.shape[1], key.shape[1]), is_causal_layer(module)
        with torch.inference_mode(False):  # a tensor of that mode could never be trained beside
            features = RandomFeatures(options, heads, query.shape[-1], layer, causal)
            features.to(query.device)
    module.add_module(FIELD, features)
    return features


def _favor(
    qkv: tuple[Tensor, Tensor, Tensor],
    causal: bool,
    key_mask: Tensor | None,
    options: dict[str, Any],
) -> Tensor:
    length, keys = qkv[0].shape[2], qkv[1].shape[2]
    if key_mask is not None:
        key_mask = key_mask[:, -keys:]  # with a cache of states these are the new ones
    memory = memory_of(qkv[1])
    if memory is not None:
        if not causal:
            raise ValueError("favor: a cache needs a causal layer, this one is bidirectional")
        state = memory.take()
        out, after = favor_attention(
            *qkv, causal=True, key_mask=key_mask, initial_state=state, return_state=True, **options
        )
        memory.put(after)
        return out
    if causal and keys != length:
        raise ValueError(
            f"favor: {length} tokens came with {keys} keys, so the cache is one of keys and values;"
            f" FAVOR+ keeps sums: pass past_key_values=performer.FavorCache(model.config)"
        )
    return favor_attention(*qkv, causal=causal, key_mask=key_mask, **options)


def _exact(
    qkv: tuple[Tensor, Tensor, Tensor], causal: bool, scale: float, key_mask: Tensor | None
) -> Tensor:
    """Of a layer that keeps it; its keys are all there, the queries the last of them."""
    q, k, v = qkv
    before = k.shape[2] - q.shape[2]
    if key_mask is not None:
        key_mask = key_mask[:, -k.shape[2] :]
    if causal and q.shape[2] == 1:
        causal = False
    elif causal and before > 0:
        q = torch.nn.functional.pad(q, (0, 0, before, 0))
    out = exact_attention(q, k, v, causal=causal, scale=scale, key_mask=key_mask)
    return out[:, :, -qkv[0].shape[2] :]

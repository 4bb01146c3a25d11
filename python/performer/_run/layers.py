"""Parts of the program's Transformer in plain torch, with the program's names of weights."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, linear, relu, rms_norm, silu

from performer._run.attention import make_attention
from performer._run.options import ModelOptions, Options

Turn = Callable[[Tensor], Tensor]  # rotary positions


class Norm(nn.Module):
    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.eps = o.norm_eps
        self.weight = nn.Parameter(torch.empty(o.dim))
        self.bias = nn.Parameter(torch.empty(o.dim)) if o.norm == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return rms_norm(x, self.weight.shape, self.weight, self.eps)
        return layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


class Embedding(nn.Module):
    positions: Tensor | None
    types: Tensor | None

    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(o.vocabulary, o.dim))
        learned = o.positions == "learned"
        self.positions = nn.Parameter(torch.empty(o.max_length, o.dim)) if learned else None
        self.sinusoidal = o.positions == "sinusoidal"
        self.types = nn.Parameter(torch.empty(o.token_types, o.dim)) if o.token_types else None
        self.norm = Norm(o) if o.embedding_norm else None
        self.dropped = o.token_dropout

    def forward(self, tokens: Tensor, key_mask: Tensor | None) -> Tensor:
        x = embedding(tokens, self.weight)
        if self.dropped >= 0:
            x = _without_token(x, tokens == self.dropped, key_mask)
        x = self.with_positions(x)
        if self.types is not None:
            x = x + self.types[0]
        return x if self.norm is None else cast(Tensor, self.norm(x))

    def with_positions(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        if self.sinusoidal:
            return _sinusoids(length, x) + x * math.sqrt(x.shape[-1])
        if self.positions is None:
            return x
        if length > len(self.positions):
            raise ValueError(
                f"model: learned positions end at model.max_length = {len(self.positions)}, the "
                f"sequence has {length} tokens; use a shorter one, or a model with rotary positions"
            )
        return x + self.positions[:length]


def _sinusoids(length: int, like: Tensor) -> Tensor:
    """Row p: sin(p r_0) ... sin(p r_{E/2-1}), cos(p r_0) ..., r_i = 10000^(-2i/E)."""
    dim = like.shape[-1]
    rate = 10000.0 ** (torch.arange(0, dim, 2, dtype=torch.float64) / -dim)
    angle = torch.outer(torch.arange(length, dtype=torch.float64), rate)
    return torch.cat([angle.sin(), angle.cos()], 1).to(like)


def _without_token(x: Tensor, dropped: Tensor, key_mask: Tensor | None) -> Tensor:
    """Without the embeddings of a token, as ESM-2 does without its mask: what is left is scaled as
    in its training, where 15 % of the tokens were chosen and 80 % of those masked."""
    masked = dropped.sum(1).float()
    length = torch.full_like(masked, x.shape[1]) if key_mask is None else key_mask.sum(1).float()
    length = length.clamp_min(1)
    left = (length - masked).clamp_min(1) / length
    return x.masked_fill(dropped.unsqueeze(-1), 0) * (1 - 0.15 * 0.8) / left[:, None, None]


class Attention(nn.Module):
    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        o, key_heads = options.model, options.key_heads
        self.split, self.width = (o.heads, key_heads, key_heads), options.head_dim
        self.qkv = nn.Linear(o.dim, sum(self.split) * self.width, bias=o.qkv_bias)
        self.output = nn.Linear(o.heads * self.width, o.dim, bias=o.attention_output_bias)
        self.core = make_attention(options, layer)

    def forward(self, x: Tensor, key_mask: Tensor | None, turn: Turn | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.width)).split(self.split, 2)  # [B, L, H, D]
        if turn is not None:
            q, k = turn(q), turn(k)
        q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
        return cast(Tensor, self.output(self.core(q, k, v, key_mask).transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.activation = o.activation
        width = (2 if o.activation == "swiglu" else 1) * o.ff_dim
        self.input = nn.Linear(o.dim, width, bias=o.ff_bias)
        self.output = nn.Linear(o.ff_dim, o.dim, bias=o.ff_bias)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.output(_activate(self.input(x), self.activation)))


def _activate(h: Tensor, activation: str) -> Tensor:
    if activation == "swiglu":
        gate, value = h.chunk(2, -1)
        return silu(gate) * value
    if activation == "relu":
        return relu(h)
    return gelu(h, approximate="tanh" if activation == "gelu_tanh" else "none")


class Block(nn.Module):
    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        o = options.model
        self.pre = o.norm_position == "pre"
        self.attention_norm, self.attention = Norm(o), Attention(options, layer)
        self.feed_forward_norm, self.feed_forward = Norm(o), FeedForward(o)

    def attend(self, x: Tensor, key_mask: Tensor | None, turn: Turn | None) -> Tensor:
        given = self.attention_norm(x) if self.pre else x
        return cast(Tensor, self.attention(given, key_mask, turn))

    def feed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.feed_forward(self.feed_forward_norm(x) if self.pre else x))

    def forward(self, x: Tensor, key_mask: Tensor | None, turn: Turn | None) -> Tensor:
        attended = x + self.attend(x, key_mask, turn)
        if self.pre:
            return attended + self.feed(attended)
        middle = self.attention_norm(attended)
        return cast(Tensor, self.feed_forward_norm(middle + self.feed(middle)))


class Rotary(nn.Module):
    """Turns the pairs (2i, 2i + 1) of a head by position times frequency."""

    frequencies: Tensor

    def __init__(self, options: Options) -> None:
        super().__init__()
        o, dim = options.model, options.head_dim
        self.plain = o.rotary_frequencies == "base" and o.rotary_base == 10000.0
        with torch.device("cpu"):  # numbers, where parameters are yet to be read
            even = torch.arange(0, dim, 2, dtype=torch.float64)
            frequencies = o.rotary_base ** (-even / dim)
        stored = o.rotary_frequencies == "stored"
        given = torch.empty(dim // 2) if stored else frequencies
        self.register_buffer("frequencies", given, persistent=stored)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, H, D]."""
        if self.plain:
            return cast(Tensor, torch.ops.performer.rotary(x, 0))
        frequencies = self.frequencies.to(x.device, torch.float64)
        positions = torch.arange(x.shape[1], dtype=torch.float64, device=x.device)
        angle = torch.outer(positions, frequencies)[:, None]
        pairs = x.unflatten(-1, (-1, 2))
        cosine, sine = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        one, two = pairs[..., 0], pairs[..., 1]
        turned = (one * cosine - two * sine, one * sine + two * cosine)
        return torch.stack(turned, -1).flatten(-2)


class LmHead(nn.Module):
    """Logits; the weight is the embedding's where they are tied."""

    weight: Tensor | None
    bias: Tensor | None

    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        if o.head_transform:
            self.transform = nn.ModuleDict({"dense": nn.Linear(o.dim, o.dim), "norm": Norm(o)})
        self.transformed, self.activation = o.head_transform, o.activation
        self.weight = None if o.tied else nn.Parameter(torch.empty(o.vocabulary, o.dim))
        self.bias = nn.Parameter(torch.empty(o.vocabulary)) if o.logits_bias else None

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        if self.transformed:
            x = self.transform["norm"](_activate(self.transform["dense"](x), self.activation))
        return linear(x, weight if self.weight is None else self.weight, self.bias)

"""The program's Transformer in plain torch, with the program's names of weights."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, gelu, layer_norm, linear, relu, rms_norm, silu

from performer._run.attention import Favor, make_attention
from performer._run.options import ModelOptions, Options
from performer._run.tokens import TokenSpace

_EPS = 1e-5  # of the norms


class Norm(nn.Module):
    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(o.dim))
        self.bias = nn.Parameter(torch.empty(o.dim)) if o.norm == "layer" else None

    def forward(self, x: Tensor) -> Tensor:
        if self.bias is None:
            return rms_norm(x, self.weight.shape, self.weight, _EPS)
        return layer_norm(x, self.weight.shape, self.weight, self.bias, _EPS)


class Embedding(nn.Module):
    positions: Tensor | None

    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(o.vocabulary, o.dim))
        learned = o.positions == "learned"
        self.positions = nn.Parameter(torch.empty(o.max_length, o.dim)) if learned else None
        self.sinusoidal = o.positions == "sinusoidal"

    def forward(self, tokens: Tensor) -> Tensor:
        x, length = embedding(tokens, self.weight), tokens.shape[1]
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


class Attention(nn.Module):
    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        o = options.model
        self.split = (3, o.heads, options.head_dim)
        self.qkv, self.output = nn.Linear(o.dim, 3 * o.dim), nn.Linear(o.dim, o.dim)
        self.core = make_attention(options, layer)
        self.rotary = o.positions == "rotary"

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, self.split).unbind(2)  # [B, L, H, D]
        if self.rotary:
            q, k = (torch.ops.performer.rotary(heads, 0) for heads in (q, k))
        q, k, v = (heads.transpose(1, 2) for heads in (q, k, v))
        return cast(Tensor, self.output(self.core(q, k, v, key_mask).transpose(1, 2).flatten(2)))


class FeedForward(nn.Module):
    def __init__(self, o: ModelOptions) -> None:
        super().__init__()
        self.activation = o.activation
        width = (2 if o.activation == "swiglu" else 1) * o.ff_dim
        self.input, self.output = nn.Linear(o.dim, width), nn.Linear(o.ff_dim, o.dim)

    def forward(self, x: Tensor) -> Tensor:
        h = self.input(x)
        if self.activation == "swiglu":
            gate, value = h.chunk(2, -1)
            h = silu(gate) * value
        else:
            h = relu(h) if self.activation == "relu" else gelu(h)
        return cast(Tensor, self.output(h))


class Block(nn.Module):
    def __init__(self, options: Options, layer: int) -> None:
        super().__init__()
        o = options.model
        self.pre = o.norm_position == "pre"
        self.attention_norm, self.attention = Norm(o), Attention(options, layer)
        self.feed_forward_norm, self.feed_forward = Norm(o), FeedForward(o)

    def attend(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        return cast(Tensor, self.attention(self.attention_norm(x) if self.pre else x, key_mask))

    def feed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.feed_forward(self.feed_forward_norm(x) if self.pre else x))

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        attended = x + self.attend(x, key_mask)
        if self.pre:
            return attended + self.feed(attended)
        middle = self.attention_norm(attended)
        return cast(Tensor, self.feed_forward_norm(middle + self.feed(middle)))


class RunModel(nn.Module):
    """A model that `performer train` has trained, with the logits that the program computes.

    model(tokens, key_mask) gives logits [B, L, V] of a language model, [B, classes] of a
    classifier; `match` compares two texts; `hidden` gives [B, L, E]. tokens: int64 [B, L];
    key_mask: bool [B, L], True is a real token. The model is ready for eval(); it has no dropout.
    """

    output: Any
    tokens: TokenSpace  # set by performer.load
    step: int

    def __init__(self, options: Options) -> None:
        super().__init__()
        o = self.options = options.model
        self.embedding = Embedding(o)
        self.layers = nn.ModuleList(Block(options, i) for i in range(o.layers))
        self.norm = Norm(o) if o.norm_position == "pre" else None
        if o.head != "lm":
            self.head = nn.ModuleList(_head(o))
        elif not o.tied:
            self.output = nn.Linear(o.dim, o.vocabulary, bias=False)

    def redraw(self, draw: int) -> None:
        """Takes draw number `draw` of all random projections."""
        for module in self.modules():
            if isinstance(module, Favor):
                module.redraw(draw)

    def forward(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
        x = self.hidden(tokens, key_mask)
        if self.options.head == "lm":
            return linear(x, self.embedding.weight if self.options.tied else self.output.weight)
        if self.options.head == "classify":
            return self._answer(_pool(x, key_mask))
        raise ValueError("model: the head match compares two texts; call model.match(a, b)")

    def hidden(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """[B, L, E]."""
        x = self.embedding(tokens)
        if self.options.reversible:
            a = b = x
            for block in self.blocks():
                a = a + block.attend(b, key_mask)
                b = b + block.feed(a)
            x = (a + b) * 0.5
        else:
            for block in self.blocks():
                x = block(x, key_mask)
        return cast(Tensor, x if self.norm is None else self.norm(x))

    def blocks(self) -> Iterator[Block]:
        for block in self.layers:
            assert isinstance(block, Block)
            yield block

    def match(
        self, a: Tensor, b: Tensor, mask_a: Tensor | None = None, mask_b: Tensor | None = None
    ) -> Tensor:
        """[B, classes]."""
        if self.options.head != "match":
            raise ValueError(f"model: match needs the head match, this is {self.options.head}")
        one, two = _pool(self.hidden(a, mask_a), mask_a), _pool(self.hidden(b, mask_b), mask_b)
        return self._answer(torch.cat([one, two, one * two, one - two], -1))

    def encode(self, text: str | bytes) -> Tensor:
        """The tokens of a text, int64 [L], without specials; residues and bytes."""
        return torch.tensor(self.tokens.encode(text), dtype=torch.int64)

    def decode(self, tokens: Tensor) -> str:
        """The text of tokens [L], without specials."""
        return self.tokens.decode(tokens.tolist())

    def _answer(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.head):
            x = layer(x if i == 0 else relu(x))
        return x


def _head(o: ModelOptions) -> list[nn.Linear]:
    if o.head == "match":
        widths = [4 * o.dim, o.ff_dim, max(o.ff_dim // 2, 1), o.classes]
    else:
        widths = [o.dim, o.ff_dim, o.classes]
    return [nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True)]


def _pool(hidden: Tensor, key_mask: Tensor | None) -> Tensor:
    if key_mask is None:
        return hidden.mean(1)
    real = key_mask.unsqueeze(-1)
    total = hidden.masked_fill(~real, 0).sum(1)
    return total / real.sum(1).clamp_min(1).to(total.dtype)

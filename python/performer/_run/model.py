"""The program's Transformer in plain torch, with the program's names of weights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

from performer._run.attention import Favor
from performer._run.embed import embed
from performer._run.layers import Block, Embedding, LmHead, Norm, Rotary
from performer._run.options import ModelOptions, Options
from performer._run.tokens import TokenSpace


class RunModel(nn.Module):
    """A model that `performer train` or `convert` has made, with the program's logits.

    model(tokens, key_mask) gives logits [B, L, V] of a language model, [B, classes] of a
    classifier; `match` compares two texts; `hidden` gives [B, L, E]. tokens: int64 [B, L];
    key_mask: bool [B, L], True is a real token. The model is ready for eval(); it has no dropout.
    """

    tokens: TokenSpace  # set by performer.load
    step: int

    def __init__(self, options: Options) -> None:
        super().__init__()
        o = self.options = options.model
        self.embedding = Embedding(o)
        self.layers = nn.ModuleList(Block(options, i) for i in range(o.layers))
        self.norm = Norm(o) if o.norm_position == "pre" else None
        self.rotary = Rotary(options) if o.positions == "rotary" else None
        if o.head == "lm":
            self.output = LmHead(o)
        elif o.head != "none":
            self.head = nn.ModuleList(_head(o))

    def redraw(self, draw: int) -> None:
        """Takes draw number `draw` of all random projections."""
        for module in self.modules():
            if isinstance(module, Favor):
                module.redraw(draw)

    def forward(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
        x = self.hidden(tokens, key_mask)
        if self.options.head == "lm":
            return cast(Tensor, self.output(x, self.embedding.weight))
        if self.options.head == "classify":
            return self._answer(_pool(x, key_mask))
        if self.options.head == "none":
            raise ValueError("model: it has no output layer; call model.hidden(tokens)")
        raise ValueError("model: the head match compares two texts; call model.match(a, b)")

    def hidden(self, tokens: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """[B, L, E]."""
        x, turn = self.embedding(tokens, key_mask), self.rotary
        if self.options.reversible:
            a = b = x
            for block in self.blocks():
                a = a + block.attend(b, key_mask, turn)
                b = b + block.feed(a)
            x = (a + b) * 0.5
        else:
            for block in self.blocks():
                x = block(x, key_mask, turn)
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

    def embed(
        self,
        sequences: Iterable[str],
        layer: int = -1,
        pool: str = "mean",
        batch_tokens: int = 16384,
    ) -> Tensor | list[Tensor]:
        """Hidden states as vectors, those of `performer embed`: float32 [N, E], in order.

        Args:
            sequences: residues, or texts of a model of bytes.
            layer: 0 are the embeddings, n is after n layers, -1 after all and the last norm, -2
                without the last layer, and so on.
            pool: "mean" of the residues, "mean-all" with BOS and EOS, the "first" token, or "none":
                a list with a tensor [residues, E] for each sequence.
            batch_tokens: tokens computed at once, padding included.

        Example:
            >>> model = performer.load("runs/first")
            >>> vectors = model.embed(["MKTAYIAKQR", "GGAL"])  # [2, E]
        """
        return embed(self, sequences, layer, pool, batch_tokens)

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

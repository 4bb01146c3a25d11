"""Vectors of sequences, as `performer embed` computes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from performer._run.model import RunModel

_POOLS = ("mean", "mean-all", "first", "none")


@torch.no_grad()
def embed(
    model: RunModel, sequences: Iterable[str], layer: int, pool: str, batch_tokens: int
) -> Tensor | list[Tensor]:
    _check(model, sequences, layer, pool)
    rows = [framed(model, text) for text in sequences]
    vectors: dict[int, Tensor] = {}
    for batch in _plan([len(row) for row in rows], batch_tokens):
        vectors |= zip(batch, _of_batch(model, [rows[i] for i in batch], layer, pool), strict=True)
    found = [vectors[i] for i in range(len(rows))]
    if pool == "none":
        return found
    return torch.stack(found) if found else torch.empty(0, model.options.dim)


def framed(model: RunModel, text: str) -> list[int]:
    """The tokens of a sequence between what the model was trained to see around them."""
    space = model.tokens
    if space.kind == "protein":
        text = text.rstrip().rstrip("*")  # the stop that ends a protein, as in FASTA
    tokens = space.encode(text)
    if not tokens:
        raise ValueError(f"embed: a sequence without residues, got {text!r:.60}")
    first = [space.start if space.start >= 0 else space.bos] if space.bos >= 0 else []
    return [*first, *tokens, *([space.eos] if space.eos >= 0 else [])]


def _check(model: RunModel, sequences: Iterable[str], layer: int, pool: str) -> None:
    layers = model.options.layers
    if isinstance(sequences, str):
        raise TypeError("embed: sequences must be a list of texts, got one text")
    if pool not in _POOLS:
        raise ValueError(f"embed: pool must be one of {', '.join(_POOLS)}, got {pool!r:.40}")
    if not -layers - 1 <= layer <= layers:
        raise ValueError(f"embed: layer must be from {-layers - 1} to {layers}, got {layer}")
    if model.options.reversible and layer != -1:
        raise ValueError(
            f"embed: layers of a reversible model have two streams; layer must be -1, got {layer}"
        )


def _plan(lengths: list[int], tokens: int) -> Iterator[list[int]]:
    """Rows of about the same length, longest first, of at most `tokens` with padding, or one."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def _of_batch(model: RunModel, rows: list[list[int]], layer: int, pool: str) -> list[Tensor]:
    space, device = model.tokens, model.embedding.weight.device
    tokens = torch.full((len(rows), len(rows[0])), max(space.pad, 0))
    real = torch.zeros(tokens.shape, dtype=torch.bool)
    for b, row in enumerate(rows):
        tokens[b, : len(row)] = torch.tensor(row)
        real[b, : len(row)] = True
    regular = real & (tokens >= space.first_regular)
    regular &= tokens < space.first_regular + space.regular
    tokens, real, regular = (t.to(device) for t in (tokens, real, regular))
    mask = None if bool(real.all()) else real
    hidden = _hidden(model, tokens, mask, layer).float()  # [B, L, E]
    if pool == "first":
        return list(hidden[:, 0])
    if pool == "none":
        return [own[kept] for own, kept in zip(hidden, regular, strict=True)]
    weight = (regular if pool == "mean" else real)[..., None].float()
    return list((hidden * weight).sum(1) / weight.sum(1).clamp_min(1))


def _hidden(model: RunModel, tokens: Tensor, key_mask: Tensor | None, layer: int) -> Tensor:
    if layer == -1:
        return model.hidden(tokens, key_mask)
    depth = layer if layer >= 0 else model.options.layers + 1 + layer
    x: Tensor = model.embedding(tokens, key_mask)
    for _, block in zip(range(depth), model.blocks(), strict=False):
        x = block(x, key_mask, model.rotary)
    return x

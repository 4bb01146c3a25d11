"""Batches of tokens out of the texts that a model is converted with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Batch(NamedTuple):
    tokens: Tensor  # int64 [B, L]
    real: Tensor  # bool [B, L]

    def inputs(self) -> dict[str, Tensor]:
        return {"input_ids": self.tokens, "attention_mask": self.real.long()}

    def to(self, device: torch.device) -> Batch:
        return Batch(self.tokens.to(device), self.real.to(device))


def tokenize(
    texts: Iterable[str] | Iterable[Sequence[int]], tokenizer: Any, length: int
) -> list[list[int]]:
    """Lists of at most `length` tokens; texts that are lists of tokens already are cut only."""
    rows: list[list[int]] = []
    for text in texts:
        if isinstance(text, str):
            if tokenizer is None:
                raise ValueError(
                    "convert: texts are strings, so a tokenizer is needed: pass tokenizer="
                    "AutoTokenizer.from_pretrained(folder), or lists of tokens as texts"
                )
            ids = tokenizer(text, truncation=True, max_length=length)["input_ids"]
        else:
            ids = [int(token) for token in text][:length]
        if len(ids) > 1:
            rows.append(ids)
    if not rows:
        raise ValueError("convert: texts must hold at least one text of two tokens, got none")
    return rows


def batches(rows: Sequence[list[int]], size: int, seed: int) -> Iterator[Batch]:
    """Without end: all rows in a random order, then again in another. Rows of a batch have similar
    lengths, so that few pads are computed."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        order = torch.randperm(len(rows), generator=generator).tolist()
        for first in range(0, len(order), 8 * size):
            pool = sorted(order[first : first + 8 * size], key=lambda i: len(rows[i]))
            groups = [pool[i : i + size] for i in range(0, len(pool), size)]
            for group in torch.randperm(len(groups), generator=generator).tolist():
                yield pad([rows[i] for i in groups[group]])


def pad(rows: Sequence[list[int]]) -> Batch:
    """Pads stand behind the tokens; they are token 0, which no layer sees."""
    longest = max(len(row) for row in rows)
    tokens = torch.zeros(len(rows), longest, dtype=torch.int64)
    real = torch.zeros(len(rows), longest, dtype=torch.bool)
    for i, row in enumerate(rows):
        tokens[i, : len(row)] = torch.tensor(row)
        real[i, : len(row)] = True
    return Batch(tokens, real)

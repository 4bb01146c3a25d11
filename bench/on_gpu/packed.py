"""Sequences of many lengths, packed, against as many tokens in sequences of one length."""

import random

import torch
from torch import Tensor

import performer
from on_gpu.measure import HEADS, draw, times
from on_gpu.systems import System
from on_gpu.table import Row, Table

SEQUENCES, SHORTEST, LONGEST = 64, 16, 4096


def random_lengths() -> list[int]:
    """Fixed; their sum is a multiple of their number."""
    pick = random.Random(0)
    lengths = [pick.randint(SHORTEST, LONGEST) for _ in range(SEQUENCES)]
    rest = sum(lengths) % SEQUENCES
    longest = max(range(SEQUENCES), key=lengths.__getitem__)
    lengths[longest] -= rest
    return lengths


def packed(name: str, lengths: list[int], W: Tensor, causal: bool) -> System:
    offsets = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    longest = max(lengths)

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return performer.favor_attention(
            q,
            k,
            v,
            W,
            causal=causal,
            cu_seqlens_q=offsets,
            cu_seqlens_k=offsets,
            max_seqlen_q=longest,
            max_seqlen_k=longest,
        )

    return System(name, forward, causal, W, ours=True)


def measure(table: Table) -> None:
    lengths = random_lengths()
    tokens, mean = sum(lengths), sum(lengths) // SEQUENCES
    W = performer.draw_projection(256, 64, heads=HEADS).cuda()
    for causal in (True, False):
        kind = "causal" if causal else "bidirectional"
        section = f"packed, {kind}, bf16: {SEQUENCES} sequences, {tokens:,} tokens"

        def dense(q: Tensor, k: Tensor, v: Tensor, causal: bool = causal) -> Tensor:
            return performer.favor_attention(q, k, v, W, causal=causal)

        cases = [
            (System("a batch of equal length", dense, causal, W, ours=True), SEQUENCES, mean),
            (packed("packed, equal lengths", [mean] * SEQUENCES, W, causal), 1, tokens),
            (packed(f"packed, {SHORTEST} to {LONGEST}", lengths, W, causal), 1, tokens),
        ]
        equal: tuple[float, float] | None = None
        for system, batch, length in cases:
            row = Row(section, system.name, mean, 64, 256, HEADS)
            row.forward, row.both = times(system, draw(batch, HEADS, length, 64, torch.bfloat16))
            row.kernel = performer.last_kernel()
            if equal is None:
                equal = row.forward, row.both
            ratios = row.forward / equal[0], row.both / equal[1]
            row.note = f"of the batch: {ratios[0]:.2f} / {ratios[1]:.2f}"
            table.add(row)
            table.figures[f"{kind}, {system.name}, of a batch"] = ratios

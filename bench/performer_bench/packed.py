"""Sequences of many lengths, packed, against as many tokens in sequences of one length."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

import performer
from performer_bench.case import Attention, Case, draw_inputs, make_call
from performer_bench.progress import Progress
from performer_bench.results import PASSES
from performer_bench.table import Table
from performer_bench.timing import Machine, Measure

SEQUENCES, SHORTEST, LONGEST = 64, 16, 4096


@dataclass
class PackedRow:
    """Times of one layout of the same tokens."""

    layout: str
    causal: bool
    tokens: int
    us: dict[str, float]  # per token-head, by pass
    of_batch: dict[str, float]  # times those of a batch of equal lengths
    kernel: str


def random_lengths(sequences: int = SEQUENCES, longest: int = LONGEST) -> list[int]:
    """Fixed; their sum is a multiple of their number."""
    pick = random.Random(0)
    lengths = [pick.randint(SHORTEST, longest) for _ in range(sequences)]
    rest = sum(lengths) % sequences
    lengths[max(range(sequences), key=lengths.__getitem__)] -= rest
    return lengths


def packed(lengths: Sequence[int], W: Tensor, causal: bool) -> Attention:
    """Of q, k, v [1, H, T, D]."""
    offsets = torch.tensor([0, *lengths], device=W.device).cumsum(0).to(torch.int32)
    longest = max(lengths)
    call = partial(
        performer.favor_attention,
        W=W,
        causal=causal,
        cu_seqlens_q=offsets,
        cu_seqlens_k=offsets,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
    )
    return Attention(call, W)


def measure_packed(
    machine: Machine, case: Case, lengths: Sequence[int], progress: Progress
) -> list[PackedRow]:
    """`case`: direction, heads, widths and dtype. A batch first, then packed: equal, then not."""
    sequences, tokens = len(lengths), sum(lengths)
    mean = tokens // sequences
    progress.case(f"{case.direction}, {sequences} packed sequences, {tokens:,} tokens")
    batch = Case(
        sequences, case.heads, mean, case.dim, case.features, case.causal, case.kernel, case.dtype
    )
    row = Case(1, case.heads, tokens, case.dim, case.features, case.causal, case.kernel, case.dtype)
    W = draw_inputs(row, machine.device).W
    dense = Attention(partial(performer.favor_attention, W=W, causal=case.causal), W)
    layouts = [
        ("a batch of equal lengths", batch, dense),
        ("packed, equal lengths", row, packed([mean] * sequences, W, case.causal)),
        (f"packed, {min(lengths)} to {max(lengths):,}", row, packed(lengths, W, case.causal)),
    ]
    rows: list[PackedRow] = []
    for layout, shape, attention in layouts:
        inputs = draw_inputs(shape, machine.device)
        measures = {
            name: Measure(make_call(attention, inputs, name == "forward_backward"), rounds=5)
            for name in PASSES
        }
        machine.time(list(measures.values()), 60, progress.turn)
        for measure in measures.values():
            if measure.failure is not None:
                raise RuntimeError(f"{layout}: {measure.failure}")
        us = {n: 1e6 * machine.figure(m) / shape.token_heads for n, m in measures.items()}
        first = rows[0].us if rows else us
        ratios = {name: us[name] / first[name] for name in us}
        rows.append(PackedRow(layout, case.causal, tokens, us, ratios, performer.last_kernel()))
    return rows


def packed_table(rows: Sequence[PackedRow]) -> Table:
    cells = [
        [
            "causal" if row.causal else "bidirectional",
            row.layout,
            *(f"{1e6 * row.us[name]:,.0f}" for name in PASSES),
            *(f"{row.of_batch[name]:.2f} x" for name in PASSES),
            row.kernel,
        ]
        for row in rows
    ]
    columns = ["direction", "layout", "forward ps", "+ backward ps", "of the batch"]
    title = f"Packed sequences, {rows[0].tokens:,} tokens in all"
    return Table(title, [*columns, "+ backward of it", "path"], cells, words=(0, 1, 6))

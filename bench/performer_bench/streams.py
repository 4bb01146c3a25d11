"""Streaming decode: steps of one token behind states that no cache holds."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

import performer
from performer_bench.case import DTYPES
from performer_bench.progress import Progress
from performer_bench.systems import kernels, kernels_of
from performer_bench.timing import Machine, Measure

SEQUENCE_HEADS = 16  # heads of a sequence; fewer where there are fewer in all
CACHES = 4  # sets of states exceed the cache so many times
LEAST_SETS = 3
ROUNDS = 15
SECONDS = 20  # for all rounds of a number of heads
# The best kernel, and what serves where it does not: without one launch a step, without kernels.
CHOICES = {"cpu": ("auto", "off"), "cuda": ("auto", "portable")}


@dataclass(frozen=True)
class Widths:
    dim: int
    features: int
    dtype: str  # of tokens; the state is fp32


@dataclass
class Row:
    heads: int
    kernel: str
    sets: int
    state_megabytes: float  # of one set
    step_us: float
    eager_us: float | None  # called from the host, where `step_us` is of a graph
    gigabytes_per_second: float
    share_of_copy: float


class Streams:
    """`sets` sets of states, and a token for each."""

    def __init__(self, machine: Machine, heads: int, widths: Widths) -> None:
        per_sequence = min(SEQUENCE_HEADS, heads)
        batch, device = heads // per_sequence, machine.device
        dtype = DTYPES[widths.dtype]
        self.heads = batch * per_sequence
        self.bytes = self.heads * widths.features * (widths.dim + 2) * 4
        self.sets = max(LEAST_SETS, -(-CACHES * machine.cache_bytes() // self.bytes))
        self.W = performer.draw_projection(widths.features, widths.dim).to(device)
        q, k, v = torch.randn(3, batch, per_sequence, 8, widths.dim, device=device).to(dtype)
        self.tokens, self.states = [], []
        for _ in range(self.sets):
            _, state = performer.favor_attention(q, k, v, self.W, causal=True, return_state=True)
            self.states.append(state)
            token = torch.randn(3, batch, per_sequence, 1, widths.dim, device=device).to(dtype)
            self.tokens.append(token.unbind(0))

    def round(self) -> None:
        """A step of every set, in place."""
        for token, state in zip(self.tokens, self.states, strict=True):
            options = ("positive", None, None, True, 0, *(None,) * 6)
            torch.ops.performer.favor_step_(*token, self.W, *options, *state[:3], *(None,) * 4)


def measure_steps(
    machine: Machine, streams: Streams, copy: float, progress: Progress
) -> Sequence[Row]:
    """A row per choice of kernels; `copy`: bytes per second."""
    variable = kernels_of(machine.device)
    rows, timed = [], []
    for choice in CHOICES[machine.device]:
        context = partial[AbstractContextManager[None]](kernels, variable, choice)
        measure = Measure(streams.round, context, ROUNDS)
        measure.warm_up()
        timed.append((measure, performer.last_kernel(), machine.beside(measure)))
    every = [m for measure, _, beside in timed for m in (measure, beside) if m is not None]
    machine.time(every, SECONDS, progress.turn)
    for measure, kernel, beside in timed:
        if measure.failure is not None:
            raise RuntimeError(f"{kernel}: {measure.failure}")
        seconds = machine.figure(measure) / streams.sets
        rate = 2 * streams.bytes / seconds
        rows.append(
            Row(
                streams.heads,
                kernel,
                streams.sets,
                streams.bytes / 1e6,
                1e6 * seconds,
                None if beside is None else 1e6 * machine.figure(beside) / streams.sets,
                rate / 1e9,
                rate / copy,
            )
        )
    return rows

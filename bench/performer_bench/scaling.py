"""Ours on 1, 2, 4, … threads, beside what the machine itself gains by them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import torch

from performer_bench.case import Case, draw_inputs, make_call
from performer_bench.cpu import interleave
from performer_bench.cpu_ceilings import CpuCeilings
from performer_bench.progress import Progress
from performer_bench.results import ScalingRow
from performer_bench.systems import SYSTEMS
from performer_bench.timing import Measure

SECONDS = 60  # for all rounds of a case


def thread_counts(threads: int) -> list[int]:
    """1, 2, 4, … and `threads`."""
    counts = [1]
    while counts[-1] * 2 < threads:
        counts.append(counts[-1] * 2)
    return counts + [threads] * (threads > 1)


@contextmanager
def on_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    torch.ops.performer.fma_probe(1)  # starts the threads, outside of any clock
    try:
        yield
    finally:
        torch.set_num_threads(before)


def measure_scaling(
    case: Case, passes: Sequence[str], threads: int, rounds: int, progress: Progress
) -> list[ScalingRow]:
    """All numbers of threads interleaved."""
    progress.case(f"{case.direction}, {case.length:,} tokens: threads")
    inputs = draw_inputs(case)
    attention = SYSTEMS[0].prepare(case, inputs.W)
    calls = {name: make_call(attention, inputs, name == "forward_backward") for name in passes}
    teams = {}
    for n in thread_counts(threads):
        context = partial(on_threads, n)
        with context():
            ceilings = CpuCeilings(rounds, context)
        ours = {name: Measure(call, context, rounds) for name, call in calls.items()}
        teams[n] = (ceilings, ours)
    measures = [m for c, ours in teams.values() for m in (*c.measures, *ours.values())]
    interleave(measures, SECONDS, progress.turn)
    return [
        ScalingRow(
            case,
            n,
            {name: m.best for name, m in ours.items()},
            c.rates["sgemm"],
            c.rates["fma"],
        )
        for n, (c, ours) in teams.items()
    ]

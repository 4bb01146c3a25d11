"""The CPU's own limits: SGEMM, and fused multiply-adds that never leave the registers."""

from contextlib import nullcontext
from typing import Any

import torch

from performer_bench.timing import Context, Measure

SGEMM = 2048  # n of [n, n] x [n, n]: large enough for the best rate, 0.1 s at 200 GFLOP/s
PROBE = 1_000_000  # iterations, some milliseconds


class CpuCeilings:
    """Two measures to be interleaved with others; their rates count what they did."""

    def __init__(self, rounds: int, context: Context = nullcontext) -> None:
        a, b = torch.randn(2, SGEMM, SGEMM)
        self.sgemm = Measure(lambda: torch.mm(a, b), context, rounds)
        self.fma = Measure(lambda: torch.ops.performer.fma_probe(PROBE), context, rounds)
        self._probe_flops = torch.ops.performer.fma_probe(1)[0] * PROBE  # of all threads
        self.sgemm.warm_up()
        self.sgemm.run()
        self.fma.run()

    @property
    def measures(self) -> list[Measure[Any]]:
        return [self.sgemm, self.fma]

    @property
    def seconds(self) -> float:
        return self.sgemm.seconds[0] + self.fma.seconds[0]

    @property
    def rates(self) -> dict[str, float]:
        return {
            "sgemm": 2 * SGEMM**3 / self.sgemm.best / 1e9,
            "fma": self._probe_flops / self.fma.best / 1e9,
        }


def instruction_set() -> str:
    """Of the probe: avx512, avx2 or portable."""
    isa: str = torch.ops.performer.fma_probe(1)[2]
    return isa

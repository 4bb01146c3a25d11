"""What a GPU can do: a bf16 matrix product and a copy."""

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from performer_bench.timing import Measure

GEMM = 8192
GIB = 2**30
Clock = Callable[..., list[float]]  # of a call: milliseconds, from a graph or from the host


class CudaCeilings:
    """Measured once, before anything else."""

    def __init__(self, clock: Clock) -> None:
        self._gflops = gemm_gflops(clock)
        self.copies = copy_rates(clock)  # TB/s by way and size

    @property
    def measures(self) -> list[Measure[Any]]:
        return []

    @property
    def seconds(self) -> float:
        return 0.0

    @property
    def rates(self) -> dict[str, float]:
        return {"gemm": self._gflops}


def gemm_gflops(clock: Clock) -> float:
    """The best of both layouts of the right operand; [8192, 8192] by [8192, 8192], bf16."""
    a, b = (torch.randn(GEMM, GEMM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    times = [median(clock(partial(torch.mm, a, right, out=out))) for right in (b, b.mT)]
    return 2 * GEMM**3 / min(times) * 1e-6


def copy_seconds(clock: Clock, size: int) -> float:
    """Of cudaMemcpyAsync of `size` bytes on the device, from the host."""
    source = torch.empty(size, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return median(clock(lambda: target.copy_(source), graph=False)) / 1e3


def copy_rates(clock: Clock) -> dict[str, float]:
    """TB/s, reads and writes counted. A copy of a tensor is cudaMemcpyAsync, which in a graph is a
    node of its own kind and may run on a copy engine; a kernel that negates is bound by memory
    alone, and is the rate that a kernel can hope for."""
    rates = {}
    for size in (GIB // 4, GIB, 2 * GIB):
        source = torch.empty(size // 4, device="cuda").normal_()
        target = torch.empty_like(source)
        ways = {
            "memcpy": (lambda s=source, t=target: t.copy_(s), False),
            "memcpy in a graph": (lambda s=source, t=target: t.copy_(s), True),
            "kernel": (lambda s=source, t=target: torch.neg(s, out=t), True),
        }
        for way, (run, graph) in ways.items():
            rate = 2 * size / median(clock(run, graph=graph)) * 1e-9
            rates[f"{way}, {size / GIB:g} GiB"] = rate
    return rates

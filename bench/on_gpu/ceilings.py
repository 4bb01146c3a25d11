"""What the machine can do: a bf16 matrix product and a copy."""

from functools import partial

import torch

from on_gpu.table import Table
from on_gpu.timing import milliseconds

GEMM = 8192
GIB = 2**30


def gemm_tflops() -> float:
    """The best of both layouts of the right operand; [8192, 8192] by [8192, 8192], bf16."""
    a, b = (torch.randn(GEMM, GEMM, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    out = torch.empty_like(a)
    times = [milliseconds(partial(torch.mm, a, right, out=out)) for right in (b, b.mT)]
    return 2 * GEMM**3 / min(times) * 1e-9


def copy_rates() -> dict[str, float]:
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
            rate = 2 * size / milliseconds(run, graph=graph) * 1e-9
            rates[f"{way}, {size / GIB:g} GiB"] = rate
    return rates


def measure(table: Table) -> None:
    tflops = gemm_tflops()
    rates = copy_rates()
    best = max(rates, key=rates.__getitem__)
    table.fact(
        f"bf16 product of {GEMM}^3: {tflops:.0f} TFLOP/s; copy: {rates[best]:.2f} TB/s ({best})",
        gemm_tflops=tflops,
        copy_tb_s=rates[best],
        copies=rates,
    )
    others = ", ".join(f"{way} {rate:.2f}" for way, rate in rates.items() if way != best)
    table.fact(f"other copies, TB/s: {others}")

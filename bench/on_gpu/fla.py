"""flash-linear-attention behind features made under torch.compile.

Values get 8 more columns, the first of ones: the product's column D is then
the denominator, and rows keep an alignment of 16 bytes. Features have no maximum subtracted, since
bfloat16 has float32's range and exp(w.y - |y|^2 / 2) <= exp(|w|^2 / 2): pointwise, the cheapest.
The projection is shared by the heads. chunk_linear_attn is chunk_simple_gla and more passes.

Its kernels choose among about 180 configurations by timing each, compiled one after the other:
`python fla.py WORKER` compiles one share of them into Triton's cache.
"""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parents[1])  # in the folder of this file, `fla` is this file

from on_gpu.systems import System
from on_gpu.timing import Clock

KINDS = ("chunk_simple_gla", "fused_chunk_simple_gla")
EXTRA = 8  # columns beside the values
FIRST = (64, 8)  # sequences and heads, as they will be timed
OTHERS = ((32, 8), (16, 8), (4, 8), (1, 8), (1, 1))
WORKERS = 3 * len(OTHERS)


def prepare(q: Tensor, k: Tensor, v: Tensor, W: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[T, H, D] of all tokens -> phi(q), phi(k) [T, H, M] and [v, 1, 0...] [T, H, D + EXTRA]."""
    root = q.shape[-1] ** -0.25
    projection = (root * W).mT.to(q.dtype)
    norm = (0.5 * root**2) * k.float().square().sum(-1, keepdim=True)
    phi_q = torch.exp((q @ projection).float()).to(q.dtype)
    phi_k = torch.exp((k @ projection).float() - norm).to(k.dtype)
    ones = pad(torch.ones_like(v[..., :1]), (0, EXTRA - 1))
    return phi_q, phi_k, torch.cat([v, ones], -1)


def divide(out: Tensor) -> Tensor:
    dim = out.shape[-1] - EXTRA
    return out[..., :dim] / out[..., dim : dim + 1]


def operators() -> ModuleType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from fla.ops import simple_gla
    return simple_gla


@lru_cache
def compiled_parts() -> tuple[Callable[..., Any], Callable[..., Any]]:
    return torch.compile(prepare), torch.compile(divide)


def system(kind: str, W: Tensor, compiled: bool = True) -> System:
    attend = getattr(operators(), kind)
    before: Callable[..., Any] = prepare
    after: Callable[..., Any] = divide
    if compiled:
        before, after = compiled_parts()

    def forward(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """[B, H, L, D]; tokens of all sequences are one axis where sequences do not matter."""
        batch = (q.shape[0], q.shape[2])
        parts = before(*(t.transpose(1, 2).flatten(0, 1) for t in (q, k, v)), W)
        out, _ = attend(*(t.unflatten(0, batch) for t in parts), scale=1.0)
        return after(out.flatten(0, 1)).unflatten(0, batch).transpose(1, 2)

    name = f"torch.compile + FLA {kind.removesuffix('_simple_gla')}"
    return System(name, forward, True, W, length_first=True)


def warm_parts(W: Tensor, tokens: int, heads: int) -> None:
    """Compiles what surrounds the product, for these sizes."""
    before, after = compiled_parts()
    dim = W.shape[-1]
    q = torch.randn(tokens, heads, dim, device="cuda", dtype=torch.bfloat16)
    for grad in (False, True):
        leaf = q.detach().requires_grad_(grad)
        with torch.set_grad_enabled(grad):
            *_, values = before(leaf, leaf, leaf, W)
            out = after(values)
        if grad:
            out.sum().backward()


def tuners() -> Iterator[Any]:
    """The autotuners of the kernels that KINDS use."""
    from fla.ops.common import chunk_h, chunk_o, fused_chunk
    from triton.runtime.autotuner import Autotuner

    for module in (chunk_h, chunk_o, fused_chunk):
        for kernel in vars(module).values():
            while kernel is not None and not isinstance(kernel, Autotuner):
                kernel = getattr(kernel, "fn", None)
            if kernel is not None:
                yield kernel


def tune_quickly() -> None:
    """Each configuration is timed for 25 ms instead of 125."""
    from triton.testing import do_bench

    for tuner in tuners():
        tuner._do_bench = lambda call, quantiles: do_bench(call, 5, 20, quantiles=quantiles)


def once(call: Callable[[], None], quantiles: tuple[float, ...]) -> list[float]:
    call()
    return [0.0] * len(quantiles)


def run_once(batch: int, heads: int, features: int = 256, dim: int = 64) -> None:
    W = torch.randn(features, dim, device="cuda")
    q, k, v = (
        torch.randn(batch, heads, 128, dim, device="cuda", dtype=torch.bfloat16).requires_grad_()
        for _ in range(3)
    )
    for kind in KINDS:
        out = system(kind, W, compiled=False).forward(q, k, v)
        torch.autograd.grad(out, (q, k, v), torch.ones_like(out))


def compile_share(worker: int) -> None:
    """A share of what is tuned, for the first size, and of some kernels for another one: those that
    are tuned per number of heads are compiled per number of sequences too."""
    for tuner in tuners():
        tuner._do_bench = once
        every = tuner.configs
        pieces = max(1, min(WORKERS, len(every) // 2))
        tuner.configs = every[worker % pieces :: pieces]
        tuner.of_other = every[worker // len(OTHERS) :: WORKERS // len(OTHERS)]
    run_once(*FIRST)
    for tuner in tuners():
        if "H" in tuner.keys:
            tuner.cache.clear()
            tuner.configs = tuner.of_other
    run_once(*OTHERS[worker % len(OTHERS)])


class Compilation:
    """Fills Triton's cache from processes of its own, while this one does something else."""

    def __init__(self) -> None:
        command = [sys.executable, __file__]
        self._workers = [
            subprocess.Popen([*command, str(n)], stderr=subprocess.PIPE, text=True)
            for n in range(WORKERS)
        ]

    def wait(self, seconds: float) -> bool:
        """Whether all ended in time. One that failed leaves its share to the tuning itself."""
        clock, in_time = Clock(seconds), True
        for n, worker in enumerate(self._workers):
            try:
                _, text = worker.communicate(timeout=max(0.1, clock.left))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.communicate()
                in_time = False
                continue
            if worker.returncode != 0:
                print(f"FLA, worker {n}: {(text.strip().splitlines() or ['?'])[-1]}", flush=True)
        return in_time


if __name__ == "__main__":
    compile_share(int(sys.argv[1]))

"""Compiles FLA's kernels in processes of their own, while the bench does something else.

They choose among about 180 configurations by timing each, compiled one after the other:
`python -m performer_bench.fla_compile WORKER` compiles one share of them into Triton's cache.
"""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from performer_bench import fla
from performer_bench.case import Case, draw_inputs, make_gradient_call

FIRST = (64, 8)  # sequences and heads, as they will be timed
OTHERS = ((32, 8), (16, 8), (4, 8), (1, 8), (1, 1))
WORKERS = 3 * len(OTHERS)


def tuners() -> Iterator[Any]:
    """The autotuners of the kernels that fla.KINDS use."""
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


def run_once(batch: int, heads: int) -> None:
    case = Case(batch, heads, 128, 64, 256, True, "positive", "bf16")
    inputs = draw_inputs(case, "cuda")
    for kind in fla.KINDS.values():
        attend = getattr(fla.operators(), kind)
        make_gradient_call(fla.attention(attend, inputs.W[0], compiled=False), inputs)()


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
    """Fills Triton's cache from processes of its own. `command` runs the worker of a number."""

    def __init__(self, command: tuple[str, ...] = ("-m", "performer_bench.fla_compile")) -> None:
        folder = Path(__file__).parents[1]  # whence the package is imported
        self._workers = [
            subprocess.Popen(
                [sys.executable, *command, str(n)], stderr=subprocess.PIPE, text=True, cwd=folder
            )
            for n in range(WORKERS)
        ]

    def wait(self, seconds: float) -> bool:
        """Whether all ended in time. One that failed leaves its share to the tuning itself."""
        end, in_time = time.monotonic() + seconds, True
        for n, worker in enumerate(self._workers):
            try:
                _, text = worker.communicate(timeout=max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.communicate()
                in_time = False
                continue
            if worker.returncode != 0:
                last = (text.strip().splitlines() or ["?"])[-1]
                print(f"FLA, worker {n}: {last}", file=sys.stderr, flush=True)
        return in_time


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("no CUDA device")
    compile_share(int(sys.argv[1]))

"""The CPU: calls interleaved with each other, the best of each kept."""

import ctypes
import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from performer_bench import host
from performer_bench.cpu_ceilings import CpuCeilings, instruction_set
from performer_bench.timing import MIB, Machine, Measure, OnTurn, T

COPY_BYTES, COPIES = 1 << 28, 5  # beyond any cache


class Cpu(Machine):
    device = "cpu"
    product = "sgemm"
    method = "up to {calls} calls each, interleaved"

    def describe(self) -> dict[str, Any]:
        return host.describe(instruction_set())

    def ceilings(self, rounds: int) -> CpuCeilings:
        return CpuCeilings(rounds)

    def first(self, measure: Measure[T]) -> tuple[T, float | None]:
        return peak_mib(measure.run)

    def time(self, measures: Sequence[Measure[Any]], seconds: float, on_turn: OnTurn) -> None:
        interleave(measures, seconds, on_turn)

    def figure(self, measure: Measure[Any]) -> float:
        return measure.best

    def beside(self, measure: Measure[T]) -> Measure[T] | None:
        return None

    def cache_bytes(self) -> int:
        return host.cache_bytes()

    def copy_rate(self) -> float:
        source = torch.zeros(COPY_BYTES, dtype=torch.uint8)
        target = torch.zeros_like(source)
        copy = Measure(lambda: target.copy_(source))
        for _ in range(COPIES):
            copy.run()
        return 2 * COPY_BYTES / copy.best


def is_due(turn: int, rounds: int, turns: int) -> bool:
    """Spreads `rounds` calls evenly over `turns` turns."""
    return turn * rounds // turns != (turn + 1) * rounds // turns


def interleave(measures: Sequence[Measure[Any]], seconds: float, on_turn: OnTurn) -> None:
    """Each measure `rounds` times, call by call: what slows the machine for a while meets all.

    Ends after the first turn that goes beyond `seconds`.
    """
    turns = max((measure.rounds for measure in measures), default=0)
    gc.collect()
    end = time.monotonic() + seconds
    for turn in range(turns):
        if turn > 0 and time.monotonic() > end:
            return
        on_turn(turn, turns)
        for measure in measures:
            if is_due(turn, measure.rounds, turns):
                measure.run()


def _status(key: str) -> int:
    """Bytes of a line of /proc/self/status such as `VmRSS:  1234 kB`."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {key}")


def peak_mib(call: Callable[[], T]) -> tuple[T, float | None]:
    """The result, and the peak of resident memory during the call beyond what there was before.

    Freed memory goes back to the system first, and its record of the peak starts anew. None
    where the system offers no such record.
    """
    gc.collect()
    try:
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
    except (OSError, AttributeError):
        return call(), None
    result = call()
    return result, max(0, _status("VmHWM") - before) / MIB

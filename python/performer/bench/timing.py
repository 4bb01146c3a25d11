"""Clocks and memory: calls interleaved with each other, the best of each kept."""

import ctypes
import gc
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar

MIB = 2**20
T = TypeVar("T")
Context = Callable[[], AbstractContextManager[None]]


@dataclass
class Measure(Generic[T]):
    """One thing that is timed again and again."""

    call: Callable[[], T]
    context: Context = nullcontext  # not timed
    rounds: int = 0  # calls that `interleave` makes
    seconds: list[float] = field(default_factory=list)

    def run(self) -> T:
        with self.context():
            start = time.perf_counter()
            result = self.call()
            self.seconds.append(time.perf_counter() - start)
        return result

    def warm_up(self) -> None:
        with self.context():
            self.call()

    @property
    def best(self) -> float:
        return min(self.seconds)


def is_due(turn: int, rounds: int, turns: int) -> bool:
    """Spreads `rounds` calls evenly over `turns` turns."""
    return turn * rounds // turns != (turn + 1) * rounds // turns


def interleave(
    measures: Sequence[Measure[Any]], seconds: float, on_turn: Callable[[int, int], None]
) -> None:
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

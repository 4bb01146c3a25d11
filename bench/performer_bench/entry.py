"""A system in a case, and how often it is called."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from performer_bench.results import Row
from performer_bench.timing import Measure


@dataclass
class Entry:
    """One pass of one system in a case."""

    row: Row
    name: str  # of the pass
    measure: Measure[Tensor]
    mib: float | None
    kernel: str | None
    ours: bool
    beside: Measure[Tensor] | None = None

    @property
    def first(self) -> float:
        """Seconds of the first call."""
        return self.measure.seconds[0]

    @property
    def measures(self) -> list[Measure[Tensor]]:
        return [self.measure] if self.beside is None else [self.measure, self.beside]


def allot(entries: Sequence[Entry], rounds: int, seconds: float) -> float:
    """Divides `seconds` into rounds; what quick ones leave goes to slower ones. Returns the rest.

    An entry without a round keeps the time of its first call.
    """
    waiting = sorted(entries, key=lambda entry: entry.first)
    for position, entry in enumerate(waiting):
        share = seconds / (len(waiting) - position)
        entry.measure.rounds = max(0, min(rounds, int(share / entry.first)))
        seconds -= entry.measure.rounds * entry.first
    return seconds

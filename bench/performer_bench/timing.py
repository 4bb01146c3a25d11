"""The one interface of clocks: what is timed, and what a machine must offer to be measured."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

MIB = 2**20
T = TypeVar("T")
Context = Callable[[], AbstractContextManager[None]]
OnTurn = Callable[[int, int], None]  # of a turn and of the number of turns, for those who wait


@dataclass
class Measure(Generic[T]):
    """One thing that is timed again and again."""

    call: Callable[[], T]
    context: Context = nullcontext  # not timed
    rounds: int = 0  # calls that a machine makes where calls take turns
    eager: bool = False  # on a GPU: called from the host instead of replayed as a graph
    seconds: list[float] = field(default_factory=list)  # of a call
    failure: str | None = None  # why it could not be timed

    def run(self) -> T:
        """One call by the clock on the wall."""
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


class Ceilings(Protocol):
    """The machine's own limits, measured beside a case."""

    @property
    def measures(self) -> list[Measure[Any]]:
        """To be timed with those of the case."""

    @property
    def seconds(self) -> float:
        """Of a call of each of them."""

    @property
    def rates(self) -> dict[str, float]:
        """GFLOP/s by name; the first is that of a matrix product."""


class Machine(ABC):
    """A device that is measured: cpu.py and cuda.py."""

    device: str  # of tensors
    product: str  # the name of its matrix product among the ceilings
    method: str  # how it times, for the head of a page; {calls} is filled in

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Of what, and of which versions, a result is."""

    @abstractmethod
    def ceilings(self, rounds: int) -> Ceilings: ...

    @abstractmethod
    def first(self, measure: Measure[T]) -> tuple[T, float | None]:
        """A first timed call: its result, and MiB of peak memory beyond what there was before."""

    @abstractmethod
    def time(self, measures: Sequence[Measure[Any]], seconds: float, on_turn: OnTurn) -> None:
        """Adds to the `seconds` of each measure, in about so many seconds."""

    @abstractmethod
    def figure(self, measure: Measure[Any]) -> float:
        """Seconds of a call: the one figure that a table quotes."""

    @abstractmethod
    def beside(self, measure: Measure[T]) -> Measure[T] | None:
        """The same call measured in this machine's second way, if it has one."""

    @abstractmethod
    def cache_bytes(self) -> int:
        """Of the largest cache."""

    @abstractmethod
    def copy_rate(self) -> float:
        """Bytes read and written per second by a copy between large tensors."""

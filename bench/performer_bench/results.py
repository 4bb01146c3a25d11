"""What came out of a run."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from performer_bench.case import Case

PASSES = ("forward", "forward_backward")
# FLOP of FAVOR+ per token-head, over features x dim; the backward pass recomputes features.
PASS_FLOPS = {"forward": 8, "forward_backward": 24}
BUSY = 0.85  # a case whose ceilings fall below this part of the run's best was disturbed


@dataclass
class Timing:
    """One pass of one system."""

    us: float  # per token-head, of one call
    rounds: int  # calls that were timed
    share: float  # of the rate of a matrix product, on the FLOP of FAVOR+
    mib: float | None  # peak beyond the inputs
    kernel: str | None  # the path that our operator took
    eager_us: float | None = None  # called from the host, where `us` is of a graph


@dataclass
class Row:
    system: str
    title: str
    error: float | None = None  # of the output against float64
    passes: dict[str, Timing] = field(default_factory=dict)
    gradient_error: float | None = None


@dataclass
class CaseResult:
    case: Case
    rates: dict[str, float]  # the machine's limits in GFLOP/s; the first is of a matrix product
    rows: list[Row]

    @property
    def product_rate(self) -> float:
        return next(iter(self.rates.values()))

    def floor_us(self, name: str, gflops: float) -> float:
        """µs per token-head of a pass at the given rate."""
        return PASS_FLOPS[name] * self.case.features * self.case.dim / gflops / 1e3


@dataclass
class ScalingRow:
    """Our best seconds at a number of threads, and the rates of the machine beside them."""

    case: Case
    threads: int
    seconds: dict[str, float]  # by pass
    sgemm_gflops: float
    fma_gflops: float


def disturbed(results: Sequence[CaseResult]) -> list[str]:
    """Notes on cases during which the machine was slower than in others."""
    notes = []
    for name in results[0].rates if results else ():
        best = max(result.rates[name] for result in results)
        for result in results:
            rate, case = result.rates[name], result.case
            if rate < BUSY * best:
                notes.append(
                    f"DISTURBED: {case.direction}, {case.length:,} tokens: {name} ran at "
                    f"{rate:,.0f} of {best:,.0f} GFLOP/s, as if something else were running; "
                    "do not quote this case"
                )
    return notes

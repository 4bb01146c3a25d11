"""What came out of a run."""

from dataclasses import dataclass, field

from performer.bench.case import Case

PASSES = ("forward", "forward_backward")
# FLOP of FAVOR+ per token-head, over features x dim; the backward pass recomputes features.
PASS_FLOPS = {"forward": 8, "forward_backward": 24}


@dataclass
class Timing:
    """One pass of one system."""

    us: float  # per token-head, best of `rounds` calls
    rounds: int
    sgemm_share: float  # of SGEMM's rate, on the FLOP of FAVOR+
    mib: float | None  # peak beyond the inputs
    kernel: str | None  # the path that our operator took


@dataclass
class Row:
    system: str
    title: str
    error: float | None = None  # RMS against float64, relative to the RMS of v
    passes: dict[str, Timing] = field(default_factory=dict)


@dataclass
class CaseResult:
    case: Case
    sgemm_gflops: float
    fma_gflops: float
    rows: list[Row]

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

"""Runs the cases: who takes part, how often each is called, and what came out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from performer.bench.case import Case, UnavailableError, make_call
from performer.bench.ceilings import Ceilings
from performer.bench.progress import Progress
from performer.bench.results import PASS_FLOPS, CaseResult, Row, Timing
from performer.bench.systems import SYSTEMS, System
from performer.bench.timing import Measure, interleave, peak_mib
from performer.bench.truth import Problem

PILOT = 1024  # length of calls that only tell what longer ones will take
# Parts of the budget: a call that takes longer is not made; ours and the ceilings get this much for
# their rounds in every case, since a share of a rate measured once is no share.
LONGEST = 1 / 20
OURS = 1 / 6
BUSY = 0.85  # a case whose ceilings fall below this part of the run's best was disturbed
QUICK = 1.0  # seconds of a call that can be repeated for warming up


@dataclass
class Entry:
    """One pass of one system in a case."""

    row: Row
    name: str  # of the pass
    measure: Measure[Tensor]
    mib: float | None
    kernel: str | None
    ours: bool

    @property
    def first(self) -> float:
        """Seconds of the first call."""
        return self.measure.seconds[0]


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


@dataclass(frozen=True)
class Plan:
    systems: Sequence[str]
    passes: Sequence[str]
    rounds: int  # calls that each system should get
    budget: float  # seconds that all should take


class Session:
    """A run of cases. `notes` tells what was left out and why."""

    def __init__(self, plan: Plan, progress: Progress) -> None:
        self.notes: list[str] = []
        self._systems = [system for system in SYSTEMS if system.name in plan.systems]
        self._rounds, self._passes = plan.rounds, plan.passes
        self._end = time.monotonic() + plan.budget
        self._longest = plan.budget * LONGEST  # seconds of a call that is still made
        self._for_ours = plan.budget * OURS
        self._known: dict[tuple[str, str, bool], tuple[int, float]] = {}
        self._progress = progress

    def run(self, cases: Sequence[Case]) -> list[CaseResult]:
        """By length, so that short calls tell what the long ones will take."""
        results = []
        if cases and cases[0].length > PILOT:
            for case in {replace(case, length=PILOT): None for case in cases}:
                self._pilot(case)
        for position, case in enumerate(cases):
            weights = [c.length**0.5 for c in cases[position:]]
            results.append(self._run_case(case, weights[0] / sum(weights)))
        self._note_disturbed(results)
        return results

    def _note_disturbed(self, results: Sequence[CaseResult]) -> None:
        for name in ("sgemm_gflops", "fma_gflops"):
            best = max((getattr(result, name) for result in results), default=0.0)
            for result in results:
                rate, case, title = getattr(result, name), result.case, name.split("_")[0]
                if rate < BUSY * best:
                    self.note(
                        f"DISTURBED: {case.direction}, {case.length:,} tokens: {title} ran at "
                        f"{rate:,.0f} of {best:,.0f} GFLOP/s, as if something else were running; "
                        "do not quote this case"
                    )

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _pilot(self, case: Case) -> None:
        self._progress.case(f"{case.direction}, {case.length:,} tokens: how long things take")
        problem = Problem(case)
        for system in self._systems:
            if not system.compiled:
                self._enter(system, problem)

    def _run_case(self, case: Case, part: float) -> CaseResult:
        """`part`: of the time that is left."""
        self._progress.case(f"{case.direction}, {case.length:,} tokens")
        problem = Problem(case)
        entries = [entry for system in self._systems for entry in self._enter(system, problem)]
        ceilings = Ceilings(self._rounds)
        seconds = part * max(0.0, self._end - time.monotonic())
        ours = [entry for entry in entries if entry.ours]
        for_ours = max(seconds / 2, self._for_ours)
        spent = for_ours - allot(ours, self._rounds, for_ours)
        others = [entry for entry in entries if not entry.ours]
        allot(others, self._rounds, max(0.0, seconds - spent))
        planned = sum(entry.measure.rounds * entry.first for entry in entries)
        limit = 1.5 * (planned + self._rounds * ceilings.seconds) + 1
        measures = [*ceilings.measures, *(entry.measure for entry in entries)]
        interleave(measures, limit, lambda n, of: self._progress.step(f"round {n + 1} of {of}"))
        rows = {system.name: Row(system.name, system.title) for system in self._systems}
        for entry in entries:
            rows[entry.row.system] = entry.row
            entry.row.passes[entry.name] = self._timing(entry, case, ceilings)
        return CaseResult(case, ceilings.sgemm_gflops, ceilings.fma_gflops, list(rows.values()))

    def _timing(self, entry: Entry, case: Case, ceilings: Ceilings) -> Timing:
        flops = PASS_FLOPS[entry.name] * case.features * case.dim * case.token_heads
        best = entry.measure.best
        return Timing(
            us=1e6 * best / case.token_heads,
            rounds=len(entry.measure.seconds),
            sgemm_share=flops / best / 1e9 / ceilings.sgemm_gflops,
            mib=entry.mib,
            kernel=entry.kernel,
        )

    def _enter(self, system: System, problem: Problem) -> list[Entry]:
        """First calls of a system's passes: memory, error, and how long a call takes."""
        case, row = problem.case, Row(system.name, system.title)
        where = f"{system.title}, {case.direction}, {case.length:,} tokens"
        if system is not SYSTEMS[0] and time.monotonic() > self._end:
            self.note(f"{where}: left out, the time was up")
            return []
        try:
            attention = system.prepare(case, problem.inputs.W)
        except UnavailableError as reason:
            self.note(f"{system.title}: {reason}")
            return []
        entries: list[Entry] = []
        for name in self._passes:
            expected = self._expected(system, name, case)
            if expected is not None and expected > self._longest:
                self.note(
                    f"{where}: {name.replace('_', ' + ')} left out, a call takes about "
                    f"{expected:.0f} s"
                )
                continue
            self._progress.step(f"{system.title}, {name.replace('_', ' + ')}")
            call = make_call(attention, problem.inputs, name == "forward_backward")
            measure = Measure(call, attention.context)
            try:
                if system.compiled or expected is None or expected < QUICK:
                    measure.warm_up()
                out, mib = peak_mib(measure.run)
            except (RuntimeError, NotImplementedError, TypeError) as error:
                self.note(f"{system.title}, {case.direction}: {str(error).splitlines()[0]}")
                break
            if row.error is None:
                row.error = problem.error(attention, out)
            kernel = attention.path() if attention.path else None
            self._known[system.name, name, case.causal] = (case.length, measure.best)
            entries.append(Entry(row, name, measure, mib, kernel, system is SYSTEMS[0]))
        return entries

    def _expected(self, system: System, name: str, case: Case) -> float | None:
        known = self._known.get((system.name, name, case.causal))
        if known is None:
            return None
        length, seconds = known
        return seconds * (case.length / length) ** system.growth

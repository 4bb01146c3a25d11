"""Runs the cases: who takes part, how often each is called, and what came out."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from performer_bench.ahead import Ahead
from performer_bench.case import Attention, Case, UnavailableError, make_call
from performer_bench.entry import Entry, allot
from performer_bench.progress import Progress
from performer_bench.results import PASS_FLOPS, CaseResult, Row, Timing, disturbed
from performer_bench.systems import System
from performer_bench.tasks import Task
from performer_bench.timing import Ceilings, Machine, Measure
from performer_bench.truth import GradientCheck, Problem, RowCheck

PILOT = 1024  # length of calls that only tell what longer ones will take
# Parts of the budget: a call that takes longer is not made; ours and the ceilings get this much for
# their rounds in every case, since a share of a rate measured once is no share.
LONGEST = 1 / 20
OURS = 1 / 6
QUICK = 1.0  # seconds of a call that can be repeated for warming up
EAGER = 4096  # tokens up to which ours is measured in the machine's second way too


@dataclass(frozen=True)
class Plan:
    passes: Sequence[str]
    rounds: int  # calls that each system should get
    budget: float  # seconds that all should take


class Session:
    """A run of cases. `notes` tells what was left out and why."""

    def __init__(self, machine: Machine, plan: Plan, progress: Progress) -> None:
        self.notes: list[str] = []
        self._machine, self._progress = machine, progress
        self._ahead = Ahead()
        self._rounds, self._passes = plan.rounds, plan.passes
        self._end = time.monotonic() + plan.budget
        self._longest = plan.budget * LONGEST  # seconds of a call that is still made
        self._for_ours = plan.budget * OURS
        self._known: dict[tuple[str, str, bool], tuple[Case, float]] = {}
        self._check = RowCheck() if machine.device == "cpu" else GradientCheck()

    def run(self, tasks: Sequence[Task], ahead: Ahead | None = None) -> list[CaseResult]:
        """By length, so that short calls tell what the long ones will take."""
        self._ahead = ahead or Ahead()
        results = []
        if tasks and tasks[0].case.length > PILOT:
            pilots = [replace(task, case=replace(task.case, length=PILOT)) for task in tasks]
            for task in dict.fromkeys(pilots):
                self._pilot(task)
        for position, task in enumerate(tasks):
            weights = [t.case.length**0.5 for t in tasks[position:]]
            results.append(self._run_task(task, weights[0] / sum(weights)))
            if self._machine.device == "cuda":  # the time of a borrowed machine may end at any row
                self._show(results[-1])
        for text in disturbed(results):
            self.note(text)
        return results

    def _show(self, result: CaseResult) -> None:
        for row in result.rows:
            times = " / ".join(f"{1e6 * timing.us:,.0f}" for timing in row.passes.values())
            self._progress.result(f"{row.title}: {times or 'not measured'} ps")

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _pilot(self, task: Task) -> None:
        case = task.case
        self._progress.case(f"{case.direction}, {case.length:,} tokens: how long things take")
        problem = Problem(case, self._machine.device)
        for system in task.systems:
            if not system.compiled:
                self._enter(system, Row(system.name, system.title), problem)

    def _run_task(self, task: Task, part: float) -> CaseResult:
        """`part`: of the time that is left."""
        case = task.case
        self._progress.case(f"{case.direction}, {case.length:,} tokens")
        problem = Problem(case, self._machine.device)
        rows = {system.name: Row(system.name, system.title) for system in task.systems}
        entries = [e for s in task.systems for e in self._enter(s, rows[s.name], problem)]
        ceilings = self._machine.ceilings(self._rounds)
        self._time(entries, ceilings, part * max(0.0, self._end - time.monotonic()))
        for entry in entries:
            if entry.measure.failure is None:
                entry.row.passes[entry.name] = self._timing(entry, case, ceilings)
            else:
                self.note(f"{self._where(entry.row.title, case)}: {entry.measure.failure}")
        return CaseResult(case, ceilings.rates, list(rows.values()))

    def _time(self, entries: Sequence[Entry], ceilings: Ceilings, seconds: float) -> None:
        ours = [entry for entry in entries if entry.ours]
        for_ours = max(seconds / 2, self._for_ours)
        spent = for_ours - allot(ours, self._rounds, for_ours)
        others = [entry for entry in entries if not entry.ours]
        allot(others, self._rounds, max(0.0, seconds - spent))
        planned = sum(entry.measure.rounds * entry.first for entry in entries)
        limit = 1.5 * (planned + self._rounds * ceilings.seconds) + 1
        measures = [*ceilings.measures, *(m for entry in entries for m in entry.measures)]
        self._machine.time(measures, limit, self._progress.turn)

    def _timing(self, entry: Entry, case: Case, ceilings: Ceilings) -> Timing:
        flops = PASS_FLOPS[entry.name] * case.features * case.dim * case.token_heads
        seconds = self._machine.figure(entry.measure)
        beside = entry.beside
        eager = None if beside is None or beside.failure else self._machine.figure(beside)
        return Timing(
            us=1e6 * seconds / case.token_heads,
            rounds=len(entry.measure.seconds),
            share=flops / seconds / 1e9 / ceilings.rates[self._machine.product],
            mib=entry.mib,
            kernel=entry.kernel,
            eager_us=None if eager is None else 1e6 * eager / case.token_heads,
        )

    def _where(self, title: str, case: Case) -> str:
        return f"{title}, {case.direction}, {case.length:,} tokens"

    def _enter(self, system: System, row: Row, problem: Problem) -> list[Entry]:
        """First calls of a system's passes: memory, error, and how long a call takes."""
        attention = self._prepare(system, problem)
        entries: list[Entry] = []
        for name in self._passes:
            if attention is None or self._is_too_long(system, name, problem.case):
                continue
            self._progress.step(f"{system.title}, {words(name)}")
            try:
                measure = self._warm(system, name, attention, problem)
                out, mib = self._machine.first(measure)
                self._judge(row, attention, problem, out)
            except Exception as error:  # a peer may fail in any way
                self.note(f"{system.title}, {problem.case.direction}: {first_line(error)}")
                break
            kernel = attention.path() if attention.path else None
            self._known[system.name, name, problem.case.causal] = (problem.case, measure.best)
            entry = Entry(row, name, measure, mib, kernel, system.ours)
            if system.ours and problem.case.length <= EAGER:
                entry.beside = self._machine.beside(measure)
            entries.append(entry)
        return entries

    def _prepare(self, system: System, problem: Problem) -> Attention | None:
        """None, and a note, where the system cannot take part."""
        key = (system.name, problem.case)
        where = self._where(system.title, problem.case)
        if not system.ours and time.monotonic() > self._end:
            self.note(f"{where}: left out, the time was up")
        elif key in self._ahead.reasons:
            self.note(f"{where}: {self._ahead.reasons[key]}")
        elif key in self._ahead.attentions:
            return self._ahead.attentions[key]
        else:
            try:
                return system.prepare(problem.case, problem.inputs.W)
            except UnavailableError as reason:
                self.note(f"{system.title}: {reason}")
        return None

    def _warm(
        self, system: System, name: str, attention: Attention, problem: Problem
    ) -> Measure[Tensor]:
        call = make_call(attention, problem.inputs, name == "forward_backward")
        measure = Measure(call, attention.context)
        expected = self._expected(system, name, problem.case)
        if system.compiled or expected is None or expected < QUICK:
            measure.warm_up()
        return measure

    def _judge(self, row: Row, attention: Attention, problem: Problem, out: Tensor) -> None:
        """The row's errors, by its first pass; raises where it computes something else."""
        if row.error is not None:
            return
        verdict = self._check.verdict(row.system, attention, problem, out)
        row.error, row.gradient_error = verdict.error, verdict.gradient_error
        if verdict.wrong:
            raise UnavailableError(f"WRONG at {problem.case.length:,} tokens, not timed")

    def _expected(self, system: System, name: str, case: Case) -> float | None:
        """Seconds of a call, from a shorter case."""
        if (system.name, name, case.causal) not in self._known:
            return None
        before, seconds = self._known[system.name, name, case.causal]
        longer = (case.length / before.length) ** (system.growth - 1)
        return seconds * longer * case.token_heads / before.token_heads

    def _is_too_long(self, system: System, name: str, case: Case) -> bool:
        expected = self._expected(system, name, case)
        if expected is None or expected <= self._longest:
            return False
        self.note(
            f"{self._where(system.title, case)}: {words(name)} left out, a call takes about "
            f"{expected:.0f} s"
        )
        return True


def words(name: str) -> str:
    """Of a pass: forward + backward."""
    return name.replace("_", " + ")


def first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]

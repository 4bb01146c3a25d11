"""Training steps of whole models, each in a process of `performer bench model`."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tomllib

from performer_bench.progress import Progress

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class System:
    title: str
    settings: tuple[str, ...]  # of model.attention


SYSTEMS = {
    "identity": System("identity", ("kind=identity",)),
    "exact": System("exact", ("kind=exact",)),
    "relu": System("Performer-ReLU", ("kind=favor", "kernel=relu", "features=0")),
    "softmax": System(
        "Performer-softmax, m = 256", ("kind=favor", "kernel=positive", "features=256")
    ),
}
REGULAR, PROTEIN = "configs/bench/regular.toml", "configs/bench/protein36.toml"
CAUSAL = ("model.causal=true", "data.objective=causal")
RECIPES = {"cpu": ((REGULAR, ()),), "cuda": ((REGULAR, ()), (PROTEIN, CAUSAL))}
EXACT_STEPS = 3  # of a GPU's steps of exact attention, which take seconds each
LONGEST = (131_072, 2_097_152)  # of one sequence: begins at, ends at
LONGEST_SECONDS = 30.0
BACKEND = re.compile(r"_scaled_dot_product_([a-z_]*attention)")


@dataclass(frozen=True)
class Model:
    """A recipe and what the program itself says of it."""

    recipe: str
    settings: tuple[str, ...]
    causal: bool
    layers: int
    dim: int
    heads: int
    ff_dim: int

    @property
    def title(self) -> str:
        sizes = f"({self.heads}, {self.layers}, {self.ff_dim}, {self.dim})"
        return f"{Path(self.recipe).stem} {sizes}{', causal' if self.causal else ''}"


@dataclass(frozen=True)
class Run:
    model: Model
    system: str
    length: int
    rows: int
    steps: int
    settings: tuple[str, ...] = ()


@dataclass
class Result:
    run: Run
    figures: dict[str, Any] | None  # what `performer bench model --json` prints
    note: str = ""  # why there are none
    backend: str = ""  # of exact attention on a GPU


class ProgramError(Exception):
    """The program's last words, one line."""


@dataclass(frozen=True)
class Program:
    path: Path
    device: str
    precision: str
    progress: Progress

    def describe(self, recipe: str, settings: Sequence[str]) -> Model:
        """Sizes as the program reads them, settings applied."""
        command = [str(self.path), "train", recipe, *flags(settings), "--dump-config"]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        if done.returncode != 0:
            raise ProgramError(last_line(done.stderr))
        sizes = tomllib.loads(done.stdout)["model"]
        return Model(
            recipe,
            tuple(settings),
            sizes["causal"],
            sizes["layers"],
            sizes["dim"],
            sizes["heads"],
            sizes["ff_dim"],
        )

    def measure(self, run: Run, limit: float | None) -> Result:
        """`limit`: seconds."""
        title = SYSTEMS[run.system].title
        self.progress.case(f"{run.model.title}, {title}, {run.rows} x {run.length:,} tokens")
        result = self._measure(run, limit)
        step = result.note if result.figures is None else f"{result.figures['step_ms']:,.1f} ms"
        self.progress.result(step)
        return result

    def _measure(self, run: Run, limit: float | None) -> Result:
        profile = ["--profile"] if run.system == "exact" and self.device == "cuda" else []
        command = [str(self.path), "bench", "model", run.model.recipe, *flags(self._settings(run))]
        command += ["--device", self.device, "--steps", str(run.steps), "--json", *profile]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=ROOT, check=False, timeout=limit
            )
        except subprocess.TimeoutExpired:
            return Result(run, None, f"not within {limit:.0f} s")
        if done.returncode != 0:
            return Result(run, None, f"exit {done.returncode}: {last_line(done.stderr)[:90]}")
        found = BACKEND.search(done.stderr)
        backend = found.group(1) if found and profile else ""
        return Result(run, json.loads(done.stdout), backend=backend)

    def _settings(self, run: Run) -> list[str]:
        return [
            *(f"model.attention.{setting}" for setting in SYSTEMS[run.system].settings),
            f"data.length={run.length}",
            f"model.max_length={run.length}",
            f"train.batch={run.rows}",
            f"train.precision={self.precision}",
            *run.model.settings,
            *run.settings,
        ]


def flags(settings: Sequence[str]) -> list[str]:
    return [word for setting in settings for word in ("--set", setting)]


def last_line(text: str) -> str:
    return (text.strip().splitlines() or ["?"])[-1]


@dataclass(frozen=True)
class Plan:
    systems: Sequence[str]
    lengths: Sequence[int]
    tokens: int  # of a step
    steps: int
    limit: float | None  # seconds of a run
    exact_seconds: float | None  # of all runs of exact attention of a model together


def measure_model(program: Program, model: Model, plan: Plan) -> Iterator[Result]:
    """Exact attention last: its time grows with the length, and the rest is left out once its time
    is spent."""
    runs = [
        Run(model, system, length, max(1, plan.tokens // length), plan.steps)
        for length in plan.lengths
        for system in plan.systems
    ]
    if plan.exact_seconds is None:
        yield from (program.measure(run, plan.limit) for run in runs)
        return
    yield from (program.measure(run, plan.limit) for run in runs if run.system != "exact")
    left = plan.exact_seconds
    for run in (run for run in runs if run.system == "exact"):
        if left < 5:
            note = f"not run: exact attention had its {plan.exact_seconds:.0f} s"
            yield Result(run, None, note)
            continue
        begin = time.monotonic()
        yield program.measure(replace(run, steps=min(run.steps, EXACT_STEPS)), left)
        left -= time.monotonic() - begin


def longest_sequence(program: Program, model: Model, system: str) -> Iterator[Result]:
    """Doubles one sequence until it does not fit; learned positions would be most of the model."""
    length, most = LONGEST
    while length <= most:
        run = Run(model, system, length, 1, 1, ("model.positions=sinusoidal",))
        result = program.measure(run, LONGEST_SECONDS)
        yield result
        if result.figures is None:
            return
        length *= 2

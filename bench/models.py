#!/usr/bin/env python3
"""Step time, memory and tokens/s of whole models, by attention and length.

`more` is a step less identity's step: what attention costs it. `kernels` is layers x the time that
attention.py measured for as many tokens, forward and backward, with --attention FILE.

bench/models.py --lengths 1024 4096
bench/models.py --recipe configs/bench/protein36.toml --set model.causal=true \\
  --set data.objective=causal
bench/models.py --device cuda --attention figures.json --longest
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from performer_bench import host, models
from performer_bench.kernel_times import kernel_ms, kernel_times
from performer_bench.machines import open_machine
from performer_bench.models import Model, Plan, Program, Result
from performer_bench.options import Parser, add_output, check_output, positive, script_parser
from performer_bench.progress import Progress
from performer_bench.table import DASH, Page, Table, number, publish

COLUMNS = (
    "model (heads, layers, ff, d)",
    "L",
    "rows",
    "attention",
    "ms a step",
    "of identity",
    "more ms",
    "kernels ms",
    "tokens/s",
    "MiB",
)
LEGEND = (
    "Training steps (forward, backward, clipping, update) on random tokens: medians. more: less "
    "identity's step; kernels: of attention alone in all layers, as attention.py measured it. MiB "
    "at the peak: of the device's allocator, or of the process on a CPU."
)
PROGRAM = models.ROOT / "build" / "performer"
DEFAULTS: dict[str, dict[str, Any]] = {
    "cpu": {"tokens": 4096, "precision": "fp32", "lengths": [4096]},
    "cuda": {"tokens": 65536, "precision": "bf16", "lengths": [1024, 4096, 16384, 65536]}
    | {"limit": 40, "exact_seconds": 90},
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = script_parser("models.py", __doc__)
    add_options(parser)
    options = parser.parse_args(arguments)
    check_output(parser, options.out)
    for name, value in DEFAULTS[options.device].items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    for file in filter(None, (options.program, options.attention)):
        if not file.is_file():
            parser.error(f"no file {file}")
    return options


def add_options(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--recipe",
        nargs="+",
        metavar="FILE",
        help="the models (configs/bench/regular.toml; on cuda also protein36.toml, causal)",
    )
    add("--set", action="append", default=[], metavar="KEY=VALUE", help="more keys of the recipes")
    add("--lengths", type=positive, nargs="+", metavar="N", help="of a row (4096; four on cuda)")
    add("--tokens", type=positive, metavar="N", help="of a step, in all rows (4096; 65536 on cuda)")
    add("--precision", help="of the training (fp32; bf16 on cuda)")
    names = list(models.SYSTEMS)
    words = f"of {', '.join(names)} (all)"
    add("--systems", nargs="+", choices=names, default=names, metavar="NAME", help=words)
    add("--steps", type=positive, default=10, metavar="N", help="timed steps (10)")
    add("--limit", type=positive, metavar="SECONDS", help="of a run (none; 40 on cuda)")
    add(
        "--exact-seconds",
        type=positive,
        metavar="SECONDS",
        help="of all runs of exact attention (no limit; 90 on cuda)",
    )
    add("--longest", action="store_true", help="also one sequence, doubled until it does not fit")
    add("--attention", type=Path, metavar="FILE", help="what attention.py --json printed")
    add("--program", type=Path, default=PROGRAM, metavar="FILE", help="(build/performer)")
    add_output(parser)


def find_models(options: argparse.Namespace, program: Program) -> list[Model]:
    recipes = models.RECIPES[options.device]
    if options.recipe:
        recipes = tuple((recipe, ()) for recipe in options.recipe)
    return [program.describe(recipe, (*own, *options.set)) for recipe, own in recipes]


def measure(options: argparse.Namespace) -> Iterator[Result]:
    program = Program(options.program.absolute(), options.device, options.precision, Progress())
    found = find_models(options, program)
    share = None if options.exact_seconds is None else options.exact_seconds / len(found)
    plan = Plan(
        options.systems, options.lengths, options.tokens, options.steps, options.limit, share
    )
    for model in found:
        yield from models.measure_model(program, model, plan)
    for model in found if options.longest else ():
        yield from models.longest_sequence(program, model, "softmax")


def cells(result: Result, identity: dict[tuple[Any, ...], float], kernels: Any) -> list[str]:
    run, figures = result.run, result.figures
    head = [run.model.title, str(run.length), str(run.rows), models.SYSTEMS[run.system].title]
    if figures is None:
        return [*head, *[DASH] * 6]
    step, base = figures["step_ms"], identity.get((run.model, run.length, run.rows))
    return [
        *head,
        f"{step:,.1f}",
        number(None if base is None else step / base, ".2f"),
        number(None if base is None else step - base, ",.1f"),
        number(kernel_ms(kernels, run), ",.1f"),
        f"{figures['tokens_per_second']:,.0f}",
        f"{figures['memory_mib']:,.0f}",
    ]


def make_table(results: list[Result], kernels: dict[tuple[object, ...], float]) -> Table:
    identity = {
        (r.run.model, r.run.length, r.run.rows): r.figures["step_ms"]
        for r in results
        if r.run.system == "identity" and r.figures is not None
    }
    order = list(dict.fromkeys(r.run.model for r in results))
    results = sorted(results, key=lambda r: (order.index(r.run.model), r.run.length))
    backends = sorted({r.backend for r in results if r.backend})
    title = f"exact: by {', '.join(backends)}" if backends else "Training steps"
    rows = [cells(result, identity, kernels) for result in results]
    return Table(title, COLUMNS, rows, words=(0, 3))


def notes(results: list[Result]) -> list[str]:
    return [
        f"{r.run.model.title}, {models.SYSTEMS[r.run.system].title}, {r.run.length:,}: {r.note}"
        for r in results
        if r.note
    ]


def main() -> int:
    options = parse(sys.argv[1:])
    machine = open_machine(options.device)
    try:
        results = list(measure(options))
    except models.ProgramError as error:
        sys.exit(str(error))
    kernels = kernel_times(options.attention) if options.attention else {}
    command = shlex.join(["bench/models.py", *sys.argv[1:]])
    described = machine.describe()  # last: it takes memory of a GPU
    page = Page(
        "Speed of models",
        f"Written by `{command}`",
        host.line(described),
        LEGEND,
        [make_table(results, kernels)],
        notes(results),
    )
    figures = {"command": command, "machine": described, "runs": [asdict(r) for r in results]}
    publish(page, figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Attention operators beside their peers, measured on one device: `performer bench attention`.

bench/attention.py --help; bench/attention.py --device cuda --help
"""

import argparse
import shlex
import sys
from dataclasses import replace

import torch

try:
    import performer  # noqa: F401
except ImportError as error:
    sys.exit(f"performer: bench attention: {error}")

from performer_bench import report
from performer_bench.ahead import compile_ahead
from performer_bench.host import cores
from performer_bench.machines import open_machine
from performer_bench.options import parse
from performer_bench.packed import PackedRow, measure_packed, random_lengths
from performer_bench.progress import Progress
from performer_bench.results import PASSES, ScalingRow
from performer_bench.scaling import measure_scaling
from performer_bench.session import Plan, Session, first_line
from performer_bench.table import publish
from performer_bench.tasks import directions, list_cases, list_tasks
from performer_bench.timing import Machine

SCALING_LENGTH = 4096  # long enough to share out, short enough for one thread


def scale_threads(
    options: argparse.Namespace, passes: tuple[str, ...], progress: Progress
) -> list[ScalingRow]:
    """At the length nearest to SCALING_LENGTH."""
    length = min(options.lengths, key=lambda n: abs(n - SCALING_LENGTH))
    rows = []
    for case in (case for case in list_cases(options) if case.length == length):
        rows += measure_scaling(case, passes, options.threads, options.rounds, progress)
    return rows


def measure(options: argparse.Namespace, machine: Machine, command: str) -> report.Report:
    passes = PASSES if options.backward else PASSES[:1]
    tasks, progress = list_tasks(options), Progress()
    session = Session(machine, Plan(passes, options.rounds, options.budget), progress)
    ahead = compile_ahead(tasks, options.budget) if options.device == "cuda" else None
    results = session.run(tasks, ahead)
    results.sort(key=lambda result: result.case.causal)  # stable: lengths stay in order
    scaling = scale_threads(options, passes, progress) if options.scaling else []
    packed: list[PackedRow] = []
    if "packed" in options.parts:
        for causal in directions(options):
            case = replace(list_cases(options)[0], causal=causal)
            try:
                packed += measure_packed(machine, case, random_lengths(), progress)
            except RuntimeError as error:  # the other figures stay
                session.note(f"packed, {case.direction}: {first_line(error)}")
    progress.done()
    return report.Report(
        options.device,
        command,
        machine.method,
        machine.describe(),
        options.rounds,
        results,
        scaling,
        session.notes,
        packed,
    )


def main() -> int:
    options = parse(sys.argv[1:])
    machine = open_machine(options.device)
    if options.device == "cpu":
        options.threads = options.threads or cores()
        torch.set_num_threads(options.threads)
    command = shlex.join(["performer", "bench", "attention", *sys.argv[1:]])
    result = measure(options, machine, command)
    publish(report.to_page(result), report.to_json(result), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

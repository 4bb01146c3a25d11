"""`performer bench attention`: python -m performer.bench attention ..."""

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import torch

from performer.bench import machine, report
from performer.bench.case import DTYPES, Case
from performer.bench.plain import KERNELS
from performer.bench.progress import Progress
from performer.bench.results import PASSES, ScalingRow
from performer.bench.scaling import measure_scaling
from performer.bench.session import Plan, Session
from performer.bench.systems import SYSTEMS

EXAMPLES = """examples:
  performer bench attention
  performer bench attention --lengths 4096 --causal --scaling
  performer bench attention --lengths 1024 4096 --kernel relu --no-backward --json
  performer bench attention --out docs/benchmarks.md

The other packages are measured where this Python has them:
  pip install performer-pytorch
  pip install --no-build-isolation pytorch-fast-transformers
"""
MOST_NUMBERS = 1 << 34  # of q: 64 GiB in fp32
SCALING_LENGTH = 4096  # long enough to share out, short enough for one thread


class Parser(argparse.ArgumentParser):
    """Errors as all commands of the program write them: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"performer: bench attention: {message}; see --help\n")


def whole(most: int) -> Callable[[str], int]:
    """The type of options that take whole numbers from 1 to `most`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text}")
        return int(text)

    return number


positive = whole(1 << 30)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = Parser(
        prog="performer bench attention",
        description="Time, memory and error of FAVOR+ attention beside its peers and the "
        "machine's limits, all in one run, interleaved call by call.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--batch", type=positive, default=1, metavar="N", help="rows (1)")
    add("--heads", type=positive, default=8, metavar="N", help="heads (8)")
    lengths = [1024, 4096, 16384, 65536]
    add(
        "--lengths",
        type=positive,
        nargs="+",
        default=lengths,
        metavar="N",
        help="tokens of a row (1024 4096 16384 65536)",
    )
    add("--dim", type=positive, default=64, metavar="N", help="width of a head (64)")
    add("--features", type=positive, default=256, metavar="N", help="random features (256)")
    add("--kernel", choices=KERNELS, default="positive", help="feature map (positive)")
    add("--dtype", choices=DTYPES, default="fp32", help="of q, k, v (fp32)")
    add("--causal", action="store_true", help="causal attention; neither flag means both")
    add("--bidirectional", action="store_true", help="bidirectional attention")
    backward = argparse.BooleanOptionalAction
    add("--backward", action=backward, default=True, help="measure the backward pass too (yes)")
    names = [system.name for system in SYSTEMS]
    add(
        "--systems",
        nargs="+",
        choices=names,
        default=names,
        metavar="NAME",
        help=f"of {', '.join(names)} (all)",
    )
    add("--threads", type=whole(1024), metavar="N", help="threads (all cores)")
    add("--scaling", action="store_true", help="also ours on 1, 2, 4, … threads")
    add(
        "--rounds",
        type=whole(1_000_000),
        default=15,
        metavar="N",
        help="calls, the best counts (15)",
    )
    add(
        "--budget",
        type=positive,
        default=240,
        metavar="SECONDS",
        help="about how long to take (240): slow systems are called less often than --rounds, and "
        "not at all where one call takes more than a twentieth of it or when it is over",
    )
    add("--json", action="store_true", help="print one JSON object instead of tables")
    add("--out", type=Path, metavar="FILE", help="also write the tables to FILE as Markdown")
    options = parser.parse_args(arguments)
    if options.features % 2:
        parser.error(f"argument --features: must be even, got {options.features}")
    numbers = options.batch * options.heads * max(options.lengths) * options.dim
    if numbers > MOST_NUMBERS:
        parser.error(f"q would have {numbers} numbers, more than {MOST_NUMBERS}; take fewer")
    if options.out is not None and not options.out.absolute().parent.is_dir():
        parser.error(f"argument --out: no folder {options.out.parent}")
    return options


def list_cases(options: argparse.Namespace) -> list[Case]:
    """Short ones first."""
    directions = [options.causal] if options.causal != options.bidirectional else [False, True]
    return [
        Case(
            options.batch,
            options.heads,
            length,
            options.dim,
            options.features,
            causal,
            options.kernel,
            options.dtype,
        )
        for length in sorted(set(options.lengths))
        for causal in directions
    ]


def scale_threads(
    options: argparse.Namespace, cases: list[Case], passes: tuple[str, ...], progress: Progress
) -> list[ScalingRow]:
    """At the length nearest to SCALING_LENGTH."""
    length = min((case.length for case in cases), key=lambda n: abs(n - SCALING_LENGTH))
    rows = []
    for case in (case for case in cases if case.length == length):
        rows += measure_scaling(case, passes, options.threads, options.rounds, progress)
    return rows


def measure(options: argparse.Namespace, command: str) -> report.Report:
    options.threads = options.threads or machine.cores()
    torch.set_num_threads(options.threads)
    passes = PASSES if options.backward else PASSES[:1]
    cases, progress = list_cases(options), Progress()
    session = Session(Plan(options.systems, passes, options.rounds, options.budget), progress)
    results = session.run(cases)
    scaling = scale_threads(options, cases, passes, progress) if options.scaling else []
    progress.done()
    results.sort(key=lambda result: result.case.causal)  # stable: lengths stay in order
    return report.Report(
        command, machine.describe(), options.rounds, results, scaling, session.notes
    )


def main() -> int:
    if sys.argv[1:2] != ["attention"]:
        print("usage: python -m performer.bench attention [--help]", file=sys.stderr)
        return 2
    options = parse(sys.argv[2:])
    result = measure(options, shlex.join(["performer", "bench", *sys.argv[1:]]))
    if options.out is not None:
        options.out.write_text(report.to_markdown(result), encoding="utf-8")
    print(json.dumps(report.to_json(result)) if options.json else report.to_text(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())

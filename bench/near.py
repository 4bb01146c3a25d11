#!/usr/bin/env python3
"""What a near field costs: time per token-head by block length, beside none (near = 0).

Calls of one case are interleaved, so that what slows the machine for a while meets all of them.

bench/near.py
bench/near.py --lengths 4096 --features 256 --near 64 --json > near.json
"""

import argparse
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import partial

import torch

import performer
from performer_bench import host
from performer_bench.case import DTYPES, Attention, Case, draw_inputs, make_call
from performer_bench.host import cores
from performer_bench.machines import open_machine
from performer_bench.options import add_output, check_output, positive, script_parser, whole
from performer_bench.progress import Progress
from performer_bench.results import PASSES
from performer_bench.table import Page, Table, publish
from performer_bench.timing import Machine, Measure

MOST_NEAR = 4096
COLUMNS = ("direction", "L", "m", "near", "forward µs", "of none", "+ backward µs", "of none")
LEGEND = (
    "µs per token-head (one token of one head), the best of the calls, and how many times the time "
    "without a near field that is."
)


@dataclass
class Row:
    """One near field in one case; 0: none."""

    causal: bool
    length: int
    features: int
    near: int
    us: dict[str, float]  # by pass
    of_none: dict[str, float]
    kernel: str


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = script_parser("near.py", __doc__)
    add = parser.add_argument
    numbers = partial(add, nargs="+", metavar="N")
    numbers("--near", type=whole(MOST_NEAR), default=[32, 64, 128], help="blocks (32 64 128)")
    numbers("--lengths", type=positive, default=[4096, 65536], help="tokens (4096 65536)")
    numbers("--features", type=positive, default=[64, 256], help="random features (64 256)")
    add("--heads", type=positive, default=8, metavar="N", help="heads (8)")
    add("--dim", type=positive, default=64, metavar="N", help="width of a head (64)")
    add("--dtype", choices=DTYPES, default="fp32", help="of q, k, v (fp32)")
    add("--threads", type=whole(1024), metavar="N", help="threads on the CPU (all cores)")
    add("--rounds", type=whole(1_000_000), default=15, metavar="N", help="calls (15)")
    add("--seconds", type=positive, default=60, metavar="N", help="most of one case (60)")
    add_output(parser)
    options = parser.parse_args(arguments)
    check_output(parser, options.out)
    return options


def list_cases(options: argparse.Namespace) -> Iterator[Case]:
    for causal in (True, False):
        for length in sorted(set(options.lengths)):
            for features in sorted(set(options.features)):
                sizes = (1, options.heads, length, options.dim, features)
                yield Case(*sizes, causal, "positive", options.dtype)


def measure_case(
    machine: Machine, case: Case, options: argparse.Namespace, progress: Progress
) -> list[Row]:
    inputs = draw_inputs(case, machine.device)
    blocks = [0, *sorted(set(options.near))]
    measures: dict[tuple[int, str], Measure[torch.Tensor]] = {}
    kernels: dict[int, str] = {}
    for near in blocks:
        call = partial(performer.favor_attention, W=inputs.W, causal=case.causal, near=near)
        for name in PASSES:
            backward = name == "forward_backward"
            measure = Measure(make_call(Attention(call, inputs.W), inputs, backward))
            measure.rounds = options.rounds
            measure.warm_up()
            measures[near, name] = measure
            kernels[near] = performer.last_kernel()
    machine.time(list(measures.values()), options.seconds, progress.turn)

    def us(near: int, name: str) -> float:
        return 1e6 * machine.figure(measures[near, name]) / case.token_heads

    return [
        Row(
            case.causal,
            case.length,
            case.features,
            near,
            {name: us(near, name) for name in PASSES},
            {name: us(near, name) / us(0, name) for name in PASSES},
            kernels[near],
        )
        for near in blocks
    ]


def cells(row: Row) -> list[str]:
    direction = "causal" if row.causal else "bidirectional"
    times = [(f"{row.us[name]:.3f}", f"{row.of_none[name]:.2f} x") for name in PASSES]
    sizes = [f"{row.length:,}", str(row.features), str(row.near)]
    return [direction, *sizes, *(cell for pair in times for cell in pair)]


def main() -> int:
    options = parse(sys.argv[1:])
    machine, progress = open_machine(options.device), Progress()
    if options.device == "cpu":
        torch.set_num_threads(options.threads or cores())
    rows: list[Row] = []
    for case in list_cases(options):
        progress.case(f"{case.direction}, {case.length:,} tokens, {case.features} features")
        rows += measure_case(machine, case, options, progress)
    progress.done()
    command, described = shlex.join(["bench/near.py", *sys.argv[1:]]), machine.describe()
    figures = {
        "command": command,
        "machine": described,
        "dim": options.dim,
        "heads": options.heads,
        "dtype": options.dtype,
        "rows": [asdict(row) for row in rows],
    }
    title = f"{options.heads} heads, d = {options.dim}, {options.dtype}"
    page = Page(
        "Speed of the near field",
        f"Written by `{command}`",
        host.line(described),
        LEGEND,
        [Table(title, COLUMNS, [cells(row) for row in rows])],
        [],
    )
    publish(page, figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

#!/usr/bin/env python3
"""Streaming decode: time of a step, and its bytes as a share of the rate of a copy.

A step reads and writes the state, 8 M' (Dv + 2) bytes per head. Steps go round as many sets of
states as exceed the cache four times, at least three.

bench/decode.py
bench/decode.py --device cuda --dtype bf16 --json > decode.json
"""

import argparse
import shlex
import sys
from dataclasses import asdict

import torch

from performer_bench import host
from performer_bench.case import DTYPES
from performer_bench.machines import open_machine
from performer_bench.options import add_output, check_output, positive, script_parser
from performer_bench.progress import Progress
from performer_bench.streams import Row, Streams, Widths, measure_steps
from performer_bench.table import Page, Table, number, publish

HEADS = {"cpu": [16, 1024], "cuda": [16, 1024, 16384]}
COLUMNS = ("heads", "state MB", "sets", "step µs", "eager µs", "GB/s", "of copy", "path")
LEGEND = (
    "A step of one token for all heads behind a float32 state: µs, of a replayed CUDA graph on a "
    "GPU (eager: called from the host), of the best round on a CPU; the bytes of the state, read "
    "and written, beside those of a copy. Per number of heads: the best kernel, then what serves "
    "where it does not."
)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = script_parser("decode.py", __doc__)
    add = parser.add_argument
    add(
        "--heads",
        type=positive,
        nargs="+",
        metavar="N",
        help="heads in all, 16 to a sequence (16 1024, and 16384 on cuda)",
    )
    add("--dim", type=positive, default=64, metavar="N", help="width of a head (64)")
    add("--features", type=positive, default=256, metavar="N", help="random features (256)")
    add("--dtype", choices=DTYPES, help="of tokens (fp32, bf16 on cuda)")
    add_output(parser)
    options = parser.parse_args(arguments)
    check_output(parser, options.out)
    options.heads = options.heads or HEADS[options.device]
    options.dtype = options.dtype or ("fp32" if options.device == "cpu" else "bf16")
    return options


def cells(row: Row) -> list[str]:
    return [
        str(row.heads),
        f"{row.state_megabytes:.1f}",
        str(row.sets),
        f"{row.step_us:,.2f}",
        number(row.eager_us, ",.2f"),
        f"{row.gigabytes_per_second:,.1f}",
        f"{row.share_of_copy:.0%}",
        row.kernel,
    ]


def main() -> int:
    options = parse(sys.argv[1:])
    machine, progress = open_machine(options.device), Progress()
    torch.manual_seed(0)
    widths = Widths(options.dim, options.features, options.dtype)
    rows: list[Row] = []
    with torch.no_grad():
        copy = machine.copy_rate()
        for heads in options.heads:
            progress.case(f"{heads:,} heads")
            rows += measure_steps(machine, Streams(machine, heads, widths), copy, progress)
    progress.done()
    command, described = shlex.join(["bench/decode.py", *sys.argv[1:]]), machine.describe()
    figures = {
        "command": command,
        "machine": described,
        "copy_gigabytes_per_second": copy / 1e9,
        **asdict(widths),
        "rows": [asdict(row) for row in rows],
    }
    title = f"d = {widths.dim}, m = {widths.features}, {widths.dtype}; copy {copy / 1e9:,.1f} GB/s"
    page = Page(
        "Speed of decoding",
        f"Written by `{command}`",
        host.line(described),
        LEGEND,
        [Table(title, COLUMNS, [cells(row) for row in rows], words=(len(COLUMNS) - 1,))],
        [],
    )
    publish(page, figures, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The options of `performer bench attention`."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from performer_bench.case import DTYPES
from performer_bench.plain import KERNELS
from performer_bench.systems import systems_of
from performer_bench.tasks import LENGTHS, PARTS

DEVICES = ("cpu", "cuda")
EXAMPLES = """examples:
  performer bench attention
  performer bench attention --lengths 4096 --causal --scaling
  performer bench attention --lengths 1024 4096 --kernel relu --no-backward --json
  performer bench attention --out docs/results/benchmarks.md

The other packages are measured where this Python has them:
  pip install performer-pytorch
  pip install --no-build-isolation pytorch-fast-transformers
"""
CUDA_EXAMPLES = """examples:
  performer bench attention --device cuda
  performer bench attention --device cuda --parts lengths --lengths 4096 --causal
  performer bench attention --device cuda --quick --json --out page.md > figures.json

flash-linear-attention is measured where this Python has it: pip install fla-core einops
"""
MOST_NUMBERS = 1 << 34  # of q: 64 GiB in fp32


class Parser(argparse.ArgumentParser):
    """Errors as all commands of the program write them: one line, exit code 2."""

    def error(self, message: str) -> NoReturn:
        name = self.prog.replace("performer ", "performer: ")
        self.exit(2, f"{name}: {message}; see --help\n")


def whole(most: int) -> Callable[[str], int]:
    """The type of options that take whole numbers from 1 to `most`."""

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"must be a whole number from 1 to {most}, got {text}")
        return int(text)

    return number


positive = whole(1 << 30)


def device_of(arguments: list[str]) -> str:
    """Of which the other options depend."""
    parser = Parser(prog="performer bench attention", add_help=False, allow_abbrev=False)
    parser.add_argument("--device", choices=DEVICES, default="cpu")
    device: str = parser.parse_known_args(arguments)[0].device
    return device


def make_parser(device: str) -> Parser:
    parser = Parser(
        prog="performer bench attention",
        description="Time, memory and error of FAVOR+ attention beside its peers and the "
        "machine's limits, all in one run"
        + (", interleaved call by call." if device == "cpu" else ", from CUDA graphs."),
        epilog=EXAMPLES if device == "cpu" else CUDA_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add_problem(parser, device)
    names = [system.name for system in systems_of(device)]
    which = "all" if device == "cpu" else "all but composed, at the lengths that are worth it"
    parser.add_argument(
        "--systems",
        nargs="+",
        choices=names,
        metavar="NAME",
        help=f"of {', '.join(names)} ({which})",
    )
    if device == "cpu":
        add_cpu(parser)
    else:
        add_cuda(parser)
    add_output(parser)
    return parser


def script_parser(name: str, text: str) -> Parser:
    """Of a bench that is no command of the program; `text` is its doc string."""
    parser = Parser(
        prog=name,
        description=text,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--device", choices=DEVICES, default="cpu", help="what is measured (cpu)")
    return parser


def add_output(parser: argparse.ArgumentParser) -> None:
    """What every bench writes."""
    add = parser.add_argument
    add("--json", action="store_true", help="print one JSON object instead of tables")
    add("--out", type=Path, metavar="FILE", help="also write the tables to FILE as Markdown")


def check_output(parser: argparse.ArgumentParser, out: Path | None) -> None:
    if out is not None and not out.absolute().parent.is_dir():
        parser.error(f"argument --out: no folder {out.parent}")


def add_problem(parser: Parser, device: str) -> None:
    add, on_cpu = parser.add_argument, device == "cpu"
    add(
        "--device",
        choices=DEVICES,
        default=device,
        help="what is measured (cpu); --device cuda --help lists the options of cuda",
    )
    rows = "1" if on_cpu else "as many as make 65,536 tokens"
    batch = 1 if on_cpu else None
    add("--batch", type=positive, default=batch, metavar="N", help=f"rows ({rows})")
    add("--heads", type=positive, default=8, metavar="N", help="heads (8)")
    lengths = LENGTHS[device]
    add(
        "--lengths",
        type=positive,
        nargs="+",
        default=lengths,
        metavar="N",
        help=f"tokens of a row ({' '.join(map(str, lengths))})",
    )
    add("--dim", type=positive, default=64, metavar="N", help="width of a head (64)")
    add("--features", type=positive, default=256, metavar="N", help="random features (256)")
    add("--kernel", choices=KERNELS, default="positive", help="feature map (positive)")
    dtype = "fp32" if on_cpu else "bf16"
    add("--dtype", choices=DTYPES, default=dtype, help=f"of q, k, v ({dtype})")
    add("--causal", action="store_true", help="causal attention; neither flag means both")
    add("--bidirectional", action="store_true", help="bidirectional attention")
    backward = argparse.BooleanOptionalAction
    add("--backward", action=backward, default=True, help="measure the backward pass too (yes)")


def add_cpu(parser: Parser) -> None:
    add = parser.add_argument
    add("--threads", type=whole(1024), metavar="N", help="threads (all cores)")
    add("--scaling", action="store_true", help="also ours on 1, 2, 4, … threads")
    add(
        "--rounds",
        type=whole(1_000_000),
        default=15,
        metavar="N",
        help="calls, the best counts (15)",
    )
    parser.set_defaults(parts=(), quick=False)
    add(
        "--budget",
        type=positive,
        default=240,
        metavar="SECONDS",
        help="about how long to take (240): slow systems are called less often than --rounds, and "
        "not at all where one call takes more than a twentieth of it or when it is over",
    )


def add_cuda(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--parts",
        nargs="+",
        choices=PARTS,
        default=PARTS,
        metavar="PART",
        help=f"of {', '.join(PARTS)} (all): widths are other d and m and float32 at 4,096 tokens",
    )
    add("--quick", action="store_true", help="nothing that has to be compiled")
    add(
        "--budget",
        type=positive,
        default=100,
        metavar="SECONDS",
        help="about how long to take (100): peers are left out where one call takes more than a "
        "twentieth of it or when it is over",
    )
    parser.set_defaults(rounds=1, threads=None, scaling=False)


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser(device_of(arguments))
    options = parser.parse_args(arguments)
    if options.features % 2:
        parser.error(f"argument --features: must be even, got {options.features}")
    numbers = (options.batch or 1) * options.heads * max(options.lengths) * options.dim
    if numbers > MOST_NUMBERS:
        parser.error(f"q would have {numbers} numbers, more than {MOST_NUMBERS}; take fewer")
    check_output(parser, options.out)
    return options

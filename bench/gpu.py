"""Fused FAVOR+ on a GPU against fused softmax attention and other linear kernels, in one run.

Times are medians of CUDA graph replays, in picoseconds per token-head: one token of one head.
65,536 tokens of 8 heads unless said. One table comes last.
"""

import argparse
from pathlib import Path

import torch
from on_gpu import bidirectional, causal, ceilings, packed
from on_gpu.measure import warm
from on_gpu.systems import composed
from on_gpu.table import Table
from on_gpu.timing import Clock

import performer

PARTS = ("ceilings", "bidirectional", "causal", "packed")
SECONDS = 100.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART")
    parser.add_argument("--quick", action="store_true", help="nothing that has to be compiled")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of which rows say so")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("torch sees no CUDA device")
    clock, table = Clock(options.seconds), Table()
    torch.manual_seed(0)
    torch._dynamo.config.recompile_limit = 64
    table.fact(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, "
        f"performer {performer.__version__}",
        device=torch.cuda.get_device_name(),
        torch=torch.__version__,
    )

    peers = plain = None
    if not options.quick:
        if "causal" in options.only:
            peers = causal.Peers(clock)
        if "bidirectional" in options.only:
            plain = composed(64, 256, causal=False)
            warm(plain, bidirectional.COMPILED)
        if peers is not None:
            peers.compile()
    if "ceilings" in options.only:
        ceilings.measure(table)
    if "causal" in options.only:
        causal.measure(table, peers, clock)
    if "packed" in options.only:
        packed.measure(table)
    if "bidirectional" in options.only:
        bidirectional.measure(table, plain)
    table.fact(f"in {options.seconds - clock.left:.0f} s")
    print("\n" + "\n".join(table.lines()))
    if options.json:
        table.write(options.json)


if __name__ == "__main__":
    main()

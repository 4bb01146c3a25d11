#!/usr/bin/env python3
"""What idle OpenMP threads cost beside busy processes, as a Markdown table.

Each row is a process of its own, which imports torch first. `libgomp's default` spells that default
out (GOMP_SPINCOUNT=300000): performer takes it for the choice of the user and leaves it.

experiments/spinning.py --neighbours 0 1 2
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

WAYS = {
    "libgomp's default": {"GOMP_SPINCOUNT": "300000"},
    "performer's": {},
    "OMP_WAIT_POLICY=passive": {"OMP_WAIT_POLICY": "passive"},
}
BUSY = "while True: pass"


def median_ms(call: Callable[[], object], repeats: int) -> float:
    call()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return 1e3 * statistics.median(seconds)


def measure_here() -> dict[str, float]:
    """Attention, and two small operators of torch's own, with all threads."""
    import torch

    import performer

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 8, 1024, 64) for _ in range(3))
    W = performer.draw_projection(256, 64, heads=8)
    x, linear, rows = torch.randn(200_000), torch.nn.Linear(256, 256), torch.randn(64, 256)
    with torch.no_grad():
        return {
            "attention": median_ms(lambda: performer.favor_attention(q, k, v, W), 30),
            "causal": median_ms(lambda: performer.favor_attention(q, k, v, W, causal=True), 20),
            "linear": median_ms(lambda: linear(rows), 300),
            "relu": median_ms(lambda: x.relu(), 300),
        }


def measure(way: str) -> dict[str, float]:
    plain = {k: v for k, v in os.environ.items() if k not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    done = subprocess.run(
        [sys.executable, __file__, "--child"],
        env=plain | WAYS[way],
        stdout=subprocess.PIPE,
        check=True,
    )
    results: dict[str, float] = json.loads(done.stdout)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--neighbours", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure_here()))
        return 0
    print("| busy neighbours | threads wait by | attention | causal | linear | relu |")
    print("|---|---|---|---|---|---|")
    for count in options.neighbours:
        busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(count)]
        try:
            for way in WAYS:
                cells = " | ".join(f"{ms:.3g}" for ms in measure(way).values())
                print(f"| {count} | {way} | {cells} |", flush=True)
        finally:
            for process in busy:
                process.kill()
                process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main())

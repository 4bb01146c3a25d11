#!/usr/bin/env python3
"""Step time, memory and tokens/s of whole models by attention and length, as a Markdown table.

bench/models.py --device cuda --tokens 65536 --precision bf16 --lengths 1024 4096 16384 65536
bench/models.py --recipe configs/bench/protein36.toml --device cuda --tokens 65536 --lengths 1024
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SYSTEMS = {
    "identity": ["kind=identity"],
    "exact": ["kind=exact"],
    "Performer-ReLU": ["kind=favor", "kernel=relu", "features=0"],
    "Performer-softmax, m = 256": ["kind=favor", "kernel=positive", "features=256"],
}


def measure(options: argparse.Namespace, system: str, length: int) -> dict[str, float] | None:
    settings = [f"model.attention.{setting}" for setting in SYSTEMS[system]]
    settings += [
        f"data.length={length}",
        f"model.max_length={length}",
        f"train.batch={max(1, options.tokens // length)}",
        f"train.precision={options.precision}",
        *options.set,
    ]
    flags = [flag for setting in settings for flag in ("--set", setting)]
    command = [str(ROOT / "build/performer"), "bench", "model", options.recipe, *flags]
    command += ["--device", options.device, "--steps", str(options.steps), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode == 0:
        return json.loads(done.stdout)
    print(f"{system} at {length}: {done.stderr.strip()}", file=sys.stderr)
    return None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--recipe", default="configs/bench/regular.toml")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--tokens", type=int, default=4096, help="tokens of a step")
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--lengths", type=int, nargs="+", default=[4096])
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--set", action="append", default=[], help="more keys of the recipe")
    options = parser.parse_args()
    print("| length | system | ms a step | of identity | tokens/s | MiB |")
    print("|---|---|---|---|---|---|")
    for length in options.lengths:
        identity = 0.0
        for system in options.systems:
            result = measure(options, system, length)
            if result is None:
                print(f"| {length} | {system} | failed | | | |", flush=True)
                continue
            if system == "identity":
                identity = result["step_ms"]
            ratio = f"{result['step_ms'] / identity:.2f}" if identity else ""
            print(
                f"| {length} | {system} | {result['step_ms']:.1f} | {ratio} "
                f"| {result['tokens_per_second']:,.0f} | {result['memory_mib']:,.0f} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
